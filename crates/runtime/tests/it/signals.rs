//! Events that a tool tells of, and signals that it is told: declared, checked, once, in order, over crashes.

use crate::inside::{asked, body, stepped};
use crate::rig::{Count, batch, call, config, end, memory, n, run, spec, sqlite, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::ask::{Signal, Target};
use windlass::error::{AskError, RegisterError, StepError};
use windlass::store::{MemoryStore, Store};
use windlass::{Config, EffectClass, Limits, Runtime, Tool, ToolSpec, inspect};
use windlass_core::handle::Handle;
use windlass_testkit::clock::ManualClock;
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};

/// Declares the event `sold` and the signals `item` and `stop`.
fn declares(spec: ToolSpec) -> ToolSpec {
    let item = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ToolSpec {
        emits: [("sold".into(), item.clone())].into(),
        signals: [("item".into(), item), ("stop".into(), json!({}))].into(),
        ..spec
    }
}

/// Collects so many items and tells of each; between two of them its body may be put aside.
fn collector(spec: ToolSpec, wanted: usize, bodies: &Count) -> impl Tool + use<> {
    let bodies = bodies.clone();
    body(declares(spec), move |_, cx| {
        let bodies = bodies.clone();
        Box::pin(async move {
            bodies.up();
            let mut items = Vec::new();
            while items.len() < wanted {
                let Some(item) = cx.on_signal("item", None).await? else { break };
                cx.emit(&format!("sold {}", items.len()), "sold", &item).await?;
                items.push(item["n"].clone());
            }
            Ok(json!(items).into())
        })
    })
}

async fn send(runtime: &Runtime, call: &str, number: u64) -> Result<(), AskError> {
    let payload = json!({ "n": number });
    runtime.signal(call, Signal { name: "item", payload: &payload, key: Some(&number.to_string()) }).await
}

/// The lines of a call's story that contain this.
async fn told(runtime: &Runtime, call: &str, what: &str) -> Vec<String> {
    let found = inspect::call(runtime.store(), Handle::parse(call).unwrap()).await.unwrap();
    let lines = found.map(|(_, lines)| lines).unwrap_or_default();
    lines.into_iter().map(|line| line.text).filter(|line| line.contains(what)).collect()
}

