//! A tool becomes another class while its owner is gone, and a call whose record contradicts itself: neither takes a
//! session with it.

use crate::inside::{asked, body, stepped};
use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, echo, end, hanging, n, reopen, run, spec, states,
    waits_for,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::ask::{Resolution, Target};
use windlass::store::{Hold, Row, SessionChange, Store};
use windlass::tool::{Reconciled, with_reconcile};
use windlass::{BatchRequest, Config, Deadlines, EffectClass, Output, Runtime, Tool, ToolSpec};
use windlass_core::call::{Fact, LostAttempt, Resumed};
use windlass_core::entry::Packer;
use windlass_core::ids::{AttemptNo, Ordinal};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::sqlite_in;

const CLASSES: [EffectClass; 4] =
    [EffectClass::Read, EffectClass::Keyed, EffectClass::Stepped, EffectClass::Once];

fn request() -> BatchRequest {
    batch("k", vec![call("c", "t", n(1))])
}

/// A folder with a call of that class that was running when its owner died; its tool could be asked after it.
async fn left_running(class: EffectClass, reconciles: bool) -> Arc<tempfile::TempDir> {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    die_in_an_attempt(&folder, request(), move |config, begun| {
        let runtime = Runtime::new(config);
        let tool = hanging(spec("t", class), begun);
        match reconciles {
            true => runtime.register(with_reconcile(tool, |_, _| async { Ok(Reconciled::Unknown) })).unwrap(),
            false => runtime.register(tool).unwrap(),
        }
        runtime
    })
    .await;
    folder
}

/// The tool as it is after the change.
fn changed(class: EffectClass, ran: &Count) -> impl Tool + use<> {
    echo(ToolSpec { version: "2".into(), ..spec("t", class) }, ran)
}

