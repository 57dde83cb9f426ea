//! Language models that tools ask.

use super::{config, free, memory, over_every_death};
use crate::inside::body;
use crate::rig::{batch, call, n, run, states, until_runs};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use windlass::model::{CompletionFuture, LanguageModel, ModelMessage, ModelReply, ModelRequest, TokenUsage};
use windlass::store::Store;
use windlass::{Config, Cx, EffectClass, Output, Runtime, Tool, ToolError};
use windlass_testkit::clock::ManualClock;

/// Answers by the last message, and notes under which key it was asked what.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<Vec<(String, String)>>>);

impl LanguageModel for Scripted {
    fn complete<'a>(&'a self, request: &'a ModelRequest, key: &'a str) -> CompletionFuture<'a> {
        Box::pin(async move {
            let asked = request.messages.last().map_or("", |message| &message.text);
            self.0.lock().unwrap().push((key.to_string(), asked.to_string()));
            match asked {
                "hang" => std::future::pending().await,
                "fail" => Err(ToolError::new("the model is busy")),
                "panic" => panic!("no model"),
                _ => {
                    let usage = TokenUsage { input: 3, output: 4 };
                    Ok(ModelReply { message: ModelMessage::assistant(format!("about {asked}")), usage })
                }
            }
        })
    }
}

async fn asks(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    let text = args["ask"].as_str().unwrap_or("doors").to_string();
    let timeout_ms = args["timeout_ms"].as_u64();
    let request =
        ModelRequest { messages: vec![ModelMessage::user(text)], timeout_ms, ..ModelRequest::default() };
    let first = cx.complete("first", request.clone()).await?;
    let second = cx.complete("second", request).await?;
    Ok(json!({ "text": first.message.text, "tokens": first.usage.output + second.usage.output }).into())
}

fn tool() -> impl Tool {
    body(free("asks", EffectClass::Stepped), |args, cx| Box::pin(asks(args, cx)))
}

fn with(model: &Scripted, store: &Arc<dyn Store>, clock: &ManualClock) -> Runtime {
    let runtime = Runtime::new(Config { model: Some(Arc::new(model.clone())), ..config(store, clock) });
    runtime.register(tool()).unwrap();
    runtime
}

#[tokio::test]
async fn an_answer_of_a_model_is_recorded_once_with_its_usage_over_every_death() {
    let models: Arc<Mutex<Vec<Scripted>>> = Arc::default();
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let model = Scripted::default();
        models.lock().unwrap().push(model.clone());
        with(&model, store, clock)
    };
    over_every_death("asks", make, async |_, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        assert_eq!(answer.calls[0].value::<Value>().unwrap(), json!({ "text": "about doors", "tokens": 8 }));
        let mut asked: Vec<String> = Vec::new();
        for model in std::mem::take(&mut *models.lock().unwrap()) {
            asked.extend(model.0.lock().unwrap().iter().map(|(key, _)| key.clone()));
        }
        // Asked again only while no answer was recorded, and under the same key.
        asked.sort_unstable();
        assert!((2..=3).contains(&asked.len()), "{what}: {asked:?}");
        asked.dedup();
        assert_eq!(asked.len(), 2, "{what}");
    })
    .await;
}

#[tokio::test]
async fn a_model_that_fails_panics_or_takes_too_long_fails_like_a_step() {
    let (model, clock) = (Scripted::default(), ManualClock::default());
    let runtime = with(&model, &memory(), &clock);
    for (ask, code) in [("fail", "c failed/tool_failed"), ("panic", "c failed/internal")] {
        let answer = run(&runtime, "s", batch(ask, vec![call("c", "asks", json!({ "ask": ask }))])).await;
        assert_eq!(states(&answer), code);
    }
    let late = json!({ "ask": "hang", "timeout_ms": 50 });
    let waiting = tokio::spawn(
        runtime.submit("s", batch("late", vec![call("c", "asks", late)])).await.unwrap().settled(),
    );
    while !waiting.is_finished() {
        clock.advance(std::time::Duration::from_millis(20));
        tokio::task::spawn_blocking(|| ()).await.unwrap();
    }
    let answer = waiting.await.unwrap().unwrap();
    let told = answer.calls[0].model_text();
    assert!(told.contains("did not answer within 50 ms"), "{told}");
}

#[tokio::test]
async fn a_cancel_ends_a_question_to_a_model() {
    let (model, clock) = (Scripted::default(), ManualClock::default());
    let runtime = with(&model, &memory(), &clock);
    let asked = batch("k", vec![call("c", "asks", json!({ "ask": "hang" }))]);
    let submitted = runtime.submit("s", asked).await.unwrap();
    let running = until_runs(&runtime).await;
    while model.0.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    runtime.cancel(windlass::ask::Target::Call(&running), None).await.unwrap();
    assert_eq!(states(&submitted.settled().await.unwrap()), "c cancelled");
}

#[tokio::test]
async fn without_a_model_a_question_is_refused() {
    let runtime = Runtime::new(config(&memory(), &ManualClock::default()));
    runtime.register(tool()).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "asks", n(1))])).await;
    assert_eq!(states(&answer), "c failed/internal");
}
