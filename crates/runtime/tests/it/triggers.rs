//! Triggers: what events start, and what becomes of that.

mod kills;
mod rules;

use crate::rig::{batch, call, run, spec, states};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use windlass::store::{MemoryStore, Store};
use windlass::tasks::{NewTask, Task};
use windlass::triggers::NewTrigger;
use windlass::{
    CallAnswer, Config, Cx, EffectClass, Flags, Limits, RetryRule, Runtime, Tool, ToolError, ToolSpec,
    inspect, tool_fn,
};
use windlass_testkit::clock::ManualClock;

/// A shop: what it sells it tells of, and what is to be done then is done by tools that run in the background.
pub struct Shop {
    pub store: Arc<dyn Store>,
    pub clock: ManualClock,
    pub limits: Limits,
    /// The deliveries, as requested.
    pub delivered: Arc<Mutex<Vec<Value>>>,
    /// How often something was sold that could not be.
    pub tries: Arc<Mutex<u32>>,
}

impl Shop {
    pub fn new() -> Shop {
        Shop {
            store: Arc::new(MemoryStore::new().unwrap()),
            clock: ManualClock::default(),
            limits: Limits::default(),
            delivered: Arc::default(),
            tries: Arc::default(),
        }
    }

    pub fn owner(&self) -> Runtime {
        self.owner_on(self.store.clone())
    }

    pub fn owner_on(&self, store: Arc<dyn Store>) -> Runtime {
        let unused = Config::new(MemoryStore::new().unwrap());
        let (clock, limits) = (Arc::new(self.clock.clone()), self.limits.clone());
        let runtime = Runtime::new(Config { store, clock, limits, ..unused });
        for tool in [self.sell(), self.deliver(), self.relay(), self.flaky()] {
            runtime.register_shared(tool).unwrap();
        }
        runtime
    }

    /// Tells of every item that it sells, and sleeps in between if it is asked to.
    fn sell(&self) -> Arc<dyn Tool> {
        let spec = ToolSpec { emits: kinds(), ..spec("sell", EffectClass::Stepped) };
        Arc::new(tool_fn(spec, |args, cx: &Cx| {
            let cx = cx.clone();
            async move {
                let items = args["items"].as_array().cloned().unwrap_or_default();
                for (place, item) in items.iter().enumerate() {
                    cx.emit(&format!("sold {place}"), "sold", item).await?;
                    if let Some(ms) = args["rest_ms"].as_u64() {
                        cx.sleep(&format!("rest {place}"), Duration::from_millis(ms)).await?;
                    }
                }
                Ok(json!(items.len()).into())
            }
        }))
    }

    fn deliver(&self) -> Arc<dyn Tool> {
        let properties = json!({ "order": {}, "to": { "type": "string" } });
        let input = json!({ "type": "object", "properties": properties, "additionalProperties": false });
        let delivered = self.delivered.clone();
        let spec = ToolSpec { input_schema: Some(input), ..background("deliver", EffectClass::Keyed) };
        Arc::new(tool_fn(spec, move |args: Value, _: &Cx| {
            delivered.lock().unwrap().push(args.clone());
            async move { Ok(args.into()) }
        }))
    }

    /// Tells of the same again: by itself, by a call inside, or by a task that it starts.
    fn relay(&self) -> Arc<dyn Tool> {
        let spec = ToolSpec { emits: kinds(), ..background("relay", EffectClass::Stepped) };
        Arc::new(tool_fn(spec, |args: Value, cx: &Cx| {
            let cx = cx.clone();
            async move {
                let sale = json!({ "items": [args["order"]] });
                match args["by"].as_str() {
                    Some("call") => drop(cx.call("again", "sell", sale).await?.value::<Value>()?),
                    Some("task") => {
                        let again = json!({ "order": args["order"] });
                        cx.spawn("again", "relay", &again, NewTask::default()).await?;
                    }
                    _ => drop(cx.emit("again", "sold", &args["order"]).await?),
                }
                Ok(json!("told").into())
            }
        }))
    }

