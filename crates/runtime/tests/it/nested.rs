//! Calls of other tools from inside a call.

mod clocks;
mod suspects;
mod tree;

use crate::inside::body;
use crate::rig::{
    Begun, Count, batch, call, die_in_an_attempt, echo, end, hanging, memory, n, reopen, returns, run, spec,
    sqlite, states, until_runs, waits_for,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::ask::Target;
use windlass::batch::{NestedBatch, Siblings};
use windlass::error::StepError;
use windlass::store::memory::MemoryStore;
use windlass::{
    BatchError, BatchRequest, Config, Cx, Deadlines, EffectClass, Limits, RetryRule, Runtime, Tool,
    ToolError, ToolSpec, inspect,
};
use windlass_testkit::clock::ManualClock;

fn asked() -> BatchRequest {
    batch("k", vec![call("c", "t", n(1))])
}

/// A tool of this name that claims nothing.
fn free(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

/// A tool that calls these tools one after the other, each under its own name, and returns what they returned.
fn caller(of: ToolSpec, tools: &'static [&'static str]) -> impl Tool {
    body(of, move |args, cx| {
        Box::pin(async move {
            let mut told = Vec::new();
            for tool in tools {
                told.push(cx.call(tool, tool, &args).await?.value::<Value>()?);
            }
            Ok(json!(told).into())
        })
    })
}

/// Every call of the session `s`, oldest batch first: its tool, how it ended, and the number of its last entry.
async fn story(runtime: &Runtime) -> Vec<(String, String, u64)> {
    let session = runtime.store().session("s").await.unwrap().unwrap();
    let mut calls = inspect::calls(runtime.store(), &session, 1_000).await.unwrap();
    calls.sort_by_key(|call| call.batch_key.len());
    let mut told = Vec::new();
    for call in calls {
        let (_, lines) = inspect::call(runtime.store(), call.answer.handle()).await.unwrap().unwrap();
        let own = lines.iter().filter(|line| line.depth == 0).map(|line| line.entry.0).max().unwrap();
        let shown = serde_json::to_value(&call.answer).unwrap();
        let effect = shown["outcome"]["effect"].as_str().unwrap_or("-").to_string();
        let end = format!("{} {effect} {}", call.answer.state(), call.answer.call().attempts);
        told.push((call.answer.tool().to_string(), end, own));
    }
    told
}

async fn is_idle(runtime: &Runtime) {
    runtime.idle().await;
    assert_eq!((runtime.kept(), runtime.open_calls()), (0, 0), "nothing is left behind");
}

#[tokio::test]
async fn a_call_that_writes_its_session_calls_others_that_do() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once, EffectClass::Stepped] {
        let (runtime, _folder) = sqlite();
        let ran = Count::default();
        runtime.register(caller(spec("t", class), &["a", "b"])).unwrap();
        runtime.register(echo(spec("a", EffectClass::Once), &ran)).unwrap();
        runtime.register(echo(spec("b", EffectClass::Read), &ran)).unwrap();
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(answer.calls[0].model_text(), r#"[{"n":1},{"n":1}]"#, "{class}");
        assert_eq!(ran.get(), 2);
        let again = run(&runtime, "s", asked()).await;
        assert_eq!((again.calls[0].model_text(), ran.get()), (answer.calls[0].model_text(), 2));
        let session = runtime.store().session("s").await.unwrap().unwrap();
        let calls = inspect::calls(runtime.store(), &session, 10).await.unwrap();
        let inside: Vec<_> = calls.iter().filter_map(|call| call.answer.parent()).collect();
        assert_eq!(inside, [answer.calls[0].handle(); 2], "each says inside which call it ran");
        is_idle(&runtime).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_fill_all_the_room_lend_it_to_those_inside_them() {
    let runtime = memory();
    let all = Arc::new(tokio::sync::Barrier::new(64));
    let tool = body(free("t", EffectClass::Keyed), move |args, cx| {
        let all = all.clone();
        Box::pin(async move {
            all.wait().await;
            let (a, b) = tokio::join!(cx.call("a", "echo", &args), cx.call("b", "echo", &args));
            a?.value::<Value>()?;
            b?.value::<Value>()?;
            Ok(cx.call("c", "echo", args).await?.value::<Value>()?.into())
        })
    });
    let ran = Count::default();
    runtime.register(tool).unwrap();
    runtime.register(echo(free("echo", EffectClass::Keyed), &ran)).unwrap();
    let mut submitted = Vec::new();
    for session in 0..64 {
        submitted.push(runtime.submit(&format!("s{session}"), asked()).await.unwrap());
    }
    for submitted in submitted {
        assert_eq!(states(&submitted.settled().await.unwrap()), "c succeeded");
    }
    assert_eq!(ran.get(), 3 * 64);
    is_idle(&runtime).await;
}

#[tokio::test]
async fn calls_lie_inside_each_other_so_deep_and_no_deeper() {
    let runtime = memory();
    let tool = body(spec("t", EffectClass::Keyed), |args, cx| {
        Box::pin(async move {
            let left = args["n"].as_u64().unwrap();
            if left == 0 {
                return Ok(json!("the bottom").into());
            }
            Ok(cx.call("down", "t", n(left - 1)).await?.value::<Value>()?.into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", batch("8", vec![call("c", "t", n(8))])).await;
    assert_eq!(answer.calls[0].model_text(), "the bottom");
    let answer = run(&runtime, "s", batch("9", vec![call("c", "t", n(9))])).await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(failure.tool_code.as_deref(), Some("nested_too_deep"));
    assert!(failure.message.contains("lies inside 9 others, and may lie inside 8"), "{}", failure.message);
    is_idle(&runtime).await;
}

#[tokio::test]
async fn a_nested_call_claims_no_more_than_the_call_around_it() {
    let runtime = memory();
    let claiming = |name: &str, claim: &str| ToolSpec {
        claims: Some(vec![claim.to_string()]),
        ..spec(name, EffectClass::Keyed)
    };
    let ran = Count::default();
    runtime.register(caller(claiming("t", "write file:/a"), &["inside", "outside"])).unwrap();
    runtime.register(echo(claiming("inside", "read file:/a/b"), &ran)).unwrap();
    runtime.register(echo(claiming("outside", "read file:/b"), &ran)).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(failure.tool_code.as_deref(), Some("claim_not_covered"));
    assert!(failure.message.contains("read file:/b"), "{}", failure.message);
    assert_eq!(ran.get(), 1);
    is_idle(&runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_what_is_recorded_is_told_and_what_was_open_goes_on() {
    for (inner, expected) in
        [(EffectClass::Keyed, r#"["a",{"n":1}]"#), (EffectClass::Once, r#"["a","unknown"]"#)]
    {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let ran: [Count; 3] = Default::default();
        let tool = |bodies: &Count| {
            let bodies = bodies.clone();
            body(spec("t", EffectClass::Stepped), move |args, cx| {
                let bodies = bodies.clone();
                Box::pin(async move {
                    bodies.up();
                    let first: Value = cx.call("first", "a", &args).await?.value()?;
                    let second = cx.call("second", "b", &args).await?;
                    let second = match second.state() {
                        "succeeded" => second.value()?,
                        other => json!(other),
                    };
                    Ok(json!([first, second]).into())
                })
            })
        };
        let counted = |count: &Count| {
            let count = count.clone();
            body(spec("a", EffectClass::Keyed), move |_, _| {
                count.up();
                Box::pin(async { Ok(json!("a").into()) })
            })
        };
        let (dying, a) = (tool(&ran[0]), counted(&ran[1]));
        die_in_an_attempt(&folder, asked(), move |config, begun| {
            let runtime = Runtime::new(config);
            runtime.register(dying).unwrap();
            runtime.register(a).unwrap();
            runtime.register(hanging(spec("b", inner), begun)).unwrap();
            runtime
        })
        .await;
        let runtime = reopen(&folder);
        runtime.register(tool(&ran[0])).unwrap();
        runtime.register(counted(&ran[1])).unwrap();
        runtime.register(echo(spec("b", inner), &ran[2])).unwrap();
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(answer.calls[0].model_text(), expected);
        let again = u32::from(inner == EffectClass::Keyed);
        assert_eq!([ran[0].get(), ran[1].get(), ran[2].get()], [2, 1, again], "nothing ran twice");
        assert_eq!(story(&runtime).await.len(), 3, "and nothing was asked for twice");
        is_idle(&runtime).await;
    }
}

#[tokio::test]
async fn what_failed_is_called_again_when_the_call_is_tried_again() {
    let (runtime, _folder) = sqlite();
    let retry = RetryRule { attempts: Some(3), base_ms: Some(0), ..RetryRule::default() };
    let (fine, flaky) = (Count::default(), Count::default());
    let tool = body(ToolSpec { retry, ..spec("t", EffectClass::Keyed) }, |args, cx| {
        Box::pin(async move {
            let fine = call("x", "fine", args.clone());
            let calls = vec![fine, call("y", "flaky", args.clone())];
            let both = cx.batch("both", NestedBatch { calls, ..NestedBatch::default() }).await?;
            let one = cx.call("one", "fine", args).await?;
            let told: Result<Vec<Value>, ToolError> = both.calls.iter().map(|call| call.value()).collect();
            Ok(json!([told?, one.value::<Value>()?]).into())
        })
    });
    runtime.register(tool).unwrap();
    runtime.register(echo(spec("fine", EffectClass::Once), &fine)).unwrap();
    let (count, keys) = (flaky.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let seen = keys.clone();
    let once = RetryRule { attempts: Some(1), ..RetryRule::default() };
    let tool = body(ToolSpec { retry: once, ..spec("flaky", EffectClass::Keyed) }, move |_, cx| {
        let ran = count.up();
        seen.lock().unwrap().insert(cx.idempotency_key());
        Box::pin(async move {
            match ran {
                1 | 2 => Err(ToolError::new("not yet").safe_to_retry()),
                _ => Ok(json!(ran).into()),
            }
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(end(&answer), "c succeeded, 3 attempts");
    assert_eq!(answer.calls[0].model_text(), r#"[[{"n":1},3],{"n":1}]"#);
    assert_eq!((fine.get(), flaky.get()), (2, 3), "what succeeded ran once under each name");
    assert_eq!(keys.lock().unwrap().len(), 1, "whoever deduplicates knows it again");
    is_idle(&runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_reaches_what_lies_inside_and_the_root_ends_last() {
    for taken_over in [false, true] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let tools = |runtime: &Runtime, begun: Option<Begun>| {
            runtime.register(caller(spec("t", EffectClass::Stepped), &["middle"])).unwrap();
            runtime.register(caller(spec("middle", EffectClass::Once), &["leaf"])).unwrap();
            let begun = begun.unwrap_or_else(|| std::sync::mpsc::channel().0);
            let leaf = body(spec("leaf", EffectClass::Keyed), move |_, _| {
                let _ = begun.send(());
                Box::pin(std::future::pending())
            });
            runtime.register(leaf).unwrap();
        };
        let runtime = if taken_over {
            die_in_an_attempt(&folder, asked(), move |config, begun| {
                let runtime = Runtime::new(config);
                tools(&runtime, Some(begun));
                runtime
            })
            .await;
            // The cancel is left for the next owner.
            let config = crate::rig::config(&folder);
            let target = Target::Batch { session: "s", key: "k" };
            windlass::ask::post_cancel(&*config.store, target, None).await.unwrap();
            let runtime = Runtime::new(config);
            tools(&runtime, None);
            runtime
        } else {
            let runtime = reopen(&folder);
            let (begun, begins) = std::sync::mpsc::channel();
            tools(&runtime, Some(begun));
            drop(runtime.submit("s", asked()).await.unwrap());
            tokio::task::spawn_blocking(move || begins.recv().unwrap()).await.unwrap();
            let root = runtime.open().await.unwrap().into_iter().find(|open| open.tool == "t").unwrap();
            assert_eq!(root.waiting_for.as_deref(), Some("nested calls that it has made"));
            runtime.cancel(Target::Call(&root.call), None).await.unwrap();
            runtime
        };
        run(&runtime, "s", asked()).await;
        is_idle(&runtime).await;
        let mut told = story(&runtime).await;
        told.sort_by_key(|(_, _, last)| *last);
        let told: Vec<String> = told.into_iter().map(|(tool, end, _)| format!("{tool}: {end}")).collect();
        let middle = "middle: cancelled unknown 1";
        let expected = ["leaf: cancelled unknown 1", middle, "t: cancelled unknown 1"];
        assert_eq!(told, expected, "taken over: {taken_over}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_race_has_one_winner_whoever_drives_it() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let racing = || {
        body(spec("t", EffectClass::Stepped), |args, cx| {
            Box::pin(async move {
                let calls = ["x", "y", "z"].map(|tool| call(tool, tool, args.clone())).into();
                let race = NestedBatch { calls, siblings: Siblings::Race };
                let answer = cx.batch("race", race).await?;
                let ends: Vec<_> = answer.calls.iter().map(|call| call.state().to_string()).collect();
                Ok(json!([answer.decided.unwrap().winners, ends]).into())
            })
        })
    };
    die_in_an_attempt(&folder, asked(), move |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(racing()).unwrap();
        let all = Arc::new(tokio::sync::Barrier::new(3));
        for (tool, class) in [("x", EffectClass::Read), ("y", EffectClass::Once), ("z", EffectClass::Keyed)] {
            let (all, begun) = (all.clone(), begun.clone());
            let racer = body(free(tool, class), move |_, _| {
                let (all, begun) = (all.clone(), begun.clone());
                Box::pin(async move {
                    if all.wait().await.is_leader() {
                        begun.send(()).unwrap();
                    }
                    std::future::pending().await
                })
            });
            runtime.register(racer).unwrap();
        }
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    let ran = Count::default();
    runtime.register(racing()).unwrap();
    runtime.register(body(free("x", EffectClass::Read), |_, _| Box::pin(std::future::pending()))).unwrap();
    runtime.register(echo(free("y", EffectClass::Once), &ran)).unwrap();
    runtime.register(echo(free("z", EffectClass::Keyed), &ran)).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    // It is not known what became of `y`, which must not be repeated; `x` has read and is told to stop.
    assert_eq!(answer.calls[0].model_text(), r#"[["z"],["cancelled","unknown","succeeded"]]"#);
    assert_eq!(ran.get(), 1);
    is_idle(&runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_call_under_a_recorded_name_is_a_divergence() {
    for (tool, args, found) in [
        ("a", json!({"to": "Ann", "amount": 7}), "recorded with other arguments at /amount"),
        ("b", json!({"to": "Ann", "amount": 5}), "recorded with another tool"),
    ] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let pays = |tool: &'static str, args: Value| {
            body(spec("t", EffectClass::Stepped), move |_, cx| {
                let args = args.clone();
                Box::pin(async move {
                    cx.call("pay", tool, args).await?;
                    Ok(cx.call("then", "last", json!({})).await?.value::<Value>()?.into())
                })
            })
        };
        die_in_an_attempt(&folder, asked(), move |config, begun| {
            let runtime = Runtime::new(config);
            runtime.register(pays("a", json!({"to": "Ann", "amount": 5}))).unwrap();
            runtime.register(echo(spec("a", EffectClass::Once), &Count::default())).unwrap();
            runtime.register(hanging(spec("last", EffectClass::Read), begun)).unwrap();
            runtime
        })
        .await;
        let runtime = reopen(&folder);
        let ran = Count::default();
        runtime.register(pays(tool, args)).unwrap();
        for name in ["a", "b", "last"] {
            runtime.register(echo(spec(name, EffectClass::Once), &ran)).unwrap();
        }
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(states(&answer), "c failed/internal");
        let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
        assert!(detail.contains("diverges from its record at \"pay\"") && detail.contains(found), "{detail}");
        is_idle(&runtime).await;
    }
}

#[tokio::test]
async fn nested_calls_have_the_time_that_is_left() {
    let (store, clock) = (MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let (go, waits) = tokio::sync::watch::channel(false);
    let total_ms = Some(1_000);
    let deadlines = Deadlines { total_ms, ..Deadlines::default() };
    let tool = body(ToolSpec { deadlines, ..spec("t", EffectClass::Keyed) }, move |args, cx| {
        let mut waits = waits.clone();
        Box::pin(async move {
            waits.wait_for(|go| *go).await.unwrap();
            Ok(cx.call("slow", "slow", args).await?.value::<Value>()?.into())
        })
    });
    runtime.register(tool).unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    runtime.register(hanging(spec("slow", EffectClass::Read), begun)).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    until_runs(&runtime).await;
    clock.advance(Duration::from_millis(400));
    go.send(true).unwrap();
    while begins.try_recv().is_err() {
        tokio::task::yield_now().await;
    }
    clock.advance(Duration::from_millis(600));
    let settled = tokio::spawn(submitted.settled());
    while !settled.is_finished() {
        clock.advance(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    assert_eq!(states(&settled.await.unwrap().unwrap()), "c failed/timeout");
    is_idle(&runtime).await;
    let session = runtime.store().session("s").await.unwrap().unwrap();
    let calls = inspect::calls(runtime.store(), &session, 10).await.unwrap();
    let slow = calls.iter().find(|call| call.answer.tool() == "slow").unwrap();
    let left = slow.answer.call().opened.deadlines.as_deref().unwrap();
    assert_eq!((left.total_ms, left.queue_ms), (Some(600), Some(600)));
}

#[tokio::test]
async fn nested_calls_are_never_refused() {
    let limits = Limits { calls_queued_max: 2, calls_running_max: 1, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..Config::new(MemoryStore::new().unwrap()) });
    let (go, waits) = tokio::sync::watch::channel(false);
    let tool = body(spec("t", EffectClass::Keyed), move |args, cx| {
        let mut waits = waits.clone();
        Box::pin(async move {
            waits.wait_for(|go| *go).await.unwrap();
            let calls = (0..4).map(|id| call(&id.to_string(), "echo", args.clone())).collect();
            let answer = cx.batch("all", NestedBatch { calls, ..NestedBatch::default() }).await?;
            Ok(json!(answer.calls.iter().map(|call| call.state()).collect::<Vec<_>>()).into())
        })
    });
    let ran = Count::default();
    runtime.register(tool).unwrap();
    runtime.register(echo(spec("echo", EffectClass::Keyed), &ran)).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    until_runs(&runtime).await;
    let queued = batch("q", vec![call("1", "echo", n(1)), call("2", "echo", n(2))]);
    let queued = runtime.submit("s", queued).await.unwrap();
    let more = runtime.submit("s", batch("m", vec![call("1", "echo", n(1))])).await;
    assert!(matches!(more, Err(BatchError::Overloaded { .. })));
    go.send(true).unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(answer.calls[0].model_text(), r#"["succeeded","succeeded","succeeded","succeeded"]"#);
    assert_eq!(states(&queued.settled().await.unwrap()), "1 succeeded, 2 succeeded");
    is_idle(&runtime).await;
}

#[tokio::test]
async fn what_is_not_waited_for_is_cancelled_before_the_call_ends() {
    let (runtime, _folder) = sqlite();
    let (begun, begins) = std::sync::mpsc::channel();
    let begins = Arc::new(Mutex::new(begins));
    let tool = body(spec("t", EffectClass::Keyed), move |args, cx: &Cx| {
        let begins = begins.clone();
        Box::pin(async move {
            // Nobody polls it, so it is never called.
            drop(cx.call("never", "echo", &args));
            tokio::select! {
                called = cx.call("slow", "slow", &args) => Ok(called?.value::<Value>()?.into()),
                () = async {
                    while begins.lock().unwrap().try_recv().is_err() {
                        tokio::task::yield_now().await;
                    }
                } => Ok(json!("gone on").into()),
            }
        })
    });
    runtime.register(tool).unwrap();
    runtime.register(hanging(spec("slow", EffectClass::Read), begun)).unwrap();
    runtime.register(echo(spec("echo", EffectClass::Read), &Count::default())).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(answer.calls[0].model_text(), "gone on");
    let told = story(&runtime).await;
    let ends: Vec<_> = told.iter().map(|(tool, end, _)| format!("{tool}: {end}")).collect();
    assert_eq!(ends, ["t: succeeded - 1", "slow: cancelled none 1"]);
    assert!(told[0].2 > told[1].2, "the call ends after what lies inside it");
    is_idle(&runtime).await;
}

#[tokio::test]
async fn a_failed_call_is_told_and_can_be_passed_on() {
    let runtime = memory();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    let tool = body(spec("t", EffectClass::Keyed), move |args, cx| {
        let log = log.clone();
        Box::pin(async move {
            let tell = |said: String| log.lock().unwrap().push(said);
            let bad = |error: StepError| error.to_string();
            tell(cx.call(" ", "fails", &args).await.err().map(bad).unwrap());
            let failed = cx.call("one", "fails", &args).await?;
            tell(format!("{} {}", failed.state(), failed.model_text()));
            tell(cx.call("one", "fails", &args).await.err().map(bad).unwrap());
            tell(cx.call("none", "no_such", &args).await?.failure().unwrap().code.to_string());
            failed.value::<Value>()?;
            Ok(json!("not here").into())
        })
    });
    runtime.register(tool).unwrap();
    let error = ToolError { tool_code: Some("E7".into()), ..ToolError::new("The disk is full.") };
    runtime.register(returns(spec("fails", EffectClass::Once), Err(error))).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    let failure = answer.calls[0].failure().unwrap();
    assert_eq!(failure.message, "The call of \"fails\" failed: The disk is full.");
    assert_eq!(failure.tool_code.as_deref(), Some("E7"));
    let seen = seen.lock().unwrap().clone();
    let words = ["blank name", "failed {\"error\":\"The disk is full.\"", "used twice", "no_such_tool"];
    assert_eq!(seen.len(), words.len());
    for (said, words) in seen.iter().zip(words) {
        assert!(said.contains(words), "{said}");
    }
    let forged = runtime.submit("s", batch("inside:x/y", vec![call("c", "t", n(1))])).await;
    assert!(matches!(forged, Err(BatchError::Shape { what }) if what.contains("nested calls")));
    is_idle(&runtime).await;
}

#[tokio::test]
async fn a_stop_is_told_at_once_and_is_no_failure_of_the_call_around() {
    // No time passes, so nobody is given up: all of them stop because they are told to.
    let clock = ManualClock::default();
    let runtime = Runtime::new(Config { clock: Arc::new(clock), ..Config::new(MemoryStore::new().unwrap()) });
    let tool = body(spec("t", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let calls = ["nap", "leaf", "leaf"].into_iter().zip(["1", "2", "3"]);
            let calls = calls.map(|(tool, id)| call(id, tool, args.clone())).collect();
            let all = cx.batch("all", NestedBatch { calls, ..NestedBatch::default() }).await?;
            Ok(all.calls[0].value::<Value>()?.into())
        })
    });
    runtime.register(tool).unwrap();
    let begun = Arc::new(tokio::sync::Notify::new());
    let begins = begun.clone();
    let leaf = body(spec("leaf", EffectClass::Read), move |_, cx| {
        begins.notify_one();
        Box::pin(async move {
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    });
    runtime.register(leaf).unwrap();
    let nap = body(free("nap", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            cx.sleep("night", Duration::from_secs(60)).await?;
            Ok(json!("rested").into())
        })
    });
    runtime.register(nap).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    begun.notified().await;
    waits_for(&runtime, "sleep").await;
    runtime.cancel(Target::Batch { session: "s", key: "k" }, None).await.unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{landed}, 1 attempts");
    let ends: Vec<_> =
        story(&runtime).await.into_iter().map(|(tool, end, _)| format!("{tool}: {end}")).collect();
    let [root, asleep] = ["t: cancelled landed 1", "nap: cancelled none 1"];
    let [runs, queued] = ["leaf: cancelled none 1", "leaf: cancelled none 0"];
    assert_eq!(ends, [root, asleep, runs, queued]);
    is_idle(&runtime).await;
}

#[tokio::test]
async fn a_call_that_is_the_same_as_one_around_it_does_not_wait_for_itself() {
    let runtime = memory();
    let dedupe = Some(windlass::tool::Dedupe { key: "{n}".into(), for_ms: None });
    let of = ToolSpec {
        dedupe,
        input_schema: Some(
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        ),
        ..spec("t", EffectClass::Keyed)
    };
    let tool = body(of, |args, cx| {
        Box::pin(async move {
            let same = cx.call("same", "t", &args).await?;
            Ok(json!(same.failure().unwrap().code.to_string()).into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(answer.calls[0].model_text(), "would_deadlock");
    is_idle(&runtime).await;
}
