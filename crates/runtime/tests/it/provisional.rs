//! Answers that are given before the calls have ended, and the one notice that follows each.

use crate::inside::{body, stepped};
use crate::rig::{
    Count, batch, call, config, echo, end, memory, n, quick, reopen, run, spec, sqlite, states,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use windlass::store::memory::MemoryStore;
use windlass::tasks::{NewTask, NoticeKind, Wake};
use windlass::tool::client_tool;
use windlass::wait::Completed;
use windlass::{
    BatchAnswer, BatchRequest, Config, EffectClass, Output, Runtime, Submitted, ToolError, ToolSpec,
};
use windlass_testkit::fault_store::{FaultPlan, FaultReach, FaultStore};

/// External knowledge of waiting calls.
#[derive(Clone, Default)]
struct World {
    keys: Arc<Mutex<Vec<String>>>,
    is_connected: Arc<AtomicBool>,
}

const WAITS: [&str; 4] = ["completion", "question", "connection", "client"];

impl World {
    fn register(&self, runtime: &Runtime) {
        let keys = self.keys.clone();
        let pending = body(spec("completion", EffectClass::Keyed), move |_, cx| {
            let keys = keys.clone();
            Box::pin(async move {
                let key = cx.completion("k").await?;
                keys.lock().unwrap().push(key.to_string());
                Ok(Output::pending(key))
            })
        });
        let asking = body(ToolSpec { name: "question".into(), ..stepped() }, |_, cx| {
            Box::pin(async move { Ok(json!({ "told": cx.ask("q", "Which?", None).await? }).into()) })
        });
        let is_connected = self.is_connected.clone();
        let connecting = body(spec("connection", EffectClass::Once), move |args, _| {
            let is_connected = is_connected.load(Ordering::SeqCst);
            Box::pin(async move {
                match is_connected {
                    true => Ok(args.into()),
                    false => Err(ToolError::needs_connection("mail", None)),
                }
            })
        });
        runtime.register(pending).unwrap();
        runtime.register(asking).unwrap();
        runtime.register(connecting).unwrap();
        let spec = ToolSpec { name: "client".into(), ..ToolSpec::default() };
        runtime.register(client_tool(spec)).unwrap();
        runtime.register(echo(quick("echo", EffectClass::Read), &Count::default())).unwrap();
    }

    /// Does what a call of this tool waits for.
    async fn answer(&self, runtime: &Runtime, tool: &str, handle: &str) {
        match tool {
            "completion" => {
                let key = self.keys.lock().unwrap()[0].clone();
                runtime.complete(&key, Completed::ok(json!(7))).await.unwrap();
            }
            "question" => {
                let question = runtime.questions().await.unwrap().pop().unwrap();
                runtime.answer(&question.id, &json!("this")).await.unwrap();
            }
            "connection" => {
                self.is_connected.store(true, Ordering::SeqCst);
                runtime.connected("s", "mail", true).await.unwrap();
            }
            _ => runtime.client_result(handle, Completed::ok(json!(7))).await.unwrap(),
        }
    }
}

fn asked(tool: &str) -> BatchRequest {
    batch("k", vec![call("c", tool, n(1))])
}

async fn provisional(submitted: &Submitted) -> BatchAnswer {
    submitted.admitted().await.unwrap();
    submitted.stands_still().await.unwrap();
    submitted.now().await.unwrap()
}

async fn notices(runtime: &Runtime) -> Vec<windlass::tasks::Notice> {
    runtime.inbox("s").list(None, 100).await.unwrap()
}

async fn until_told(runtime: &Runtime, count: usize) -> Vec<windlass::tasks::Notice> {
    loop {
        let told = notices(runtime).await;
        if told.len() >= count {
            return told;
        }
        tokio::task::yield_now().await;
    }
}

/// How often it is recorded that calls of the batch were answered provisionally.
async fn marks(runtime: &Runtime, handle: &str) -> usize {
    let handle = windlass_core::handle::Handle::parse(handle).unwrap();
    let (_, lines) = windlass::inspect::call(runtime.store(), handle).await.unwrap().unwrap();
    lines.iter().filter(|line| line.kind == "answered").count()
}

#[tokio::test]
async fn whatever_a_call_waits_for_its_provisional_answer_is_followed_by_one_notice() {
    for tool in WAITS {
        let (sqlite, _folder) = sqlite();
        for runtime in [memory(), sqlite] {
            let world = World::default();
            world.register(&runtime);
            let submitted = runtime.submit("s", asked(tool)).await.unwrap();
            let answer = provisional(&submitted).await;
            let handle = answer.calls[0].handle().to_string();
            assert!(answer.calls[0].call().end().is_none(), "{tool}");
            // Told twice, it is recorded once.
            provisional(&submitted).await;
            assert_eq!(marks(&runtime, &handle).await, 1, "{tool}");
            assert!(notices(&runtime).await.is_empty(), "{tool}");
            world.answer(&runtime, tool, &handle).await;
            let told = until_told(&runtime, 1).await;
            assert_eq!(
                (told.len(), told[0].kind, &told[0].call),
                (1, NoticeKind::CallEnded, &Some(handle.clone())),
                "{tool}"
            );
            assert_eq!((told[0].call_state, &told[0].task), (Some("succeeded"), &None), "{tool}");
            assert!(told[0].text.contains(r#"The call "c" has ended"#), "{}", told[0].text);
            assert!(told[0].text.contains(r#"with {"n":1}"#), "{}", told[0].text);
            // Whoever asks again is told how it ended, and nobody is told by a notice again.
            assert_eq!(states(&run(&runtime, "s", asked(tool)).await), "c succeeded", "{tool}");
            assert_eq!(notices(&runtime).await.len(), 1, "{tool}");
        }
    }
}

#[tokio::test]
async fn an_end_before_the_answer_is_in_it_and_no_notice() {
    let (runtime, _folder) = sqlite();
    let world = World::default();
    world.register(&runtime);
    let calls = vec![call("done", "echo", n(1)), call("open", "completion", n(2))];
    let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    let answer = provisional(&submitted).await;
    assert_eq!(states(&answer), "done succeeded, open awaiting_completion");
    world.answer(&runtime, "completion", "").await;
    let told = until_told(&runtime, 1).await;
    assert_eq!((told.len(), &told[0].call), (1, &Some(answer.calls[1].handle().to_string())));
    // Whoever waits to the end gets no provisional answer.
    assert_eq!(states(&run(&runtime, "s", asked("echo")).await).as_str(), "c succeeded");
    assert_eq!(notices(&runtime).await.len(), 1);
}

/// An end on its way to the store belongs to the answer, which waits for it: no notice was sent with it.
#[tokio::test]
async fn an_end_that_is_sent_and_not_yet_durable_is_in_the_answer() {
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Store);
    let with = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { store: Arc::new(store.clone()), ..with });
    World::default().register(&runtime);
    store.hold_back(true);
    let submitted = runtime.submit("s", asked("echo")).await.unwrap();
    assert_eq!(store.held_back(), 1, "the batch with the end of its call");
    let sends_its_own = async {
        while store.held_back() < 2 {
            tokio::task::yield_now().await;
        }
        store.hold_back(false);
    };
    let (answer, ()) = tokio::join!(submitted.now(), sends_its_own);
    assert_eq!(states(&answer.unwrap()), "c succeeded");
    assert!(notices(&runtime).await.is_empty());
}

#[tokio::test]
async fn nobody_who_goes_away_without_an_answer_causes_a_notice() {
    let runtime = memory();
    let world = World::default();
    world.register(&runtime);
    let submitted = runtime.submit("s", asked("completion")).await.unwrap();
    submitted.admitted().await.unwrap();
    submitted.stands_still().await.unwrap();
    let handle = runtime.open().await.unwrap()[0].call.clone();
    drop(submitted);
    world.answer(&runtime, "completion", &handle).await;
    assert_eq!(end(&run(&runtime, "s", asked("completion")).await), "c succeeded, 1 attempts");
    assert!(notices(&runtime).await.is_empty());
    assert_eq!(marks(&runtime, &handle).await, 0);
}

#[tokio::test]
async fn a_batch_that_nobody_waits_for_is_answered_provisionally_and_each_call_told_of() {
    let (runtime, _folder) = sqlite();
    World::default().register(&runtime);
    let calls = || vec![call("a", "echo", n(1)), call("b", "nothing", n(2)), call("a", "echo", n(1))];
    let unattended = BatchRequest { unattended: true, ..batch("k", calls()) };
    let answer = runtime.submit("s", unattended).await.unwrap().now().await.unwrap();
    assert!(answer.calls.iter().all(|call| call.call().end().is_none()), "{}", states(&answer));
    let told = until_told(&runtime, 2).await;
    let told: Vec<&str> = told.iter().filter_map(|notice| notice.call_state).collect();
    assert_eq!(told, ["succeeded", "failed"]);
    assert_eq!(
        states(&run(&runtime, "s", batch("k", calls())).await),
        "a succeeded, b failed/no_such_tool, a succeeded"
    );
    assert_eq!(notices(&runtime).await.len(), 2);
}

#[tokio::test]
async fn a_silent_batch_is_answered_and_tells_nobody() {
    let runtime = memory();
    let world = World::default();
    world.register(&runtime);
    let silent = BatchRequest { wake: Wake::Silent, ..asked("completion") };
    let submitted = runtime.submit("s", silent).await.unwrap();
    provisional(&submitted).await;
    world.answer(&runtime, "completion", "").await;
    assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    assert!(notices(&runtime).await.is_empty());
}

#[tokio::test]
async fn a_provisional_answer_survives_its_owner() {
    for tool in WAITS {
        let (runtime, folder) = sqlite();
        let world = World::default();
        world.register(&runtime);
        let submitted = runtime.submit("s", asked(tool)).await.unwrap();
        let handle = provisional(&submitted).await.calls[0].handle().to_string();
        drop((submitted, runtime));
        let runtime = reopen(&folder);
        world.register(&runtime);
        runtime.resume().await.unwrap();
        world.answer(&runtime, tool, &handle).await;
        let told = until_told(&runtime, 1).await;
        assert_eq!((told.len(), &told[0].call), (1, &Some(handle.clone())), "{tool}");
        assert_eq!(marks(&runtime, &handle).await, 1, "{tool}");
    }
}

#[tokio::test]
async fn what_a_call_calls_inside_is_answered_to_it_alone() {
    let runtime = memory();
    let world = World::default();
    world.register(&runtime);
    let outer = body(ToolSpec { name: "outer".into(), ..stepped() }, |_, cx| {
        Box::pin(async move {
            let inner = cx.call("in", "completion", json!({"n": 1})).await?;
            Ok(json!({ "inner": inner.state() }).into())
        })
    });
    runtime.register(outer).unwrap();
    let submitted = runtime.submit("s", asked("outer")).await.unwrap();
    submitted.admitted().await.unwrap();
    while world.keys.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let handle = submitted.now().await.unwrap().calls[0].handle().to_string();
    world.answer(&runtime, "completion", "").await;
    let told = until_told(&runtime, 1).await;
    assert_eq!((told.len(), &told[0].call), (1, &Some(handle.clone())));
    assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    assert_eq!(notices(&runtime).await.len(), 1);
}

#[tokio::test]
async fn the_receipt_of_a_push_is_no_answer_and_the_close_is() {
    let runtime = memory();
    let world = World::default();
    world.register(&runtime);
    let request =
        windlass::batch::StreamRequest { key: "k".into(), ..windlass::batch::StreamRequest::default() };
    let stream = runtime.open_batch("s", request).await.unwrap();
    let pushed = stream.push(vec![call("c", "completion", n(1))]).await.unwrap();
    let handle = pushed.receipt().await.unwrap().calls[0].handle().to_string();
    assert_eq!(marks(&runtime, &handle).await, 0);
    let closed = stream.close().await.unwrap();
    provisional(&closed).await;
    assert_eq!(marks(&runtime, &handle).await, 1);
    world.answer(&runtime, "completion", "").await;
    assert_eq!(until_told(&runtime, 1).await.len(), 1);
}

#[tokio::test]
async fn a_notice_is_no_longer_than_an_answer() {
    // Far too long; and an answer that fits as it is, but not with the arguments that stand before it.
    for long in ["x\n".repeat(450_000), "x".repeat(50_000)] {
        let runtime = memory();
        World::default().register(&runtime);
        let calls = vec![call("c", "echo", json!({ "n": long }))];
        let unattended = BatchRequest { unattended: true, ..batch("k", calls) };
        runtime.submit("s", unattended).await.unwrap().now().await.unwrap();
        let told = until_told(&runtime, 1).await;
        let text = &told[0].text;
        assert!(text.len() <= 50 * 1_024 && text.lines().count() <= 2_000, "{} bytes", text.len());
        assert!(
            text.starts_with(r#"The call "c" has ended"#) && text.contains("bytes left out"),
            "{text:.200}"
        );
    }
}

#[tokio::test]
async fn notices_that_nobody_reads_become_one_that_lists_their_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut with = config(&folder);
    with.limits.notices_queued_max = 10;
    with.limits.notices_folded_max = 4;
    let runtime = Runtime::new(Config { ..with });
    World::default().register(&runtime);
    let mut handles = Vec::new();
    for number in 0..30 {
        let calls = vec![call("c", "echo", n(number))];
        let unattended = BatchRequest { unattended: true, ..batch(&format!("k{number}"), calls) };
        let answer = runtime.submit("s", unattended).await.unwrap().now().await.unwrap();
        handles.push(answer.calls[0].handle().to_string());
    }
    let all = |told: &[windlass::tasks::Notice]| {
        let of = |notice: &windlass::tasks::Notice| match notice.calls.is_empty() {
            true => notice.call.iter().cloned().collect(),
            false => notice.calls.clone(),
        };
        let mut all: Vec<String> = told.iter().flat_map(of).collect();
        all.sort();
        all
    };
    handles.sort();
    let told = loop {
        let told = notices(&runtime).await;
        if all(&told) == handles && told.len() <= 10 {
            break told;
        }
        tokio::task::yield_now().await;
    };
    let folded = told.iter().find(|notice| !notice.calls.is_empty()).unwrap();
    assert_eq!((folded.kind, folded.calls.len()), (NoticeKind::CallEnded, 4));
    assert!(folded.text.starts_with("4 calls have ended"), "{}", folded.text);
    assert!(folded.calls.iter().all(|call| folded.text.contains(call)), "{}", folded.text);
    // It is taken and acknowledged as any other.
    for notice in runtime.inbox("s").take(100, 1_000).await.unwrap() {
        runtime.inbox("s").acknowledge(&notice.id).await.unwrap();
    }
    assert!(notices(&runtime).await.is_empty());
}

#[tokio::test]
async fn a_task_tells_of_what_it_waits_for_if_it_tells_of_its_activity() {
    for (wake, told_of) in [(Wake::OnActivity, 1), (Wake::OnEnd, 0)] {
        for tool in ["completion", "connection", "wait"] {
            let runtime = memory();
            let background = |spec: ToolSpec| ToolSpec {
                flags: windlass::Flags { background: true, ..spec.flags },
                claims: Some(Vec::new()),
                ..spec
            };
            let pending = body(background(spec("completion", EffectClass::Keyed)), |_, cx| {
                Box::pin(async move { Ok(Output::pending(cx.completion("approved").await?)) })
            });
            let connecting = body(background(spec("connection", EffectClass::Once)), |_, _| {
                Box::pin(async move { Err(ToolError::needs_connection("mail", None)) })
            });
            let waiting = body(background(ToolSpec { name: "wait".into(), ..stepped() }), |_, cx| {
                Box::pin(async move {
                    let key = cx.completion("approved").await?;
                    cx.wait(&key, None).await?;
                    Ok(json!(1).into())
                })
            });
            runtime.register(pending).unwrap();
            runtime.register(connecting).unwrap();
            runtime.register(waiting).unwrap();
            let mut one = call("c", tool, n(1));
            one.task = Some(NewTask { wake, ..NewTask::default() });
            let submitted = runtime.submit("s", batch("k", vec![one])).await.unwrap();
            let handle = submitted.now().await.unwrap().calls[0].handle().to_string();
            let what = if tool == "connection" { "connection" } else { "completion" };
            crate::rig::waits_for(&runtime, what).await;
            let told = notices(&runtime).await;
            assert_eq!(told.len(), told_of, "{tool}: {told:?}");
            if let Some(notice) = told.first() {
                assert_eq!((notice.kind, notice.task.as_ref()), (NoticeKind::TaskWaits, Some(&handle)));
                let named = if tool == "connection" { "\"mail\"" } else { "\"approved\"" };
                assert!(notice.text.contains(named), "{}", notice.text);
            }
            runtime.cancel(windlass::ask::Target::Call(&handle), None).await.unwrap();
            assert_eq!(until_told(&runtime, told_of + 1).await.len(), told_of + 1, "{tool}");
        }
    }
}
