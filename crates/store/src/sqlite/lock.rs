//! The owner of a data folder: the process that holds the lock on `owner.lock`. The kernel releases it when
//! the process dies, so there is never a stale lock to clean up. The text in the file stays when a process
//! dies and is cleared by a clean exit, so that the next owner knows which it was. Its first byte always
//! stays: it keeps the disk block that the next owner needs to write its name, even on a full disk.

use crate::StoreError;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The right to write in a folder, until dropped.
pub(super) struct OwnerLock {
    file: File,
    last_owner_died: bool,
    /// Whether a caller has learned that the last owner died.
    told: AtomicBool,
}

const FILE: &str = "owner.lock";
/// The length of the text after a clean exit.
const LEFT_BYTES: u64 = 1;
/// A command line can be long; its beginning identifies the program.
const COMMAND_CHARS_MAX: usize = 200;
/// The prefix of the text, followed by the process id.
const PROCESS: &str = "process ";
/// The lock of a dead holder is free in a moment, unless a child of it hangs.
const DEAD_OWNER_PATIENCE: Duration = Duration::from_secs(2);
/// A holder that was just killed may still look alive.
const LIVE_OWNER_PATIENCE: Duration = Duration::from_millis(250);
/// The kernel gives no notice when a lock becomes free, so it is polled.
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl OwnerLock {
    /// Takes the lock, or returns an error that names the holder.
    pub fn take(folder: &Path) -> Result<OwnerLock, StoreError> {
        let path = folder.join(FILE);
        let failed = |error: std::io::Error| StoreError::Open {
            path: path.clone(),
            help: "check that the folder is writable".to_owned(),
            source: Some(Box::new(error)),
        };
        // Not truncated here: until the lock is ours the text is the holder's.
        let mut file =
            super::file::private(OpenOptions::new().read(true).write(true).create(true).truncate(false))
                .open(&path)
                .map_err(failed)?;
        let began = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let holder = holder(&mut file);
                    if began.elapsed() >= patience(&holder) {
                        return Err(StoreError::Owned { folder: folder.to_owned(), holder });
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        let last_owner_died = file.metadata().map_err(failed)?.len() > LEFT_BYTES;
        let text = introduction();
        // Never empty in between: a process that dies there must not look like a clean exit.
        let mut introduce = || file.write_all(text.as_bytes()).and_then(|()| file.set_len(text.len() as u64));
        point!("lock.introduce", introduce()).map_err(failed)?;
        Ok(OwnerLock { file, last_owner_died, told: AtomicBool::new(false) })
    }

    /// Whether the last owner of the folder died.
    pub fn last_owner_died(&self) -> bool {
        self.told.store(true, Ordering::Relaxed);
        self.last_owner_died
    }
}

/// Whether no process owns the folder at this moment. The lock is shared for that moment, so a process that is about to
/// own the folder looks once more.
pub(super) fn is_free(folder: &Path) -> bool {
    match File::open(folder.join(FILE)) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // A process that only left a message after an owner's death has not continued its work: the next owner must still know.
        if !self.last_owner_died || *self.told.get_mut() {
            // If it cannot be cleared, this looks like a death, which does no harm.
            let _ = self.file.set_len(LEFT_BYTES);
        }
    }
}

/// The holder of the lock, as it wrote itself; it may be just about to.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(4_096).read_to_string(&mut text));
    match read {
        Ok(_) if text.len() as u64 > LEFT_BYTES => text.trim().to_owned(),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

/// How long to wait for this holder to release the lock. The kernel frees the lock of a process a moment
/// after it was killed: a child it was just starting may have the lock for that long.
fn patience(holder: &str) -> Duration {
    let pid = holder.strip_prefix(PROCESS).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    match pid {
        Some(pid) if pid == std::process::id() => Duration::ZERO,
        Some(pid) if is_gone(pid) => DEAD_OWNER_PATIENCE,
        Some(_) | None => LIVE_OWNER_PATIENCE,
    }
}

/// Whether a process is dead or dying.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { return true };
    let stat = String::from_utf8_lossy(&stat);
    // The name before may contain anything, parentheses included.
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    let state = fields.next().unwrap_or_default();
    let flags: u32 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    matches!(state, "Z" | "X") || flags & EXITING != 0
}

/// The kernel's flag of a process that is shutting down.
const EXITING: u32 = 4;

fn introduction() -> String {
    let args: Vec<_> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let command: String = args.join(" ").chars().take(COMMAND_CHARS_MAX).collect();
    let since = shown_time(std::time::SystemTime::now());
    format!("{PROCESS}{} ({command}) since {since}\n", std::process::id())
}

/// A time for people. A clock may be set to a time without a date.
fn shown_time(time: std::time::SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "a time that no calendar has".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_clock_beyond_all_dates_is_no_reason_to_panic() {
        let years = |years: u64| Duration::from_secs(years * 31_557_600);
        assert_eq!(shown_time(UNIX_EPOCH), "1970-01-01 00:00:00 UTC");
        for time in [UNIX_EPOCH + years(8_056), UNIX_EPOCH + years(200_000), UNIX_EPOCH - years(20_000)] {
            assert_eq!(shown_time(time), "a time that no calendar has");
        }
    }

    #[test]
    fn a_dead_holder_is_waited_for_and_oneself_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let holder = format!("{PROCESS}{} (windlass serve) since a while", child.id());
        assert_eq!(patience(&holder), LIVE_OWNER_PATIENCE);
        child.kill().unwrap();
        // A zombie until it is waited for, and gone afterwards.
        while patience(&holder) == LIVE_OWNER_PATIENCE {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(patience(&holder), DEAD_OWNER_PATIENCE);
        assert_eq!(patience(&introduction()), Duration::ZERO);
        assert_eq!(patience("another process"), LIVE_OWNER_PATIENCE);
    }

    #[test]
    fn a_lock_that_is_freed_in_a_moment_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        // Held by an open file that a dead process left to another one, as a child before its exec does.
        let held = OwnerLock::take(folder.path()).unwrap();
        let mut file = held.file.try_clone().unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(format!("{PROCESS}4194999 (gone) since a while\n").as_bytes()).unwrap();
        let (tried, trying) = std::sync::mpsc::channel();
        let path = folder.path().to_owned();
        let next = std::thread::spawn(move || {
            tried.send(()).unwrap();
            OwnerLock::take(&path).map(|lock| lock.last_owner_died())
        });
        trying.recv().unwrap();
        std::thread::sleep(LOOK_EVERY * 4); // tidy: the other thread is to find the lock taken first
        drop((held, file));
        assert!(next.join().unwrap().is_ok());
    }
}
