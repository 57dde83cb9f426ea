//! Key-value pairs: of the host, inside a call, over a crash and over a replay, and what is too much.

use crate::inside::{asked, body, stepped};
use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, end, memory, reopen, run, spec, sqlite, waits_for,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::error::{PairError, StepError};
use windlass::sessions::PairList;
use windlass::{Config, EffectClass, Limits, RetryRule, Runtime, Tool, ToolError, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// A value.
fn n(value: u64) -> Value {
    json!(value)
}

async fn value(runtime: &Runtime, key: &str) -> Option<Value> {
    runtime.kv("s").get(key).await.unwrap().map(|pair| pair.value)
}

#[tokio::test]
async fn the_host_reads_writes_and_lists_pairs() {
    let (sqlite, folder) = sqlite();
    for runtime in [memory(), sqlite] {
        let pairs = runtime.kv("s");
        assert_eq!(pairs.get("a").await.unwrap(), None, "there is not even a session");
        assert_eq!(pairs.list(PairList::default()).await.unwrap(), []);
        let first = pairs.set("a", &json!({"x": 1})).await.unwrap();
        let second = pairs.set_if("a", &json!(2), first).await.unwrap();
        match pairs.set_if("a", &json!(3), first).await {
            Err(PairError::Changed { now }) => assert_eq!(now, second),
            other => panic!("{other:?}"),
        }
        assert!(matches!(pairs.set_if("b", &json!(1), 7).await, Err(PairError::Changed { now: 0 })));
        let found = pairs.get("a").await.unwrap().unwrap();
        assert_eq!((found.value, found.generation), (json!(2), second));
        for key in ["b/2", "b/1", "c"] {
            pairs.set_if(key, &json!(null), 0).await.unwrap();
        }
        let keys = async |list| {
            let found = pairs.list(list).await.unwrap();
            found.into_iter().map(|pair| pair.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(PairList::default()).await, ["a", "b/1", "b/2", "c"]);
        assert_eq!(keys(PairList { prefix: "b/", ..PairList::default() }).await, ["b/1", "b/2"]);
        let after = PairList { after: Some("a"), limit: Some(2), ..PairList::default() };
        assert_eq!(keys(after).await, ["b/1", "b/2"]);
        for _again in 0..2 {
            pairs.delete("a").await.unwrap();
            assert_eq!(pairs.get("a").await.unwrap(), None);
        }
        assert!(pairs.set("a", &json!(1)).await.unwrap() > second, "it is not the pair that was deleted");
        assert_eq!(runtime.kv("t").get("a").await.unwrap(), None, "another session has its own");
    }
    assert_eq!(value(&reopen(&folder), "a").await, Some(json!(1)));
}

#[tokio::test]
async fn too_much_is_refused_and_says_what_to_do() {
    let limits = Limits { pairs_max: 3, ..Limits::default() };
    let (key, large) = ("k".repeat(256), json!("v".repeat((64 << 10) - 2)));
    let (opened, folder) = sqlite();
    drop(opened);
    for config in [Config::new(windlass::store::MemoryStore::new().unwrap()), config(&folder)] {
        let runtime = Runtime::new(Config { limits: limits.clone(), ..config });
        let pairs = runtime.kv("s");
        pairs.set(&key, &large).await.unwrap();
        assert_eq!(value(&runtime, &key).await.as_ref(), Some(&large));
        for (key, value) in [("", n(1)), (&format!("{key}k"), n(1)), ("a\0b", n(1))] {
            let refused = pairs.set(key, &value).await.unwrap_err();
            assert!(refused.to_string().starts_with("the key of a pair has 1 to 256 bytes"), "{refused}");
        }
        let refused = pairs.set("a", &json!("v".repeat((64 << 10) - 1))).await.unwrap_err();
        assert!(refused.to_string().contains("65537 bytes as JSON, and 65536 are kept"), "{refused}");
        pairs.set("a", &n(1)).await.unwrap();
        pairs.set("b", &n(1)).await.unwrap();
        for _again in 0..2 {
            assert!(matches!(pairs.set("c", &n(1)).await, Err(PairError::Full { max: 3 })));
            pairs.set("b", &n(2)).await.unwrap();
        }
        pairs.delete("nothing").await.unwrap();
        assert!(pairs.set("c", &n(1)).await.is_err());
        pairs.delete("a").await.unwrap();
        pairs.set("c", &n(1)).await.unwrap();
        assert!(pairs.set("d", &n(1)).await.is_err());
    }
}

/// Counts up, and sleeps after that.
fn counter(spec: ToolSpec, bodies: &Count) -> impl Tool + use<> {
    let bodies = bodies.clone();
    body(spec, move |_, cx| {
        let bodies = bodies.clone();
        Box::pin(async move {
            bodies.up();
            let before = cx.kv().get("look", "count").await?;
            let count = before.as_ref().and_then(|pair| pair.value.as_u64()).unwrap_or(0);
            cx.kv().set("count", "count", count + 1).await?;
            let keys = cx.kv().list("keys", PairList::default()).await?;
            cx.sleep("nap", Duration::from_secs(60)).await?;
            cx.kv().delete("tidy", "scratch").await?;
            let keys: Vec<String> = keys.into_iter().map(|pair| pair.key).collect();
            Ok(json!([count, keys]).into())
        })
    })
}

/// A replay reads the recorded values, and overwrites no later write.
#[tokio::test]
async fn a_replay_sees_what_was_seen_and_writes_nothing_twice() {
    let (opened, folder) = sqlite();
    drop(opened);
    let clock = ManualClock::default();
    let owner = || Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
    let bodies = Count::default();
    let runtime = owner();
    runtime.register(counter(stepped(), &bodies)).unwrap();
    runtime.kv("s").set("scratch", &n(1)).await.unwrap();
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "sleep").await;
    assert_eq!(value(&runtime, "count").await, Some(n(1)));
    runtime.kv("s").set("count", &n(41)).await.unwrap();
    runtime.kv("s").set("later", &n(0)).await.unwrap();
    drop(runtime);
    let runtime = owner();
    runtime.register(counter(stepped(), &bodies)).unwrap();
    let submitted = runtime.submit("s", asked()).await.unwrap();
    waits_for(&runtime, "sleep").await;
    clock.advance(Duration::from_secs(61));
    let answer = submitted.settled().await.unwrap();
    assert_eq!(answer.calls[0].model_text(), r#"[0,["count","scratch"]]"#);
    assert_eq!(bodies.get(), 2);
    assert_eq!(value(&runtime, "count").await, Some(n(41)), "the later writer's value stands");
    assert_eq!(value(&runtime, "scratch").await, None);
}

/// The pair and what is recorded of it are one: whoever dies right behind it has written it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_is_written_once_over_a_crash() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let write = |spec, begun: Option<crate::rig::Begun>| {
        body(spec, move |_, cx| {
            let begun = begun.clone();
            Box::pin(async move {
                let before = cx.kv().get("look", "n").await?.map_or(0, |pair| pair.value.as_u64().unwrap());
                cx.kv().set("write", "n", before + 1).await?;
                if let Some(begun) = &begun {
                    begun.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(json!(before).into())
            })
        })
    };
    for class in [EffectClass::Stepped, EffectClass::Keyed] {
        let request = || batch(class.as_str(), vec![call("c", "t", json!({}))]);
        die_in_an_attempt(&folder, request(), move |config, begun| {
            let runtime = Runtime::new(config);
            runtime.register(write(spec("t", class), Some(begun))).unwrap();
            runtime
        })
        .await;
        let runtime = reopen(&folder);
        runtime.register(write(spec("t", class), None)).unwrap();
        let before = u64::from(class == EffectClass::Keyed);
        assert_eq!(value(&runtime, "n").await, Some(n(before + 1)));
        let answer = run(&runtime, "s", request()).await;
        assert_eq!(answer.calls[0].model_text(), before.to_string(), "{class}");
        assert_eq!(value(&runtime, "n").await, Some(n(before + 1)), "{class}");
    }
}

/// Of many calls that count at the same time, with what they read, none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compare_and_set_loses_no_count() {
    let (runtime, _folder) = sqlite();
    let retry = RetryRule { attempts: Some(100), base_ms: Some(0), ..RetryRule::default() };
    let spec = ToolSpec { retry, claims: Some(vec![]), ..spec("t", EffectClass::Keyed) };
    let tool = body(spec, |_, cx| {
        Box::pin(async move {
            let attempt = cx.attempt();
            let before = cx.kv().get(&format!("look {attempt}"), "n").await?;
            let count = before.as_ref().map_or(0, |pair| pair.value.as_u64().unwrap()) + 1;
            let generation = before.map_or(0, |pair| pair.generation);
            match cx.kv().set_if(&format!("count {attempt}"), "n", count, generation).await? {
                true => Ok(json!(count).into()),
                false => Err(ToolError::new("somebody else counted").safe_to_retry()),
            }
        })
    });
    runtime.register(tool).unwrap();
    let calls = (0..20).map(|no| call(&format!("c{no}"), "t", json!({ "n": no }))).collect();
    let answer = run(&runtime, "s", batch("k", calls)).await;
    let mut counts: Vec<u64> = answer
        .calls
        .iter()
        .map(|call| call.model_text().parse().unwrap_or_else(|_| panic!("{}", end(&answer))))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<_>>());
    assert_eq!(value(&runtime, "n").await, Some(n(20)));
}

