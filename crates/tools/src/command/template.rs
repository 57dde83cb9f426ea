//! The words of a command, with places for arguments.
//!
//! `{x}` is a place if `x` is a property of the input schema; all other text is literal, braces included. An
//! argument stays inside its word: it is never split, and no shell ever sees it. It may still begin with `-`,
//! and a word that is only `{x}` then looks like an option to the program; write `--name={x}`, or put `--`
//! before it, where the program supports that. A word with a place for a missing argument is left out.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;

/// The words of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate {
    program: OsString,
    words: Vec<Vec<WordPiece>>,
}

/// A piece of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WordPiece {
    /// Literal text.
    Text(String),
    /// The argument of this name.
    Argument(String),
}

/// Why the words cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A command line cannot carry it.
    #[error("the argument {name:?} contains a NUL character, which no command line can carry; leave it out")]
    Nul {
        /// The argument.
        name: String,
    },
}

impl CommandTemplate {
    /// Parses the words after the program; `properties` are the names of the arguments.
    pub fn new(
        program: impl Into<OsString>,
        words: &[String],
        properties: &BTreeSet<String>,
    ) -> CommandTemplate {
        let words = words.iter().map(|word| pieces(word, properties)).collect();
        CommandTemplate { program: program.into(), words }
    }

    /// The words for these arguments.
    pub fn fill(&self, args: &Value) -> Result<Vec<OsString>, TemplateError> {
        Ok(self.fill_words(args)?.into_iter().map(|word| word.text).collect())
    }

    pub(super) fn fill_words(&self, args: &Value) -> Result<Vec<FilledWord>, TemplateError> {
        let mut filled = vec![FilledWord { text: self.program.clone(), is_fixed: true }];
        for word in &self.words {
            if let Some(text) = fill_word(word, args)? {
                let is_fixed = word.iter().all(|piece| matches!(piece, WordPiece::Text(_)));
                filled.push(FilledWord { text: text.into(), is_fixed });
            }
        }
        Ok(filled)
    }

    /// The words as they were declared, one text for each template.
    pub(super) fn declared(&self) -> Value {
        let piece = |piece: &WordPiece| match piece {
            WordPiece::Text(text) => Value::from(text.as_str()),
            WordPiece::Argument(name) => json!({ "argument": name }),
        };
        let words: Vec<Vec<Value>> = self.words.iter().map(|word| word.iter().map(piece).collect()).collect();
        json!({ "program": self.program.to_string_lossy(), "words": words })
    }
}

/// A word of a command line.
#[derive(Clone, Debug)]
pub(crate) struct FilledWord {
    pub(crate) text: OsString,
    /// Whether nothing of it comes from an argument.
    pub(crate) is_fixed: bool,
}

/// Whether a word has a place for an argument.
pub(crate) fn has_place(word: &str, properties: &BTreeSet<String>) -> bool {
    pieces(word, properties).iter().any(|piece| matches!(piece, WordPiece::Argument(_)))
}

fn pieces(word: &str, properties: &BTreeSet<String>) -> Vec<WordPiece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        let (before, from_brace) = rest.split_at(at);
        text.push_str(before);
        let named = from_brace[1..].split_once('}').filter(|(name, _)| properties.contains(*name));
        if let Some((name, after)) = named {
            pieces.push(WordPiece::Text(std::mem::take(&mut text)));
            pieces.push(WordPiece::Argument(name.to_string()));
            rest = after;
        } else {
            text.push('{');
            rest = &from_brace[1..];
        }
    }
    text.push_str(rest);
    pieces.push(WordPiece::Text(text));
    pieces.retain(|piece| *piece != WordPiece::Text(String::new()));
    pieces
}

/// The word, or `None` if an argument in it is missing.
fn fill_word(pieces: &[WordPiece], args: &Value) -> Result<Option<String>, TemplateError> {
    let mut word = String::new();
    for piece in pieces {
        match piece {
            WordPiece::Text(text) => word.push_str(text),
            WordPiece::Argument(name) => match args.get(name) {
                None => return Ok(None),
                Some(Value::String(text)) if text.contains('\0') => {
                    return Err(TemplateError::Nul { name: name.clone() });
                }
                Some(Value::String(text)) => word.push_str(text),
                Some(other) => word.push_str(&other.to_string()),
            },
        }
    }
    Ok(Some(word))
}
