//! Everything shown to people of a call is without its secrets: events, frames, sentences and the story of its journal.

use crate::rig::{batch, call, memory, run, spec};
use serde_json::{Value, json};
use windlass::events::{Events, News};
use windlass::tool::{Progress, Stream};
use windlass::{Args, CallRequest, Cx, EffectClass, Output, Runtime, ToolError, ToolSpec, inspect, tool_fn};
use windlass_core::ids::EntryNo;
use windlass_core::narration::{Locale, Narration, Phase};

/// The secrets that must never be shown.
const SECRETS: [&str; 3] = ["sk-live-123", "hunter2-hunter2", "Dear Ann, Dear Ann, Dear Ann, Dear Ann, Dear"];

fn arguments() -> Value {
    json!({
        "api_key": SECRETS[0], "code": SECRETS[1], "headers": {"Authorization": format!("Bearer {}", SECRETS[0])},
        "url": format!("https://example.com/login?token={}", SECRETS[0]), "user": "ann",
    })
}

/// A tool that says its secrets wherever it can: it runs once it may, and fails if it is told to.
fn log_in(runtime: &Runtime, class: EffectClass) -> tokio::sync::watch::Sender<bool> {
    let (go, went) = tokio::sync::watch::channel(false);
    let schema = json!({
        "type": "object",
        "properties": {"code": {"writeOnly": true}, "api_key": {"type": "string"}, "fail": {"type": "boolean"}},
    });
    let sentences =
        vec![(Phase::Completed, "Logged in {user} at {url} with {api_key} and {code}".to_string())];
    let narration = vec![Narration { locale: Locale::German, sentences }];
    let spec =
        ToolSpec { title: "Log in".into(), input_schema: Some(schema), narration, ..spec("log_in", class) };
    let tool = tool_fn(spec, move |args, cx: &Cx| {
        let (cx, mut went) = (cx.clone(), went.clone());
        async move {
            let (key, code) = (SECRETS[0], SECRETS[1]);
            cx.status(&format!("logging in with {key}"));
            cx.progress(Progress { label: Some(format!("try {code}")), ..Progress::default() });
            cx.output(Stream::Out, format!("{code} {key}\n").as_bytes());
            went.wait_for(|may| *may).await.map_err(|_| ToolError::new("gone"))?;
            match args["fail"] == true {
                true => Err(ToolError::new(format!("{key} and {code} are wrong"))),
                false => Ok(Output::from(json!({"ok": true}))),
            }
        }
    });
    runtime.register(tool).unwrap();
    go
}

/// Everything that is told until a call has ended, as text in both languages.
async fn told_until_ended(events: &mut Events, go: &tokio::sync::watch::Sender<bool>) -> String {
    let (mut text, mut has_ended) = (Vec::new(), false);
    while !has_ended {
        match events.next().await.unwrap().unwrap() {
            News::Page(page) => {
                for event in &page.events {
                    Locale::ALL.iter().for_each(|locale| event.write_json(&mut text, *locale));
                    has_ended |= event.kind.as_str() == "ended";
                }
            }
            News::Words(words) => {
                for words in &words {
                    Locale::ALL.iter().for_each(|locale| words.write_json(&mut text, *locale));
                    // It has said all it says before it waits.
                    if words.output.is_some() {
                        go.send(true).unwrap();
                    }
                }
            }
            _ => panic!("no such news is known"),
        }
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn no_secret_is_in_events_frames_sentences_or_the_story() {
    let whole = arguments();
    let mut failing = arguments();
    failing["fail"] = json!(true);
    let mut long = arguments();
    long["body"] = json!("x".repeat(5_000));
    // Raw text as a model writes it, well or badly.
    let text = |text: String| Args::Text(text);
    let given = [
        Args::Json(whole.clone()),
        Args::Json(failing),
        Args::Json(long.clone()),
        text(whole.to_string()),
        text(long.to_string()),
        text(format!("{},", whole)),
        text(json!(whole.to_string()).to_string()),
        text(format!("{{\"Code\": \"{}\", \"api_key\": \"{}\"", SECRETS[1], SECRETS[0])),
    ];
    for class in [EffectClass::Read, EffectClass::Once] {
        for args in given.clone() {
            let runtime = memory();
            let go = log_in(&runtime, class);
            let mut events = runtime.events("s", Some(EntryNo(0))).await.unwrap();
            let call =
                CallRequest { id: Some("c".into()), tool: "log_in".into(), args, ..CallRequest::default() };
            let submitted = runtime.submit("s", batch("k", vec![call])).await.unwrap();
            let told = told_until_ended(&mut events, &go).await;
            let answer = submitted.settled().await.unwrap();
            let handle = answer.calls[0].handle();
            let found = inspect::call_with_tools(runtime.store(), handle, Some(&runtime)).await.unwrap();
            let story: Vec<String> = found.unwrap().1.into_iter().map(|line| line.text).collect();
            for secret in ["sk-live", "hunter2"] {
                assert!(!told.contains(secret), "{secret} was told: {told}");
                assert!(!story.concat().contains(secret), "{secret} is in the story: {story:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_secret_is_told_and_the_call_runs_with_what_it_was_given() {
    let runtime = memory();
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Value::Null));
    let kept = seen.clone();
    let tool = tool_fn(spec("send_mail", EffectClass::Once), move |args, _: &Cx| {
        *kept.lock().unwrap() = args;
        async { Ok(json!(1).into()) }
    });
    runtime.register(tool).unwrap();
    let args = json!({"body": "Dear Ann, ".repeat(30), "password": "hunter2", "to": "ann@example.com"});
    run(&runtime, "s", batch("k", vec![call("c", "send_mail", args.clone())])).await;
    assert_eq!(*seen.lock().unwrap(), args);
    let mut events = runtime.events("s", Some(EntryNo(0))).await.unwrap();
    let Some(Ok(News::Page(page))) = events.next().await else { panic!("it is recorded") };
    let started = page.events.iter().find(|event| event.kind.as_str() == "started").unwrap();
    let sentence = started.narration(Locale::English).unwrap();
    assert!(
        sentence.starts_with("Running send_mail (Dear Ann, ") && sentence.ends_with("…, ann@example.com)")
    );
    assert!(!sentence.contains(SECRETS[2]) || sentence.len() < 100, "{sentence}");
    assert_eq!(started.subject.args["password"], "[redacted]");
    assert_eq!(started.subject.args["to"], "ann@example.com");
}
