//! Cancel, resolve, accept and complete through the socket.

use crate::rig::Rig;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use windlass::ask::Target;
use windlass::{Cx, EffectClass, Output, Tool, ToolError, ToolFuture, ToolSpec, tool_fn};
use windlass_server::client::ClientError;
use windlass_server::wire::{
    CallQuery, Cancelled, CompleteError, CompletionBody, QuestionQuery, ResolveBody, SignalBody,
    SignalReceipt, StateFilter,
};

fn code<T: std::fmt::Debug>(answered: Result<T, ClientError>) -> (u16, String) {
    match answered {
        Err(ClientError::Problem(problem)) => (problem.status, problem.code.to_string()),
        other => panic!("no problem: {other:?}"),
    }
}

fn failed(code: &str, message: &str) -> CompleteError {
    CompleteError { code: code.into(), message: message.into(), ..CompleteError::default() }
}

#[tokio::test]
async fn a_call_a_batch_and_a_session_are_cancelled() {
    let mut rig = Rig::new();
    let client = rig.client().await;
    // A key may hold anything that a path may not.
    let key = "a/b?c#d %2F ü";
    let submitted = rig.submit("s", key, &["hold", "hold"]).await;
    rig.begun(1).await;
    let open = CallQuery { state: Some(StateFilter::Running), ..CallQuery::default() };
    let page = client.calls(Some("s"), &open).await.expect("a page");
    let call = page["items"][0]["call"].as_str().expect("a handle").to_string();
    let asked = client.cancel(Target::Call(&call), Some("enough".into())).await.expect("it is asked");
    assert_eq!(asked, Cancelled { asked: 1, over: 0 });
    rig.begun(2).await;
    let asked = client.cancel(Target::Batch { session: "s", key }, None).await.expect("it is asked");
    assert_eq!(asked, Cancelled { asked: 1, over: 1 });
    let answer = submitted.settled().await.expect("answered");
    assert!(answer.calls.iter().all(|call| call.state() == "cancelled"));
    // What is over stays as it is, and that is no error.
    let again = client.cancel(Target::Call(&call), None).await.expect("it is no error");
    assert_eq!(again, Cancelled { asked: 0, over: 1 });
    let shown = client.call(&call, true).await.expect("the call");
    assert!(shown["journal"].to_string().contains("it was asked to stop: enough"), "{shown}");

    let more = rig.submit("s", "more", &["look", "hold", "look"]).await;
    rig.begun(3).await;
    let asked = client.cancel(Target::Session("s"), None).await.expect("it is asked");
    assert_eq!(asked.asked, 3);
    let answer = more.settled().await.expect("answered");
    assert!(answer.calls.iter().all(|call| call.state() == "cancelled"));
    let nowhere = Target::Batch { session: "s", key: "nope" };
    for target in [Target::Session("nope"), nowhere, Target::Call("nope")] {
        assert_eq!(code(client.cancel(target, None).await), (404, "not_found".into()));
    }
}

#[tokio::test]
async fn an_unknown_call_is_resolved_once() {
    let mut rig = Rig::new();
    let client = rig.client().await;
    let (landed, not) = (rig.unknown("l").await, rig.unknown("n").await);
    let say =
        |landed: Option<Value>| ResolveBody { did_not_happen: landed.is_none(), landed, ask_tool: false };
    // Null is a result.
    let call = client.resolve(&landed, &say(Some(Value::Null))).await.expect("resolved");
    assert_eq!((&call["state"], &call["outcome"]["value"]), (&json!("succeeded"), &Value::Null));
    let call = client.resolve(&not, &say(None)).await.expect("resolved");
    assert_eq!(call["outcome"]["failure"]["code"], "did_not_happen");
    // The same again is the same; another is refused, and changes nothing.
    client.resolve(&not, &say(None)).await.expect("the same again");
    assert_eq!(code(client.resolve(&not, &say(Some(json!(1)))).await), (409, "conflict".into()));
    assert_eq!(client.call(&not, false).await.expect("the call")["state"], "failed");
    // Its tool has nothing to say.
    let other = rig.unknown("o").await;
    let ask = ResolveBody { ask_tool: true, ..ResolveBody::default() };
    assert_eq!(code(client.resolve(&other, &ask).await), (409, "unfit".into()));
    let too_long = say(Some(json!("x".repeat(1 << 20))));
    assert_eq!(code(client.resolve(&other, &too_long).await), (422, "invalid_args".into()));
}