/// Its session takes calls, also after a restart, and the call keeps its answer.
async fn expect_alive(runtime: Runtime, folder: &tempfile::TempDir, answer: &str) {
    let other = |key| batch(key, vec![call("d", "other", n(2))]);
    let ready = |runtime: &Runtime| {
        runtime.register(echo(spec("other", EffectClass::Once), &Count::default())).unwrap();
    };
    ready(&runtime);
    assert_eq!(states(&run(&runtime, "s", other("k2")).await), "d succeeded");
    drop(runtime);
    let runtime = reopen(folder);
    ready(&runtime);
    assert_eq!(states(&run(&runtime, "s", other("k3")).await), "d succeeded");
    assert_eq!(end(&run(&runtime, "s", request()).await), answer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepting_a_tool_of_another_class_repeats_only_what_may_be_repeated() {
    for (old, row) in [
        // A `read` is recorded with its result, so it never started as far as anybody knows.
        (EffectClass::Read, ["succeeded 1"; 4]),
        (EffectClass::Keyed, ["succeeded 2", "succeeded 2", "unknown 1", "unknown 1"]),
        (EffectClass::Stepped, ["succeeded 2", "unknown 1", "succeeded 2", "unknown 1"]),
        (EffectClass::Once, ["unknown 1"; 4]),
    ] {
        for (new, expected) in CLASSES.into_iter().zip(row) {
            let folder = left_running(old, false).await;
            let (runtime, ran) = (reopen(&folder), Count::default());
            runtime.register(changed(new, &ran)).unwrap();
            let submitted = runtime.submit("s", request()).await.unwrap();
            if matches!(old, EffectClass::Keyed | EffectClass::Stepped) {
                let waiting = waits_for(&runtime, "tool_changed").await;
                runtime.accept(&waiting).await.unwrap();
            }
            let (state, attempts) = expected.split_once(' ').unwrap();
            let expected = format!("c {state}, {attempts} attempts");
            assert_eq!(end(&submitted.settled().await.unwrap()), expected, "{old} becomes {new}");
            assert_eq!(ran.get(), u32::from(state == "succeeded"), "{old} becomes {new}");
            expect_alive(runtime, &folder, &expected).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_became_once_is_asked_if_it_can_be() {
    for (said, expected) in [
        (Reconciled::Landed(json!("done").into()), "c succeeded, 1 attempts"),
        (Reconciled::Failed(windlass::ToolError::new("broken")), "c failed/tool_failed, 1 attempts"),
        (Reconciled::DidNotHappen, "c succeeded, 2 attempts"),
        (Reconciled::Unknown, "c unknown, 1 attempts"),
    ] {
        let folder = left_running(EffectClass::Keyed, false).await;
        let runtime = reopen(&folder);
        let said = Arc::new(said);
        let answers = move |_, _: &windlass::Cx| {
            let said = match &*said {
                Reconciled::Landed(_) => Reconciled::Landed(json!("done").into()),
                Reconciled::Failed(error) => Reconciled::Failed(error.clone()),
                Reconciled::DidNotHappen => Reconciled::DidNotHappen,
                Reconciled::Unknown => Reconciled::Unknown,
            };
            async { Ok(said) }
        };
        runtime.register(with_reconcile(changed(EffectClass::Once, &Count::default()), answers)).unwrap();
        let submitted = runtime.submit("s", request()).await.unwrap();
        let waiting = waits_for(&runtime, "tool_changed").await;
        runtime.accept(&waiting).await.unwrap();
        assert_eq!(end(&submitted.settled().await.unwrap()), expected);
        expect_alive(runtime, &folder, expected).await;
    }
}

/// The older code failed after it had heard the accept, and left the message in the store: every owner heard it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_an_accept_had_bricked_opens_again() {
    let folder = left_running(EffectClass::Keyed, false).await;
    {
        let runtime = reopen(&folder);
        runtime.register(changed(EffectClass::Once, &Count::default())).unwrap();
        drop(runtime.submit("s", request()).await.unwrap());
        let waiting = waits_for(&runtime, "tool_changed").await;
        let store = runtime.store().clone();
        windlass::ask::post_accept(&*store, &waiting).await.unwrap();
    }
    let runtime = reopen(&folder);
    runtime.register(changed(EffectClass::Once, &Count::default())).unwrap();
    assert_eq!(end(&run(&runtime, "s", request()).await), "c unknown, 1 attempts");
    expect_alive(runtime, &folder, "c unknown, 1 attempts").await;
}

/// Waits until something has happened, for less than any deadline of a call.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it happens soon")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_does_not_wait_for_a_tool_that_cannot_be_asked() {
    for (tool, waits) in [(Some(EffectClass::Once), "tool_changed"), (None, "no_such_tool")] {
        for by_removal in [false, true] {
            let folder = left_running(EffectClass::Once, true).await;
            let (runtime, ran) = (reopen(&folder), Count::default());
            if let Some(class) = tool {
                runtime.register(changed(class, &ran)).unwrap();
            }
            let submitted = runtime.submit("s", request()).await.unwrap();
            let waiting = waits_for(&runtime, waits).await;
            if by_removal {
                assert!(soon(runtime.remove_session("s")).await.unwrap(), "{waits}");
                assert_eq!(runtime.open().await.unwrap().len(), 0);
                continue;
            }
            runtime.cancel(Target::Call(&waiting), None).await.unwrap();
            let ended = end(&soon(submitted.settled()).await.unwrap());
            assert_eq!(ended, "c cancelled{unknown}, 1 attempts", "{waits}");
            assert_eq!(ran.get(), 0);
            expect_alive(runtime, &folder, "c cancelled{unknown}, 1 attempts").await;
        }
    }
}

/// The cancel that was asked before the tool was missed: the next owner ends the call without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_was_left_behind_does_not_wait_either() {
    let folder = left_running(EffectClass::Once, true).await;
    {
        let store: Arc<dyn Store> = config(&folder).store;
        let row = store.session("s").await.unwrap().unwrap();
        let call = windlass::inspect::calls(&store, &row, 9).await.unwrap()[0].answer.handle().to_string();
        windlass::ask::post_cancel(&*store, Target::Call(&call), None).await.unwrap();
    }
    let runtime = reopen(&folder);
    let submitted = runtime.submit("s", request()).await.unwrap();
    assert_eq!(end(&soon(submitted.settled()).await.unwrap()), "c cancelled{unknown}, 1 attempts");
}

/// An answer has come, and the tool that would make the result of it is another by then: its deadline counts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answered_call_whose_tool_changed_ends_with_its_total_deadline() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    let owner = || Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
    let key = {
        let runtime = owner();
        let (given, keys) = std::sync::mpsc::channel();
        let deadlines = Deadlines { total_ms: Some(300), ..Deadlines::default() };
        let waits = body(ToolSpec { deadlines, ..spec("t", EffectClass::Once) }, move |_, cx| {
            let given = given.clone();
            Box::pin(async move {
                let key = cx.completion("answer").await?;
                given.send(key.to_string()).unwrap();
                Ok(Output::pending(key))
            })
        });
        runtime.register(waits).unwrap();
        drop(runtime.submit("s", asked()).await.unwrap());
        waits_for(&runtime, "completion").await;
        keys.recv().unwrap()
    };
    let runtime = owner();
    runtime.register(changed(EffectClass::Keyed, &Count::default())).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    runtime.complete(&key, windlass::wait::Completed::ok(json!(1))).await.unwrap();
    waits_for(&runtime, "tool_changed").await;
    clock.advance(Duration::from_millis(300));
    assert_eq!(end(&soon(submitted.settled()).await.unwrap()), "c unknown, 1 attempts");
}

/// Adds a fact to the journal of a batch as its next owner would, whether it can follow or not.
async fn append(folder: &tempfile::TempDir, fact: &Fact) {
    let store = sqlite_in(folder.path());
    let row = store.session("s").await.unwrap().unwrap();
    let open = store.open_batches(Some(row.no)).await.unwrap();
    let rows = store.journal(open[0].no).await.unwrap();
    let mut packer = Packer::default();
    packer.fact(windlass_core::time::Timestamp(1), Ordinal(0), fact);
    let journal = Row::Journal {
        batch: open[0].no,
        row: rows.len() as u32,
        count: packer.count(),
        data: packer.finish(),
    };
    let hold = Hold::Take { from: row.fence, to: row.fence.after(7) };
    let change = SessionChange { session: row.no, hold, guards: Vec::new(), rows: vec![journal] };
    store.commit(vec![change.into()]).await.unwrap().into_iter().for_each(|receipt| _ = receipt.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_journal_contradicts_itself_is_set_aside_and_can_be_resolved() {
    for class in [EffectClass::Keyed, EffectClass::Once] {
        let folder = left_running(class, false).await;
        append(&folder, &Fact::Resumed(Resumed { attempt: AttemptNo(1) })).await;
        let (runtime, ran) = (reopen(&folder), Count::default());
        runtime.register(echo(spec("t", class), &ran)).unwrap();
        let answer = run(&runtime, "s", request()).await;
        assert_eq!((&*end(&answer), ran.get()), ("c unknown, 1 attempts", 0));
        let handle = answer.calls[0].handle();
        drop(answer);
        let (_, lines) = windlass::inspect::call(runtime.store(), handle).await.unwrap().unwrap();
        let story: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        let aside = "its record contradicts itself (a call that is running cannot have resumed (attempt 1))";
        assert!(story.iter().any(|text| text.starts_with(aside)), "{story:#?}");
        let landed = Resolution::Landed(json!("it did"));
        drop(runtime.resolve(&handle.to_string(), landed).await.unwrap());
        expect_alive(runtime, &folder, "c succeeded, 1 attempts").await;
    }
}

/// A death between the contradiction and its record leaves it for the next owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contradiction_keeps_nobody_from_reading_the_session() {
    let folder = left_running(EffectClass::Keyed, false).await;
    append(&folder, &Fact::Lost(LostAttempt { attempt: AttemptNo(9), blamed: false })).await;
    let store: Arc<dyn Store> = config(&folder).store;
    let row = store.session("s").await.unwrap().unwrap();
    let found = windlass::inspect::calls(&store, &row, 9).await.unwrap();
    assert_eq!(found.len(), 1);
}

/// A stepped body that is put aside goes on under what its tool has become only if it made no step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_was_put_aside_behind_a_step_is_not_run_as_another_class() {
    for (steps, new, expected) in [
        (true, EffectClass::Once, "c unknown, 1 attempts"),
        (true, EffectClass::Stepped, "c succeeded, 1 attempts"),
        (false, EffectClass::Once, "c succeeded, 1 attempts"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        {
            let runtime = reopen(&folder);
            let tool = body(stepped(), move |_, cx| {
                Box::pin(async move {
                    if steps {
                        cx.step("step", json!(1), |_| async { Ok(json!(2)) }).await?;
                    }
                    _ = cx.ask("question", "Well?", None).await?;
                    Ok(json!(null).into())
                })
            });
            runtime.register(tool).unwrap();
            drop(runtime.submit("s", asked()).await.unwrap());
            waits_for(&runtime, "input").await;
        }
        let (runtime, ran) = (reopen(&folder), Count::default());
        runtime.register(changed(new, &ran)).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        let question = runtime.questions().await.unwrap()[0].id.clone();
        runtime.answer(&question, &json!("yes")).await.unwrap();
        let waiting = waits_for(&runtime, "tool_changed").await;
        runtime.accept(&waiting).await.unwrap();
        assert_eq!(end(&submitted.settled().await.unwrap()), expected, "{steps} {new}");
        assert_eq!(ran.get(), u32::from(expected.contains("succeeded")));
    }
}
