//! Dedupe over a restart: the journals record who ran and who waited.

use super::{Desk, followers, pays, same, told};
use crate::rig::{Count, echo, reopen, run};
use serde_json::json;
use std::time::Duration;
use windlass::ask::Target;
use windlass::{EffectClass, Runtime, ToolError};

/// Lets an owner of its own do `life` on the folder; then it is gone, as it would be after a kill.
async fn live<F: Future<Output = ()>>(
    folder: &std::sync::Arc<tempfile::TempDir>,
    life: impl FnOnce(Runtime) -> F + Send + 'static,
) {
    let folder = folder.clone();
    let died = tokio::task::spawn_blocking(move || {
        let owner =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        owner.block_on(async { life(reopen(&folder)).await });
        owner.shutdown_timeout(Duration::from_secs(5));
    });
    died.await.unwrap();
}

fn folder() -> std::sync::Arc<tempfile::TempDir> {
    std::sync::Arc::new(tempfile::tempdir().unwrap())
}

/// Two batches: the first runs, the others follow it.
async fn begin(
    runtime: &Runtime,
    desk: &mut Desk,
) -> tokio::sync::oneshot::Sender<Result<serde_json::Value, ToolError>> {
    for (key, ids) in [("k1", &["a", "b"][..]), ("k2", &["c"])] {
        drop(runtime.submit("s", pays(key, ids)).await.unwrap());
    }
    let reply = desk.next("a").await;
    followers(runtime, 2).await;
    reply
}

/// The ends of all of them, driven by a new owner whose tool just works.
async fn after(folder: &tempfile::TempDir, class: EffectClass) -> (String, u32) {
    let (runtime, ran) = (reopen(folder), Count::default());
    runtime.register(echo(same(class), &ran)).unwrap();
    let first = run(&runtime, "s", pays("k1", &["a", "b"])).await;
    let second = run(&runtime, "s", pays("k2", &["c"])).await;
    runtime.idle().await;
    assert_eq!(runtime.kept(), 0);
    (told(&[&first, &second]), ran.get())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_owner_died_under_the_first_the_followers_still_wait_for_it() {
    for (class, expected, runs) in [
        (EffectClass::Read, "a succeeded(1), b succeeded(0) as a, c succeeded(0) as a", 1),
        (EffectClass::Keyed, "a succeeded(2), b succeeded(0) as a, c succeeded(0) as a", 1),
        (EffectClass::Once, "a unknown(1), b unknown(0) as a, c unknown(0) as a", 0),
    ] {
        let folder = folder();
        live(&folder, move |runtime| async move {
            let mut desk = Desk::open(&runtime, same(class));
            drop(begin(&runtime, &mut desk).await);
        })
        .await;
        assert_eq!(after(&folder, class).await, (expected.to_string(), runs), "{class}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_owner_died_under_a_follower_that_ran_the_others_wait_for_that_one() {
    let folder = folder();
    live(&folder, |runtime| async move {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        begin(&runtime, &mut desk).await.send(Err(ToolError::new("no"))).unwrap();
        let _never = desk.next("b").await;
    })
    .await;
    let expected = "a failed(1), b succeeded(2), c succeeded(0) as b";
    assert_eq!(after(&folder, EffectClass::Keyed).await, (expected.to_string(), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_an_earlier_process_stands() {
    let folder = folder();
    live(&folder, |runtime| async move {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let waiting = runtime.submit("s", pays("k1", &["a"])).await.unwrap();
        desk.next("a").await.send(Ok(json!({"n": 1}))).unwrap();
        waiting.settled().await.unwrap();
    })
    .await;
    let expected = "a succeeded(1), b succeeded(0) as a, c succeeded(0) as a";
    assert_eq!(after(&folder, EffectClass::Keyed).await, (expected.to_string(), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_of_an_earlier_process_does_not() {
    let folder = folder();
    live(&folder, |runtime| async move {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        let waiting = runtime.submit("s", pays("k1", &["a"])).await.unwrap();
        desk.next("a").await.send(Err(ToolError::new("no"))).unwrap();
        waiting.settled().await.unwrap();
    })
    .await;
    let expected = "a failed(1), b succeeded(1), c succeeded(0) as b";
    assert_eq!(after(&folder, EffectClass::Keyed).await, (expected.to_string(), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_cancelled_by_the_next_owner() {
    let folder = folder();
    live(&folder, |runtime| async move {
        let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
        drop(begin(&runtime, &mut desk).await);
    })
    .await;
    let runtime = reopen(&folder);
    let mut desk = Desk::open(&runtime, same(EffectClass::Keyed));
    assert_eq!(runtime.resume().await.unwrap(), 3);
    let reply = desk.next("a").await;
    let waits = followers(&runtime, 2).await;
    runtime.cancel(Target::Call(&waits[0]), None).await.unwrap();
    reply.send(Ok(json!(1))).unwrap();
    let first = run(&runtime, "s", pays("k1", &["a", "b"])).await;
    let second = run(&runtime, "s", pays("k2", &["c"])).await;
    assert_eq!(told(&[&first]).replace(" as a", ""), "a succeeded(2), b cancelled(0)");
    assert_eq!(told(&[&first, &second]).split(", ").last(), Some("c succeeded(0) as a"));
}
