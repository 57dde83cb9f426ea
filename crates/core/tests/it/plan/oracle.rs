//! The planner against a brute-force oracle: random stories in which every pair of calls is compared, every time.
//!
//! After every event the oracle looks at all calls: what started was allowed to (claims, global names, limits, rates,
//! priority, turns between sessions), what waits had a reason, and the reason told is a true one. Each call
//! that runs changes a store of values under the names it claims; at the end the values are those of running the calls
//! one after the other in the order given. Then everything is let run, and nothing may be left.

mod judge;
mod model;
mod outside;
mod values;

use model::{Disturbed, World};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;

/// An event by numbers that mean something only in the state they meet.
pub type Event = (u8, u16, u16, u16);

#[test]
fn every_allowed_interleaving_equals_the_serial_one() {
    let (batches, refused, disturbed) = (Cell::new(0), Cell::new(0), Cell::new(Disturbed::default()));
    let config = Config { cases: 1_800, failure_persistence: None, ..Config::default() };
    let events = vec(any::<Event>(), 10..60);
    let story = (any::<[u8; 6]>(), events);
    TestRunner::new(config)
        .run(&story, |(limits, events)| {
            let mut world = World::new(limits);
            for event in events {
                world.event(event);
            }
            world.drain();
            batches.set(batches.get() + world.batches);
            refused.set(refused.get() + world.deadlocks);
            disturbed.set(disturbed.get() + world.disturbed);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(batches.get() >= 10_000, "only {} batches were planned", batches.get());
    let Disturbed { parked, woken, gave_way, cancelled_waiting, cancelled_running } = disturbed.get();
    let rarest = parked.min(woken).min(gave_way).min(cancelled_waiting).min(cancelled_running);
    assert!(rarest >= 500, "too few were parked, woken and cancelled: {:?}", disturbed.get());
    assert!(refused.get() > 0, "no circle of calls that wait for each other came up");
}
