//! Secrets: the key that encrypts them, their values, and why one cannot be stored or used.

use crate::api::error::SessionError;
use crate::api::limits::Limits;
use crate::api::output::ToolError;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use windlass_core::code::Code;
use windlass_core::failure::FailureClass;
use windlass_core::redact::SECRET_CHARS_MIN;
use zeroize::Zeroizing;

/// The variable of the environment that has the key.
const VARIABLE: &str = "WINDLASS_SECRET_KEY";
/// The maximum length of a secret's name.
const NAME_CHARS_MAX: usize = 64;
/// The length of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// The key that encrypts secrets. It is wiped from memory when it is dropped, and shown nowhere.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_BYTES]>);

/// Where a runtime has its key from.
///
/// ```
/// use windlass::secrets::{SecretKey, SecretKeySource};
/// use windlass::store::memory::MemoryStore;
/// use windlass::{Config, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let secret_key = SecretKeySource::Key(SecretKey::random()?);
/// let runtime = Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new()?) });
/// runtime.secrets("demo").set("deploy_token", "0f9a-22c1-77").await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub enum SecretKeySource {
    /// There is none: no secret can be stored or used.
    #[default]
    None,
    /// This file, which is made with the first secret.
    File(PathBuf),
    /// This key.
    Key(SecretKey),
}

/// The value of a secret. It is neither displayed nor debugged, and wiped from memory when it is dropped.
#[derive(Clone)]
pub struct SecretValue(SecretString);

/// Why a secret was not stored, removed or used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The name or the value is refused.
    #[error("{what}")]
    Unfit {
        /// The mistake, and what to do. It never shows the value.
        what: String,
    },
    /// There is the maximum number of secrets.
    #[error(
        "there are {max} secrets, which is the most that a session or the data folder may have; remove some first"
    )]
    Full {
        /// The limit `secrets_max`.
        max: u64,
    },
    /// The runtime has no key.
    #[error(
        "this runtime has no key to encrypt secrets with; make it with `Config::secret_key`, or start `windlass` with a data folder"
    )]
    NoKey,
    /// The key cannot be read, or is none.
    #[error("{what}")]
    Key {
        /// The problem, and what to do.
        what: String,
    },
    /// The secret is not set.
    #[error(
        "the secret {name:?} is not set, neither in the session nor for the data folder; store it with `windlass secrets set {name}`"
    )]
    Missing {
        /// Its name.
        name: String,
    },
    /// The secret was stored under another key.
    #[error(
        "the secret {name:?} cannot be decrypted with the key in use; restore the key it was stored under, or store it again with `windlass secrets set {name}`"
    )]
    Sealed {
        /// Its name.
        name: String,
    },
    /// The tool does not list the secret among those it uses.
    #[error(
        "the tool asked for the secret {name:?}, which its declaration does not list; list it under `secrets`"
    )]
    Undeclared {
        /// Its name.
        name: String,
    },
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl SecretError {
    /// The error of a tool that does not handle it: the model reads a fixed sentence; which secret it is, and what to do, is for
    /// operators.
    pub(crate) fn into_tool_error(self) -> ToolError {
        let detail = Some(crate::api::error::chain(&self));
        let message = "A secret that the tool needs is missing or cannot be used. Nothing happened. Tell the user that the \
                       operator has to store it; calling the tool again does not help until then.";
        ToolError {
            class: FailureClass::Unavailable,
            code: Some(Code::SecretUnavailable),
            detail,
            did_not_happen: true,
            ..ToolError::new(message)
        }
    }
}

