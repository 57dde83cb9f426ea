//! Every kind of wait, and what programs, models and people are told of it.

use crate::inside::{body, stepped};
use crate::rig::{batch, call, memory, n, returns, spec, until_runs, waits_for};
use serde_json::json;
use std::time::Duration;
use windlass::events::News;
use windlass::inspect::OpenCall;
use windlass::tasks::{NewTask, Wake};
use windlass::tool::client_tool;
use windlass::wait::{Wait, WaitingFor, standing_sentence};
use windlass::{CallRequest, Cx, EffectClass, Flags, Output, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_core::dedupe::Dedupe;
use windlass_core::ids::EntryNo;
use windlass_core::narration::Locale;

const DAY: Duration = Duration::from_secs(86_400);

/// A tool that runs until nobody wants it any more.
fn forever(spec: ToolSpec) -> impl windlass::Tool {
    tool_fn(spec, |_, _: &Cx| std::future::pending::<Result<Output, ToolError>>())
}

/// A stepped tool whose body waits for one thing.
fn waiting(spec: ToolSpec, what: &'static str) -> impl windlass::Tool {
    body(spec, move |_, cx| {
        Box::pin(async move {
            match what {
                "sleep" => cx.sleep("night", DAY).await?,
                "input" => _ = cx.ask("colour", "Which?", None).await?,
                "signal" => _ = cx.on_signal("go", None).await?,
                "nested" => _ = cx.call("inner", "forever", n(1)).await?,
                _ => {
                    let key = cx.completion("answer").await?;
                    cx.wait(&key, None).await?;
                }
            }
            Ok(json!(1).into())
        })
    })
}

/// Makes the call `c` wait for this; `false` where another test does.
async fn begin(runtime: &Runtime, what: &'static str) -> bool {
    let free = |name: &str, class| ToolSpec { claims: Some(Vec::new()), ..spec(name, class) };
    runtime.register(forever(free("forever", EffectClass::Read))).unwrap();
    let mut first: Vec<CallRequest> = Vec::new();
    let named = ToolSpec { name: "t".into(), signals: [("go".into(), json!({}))].into(), ..stepped() };
    match what {
        "sleep" | "completion" | "input" | "signal" | "nested" => {
            runtime.register(waiting(named, what)).unwrap();
        }
        "retry" => {
            let later = ToolError::new("busy").safe_to_retry_after(60_000);
            runtime.register(returns(spec("t", EffectClass::Read), Err(later))).unwrap();
        }
        "connection" => {
            let unconnected = ToolError::needs_connection("mail", None);
            runtime.register(returns(spec("t", EffectClass::Read), Err(unconnected))).unwrap();
        }
        "client" => runtime.register(client_tool(spec("t", EffectClass::Keyed))).unwrap(),
        "tool_paused" => {
            runtime.register(forever(spec("t", EffectClass::Read))).unwrap();
            runtime.pause("t").await.unwrap();
        }
        "claim" => {
            runtime.register(forever(spec("t", EffectClass::Once))).unwrap();
            first.push(call("first", "t", n(0)));
        }
        "limit" => {
            let one = ToolSpec { running_max: Some(1), ..free("t", EffectClass::Read) };
            runtime.register(forever(one)).unwrap();
            first.push(call("first", "t", n(0)));
        }
        "rate" => {
            let seldom = ToolSpec { rate: Some((1, 3_600_000)), ..free("t", EffectClass::Read) };
            runtime.register(forever(seldom)).unwrap();
            first.push(call("first", "t", n(0)));
        }
        "same_as" => {
            let dedupe = Some(Dedupe { key: "{n}".into(), for_ms: None });
            runtime.register(forever(ToolSpec { dedupe, ..free("t", EffectClass::Once) })).unwrap();
            first.push(call("first", "t", n(1)));
        }
        "no_such_tool" => {
            runtime.register(forever(spec("holds", EffectClass::Once))).unwrap();
            runtime.register(forever(spec("t", EffectClass::Once))).unwrap();
            first.push(call("first", "holds", n(1)));
        }
        _ => return false,
    }
    for request in first {
        drop(runtime.submit("s", batch("before", vec![request])).await.unwrap());
        until_runs(runtime).await;
    }
    drop(runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap());
    if what == "no_such_tool" {
        waits_for(runtime, "claim").await;
        runtime.unregister("t").unwrap();
        runtime.cancel(windlass::ask::Target::Batch { session: "s", key: "before" }, None).await.unwrap();
    }
    true
}

/// The call as its owner sees it once it waits for this.
async fn seen(runtime: &Runtime, what: &str) -> OpenCall {
    let handle = waits_for(runtime, what).await;
    let open = runtime.open().await.unwrap();
    open.into_iter().find(|open| open.call == handle).unwrap()
}

/// The sentence about its wait, if that is recorded.
async fn narrated(runtime: &Runtime) -> Option<String> {
    let mut events = runtime.events("s", Some(EntryNo(0))).await.unwrap();
    let head = runtime.store().session("s").await.unwrap().map_or(EntryNo(0), |row| row.head);
    let mut told = None;
    while events.cursor() < head {
        let News::Page(page) = events.next().await.unwrap().unwrap() else { continue };
        let waits = page.events.iter().filter(|event| &*event.subject.id == "c");
        let mut waits = waits.filter(|event| event.told.get("waiting_for").is_some());
        told = waits.next_back().and_then(|event| event.narration(Locale::English)).or(told);
    }
    told
}

#[tokio::test]
async fn each_kind_of_wait_says_what_it_is() {
    let mut lines = Vec::new();
    for word in Wait::ALL.iter().map(|wait| wait.as_str()) {
        let runtime = memory();
        if !begin(&runtime, word).await {
            continue;
        }
        let open = seen(&runtime, word).await;
        let sentence = standing_sentence(open.state, open.waiting_for.as_ref().map(WaitingFor::wait));
        let narrated = narrated(&runtime).await.unwrap_or_else(|| "-".to_string());
        lines.push(format!("{word} | {} | {sentence} | {narrated}", open.state));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn a_call_that_waits_for_nothing_says_so() {
    assert_eq!(standing_sentence("running", None), "The call is running.");
    assert_eq!(standing_sentence("queued", None), "The call waits for its start.");
}

/// A task says what will be told of it, and that is what is told.
#[tokio::test]
async fn a_task_announces_the_notice_that_comes_and_no_other() {
    for (wake, announced) in [
        (Wake::Silent, "No notice of its end will come"),
        (Wake::OnEnd, "Its session is told when it ends"),
        (Wake::OnActivity, "Its session is told when it asks or says something and when it ends"),
    ] {
        let runtime = memory();
        let flags = Flags { background: true, ..Flags::default() };
        let spec = ToolSpec { flags, claims: Some(Vec::new()), ..spec("t", EffectClass::Read) };
        runtime.register(forever(spec)).unwrap();
        let task = Some(NewTask { wake, ..NewTask::default() });
        let asked = CallRequest { task, ..call("c", "t", n(1)) };
        let answer = runtime.submit("s", batch("k", vec![asked])).await.unwrap().settled().await.unwrap();
        let told = answer.calls[0].model_text();
        assert!(told.contains(announced), "{wake}: {told}");
        assert_eq!(told.contains("is told when"), wake != Wake::Silent, "{wake}: {told}");
    }
}
