//! Processes that fall silent: they have lost their attempts, and the class decides as after a crash.

use super::{Process, SILENCE, World, of, settled, submit, tool};
use crate::rig::{batch, call, n, states, waits_for};
use serde_json::json;
use std::time::Duration;
use windlass::toolboxes::{AttemptStanding, ManifestRetry, TakenAttempt, ToolManifest};
use windlass::{EffectClass, Runtime};

/// Half a minute of the machine's own time: whatever takes longer hangs.
const HANGS: Duration = Duration::from_secs(30);

async fn take(process: &Process) -> TakenAttempt {
    tokio::time::timeout(HANGS, process.take()).await.expect("nothing was there to take")
}

/// Waits until the toolbox has so many attempts that processes have, and that wait for one.
async fn until_has(runtime: &Runtime, running: u64, waiting: u64) {
    loop {
        let shown = runtime.toolboxes().list().await.unwrap().remove(0);
        if (shown.running, shown.waiting) == (running, waiting) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_class_decides_and_a_late_end_is_refused() {
    for (class, ends) in [
        (EffectClass::Read, "c succeeded"),
        (EffectClass::Keyed, "c succeeded"),
        (EffectClass::Stepped, "c succeeded"),
        (EffectClass::Once, "c unknown"),
    ] {
        let world = World::new();
        let owner = world.owner();
        let runtime = owner.runtime.clone();
        let process = Process::new(&runtime, vec![tool("greet", class)]).await;
        process.ask(1, Duration::ZERO).await.unwrap();
        let submitted = submit(&runtime, "greet").await;
        let frozen = take(&process).await;
        world.clock.advance(SILENCE);
        let second = match class {
            EffectClass::Once => None,
            EffectClass::Read | EffectClass::Keyed | EffectClass::Stepped => {
                let taken = take(&process).await;
                assert_eq!((taken.number.0, &taken.idempotency_key), (2, &frozen.idempotency_key));
                assert!(taken.redrive, "{class}");
                Some(taken)
            }
        };
        while process.returns(&frozen, json!("late")).await.standing != AttemptStanding::Over {}
        if let Some(second) = second {
            process.returns(&second, json!("again")).await;
        }
        let answer = settled(submitted).await;
        drop((process, runtime));
        owner.dies().await;
        assert_eq!(states(&answer), ends, "{class}");
        assert!(!answer.calls[0].model_text().contains("late"), "{class}");
    }
}

#[tokio::test]
async fn when_owner_and_process_died_the_class_decides() {
    for (class, ends) in [(EffectClass::Once, "c unknown"), (EffectClass::Keyed, "c succeeded")] {
        let world = World::new();
        let owner = world.owner();
        let runtime = owner.runtime.clone();
        let process = Process::new(&runtime, vec![tool("greet", class)]).await;
        process.ask(1, Duration::ZERO).await.unwrap();
        drop(submit(&runtime, "greet").await);
        let lost = take(&process).await;
        let manifest = process.manifest.clone();
        drop((process, runtime));
        let owner = world.next(owner).await;
        let next = owner.runtime.clone();
        let process = Process { runtime: next.clone(), manifest };
        let rejoined = next.submit("s", batch("k", vec![call("c", "greet", n(1))])).await.unwrap();
        // The next owner waits for the process.
        until_has(&next, 1, 0).await;
        world.clock.advance(SILENCE);
        if class == EffectClass::Keyed {
            let second = take(&process).await;
            process.returns(&second, json!(1)).await;
        }
        assert_eq!(states(&settled(rejoined).await), ends, "{class}");
        assert_eq!(process.beat(&lost).await.standing, AttemptStanding::Over, "{class}");
        drop((process, next));
        owner.dies().await;
    }
}

#[tokio::test]
async fn processes_that_die_are_counted_apart_from_retries_until_the_call_is_set_aside() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let retry = ManifestRetry { attempts: Some(1), ..ManifestRetry::default() };
    let tools = vec![ToolManifest { retry, ..tool("greet", EffectClass::Keyed) }];
    let process = Process::new(&runtime, tools).await;
    process.ask(1, Duration::ZERO).await.unwrap();
    let submitted = submit(&runtime, "greet").await;
    for number in 1..=3 {
        let taken = take(&process).await;
        assert_eq!((taken.number.0, taken.redrive), (number, number > 1));
        world.clock.advance(SILENCE);
    }
    let answer = settled(submitted).await;
    assert_eq!((states(&answer), answer.calls[0].call().attempts), ("c failed/poison".into(), 3));
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn a_suspect_is_alone_in_its_process_for_a_while() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let free = |name| ToolManifest { claims: Some(Vec::new()), ..tool(name, EffectClass::Keyed) };
    let process = Process::new(&runtime, vec![free("greet"), free("wave")]).await;
    process.ask(2, Duration::ZERO).await.unwrap();
    let suspect = submit(&runtime, "greet").await;
    for _ in 0..2 {
        take(&process).await;
        world.clock.advance(SILENCE);
    }
    // It ran at two deaths.
    let third = take(&process).await;
    assert_eq!((third.tool.as_str(), third.number.0), ("greet", 3));
    process.ask(1, Duration::ZERO).await.unwrap();
    let other = runtime.submit("t", batch("k", vec![call("c", "wave", n(1))])).await.unwrap();
    until_has(&runtime, 1, 1).await;
    assert!(process.ask(1, Duration::ZERO).await.unwrap().is_empty(), "the suspect is not alone");
    // Its harm is bounded.
    for _ in 0..2 {
        world.clock.advance(Duration::from_secs(6));
        assert_eq!(process.beat(&third).await.standing, AttemptStanding::Running);
    }
    let wave = take(&process).await;
    assert_eq!(wave.tool, "wave");
    process.returns(&wave, json!(1)).await;
    process.returns(&third, json!(1)).await;
    assert_eq!(states(&settled(other).await), "c succeeded");
    assert_eq!(states(&settled(suspect).await), "c succeeded");
    drop((process, runtime));
    owner.dies().await;
}

#[tokio::test]
async fn a_process_that_is_heard_of_again_by_a_report_gets_the_calls_that_waited_for_it() {
    let world = World::new();
    let owner = world.owner();
    let runtime = owner.runtime.clone();
    let process = Process::new(&runtime, vec![tool("greet", EffectClass::Once)]).await;
    process.ask(1, Duration::ZERO).await.unwrap();
    let first = submit(&runtime, "greet").await;
    let frozen = take(&process).await;
    world.clock.advance(SILENCE);
    assert_eq!(states(&settled(first).await), "c unknown");
    let second = runtime.submit("s", batch("k2", vec![call("c", "greet", n(2))])).await.unwrap();
    waits_for(&runtime, "no_worker").await;
    // It goes on where it was frozen: with a report, and then it asks for work.
    assert_eq!(process.report(of(&frozen), Duration::ZERO).await.standing, AttemptStanding::Over);
    let taken = take(&process).await;
    process.returns(&taken, json!(1)).await;
    assert_eq!(states(&settled(second).await), "c succeeded");
    drop((process, runtime));
    owner.dies().await;
}
