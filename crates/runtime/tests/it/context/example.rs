//! The example `examples/context`, cut off at every commit.

#[path = "../../../../../examples/context/agent.rs"]
mod agent;

use super::config;
use crate::rig::states;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::outcome::{Outcome, Part};
use windlass::store::Store;
use windlass::{Config, Runtime};
use windlass_testkit::clock::ManualClock;

#[tokio::test]
async fn the_sub_agent_of_the_example_ends_alike_over_every_death() {
    // The trigger is there before the owner that dies: its store is the one that survives.
    let make = |store: &Arc<dyn Store>, clock: &ManualClock| {
        let model = Some(Arc::new(agent::Scripted) as Arc<_>);
        let runtime = Runtime::new(Config { model, ..config(store, clock) });
        agent::register(&runtime).unwrap();
        runtime
    };
    let subscribed = async |runtime: &Runtime| agent::subscribe(runtime, "s").await.is_ok();
    super::over_every_death_after("research", make, subscribed, async |runtime, answer, what| {
        assert_eq!(states(&answer), "c succeeded", "{what}: {}", answer.calls[0].model_text());
        let told: Value = answer.calls[0].value().unwrap();
        assert_eq!(told["tokens"], json!(7), "{what}");
        assert!(told["archived"].as_str().unwrap().starts_with("archived: The left door"), "{what}: {told}");
        let Some(Outcome::Succeeded(success)) = answer.calls[0].call().outcome() else { panic!("{what}") };
        let kinds: Vec<&str> = success.parts.iter().map(kind).collect();
        assert_eq!(kinds, ["text", "image", "text"], "{what}");
        let mut tools: Vec<String> =
            runtime.tasks("s").list(None, 9).await.unwrap().into_iter().map(|task| task.tool).collect();
        tools.sort_unstable();
        assert_eq!(tools, ["archive", "measure", "measure"], "{what}");
    })
    .await;
}

fn kind(part: &Part) -> &'static str {
    if let Part::Text(_) = part {
        "text"
    } else if let Part::Image { .. } = part {
        "image"
    } else {
        "other"
    }
}
