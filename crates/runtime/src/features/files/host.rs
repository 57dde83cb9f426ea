//! The folder of a session as the host sees it, for programs that work in it.

use super::SessionFiles;
use super::walk::MissingFolder;
use crate::api::data_error::FileError;
use std::path::PathBuf;

impl SessionFiles {
    /// The folder of the session as an absolute path; it is created if it is missing. Whoever passes it to a program must confine
    /// the program to it: unlike the other operations, a program can leave it.
    pub fn host_folder(&self) -> Result<PathBuf, FileError> {
        // Opened once, so that it exists.
        drop(self.root.open("", MissingFolder::Made)?);
        let folder = self.root.host_path();
        let shown = folder.display().to_string();
        // The session's own folder was opened without following a link; those above it are the host's.
        std::fs::canonicalize(folder).map_err(|source| FileError::Io { path: shown, source })
    }
}
