//! Attachments and artifacts of tools: stored once, the same on replay, and removed when nothing refers to them.

use crate::inside::{DAY, body, stepped};
use crate::rig::{Count, batch, call, memory, n, run, spec, sqlite, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::store::memory::MemoryStore;
use windlass::store::{Sequence, Store};
use windlass::{Config, EffectClass, Limits, Output, Runtime, Tool, ToolError};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{ArtifactId, BlobNo};
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// How many blobs and how many of their pieces are stored.
async fn stored(store: &dyn Store) -> (u64, u32) {
    let (mut blobs, mut pieces) = (0, 0);
    for no in 1..store.reserve(Sequence::Blob, 0).await.unwrap() {
        let size = store.blob_size(BlobNo(no)).await.unwrap();
        blobs += u64::from(size.is_some());
        pieces += size.map_or(0, |size| size.pieces);
    }
    (blobs, pieces)
}

/// Small pieces, so that a few bytes are many.
fn small_pieces(store: Arc<dyn Store>, clock: ManualClock) -> Runtime {
    let limits = Limits { chunk_bytes_max: 10, ..Limits::default() };
    Runtime::new(Config { clock: Arc::new(clock), limits, ..Config::on(store) })
}

/// Attaches its argument `text` once as the type `as`, and a second time as it comes.
fn attacher() -> impl Tool {
    body(spec("t", EffectClass::Once), |args, cx| {
        Box::pin(async move {
            let (text, media_type) = (args["text"].as_str().unwrap(), args["as"].as_str().unwrap());
            let whole = cx.attach("whole", text.as_bytes(), media_type).await?;
            let mut streamed = cx.attachment("streamed", media_type)?;
            for piece in text.as_bytes().chunks(3) {
                streamed.write(piece).await?;
            }
            let streamed = streamed.finish().await?;
            assert_eq!(whole, streamed);
            Ok(Output { parts: vec![whole.into_part("a.txt")], ..Output::default() })
        })
    })
}

/// Attaches, and says the artifact that the outcome names.
async fn attach(runtime: &Runtime, session: &str, key: &str, args: Value) -> Handle {
    let answer = run(runtime, session, batch(key, vec![call("c", "t", args)])).await;
    let shown = serde_json::to_value(&answer.calls[0]).unwrap();
    assert_eq!(shown["state"], "succeeded", "{shown}");
    let part = &shown["outcome"]["parts"][0];
    assert_eq!((&part["type"], &part["name"]), (&json!("file"), &json!("a.txt")));
    Handle::parse(part["artifact"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn equal_bytes_of_a_session_are_stored_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = small_pieces(store.clone(), ManualClock::default());
    runtime.register(attacher()).unwrap();
    let args = |media_type| json!({"text": "0123456789abcdefghijklm", "as": media_type});
    let first = attach(&runtime, "s", "k1", args("text/plain")).await;
    assert_eq!(stored(&*store).await, (1, 3));
    assert_eq!(attach(&runtime, "s", "k2", args("text/plain")).await, first);
    // The same bytes as something else are another artifact, and still the same bytes.
    let csv = attach(&runtime, "s", "k3", args("text/csv")).await;
    assert_ne!(csv, first);
    assert_eq!(attach(&runtime, "s", "k4", args("text/csv")).await, csv);
    assert_eq!(stored(&*store).await, (1, 3));
    for (artifact, media_type) in [(first, "text/plain"), (csv, "text/csv")] {
        let info = runtime.artifact(artifact).await.unwrap().unwrap();
        assert_eq!((&*info.session, info.bytes, &*info.media_type), ("s", 23, media_type));
        assert_eq!(runtime.read_artifact(artifact, 20, 9).await.unwrap(), b"klm");
    }
    // Another session has its own, and a name tells nothing about the bytes.
    let other = attach(&runtime, "other", "k1", args("text/plain")).await;
    assert_ne!(other, first);
    assert_eq!(stored(&*store).await, (2, 6));
    let id = first.open(store.secret(), HandleKind::Artifact).map(ArtifactId::unpacked).unwrap();
    assert_eq!(id.media, 0);
}

#[tokio::test]
async fn a_long_result_is_stored_once_too() {
    let (runtime, _folder) = sqlite();
    let long = json!("l".repeat(100_000));
    runtime.register(crate::rig::returns(spec("long", EffectClass::Read), Ok(long))).unwrap();
    let mut names = Vec::new();
    for key in ["k1", "k2"] {
        let answer = run(&runtime, "s", batch(key, vec![call("c", "long", n(1))])).await;
        let shown = serde_json::to_value(&answer.calls[0]).unwrap();
        names.push(shown["outcome"]["kept"]["artifact"].as_str().unwrap().to_string());
    }
    assert_eq!(names[0], names[1]);
    assert_eq!(stored(&**runtime.store()).await.0, 1);
    let info = runtime.artifact(Handle::parse(&names[0]).unwrap()).await.unwrap().unwrap();
    assert_eq!((info.bytes, &*info.media_type), (100_000, "text/plain"));
}

#[tokio::test]
async fn a_replay_is_told_the_same_artifact() {
    let (store, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let runtime = small_pieces(store.clone(), clock.clone());
    let bodies = Count::default();
    let counted = bodies.clone();
    runtime
        .register(body(stepped(), move |_, cx| {
            let bodies = counted.clone();
            Box::pin(async move {
                bodies.up();
                let before = cx.attach("a", b"the same bytes, always", "text/plain").await?;
                cx.sleep("nap", MINUTE).await?;
                let after = cx.attach("b", b"the same bytes, always", "text/plain").await?;
                assert_eq!(before, after);
                Ok(json!(before.kept.artifact.to_string()).into())
            })
        }))
        .unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    waits_for(&runtime, "sleep").await;
    let before = stored(&*store).await;
    clock.advance(MINUTE);
    let answer = submitted.settled().await.unwrap();
    let artifact = Handle::parse(&answer.calls[0].model_text()).unwrap();
    assert_eq!((bodies.get(), before, stored(&*store).await), (2, (1, 3), (1, 3)));
    // It is recorded that it was attached, so it stays, whoever names it.
    clock.advance(DAY);
    runtime.collect_artifacts().await.unwrap();
    assert_eq!(runtime.read_artifact(artifact, 0, 8).await.unwrap(), b"the same");
}

#[tokio::test]
async fn other_bytes_under_a_name_are_a_divergence_until_the_call_is_tried_again() {
    let (store, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let runtime = small_pieces(store.clone(), clock.clone());
    let bodies = Count::default();
    for (tool, replays) in [("replays", true), ("retries", false)] {
        let counted = bodies.clone();
        let spec = windlass::ToolSpec { name: tool.into(), ..stepped() };
        runtime
            .register(body(spec, move |_, cx| {
                let bodies = counted.clone();
                Box::pin(async move {
                    bodies.up();
                    let bytes = bodies.get().to_string();
                    let kept = cx.attach("a", bytes.as_bytes(), "text/plain").await?.kept;
                    if replays {
                        cx.sleep("nap", MINUTE).await?;
                    } else if bodies.get() < 4 {
                        return Err(ToolError::new("Not yet.").safe_to_retry());
                    }
                    Ok(json!(kept.artifact.to_string()).into())
                })
            }))
            .unwrap();
    }
    let submitted = runtime.submit("s", batch("k1", vec![call("c", "replays", n(1))])).await.unwrap();
    waits_for(&runtime, "sleep").await;
    clock.advance(MINUTE);
    let failure = submitted.settled().await.unwrap().calls[0].failure().unwrap().clone();
    let detail = failure.detail.unwrap_or_default();
    assert!(detail.contains("diverges from its record at \"a\"") && detail.contains("/digest"), "{detail}");
    let answer = run(&runtime, "s", batch("k2", vec![call("c", "retries", n(1))])).await;
    let artifact = Handle::parse(&answer.calls[0].model_text()).unwrap();
    assert_eq!(runtime.read_artifact(artifact, 0, 9).await.unwrap(), b"4");
}

/// Keeps its argument `text`, and names it if it is told to.
fn keeper() -> impl Tool {
    body(spec("t", EffectClass::Once), |args, cx| {
        Box::pin(async move {
            let mut writer = cx.keep();
            writer.write(args["text"].as_str().unwrap().as_bytes()).await?;
            let kept = match args["ends"].as_bool() {
                Some(true) => Some(writer.finish("text/plain").await?),
                _ => None,
            };
            Ok(Output { kept: kept.filter(|_| args["names"] == true), ..Output::default() })
        })
    })
}

#[tokio::test]
async fn what_nothing_refers_to_is_removed_after_an_hour() {
    let (store, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let runtime = small_pieces(store.clone(), clock.clone());
    runtime.register(keeper()).unwrap();
    let long = "z".repeat(2_000);
    let plans = [
        (json!({"text": "named, and long enough", "ends": true, "names": true}), true),
        (json!({"text": "not named, but finished", "ends": true}), false),
        (json!({"text": "never finished at all"}), false),
        (json!({"text": long, "ends": true}), false),
    ];
    for (place, (args, _)) in plans.iter().enumerate() {
        run(&runtime, "s", batch(&format!("k{place}"), vec![call("c", "t", args.clone())])).await;
    }
    let all = stored(&*store).await;
    assert_eq!(all, (4, 3 + 3 + 2 + 200));
    clock.advance(HOUR - Duration::from_secs(1));
    assert_eq!(runtime.collect_artifacts().await.unwrap(), 0);
    assert_eq!(stored(&*store).await, all);
    clock.advance(Duration::from_secs(1));
    // The runtime may have done so by itself meanwhile.
    assert!(runtime.collect_artifacts().await.unwrap() <= 3);
    assert_eq!(stored(&*store).await, (1, 3));
    // What was not named is not found by its content either.
    runtime.replace(attacher()).unwrap();
    let again =
        attach(&runtime, "s", "k", json!({"text": "not named, but finished", "as": "text/plain"})).await;
    assert_eq!(runtime.read_artifact(again, 0, 9).await.unwrap(), b"not named");
    assert_eq!(stored(&*store).await, (2, 6));
}

#[tokio::test]
async fn what_an_open_call_keeps_stays_until_an_hour_after_it() {
    let (store, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
    let runtime = small_pieces(store.clone(), clock.clone());
    let deadlines = windlass::Deadlines {
        total_ms: Some(u64::MAX),
        attempt_ms: Some(u64::MAX),
        ..windlass::Deadlines::default()
    };
    let asleep = Arc::new(tokio::sync::Notify::new());
    let tells = asleep.clone();
    let patient = body(windlass::ToolSpec { deadlines, ..spec("t", EffectClass::Once) }, move |_, cx| {
        let tells = tells.clone();
        Box::pin(async move {
            let mut writer = cx.keep();
            writer.write(b"kept by an open call").await?;
            writer.finish("text/plain").await?;
            // Told once the sleep is begun: how long it lasts is counted from then.
            let (slept, ()) = tokio::join!(cx.sleep("night", DAY), async { tells.notify_one() });
            slept?;
            Ok(Output::default())
        })
    });
    runtime.register(patient).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "t", n(1))])).await.unwrap();
    asleep.notified().await;
    assert_eq!(stored(&*store).await, (1, 2));
    clock.advance(DAY - HOUR / 2);
    assert_eq!(runtime.collect_artifacts().await.unwrap(), 0);
    clock.advance(HOUR / 2);
    submitted.settled().await.unwrap();
    // Half an hour ago the call was open.
    assert_eq!(runtime.collect_artifacts().await.unwrap(), 0);
    assert_eq!(stored(&*store).await, (1, 2));
    clock.advance(HOUR);
    runtime.collect_artifacts().await.unwrap();
    assert_eq!(stored(&*store).await, (0, 0));
}

#[tokio::test]
async fn bytes_whose_record_was_lost_are_stored_anew_and_then_removed() {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let (inner, clock) = (Arc::new(MemoryStore::new().unwrap()), ManualClock::default());
        let text = "0123456789 and more than a piece of it";
        let tool = || {
            body(stepped(), move |_, cx| {
                Box::pin(async move {
                    let kept = cx.attach("a", text.as_bytes(), "text/plain").await?.kept;
                    Ok(json!(kept.artifact.to_string()).into())
                })
            })
        };
        // The commits are: the start, three pieces, and then the record of them.
        let mut seen = Vec::new();
        for nth in 1..=6 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::clone(&inner));
            let faulty =
                FaultStore::new(store, FaultPlan::Nth(Method::Commit, nth, fault), FaultReach::Store);
            let runtime = small_pieces(Arc::new(faulty.clone()), clock.clone());
            runtime.register(tool()).unwrap();
            let key = format!("k{nth}");
            let session = format!("s{nth}");
            let submitted = runtime.submit(&session, batch(&key, vec![call("c", "t", n(1))])).await;
            if let Ok(submitted) = submitted {
                drop(submitted.settled().await);
            }
            faulty.close();
            drop(runtime);
            let runtime = small_pieces(inner.clone(), clock.clone());
            runtime.register(tool()).unwrap();
            let answer = run(&runtime, &session, batch(&key, vec![call("c", "t", n(1))])).await;
            let artifact = Handle::parse(&answer.calls[0].model_text()).unwrap();
            let bytes = runtime.read_artifact(artifact, 0, 99).await.unwrap();
            assert_eq!(bytes, text.as_bytes(), "{fault:?} {nth}");
            seen.push(stored(&*inner).await.0);
            clock.advance(HOUR);
            runtime.collect_artifacts().await.unwrap();
            assert_eq!(stored(&*inner).await, (nth, 4 * nth as u32), "{fault:?} {nth}");
            drop((runtime, answer));
            // Its own look for unused bytes may be under way, and would take sessions from the next one.
            while Arc::strong_count(&inner) > 1 {
                tokio::task::yield_now().await;
            }
        }
        let left: u64 = seen.iter().zip(0..).map(|(blobs, before): (&u64, u64)| blobs - before - 1).sum();
        assert!(left >= 3, "the pieces of lost attempts were there: {seen:?}");
    }
}

