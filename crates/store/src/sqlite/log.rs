//! Checks the write-ahead log of a dead process before SQLite uses it.
//!
//! SQLite takes a frame that differs from what was written for the end of the log, because a cut looks like
//! that. If complete transactions follow such a frame, it was not a cut: a transaction begins only after the
//! last one is durable. Damage in the last transaction of a log cannot be distinguished from a cut.

use super::file::PAGE_BYTES;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Whether a log is intact up to where a cut can have ended it.
pub(super) fn is_whole(path: &Path) -> Result<bool, std::io::Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut log = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    let mut frame = vec![0; FRAME_HEADER_BYTES + PAGE_BYTES as usize];
    if !read(&mut log, &mut header)? || !read(&mut log, &mut frame)? {
        // Nothing was ever committed in it.
        return Ok(true);
    }
    let Some(mut sums) = Sums::start(&header) else { return Ok(false) };
    let (mut sound, mut strange, mut behind) = (true, 0, 0);
    loop {
        if frame[8..16] != header[16..24] {
            // Left over from an earlier round, and so the end; but not if the log continues after it.
            sound = false;
            strange += u64::from(is_commit(&frame));
        } else {
            behind += std::mem::take(&mut strange);
            if sound {
                sums.add(&frame[..8]);
                sums.add(&frame[FRAME_HEADER_BYTES..]);
                sound = sums.are(&frame[16..24]);
            }
            behind += u64::from(!sound && is_commit(&frame));
        }
        if !read(&mut log, &mut frame)? {
            break;
        }
    }
    // One may be the rest of the transaction that was being written at the power cut.
    Ok(behind < 2)
}

/// Rewrites everything after this many frames, byte for byte, and syncs it. Frames left over from an earlier
/// round of the log are not touched.
pub(super) fn write_anew(path: &Path, frames: u64) -> Result<(), std::io::Error> {
    let mut log = OpenOptions::new().read(true).write(true).open(path)?;
    let mut header = [0; HEADER_BYTES];
    if !read(&mut log, &mut header)? {
        // Nothing was ever written to it.
        return log.sync_all();
    }
    // With the header: a transaction that restarted the log has written that too.
    log.seek(SeekFrom::Start(0))?;
    log.write_all(&header)?;
    let mut frame = vec![0; FRAME_HEADER_BYTES + PAGE_BYTES as usize];
    let mut at = HEADER_BYTES as u64 + frames.saturating_mul(frame.len() as u64);
    loop {
        log.seek(SeekFrom::Start(at))?;
        if !read(&mut log, &mut frame)? || frame[8..16] != header[16..24] {
            return log.sync_all();
        }
        log.seek(SeekFrom::Start(at))?;
        log.write_all(&frame)?;
        at += frame.len() as u64;
    }
}

fn is_commit(frame: &[u8]) -> bool {
    frame[4..8] != [0; 4]
}

/// Fills the buffer; `false` if the log ends before.
fn read(log: &mut impl Read, buffer: &mut [u8]) -> Result<bool, std::io::Error> {
    match log.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The running checksum of a log.
struct Sums {
    big_endian: bool,
    sums: (u32, u32),
}

impl Sums {
    /// The sums after the header; `None` if it is not what was written.
    fn start(header: &[u8; HEADER_BYTES]) -> Option<Sums> {
        let magic = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        if magic & !1 != 0x377f_0682 {
            return None;
        }
        let mut sums = Sums { big_endian: magic & 1 == 1, sums: (0, 0) };
        sums.add(&header[..24]);
        sums.are(&header[24..]).then_some(sums)
    }

    fn add(&mut self, bytes: &[u8]) {
        let word = |four: &[u8]| {
            let four = [four[0], four[1], four[2], four[3]];
            if self.big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
        };
        let (mut a, mut b) = self.sums;
        for eight in bytes.chunks_exact(8) {
            a = a.wrapping_add(word(eight)).wrapping_add(b);
            b = b.wrapping_add(word(&eight[4..])).wrapping_add(a);
        }
        self.sums = (a, b);
    }

    fn are(&self, bytes: &[u8]) -> bool {
        let kept = [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]];
        let sums = u64::from(self.sums.0) << 32 | u64::from(self.sums.1);
        u64::from_be_bytes(kept) == sums
    }
}
