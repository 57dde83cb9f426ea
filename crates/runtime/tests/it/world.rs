//! Waiting for the world outside: questions to people, connections, tools that the caller runs.

use crate::inside::{DAY, asked, body, stepped};
use crate::rig::{Count, batch, call, end, memory, n, reopen, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windlass::ask::{Connecting, Target};
use windlass::error::{AskError, SessionError};
use windlass::inspect::OpenQuestion;
use windlass::store::memory::MemoryStore;
use windlass::tool::client_tool;
use windlass::wait::Completed;
use windlass::{BatchRequest, Config, EffectClass, Runtime, Tool, ToolError, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// A tool that asks for a colour and returns the answer.
fn painter(spec: ToolSpec, bodies: &Count) -> impl Tool + use<> {
    asks(spec, bodies, "Which colour?", json!({"enum": ["red", "green"]}))
}

fn asks(spec: ToolSpec, bodies: &Count, text: &'static str, schema: Value) -> impl Tool + use<> {
    let bodies = bodies.clone();
    body(spec, move |_, cx| {
        let (bodies, schema) = (bodies.clone(), schema.clone());
        Box::pin(async move {
            bodies.up();
            let colour = cx.ask("colour", text, Some(schema)).await?;
            Ok(json!({ "colour": colour }).into())
        })
    })
}

/// The only question there is, once there is one.
async fn the_question(runtime: &Runtime) -> OpenQuestion {
    loop {
        match runtime.questions().await.unwrap().as_slice() {
            [] => tokio::task::yield_now().await,
            [question] => return question.clone(),
            more => panic!("{more:?}"),
        }
    }
}

#[tokio::test]
async fn a_question_is_listed_and_its_answer_told_to_the_body() {
    for class in [EffectClass::Stepped, EffectClass::Keyed] {
        let (sqlite, _folder) = sqlite();
        for runtime in [memory(), sqlite] {
            let bodies = Count::default();
            runtime.register(painter(spec("t", class), &bodies)).unwrap();
            let submitted = runtime.submit("s", asked()).await.unwrap();
            let question = the_question(&runtime).await;
            if class == EffectClass::Stepped {
                assert_eq!(waits_for(&runtime, "input").await, question.call);
                let open = &runtime.open().await.unwrap()[0];
                assert_eq!((runtime.counts().running, open.state), ([0; 2], "awaiting_input"));
            }
            let OpenQuestion { id, session, call_id, tool, question: text, schema, since, until, .. } =
                question;
            assert_eq!([session, call_id, tool, text], ["s", "c", "t", "Which colour?"]);
            assert_eq!(schema, Some(json!({"enum": ["red", "green"]})));
            assert_eq!(until.since(since), 86_400_000_000);
            // What does not fit is refused, and the question stays.
            match runtime.answer(&id, &json!("blue")).await {
                Err(AskError::Invalid { what }) => {
                    assert!(what.contains("the answer: expected one of \"red\", \"green\""), "{what}");
                }
                other => panic!("{other:?}"),
            }
            runtime.answer(&id, &json!("red")).await.unwrap();
            let answer = submitted.settled().await.unwrap();
            assert_eq!(answer.calls[0].model_text(), r#"{"colour":"red"}"#, "{class}");
            assert_eq!(bodies.get(), if class == EffectClass::Stepped { 2 } else { 1 });
            // The first one counts.
            runtime.answer(&id, &json!("red")).await.unwrap();
            let other = runtime.answer(&id, &json!("green")).await;
            assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
            assert_eq!(runtime.questions().await.unwrap(), []);
        }
    }
}

#[tokio::test]
async fn an_answer_survives_a_restart_with_and_without_an_owner() {
    for left in [true, false] {
        let (runtime, folder) = sqlite();
        let bodies = Count::default();
        runtime.register(painter(stepped(), &bodies)).unwrap();
        drop(runtime.submit("s", asked()).await.unwrap());
        waits_for(&runtime, "input").await;
        let question = the_question(&runtime).await;
        if left {
            let store = runtime.store().clone();
            let clock = windlass::time::SystemClock::default();
            let limits = windlass::Limits::default();
            let post = async |answer: serde_json::Value| {
                let by = windlass::ask::AnswerRules { clock: &clock, limits: &limits };
                windlass::ask::post_answer(&*store, &question.id, &answer, by).await
            };
            post(json!("green")).await.unwrap();
            let refused = post(json!("red")).await;
            assert!(matches!(refused, Err(AskError::Answered)), "{refused:?}");
        }
        drop(runtime);
        let runtime = reopen(&folder);
        runtime.register(painter(stepped(), &bodies)).unwrap();
        if !left {
            assert_eq!(runtime.questions().await.unwrap(), std::slice::from_ref(&question));
            runtime.answer(&question.id, &json!("green")).await.unwrap();
        }
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(answer.calls[0].model_text(), r#"{"colour":"green"}"#);
    }
}

#[tokio::test]
async fn nobody_answers_a_question_in_time() {
    let (store, clock) = (MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    runtime.register(painter(stepped(), &Count::default())).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    waits_for(&runtime, "input").await;
    let question = the_question(&runtime).await;
    clock.advance(DAY);
    assert_eq!(runtime.questions().await.unwrap(), []);
    assert_eq!(submitted.settled().await.unwrap().calls[0].model_text(), r#"{"colour":null}"#);
    let late = runtime.answer(&question.id, &json!("red")).await;
    assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");
}

#[tokio::test]
async fn an_id_answers_its_question_and_nothing_else() {
    let runtime = memory();
    runtime.register(painter(stepped(), &Count::default())).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "input").await;
    let id = the_question(&runtime).await.id;
    let as_key = runtime.complete(&id, Completed::Cancelled).await;
    assert!(matches!(as_key, Err(AskError::NoKey)), "{as_key:?}");
    for forged in ["", "nonsense", &id[1..]] {
        let refused = runtime.answer(forged, &json!("red")).await;
        assert!(matches!(refused, Err(AskError::NoQuestion)), "{forged:?}: {refused:?}");
    }
    runtime.answer(&id, &json!("red")).await.unwrap();
    runtime.idle().await;
}

#[tokio::test]
async fn what_cannot_be_asked_fails_and_another_question_diverges() {
    for (text, schema, why) in [
        ("   ", json!(true), "a question has 1 to"),
        ("What?", json!({"type": "colour"}), "the answer schema of tool colour is refused"),
        ("What?", json!({"$ref": "http://example.com/x"}), "the answer schema of tool colour is refused"),
    ] {
        let runtime = memory();
        runtime.register(asks(stepped(), &Count::default(), text, schema)).unwrap();
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(end(&answer), "c failed/internal, 1 attempts");
        let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
        assert!(detail.contains(why), "{detail}");
    }
    let (runtime, folder) = sqlite();
    runtime.register(painter(stepped(), &Count::default())).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "input").await;
    let id = the_question(&runtime).await.id;
    drop(runtime);
    let runtime = reopen(&folder);
    let schema = json!({"enum": ["red", "green"]});
    runtime.register(asks(stepped(), &Count::default(), "Which other colour?", schema)).unwrap();
    runtime.answer(&id, &json!("red")).await.unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(states(&answer), "c failed/internal");
    let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
    assert!(detail.contains("at /question: recorded is \"Which colour?\""), "{detail}");
}

#[tokio::test]
async fn of_several_questions_the_first_that_is_answered_wakes_the_body() {
    for round in 0..20 {
        let (runtime, _folder) = sqlite();
        let tool = body(stepped(), |_, cx| {
            Box::pin(async move {
                let key = cx.completion("key").await?;
                let answer = tokio::select! {
                    answer = cx.ask("a", "A?", None) => answer?,
                    answer = cx.ask("b", "B?", None) => answer?,
                    _ = cx.wait(&key, None) => None,
                };
                Ok(json!(answer).into())
            })
        });
        runtime.register(tool).unwrap();
        let submitted = runtime.submit("s", asked()).await.unwrap();
        waits_for(&runtime, "input").await;
        let questions = runtime.questions().await.unwrap();
        let texts: Vec<&str> = questions.iter().map(|question| question.question.as_str()).collect();
        assert_eq!(texts, ["A?", "B?"], "all of them can be answered");
        runtime.answer(&questions[round % 2].id, &json!(texts[round % 2])).await.unwrap();
        assert_eq!(submitted.settled().await.unwrap().calls[0].model_text(), texts[round % 2]);
    }
}

/// A tool that needs a connection until the flag is set, in a step where its class has them.
fn mailer(class: EffectClass, connected: &Arc<AtomicBool>, bodies: &Count) -> impl Tool + use<> {
    let (connected, bodies) = (connected.clone(), bodies.clone());
    body(spec("t", class), move |_, cx| {
        let (connected, bodies) = (connected.clone(), bodies.clone());
        Box::pin(async move {
            bodies.up();
            let send = || async {
                match connected.load(Ordering::SeqCst) {
                    true => Ok(json!("sent")),
                    false => Err(ToolError::needs_connection("mail", Some("https://example.com/mail"))),
                }
            };
            match class {
                EffectClass::Stepped => Ok(cx.step_once("send", 1, |_| send()).await?.into()),
                _ => Ok(send().await?.into()),
            }
        })
    })
}

fn two() -> BatchRequest {
    batch("k", vec![call("a", "t", n(1)), call("b", "t", n(2))])
}

/// Waits until so many calls wait for a connection.
async fn unconnected(runtime: &Runtime, count: usize) -> Vec<windlass::inspect::OpenCall> {
    loop {
        let open = runtime.open().await.unwrap();
        let waits = open.into_iter().filter(|call| call.state == "awaiting_connection");
        match waits.collect::<Vec<_>>() {
            waits if waits.len() == count => return waits,
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn calls_that_need_a_connection_run_again_once_it_is_there_whatever_their_class() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once, EffectClass::Stepped] {
        let (sqlite, _folder) = sqlite();
        for runtime in [memory(), sqlite] {
            let (connected, bodies) = (Arc::new(AtomicBool::new(false)), Count::default());
            let tool = mailer(class, &connected, &bodies);
            runtime.register(tool).unwrap();
            let claimless = body(ToolSpec { claims: Some(Vec::new()), ..spec("u", class) }, |_, _| {
                Box::pin(async { Err(ToolError::needs_connection("mail", None)) })
            });
            runtime.register(claimless).unwrap();
            let calls = vec![call("a", "t", n(1)), call("b", "u", n(1))];
            let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
            let waits = unconnected(&runtime, 2).await;
            assert_eq!(runtime.counts().running, [0; 2], "they hold no slot");
            let why = waits[0].waiting_for.as_deref().unwrap();
            assert!(why.starts_with("connection to mail until 2"), "{why}");
            assert!(why.ends_with(" at https://example.com/mail"), "{why}");
            // Another connection is not what they wait for.
            let none = Connecting { waiting: 0 };
            assert_eq!(runtime.connected("s", "calendar", true).await.unwrap(), none);
            connected.store(true, Ordering::SeqCst);
            assert_eq!(runtime.connected("s", "mail", true).await.unwrap().waiting, 2);
            // The other one still says that it needs it, and waits again.
            while runtime.open().await.unwrap().iter().any(|call| call.id == "a") {
                tokio::task::yield_now().await;
            }
            unconnected(&runtime, 1).await;
            runtime.connected("s", "mail", false).await.unwrap();
            let answer = submitted.settled().await.unwrap();
            assert_eq!(states(&answer), "a succeeded, b failed/connection_declined", "{class}");
            let (first, second) = (answer.calls[0].call(), answer.calls[1].call());
            assert_eq!((first.attempts, first.tries, bodies.get()), (2, 1, 2));
            assert_eq!((second.attempts, second.tries), (2, 0));
        }
    }
}

#[tokio::test]
async fn a_connection_is_waited_for_across_a_restart() {
    for left in [true, false] {
        let (runtime, folder) = sqlite();
        let (connected, bodies) = (Arc::new(AtomicBool::new(false)), Count::default());
        runtime.register(mailer(EffectClass::Once, &connected, &bodies)).unwrap();
        drop(runtime.submit("s", two()).await.unwrap());
        // Both write the session. The first gives that up while it waits, since nobody waits for the batch.
        unconnected(&runtime, 2).await;
        if left {
            let store = runtime.store().clone();
            let reached = windlass::ask::post_connected(&*store, "s", "mail", true).await.unwrap();
            assert_eq!(reached.waiting, 2);
        }
        drop(runtime);
        connected.store(true, Ordering::SeqCst);
        let runtime = reopen(&folder);
        runtime.register(mailer(EffectClass::Once, &connected, &bodies)).unwrap();
        if !left {
            runtime.resume().await.unwrap();
            unconnected(&runtime, 2).await;
            assert_eq!(runtime.connected("s", "mail", true).await.unwrap().waiting, 2);
        }
        assert_eq!(states(&run(&runtime, "s", two()).await), "a succeeded, b succeeded");
        assert_eq!(bodies.get(), 4);
    }
}

#[tokio::test]
async fn a_connection_that_never_comes_ends_the_call_and_so_does_a_cancel() {
    let (store, clock) = (MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let never = Arc::new(AtomicBool::new(false));
    runtime.register(mailer(EffectClass::Once, &never, &Count::default())).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    unconnected(&runtime, 1).await;
    clock.advance(DAY - Duration::from_secs(1));
    tokio::task::yield_now().await;
    unconnected(&runtime, 1).await;
    clock.advance(Duration::from_secs(1));
    let answer = submitted.settled().await.unwrap();
    assert_eq!(end(&answer), "c failed/timeout, 1 attempts");
    assert!(answer.calls[0].failure().unwrap().did_not_happen);

    let submitted = runtime.submit("other", asked()).await.unwrap();
    let waits = unconnected(&runtime, 1).await;
    runtime.cancel(Target::Call(&waits[0].call), None).await.unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{none}, 1 attempts");
    let nowhere = runtime.connected("nowhere", "mail", true).await;
    let no_session = matches!(&nowhere, Err(AskError::Session(SessionError::NotFound { .. })));
    assert!(no_session, "{nowhere:?}");
}

#[tokio::test]
async fn a_tool_that_the_caller_runs_ends_with_what_it_posts() {
    let (sqlite, _folder) = sqlite();
    for runtime in [memory(), sqlite] {
        let schema = json!({"type": "object", "required": ["n"]});
        let spec = ToolSpec { name: "t".into(), output_schema: Some(schema), ..ToolSpec::default() };
        runtime.register(client_tool(spec)).unwrap();
        let other = self::spec("other", EffectClass::Stepped);
        runtime.register(painter(other, &Count::default())).unwrap();
        let error = Completed::error("gone", "The tab is gone.");
        for (key, result, state) in [
            ("k1", Completed::ok(n(1)), "c succeeded"),
            ("k2", Completed::ok(json!([])), "c failed/invalid_output"),
            ("k3", error, "c failed/tool_failed"),
            ("k4", Completed::Cancelled, "c cancelled"),
        ] {
            let submitted = runtime.submit("s", batch(key, vec![call("c", "t", n(1))])).await.unwrap();
            let call = waits_for(&runtime, "client").await;
            assert_eq!(
                (runtime.counts().running, runtime.open().await.unwrap()[0].state),
                ([0; 2], "awaiting_client")
            );
            runtime.client_result(&call, result.clone()).await.unwrap();
            assert_eq!(states(&submitted.settled().await.unwrap()), state);
            runtime.client_result(&call, result).await.unwrap();
            let other = runtime.client_result(&call, Completed::ok(json!("other"))).await;
            assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
        }
        // Only its own calls, and only by their handles.
        drop(runtime.submit("s", batch("k5", vec![call("c", "other", n(1))])).await.unwrap());
        let call = waits_for(&runtime, "input").await;
        let not = runtime.client_result(&call, Completed::ok(n(1))).await;
        assert!(matches!(not, Err(AskError::Unfit { .. })), "{not:?}");
        let none = runtime.client_result("nonsense", Completed::ok(n(1))).await;
        assert!(matches!(none, Err(AskError::NotFound { .. })), "{none:?}");
    }
}

#[tokio::test]
async fn a_caller_that_runs_a_tool_may_come_back_after_a_restart_or_too_late() {
    let (runtime, folder) = sqlite();
    let tool = || client_tool(ToolSpec { name: "t".into(), ..ToolSpec::default() });
    runtime.register(tool()).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    let waits = waits_for(&runtime, "client").await;
    drop(runtime);
    let runtime = reopen(&folder);
    runtime.register(tool()).unwrap();
    runtime.client_result(&waits, Completed::ok(n(9))).await.unwrap();
    assert_eq!(run(&runtime, "s", asked()).await.calls[0].model_text(), r#"{"n":9}"#);

    let (store, clock) = (MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    runtime.register(tool()).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let waits = waits_for(&runtime, "client").await;
    clock.advance(Duration::from_secs(300));
    assert_eq!(end(&submitted.settled().await.unwrap()), "c failed/timeout, 1 attempts");
    let late = runtime.client_result(&waits, Completed::ok(n(1))).await;
    assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");
}
