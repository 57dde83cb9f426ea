//! The disk: how often it says that bytes are safe.

use super::FloorError;
use crate::rate::{Laps, MeasuredRate};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Appends 4 KiB and waits until the disk has them, again and again: print it beside every durable table.
pub fn fsync(dir: &Path, span: Duration) -> Result<MeasuredRate, FloorError> {
    let folder = tempfile::tempdir_in(dir)?;
    let mut file = std::fs::File::create(folder.path().join("appended"))?;
    let page = [0x5a; 4096];
    let mut laps = Laps::start(span);
    while laps.more() {
        let began = Instant::now();
        file.write_all(&page)?;
        file.sync_data()?;
        laps.note(began);
    }
    Ok(laps.rate(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_says_why_it_cannot_be_measured() {
        assert!(matches!(fsync(Path::new("no such folder"), Duration::ZERO), Err(FloorError::Io(_))));
    }
}