#[tokio::test]
async fn only_what_waits_for_it_is_accepted() {
    let mut rig = Rig::new();
    let client = rig.client().await;
    let call = rig.unknown("k").await;
    assert_eq!(code(client.accept(&call).await), (409, "unfit".into()));
    assert_eq!(code(client.accept("nope").await), (404, "not_found".into()));
}

/// A tool that gives out a key and leaves its result to whoever has it.
struct Waits(Arc<Mutex<Vec<String>>>);

impl Tool for Waits {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "waits".into(), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let key = cx.completion("person").await?;
            self.0.lock().expect("unpoisoned").push(key.to_string());
            Ok(Output::pending(key))
        })
    }
}

#[tokio::test]
async fn whoever_has_the_key_answers_once() {
    let rig = Rig::new();
    let client = rig.client().await;
    let keys = Arc::new(Mutex::new(Vec::new()));
    rig.runtime.register(Waits(keys.clone())).expect("it fits");
    let ok = |value| CompletionBody { ok: Some(value), ..CompletionBody::default() };
    let error = failed("no", "Ann says no");
    let error = CompletionBody { error: Some(error), ..CompletionBody::default() };
    let cancelled = CompletionBody { cancelled: true, ..CompletionBody::default() };
    for (key, said, state) in
        [("ok", ok(Value::Null), "succeeded"), ("error", error, "failed"), ("off", cancelled, "cancelled")]
    {
        let submitted = rig.submit("s", key, &["waits"]).await;
        let waiting = CallQuery { state: Some(StateFilter::AwaitingCompletion), ..CallQuery::default() };
        let call = loop {
            let page = client.calls(None, &waiting).await.expect("a page");
            if let Some(call) = page["items"].get(0) {
                break call.clone();
            }
        };
        assert!(call["waiting_for"].as_str().expect("it waits").starts_with("completion until "), "{call}");
        assert_eq!(call["model"]["parts"][0]["text"], "The call waits for an answer from outside.");
        let key = keys.lock().expect("unpoisoned").last().expect("a key").clone();
        assert!(client.complete(&key, &said).await.expect("it is taken").completed);
        let answer = submitted.settled().await.expect("answered");
        assert_eq!(answer.calls[0].state(), state);
        client.complete(&key, &said).await.expect("the same again is fine");
        assert_eq!(code(client.complete(&key, &ok(json!("other"))).await), (409, "conflict".into()));
        let shown = client.call(call["call"].as_str().expect("a handle"), true).await.expect("the call");
        assert!(!shown.to_string().contains(&key), "the key is told to nobody: {shown}");
    }
    let key = keys.lock().expect("unpoisoned").last().expect("a key").clone();
    for forged in ["nonsense", &key[1..], &key.replace(&key[..1], "zz")[..key.len()]] {
        assert_eq!(code(client.complete(forged, &ok(json!(1))).await), (404, "not_found".into()));
    }
    // Who comes too late is told so.
    let submitted = rig.submit("s", "late", &["waits"]).await;
    let late = loop {
        let last = keys.lock().expect("unpoisoned").last().expect("a key").clone();
        if last != key {
            break last;
        }
        tokio::task::yield_now().await;
    };
    rig.runtime.cancel(Target::Session("s"), None).await.expect("it is asked");
    submitted.settled().await.expect("answered");
    assert_eq!(code(client.complete(&late, &ok(json!(1))).await), (410, "over".into()));
    let unclear = [&b"{}"[..], br#"{"ok": 1, "cancelled": true}"#, br#"{"error": {"code": "c"}}"#];
    for body in unclear {
        let (status, problem) = rig.post(&format!("/v1/completions/{late}"), body).await;
        assert_eq!((status, &problem["code"]), (400, &json!("bad_body")), "{problem}");
    }
    let long = failed(&"c".repeat(65), "m");
    let long = CompletionBody { error: Some(long), ..CompletionBody::default() };
    assert_eq!(code(client.complete(&late, &long).await), (422, "invalid_args".into()));
}

/// A tool that asks three questions at once.
struct Asks;

impl Tool for Asks {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "asks".into(), class: Some(EffectClass::Stepped), ..ToolSpec::default() }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let ask = |name| cx.ask(name, "How many?", Some(json!({"type": "integer"})));
            let (a, b, c) = tokio::try_join!(ask("a"), ask("b"), ask("c"))?;
            Ok(json!([a, b, c]).into())
        })
    }
}