    /// Tells of a sale and fails, until the third time.
    fn flaky(&self) -> Arc<dyn Tool> {
        let retry = RetryRule { attempts: Some(3), base_ms: Some(1), cap_ms: Some(1) };
        let spec = ToolSpec { emits: kinds(), retry, ..spec("flaky", EffectClass::Keyed) };
        let tries = self.tries.clone();
        Arc::new(tool_fn(spec, move |_, cx: &Cx| {
            let (cx, tries) = (cx.clone(), tries.clone());
            async move {
                cx.emit("sold", "sold", json!({ "item": "door" })).await?;
                let tried = {
                    let mut tries = tries.lock().unwrap();
                    *tries += 1;
                    *tries
                };
                if tried < 3 {
                    Err(ToolError::new("not yet").safe_to_retry())
                } else {
                    Ok(json!(tried).into())
                }
            }
        }))
    }

    /// Whatever comes of it while the clock goes on.
    async fn as_time_passes<T>(&self, what: impl Future<Output = T>) -> T {
        let passing = async {
            loop {
                self.clock.advance(Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            came = what => came,
            () = passing => unreachable!("it goes on for ever"),
        }
    }

    pub fn delivered(&self) -> Vec<Value> {
        self.delivered.lock().unwrap().clone()
    }
}

fn kinds() -> BTreeMap<String, Value> {
    BTreeMap::from([("sold".to_string(), json!({ "type": "object" }))])
}

fn background(name: &str, class: EffectClass) -> ToolSpec {
    let flags = Flags { background: true, ..Flags::default() };
    ToolSpec { flags, claims: Some(Vec::new()), ..spec(name, class) }
}

/// On every sale the order is delivered.
pub fn on_sale(id: &str, tool: &str) -> NewTrigger {
    NewTrigger {
        id: Some(id.into()),
        event: "sold".into(),
        tool: tool.into(),
        event_as: Some("order".into()),
        ..NewTrigger::default()
    }
}

pub async fn subscribe(runtime: &Runtime, new: NewTrigger) {
    assert!(runtime.triggers("s").create(new).await.unwrap().1);
}

pub async fn sell(runtime: &Runtime, key: &str, items: Value) -> CallAnswer {
    let answer = run(runtime, "s", batch(key, vec![call("c", "sell", json!({ "items": items }))])).await;
    assert_eq!(states(&answer), "c succeeded");
    answer.calls.into_iter().next().unwrap()
}

/// The tasks of the session, oldest first.
pub async fn tasks(runtime: &Runtime) -> Vec<Task> {
    let mut tasks = runtime.tasks("s").list(None, 1_000).await.unwrap();
    tasks.reverse();
    tasks
}

/// `trigger count` of each.
pub async fn counts(runtime: &Runtime) -> String {
    let triggers = runtime.triggers("s").list().await.unwrap();
    let counts = triggers.iter().map(|trigger| format!("{} {}", trigger.id, trigger.count));
    counts.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
async fn an_event_starts_a_task_for_each_trigger_that_takes_it() {
    let shop = Shop::new();
    let runtime = shop.owner();
    let (event_as, title) = (None, Some("Tell Rome".to_string()));
    let filter = json!({ "/to/city": "Rome" }).as_object().unwrap().clone();
    let args = json!({ "to": "Rome" });
    let rome = NewTrigger { filter, args, event_as, title, ..on_sale("rome", "deliver") };
    subscribe(&runtime, rome).await;
    subscribe(&runtime, on_sale("all", "deliver")).await;
    let (door, hinge) = (json!({"item": "door", "to": {"city": "Rome"}}), json!({"item": "hinge"}));
    let answer = sell(&runtime, "k", json!([door, hinge])).await;
    runtime.idle().await;
    let delivered = shop.delivered();
    assert_eq!(delivered.len(), 3);
    for expected in [json!({"order": door}), json!({"to": "Rome"}), json!({"order": hinge})] {
        assert!(delivered.contains(&expected), "{expected} of {delivered:?}");
    }
    let started: Vec<(String, String)> = answer
        .triggered()
        .into_iter()
        .map(|(trigger, task)| (trigger.to_string(), task.to_string()))
        .collect();
    let tasks = tasks(&runtime).await;
    let seller = answer.handle().to_string();
    for task in &tasks {
        assert_eq!((task.by, task.state, task.starter.as_ref()), ("triggered", "succeeded", Some(&seller)));
    }
    let listed: Vec<(String, String)> =
        tasks.iter().map(|task| (task.trigger.clone().unwrap(), task.task.clone())).collect();
    assert_eq!(started, listed, "the answer lists what was triggered");
    let titles: Vec<&str> = tasks.iter().map(|task| task.title.as_str()).collect();
    assert_eq!(titles, ["deliver", "Tell Rome", "deliver"]);
    let shown = serde_json::to_value(&answer).unwrap();
    assert_eq!(shown["triggered"][1], json!({"trigger": "rome", "task": tasks[1].task}));
    assert_eq!(counts(&runtime).await, "all 2, rome 1");
    assert_eq!(runtime.inbox("s").list(None, 100).await.unwrap().len(), 3, "the session is told of each");
    let again = sell(&runtime, "k", json!([door, hinge])).await;
    assert_eq!(serde_json::to_value(again.triggered().len()).unwrap(), 3, "a recorded answer tells the same");
    assert_eq!(counts(&runtime).await, "all 2, rome 1");
}

#[tokio::test]
async fn an_answer_says_nothing_of_triggers_where_there_are_none() {
    let shop = Shop::new();
    let runtime = shop.owner();
    let filter = json!({ "/item": "door" }).as_object().unwrap().clone();
    subscribe(&runtime, NewTrigger { filter, ..on_sale("doors", "deliver") }).await;
    let answer = sell(&runtime, "k", json!([{"item": "hinge"}])).await;
    assert!(serde_json::to_value(&answer).unwrap().get("triggered").is_none());
    assert_eq!(tasks(&runtime).await.len(), 0);
}

#[tokio::test]
async fn a_body_that_runs_again_triggers_nothing_twice() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("all", "deliver")).await;
    let args = json!({ "items": [{"item": "door"}, {"item": "hinge"}], "rest_ms": 100 });
    let request = batch("k", vec![call("c", "sell", args)]);
    let submitted = runtime.submit("s", request.clone()).await.unwrap();
    crate::rig::waits_for(&runtime, "sleep").await;
    assert_eq!(counts(&runtime).await, "all 1");
    // A delivery whose end is not recorded is made again, as its class allows.
    while tasks(&runtime).await.iter().all(|task| task.state != "succeeded") {
        tokio::task::yield_now().await;
    }
    drop((submitted, runtime));
    let next = shop.owner();
    next.resume().await.unwrap();
    let submitted = next.submit("s", request).await.unwrap();
    let answer = shop.as_time_passes(submitted.settled()).await.unwrap();
    assert_eq!(states(&answer), "c succeeded");
    next.idle().await;
    assert_eq!(answer.calls[0].triggered().len(), 2);
    assert_eq!(counts(&next).await, "all 2");
    let mut delivered: Vec<String> = shop.delivered().iter().map(Value::to_string).collect();
    delivered.sort();
    assert_eq!(delivered, [r#"{"order":{"item":"door"}}"#, r#"{"order":{"item":"hinge"}}"#]);
}

#[tokio::test]
async fn what_is_tried_again_triggers_nothing_twice() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("all", "deliver")).await;
    let submitted = runtime.submit("s", batch("k", vec![call("c", "flaky", json!({}))])).await.unwrap();
    let answer = shop.as_time_passes(submitted.settled()).await.unwrap();
    assert_eq!(states(&answer), "c succeeded");
    runtime.idle().await;
    assert_eq!((*shop.tries.lock().unwrap(), shop.delivered().len()), (3, 1));
}

#[tokio::test]
async fn a_circle_of_events_ends_where_nesting_does() {
    for (args, started) in [
        // Each event is one deeper than the last.
        (json!({}), 9),
        // The call inside lies deeper too, so each round is two.
        (json!({ "by": "call" }), 5),
    ] {
        let shop = Shop::new();
        let runtime = shop.owner();
        subscribe(&runtime, NewTrigger { args: args.clone(), ..on_sale("circle", "relay") }).await;
        sell(&runtime, "k", json!([{"item": "door"}])).await;
        runtime.idle().await;
        let tasks = tasks(&runtime).await;
        let failed: Vec<&Task> = tasks.iter().filter(|task| task.state == "failed").collect();
        assert_eq!((tasks.len(), failed.len()), (started, 1), "{args}");
        let told = runtime.tasks("s").get(&failed[0].task).await.unwrap().1;
        let code = told.failure().unwrap().code.to_string();
        assert_eq!((code.as_str(), told.call().attempts), ("nested_too_deep", 0), "{args}");
        assert_eq!(runtime.inbox("s").list(None, 100).await.unwrap().len(), started, "each is told of");
    }
}

#[tokio::test]
async fn a_task_that_a_triggered_call_starts_does_not_begin_anew() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, NewTrigger { args: json!({ "by": "task" }), ..on_sale("circle", "relay") }).await;
    sell(&runtime, "k", json!([{"item": "door"}])).await;
    runtime.idle().await;
    let tasks = tasks(&runtime).await;
    let by = |by: &str| tasks.iter().filter(|task| task.by == by).count();
    assert_eq!((by("triggered"), by("spawned")), (9, 8), "the last one is refused");
}

