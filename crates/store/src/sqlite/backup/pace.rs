//! The pace of a backup: reports progress, and keeps below the rate that the caller allows.

use super::{BackupPhase, BackupProgress};
use std::time::{Duration, Instant};

/// Bytes copied between two pauses at most: a progress report in time, and few calls for the work.
const PIECE_BYTES: u64 = 1 << 20;
/// Pauses per second at a low rate: the disk is used evenly.
const PIECES_PER_SECOND: u64 = 10;
/// The smallest piece: a page of the database.
const PIECE_BYTES_MIN: u64 = crate::sqlite::file::PAGE_BYTES;

/// Counts copied bytes, and pauses after each piece.
pub(super) struct Pace<'a> {
    rate: Option<u64>,
    /// When the next piece may be copied.
    due: Instant,
    exceeded: bool,
    progress: BackupProgress,
    report: &'a mut dyn FnMut(BackupProgress),
}

impl<'a> Pace<'a> {
    /// A pace of `rate` bytes per second; 0 is taken for 1.
    pub fn new(rate: Option<u64>, report: &'a mut dyn FnMut(BackupProgress)) -> Pace<'a> {
        let progress = BackupProgress { phase: BackupPhase::Database, bytes: 0, total: 0 };
        Pace { rate: rate.map(|rate| rate.max(1)), due: Instant::now(), exceeded: false, progress, report }
    }

    /// The bytes to copy before the next pause.
    pub fn piece_bytes(&self) -> u64 {
        self.rate.map_or(PIECE_BYTES, |rate| (rate / PIECES_PER_SECOND).clamp(PIECE_BYTES_MIN, PIECE_BYTES))
    }

    /// Whether there are pauses.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    pub fn enter(&mut self, phase: BackupPhase) {
        self.progress.phase = phase;
        (self.report)(self.progress);
    }

    /// Adds bytes that are to be copied.
    pub fn expect(&mut self, bytes: u64) {
        self.progress.total += bytes;
    }

    /// Counts copied bytes, and waits until the next piece is due.
    pub fn copied(&mut self, bytes: u64) {
        self.count(bytes);
        let Some(rate) = self.rate else { return };
        let now = Instant::now();
        self.due = self.due.max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        std::thread::sleep(self.due - now);
    }

    /// Counts copied bytes without waiting.
    pub fn rushed(&mut self, bytes: u64) {
        self.count(bytes);
        self.exceeded |= self.rate.is_some();
    }

    fn count(&mut self, bytes: u64) {
        self.progress.bytes += bytes;
        self.progress.total = self.progress.total.max(self.progress.bytes);
        (self.report)(self.progress);
    }

    pub fn bytes(&self) -> u64 {
        self.progress.bytes
    }

    pub fn was_exceeded(&self) -> bool {
        self.exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_small_at_a_low_rate_and_never_below_a_page() {
        for (rate, piece) in [
            (None, PIECE_BYTES),
            (Some(0), PIECE_BYTES_MIN),
            (Some(1 << 20), (1 << 20) / PIECES_PER_SECOND),
            (Some(u64::MAX), PIECE_BYTES),
        ] {
            assert_eq!(Pace::new(rate, &mut |_| ()).piece_bytes(), piece, "{rate:?}");
        }
    }

    #[test]
    fn the_time_of_a_copy_is_at_least_its_bytes_by_its_rate() {
        let mut seen = Vec::new();
        let mut report = |progress: BackupProgress| seen.push((progress.bytes, progress.total));
        let mut pace = Pace::new(Some(1_000_000), &mut report);
        let began = Instant::now();
        pace.expect(40_000);
        for _ in 0..4 {
            pace.copied(10_000);
        }
        assert!(began.elapsed() >= Duration::from_millis(40));
        assert!(!pace.was_exceeded());
        pace.rushed(u64::from(u32::MAX));
        assert!(pace.was_exceeded());
        assert_eq!(seen[..4], [(10_000, 40_000), (20_000, 40_000), (30_000, 40_000), (40_000, 40_000)]);
        assert!(seen[4].1 >= seen[4].0, "{seen:?}");
    }
}