#[tokio::test]
async fn an_artifact_of_another_session_is_unknown() {
    let runtime = memory();
    runtime.register(attacher()).unwrap();
    let artifact = attach(&runtime, "s", "k", json!({"text": "mine", "as": "text/plain"})).await;
    runtime
        .register(body(spec("reads", EffectClass::Read), |args, cx| {
            Box::pin(async move {
                let artifact = Handle::parse(args["artifact"].as_str().unwrap()).unwrap();
                if args["names"] == true {
                    let kept = windlass_core::outcome::KeptBytes { artifact, bytes: 4 };
                    return Ok(Output { kept: Some(kept), ..Output::default() });
                }
                let bytes = cx.read_artifact(artifact, 0, 9).await?;
                Ok(json!(String::from_utf8(bytes).unwrap()).into())
            })
        }))
        .unwrap();
    let forged = Handle(artifact.0 ^ 1);
    for (session, artifact, names, told) in [
        ("s", artifact, false, "mine"),
        ("s", artifact, true, "mine"),
        ("other", artifact, false, "there is no artifact"),
        ("other", artifact, true, "there is no artifact"),
        ("s", forged, false, "there is no artifact"),
        ("s", forged, true, "there is no artifact"),
    ] {
        let args = json!({"artifact": artifact.to_string(), "names": names});
        let key = format!("{artifact}{names}");
        let answer = run(&runtime, session, batch(&key, vec![call("c", "reads", args)])).await;
        let text = answer.calls[0].model_text();
        assert!(text.contains(told), "{session} {names}: {text}");
    }
}

#[tokio::test]
async fn media_types_that_cannot_stand_in_a_header_are_refused() {
    let runtime = memory();
    runtime.register(attacher()).unwrap();
    let types =
        ["", "text", "text/", "/plain", "text/plain\r\nx: y", "text/pl ain", "text/plain;\n", "té/xt"];
    for (place, media_type) in types.into_iter().enumerate() {
        let args = json!({"text": "x", "as": media_type});
        let answer = run(&runtime, "s", batch(&format!("k{place}"), vec![call("c", "t", args)])).await;
        let failure = answer.calls[0].failure().unwrap_or_else(|| panic!("{media_type:?}"));
        assert!(failure.detail.as_ref().unwrap().contains("is no media type"), "{failure:?}");
    }
    for good in ["text/plain; charset=utf-8", "application/vnd.a+json", "image/svg+xml"] {
        attach(&runtime, "s", good, json!({"text": "x", "as": good})).await;
    }
}