#[tokio::test]
async fn what_was_removed_starts_nothing_and_the_next_owner_knows_the_rest() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("all", "deliver")).await;
    subscribe(&runtime, on_sale("more", "deliver")).await;
    sell(&runtime, "a", json!([{"item": 1}])).await;
    assert!(runtime.triggers("s").remove("more").await.unwrap());
    assert!(!runtime.triggers("s").remove("more").await.unwrap());
    sell(&runtime, "b", json!([{"item": 2}])).await;
    runtime.idle().await;
    assert_eq!((counts(&runtime).await.as_str(), shop.delivered().len()), ("all 2", 3));
    drop(runtime);
    let next = shop.owner();
    sell(&next, "c", json!([{"item": 3}])).await;
    next.idle().await;
    assert_eq!((counts(&next).await.as_str(), shop.delivered().len()), ("all 3", 4));
}

#[tokio::test]
async fn events_and_removals_at_once_agree_on_what_was_started() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("all", "deliver")).await;
    let selling = async {
        let mut started = 0;
        for round in 0..20 {
            started += sell(&runtime, &format!("k{round}"), json!([{"item": round}])).await.triggered().len();
        }
        started
    };
    let removing = async {
        while shop.delivered().len() < 5 {
            tokio::task::yield_now().await;
        }
        runtime.triggers("s").remove("all").await.unwrap();
        // Whatever is told of from now on starts nothing.
        sell(&runtime, "after", json!([{"item": "late"}])).await.triggered().len()
    };
    let (started, after) = tokio::join!(selling, removing);
    runtime.idle().await;
    assert_eq!(after, 0);
    assert!((5..20).contains(&started), "{started}");
    assert_eq!(tasks(&runtime).await.len(), started);
}

