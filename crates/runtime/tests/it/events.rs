//! A follower of a session gets every call once, whenever it comes, goes and comes back.

use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, echo, hanging, memory, n, quick, returns, run, spec,
    sqlite,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass::error::{EventsError, SessionError};
use windlass::events::{Event, Events, News, Words};
use windlass::store::memory::MemoryStore;
use windlass::tool::Progress;
use windlass::{Config, Cx, EffectClass, RetryRule, Runtime, ToolError, ToolSpec, tool_fn};
use windlass_core::ids::EntryNo;
use windlass_core::narration::{Locale, Narration, Phase};
use windlass_testkit::chance::Chance;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// Everything that is recorded behind a cursor, as it can be read now.
async fn behind(runtime: &Runtime, after: u64) -> Vec<Event> {
    let mut events = runtime.events("s", Some(EntryNo(after))).await.unwrap();
    let head = runtime.store().session("s").await.unwrap().map_or(EntryNo(0), |row| row.head);
    let mut read = Vec::new();
    while events.cursor() < head {
        read.extend(next_page(&mut events).await);
    }
    read
}

async fn next_page(events: &mut Events) -> Vec<Event> {
    loop {
        if let News::Page(page) = events.next().await.expect("the runtime is there").unwrap() {
            return page.events.clone();
        }
    }
}

/// The next frames in which calls say something.
async fn next_words(events: &mut Events) -> Vec<Arc<Words>> {
    loop {
        if let News::Words(mut words) = events.next().await.expect("the runtime is there").unwrap() {
            words.retain(|words| words.kind() == "progress");
            if !words.is_empty() {
                return words;
            }
        }
    }
}

/// Reads until so many calls have ended.
async fn until_ended(events: &mut Events, mut calls: usize) -> Vec<Event> {
    let mut read = Vec::new();
    while calls > 0 {
        let page = next_page(events).await;
        calls -= page.iter().filter(|event| event.kind.as_str() == "ended").count();
        read.extend(page);
    }
    read
}

fn json(event: &Event) -> Value {
    let mut text = Vec::new();
    event.write_json(&mut text, Locale::English);
    serde_json::from_slice(&text).unwrap()
}

fn kinds(events: &[Event], id: &str) -> String {
    let of = events.iter().filter(|event| &*event.subject.id == id);
    of.map(|event| format!("{} ({})", event.kind, event.state)).collect::<Vec<_>>().join(", ")
}

/// How often each call was told opened and ended.
fn counts(events: &[Event]) -> BTreeMap<String, (usize, usize)> {
    let mut counts = BTreeMap::<String, (usize, usize)>::new();
    for event in events {
        let count = counts.entry(event.subject.call.to_string()).or_default();
        count.0 += usize::from(event.kind.as_str() == "opened");
        count.1 += usize::from(event.kind.as_str() == "ended");
    }
    counts
}

fn with_tools(runtime: &Runtime) {
    runtime.register(echo(quick("read", EffectClass::Read), &Count::default())).unwrap();
    runtime.register(echo(spec("write", EffectClass::Once), &Count::default())).unwrap();
    let retry = RetryRule { attempts: Some(2), base_ms: Some(1), ..RetryRule::default() };
    let busy = ToolSpec { retry, ..spec("busy", EffectClass::Read) };
    runtime.register(returns(busy, Err(ToolError::new("busy").safe_to_retry()))).unwrap();
    let outer = spec("outer", EffectClass::Stepped);
    let outer = tool_fn(outer, |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            let inner = cx.call("inner", "read", json!({"n": 1})).await?;
            Ok(inner.value::<Value>()?.into())
        }
    });
    runtime.register(outer).unwrap();
}