#[tokio::test]
async fn what_a_body_must_not_do_with_pairs_it_is_told() {
    let runtime = memory();
    let tool = body(stepped(), |_, cx| {
        Box::pin(async move {
            let told = |error: Result<(), StepError>| error.map_err(|error| error.to_string());
            let mut all = vec![
                told(cx.kv().set(" ", "a", 1).await),
                told(cx.kv().set("windlass.mine", "a", 1).await),
                told(cx.kv().set("key", "", 1).await),
                told(cx.kv().set("fine", "a", 1).await),
                told(cx.kv().set("fine", "a", 1).await),
            ];
            all.push(told(cx.kv().get("fine", "a").await.map(drop)));
            Ok(json!(all.into_iter().map(|told| told.err()).collect::<Vec<_>>()).into())
        })
    });
    runtime.register(tool).unwrap();
    let answer = run(&runtime, "s", asked()).await;
    let told: Vec<Option<String>> = serde_json::from_str(&answer.calls[0].model_text()).unwrap();
    let begins: Vec<Option<&str>> =
        told.iter().map(|told| told.as_deref().and_then(|told| told.get(..30))).collect();
    assert_eq!(
        begins,
        [
            Some("an operation has a blank name;"),
            Some("the name \"windlass.mine\" begin"),
            Some("the input or output of \"key\" c"),
            None,
            Some("the name \"fine\" is used twice;"),
            Some("the name \"fine\" is used twice;"),
        ]
    );
}

/// A body that does something else under a name than is recorded there is told, and changes nothing.
#[tokio::test]
async fn a_body_that_diverges_is_told() {
    let (opened, folder) = sqlite();
    drop(opened);
    let clock = ManualClock::default();
    let owner = |value: u64| {
        let runtime = Runtime::new(Config { clock: Arc::new(clock.clone()), ..config(&folder) });
        let tool = body(stepped(), move |_, cx| {
            Box::pin(async move {
                cx.kv().set("write", "a", value).await?;
                cx.sleep("nap", Duration::from_secs(60)).await?;
                Ok(json!(value).into())
            })
        });
        runtime.register(tool).unwrap();
        runtime
    };
    let runtime = owner(1);
    drop(runtime.submit("s", asked()).await.unwrap());
    waits_for(&runtime, "sleep").await;
    drop(runtime);
    let runtime = owner(2);
    let submitted = runtime.submit("s", asked()).await.unwrap();
    waits_for(&runtime, "sleep").await;
    clock.advance(Duration::from_secs(61));
    let answer = submitted.settled().await.unwrap();
    assert_eq!(end(&answer), "c failed/internal, 1 attempts");
    assert_eq!(value(&runtime, "a").await, Some(n(1)));
}
