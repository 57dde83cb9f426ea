//! The wall clock of a rig's workers: set forward and back between their lives, and while they live.
//!
//! All settings lie within two hours: many times longer than any call of a plan may take. A worker that is not disturbed any
//! more has the latest setting of all, so that what waits for a time by the wall clock is due.

use crate::chance::Chance;
use anyhow::{Context, Result};
use std::future::Future;
use std::pin::Pin;
use windlass::time::{Clock, SystemClock};
use windlass_core::time::Timestamp;

/// Where a worker finds how its clock is set.
pub const VARIABLE: &str = "WINDLASS_RIG_CLOCK";
/// How far the clock is set forward or back at most.
const MOST_S: u64 = 3_600;
/// The setting of a worker that is not disturbed: later than all others.
const LATEST_S: i64 = 3_700;
/// How many times it jumps in a life at most, and within how many microseconds.
const JUMPS_MAX: u64 = 3;
const WITHIN_US: u64 = 40_000;

/// A clock that is set at certain moments of its life.
pub struct JumpingClock {
    machine: SystemClock,
    /// From when on, by the clock that never jumps, it is so far ahead, in order.
    settings: Vec<(u64, i64)>,
}

/// How the clock of one worker is set, as it is told.
pub fn setting(seed: &mut Chance) -> String {
    let ahead = |seed: &mut Chance| seed.between(0, 2 * MOST_S) as i64 - MOST_S as i64;
    let mut moments: Vec<u64> = (0..seed.between(0, JUMPS_MAX)).map(|_| seed.between(1, WITHIN_US)).collect();
    moments.sort_unstable();
    let settings = std::iter::once(0).chain(moments).map(|at_us| format!("{at_us}:{}", ahead(seed)));
    settings.collect::<Vec<_>>().join(" ")
}

/// The clock of a worker that is not disturbed.
pub fn latest() -> String {
    format!("0:{LATEST_S}")
}

impl JumpingClock {
    /// The clock that is set as this says; the machine's own without it.
    pub fn read(text: Option<&str>) -> Result<JumpingClock> {
        let one = |word: &str| {
            let (at_us, ahead_s) = word.split_once(':').context("a setting is MOMENT:SECONDS")?;
            anyhow::Ok((at_us.parse()?, ahead_s.parse::<i64>()? * 1_000_000))
        };
        let settings = text.unwrap_or_default().split_whitespace().map(one).collect::<Result<_>>()?;
        Ok(JumpingClock { machine: SystemClock::default(), settings })
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let lived_us = self.machine.elapsed_us();
        let set = self.settings.iter().take_while(|(at_us, _)| *at_us <= lived_us).last();
        Timestamp(self.machine.now().0 + set.map_or(0, |(_, ahead_us)| *ahead_us))
    }

    fn elapsed_us(&self) -> u64 {
        self.machine.elapsed_us()
    }

    fn wait<'a>(&'a self, us: u64) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.machine.wait(us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_as_it_was_set_and_settings_lie_below_the_latest() {
        let mut seed = Chance::new(7);
        for _ in 0..1_000 {
            let text = setting(&mut seed);
            let clock = JumpingClock::read(Some(&text)).unwrap();
            assert!(clock.settings.is_sorted_by_key(|(at_us, _)| *at_us), "{text}");
            assert!(clock.settings.iter().all(|(_, ahead)| *ahead < LATEST_S * 1_000_000), "{text}");
        }
        let ahead = JumpingClock::read(Some("0:3600")).unwrap();
        assert!(ahead.now().0 - SystemClock::default().now().0 > 3_599_000_000);
        assert!(JumpingClock::read(Some("nonsense")).is_err());
        assert!(JumpingClock::read(None).unwrap().settings.is_empty());
    }
}
