//! Reserved disk space. On a full disk neither a checkpoint nor a DELETE works, so the folder holds a file of
//! zeros: it is removed when a write finds the disk full, and running calls can finish. It is made again when
//! there is space, by the checkpointer or when the store is next opened.

use super::file;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const FILE: &str = "ballast";
/// The ballast takes at most this fraction of the free space: it must not itself fill the disk.
const FREE_PARTS: u64 = 4;

/// The ballast of a folder.
pub(super) struct Ballast {
    path: PathBuf,
    bytes: u64,
    /// Whether it was used and not made again.
    is_used: AtomicBool,
}

/// Why there is no ballast.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoBallast {
    #[error("`ballast_bytes` is {bytes}, which is more than a quarter of the {free} bytes that are free")]
    TooLarge { bytes: u64, free: u64 },
    #[error("the ballast could not be written: {0}")]
    Unwritten(#[from] std::io::Error),
}

impl Ballast {
    /// The ballast of this folder, whether it exists or not.
    pub fn of(folder: &Path, bytes: u64) -> Ballast {
        Ballast { path: folder.join(FILE), bytes, is_used: AtomicBool::new(false) }
    }

    /// Makes it, if it is not complete. A disk without space for it is no reason not to open the store.
    pub fn make(&self) -> Result<(), NoBallast> {
        let have = std::fs::metadata(&self.path).map_or(0, |found| found.len());
        if have >= self.bytes {
            return Ok(());
        }
        let free = have.saturating_add(free_bytes(&self.path)?);
        if self.bytes > free / FREE_PARTS {
            self.release();
            return Err(NoBallast::TooLarge { bytes: self.bytes, free });
        }
        self.fill().inspect_err(|_| _ = self.release())?;
        self.is_used.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes it again if it was used and there is space again.
    pub fn make_again(&self) {
        if self.is_used.load(Ordering::Relaxed) && self.make().is_ok() {
            tracing::info!("there is room on the disk again, and the ballast is kept again");
        }
    }

    /// Releases the space. `true` if there was any.
    pub fn release(&self) -> bool {
        let released = std::fs::remove_file(&self.path).is_ok();
        self.is_used.fetch_or(released, Ordering::Relaxed);
        released
    }

    fn fill(&self) -> Result<(), std::io::Error> {
        let piece = [0; 64 << 10];
        let mut file =
            file::private(OpenOptions::new().write(true).create(true).truncate(true)).open(&self.path)?;
        let mut left = self.bytes;
        // Written and not only extended: a sparse file reserves nothing. Not synced: if it is lost in a power
        // cut, it is made again.
        while left > 0 {
            let now = left.min(piece.len() as u64) as usize;
            file.write_all(&piece[..now])?;
            left -= now as u64;
        }
        Ok(())
    }
}

/// The space available to us on the disk of this file.
fn free_bytes(path: &Path) -> Result<u64, std::io::Error> {
    let folder = File::open(path.parent().unwrap_or(Path::new(".")))?;
    let found = rustix::fs::fstatvfs(&folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether SQLite reports a full disk. That comes from a write, never from a sync: the data is not there, and
/// may be written again.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ballast_that_would_fill_the_disk_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_bytes(&folder.path().join(FILE)).unwrap();
        let ballast = Ballast::of(folder.path(), free / 2);
        assert!(matches!(ballast.make(), Err(NoBallast::TooLarge { .. })));
        assert!(!folder.path().join(FILE).exists());
        Ballast::of(folder.path(), 4_096).make().unwrap();
        assert_eq!(std::fs::metadata(folder.path().join(FILE)).unwrap().len(), 4_096);
    }
}
