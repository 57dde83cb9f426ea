//! The position of a mistake in the file, and what to do about it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a `windlass.toml`, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {problem}", .file.display())]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The mistake.
    pub problem: DeclarationProblem,
}

/// The mistake, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationProblem {
    /// An unknown key.
    #[error("unknown key `{key}` in {place}; {}", meant(.nearest, .known))]
    UnknownKey {
        /// The key.
        key: String,
        /// The table it is in.
        place: &'static str,
        /// The most similar key.
        nearest: Option<&'static str>,
        /// All keys.
        known: Box<[&'static str]>,
    },
    /// A key of a later version.
    #[error("`{key}` in {place} is not supported yet by this version; remove it")]
    NotYet {
        /// The key.
        key: String,
        /// The table it is in.
        place: &'static str,
    },
    /// A limit that would stop everything.
    #[error("the limit `{limit}` is 0, which would block everything; set at least 1, or remove it")]
    Zero {
        /// The limit.
        limit: &'static str,
    },
    /// An invalid value, and what to write instead.
    #[error("{0}")]
    Value(String),
}

fn meant(nearest: &Option<&'static str>, known: &[&'static str]) -> String {
    match nearest {
        Some(key) => format!("did you mean `{key}`?"),
        None => format!("known are {}", known.join(", ")),
    }
}

/// The file being parsed.
pub(super) struct DeclarationSource<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a Path,
}

impl DeclarationSource<'_> {
    /// An error at a position of the file.
    pub(super) fn error(&self, span: Range<usize>, problem: DeclarationProblem) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ConfigError { file: self.file.to_path_buf(), line, column, problem }
    }

    /// An error about a value.
    pub(super) fn value_error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        self.error(span, DeclarationProblem::Value(message.into()))
    }

    /// The TOML parser's error.
    pub(super) fn rejected(&self, error: toml::de::Error) -> ConfigError {
        self.value_error(error.span().unwrap_or(0..0), error.message().trim_end().replace('\n', "; "))
    }

    /// The table of this name.
    pub(super) fn table<'v, 'd>(
        &self,
        value: &'v Spanned<DeValue<'d>>,
        name: &str,
    ) -> Result<&'v DeTable<'d>, ConfigError> {
        value.get_ref().as_table().ok_or_else(|| {
            let found = value.get_ref().type_str();
            self.value_error(
                value.span(),
                format!("`{name}` must be a table, and this is a value of type {found}"),
            )
        })
    }

    /// The folder of the file, as an absolute path.
    pub(super) fn folder(&self) -> Result<PathBuf, ConfigError> {
        let file = std::path::absolute(self.file).map_err(|error| {
            self.value_error(0..0, format!("the folder of the file is not known: {error}"))
        })?;
        Ok(file.parent().unwrap_or(Path::new("/")).to_path_buf())
    }
}

/// The position of a key of a table.
pub(super) fn key_span(table: &DeTable<'_>, name: &str) -> Range<usize> {
    table.get_key_value(name).map_or(0..0, |(key, _)| key.span())
}
