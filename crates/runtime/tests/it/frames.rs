//! Frames: whoever follows a session sees what runs before it is recorded, and every event once all the same.

use crate::rig::{Count, batch, call, echo, memory, n, quick, run, spec, sqlite, until_runs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::watch;
use windlass::events::{Events, News};
use windlass::tool::Progress;
use windlass::{Cx, EffectClass, RetryRule, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_core::narration::Locale;

/// The next items, in order: events and frames as JSON.
async fn next(events: &mut Events) -> Vec<Value> {
    let read = |text: Vec<u8>| serde_json::from_slice::<Value>(&text).unwrap();
    match events.next().await.expect("the runtime is there").unwrap() {
        News::Page(page) => {
            let told = page.events.iter().map(|event| {
                let mut text = Vec::new();
                event.write_json(&mut text, Locale::English);
                read(text)
            });
            told.collect()
        }
        News::Words(words) => {
            let told = words.iter().map(|words| {
                let mut text = Vec::new();
                words.write_json(&mut text, Locale::English);
                read(text)
            });
            told.collect()
        }
        _ => panic!("no such news is known"),
    }
}

/// Reads until something of this kind was told of a call; everything that was told.
async fn until(events: &mut Events, id: &str, kind: &str) -> Vec<Value> {
    let mut told = Vec::new();
    while !told.iter().any(|one: &Value| one["id"] == id && one["kind"] == kind) {
        told.extend(next(events).await);
    }
    told
}

fn kinds(told: &[Value], id: &str) -> String {
    let of = told.iter().filter(|one| one["id"] == id);
    of.map(|one| one["kind"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}

/// A tool that returns once it may.
fn gated(runtime: &Runtime, spec: ToolSpec) -> watch::Sender<bool> {
    let (go, went) = watch::channel(false);
    let tool = tool_fn(spec, move |_, _: &Cx| {
        let mut went = went.clone();
        async move {
            went.wait_for(|may| *may).await.map_err(|_| ToolError::new("nobody lets it go"))?;
            Ok(json!("done").into())
        }
    });
    runtime.register(tool).unwrap();
    go
}

#[tokio::test]
async fn a_running_read_is_told_before_it_ends_and_recorded_once() {
    let (runtime, _folder) = sqlite();
    let go = gated(&runtime, spec("look", EffectClass::Read));
    let mut events = runtime.events("s", None).await.unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "look", n(1))])).await.unwrap();
    let frame = until(&mut events, "c", "running").await.pop().unwrap();
    assert_eq!(
        [&frame["state"], &frame["attempt"], &frame["args"], &frame["narration"], &frame["cursor"]],
        [&json!("running"), &json!(1), &json!({"n": 1}), &json!("Running look (1)"), &Value::Null]
    );
    assert!(frame["at"].is_string(), "{frame}");
    let open = runtime.open().await.unwrap();
    assert_eq!((open[0].state, open[0].attempts), ("running", 1), "its start is recorded with its result");
    go.send(true).unwrap();
    submitted.settled().await.unwrap();
    let told = until(&mut events, "c", "ended").await;
    assert_eq!(kinds(&told, "c"), "opened started returned ended");
    // Whoever comes now is told nothing of it but what is recorded.
    let mut late = runtime.events("s", None).await.unwrap();
    run(&runtime, "s", batch("k2", vec![call("x", "nobody", n(1))])).await;
    assert_eq!(kinds(&until(&mut late, "x", "ended").await, "c"), "");
}

#[tokio::test]
async fn whoever_comes_while_a_read_runs_is_told_of_it() {
    let runtime = memory();
    let go = gated(&runtime, spec("look", EffectClass::Read));
    let submitted = runtime.submit("s", batch("k", vec![call("c", "look", n(1))])).await.unwrap();
    until_runs(&runtime).await;
    // The first reader, one that finds another there, and one that comes after all have gone.
    let mut first = runtime.events("s", None).await.unwrap();
    until(&mut first, "c", "running").await;
    let mut second = runtime.events("s", None).await.unwrap();
    until(&mut second, "c", "running").await;
    drop((first, second));
    let mut third = runtime.events("s", None).await.unwrap();
    until(&mut third, "c", "running").await;
    go.send(true).unwrap();
    submitted.settled().await.unwrap();
}

#[tokio::test]
async fn a_start_that_is_recorded_makes_no_frame() {
    let runtime = memory();
    let (go, went) = watch::channel(false);
    let pay = tool_fn(spec("pay", EffectClass::Once), move |_, cx: &Cx| {
        cx.status("paying");
        let mut went = went.clone();
        async move {
            let _ = went.wait_for(|may| *may).await;
            Ok(json!("done").into())
        }
    });
    runtime.register(pay).unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "pay", n(1))])).await.unwrap();
    let mut told = until(&mut events, "c", "progress").await;
    drop(events);
    // Whoever comes while it runs is told what it says, and so would be told that it runs.
    let mut late = runtime.events("s", None).await.unwrap();
    told.extend(until(&mut late, "c", "progress").await);
    go.send(true).unwrap();
    submitted.settled().await.unwrap();
    told.extend(until(&mut late, "c", "ended").await);
    assert!(told.iter().all(|one| one["kind"] != "running"), "{told:?}");
}

