//! Named operations of a tool: steps, sleeps, external answers.

mod late;
mod words;

use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, end, memory, n, reopen, run, spec, sqlite, states,
    waits_for,
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::ask::Target;
use windlass::error::{AskError, StepError};
use windlass::wait::Completed;
use windlass::{
    BatchRequest, Config, Cx, Deadlines, EffectClass, Output, RetryRule, Runtime, Tool, ToolError,
    ToolFuture, ToolSpec,
};
use windlass_testkit::clock::ManualClock;

/// A tool whose body is an async function of its arguments and its context.
pub struct Body<F>(ToolSpec, F);

impl<F> Tool for Body<F>
where
    F: for<'a> Fn(Value, &'a Cx) -> ToolFuture<'a> + Send + Sync + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.0.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        self.1(args, cx)
    }
}

pub fn stepped() -> ToolSpec {
    let retry = RetryRule { attempts: Some(2), base_ms: Some(0), ..RetryRule::default() };
    ToolSpec { retry, ..spec("t", EffectClass::Stepped) }
}

pub fn asked() -> BatchRequest {
    batch("k", vec![call("c", "t", n(1))])
}

pub fn body<F>(spec: ToolSpec, run: F) -> Body<F>
where
    F: for<'a> Fn(Value, &'a Cx) -> ToolFuture<'a> + Send + Sync + 'static,
{
    Body(spec, run)
}

/// A step that counts how often it ran and returns its input.
async fn counted(cx: &Cx, name: &str, input: Value, ran: &Count) -> Result<Value, StepError> {
    cx.step(name, input, |input| {
        ran.up();
        async move { Ok(input) }
    })
    .await
}

