//! The folder of a session's files: one of its own below the host's, or one that the session was opened with.

use super::walk::{MissingFolder, failed};
use crate::api::data_error::FileError;
use crate::session::folders::{above, not_allowed};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::request::check_session_name;
use rustix::fs::{self, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The folder that a session was opened with, if there is one.
#[derive(Default)]
pub(crate) struct NamedFolder(OnceLock<Arc<str>>);

impl NamedFolder {
    pub(super) fn get(&self) -> Option<&Arc<str>> {
        self.0.get()
    }
}

/// Notes the folder that a session was opened with.
pub(crate) fn name_folder(session: &Session, folder: &str) {
    _ = session.slots.of::<NamedFolder>().0.set(folder.into());
}

/// The place of a session's files.
#[derive(Clone, Debug)]
pub(super) struct FilesRoot {
    /// A folder of the host: links on the way there are the host's own.
    top: Arc<Path>,
    /// The way from there, on which no link is followed.
    below: Vec<String>,
    /// Whether the folder is the session's own: created at its first use, and removed with the session.
    pub(super) is_own: bool,
}

/// The parent of sessions' folders, if a session of this name can have one.
pub(super) fn check<'a>(base: Option<&'a Arc<Path>>, session: &str) -> Result<&'a Arc<Path>, FileError> {
    let base = base.ok_or(FileError::NotConfigured)?;
    let why = match check_session_name(session) {
        Ok(()) if session == "." || session == ".." => {
            "a session of this name has no folder; use another session".to_string()
        }
        Ok(()) => return Ok(base),
        Err(error) => error.to_string(),
    };
    Err(FileError::Path { path: session.to_string(), why })
}

impl FilesRoot {
    pub(super) fn of(rt: &Inner, session: &Session) -> Result<FilesRoot, FileError> {
        let base = check(rt.files.as_ref(), &session.name)?;
        match session.slots.of::<NamedFolder>().get() {
            None => {
                let below = vec![session.name.to_string()];
                Ok(FilesRoot { top: base.clone(), below, is_own: true })
            }
            // Again at each use: the host may have changed its mind since.
            Some(folder) => match above(&rt.folders, Path::new(&**folder)) {
                Some((top, below)) => Ok(FilesRoot { top: top.into(), below, is_own: false }),
                None => Err(FileError::NotAllowed { why: not_allowed(Path::new(&**folder)) }),
            },
        }
    }

    /// Its name, where there is only one folder between: the session's own.
    pub(super) fn name(&self) -> &str {
        self.below.last().map_or("", |name| name)
    }

    /// The parts that two descriptions of the same folder have in common.
    pub(super) fn identity(&self) -> (&Path, &[String]) {
        (&self.top, &self.below)
    }

    /// The folder as the host names it.
    pub(super) fn host_path(&self) -> PathBuf {
        self.below.iter().fold(self.top.to_path_buf(), |folder, part| folder.join(part))
    }

    /// The mode of new files. Files of one's own are nobody else's; those of a project are as its tools would make them.
    pub(super) fn file_mode(&self) -> Mode {
        match self.is_own {
            true => Mode::RUSR | Mode::WUSR,
            false => Mode::from_raw_mode(0o666),
        }
    }

    /// The mode of new folders, by the same rule.
    pub(super) fn folder_mode(&self) -> Mode {
        match self.is_own {
            true => Mode::RWXU,
            false => Mode::from_raw_mode(0o777),
        }
    }

    /// Opens the folder.
    pub(super) fn open(&self, path: &str, missing: MissingFolder) -> Result<OwnedFd, FileError> {
        // A folder that existed before the session is not made again.
        let missing = if self.is_own { missing } else { MissingFolder::Refused };
        let mut at = self.open_top(missing)?;
        for part in &self.below {
            at = self.enter(&at, part, missing).map_err(|error| failed(path, error))?;
        }
        Ok(at)
    }

    /// Opens the folder above.
    pub(super) fn open_top(&self, missing: MissingFolder) -> Result<OwnedFd, FileError> {
        let shown = || self.top.display().to_string();
        if missing == MissingFolder::Made && !self.top.is_dir() {
            let made = std::fs::create_dir_all(&self.top).and_then(|()| match self.top.parent() {
                Some(parent) if parent != Path::new("") => std::fs::File::open(parent)?.sync_all(),
                _ => Ok(()),
            });
            made.map_err(|source| FileError::Io { path: shown(), source })?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::open(&*self.top, flags, Mode::empty()).map_err(|error| failed(&shown(), error))
    }
}