#[tokio::test]
async fn each_attempt_that_is_not_recorded_has_its_frame() {
    let runtime = memory();
    let retry = RetryRule { attempts: Some(3), base_ms: Some(1), ..RetryRule::default() };
    let (go, went) = watch::channel(0);
    let tool = tool_fn(ToolSpec { retry, ..spec("look", EffectClass::Read) }, move |_, cx: &Cx| {
        let (mut went, attempt) = (went.clone(), cx.attempt().0);
        async move {
            went.wait_for(|allowed| *allowed >= attempt).await.map_err(|_| ToolError::new("gone"))?;
            if attempt < 3 { Err(ToolError::new("busy").safe_to_retry()) } else { Ok(json!(1).into()) }
        }
    });
    runtime.register(tool).unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "look", n(1))])).await.unwrap();
    let mut told = Vec::new();
    for attempt in 1..=3 {
        while !told.iter().any(|one: &Value| one["kind"] == "running" && one["attempt"] == attempt) {
            told.extend(next(&mut events).await);
        }
        go.send(attempt).unwrap();
    }
    submitted.settled().await.unwrap();
    told.extend(until(&mut events, "c", "ended").await);
    let count = |kind: &str| told.iter().filter(|one| one["kind"] == kind).count();
    assert_eq!((count("opened"), count("ended"), count("running")), (1, 1, 3));
}

/// A body that was given up, or what it left behind, may go on talking: nobody hears it.
#[tokio::test]
async fn nothing_is_told_of_a_call_that_talks_behind_its_end() {
    let runtime = memory();
    let (leaks, mut leaked) = tokio::sync::mpsc::unbounded_channel();
    let (_go, went) = watch::channel(false);
    let talks = ToolSpec { claims: Some(Vec::new()), ..spec("talks", EffectClass::Once) };
    let talks = tool_fn(talks, move |args: Value, cx: &Cx| {
        leaks.send((cx.id().to_string(), cx.clone())).unwrap();
        let mut went = went.clone();
        async move {
            if args["n"] == 2 {
                let _ = went.wait_for(|may| *may).await;
            }
            Ok(json!("done").into())
        }
    });
    runtime.register(talks).unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    let calls = vec![call("over", "talks", n(1)), call("open", "talks", n(2))];
    let _submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
    let (first, second) = (leaked.recv().await.unwrap(), leaked.recv().await.unwrap());
    let talking = BTreeMap::from([first, second]);
    until(&mut events, "over", "ended").await;
    talking["over"].status("still here");
    talking["open"].status("working");
    let told = until(&mut events, "open", "progress").await;
    assert_eq!(kinds(&told, "over"), "", "{told:?}");
}

/// Many short calls, read as they come: no frame is told behind the end of its call, and none of a call that nobody saw run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frame_comes_behind_the_end_of_its_call() {
    let runtime = memory();
    runtime.register(echo(quick("quick", EffectClass::Read), &Count::default())).unwrap();
    let talks = tool_fn(spec("talks", EffectClass::Read), |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            cx.progress(Progress { current: Some(1.0), ..Progress::default() });
            tokio::task::yield_now().await;
            cx.status("almost");
            Ok(json!(1).into())
        }
    });
    runtime.register(talks).unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    let driver = tokio::spawn({
        let runtime = runtime.clone();
        async move {
            for number in 0..300 {
                let tool = if number % 2 == 0 { "talks" } else { "quick" };
                let key = format!("k{number}");
                run(&runtime, "s", batch(&key, vec![call(&key, tool, n(number))])).await;
            }
        }
    });
    let (mut ended, mut opened) = (BTreeMap::new(), BTreeMap::new());
    while ended.len() < 300 {
        for one in next(&mut events).await {
            let id = one["id"].as_str().unwrap().to_string();
            match one["kind"].as_str().unwrap() {
                "ended" => *ended.entry(id).or_insert(0) += 1,
                "opened" => *opened.entry(id).or_insert(0) += 1,
                kind @ ("running" | "progress") => {
                    assert!(!ended.contains_key(&id), "{kind} of {id} was told behind its end");
                    assert_eq!(one["tool"], "talks", "what is done at once has no frame: {one}");
                }
                _ => {}
            }
        }
    }
    driver.await.unwrap();
    assert!(ended.values().chain(opened.values()).all(|count| *count == 1), "each call is told once");
    assert_eq!(opened.len(), 300);
}