#[tokio::test]
async fn each_call_is_told_from_its_opening_to_its_end() {
    let runtime = memory();
    with_tools(&runtime);
    let calls = vec![
        call("r", "read", n(1)),
        call("w", "write", n(2)),
        call("b", "busy", n(3)),
        call("o", "outer", n(4)),
        call("x", "nobody", n(5)),
    ];
    let mut following = runtime.events("s", None).await.unwrap();
    let request = windlass::BatchRequest { turn: Some("t1".into()), ..batch("k", calls) };
    run(&runtime, "s", request).await;
    let events = until_ended(&mut following, 6).await;
    let told: Vec<String> =
        ["r", "w", "b", "o", "x"].iter().map(|id| format!("{id}: {}", kinds(&events, id))).collect();
    insta::assert_snapshot!(told.join("\n"));
    assert!(events.is_sorted_by(|a, b| a.cursor < b.cursor), "an entry is told once");
    assert!(counts(&events).values().all(|count| *count == (1, 1)), "{:?}", counts(&events));
    assert_eq!(counts(&events).len(), 6);

    let ended =
        events.iter().find(|event| &*event.subject.id == "b" && event.kind.as_str() == "ended").unwrap();
    let mut shown = json(ended);
    for changing in ["at", "call", "opened_at", "queued_ms", "waited_ms", "ran_ms", "cursor"] {
        assert!(!shown[changing].is_null(), "{changing} is missing");
        shown.as_object_mut().unwrap().remove(changing);
    }
    insta::assert_snapshot!(serde_json::to_string_pretty(&shown).unwrap());
    let inner = events.iter().find(|event| event.subject.parent.is_some()).expect("the nested call");
    let outer = events.iter().find(|event| &*event.subject.id == "o").unwrap();
    assert_eq!(inner.subject.parent, Some(outer.subject.call));
    // What was told live is what the journal says.
    let again: Vec<Value> = behind(&runtime, 0).await.iter().map(json).collect();
    assert_eq!(again, events.iter().map(json).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_with_its_cursor_misses_nothing_and_hears_nothing_twice() {
    for seed in 0..10 {
        let mut chance = Chance::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(&folder);
        config.limits.event_frame_ms = 1;
        // Only who is told of commits sees them.
        config.limits.event_look_ms = 3_600_000;
        let runtime = Runtime::new(config);
        with_tools(&runtime);
        let working = tokio::spawn({
            let runtime = runtime.clone();
            async move {
                for key in 0..12 {
                    let tool = ["read", "write", "busy", "outer"][key % 4];
                    let calls =
                        (0..1 + key % 3).map(|id| call(&format!("{key}-{id}"), tool, n(id as u64))).collect();
                    run(&runtime, "s", batch(&format!("k{key}"), calls)).await;
                }
            }
        });
        let (mut heard, mut cursor, mut pages_left) = (Vec::new(), EntryNo(0), 400);
        let calls: usize = (0..12).map(|key| (1 + key % 3) * if key % 4 == 3 { 2 } else { 1 }).sum();
        let ended = |heard: &[Event]| counts(heard).values().filter(|count| count.1 > 0).count();
        while ended(&heard) < calls {
            let mut events = runtime.events("s", Some(cursor)).await.unwrap();
            let page = next_page(&mut events).await;
            // Cut anywhere in what came.
            let taken = 1 + usize::try_from(chance.below(page.len() as u64)).unwrap();
            cursor = page[taken - 1].cursor;
            heard.extend(page.into_iter().take(taken));
            pages_left -= 1;
            assert!(pages_left > 0, "it gets nowhere");
        }
        working.await.unwrap();
        let all: Vec<Value> = behind(&runtime, 0).await.iter().map(json).collect();
        assert_eq!(heard.iter().map(json).collect::<Vec<_>>(), all, "seed {seed}");
        assert!(counts(&heard).values().all(|count| *count == (1, 1)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_is_good_under_the_next_owner() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let request = batch("k", vec![call("1", "read", n(1)), call("2", "hang", n(2))]);
    die_in_an_attempt(&folder, request, |config, begun| {
        let runtime = Runtime::new(config);
        with_tools(&runtime);
        runtime.register(hanging(spec("hang", EffectClass::Keyed), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = Runtime::new(config(&folder));
    with_tools(&runtime);
    runtime.register(echo(spec("hang", EffectClass::Keyed), &Count::default())).unwrap();
    let before = behind(&runtime, 0).await;
    let cursor = before.last().unwrap().cursor;
    let mut events = runtime.events("s", Some(cursor)).await.unwrap();
    assert_eq!(runtime.resume().await.unwrap(), if kinds(&before, "1").contains("ended") { 1 } else { 2 });
    let open = counts(&before).values().filter(|count| count.1 == 0).count();
    let after = until_ended(&mut events, open).await;
    let whole = [before, after].concat();
    assert_eq!(
        kinds(&whole, "2"),
        "opened (queued), started (running), lost (running), started (running), returned (running), ended (succeeded)"
    );
    assert!(counts(&whole).values().all(|count| *count == (1, 1)), "{:?}", counts(&whole));
    let again: Vec<Value> = behind(&runtime, 0).await.iter().map(json).collect();
    assert_eq!(again, whole.iter().map(json).collect::<Vec<_>>());
}

#[tokio::test]
async fn more_open_batches_than_are_remembered_are_told_as_well() {
    let runtime = memory();
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let tool = {
        let go = go.clone();
        tool_fn(spec("wait", EffectClass::Keyed), move |_, _: &Cx| {
            let go = go.clone();
            async move {
                go.acquire().await.unwrap().forget();
                Ok(json!(1).into())
            }
        })
    };
    runtime.register(tool).unwrap();
    let mut waiting = Vec::new();
    for key in 0..200 {
        let request = batch(&format!("k{key}"), vec![call("c", "wait", n(key))]);
        waiting.push(runtime.submit("s", request).await.unwrap());
    }
    go.add_permits(200);
    for submitted in waiting {
        submitted.settled().await.unwrap();
    }
    let events = behind(&runtime, 0).await;
    assert_eq!(counts(&events).len(), 200);
    assert!(counts(&events).values().all(|count| *count == (1, 1)));
    let told = events.iter().filter(|event| event.kind.as_str() == "ended").all(|event| {
        event.told.get("outcome") == Some(&json!({"value": 1})) && event.subject.args["n"].is_number()
    });
    assert!(told, "whoever reads on knows the whole call");
}

#[tokio::test]
async fn running_calls_are_heard_while_they_run() {
    let runtime = memory();
    let (go, went) = tokio::sync::watch::channel(());
    let sentences = vec![(Phase::Progress, "Copying to {to}: {$progress}".to_string())];
    let narration = vec![Narration { locale: Locale::English, sentences }];
    let copy = tool_fn(ToolSpec { narration, ..spec("copy", EffectClass::Read) }, move |_, cx: &Cx| {
        let (cx, mut went) = (cx.clone(), went.clone());
        async move {
            for current in 1..=3 {
                cx.progress(Progress {
                    current: Some(f64::from(current)),
                    total: Some(4.0),
                    ..Progress::default()
                });
            }
            cx.status("copying");
            went.changed().await.unwrap();
            cx.output(windlass::tool::Stream::Out, b"a.txt\n");
            cx.output(windlass::tool::Stream::Out, b"b.txt\n");
            went.changed().await.unwrap();
            Ok(json!(null).into())
        }
    });
    runtime.register(copy).unwrap();
    let mut events = runtime.events("s", None).await.unwrap();
    let submitted =
        runtime.submit("s", batch("k", vec![call("c", "copy", json!({"to": "disk"}))])).await.unwrap();
    let mut heard = next_words(&mut events).await;
    while heard[0].status.is_none() {
        heard = next_words(&mut events).await;
    }
    let mut text = Vec::new();
    heard[0].write_json(&mut text, Locale::English);
    let words: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&words["id"], &words["tool"], &words["kind"]),
        (&json!("c"), &json!("copy"), &json!("progress"))
    );
    if words["progress"].is_object() {
        assert_eq!(words["narration"], "Copying to disk: 75 %, 3 of 4");
    }
    // What was told once is not told again to somebody who keeps up.
    go.send(()).unwrap();
    let mut written = String::new();
    while !written.ends_with("b.txt\n") {
        heard = next_words(&mut events).await;
        assert_eq!((&heard[0].progress, &heard[0].status), (&None, &None));
        written.push_str(heard[0].output.as_deref().unwrap());
    }
    assert_eq!(written, "a.txt\nb.txt\n");
    // Somebody who comes later hears the last of everything, in however many frames it was told.
    let mut late = runtime.events("s", None).await.unwrap();
    let late = next_words(&mut late).await;
    assert_eq!(late[0].progress.as_ref().and_then(|progress| progress.current), Some(3.0));
    assert_eq!(late[0].status.as_deref(), Some("copying"));
    assert_eq!(late[0].output.as_deref(), Some("a.txt\nb.txt\n"));
    go.send(()).unwrap();
    submitted.settled().await.unwrap();
    until_ended(&mut events, 1).await;
    // What an attempt said that is over is not told to whoever comes now.
    let mut after = runtime.events("s", None).await.unwrap();
    run(&runtime, "s", batch("k2", vec![call("c", "nobody", n(1))])).await;
    assert!(matches!(after.next().await, Some(Ok(News::Page(_)))));
}

#[tokio::test]
async fn a_page_is_read_once_however_many_follow() {
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Store);
    let runtime = Runtime::new(Config::new(store.clone()));
    with_tools(&runtime);
    for key in 0..100 {
        run(&runtime, "s", batch(&format!("k{key}"), vec![call("c", "read", n(key))])).await;
    }
    let mut following = Vec::new();
    for _ in 0..50 {
        following.push(runtime.events("s", Some(EntryNo(0))).await.unwrap());
    }
    let before = store.asked(Method::JournalAfter);
    for events in &mut following {
        until_ended(events, 100).await;
    }
    let read = store.asked(Method::JournalAfter) - before;
    assert!(read <= 4, "{read} pages were read for 50 readers of 100 rows");
}

/// A follower that keeps up gets what was written here, without reading it back.
#[tokio::test]
async fn what_was_just_written_is_not_read_back() {
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), FaultPlan::Never, FaultReach::Store);
    let runtime = Runtime::new(Config::new(store.clone()));
    with_tools(&runtime);
    let mut events = runtime.events("s", None).await.unwrap();
    let mut told = Vec::new();
    let mut asked = Vec::new();
    for number in 0..40 {
        let key = format!("k{number}");
        run(&runtime, "s", batch(&key, vec![call(&key, "read", n(number))])).await;
        told.push(kinds(&until_ended(&mut events, 1).await, &key));
        asked.push([store.asked(Method::JournalAfter), store.asked(Method::Session)]);
    }
    assert!(told[0].ends_with("ended (succeeded)"), "{}", told[0]);
    assert!(told.iter().all(|other| *other == told[0]), "{told:?}");
    let ([rows, looks], [rows_first, looks_first]) = (asked[39], asked[0]);
    assert_eq!(rows, rows_first, "once the session is known");
    // Whoever is told of nothing for a second looks by itself, which a slow machine may see.
    assert!(looks - looks_first < 20, "it was looked {looks} times how far the session is");
}

#[tokio::test]
async fn damage_ends_the_stream_with_what_is_wrong() {
    let plan = FaultPlan::Nth(Method::JournalAfter, 1, Fault::FailBefore);
    let store = FaultStore::new(Arc::new(MemoryStore::new().unwrap()), plan, FaultReach::Store);
    let runtime = Runtime::new(Config::new(store));
    with_tools(&runtime);
    run(&runtime, "s", batch("k", vec![call("c", "read", n(1))])).await;
    let mut events = runtime.events("s", Some(EntryNo(0))).await.unwrap();
    let failed = events.next().await.expect("it says so");
    assert!(matches!(failed, Err(SessionError::Lost(_))), "{:?}", failed.err());
    assert!(events.next().await.is_none(), "nothing follows");
    // Another one begins anew.
    assert_eq!(counts(&behind(&runtime, 0).await).len(), 1);
}

#[tokio::test]
async fn there_is_a_limit_and_a_cursor_must_be_one() {
    let store = MemoryStore::new().unwrap();
    let mut config = Config::new(store);
    config.limits.event_readers_max = 2;
    let runtime = Runtime::new(config);
    let first = runtime.events("s", None).await.unwrap();
    let second = runtime.events("s", Some(EntryNo(0))).await.unwrap();
    assert!(matches!(runtime.events("t", None).await, Err(EventsError::TooMany { max: 2 })));
    drop((first, second));
    assert!(matches!(runtime.events("s", Some(EntryNo(1))).await, Err(EventsError::PastEnd { .. })));
    assert!(matches!(
        runtime.events("no name", None).await,
        Err(EventsError::Session(SessionError::Shape { .. }))
    ));
    // Those who were refused took no place.
    let _third = (runtime.events("s", None).await.unwrap(), runtime.events("s", None).await.unwrap());
}

#[tokio::test]
async fn who_follows_does_not_keep_the_runtime() {
    let (runtime, folder) = sqlite();
    with_tools(&runtime);
    run(&runtime, "s", batch("k", vec![call("c", "read", n(1))])).await;
    let mut events = runtime.events("s", None).await.unwrap();
    let waiting = tokio::spawn(async move { events.next().await.is_none() });
    drop(runtime);
    assert!(waiting.await.unwrap(), "it ends with the runtime");
    drop(config(&folder));
}

#[tokio::test]
async fn large_texts_are_told_in_part() {
    let runtime = memory();
    with_tools(&runtime);
    let long = "ü".repeat(10_000);
    run(&runtime, "s", batch("k", vec![call("c", "read", json!({"text": long}))])).await;
    for event in behind(&runtime, 0).await {
        let shown = json(&event);
        assert!(
            shown["args"].as_str().unwrap().len() <= 4_096 && shown["args_bytes"].as_u64() > Some(20_000)
        );
        assert!(shown.to_string().len() < 16 << 10, "{}", shown.to_string().len());
    }
}

#[tokio::test]
async fn the_ended_event_carries_the_word_of_a_tool_to_its_host() {
    let runtime = memory();
    let word = |name: &str| json!({ "hand_over": name });
    let ends = tool_fn(quick("ends", EffectClass::Read), move |_, _: &Cx| {
        let output = windlass::Output::from(json!(1)).with_control(word("ends"));
        async move { Ok(output) }
    });
    let fails = tool_fn(quick("fails", EffectClass::Read), move |_, _: &Cx| {
        let error = ToolError::new("no").with_control(word("fails"));
        async move { Err(error) }
    });
    runtime.register(ends).unwrap();
    runtime.register(fails).unwrap();
    let mut following = runtime.events("s", None).await.unwrap();
    run(&runtime, "s", batch("k", vec![call("ends", "ends", n(1)), call("fails", "fails", n(1))])).await;
    let live = until_ended(&mut following, 2).await;
    // As it is told, and as it is read back.
    for events in [live, behind(&runtime, 0).await] {
        let ended = events.iter().filter(|event| event.kind.as_str() == "ended").map(json);
        let mut words: Vec<String> = ended.map(|ended| control(&ended).to_string()).collect();
        words.sort();
        assert_eq!(words, [word("ends").to_string(), word("fails").to_string()]);
    }
}

fn control(ended: &Value) -> &Value {
    let outcome = &ended["outcome"];
    if outcome["failure"].is_null() { &outcome["control"] } else { &outcome["failure"]["control"] }
}
