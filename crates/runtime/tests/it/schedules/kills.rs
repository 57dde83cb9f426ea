//! Owners that are cut off at every commit around the times of a schedule: no time is lost, and none is used twice.

use super::{MINUTE, World, beat, every, until};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use windlass::Runtime;
use windlass::schedules::NewSchedule;
use windlass_core::ids::Lookup;
use windlass_core::schedule::{CatchUp, Overlap};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// So many minutes of a schedule of every minute.
const MINUTES: u64 = 12;
const FAULTS: [Fault; 4] = [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter];

fn beats() -> NewSchedule {
    NewSchedule { catch_up: CatchUp::All, overlap: Overlap::Allow, ..every("* * * * *") }
}

/// An owner, and how to tell that it was cut off.
struct Owner {
    runtime: Runtime,
    store: FaultStore,
}

impl Owner {
    fn new(world: &World, plan: FaultPlan) -> Owner {
        let store = FaultStore::new(world.store.clone(), plan, FaultReach::Store);
        Owner { runtime: world.owner_on(Arc::new(store.clone())), store }
    }

    /// Whether the schedule is made before it is cut off.
    async fn makes_it(&self) -> bool {
        let schedules = self.runtime.schedules("s");
        tokio::select! {
            made = schedules.create(beats()) => made.is_ok(),
            () = until(async || self.is_cut_off()) => false,
        }
    }

    fn is_cut_off(&self) -> bool {
        !self.store.happened().is_empty()
    }
}

/// The owner, or if it was cut off the next one.
async fn alive(world: &World, owner: Owner) -> Owner {
    if !owner.is_cut_off() {
        return owner;
    }
    owner.store.close();
    drop(owner);
    let next = Owner::new(world, FaultPlan::Never);
    next.runtime.resume().await.unwrap();
    next
}

/// Goes through the minutes with an owner that is cut off at this commit. Whether it was.
async fn trial(commit: u64, fault: Fault) -> bool {
    let world = World::new();
    let mut owner = Owner::new(&world, FaultPlan::Nth(Method::Commit, commit, fault));
    // Whoever asked and got no answer asks again.
    while !owner.makes_it().await {
        owner = alive(&world, owner).await;
    }
    let mut was_cut_off = false;
    for minute in 1..=MINUTES {
        world.clock.advance(MINUTE);
        until(async || {
            // Whoever was cut off may have heard of the minute instead of whoever came next.
            world.clock.advance(Duration::ZERO);
            let schedules = owner.runtime.schedules("s");
            owner.is_cut_off() || schedules.get("beat").await.is_ok_and(|seen| seen.count >= minute)
        })
        .await;
        was_cut_off |= owner.is_cut_off();
        owner = alive(&world, owner).await;
    }
    until(async || owner.is_cut_off() || owner.runtime.open_calls() == 0).await;
    was_cut_off |= owner.is_cut_off();
    let owner = alive(&world, owner).await;
    until(async || {
        world.clock.advance(Duration::ZERO);
        beat(&owner.runtime).await.count == MINUTES
    })
    .await;
    owner.runtime.idle().await;
    check(&world, &owner.runtime, &format!("commit {commit}, {fault:?}")).await;
    was_cut_off
}

/// Each minute has one batch of its own with one call that succeeded, of which the session is told once.
async fn check(world: &World, runtime: &Runtime, what: &str) {
    let session = world.store.session("s").await.unwrap().unwrap().no;
    let seen = beat(runtime).await;
    assert_eq!((seen.count, seen.skipped), (MINUTES, 0), "{what}");
    let mut batches = BTreeSet::new();
    for minute in 1..=MINUTES {
        let nominal = 1_800_000_000_000_000 + minute * 60_000_000;
        let lookup = Lookup::of(session, &format!("schedule:beat/{nominal}"));
        let found = world.store.batch(lookup).await.unwrap();
        batches.insert(found.unwrap_or_else(|| panic!("{what}: minute {minute} is lost")).no);
    }
    assert_eq!(batches.len() as u64, MINUTES);
    let tasks = runtime.tasks("s").list(Some("beat"), 100).await.unwrap();
    assert_eq!(tasks.len() as u64, MINUTES, "{what}");
    assert!(tasks.iter().all(|task| task.state == "succeeded"), "{what}: {tasks:?}");
    let told: BTreeSet<String> = runtime
        .inbox("s")
        .list(None, 100)
        .await
        .unwrap()
        .into_iter()
        .filter_map(|notice| notice.call)
        .collect();
    assert_eq!(told.len() as u64, MINUTES, "{what}");
}

#[tokio::test]
async fn two_hundred_owners_that_are_cut_off_lose_no_time_and_use_none_twice() {
    let mut cut_off = 0;
    for commit in 1..=50 {
        for fault in FAULTS {
            cut_off += u64::from(trial(commit, fault).await);
        }
    }
    assert!(cut_off >= 100, "only {cut_off} were cut off while it went through its times");
    println!("{cut_off} owners were cut off");
}
