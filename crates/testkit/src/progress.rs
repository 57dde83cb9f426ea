//! How far a long proof is: a line on standard error every ten seconds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// The progress of a proof, shared by its lanes.
pub struct ProofProgress {
    trials: &'static str,
    total: Option<u64>,
    began: Instant,
    state: Mutex<ProgressState>,
}

struct ProgressState {
    done: u64,
    violations: usize,
    reported: Instant,
}

impl ProofProgress {
    /// The progress of a proof that makes this many `trials`, which are named in the plural; `None`: nobody knows how many.
    pub fn new(trials: &'static str, total: Option<u64>) -> ProofProgress {
        let began = Instant::now();
        let state = Mutex::new(ProgressState { done: 0, violations: 0, reported: began });
        ProofProgress { trials, total, began, state }
    }

    /// Counts trials and their violations, and reports if the last line is old.
    pub fn advance(&self, trials: u64, violations: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += trials;
        state.violations += violations;
        if state.reported.elapsed() >= INTERVAL {
            state.reported = Instant::now();
            eprintln!("{}", self.line(&state, self.began.elapsed()));
        }
    }

    fn line(&self, state: &ProgressState, elapsed: Duration) -> String {
        let ProgressState { done, violations, .. } = *state;
        let trials = self.trials;
        let broken = format!("{violations} violation{}", if violations == 1 { "" } else { "s" });
        let took = minutes(elapsed);
        let Some(total) = self.total.filter(|total| *total > 0) else {
            return format!("{done} {trials}, {broken}, {took}");
        };
        let percent = done.saturating_mul(100) / total;
        let line = format!("{done} of {total} {trials} ({percent} %), {broken}, {took}");
        if done == 0 {
            return line;
        }
        let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
        format!("{line}; about {} left", minutes(Duration::from_secs_f64(left)))
    }
}

/// A time as people say it.
fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is_and_how_long_it_takes() {
        let line = |total, done, violations, seconds| {
            let progress = ProofProgress::new("kills", total);
            let state = ProgressState { done, violations, reported: progress.began };
            progress.line(&state, Duration::from_secs(seconds))
        };
        let cases = [
            (
                line(Some(1_000), 250, 0, 30),
                "250 of 1000 kills (25 %), 0 violations, 30 s; about 1 min 30 s left",
            ),
            (
                line(Some(1_000), 1_001, 1, 61),
                "1001 of 1000 kills (100 %), 1 violation, 1 min 1 s; about 0 s left",
            ),
            (line(Some(1_000), 0, 0, 9), "0 of 1000 kills (0 %), 0 violations, 9 s"),
            (line(None, 7, 2, 3_600), "7 kills, 2 violations, 60 min 0 s"),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }
}