impl SecretKey {
    /// A new key.
    pub fn random() -> Result<SecretKey, SecretError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *key).map_err(|error| {
            let what =
                format!("no key for secrets could be made: the machine gives no random numbers ({error})");
            SecretError::Key { what }
        })?;
        Ok(SecretKey(key))
    }

    /// A key of 32 bytes, in hex or base64.
    pub fn parse(text: &str) -> Result<SecretKey, SecretError> {
        let text = text.trim();
        let bytes = if text.len() == 2 * KEY_BYTES {
            unhex(text)
        } else {
            let plain = text.trim_end_matches('=');
            STANDARD_NO_PAD.decode(plain).or_else(|_| URL_SAFE_NO_PAD.decode(plain)).ok().map(Zeroizing::new)
        };
        let key = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok());
        key.map(|key| SecretKey(Zeroizing::new(key))).ok_or_else(|| SecretError::Key {
            what: "a key for secrets is 32 random bytes in hex (64 digits) or base64 (44 characters); \
                   `openssl rand -hex 32` makes one"
                .to_string(),
        })
    }

    /// The key in the variable `WINDLASS_SECRET_KEY` of the environment, if it is set.
    pub fn from_env() -> Result<Option<SecretKey>, SecretError> {
        match std::env::var(VARIABLE) {
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(in_variable(&SecretError::Key { what: "it is no text".to_string() }))
            }
            Ok(text) => {
                let text = Zeroizing::new(text);
                SecretKey::parse(&text).map(Some).map_err(|error| in_variable(&error))
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The key in a file; `None`: there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<SecretKey>, SecretError> {
        let trouble =
            |what: String| SecretError::Key { what: format!("the key of the secrets in {path:?}: {what}") };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(trouble(format!("it cannot be read ({error}); make it readable for this user")));
            }
        };
        let mode = std::fs::metadata(path).map(|found| found.permissions().mode() & 0o777).unwrap_or(0);
        if mode & 0o077 != 0 {
            return Err(trouble(format!("others may read it (its mode is {mode:o}); run chmod 600 on it")));
        }
        SecretKey::parse(&text).map(Some).map_err(|error| trouble(error.to_string()))
    }

    /// Makes a key in a file that nobody else can read. One that is there is left as it is, and read.
    pub(crate) fn make(path: &Path) -> Result<SecretKey, SecretError> {
        let key = SecretKey::random()?;
        let text = Zeroizing::new(key.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n");
        let written = || {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            let folder =
                path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::File::open(folder)?.sync_all()
        };
        match written() {
            Ok(()) => Ok(key),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                SecretKey::read(path)?.ok_or(SecretError::NoKey)
            }
            Err(error) => Err(SecretError::Key {
                what: format!("the key of the secrets could not be written to {path:?}: {error}"),
            }),
        }
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey([hidden])")
    }
}

fn in_variable(error: &SecretError) -> SecretError {
    SecretError::Key { what: format!("the key of the secrets in {VARIABLE} cannot be used: {error}") }
}

fn unhex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

impl SecretValue {
    pub(crate) fn new(value: String) -> SecretValue {
        SecretValue(SecretString::from(value))
    }

    /// The value. Give it to whatever needs it, and to nothing else.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Checks the name of a secret.
pub(crate) fn check_secret_name(name: &str) -> Result<(), SecretError> {
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits {
        return Ok(());
    }
    let what = format!(
        "a secret is named by 1 to {NAME_CHARS_MAX} of a-z, A-Z, 0-9, _, . and -; choose another name"
    );
    Err(SecretError::Unfit { what })
}

/// Checks the value of a secret.
pub(crate) fn check_secret_value(value: &str, limits: &Limits) -> Result<(), SecretError> {
    let (chars, max) = (value.chars().count(), limits.secret_bytes_max);
    let what = if chars < SECRET_CHARS_MIN {
        format!(
            "the secret has {chars} characters and must have at least {SECRET_CHARS_MIN}: a shorter one could not be removed from \
             outputs, since it would be found everywhere"
        )
    } else if value.len() as u64 > max {
        format!("the secret has {} bytes and may have {max}; store a key to the rest", value.len())
    } else {
        return Ok(());
    };
    Err(SecretError::Unfit { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_in_its_usual_forms() {
        let hex = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
        let key = SecretKey::parse(hex).unwrap();
        let standard = base64::engine::general_purpose::STANDARD.encode(key.bytes());
        for text in [standard.clone(), URL_SAFE_NO_PAD.encode(key.bytes()), format!(" {standard}\n")] {
            assert_eq!(SecretKey::parse(&text).unwrap().bytes(), key.bytes(), "{text}");
        }
        for bad in ["", "short", &hex[1..], &hex.replace('0', "g"), &standard[4..]] {
            assert!(matches!(SecretKey::parse(bad), Err(SecretError::Key { .. })), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "SecretKey([hidden])");
    }

    #[test]
    fn a_key_file_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret.key");
        assert!(SecretKey::read(&path).unwrap().is_none());
        let made = SecretKey::make(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SecretKey::make(&path).unwrap().bytes(), made.bytes());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(SecretKey::read(&path).unwrap_err().to_string().contains("chmod 600"));
    }
}
