//! Batches whose calls come one after the other.

use crate::rig::{Count, batch, call, config, die_in_an_attempt, echo, hanging, n, quick, run, spec, states};
use std::sync::Arc;
use std::time::Duration;
use windlass::ask::Target;
use windlass::batch::{Siblings, StreamRequest, StreamedBatch};
use windlass::store::memory::MemoryStore;
use windlass::{BatchError, Config, Cx, EffectClass, Limits, Runtime, Submitted, ToolSpec, inspect, tool_fn};
use windlass_testkit::clock::ManualClock;

fn streamed(siblings: Siblings) -> StreamRequest {
    StreamRequest { key: "k".into(), siblings, ..StreamRequest::default() }
}

async fn open(runtime: &Runtime) -> StreamedBatch {
    runtime.open_batch("s", streamed(Siblings::Independent)).await.unwrap()
}

async fn told(submitted: Submitted) -> String {
    states(&submitted.settled().await.unwrap())
}

/// A runtime in memory with the tools `echo` and `hang`, and what belongs to it.
struct Rig {
    runtime: Runtime,
    clock: ManualClock,
    ran: Count,
}

fn rig(limits: Limits) -> Rig {
    let (clock, ran) = (ManualClock::default(), Count::default());
    let store = MemoryStore::new().unwrap();
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), limits, ..Config::new(store) });
    runtime.register(echo(quick("echo", EffectClass::Read), &ran)).unwrap();
    let hangs = ToolSpec { grace_ms: Some(0), ..spec("hang", EffectClass::Read) };
    runtime.register(tool_fn(hangs, |_, _: &Cx| std::future::pending())).unwrap();
    Rig { runtime, clock, ran }
}

/// The recorded close of a batch; `None` while it is open.
async fn closed(runtime: &Runtime) -> Option<String> {
    let session = runtime.store().session("s").await.unwrap()?;
    let calls = inspect::calls(runtime.store(), &session, 10).await.unwrap();
    let (_, story) = inspect::call(runtime.store(), calls.first()?.answer.handle()).await.unwrap()?;
    story.into_iter().find(|line| line.kind == "closed").map(|line| line.text)
}

async fn is_listed_as_open(runtime: &Runtime) -> bool {
    !runtime.store().open_batches(None).await.unwrap().is_empty()
}

