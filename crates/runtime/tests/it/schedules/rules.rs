//! Missed times, runs that take too long, and clocks that jump.

use super::{MINUTE, World, beat, every, notices, settle, shown, until};
use std::time::Duration;
use windlass::Runtime;
use windlass::schedules::NewSchedule;
use windlass_core::schedule::{CatchUp, Overlap};

const HOUR: Duration = Duration::from_secs(3_600);

/// A schedule of every hour whose owner is away for so long, and its next owner.
async fn away(world: &World, catch_up: CatchUp, long: Duration) -> Runtime {
    let runtime = world.owner();
    let new = NewSchedule { catch_up, overlap: Overlap::Allow, ..every("0 * * * *") };
    runtime.schedules("s").create(new).await.unwrap();
    drop(runtime);
    world.clock.advance(long);
    let runtime = world.owner();
    runtime.resume().await.unwrap();
    until(async || beat(&runtime).await.last.is_some() || beat(&runtime).await.skipped > 0).await;
    runtime.idle().await;
    settle().await;
    runtime
}

#[tokio::test]
async fn times_that_nobody_was_there_for_are_caught_up_as_asked() {
    for (catch_up, expected) in [
        (CatchUp::Skip, "0 run, 15 skipped, next 00:00"),
        (CatchUp::One, "1 run, 14 skipped, next 00:00"),
        (CatchUp::All, "10 run, 5 skipped, next 00:00"),
    ] {
        let world = World::new();
        let runtime = away(&world, catch_up, HOUR * 15 + MINUTE * 5).await;
        assert_eq!(shown(&runtime).await, expected, "{catch_up}");
        assert_eq!(world.began() as u64, beat(&runtime).await.count);
        assert_eq!(notices(&runtime).await, world.began());
    }
}

/// Fourteen months: no more are counted than the limit, and the last is made up for.
#[tokio::test]
async fn ten_thousand_missed_times_are_one_run() {
    let world = World::new();
    let runtime = away(&world, CatchUp::One, HOUR * 10_000).await;
    assert_eq!(shown(&runtime).await, "1 run, 999 skipped, next 01:00");
    assert_eq!(beat(&runtime).await.last.as_deref(), Some("2028-03-07T00:00:00.000Z"));
}

/// A schedule of every minute whose first run does not end, after three of its minutes.
async fn held_up(world: &World, overlap: Overlap) -> Runtime {
    let runtime = world.owner();
    runtime.schedules("s").create(NewSchedule { overlap, ..every("* * * * *") }).await.unwrap();
    for minute in 1..=3 {
        world.clock.advance(MINUTE);
        until(async || {
            let seen = beat(&runtime).await;
            seen.next.is_some_and(|next| next[14..16] == format!("{:02}", minute + 1))
        })
        .await;
        until(async || world.began() as u64 >= beat(&runtime).await.count).await;
        settle().await;
    }
    runtime
}

#[tokio::test]
async fn a_run_that_is_open_is_met_as_asked() {
    let world = World::held_up();
    let runtime = held_up(&world, Overlap::Skip).await;
    assert_eq!((shown(&runtime).await.as_str(), world.began()), ("1 run, 2 skipped, next 08:04", 1));
    world.gate.add_permits(1);
    until(async || notices(&runtime).await == 1).await;
    settle().await;
    assert_eq!(world.began(), 1, "what was skipped is over");
    world.clock.advance(MINUTE);
    world.until_began(2).await;

    let world = World::held_up();
    let runtime = held_up(&world, Overlap::Allow).await;
    assert_eq!((shown(&runtime).await.as_str(), world.began()), ("3 run, 0 skipped, next 08:04", 3));

    let world = World::held_up();
    let runtime = held_up(&world, Overlap::CancelPrevious).await;
    // What was told to stop has some time to do so.
    world.clock.advance(Duration::from_secs(1));
    until(async || notices(&runtime).await == 2).await;
    assert_eq!((shown(&runtime).await.as_str(), world.began()), ("3 run, 0 skipped, next 08:04", 3));
    let told = runtime.inbox("s").list(None, 10).await.unwrap();
    assert!(told.iter().all(|notice| notice.call_state == Some("cancelled")), "{told:?}");
}

/// The last time that came while a run was open is used when that has ended, also by the next owner.
#[tokio::test]
async fn one_time_waits_for_the_end_of_the_run() {
    for dies in [false, true] {
        let mut world = World::held_up();
        let mut runtime = held_up(&world, Overlap::QueueOne).await;
        assert_eq!((shown(&runtime).await.as_str(), world.began()), ("1 run, 1 skipped, next 08:04", 1));
        assert_eq!(beat(&runtime).await.waits.as_deref(), Some("2027-01-15T08:03:00.000Z"));
        if dies {
            drop(runtime);
            // Whatever the last owner still runs stays held up.
            world.gate = World::held_up().gate;
            runtime = world.owner();
            runtime.resume().await.unwrap();
            // The first run is made again, since it may be.
            world.until_began(2).await;
        }
        world.gate.add_permits(1);
        until(async || beat(&runtime).await.count == 2).await;
        world.until_began(if dies { 3 } else { 2 }).await;
        let seen = beat(&runtime).await;
        assert_eq!((seen.waits, seen.last.as_deref()), (None, Some("2027-01-15T08:03:00.000Z")));
        world.gate.add_permits(1);
        until(async || notices(&runtime).await == 2).await;
        settle().await;
        assert_eq!(shown(&runtime).await, "2 run, 1 skipped, next 08:04");
    }
}

#[tokio::test]
async fn a_clock_that_jumps_forward_uses_the_last_time_once() {
    let world = World::new();
    let runtime = world.owner();
    runtime.schedules("s").create(every("0 * * * *")).await.unwrap();
    world.clock.set_wall(5 * 3_600_000_000 + 1);
    // The wall clock is looked at from time to time.
    world.clock.advance(Duration::from_secs(10));
    until(async || notices(&runtime).await == 1).await;
    assert_eq!(shown(&runtime).await, "1 run, 4 skipped, next 14:00");
    settle().await;
    assert_eq!(world.began(), 1);
}

#[tokio::test]
async fn a_clock_that_jumps_back_uses_nothing_twice() {
    let world = World::new();
    let runtime = world.owner();
    runtime.schedules("s").create(every("0 * * * *")).await.unwrap();
    world.clock.advance(HOUR);
    until(async || notices(&runtime).await == 1).await;
    world.clock.set_wall(-3_600_000_000);
    settle().await;
    // It is nine o'clock again.
    world.clock.advance(HOUR);
    settle().await;
    assert_eq!((shown(&runtime).await.as_str(), world.began()), ("1 run, 0 skipped, next 10:00", 1));
    world.clock.advance(HOUR);
    until(async || notices(&runtime).await == 2).await;
    assert_eq!(shown(&runtime).await, "2 run, 0 skipped, next 11:00");
    // Written anew behind a clock that was put back: a time that was used is not used again.
    world.clock.set_wall(-3_600_000_000 * 2);
    let anew = windlass::schedules::ScheduleEdit { enabled: Some(true), ..Default::default() };
    runtime.schedules("s").edit("beat", anew).await.unwrap();
    assert_eq!(shown(&runtime).await, "2 run, 0 skipped, next 09:00");
    world.clock.advance(HOUR);
    until(async || shown(&runtime).await.ends_with("next 10:00")).await;
    settle().await;
    assert_eq!((beat(&runtime).await.count, world.began()), (2, 2));
}