#[tokio::test]
async fn questions_come_in_pages_and_are_answered_by_their_ids() {
    let rig = Rig::new();
    let client = rig.client().await;
    rig.runtime.register(Asks).expect("it fits");
    let submitted = rig.submit("s", "k", &["asks"]).await;
    let all = QuestionQuery { limit: Some(1), ..QuestionQuery::default() };
    let waiting = CallQuery { state: Some(StateFilter::AwaitingInput), ..CallQuery::default() };
    while client.calls(None, &waiting).await.expect("a page")["items"].get(0).is_none() {}
    let mut ids = Vec::new();
    let (mut list, mut pages) = (all.clone(), 0);
    loop {
        let page = client.questions(&list).await.expect("a page");
        pages += 1;
        for question in page["items"].as_array().expect("items") {
            assert_eq!((&question["session"], &question["tool"]), (&json!("s"), &json!("asks")));
            assert!(question["since"].is_string() && question["until"].is_string(), "{question}");
            ids.push(question["id"].as_str().expect("an id").to_string());
        }
        let Some(next) = page["next"].as_str() else { break };
        // One that is answered meanwhile does not move the others.
        let answered = client.answer(&ids[0], json!(7)).await.expect("it is taken");
        assert!(answered.completed);
        list.after = Some(next.to_string());
    }
    assert_eq!((pages, ids.len()), (3, 3), "{ids:?}");
    let other = QuestionQuery { session: Some("other".into()), ..QuestionQuery::default() };
    assert_eq!(client.questions(&other).await.expect("a page")["items"], json!([]));
    for id in &ids {
        client.answer(id, json!(7)).await.expect("it is taken");
    }
    assert_eq!(submitted.settled().await.expect("answered").calls[0].model_text(), "[7,7,7]");
    assert_eq!(code(client.answer(&ids[0], json!(8)).await), (409, "conflict".into()));
    assert_eq!(code(client.answer(&ids[0], json!("x")).await), (422, "invalid_args".into()));
    assert_eq!(code(client.answer("nonsense", json!(8)).await), (404, "not_found".into()));
    let (status, problem) = rig.get("/v1/questions?after=nonsense").await;
    assert_eq!((status, &problem["code"]), (400, &json!("bad_query")), "{problem}");
    let (status, _) = rig.post(&format!("/v1/questions/{}", ids[0]), b"{}").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_session_is_connected_or_that_is_declined() {
    let rig = Rig::new();
    let client = rig.client().await;
    let spec = ToolSpec { name: "mail".into(), ..ToolSpec::default() };
    let needs = || async { Err(ToolError::needs_connection("ma/il", None)) };
    rig.runtime.register(tool_fn(spec, move |_, _| needs())).expect("it fits");
    let submitted = rig.submit("s", "k", &["mail"]).await;
    let waiting = CallQuery { state: Some(StateFilter::AwaitingConnection), ..CallQuery::default() };
    let waits = || async {
        loop {
            let page = client.calls(None, &waiting).await.expect("a page");
            if let Some(call) = page["items"].get(0) {
                return call.clone();
            }
        }
    };
    let call = waits().await;
    assert!(
        call["waiting_for"].as_str().expect("it waits").starts_with("connection to ma/il until 2"),
        "{call}"
    );
    assert_eq!(client.connect("s", "ma/il", true).await.expect("told").waiting, 1);
    while waits().await["attempts"] != 2 {}
    assert_eq!(client.connect("s", "ma/il", false).await.expect("told").waiting, 1);
    let answer = submitted.settled().await.expect("answered");
    assert_eq!(answer.calls[0].failure().expect("it failed").code.as_str(), "connection_declined");
    assert_eq!(client.connect("s", "ma/il", false).await.expect("told").waiting, 0);
    assert_eq!(code(client.connect("nope", "ma/il", true).await), (404, "not_found".into()));
    assert_eq!(rig.post("/v1/sessions/s/connections/x", b"{}").await.0, 400);
}

#[tokio::test]
async fn the_caller_posts_the_result_of_a_tool_that_it_runs() {
    let rig = Rig::new();
    let client = rig.client().await;
    let tab = windlass::tool::client_tool(ToolSpec { name: "open_tab".into(), ..ToolSpec::default() });
    rig.runtime.register(tab).expect("it fits");
    let submitted = rig.submit("s", "k", &["open_tab"]).await;
    let waiting = CallQuery { state: Some(StateFilter::AwaitingClient), ..CallQuery::default() };
    let call = loop {
        let page = client.calls(None, &waiting).await.expect("a page");
        if let Some(call) = page["items"].get(0) {
            break call["call"].as_str().expect("a handle").to_string();
        }
    };
    let ok = |value| CompletionBody { ok: Some(value), ..CompletionBody::default() };
    assert!(client.client_result(&call, &ok(json!("opened"))).await.expect("it is taken").completed);
    assert_eq!(submitted.settled().await.expect("answered").calls[0].model_text(), "opened");
    client.client_result(&call, &ok(json!("opened"))).await.expect("the same again is fine");
    assert_eq!(code(client.client_result(&call, &ok(json!(1))).await), (409, "conflict".into()));
    assert_eq!(code(client.client_result("nope", &ok(json!(1))).await), (404, "not_found".into()));
    rig.go.add_permits(1);
    let other = rig.submit("s", "other", &["hold"]).await.settled().await.expect("answered");
    let other = other.calls[0].handle().to_string();
    assert_eq!(code(client.client_result(&other, &ok(json!(1))).await), (409, "unfit".into()));
}

/// Waits for a signal and returns it.
struct Told;

impl Tool for Told {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "told".into(),
            class: Some(EffectClass::Stepped),
            signals: [("go".into(), json!({"type": "integer"}))].into(),
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { Ok(json!(cx.on_signal("go", None).await?).into()) })
    }
}