/// Waits until this is so; what it waits for happens in another task.
async fn until<F: Future<Output = bool>>(so: impl Fn() -> F) {
    while !so().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn calls_start_when_they_are_pushed_and_are_answered_together() {
    let Rig { runtime, ran, .. } = rig(Limits::default());
    let stream = open(&runtime).await;
    let first = stream.push(vec![call("a", "echo", n(1)), call("b", "nothing", n(2))]).await.unwrap();
    assert_eq!(ran.get(), 1, "it need not wait for the others");
    assert_eq!(told(first).await, "a succeeded, b failed/no_such_tool");
    assert!(is_listed_as_open(&runtime).await, "all there are have ended, and more may come");
    let joined = open(&runtime).await;
    let second = joined.push(vec![call("a", "echo", n(1)), call("c", "echo", n(3))]).await.unwrap();
    let conflict = stream.push(vec![call("a", "echo", n(9))]).await.unwrap();
    assert_eq!(told(second).await, "a succeeded, c succeeded");
    assert_eq!(told(conflict).await, "a failed/conflict");
    // Submitting is pushing, and does not close it.
    assert_eq!(states(&run(&runtime, "s", batch("k", vec![call("d", "echo", n(4))])).await), "d succeeded");
    assert!(is_listed_as_open(&runtime).await);
    let all = stream.close().await.unwrap();
    assert_eq!(told(all).await, "a succeeded, b failed/no_such_tool, c succeeded, d succeeded");
    assert_eq!(closed(&runtime).await.unwrap(), "the batch was closed by its caller");
    assert!(!is_listed_as_open(&runtime).await);
    assert_eq!(ran.get(), 3);
}

/// Nothing else of a `read` that runs is recorded before its end.
#[tokio::test]
async fn what_was_pushed_is_recorded() {
    let Rig { runtime, .. } = rig(Limits::default());
    let stream = open(&runtime).await;
    let waiting = stream.push(vec![call("a", "hang", n(1)), call("b", "hang", n(1))]).await.unwrap();
    let session = runtime.store().session("s").await.unwrap().unwrap();
    let calls = inspect::calls(runtime.store(), &session, 10).await.unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!(session.head.0, 3, "the batch and its calls, and nothing else");
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    assert_eq!(told(waiting).await, "a cancelled, b cancelled");
}

#[tokio::test]
async fn a_closed_batch_takes_no_more_calls() {
    let Rig { runtime, ran, .. } = rig(Limits::default());
    let stream = open(&runtime).await;
    let calls = || vec![call("a", "echo", n(1))];
    stream.push(calls()).await.unwrap();
    stream.close().await.unwrap();
    let expected = "the batch \"k\" is closed and takes no more calls; give them a batch of their own";
    let reopened = open(&runtime).await;
    for stream in [&stream, &reopened] {
        for more in [call("b", "echo", n(2)), call("a", "echo", n(2))] {
            let refused = stream.push(vec![call("a", "echo", n(1)), more]).await.map(|_| ()).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        assert_eq!(
            told(stream.push(calls()).await.unwrap()).await,
            "a succeeded",
            "what is recorded is joined"
        );
        assert_eq!(told(stream.close().await.unwrap()).await, "a succeeded");
    }
    let submitted = runtime.submit("s", batch("k", vec![call("b", "echo", n(2))])).await.map(|_| ());
    assert_eq!(submitted.unwrap_err().to_string(), expected);
    assert_eq!((ran.get(), runtime.open_calls(), runtime.kept()), (1, 0, 0));
}

#[tokio::test]
async fn what_cannot_be_streamed_is_told() {
    let Rig { runtime, .. } = rig(Limits { batch_calls_max: 2, ..Limits::default() });
    run(&runtime, "s", batch("whole", vec![call("a", "echo", n(1))])).await;
    let refused =
        |request| async { runtime.open_batch("s", request).await.map(|_| ()).unwrap_err().to_string() };
    let whole = StreamRequest { key: "whole".into(), ..StreamRequest::default() };
    assert_eq!(
        refused(whole).await,
        "the batch \"whole\" was submitted whole; give the streamed one a key of its own"
    );
    assert_eq!(
        refused(StreamRequest::default()).await,
        "the batch's key has 0 characters and must have 1 to 256"
    );
    let most = "a quorum of 3 cannot be reached by 2 calls; ask for 2 or fewer";
    assert_eq!(refused(streamed(Siblings::Quorum(3))).await, most);
    let stream = open(&runtime).await;
    let nameless = windlass::CallRequest { id: None, ..call("x", "echo", n(1)) };
    let unnamed = stream.push(vec![nameless]).await.map(|_| ()).unwrap_err().to_string();
    assert_eq!(
        unnamed,
        "a call that is pushed needs an id; without one it could not be told from the others"
    );
    let push = |id: &str| stream.push(vec![call(id, "echo", n(1))]);
    push("a").await.unwrap();
    push("b").await.unwrap();
    let full = push("c").await.map(|_| ()).unwrap_err().to_string();
    assert_eq!(full, "with these calls the batch would have more than 2; give them a batch of their own");
    assert_eq!(told(stream.close().await.unwrap()).await, "a succeeded, b succeeded");
}

#[tokio::test]
async fn a_push_is_refused_when_too_much_waits() {
    let Rig { runtime, .. } = rig(Limits { calls_queued_max: 1, calls_running_max: 1, ..Limits::default() });
    let stream = open(&runtime).await;
    let waiting = stream.push(vec![call("a", "hang", n(1))]).await.unwrap();
    stream.push(vec![call("b", "hang", n(1))]).await.unwrap();
    let refused = stream.push(vec![call("c", "hang", n(1))]).await.map(|_| ());
    assert!(matches!(refused, Err(BatchError::Overloaded { .. })), "{refused:?}");
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    assert_eq!(told(waiting).await, "a cancelled");
    assert_eq!(told(stream.close().await.unwrap()).await, "a cancelled, b cancelled");
}

#[tokio::test]
async fn it_closes_itself_when_nobody_pushes() {
    let Rig { runtime, clock, .. } = rig(Limits { stream_idle_ms: 1_000, ..Limits::default() });
    let stream = open(&runtime).await;
    stream.push(vec![call("a", "echo", n(1))]).await.unwrap();
    clock.advance(Duration::from_millis(900));
    stream.push(vec![call("b", "echo", n(1))]).await.unwrap();
    clock.advance(Duration::from_millis(900));
    // The alarm of the first push has rung or was cleared: the second one has its own time.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(closed(&runtime).await, None);
    // Whoever drops it neither closes nor cancels.
    drop(stream);
    clock.advance(Duration::from_millis(100));
    until(|| async { closed(&runtime).await.is_some() }).await;
    assert_eq!(
        closed(&runtime).await.unwrap(),
        "the batch was closed, because no call was pushed to it for too long"
    );
    until(|| async { !is_listed_as_open(&runtime).await }).await;
    assert!(open(&runtime).await.push(vec![call("c", "echo", n(1))]).await.is_err());
}

#[tokio::test]
async fn a_stream_without_calls_leaves_nothing() {
    let Rig { runtime, clock, .. } = rig(Limits { stream_idle_ms: 1_000, ..Limits::default() });
    let stream = open(&runtime).await;
    assert_eq!(told(stream.close().await.unwrap()).await, "");
    drop(open(&runtime).await);
    clock.advance(Duration::from_secs(2));
    let again = open(&runtime).await;
    again.push(vec![call("a", "echo", n(1))]).await.unwrap();
    assert_eq!(told(again.close().await.unwrap()).await, "a succeeded");
}

#[tokio::test]
async fn what_needs_a_count_is_decided_by_the_close() {
    let Rig { runtime, ran, .. } = rig(Limits::default());
    let opened = |key: &str, siblings| StreamRequest { key: key.into(), ..streamed(siblings) };
    // None has succeeded, and another may come; then none can.
    let race = runtime.open_batch("s", opened("race", Siblings::Race)).await.unwrap();
    race.push(vec![call("a", "nothing", n(1))]).await.unwrap();
    race.push(vec![call("b", "echo", n(1)), call("c", "echo", n(1))]).await.unwrap();
    race.push(vec![call("d", "echo", n(1))]).await.unwrap();
    let all = race.close().await.unwrap();
    assert_eq!(told(all).await, "a failed/no_such_tool, b succeeded, c cancelled, d cancelled");
    assert_eq!(ran.get(), 1);
    let quorum = runtime.open_batch("s", opened("quorum", Siblings::Quorum(3))).await.unwrap();
    quorum.push(vec![call("a", "echo", n(1)), call("b", "hang", n(1))]).await.unwrap();
    let answer = quorum.close().await.unwrap().settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded, b cancelled", "a third one never came");
    assert_eq!(serde_json::to_value(&answer.decided).unwrap()["decision"], "unreachable");
    let fail_fast = runtime.open_batch("s", opened("all", Siblings::FailFast)).await.unwrap();
    let hangs = fail_fast.push(vec![call("a", "hang", n(1))]).await.unwrap();
    fail_fast.push(vec![call("b", "nothing", n(1))]).await.unwrap();
    assert_eq!(told(hangs).await, "a cancelled", "the first that fails decides it, closed or not");
}

/// The owner dies between two pushes: the next one closes the batch, and the caller is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = Runtime::new(config(&folder));
    first.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
    let stream = open(&first).await;
    assert_eq!(told(stream.push(vec![call("a", "echo", n(1))]).await.unwrap()).await, "a succeeded");
    drop((stream, first));
    let second = Runtime::new(config(&folder));
    assert!(is_listed_as_open(&second).await, "what has no open call can still be open");
    second.resume().await.unwrap();
    assert_eq!(closed(&second).await.unwrap(), "the batch was closed, because its owner was gone");
    assert!(!is_listed_as_open(&second).await);
    let stream = open(&second).await;
    assert!(stream.push(vec![call("b", "echo", n(1))]).await.is_err());
    assert_eq!(told(stream.close().await.unwrap()).await, "a succeeded");
}

/// Pushed calls are durable, and continue; the close may decide the batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_goes_on_with_what_was_pushed() {
    for (siblings, expected) in [(Siblings::Independent, "a succeeded"), (Siblings::Quorum(2), "a cancelled")]
    {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        die_in_an_attempt(&folder, batch("other", vec![call("o", "echo", n(1))]), move |config, begun| {
            let runtime = Runtime::new(config);
            runtime.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
            runtime.register(hanging(spec("x", EffectClass::Keyed), begun)).unwrap();
            let pushing = runtime.clone();
            tokio::spawn(async move {
                let stream = pushing.open_batch("s", streamed(siblings)).await.unwrap();
                drop(stream.push(vec![call("a", "x", n(1))]).await.unwrap());
            });
            runtime
        })
        .await;
        let runtime = Runtime::new(config(&folder));
        runtime.register(echo(spec("x", EffectClass::Keyed), &Count::default())).unwrap();
        let stream = runtime.open_batch("s", streamed(siblings)).await.unwrap();
        assert_eq!(told(stream.close().await.unwrap()).await, expected, "{siblings}");
    }
}
