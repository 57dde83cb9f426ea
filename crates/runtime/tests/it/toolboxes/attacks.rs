//! Processes that misbehave: they report for others, end twice, put too much, or never stop counting.

use super::{ANN, Begun, Process, of, settled, step, tool};
use crate::rig::{memory, states};
use serde_json::{Value, json};
use std::time::Duration;
use windlass::ask::Target;
use windlass::error::ToolboxError;
use windlass::store::memory::MemoryStore;
use windlass::toolboxes::{
    AttemptReport, AttemptStanding, Cause, OperationAnswer, OperationRefusal, TakeRequest, ToolManifest,
    ToolboxEnd,
};
use windlass::{Config, EffectClass, Limits, Output, Runtime};

fn limited(limits: Limits) -> Runtime {
    Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) })
}

fn returned(value: Value) -> ToolboxEnd {
    ToolboxEnd::Value(Box::new(Output::from(value)))
}

#[tokio::test]
async fn a_token_counts_only_in_the_toolbox_of_its_attempt() {
    let begun = Begun::new(tool("pay", EffectClass::Once)).await;
    let toolboxes = begun.runtime.toolboxes();
    let token = &begun.attempt.token;
    for (toolbox, principal) in [("bobs", "bob"), ("till", ANN)] {
        toolboxes.put(toolbox, principal, Vec::new()).await.unwrap();
        let report = AttemptReport { end: Some(returned(json!("stolen"))), ..of(&begun.attempt) };
        let news = toolboxes.report(toolbox, principal, "w1", vec![report], Duration::ZERO).await.unwrap();
        assert_eq!(news[0].standing, AttemptStanding::Over, "{toolbox}");
        let read = toolboxes.arguments(toolbox, principal, token).await;
        assert!(matches!(read, Err(ToolboxError::AttemptOver)), "{toolbox}: {read:?}");
        let call = toolboxes.call_of(toolbox, principal, token).await;
        assert!(matches!(call, Err(ToolboxError::AttemptOver)), "{toolbox}: {call:?}");
    }
    let foreign = toolboxes.report("crm", "bob", "w1", vec![of(&begun.attempt)], Duration::ZERO).await;
    assert!(matches!(foreign, Err(ToolboxError::NotFound { .. })), "{foreign:?}");
    assert_eq!(begun.ends(json!("paid")).await, "c succeeded: paid");
}

#[tokio::test]
async fn the_first_end_counts() {
    let begun = Begun::new(tool("pay", EffectClass::Once)).await;
    let end = |value: &str| AttemptReport { end: Some(returned(json!(value))), ..of(&begun.attempt) };
    let reports = vec![end("first"), end("second")];
    let toolboxes = begun.runtime.toolboxes();
    let news = toolboxes.report("crm", ANN, "w1", reports, Duration::ZERO).await.unwrap();
    assert!(news.iter().all(|news| news.standing == AttemptStanding::Over));
    assert_eq!(begun.process.returns(&begun.attempt, json!("third")).await.standing, AttemptStanding::Over);
    assert_eq!(settled(begun.submitted).await.calls[0].model_text(), "first");
}

/// Within its grace an attempt may still end as it would have.
#[tokio::test]
async fn an_end_after_a_cancel_says_what_happened() {
    for (class, value, ends) in [
        (EffectClass::Once, true, "c succeeded, 1 attempts"),
        (EffectClass::Once, false, "c cancelled{unknown}, 1 attempts"),
        (EffectClass::Keyed, false, "c cancelled{unknown}, 1 attempts"),
        (EffectClass::Read, false, "c cancelled{none}, 1 attempts"),
    ] {
        let begun = Begun::new(tool("pay", class)).await;
        begun.runtime.cancel(Target::Call(&begun.attempt.call), None).await.unwrap();
        let news = begun.process.report(of(&begun.attempt), Duration::from_secs(5)).await;
        assert_eq!(news.stop, Some(Cause::Cancel));
        let end = match value {
            true => returned(json!("paid")),
            false => ToolboxEnd::Stopped { did_not_happen: false },
        };
        begun.process.end(&begun.attempt, end).await;
        assert_eq!(crate::rig::end(&settled(begun.submitted).await), ends, "{class}, {value}");
    }
}