#[tokio::test]
async fn what_an_event_starts_is_never_refused_for_want_of_room() {
    let limits = Limits { calls_queued_max: 1, tasks_running_max: 1, ..Limits::default() };
    let shop = Shop { limits, ..Shop::new() };
    let runtime = shop.owner();
    for id in ["a", "b", "c", "d"] {
        subscribe(&runtime, on_sale(id, "deliver")).await;
    }
    let answer = sell(&runtime, "k", json!([{"item": "door"}])).await;
    runtime.idle().await;
    assert_eq!((answer.triggered().len(), shop.delivered().len()), (4, 4));
}

#[tokio::test]
async fn an_event_is_told_before_what_it_starts() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("all", "deliver")).await;
    let answer = sell(&runtime, "k", json!([{"item": "door"}])).await;
    runtime.idle().await;
    let story = async |call| inspect::call(&shop.store, call).await.unwrap().unwrap().1;
    let (emitted, opened) = (story(answer.handle()).await, story(answer.triggered()[0].1).await);
    let line = emitted.iter().find(|line| line.kind == "emitted").unwrap();
    assert!(line.text.ends_with(", which started 1 task"), "{}", line.text);
    assert_eq!(opened[0].entry.0, line.entry.0 + 1, "they are one change");
    assert_eq!(opened[0].at, line.at);
}
