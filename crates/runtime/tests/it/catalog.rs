//! The catalog: what the model sees, what a search finds, and what stays revealed.

mod questions;

use crate::rig::{batch, call, memory, reopen, run, sqlite};
use questions::{QUESTIONS, tools};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass::catalog::Deferral;
use windlass::{CallAnswer, EffectClass, Runtime, ToolSpec, tool_fn};

fn register(runtime: &Runtime, name: &str, description: &str, deferral: Deferral) {
    let input =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false});
    let spec = ToolSpec {
        name: name.into(),
        description: description.into(),
        input_schema: Some(input),
        class: Some(EffectClass::Read),
        deferral,
        ..ToolSpec::default()
    };
    runtime.register(tool_fn(spec, |args, _| async { Ok(args.into()) })).unwrap();
}

/// Calls one tool.
async fn one(runtime: &Runtime, tool: &str, args: Value) -> CallAnswer {
    let key = windlass::batch::fresh_key().unwrap();
    run(runtime, "s", batch(&key, vec![call("c", tool, args)])).await.calls.remove(0)
}

async fn seen(runtime: &Runtime, session: &str) -> Vec<String> {
    runtime.catalog(session).list().await.unwrap().into_iter().map(|tool| tool.name).collect()
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| word.len() > 1)
        .collect()
}

#[tokio::test]
async fn the_right_one_of_a_thousand_tools_is_found_by_other_words() {
    let runtime = memory();
    let tools = tools();
    assert_eq!(tools.len(), 1_000);
    tools.iter().for_each(|(name, description)| register(&runtime, name, description, Deferral::Auto));
    let names: BTreeSet<String> = tools.iter().flat_map(|(name, _)| words(&name.replace('_', " "))).collect();
    let catalog = runtime.catalog("s");
    let mut missed = Vec::new();
    for (question, wanted) in QUESTIONS {
        let shared: Vec<_> = words(question).intersection(&names).cloned().collect();
        assert!(shared.is_empty(), "{question:?} shares {shared:?} with names of tools");
        let found: Vec<String> =
            catalog.search(question).await.unwrap().into_iter().map(|tool| tool.name).collect();
        assert!(found.len() <= 8, "{found:?}");
        if !found.iter().any(|name| name == wanted) {
            missed.push(format!("{question:?} wants {wanted}, found {found:?}"));
        }
    }
    println!(
        "{} of {} questions are answered by the first 8",
        QUESTIONS.len() - missed.len(),
        QUESTIONS.len()
    );
    assert!(missed.len() * 10 <= QUESTIONS.len(), "{missed:#?}");
}

#[tokio::test]
async fn few_tools_are_seen_whole_and_many_by_name() {
    let runtime = memory();
    register(&runtime, "always", "Is searched for.", Deferral::Always);
    register(&runtime, "never", "Is always there.", Deferral::Never);
    (0..13).for_each(|n| register(&runtime, &format!("t{n:02}"), "Does it. In detail.", Deferral::Auto));
    let few = seen(&runtime, "s").await;
    assert_eq!(few.len(), 15, "{few:?}");
    assert!(few.contains(&"search_tools".to_string()) && !few.contains(&"always".to_string()), "{few:?}");
    register(&runtime, "t13", "One too many.", Deferral::Auto);
    assert_eq!(seen(&runtime, "s").await, ["never", "search_tools"]);
    let listed = runtime.catalog("s").list().await.unwrap();
    let told = &listed[1].description;
    assert!(told.contains("\n- t13: One too many.") && told.contains("\n- t00: Does it\n"), "{told}");
    let fixed: Vec<_> =
        runtime.catalog("s").fixed().await.unwrap().into_iter().map(|tool| tool.name).collect();
    assert_eq!(fixed, ["call_tool", "never", "search_tools"]);
    // What a call may use does not change: it is only not shown.
    assert_eq!(runtime.tools_of("s").await.unwrap().len(), 16);
    let answer = one(&runtime, "t05", json!({"n": 3})).await;
    assert_eq!(answer.value::<Value>().unwrap(), json!({"n": 3}), "a deferred tool runs like any other");
}

#[tokio::test]
async fn what_a_search_reveals_stays_over_a_restart_and_costs_one_commit() {
    let fill = |runtime: &Runtime| {
        (0..20).for_each(|n| register(runtime, &format!("t{n:02}"), "Does it.", Deferral::Auto));
        register(runtime, "send_mail", "Delivers a letter.", Deferral::Auto);
    };
    let (runtime, folder) = sqlite();
    fill(&runtime);
    assert_eq!(seen(&runtime, "s").await, ["search_tools"]);
    one(&runtime, "t01", json!({})).await;
    let before = runtime.store().commits();
    let answer = one(&runtime, "search_tools", json!({"query": "letters"})).await;
    assert_eq!(runtime.store().commits() - before, 1, "as a durable read");
    let found = answer.value::<Value>().unwrap();
    assert_eq!(found["tools"][0]["name"], "send_mail");
    assert_eq!(found["tools"][0]["input_schema"]["properties"], json!({"n": {"type": "integer"}}));
    assert_eq!(seen(&runtime, "s").await, ["search_tools", "send_mail"]);
    assert_eq!(seen(&runtime, "other").await, ["search_tools"], "another session has not searched");
    drop((runtime, answer));
    let runtime = reopen(&folder);
    fill(&runtime);
    assert_eq!(seen(&runtime, "s").await, ["search_tools", "send_mail"]);
}

#[tokio::test]
async fn a_search_returns_the_tool_of_that_name_first_and_eight_at_most() {
    let runtime = memory();
    (0..20)
        .for_each(|n| register(&runtime, &format!("t{n:02}"), "Mail, mail and mail again.", Deferral::Auto));
    register(&runtime, "mail", "Reports about storms, tides and currents to the harbour.", Deferral::Auto);
    for query in ["mail", " MAIL "] {
        let found = one(&runtime, "search_tools", json!({ "query": query })).await.value::<Value>().unwrap();
        let found = found["tools"].as_array().unwrap();
        assert_eq!((found.len(), &found[0]["name"]), (8, &json!("mail")), "{query}");
    }
}

#[tokio::test]
async fn a_tool_is_called_by_name_through_the_door_that_never_changes() {
    let runtime = memory();
    (0..20).for_each(|n| register(&runtime, &format!("t{n:02}"), "Does it.", Deferral::Auto));
    let answer = one(&runtime, "call_tool", json!({"tool": "t07", "args": {"n": 7}})).await;
    assert_eq!(answer.value::<Value>().unwrap(), json!({"n": 7}));
    let wrong = one(&runtime, "call_tool", json!({"tool": "t07", "args": {"n": "x"}})).await;
    assert!(wrong.model_text().contains("/n"), "{}", wrong.model_text());
    let missing = one(&runtime, "call_tool", json!({"tool": "t99"})).await;
    assert!(missing.model_text().contains("t99"), "{}", missing.model_text());
}
