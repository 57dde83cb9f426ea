//! Waiting for the world outside: questions to people.

use crate::inside::{DAY, asked, body, stepped};
use crate::rig::{Count, end, memory, reopen, run, spec, sqlite, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::inspect::OpenQuestion;
use windlass::store::memory::MemoryStore;
use windlass::{AskError, Completed, Config, EffectClass, Runtime, Tool, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// A tool that asks for a colour and returns the answer.
fn painter(spec: ToolSpec, bodies: &Count) -> impl Tool + use<> {
    asks(spec, bodies, ("Which colour?", json!({"enum": ["red", "green"]})))
}

fn asks(spec: ToolSpec, bodies: &Count, (text, schema): (&'static str, Value)) -> impl Tool + use<> {
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
                let open = &runtime.open()[0];
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
            let now = question.since;
            windlass::ask::post_answer(&*store, &question.id, &json!("green"), now).await.unwrap();
            let refused = windlass::ask::post_answer(&*store, &question.id, &json!("red"), now).await;
            assert!(matches!(refused, Err(AskError::Answered)), "{refused:?}");
        }
        drop(runtime);
        let runtime = reopen(&folder);
        runtime.register(painter(stepped(), &bodies)).unwrap();
        if !left {
            assert_eq!(runtime.questions().await.unwrap(), [question.clone()]);
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
        runtime.register(asks(stepped(), &Count::default(), (text, schema))).unwrap();
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
    let other = ("Which other colour?", json!({"enum": ["red", "green"]}));
    runtime.register(asks(stepped(), &Count::default(), other)).unwrap();
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