#[tokio::test]
async fn a_recorded_step_never_runs_again_and_a_failed_one_does() {
    let (runtime, _folder) = sqlite();
    let (done, failing, bodies) = (Count::default(), Count::default(), Count::default());
    let counts = (done.clone(), failing.clone(), bodies.clone());
    let tool = body(stepped(), move |_, cx| {
        let (done, failing, bodies) = counts.clone();
        Box::pin(async move {
            bodies.up();
            let first = counted(cx, "first", json!({"a": 1}), &done).await?;
            let second: Value = cx
                .step("second", &first, |_| async {
                    match failing.up() {
                        1 => Err(ToolError::new("not yet").safe_to_retry()),
                        _ => Ok(json!("at last")),
                    }
                })
                .await?;
            Ok(json!([first, second]).into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(end(&answer), "c succeeded, 2 attempts");
    assert_eq!(answer.calls[0].model_text(), r#"[{"a":1},"at last"]"#);
    assert_eq!((done.get(), failing.get(), bodies.get()), (1, 2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_in_parallel_are_matched_by_name_after_a_crash() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let ran: [Count; 3] = Default::default();
    let made = ran.clone();
    die_in_an_attempt(&folder, asked(), move |config, begun| {
        let runtime = Runtime::new(config);
        let tool = body(stepped(), move |_, cx| {
            let (ran, begun) = (made.clone(), begun.clone());
            Box::pin(async move {
                // The last one ends first, the second never.
                let c = counted(cx, "c", json!(3), &ran[2]);
                let a = counted(cx, "a", json!(1), &ran[0]);
                let b = cx.step("b", json!(2), |_: Value| async {
                    ran[1].up();
                    std::future::pending::<Result<Value, ToolError>>().await
                });
                let (c, a, _) = tokio::join!(
                    c,
                    async {
                        let a = a.await;
                        begun.send(()).unwrap();
                        a
                    },
                    b
                );
                Ok(json!([a?, c?]).into())
            })
        });
        runtime.register(tool).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    let again = ran.clone();
    let tool = body(stepped(), move |_, cx| {
        let ran = again.clone();
        Box::pin(async move {
            let a = counted(cx, "a", json!(1), &ran[0]).await?;
            let b = counted(cx, "b", json!(2), &ran[1]).await?;
            let c = counted(cx, "c", json!(3), &ran[2]).await?;
            Ok(json!([a, b, c]).into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(answer.calls[0].model_text(), "[1,2,3]");
    let ran = ran.map(|count| count.get());
    assert_eq!(ran, [1, 2, 1], "only the one that was open ran again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_once_step_that_was_started_before_a_crash_is_unknown_and_the_body_decides() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    die_in_an_attempt(&folder, asked(), move |config, begun| {
        let runtime = Runtime::new(config);
        let tool = body(stepped(), move |_, cx| {
            let begun = begun.clone();
            Box::pin(async move {
                let sent: Value = cx
                    .step_once("send", json!("mail"), |_| async {
                        begun.send(()).unwrap();
                        std::future::pending::<Result<Value, ToolError>>().await
                    })
                    .await?;
                Ok(sent.into())
            })
        });
        runtime.register(tool).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    let tool = body(stepped(), |_, cx| {
        Box::pin(async move {
            let sent: Result<Value, _> =
                cx.step_once("send", json!("mail"), |_| async { panic!("it is not repeated") }).await;
            match sent {
                Err(StepError::Unknown { name }) => Ok(json!(format!("looked after {name}")).into()),
                other => Ok(json!(format!("{other:?}")).into()),
            }
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(answer.calls[0].model_text(), "looked after send");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_input_is_a_divergence_that_shows_the_difference() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let with = |amount: u64, begun: Option<crate::rig::Begun>| {
        body(stepped(), move |_, cx| {
            let begun = begun.clone();
            Box::pin(async move {
                let input = json!({"to": "Ann", "amount": amount});
                let paid = counted(cx, "pay", input, &Count::default()).await?;
                if let Some(begun) = begun {
                    begun.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(paid.into())
            })
        })
    };
    die_in_an_attempt(&folder, asked(), move |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(with(5, Some(begun))).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    runtime.register(with(7, None)).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(states(&answer), "c failed/internal");
    let detail = answer.calls[0].failure().unwrap().detail.clone().unwrap();
    assert!(detail.contains("\"pay\"") && detail.contains("/amount: recorded is 5, given is 7"), "{detail}");
}

#[tokio::test]
async fn bad_names_are_refused_before_anything_runs() {
    let runtime = memory();
    let ran = Count::default();
    let count = ran.clone();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = told.clone();
    let tool = body(stepped(), move |_, cx| {
        let (ran, log) = (count.clone(), log.clone());
        Box::pin(async move {
            let tell = |said: String| log.lock().unwrap().push(said);
            tell(counted(cx, " ", json!(1), &ran).await.unwrap_err().to_string());
            counted(cx, "a", json!(1), &ran).await?;
            tell(counted(cx, "a", json!(1), &ran).await.unwrap_err().to_string());
            tell(cx.sleep("a", Duration::from_secs(1)).await.unwrap_err().to_string());
            tell(cx.completion("a").await.unwrap_err().to_string());
            tell(cx.completion("").await.unwrap_err().to_string());
            Ok(json!(1).into())
        })
    });
    runtime.register(tool).unwrap();
    assert_eq!(end(&run(&runtime, "s", asked()).await), "c succeeded, 1 attempts");
    assert_eq!(ran.get(), 1);
    let told = told.lock().unwrap().clone();
    for (said, words) in told.iter().zip(["blank", "used twice", "used twice", "a step is recorded", "blank"])
    {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(told.len(), 5);
}

#[tokio::test]
async fn a_call_has_at_most_so_many_operations() {
    let limits = windlass::Limits { operations_max: 2, ..Default::default() };
    let store = windlass::store::memory::MemoryStore::new().unwrap();
    let runtime = Runtime::new(Config { limits, ..Config::new(store) });
    let tool = body(stepped(), |_, cx| {
        Box::pin(async move {
            for name in ["a", "b", "c"] {
                counted(cx, name, json!(1), &Count::default()).await?;
            }
            Ok(json!(1).into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(states(&answer), "c failed/internal");
    assert!(answer.calls[0].failure().unwrap().detail.as_ref().unwrap().contains("may record 2 operations"));
}

pub const DAY: Duration = Duration::from_secs(86_400);

/// A stepped tool that does a step, sleeps a day, and does another.
fn sleeper(ran: &[Count; 3]) -> impl Tool {
    let ran = ran.clone();
    let total_ms = Some(10 * 86_400_000);
    let spec = ToolSpec { deadlines: Deadlines { total_ms, ..Deadlines::default() }, ..stepped() };
    body(spec, move |_, cx| {
        let ran = ran.clone();
        Box::pin(async move {
            ran[2].up();
            counted(cx, "before", json!(1), &ran[0]).await?;
            cx.sleep("night", DAY).await?;
            counted(cx, "after", json!(2), &ran[1]).await?;
            Ok(json!("rested").into())
        })
    })
}

#[tokio::test]
async fn a_sleep_costs_nothing_survives_a_restart_and_ends_in_time() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::default());
    let ran: [Count; 3] = Default::default();
    let counts = |ran: &[Count; 3]| [ran[0].get(), ran[1].get(), ran[2].get()];
    let open = || {
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
        runtime.register(sleeper(&ran)).unwrap();
        runtime
    };
    let runtime = open();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "sleep").await;
    assert_eq!((counts(&ran), runtime.counts().running), ([1, 0, 1], [0; 2]), "it is put aside");
    clock.advance(DAY / 2);
    drop(runtime);
    let runtime = open();
    runtime.resume().await.unwrap();
    waits_for(&runtime, "sleep").await;
    assert_eq!(counts(&ran), [1, 0, 1], "nothing runs before its time");
    clock.advance(DAY / 2);
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(end(&answer), "c succeeded, 1 attempts");
    assert_eq!(counts(&ran), [1, 1, 2], "the body ran again, its first step did not");
    assert_eq!(answer.calls[0].model_text(), "rested");
}

#[tokio::test]
async fn a_sleep_is_slept_once_though_the_wall_clock_is_set_back() {
    let (store, clock) = (windlass::store::memory::MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let ran: [Count; 3] = Default::default();
    runtime.register(sleeper(&ran)).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    waits_for(&runtime, "sleep").await;
    clock.set_wall(-3 * DAY.as_micros() as i64);
    clock.advance(DAY);
    let settled = tokio::time::timeout(Duration::from_secs(60), submitted.settled()).await;
    let answer = settled.expect("it sleeps again").unwrap();
    assert_eq!((end(&answer).as_str(), ran[2].get()), ("c succeeded, 1 attempts", 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_was_open_behind_a_sleep_is_not_said_to_have_done_nothing() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    die_in_an_attempt(&folder, asked(), move |config, begun| {
        let runtime = Runtime::new(config);
        let tool = body(stepped(), move |_, cx| {
            let begun = begun.clone();
            Box::pin(async move {
                cx.sleep("nap", Duration::from_millis(1)).await?;
                let sent: Value = cx
                    .step("send", json!("mail"), |_: Value| async {
                        begun.send(()).unwrap();
                        std::future::pending::<Result<Value, ToolError>>().await
                    })
                    .await?;
                Ok(sent.into())
            })
        });
        runtime.register(tool).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    runtime.cancel(Target::Session("s"), None).await.unwrap();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(end(&answer), "c cancelled{unknown}, 1 attempts");
}

#[tokio::test]
async fn a_sleeping_call_can_be_cancelled_and_says_what_it_did() {
    let runtime = memory();
    runtime.register(sleeper(&Default::default())).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let call = waits_for(&runtime, "sleep").await;
    runtime.cancel(Target::Call(&call), None).await.unwrap();
    assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{landed}, 1 attempts");
}

#[tokio::test]
async fn other_classes_keep_their_body_while_they_sleep() {
    let (store, clock) = (windlass::store::memory::MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let bodies = Count::default();
    let count = bodies.clone();
    let asleep = Arc::new(tokio::sync::Notify::new());
    let tells = asleep.clone();
    // The clock runs fast below, and must not run out.
    let forever = Deadlines { attempt_ms: Some(u64::MAX), total_ms: Some(u64::MAX), ..Deadlines::default() };
    let tool = body(ToolSpec { deadlines: forever, ..spec("t", EffectClass::Keyed) }, move |_, cx| {
        let (count, tells) = (count.clone(), tells.clone());
        Box::pin(async move {
            count.up();
            tells.notify_one();
            cx.sleep("nap", Duration::from_secs(1)).await?;
            Ok(json!("awake").into())
        })
    });
    runtime.register(tool).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    asleep.notified().await;
    assert_eq!(runtime.counts().running.iter().sum::<u64>(), 1, "it counts as running");
    let settled = tokio::spawn(submitted.settled());
    while !settled.is_finished() {
        clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    assert_eq!(end(&settled.await.unwrap().unwrap()), "c succeeded, 1 attempts");
    assert_eq!(bodies.get(), 1);
}

/// The keys that a tool has given out.
type Keys = Arc<Mutex<Vec<String>>>;

/// A tool of this class that asks the world outside, by returning `pending`.
fn asking(class: EffectClass, keys: &Keys) -> impl Tool {
    let keys = keys.clone();
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let spec = ToolSpec { output_schema: Some(schema), ..spec("t", class) };
    body(spec, move |_, cx| {
        let keys = keys.clone();
        Box::pin(async move {
            let key = cx.completion("person").await?;
            keys.lock().unwrap().push(key.to_string());
            Ok(Output::pending(key).within(DAY))
        })
    })
}

/// A stepped tool that asks the world outside in the middle of its body.
fn asks_inside(keys: &Keys) -> impl Tool {
    let keys = keys.clone();
    body(stepped(), move |_, cx| {
        let keys = keys.clone();
        Box::pin(async move {
            let key = cx.completion("person").await?;
            keys.lock().unwrap().push(key.to_string());
            let answer = cx.wait(&key, Some(DAY)).await?;
            Ok(json!(words(answer)).into())
        })
    })
}

/// An answer in a few words.
fn words(answer: Option<Completed>) -> String {
    match answer {
        Some(Completed::Ok(output)) => format!("ok {}", output.value),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn the_answer_to_a_pending_call_is_its_result() {
    for class in [EffectClass::Read, EffectClass::Keyed, EffectClass::Once, EffectClass::Stepped] {
        for (answer, expected) in [
            (Completed::ok(n(7)), "c succeeded, 1 attempts"),
            (Completed::ok(json!("no object")), "c failed/invalid_output, 1 attempts"),
            (Completed::error("no", "Ann says no"), "c failed/tool_failed, 1 attempts"),
        ] {
            let (runtime, _folder) = sqlite();
            let keys = Keys::default();
            runtime.register(asking(class, &keys)).unwrap();
            let submitted = runtime.submit("s", asked()).await.unwrap();
            waits_for(&runtime, "completion").await;
            assert_eq!(
                (runtime.counts().running, runtime.open().await.unwrap()[0].state),
                ([0; 2], "awaiting_completion")
            );
            let key = keys.lock().unwrap()[0].clone();
            runtime.complete(&key, answer.clone()).await.unwrap();
            assert_eq!(end(&submitted.settled().await.unwrap()), expected, "{class} {answer:?}");
            // The same again is fine, another is not.
            let again = runtime.complete(&key, answer).await;
            assert!(again.is_ok(), "{again:?}");
            let other = runtime.complete(&key, Completed::Cancelled).await;
            assert!(matches!(other, Err(AskError::Answered)), "{other:?}");
            assert_eq!(keys.lock().unwrap().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_answer_survives_a_restart_whoever_took_it() {
    for before in [true, false] {
        let (runtime, folder) = sqlite();
        let keys = Keys::default();
        runtime.register(asks_inside(&keys)).unwrap();
        drop(runtime.submit("s", asked()).await.unwrap());
        waits_for(&runtime, "completion").await;
        let key = keys.lock().unwrap()[0].clone();
        if before {
            // Left for the next owner.
            let ok = windlass::ask::completion(&Completed::ok(n(3)), &Default::default()).unwrap();
            let clock = windlass::time::SystemClock::default();
            windlass::ask::post_complete(&**runtime.store(), &key, &ok, &clock).await.unwrap();
        }
        drop(runtime);
        let runtime = reopen(&folder);
        runtime.register(asks_inside(&keys)).unwrap();
        runtime.resume().await.unwrap();
        if !before {
            runtime.complete(&key, Completed::ok(n(3))).await.unwrap();
        }
        let answer = run(&runtime, "s", asked()).await;
        assert_eq!(answer.calls[0].model_text(), r#"ok {"n":3}"#);
        let keys = keys.lock().unwrap().clone();
        assert!(keys.iter().all(|other| *other == key), "one name, one key");
    }
}

#[tokio::test]
async fn nobody_answers_in_time() {
    let (store, clock) = (windlass::store::memory::MemoryStore::new().unwrap(), ManualClock::default());
    let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..Config::new(store) });
    let keys = Keys::default();
    let inside = asks_inside(&keys);
    runtime.register(asking(EffectClass::Once, &keys)).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    waits_for(&runtime, "completion").await;
    clock.advance(DAY);
    assert_eq!(end(&submitted.settled().await.unwrap()), "c failed/timeout, 1 attempts");
    let key = keys.lock().unwrap()[0].clone();
    let late = runtime.complete(&key, Completed::ok(n(1))).await;
    assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");
    runtime.replace(inside).unwrap();
    let submitted = runtime.submit("other", asked()).await.unwrap();
    waits_for(&runtime, "completion").await;
    clock.advance(DAY);
    assert_eq!(submitted.settled().await.unwrap().calls[0].model_text(), "None");
}

#[tokio::test]
async fn an_answer_before_the_wait_is_kept() {
    let (runtime, _folder) = sqlite();
    let ((given, waits), taken) = (tokio::sync::watch::channel(false), Keys::default());
    let keys = taken.clone();
    let tool = body(stepped(), move |_, cx| {
        let (mut waits, keys) = (waits.clone(), keys.clone());
        Box::pin(async move {
            let key = cx.completion("early").await?;
            keys.lock().unwrap().push(key.to_string());
            waits.wait_for(|given| *given).await.unwrap();
            Ok(json!(words(cx.wait(&key, None).await?)).into())
        })
    });
    runtime.register(tool).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let key = loop {
        if let Some(key) = taken.lock().unwrap().first().cloned() {
            break key;
        }
        tokio::task::yield_now().await;
    };
    runtime.complete(&key, Completed::ok(n(1))).await.unwrap();
    given.send(true).unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(answer.calls[0].model_text(), r#"ok {"n":1}"#);
}

#[tokio::test]
async fn a_forged_key_is_no_key_and_pending_needs_one() {
    let (runtime, _folder) = sqlite();
    let keys = Keys::default();
    runtime.register(asking(EffectClass::Once, &keys)).unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    let call = waits_for(&runtime, "completion").await;
    let key = keys.lock().unwrap()[0].clone();
    let forged = format!("{}{}", &key[..51], if key.ends_with('0') { '1' } else { '0' });
    for bad in ["", "nonsense", &call, &forged] {
        let refused = runtime.complete(bad, Completed::ok(n(1))).await;
        assert!(matches!(refused, Err(AskError::NoKey)), "{bad:?}: {refused:?}");
    }
    runtime.cancel(Target::Call(&call), None).await.unwrap();
    runtime.idle().await;
    let late = runtime.complete(&key, Completed::ok(n(1))).await;
    assert!(matches!(late, Err(AskError::Over { .. })), "{late:?}");
    // The key of another call is no key of this one.
    let stolen: Arc<Mutex<Option<windlass::wait::CompletionKey>>> = Arc::default();
    let thief = stolen.clone();
    let tool = body(spec("other", EffectClass::Read), move |_, cx| {
        let stolen = thief.clone();
        Box::pin(async move {
            let theirs = stolen.lock().unwrap().take();
            match theirs {
                Some(key) => Ok(Output::pending(key)),
                None => {
                    let key = cx.completion("x").await?;
                    *stolen.lock().unwrap() = Some(key);
                    Ok(json!(1).into())
                }
            }
        })
    });
    runtime.register(tool).unwrap();
    let of = |key: &str| batch(key, vec![call_of("c", "other")]);
    assert_eq!(end(&run(&runtime, "s", of("k1")).await), "c succeeded, 1 attempts");
    assert_eq!(end(&run(&runtime, "s", of("k2")).await), "c failed/pending_without_key, 1 attempts");
}

fn call_of(id: &str, tool: &str) -> windlass::CallRequest {
    call(id, tool, n(1))
}