#[tokio::test]
async fn a_manifest_that_is_too_much_is_refused_whole() {
    let runtime = memory();
    let many = (0..10_000).map(|place| tool(&format!("tool_{place}"), EffectClass::Once)).collect();
    let wide = json!({"type": "object", "description": "x".repeat(5 << 20)});
    // Each level doubles the one below: few bytes, and more nodes than any machine has memory for.
    let mut levels = json!({"a0": {"type": "string"}});
    for level in 1..64 {
        let below = json!({"$ref": format!("#/$defs/a{}", level - 1)});
        levels[format!("a{level}")] = json!({"allOf": [below, below]});
    }
    let bomb = json!({"type": "object", "$defs": levels, "properties": {"a": {"$ref": "#/$defs/a63"}}});
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    let with = |input: Value| {
        vec![
            tool("fine", EffectClass::Once),
            ToolManifest { input: Some(input), ..tool("bad", EffectClass::Once) },
        ]
    };
    let manifests: [(Vec<ToolManifest>, &str); 5] = [
        (many, "at most 256 tools"),
        (with(wide), "at most 4194304 bytes"),
        (with(bomb), "bad"),
        (with(deep), "bad"),
        (with(json!({"type": "object", "properties": {"a": {"$ref": "https://x.example/a.json"}}})), "bad"),
    ];
    for (tools, why) in manifests {
        let refused = runtime.toolboxes().put("crm", ANN, tools).await.unwrap_err().to_string();
        assert!(refused.contains(why), "{why}: {refused}");
        assert!(runtime.tool("fine").is_none() && runtime.toolboxes().list().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn an_attempt_that_runs_ends_although_its_manifest_changes_or_is_removed() {
    let changed = |version: &str, description: &str| ToolManifest {
        version: version.into(),
        description: description.into(),
        ..tool("pay", EffectClass::Once)
    };
    for manifest in [Some(changed("", "Pays.")), Some(changed("2", "")), None] {
        let begun = Begun::new(tool("pay", EffectClass::Once)).await;
        let toolboxes = begun.runtime.toolboxes();
        match manifest.clone() {
            Some(manifest) => drop(toolboxes.put("crm", ANN, vec![manifest]).await.unwrap()),
            None => assert!(toolboxes.remove("crm", ANN).await.unwrap()),
        }
        assert_eq!(begun.process.beat(&begun.attempt).await.standing, AttemptStanding::Running);
        let token = begun.attempt.token.clone();
        assert_eq!(begun.ends(json!("paid")).await, "c succeeded: paid", "{manifest:?}");
        // A process without attempts of a toolbox that is gone has nothing to report.
        let report = AttemptReport { token, ..AttemptReport::default() };
        let late = toolboxes.report("crm", ANN, "w1", vec![report], Duration::ZERO).await;
        match manifest {
            Some(_) => assert_eq!(late.unwrap()[0].standing, AttemptStanding::Over),
            None => assert!(matches!(late, Err(ToolboxError::NotFound { .. })), "{late:?}"),
        }
    }
}

#[tokio::test]
async fn operations_and_processes_have_an_end() {
    let runtime = limited(Limits { operations_max: 2, toolbox_workers_max: 2, ..Limits::default() });
    let begun = Begun::on(runtime, tool("import", EffectClass::Stepped)).await;
    for number in 1..=2 {
        let began = begun.process.does(&begun.attempt, number, step(&number.to_string(), false)).await;
        assert_eq!(began, Some(OperationAnswer::Run));
    }
    for number in 3..=1_000 {
        let more = begun.process.does(&begun.attempt, number, step("more", false)).await;
        let Some(OperationAnswer::Refused { code: OperationRefusal::Misused, message }) = more else {
            panic!("{more:?}");
        };
        assert!(message.contains("at most 2 operations"), "{message}");
    }
    let asks = |worker: &str| TakeRequest {
        worker: worker.into(),
        manifest: begun.process.manifest.clone(),
        max: 1,
        ..TakeRequest::default()
    };
    let toolboxes = begun.runtime.toolboxes();
    assert!(toolboxes.take("crm", ANN, asks("w2")).await.unwrap().is_empty());
    let third = toolboxes.take("crm", ANN, asks("w3")).await;
    assert!(matches!(third, Err(ToolboxError::Invalid { .. })), "{third:?}");
    assert!(toolboxes.take("crm", ANN, asks("w1")).await.unwrap().is_empty());
    // One that takes no more has left its place.
    toolboxes.take("crm", ANN, TakeRequest { max: 0, ..asks("w2") }).await.unwrap();
    assert!(toolboxes.take("crm", ANN, asks("w3")).await.unwrap().is_empty());
    assert_eq!(states(&begun.submitted.now().await.unwrap()), "c running");
}

/// A process that was started with another manifest does not get work of the current one, however long it waits.
#[tokio::test]
async fn two_processes_with_different_manifests_do_not_share_work() {
    let runtime = memory();
    let old = Process::new(&runtime, vec![tool("pay", EffectClass::Once)]).await;
    let waiting = old.ask(1, Duration::from_secs(5));
    let newer = async {
        let newer =
            Process::new(&runtime, vec![tool("pay", EffectClass::Once), tool("wave", EffectClass::Once)])
                .await;
        let submitted = super::submit(&runtime, "pay").await;
        let taken = newer.take().await;
        newer.returns(&taken, json!("newer")).await;
        settled(submitted).await.calls[0].model_text().to_string()
    };
    let (old, paid) = tokio::join!(waiting, newer);
    assert_eq!(paid, "newer");
    assert!(matches!(old, Err(ToolboxError::Changed { .. })), "{old:?}");
}