#[tokio::test]
async fn signals_come_in_order_and_once_whatever_the_class() {
    for class in [EffectClass::Stepped, EffectClass::Keyed, EffectClass::Once] {
        let (sqlite, _folder) = sqlite();
        for runtime in [memory(), sqlite] {
            let bodies = Count::default();
            runtime.register(collector(spec("t", class), 3, &bodies)).unwrap();
            let submitted = runtime.submit("s", asked()).await.unwrap();
            let handle = runtime.open().await.unwrap()[0].call.clone();
            for number in 1..=3 {
                send(&runtime, &handle, number).await.unwrap();
                match send(&runtime, &handle, number).await {
                    Ok(()) => {}
                    // The last one ends the call, maybe before it is sent again.
                    Err(AskError::Over { .. }) if number == 3 => {}
                    Err(other) => panic!("{class}, {number}: {other}"),
                }
            }
            let answer = submitted.settled().await.unwrap();
            assert_eq!(answer.calls[0].model_text(), "[1,2,3]", "{class}");
            assert!(matches!(send(&runtime, &handle, 4).await, Err(AskError::Over { .. })));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_waits_for_a_signal_is_put_aside_and_told_the_same_after_restarts() {
    let (opened, folder) = sqlite();
    drop(opened);
    let bodies = Count::default();
    let owner = || {
        let runtime = Runtime::new(config(&folder));
        runtime.register(collector(stepped(), 4, &bodies)).unwrap();
        runtime
    };
    let runtime = owner();
    drop(runtime.submit("s", asked()).await.unwrap());
    let handle = waits_for(&runtime, "signal").await;
    assert_eq!(
        (runtime.counts().running, runtime.open().await.unwrap()[0].state),
        ([0; 2], "awaiting_completion")
    );
    drop(runtime);
    for number in 1..=4 {
        let runtime = owner();
        runtime.resume().await.unwrap();
        send(&runtime, &handle, number).await.unwrap();
        if number < 4 {
            waits_for(&runtime, "signal").await;
            // Not the wait that was there before the signal.
            while told(&runtime, &handle, "came").await.len() < number as usize {
                tokio::task::yield_now().await;
            }
        }
        drop(runtime);
    }
    let runtime = owner();
    let answer = run(&runtime, "s", asked()).await;
    assert_eq!(answer.calls[0].model_text(), "[1,2,3,4]");
    let came = told(&runtime, &handle, "came").await;
    assert_eq!(came.len(), 4, "{came:?}");
    assert!(came[2].ends_with("the signal item (3) came: {\"n\":3}"), "{}", came[2]);
    let sold = told(&runtime, &handle, "emitted the event").await;
    assert_eq!(sold.len(), 4, "{sold:?}");
    assert!(sold[0].ends_with("sold 0: it emitted the event sold: {\"n\":1}"), "{}", sold[0]);
    assert!(bodies.get() >= 5, "it was put aside each time");
}

/// Its owner dies at any of its commits, before or after it: a signal is recorded and adopted in one, so it is received once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_that_its_owner_died_with_is_received_once() {
    let mut hit = 0;
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        for nth in 1..=8 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
            let bodies = Count::default();
            let owner = |store: Arc<dyn Store>| {
                let runtime = Runtime::new(Config { store, ..Config::new(MemoryStore::new().unwrap()) });
                runtime.register(collector(stepped(), 2, &bodies)).unwrap();
                runtime
            };
            let runtime = owner(store.clone());
            drop(runtime.submit("s", asked()).await.unwrap());
            let handle = waits_for(&runtime, "signal").await;
            drop(runtime);
            let faulty =
                FaultStore::new(store.clone(), FaultPlan::Nth(Method::Commit, nth, fault), FaultReach::Store);
            let runtime = owner(Arc::new(faulty.clone()));
            let sent = send(&runtime, &handle, 1).await;
            let session = store.session("s").await.unwrap().unwrap().no;
            // Until it has died, or has nothing more to write.
            let is_settled = async || {
                let waiting = store.inbound(session, 10).await.unwrap();
                waiting.is_empty()
                    && runtime.open().await.unwrap().iter().any(|open| open.state == "awaiting_completion")
            };
            while sent.is_ok() && faulty.happened().is_empty() && !is_settled().await {
                tokio::task::yield_now().await;
            }
            hit += faulty.happened().len();
            faulty.close();
            drop(runtime);
            let runtime = owner(store.clone());
            runtime.resume().await.unwrap();
            send(&runtime, &handle, 1).await.unwrap();
            send(&runtime, &handle, 2).await.unwrap();
            let answer = run(&runtime, "s", asked()).await;
            assert_eq!(answer.calls[0].model_text(), "[1,2]", "{fault:?} at commit {nth}");
            while !store.inbound(session, 10).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(hit >= 4, "only {hit} faults happened");
}

#[tokio::test]
async fn what_the_tool_does_not_take_is_refused_with_the_reason() {
    let limits = Limits { signals_max: 2, ..Limits::default() };
    let config = Config::new(MemoryStore::new().unwrap());
    let runtime = Runtime::new(Config { limits, ..config });
    let tool = body(declares(spec("t", EffectClass::Keyed)), |_, cx| {
        Box::pin(async move {
            cx.on_signal("stop", None).await?;
            Ok(json!("stopped").into())
        })
    });
    runtime.register(tool).unwrap();
    runtime
        .register(body(spec("deaf", EffectClass::Keyed), |_, cx| {
            Box::pin(async move {
                cx.stopping().await;
                Ok(json!(1).into())
            })
        }))
        .unwrap();
    let calls = vec![call("c", "t", n(1)), call("d", "deaf", n(1))];
    drop(runtime.submit("s", batch("k", calls)).await.unwrap());
    let open = runtime.open().await.unwrap();
    let [c, d] = [0, 1].map(|place| open[place].call.clone());
    let text = async |call: &str, name: &str, payload: Value| {
        let sent = runtime.signal(call, Signal { name, payload: &payload, key: Some("k") }).await;
        sent.map_err(|error| error.to_string())
    };
    let refused = text(&c, "itme", json!({"n": 1})).await.unwrap_err();
    assert!(refused.starts_with("the tool \"t\" takes no signal \"itme\", but \"item\";"), "{refused}");
    let refused = text(&d, "item", json!({"n": 1})).await.unwrap_err();
    assert!(refused.starts_with("the tool \"deaf\" takes no signal \"item\";"), "{refused}");
    let refused = text(&c, "item", json!({"n": "one"})).await.unwrap_err();
    assert!(refused.contains("/n"), "{refused}");
    let refused = text(&c, "item", json!({"n": 1, "text": "x".repeat(65_536)})).await.unwrap_err();
    assert!(refused.contains("65536 are kept"), "{refused}");
    let refused = text("nothing", "item", json!({"n": 1})).await.unwrap_err();
    assert!(refused.starts_with("there is no call \"nothing\""), "{refused}");
    text(&c, "item", json!({"n": 1})).await.unwrap();
    let refused = text(&c, "item", json!({"n": 2})).await.unwrap_err();
    assert!(refused.starts_with("another signal was sent to the call under this key"), "{refused}");
    // It receives none of them, and keeps no more than two.
    while send(&runtime, &c, 2).await.is_err() {}
    while told(&runtime, &c, "came").await.len() < 2 {
        tokio::task::yield_now().await;
    }
    match send(&runtime, &c, 3).await {
        Err(AskError::TooManySignals { max: 2 }) => {}
        other => panic!("{other:?}"),
    }
    runtime.cancel(Target::Session("s"), None).await.unwrap();
}

/// A signal that comes after the deadline of a wait is received by the next one, and a replay is told the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_ended_without_a_signal_stays_so() {
    let (opened, folder) = sqlite();
    drop(opened);
    let clock = ManualClock::default();
    let owner = || {
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
        let tool = body(declares(stepped()), |_, cx| {
            Box::pin(async move {
                let first = cx.on_signal("stop", Some(Duration::from_secs(60))).await?;
                let second = cx.on_signal("stop", None).await?;
                Ok(json!([first, second]).into())
            })
        });
        runtime.register(tool).unwrap();
        runtime
    };
    let runtime = owner();
    drop(runtime.submit("s", asked()).await.unwrap());
    let handle = waits_for(&runtime, "signal").await;
    clock.advance(Duration::from_secs(61));
    while told(&runtime, &handle, "did not come in time").await.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(runtime);
    let runtime = owner();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    let stop = json!("now");
    runtime.signal(&handle, Signal { name: "stop", payload: &stop, key: None }).await.unwrap();
    let answer = submitted.settled().await.unwrap();
    assert_eq!(answer.calls[0].model_text(), r#"[null,"now"]"#);
}

#[tokio::test]
async fn an_event_that_is_not_declared_or_does_not_fit_is_an_error_to_the_tool() {
    let runtime = memory();
    let tool = body(declares(stepped()), |_, cx| {
        Box::pin(async move {
            let told = |said: Result<(), StepError>| said.err().map(|error| error.to_string());
            Ok(json!([
                told(cx.emit("a", "bought", json!({"n": 1})).await.map(drop)),
                told(cx.emit("b", "sold", json!({"n": "one"})).await.map(drop)),
                told(cx.emit("c", "sold", json!({"n": 1})).await.map(drop)),
                told(cx.emit("c", "sold", json!({"n": 1})).await.map(drop)),
                told(cx.on_signal("sold", None).await.map(drop)),
            ])
            .into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    let told: Vec<Option<String>> = serde_json::from_str(&answer.calls[0].model_text()).unwrap();
    let [undeclared, invalid, fine, twice, signal] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        undeclared.as_deref(),
        Some("the tool declares no event \"bought\"; add it to `emits` of its spec")
    );
    assert!(invalid.as_deref().unwrap().contains("/n"), "{invalid:?}");
    assert_eq!(*fine, None);
    assert!(twice.as_deref().unwrap().contains("used twice"), "{twice:?}");
    assert!(signal.as_deref().unwrap().contains("declares no signal"), "{signal:?}");
    assert_eq!(end(&answer), "c succeeded, 1 attempts");
}

#[test]
fn declarations_are_checked_at_registration() {
    let spec = |kind: &str, schema: Value| ToolSpec {
        emits: [(kind.to_string(), schema)].into(),
        ..crate::rig::spec("t", EffectClass::Read)
    };
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _inside = tokio.enter();
    let runtime = memory();
    let register = |spec| runtime.register(body(spec, |_, _| Box::pin(async { Ok(json!(1).into()) })));
    assert!(matches!(register(spec("a b", json!({}))), Err(RegisterError::Name(_))));
    let refused = register(spec("a", json!({"type": "nonsense"}))).unwrap_err();
    assert!(refused.to_string().starts_with("the payload schema of tool t.emits.a is refused"), "{refused}");
    let many = (0..65).map(|no| (format!("k{no}"), json!({}))).collect();
    let many = ToolSpec { signals: many, ..crate::rig::spec("t", EffectClass::Read) };
    assert!(matches!(register(many), Err(RegisterError::Rules { place: "signals", value: 65, .. })));
}
