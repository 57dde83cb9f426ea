//! How often something was done, and how long one took.

use std::time::{Duration, Instant};

/// How often something was done, and how long one took.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredRate {
    /// How many were done.
    pub count: u64,
    /// In what time.
    pub elapsed: Duration,
    /// The median of what one waited for: a commit, an attempt, a call.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
}

impl MeasuredRate {
    /// How many per second.
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// Takes the time of laps until its span is over.
pub(crate) struct Laps {
    began: Instant,
    span: Duration,
    laps: Vec<Duration>,
}

impl Laps {
    pub(crate) fn start(span: Duration) -> Laps {
        Laps { began: Instant::now(), span, laps: Vec::new() }
    }

    /// Whether there is time for another; there is always time for one.
    pub(crate) fn more(&self) -> bool {
        self.laps.is_empty() || self.began.elapsed() < self.span
    }

    /// Notes a lap that began then and ends now.
    pub(crate) fn note(&mut self, lap_began: Instant) {
        self.laps.push(lap_began.elapsed());
    }

    /// Adds what others noted in the same time.
    pub(crate) fn join(&mut self, laps: Laps) {
        self.laps.extend(laps.laps);
    }

    /// The rate, where each lap did so many at once.
    pub(crate) fn rate(mut self, each_lap: u64) -> MeasuredRate {
        let elapsed = self.began.elapsed();
        let laps = self.laps.len();
        let mut at = |place: usize| match self.laps.is_empty() {
            true => elapsed,
            false => *self.laps.select_nth_unstable(place).1,
        };
        let (p50, p99) = (at(laps / 2), at(laps * 99 / 100));
        MeasuredRate { count: laps as u64 * each_lap, elapsed, p50, p99 }
    }
}

/// Into how many turns a measurement is cut.
const TURNS: u32 = 5;

/// Measures a floor and what stands on it in turn, so that a machine that is slow for a while is slow for both; of
/// each the median over the turns.
pub(crate) fn in_turn<E>(
    span: Duration,
    mut floor: impl FnMut(Duration) -> Result<f64, E>,
    mut ours: impl FnMut(Duration) -> Result<f64, E>,
) -> Result<(f64, f64), E> {
    let (mut floors, mut all) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        floors.push(floor(span / TURNS)?);
        all.push(ours(span / TURNS)?);
    }
    Ok((median(floors), median(all)))
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    let middle = figures.len() / 2;
    *figures.select_nth_unstable_by(middle, f64::total_cmp).1
}
