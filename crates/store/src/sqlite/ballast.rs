//! Room that is kept for bad times. On a full disk neither a checkpoint nor a DELETE works, so a file of nothing lies
//! in the folder: it is removed when a write finds the disk full, and what runs can end. It is made again when the
//! store is next opened.

use super::file;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use windlass_core::limits::Limits;

const FILE: &str = "ballast";

/// The ballast of a folder.
pub(super) struct Ballast {
    path: PathBuf,
}

impl Ballast {
    /// The ballast of this folder, whether it is there or not.
    pub fn of(folder: &Path) -> Ballast {
        Ballast { path: folder.join(FILE) }
    }

    /// Makes it, if it is not there whole. A disk without room for it is not an error yet.
    pub fn make(&self, limits: &Limits) {
        let bytes = limits.ballast_bytes;
        if std::fs::metadata(&self.path).is_ok_and(|found| found.len() >= bytes) {
            return;
        }
        if let Err(error) = self.fill(bytes) {
            tracing::warn!(%error, "there is no room for the ballast; when the disk is full, running work cannot end");
            self.release();
        }
    }

    /// Gives the room back. `true` if there was any.
    pub fn release(&self) -> bool {
        std::fs::remove_file(&self.path).is_ok()
    }

    fn fill(&self, bytes: u64) -> Result<(), std::io::Error> {
        let piece = [0; 64 << 10];
        let mut file =
            file::private(OpenOptions::new().write(true).create(true).truncate(true)).open(&self.path)?;
        let mut left = bytes;
        // Written and not only made long: a file with holes keeps no room. Not waited for: if it is lost in a power
        // cut, it is made again.
        while left > 0 {
            let now = left.min(piece.len() as u64) as usize;
            file.write_all(&piece[..now])?;
            left -= now as u64;
        }
        Ok(())
    }
}

/// Whether SQLite says that the disk is full. A write said so, never a wait for the disk: what was to be written is
/// not there, and may be written again.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}
