//! Keys of providers. They are shown nowhere.

use std::fmt;
use std::path::Path;

/// The key of a provider. It appears in no log, error or journal.
#[derive(Clone)]
pub struct ApiKey(String);

/// A key that is not where it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyProblem {
    /// The variable is not set, or is empty.
    #[error("there is no key in the environment; set {variable}")]
    Environment {
        /// Its name.
        variable: String,
    },
    /// The file cannot be read, or is empty.
    #[error("there is no key in {path:?}: {what}")]
    File {
        /// Its path.
        path: String,
        /// The problem.
        what: String,
    },
}

impl ApiKey {
    /// A key that the host has from its own store of secrets.
    pub fn new(secret: impl Into<String>) -> ApiKey {
        ApiKey(secret.into())
    }

    /// The key in a variable of the environment, such as `OPENAI_API_KEY`.
    pub fn from_env(variable: &str) -> Result<ApiKey, KeyProblem> {
        match std::env::var(variable) {
            Ok(key) if !key.trim().is_empty() => Ok(ApiKey(key.trim().to_string())),
            _ => Err(KeyProblem::Environment { variable: variable.to_string() }),
        }
    }

    /// The key in a file, as orchestrators mount secrets.
    pub fn from_file(path: impl AsRef<Path>) -> Result<ApiKey, KeyProblem> {
        let shown = path.as_ref().display().to_string();
        match std::fs::read_to_string(path) {
            Ok(key) if !key.trim().is_empty() => Ok(ApiKey(key.trim().to_string())),
            Ok(_) => Err(KeyProblem::File { path: shown, what: "it is empty".to_string() }),
            Err(error) => Err(KeyProblem::File { path: shown, what: error.to_string() }),
        }
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// The text without the key in it, should a provider repeat it.
    pub(crate) fn removed_from(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_string() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([hidden])")
    }
}
