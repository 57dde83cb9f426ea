//! The list of what waits for people: the same as a fresh reading finds, in parts, and with few reads.

use super::{asking, no, yes};
use crate::rig::{Count, batch, call, echo, n, spec};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::ask::Target;
use windlass::inspect::{self, WaitingCall, WaitingKind, WaitingSearch};
use windlass::sessions::SessionOpening;
use windlass::store::memory::MemoryStore;
use windlass::time::{Clock, SystemClock};
use windlass::{Config, EffectClass, Runtime, Submitted};
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore, Method};

/// A runtime, and its store, which counts what is asked of it.
fn counted() -> (Runtime, FaultStore) {
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Store);
    let config = Config { store: Arc::new(store.clone()), ..Config::new(MemoryStore::new().unwrap()) };
    let runtime = Runtime::new(config);
    runtime.register(echo(asking("pay", EffectClass::Once), &Count::default())).unwrap();
    let asks = crate::inside::body(spec("asks", EffectClass::Stepped), |_, cx| {
        Box::pin(async move { Ok(json!(cx.ask("colour", "Which?", None).await?).into()) })
    });
    runtime.register(asks).unwrap();
    (runtime, store)
}

/// Submits one call in a batch of its own, and waits until it waits.
async fn wait_in(runtime: &Runtime, session: &str, id: &str, tool: &str) -> Submitted {
    let submitted = runtime.submit(session, batch(id, vec![call(id, tool, n(1))])).await.unwrap();
    submitted.stands_still().await.unwrap();
    submitted
}

/// The list of waits, once it is known that a fresh reading of the store finds the same.
async fn listed(runtime: &Runtime, store: &FaultStore) -> Vec<WaitingCall> {
    let now = SystemClock::default().now();
    let fresh = inspect::waiting(store, now, &WaitingSearch::default(), usize::MAX).await.unwrap();
    let found = runtime.waiting().await.unwrap();
    assert_eq!(found, fresh.calls);
    assert_eq!(runtime.count_waiting(|_| true).await.unwrap(), found.len() as u64);
    found.into_iter().map(|(_, waits)| waits).collect()
}

fn ids(waits: &[WaitingCall]) -> Vec<&str> {
    waits.iter().map(|waits| waits.call_id.as_str()).collect()
}

#[tokio::test]
async fn what_is_listed_is_what_a_fresh_reading_finds_whatever_happens_between_two_looks() {
    let (runtime, store) = counted();
    assert!(listed(&runtime, &store).await.is_empty());
    let mut made = BTreeMap::new();
    for (session, id, tool) in [("s", "a", "pay"), ("t", "b", "asks"), ("s", "c", "pay"), ("t", "d", "pay")] {
        made.insert(id, wait_in(&runtime, session, id, tool).await);
        assert!(ids(&listed(&runtime, &store).await).contains(&id));
    }
    let waits = listed(&runtime, &store).await;
    let of = |id: &str| waits.iter().find(|waits| waits.call_id == id).unwrap();
    runtime.decide(&of("a").id, &yes(of("a")), "ann").await.unwrap();
    runtime.decide(&of("d").id, &no(of("d"), "not now"), "ann").await.unwrap();
    made.remove("a").unwrap().settled().await.unwrap();
    made.remove("d").unwrap().settled().await.unwrap();
    assert_eq!(ids(&listed(&runtime, &store).await), ["c", "b"], "the nearest deadline first");
    runtime.answer(&of("b").id, &json!("red")).await.unwrap();
    made.remove("b").unwrap().settled().await.unwrap();
    let later = wait_in(&runtime, "s", "e", "pay").await;
    assert_eq!(ids(&listed(&runtime, &store).await), ["c", "e"]);
    // A batch that stays open, and of which one call was answered.
    let pair = batch("pair", vec![call("x", "pay", n(1)), call("y", "pay", n(2))]);
    let pair = runtime.submit("t", pair).await.unwrap();
    pair.stands_still().await.unwrap();
    let waits = listed(&runtime, &store).await;
    assert_eq!(ids(&waits), ["c", "e", "x", "y"]);
    runtime.decide(&waits[2].id, &yes(&waits[2]), "ann").await.unwrap();
    pair.stands_still().await.unwrap();
    assert_eq!(ids(&listed(&runtime, &store).await), ["c", "e", "y"]);
    runtime.cancel(Target::Session("t"), None).await.unwrap();
    pair.settled().await.unwrap();
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    made.remove("c").unwrap().settled().await.unwrap();
    later.settled().await.unwrap();
    assert!(listed(&runtime, &store).await.is_empty());
}

#[tokio::test]
async fn a_part_is_what_was_searched_and_goes_on_behind_its_place() {
    let (runtime, store) = counted();
    let opening = SessionOpening { principal: "carl".into(), ..SessionOpening::default() };
    runtime.open_session("carls", opening).await.unwrap();
    for (session, id, tool) in
        [("s", "a", "pay"), ("carls", "b", "pay"), ("s", "c", "asks"), ("s", "d", "pay")]
    {
        wait_in(&runtime, session, id, tool).await;
    }
    let part = async |search: WaitingSearch<'_>, limit: usize| {
        let part = runtime.waiting_part(&search, limit, |principal| principal != Some("carl")).await.unwrap();
        let calls: Vec<_> = part.calls.into_iter().map(|(_, waits)| waits.call_id).collect();
        (calls.join(" "), part.next)
    };
    let (first, next) = part(WaitingSearch::default(), 2).await;
    assert_eq!(first, "a d");
    assert_eq!(part(WaitingSearch { after: next, ..WaitingSearch::default() }, 2).await, ("c".into(), None));
    let kind = Some(WaitingKind::Question);
    assert_eq!(part(WaitingSearch { kind, ..WaitingSearch::default() }, 2).await, ("c".into(), None));
    let session = Some("carls");
    assert_eq!(part(WaitingSearch { session, ..WaitingSearch::default() }, 2).await, (String::new(), None));
    assert_eq!(runtime.count_waiting(|principal| principal == Some("carl")).await.unwrap(), 1);
    assert_eq!(listed(&runtime, &store).await.len(), 4);
}

#[tokio::test]
async fn a_look_reads_the_batches_that_it_shows_and_those_that_were_written_since() {
    let (runtime, store) = counted();
    let first = wait_in(&runtime, "s", "first", "pay").await;
    for place in 1..30 {
        wait_in(&runtime, ["s", "t"][place % 2], &format!("c{place}"), "pay").await;
    }
    let reads = async |limit: usize| {
        let before = store.asked(Method::Journal);
        runtime.waiting_part(&WaitingSearch::default(), limit, |_| true).await.unwrap();
        store.asked(Method::Journal) - before
    };
    assert_eq!(reads(5).await, 30 + 5, "all are read once, and those that are shown");
    assert_eq!(reads(5).await, 5, "nothing was written since");
    wait_in(&runtime, "s", "later", "pay").await;
    assert_eq!(reads(5).await, 1 + 5, "the new one is read");
    let waits = runtime.waiting().await.unwrap().remove(0).1;
    runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
    first.settled().await.unwrap();
    assert_eq!(reads(0).await, 0, "what is over waits no longer");
    assert_eq!(runtime.count_waiting(|_| true).await.unwrap(), 30);
}
