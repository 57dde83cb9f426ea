//! Who owns a data folder: whoever holds the lock on `owner.lock`. The kernel releases it when the process
//! dies, so there is never a stale one to clean up. The text in it stays when a process dies and goes when it leaves
//! in good order, so that the next one knows which it was. Its first byte always stays: with it stays the room on the disk
//! that the next one needs to say who it is, even when there is no other.

use crate::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The right to write in a folder, until it is dropped.
pub(super) struct OwnerLock {
    file: File,
    last_owner_died: bool,
    /// Whether somebody was told that the last owner died.
    told: AtomicBool,
}

const FILE: &str = "owner.lock";
/// What is left of the text when its writer has left in good order.
const LEFT_BYTES: u64 = 1;
/// A command line can be long; its beginning tells which program it is.
const COMMAND_CHARS_MAX: usize = 200;

impl OwnerLock {
    /// Takes the folder, or says who has it.
    pub fn take(folder: &Path) -> Result<OwnerLock, StoreError> {
        let path = folder.join(FILE);
        let failed = |error: std::io::Error| StoreError::Open {
            path: path.clone(),
            help: "check that the folder is writable".to_owned(),
            source: Some(Box::new(error)),
        };
        // Not truncated here: until the lock is ours the text is somebody else's.
        let mut file =
            super::file::private(OpenOptions::new().read(true).write(true).create(true).truncate(false))
                .open(&path)
                .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Owned { folder: folder.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let last_owner_died = file.metadata().map_err(failed)?.len() > LEFT_BYTES;
        let text = introduction();
        // Never empty in between: whoever dies there must not look like one who left in good order.
        let mut introduce = || file.write_all(text.as_bytes()).and_then(|()| file.set_len(text.len() as u64));
        point!("lock.introduce", introduce()).map_err(failed)?;
        Ok(OwnerLock { file, last_owner_died, told: AtomicBool::new(false) })
    }

    /// Whether whoever had the folder last died.
    pub fn last_owner_died(&self) -> bool {
        self.told.store(true, Ordering::Relaxed);
        self.last_owner_died
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Whoever only left a message behind a dead owner has not gone on with its work: the next one is still to know.
        if !self.last_owner_died || *self.told.get_mut() {
            // If it cannot be cleared, this looks like a death, which does no harm.
            let _ = self.file.set_len(LEFT_BYTES);
        }
    }
}

/// Who holds the lock, as it wrote itself; it may be just about to.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(4_096).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LEFT_BYTES => text.trim().to_owned(),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

fn introduction() -> String {
    let args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let command: String = args.join(" ").chars().take(COMMAND_CHARS_MAX).collect();
    let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC");
    format!("process {} ({command}) since {since}\n", std::process::id())
}