#[tokio::test]
async fn a_signal_is_sent_and_what_is_none_is_told() {
    let rig = Rig::new();
    let client = rig.client().await;
    rig.runtime.register(Told).expect("it is taken");
    let submitted = rig.submit("s", "k", &["told"]).await;
    let page = client.calls(Some("s"), &CallQuery::default()).await.expect("a page");
    let call = page["items"][0]["call"].as_str().expect("a handle").to_string();
    let send = async |name: &str, payload: Value| {
        client.signal(&call, &SignalBody { name: name.into(), payload, key: Some("k".into()) }).await
    };
    assert_eq!(code(send("stop", json!(1)).await), (422, "no_such_signal".into()));
    assert_eq!(code(send("go", json!("one")).await), (422, "invalid_args".into()));
    for _again in 0..2 {
        let sent = send("go", json!(7)).await;
        match sent {
            Ok(sent) => assert_eq!(sent, SignalReceipt { signalled: true }),
            // The first one may have ended the call.
            sent => assert_eq!(code(sent), (410, "over".into())),
        }
    }
    let answer = submitted.settled().await.expect("answered");
    assert_eq!(answer.calls[0].model_text(), "7");
    assert_eq!(code(send("go", json!(8)).await), (410, "over".into()));
    let nobody = client.signal("nope", &SignalBody { name: "go".into(), payload: json!(1), key: None }).await;
    assert_eq!(code(nobody), (404, "not_found".into()));
}
