//! Why the bytes of a session, artifacts and files, were not read or written.

use crate::api::content::{ContentHash, FileExpectation};
use crate::api::error::{Lost, SessionError, chain};
use crate::api::output::ToolError;
use windlass_core::failure::FailureClass;
use windlass_core::handle::Handle;

/// Why an artifact could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// It is larger than what is kept.
    #[error("the output is larger than {max} bytes, which is the most that is kept of one; ask for less")]
    TooLarge {
        /// The limit `artifact_bytes_max`.
        max: u64,
    },
    /// There is none of that name.
    #[error("there is no artifact {artifact}; take the id from the answer that named it")]
    Unknown {
        /// The requested artifact.
        artifact: Handle,
    },
    /// Nothing can be of this media type.
    #[error("{media_type:?} is no media type; say one like text/plain, with at most {max} characters")]
    MediaType {
        /// The given media type.
        media_type: String,
        /// The limit `media_type_chars_max`.
        max: u64,
    },
    /// The store could not do it.
    #[error("the artifact could not be stored or read")]
    Lost(#[source] Lost),
}

impl ArtifactError {
    /// The failure of a tool that does not handle it.
    pub(crate) fn into_tool_error(self) -> ToolError {
        match self {
            ArtifactError::TooLarge { .. } => {
                ToolError { class: FailureClass::ResourceLimit, ..ToolError::new(self.to_string()) }
            }
            ArtifactError::Unknown { .. } => ToolError::new(self.to_string()),
            ArtifactError::MediaType { .. } => ToolError::internal(self.to_string()),
            ArtifactError::Lost(lost) => ToolError::internal(chain(&lost)),
        }
    }
}

/// Why a file was not read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The host keeps no files.
    #[error("there is no place for the files of sessions; set `files` of the runtime's configuration")]
    NotConfigured,
    /// No path can be so.
    #[error("{path:?} cannot be used: {why}")]
    Path {
        /// The given path.
        path: String,
        /// The mistake, and what to do.
        why: String,
    },
    /// It is not there.
    #[error("there is no {path:?} among the files of the session; list the folder to see what there is")]
    NotFound {
        /// The requested path.
        path: String,
    },
    /// It is larger than what may be read or written.
    #[error(
        "{path:?} has more than {max} bytes, which is the most of one file; use an artifact, or several files"
    )]
    TooLarge {
        /// Which.
        path: String,
        /// The limit `file_bytes_max`.
        max: u64,
    },
    /// A folder that is to be removed has something in it.
    #[error("the folder {path:?} is not empty; remove what is in it first")]
    NotEmpty {
        /// Which.
        path: String,
    },
    /// It is not as the writer expected.
    #[error("{path:?} {}", found_instead(expected, found))]
    Changed {
        /// Which.
        path: String,
        /// The expected state.
        expected: FileExpectation,
        /// The hash of its content; `None` if it does not exist.
        found: Option<ContentHash>,
    },
    /// The session was opened with a folder that the host no longer allows.
    #[error("{why}")]
    NotAllowed {
        /// Which, and what to do.
        why: String,
    },
    /// The session cannot be had, or was removed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The disk could not do it.
    #[error("the file {path:?} could not be read or written")]
    Io {
        /// Which.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

impl FileError {
    /// The failure of a tool that does not handle it.
    pub(crate) fn into_tool_error(self) -> ToolError {
        match self {
            FileError::NotConfigured
            | FileError::NotAllowed { .. }
            | FileError::Io { .. }
            | FileError::Session(_) => ToolError::internal(chain(&self)),
            FileError::TooLarge { .. } => {
                ToolError { class: FailureClass::ResourceLimit, ..ToolError::new(self.to_string()) }
            }
            FileError::Path { .. }
            | FileError::NotFound { .. }
            | FileError::NotEmpty { .. }
            | FileError::Changed { .. } => ToolError::new(self.to_string()),
        }
    }
}

fn found_instead(expected: &FileExpectation, found: &Option<ContentHash>) -> String {
    match (expected, found) {
        (FileExpectation::Absent, _) => {
            "exists already; read it, and base the change on what is there".to_string()
        }
        (_, None) => "does not exist; list the folder to see what there is".to_string(),
        (FileExpectation::Content(expected), Some(found)) => format!(
            "was changed: expected the content {expected}, found {found}; read it again, and base the change on what is there now"
        ),
        (FileExpectation::Anything, Some(found)) => {
            format!("was changed: found the content {found}; read it again")
        }
    }
}
