//! Who owns a data folder: whoever holds the lock on `owner.lock`. The kernel releases it when the process
//! dies, so there is never a stale one to clean up.

use crate::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The right to write in a folder, until it is dropped.
pub(super) struct OwnerLock {
    _file: File,
}

const FILE: &str = "owner.lock";
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
        let mut introduce = || file.set_len(0).and_then(|()| file.write_all(introduction().as_bytes()));
        point!("lock.introduce", introduce()).map_err(failed)?;
        Ok(OwnerLock { _file: file })
    }
}

/// Who holds the lock, as it wrote itself; it may be just about to.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(4_096).read_to_string(&mut text));
    match read {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

fn introduction() -> String {
    let args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let command: String = args.join(" ").chars().take(COMMAND_CHARS_MAX).collect();
    let since = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC");
    format!("process {} ({command}) since {since}\n", std::process::id())
}
