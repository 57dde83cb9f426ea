//! Rules of a trigger.

use super::{Shop, on_sale, subscribe};
use crate::rig::{quick, returns};
use serde_json::{Map, Value, json};
use windlass::error::TriggerError;
use windlass::triggers::{NewTrigger, Triggers};
use windlass::{EffectClass, Limits};

fn filter(conditions: &Value) -> Map<String, Value> {
    conditions.as_object().unwrap().clone()
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_the_reason() {
    let shop = Shop::new();
    let runtime = shop.owner();
    runtime.register(returns(quick("direct", EffectClass::Read), Ok(json!(1)))).unwrap();
    let plain = || NewTrigger { event_as: None, ..on_sale("t", "deliver") };
    let cases = [
        (
            NewTrigger { event: "solt".into(), ..plain() },
            "no tool tells of the event \"solt\"; did you mean \"sold\"?",
        ),
        (NewTrigger { event: "rain".into(), ..plain() }, "name one that a tool lists under `emits`"),
        (NewTrigger { tool: "delivr".into(), ..plain() }, "deliver"),
        (NewTrigger { tool: "direct".into(), ..plain() }, "does not run in the background"),
        (NewTrigger { tool: "direct".into(), ..on_sale("t", "") }, "does not run in the background"),
        (NewTrigger { args: json!({ "to": 1 }), ..plain() }, "/to"),
        (NewTrigger { args: json!([1]), ..plain() }, "an object"),
        (NewTrigger { event_as: Some("event".into()), ..plain() }, "takes no argument \"event\""),
        (
            NewTrigger { args: json!({ "order": 1 }), ..on_sale("t", "deliver") },
            "remove it from the arguments",
        ),
        (NewTrigger { filter: filter(&json!({ "item": 1 })), ..plain() }, "not a JSON pointer"),
        (NewTrigger { id: Some("a/b".into()), ..plain() }, "the id of a trigger"),
        (NewTrigger { title: Some("a\nb".into()), ..plain() }, "control characters"),
        (NewTrigger { args: json!({ "to": "x".repeat(64 << 10) }), ..plain() }, "are kept"),
    ];
    for (new, says) in cases {
        let refused = runtime.triggers("s").create(new).await.unwrap_err();
        let is_refused = matches!(refused, TriggerError::Invalid { .. } | TriggerError::Refused(_));
        assert!(is_refused, "{refused:?}");
        assert!(refused.to_string().contains(says), "{says}: {refused}");
    }
    assert!(runtime.triggers("s").list().await.unwrap().is_empty());
    assert!(shop.store.session("s").await.unwrap().is_none(), "nobody opened it");
}

#[tokio::test]
async fn the_same_again_is_fine_and_another_is_not() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("t", "deliver")).await;
    let (there, is_new) = runtime.triggers("s").create(on_sale("t", "deliver")).await.unwrap();
    assert_eq!((there.id.as_str(), is_new), ("t", false));
    for other in [
        NewTrigger { event_as: None, ..on_sale("t", "deliver") },
        NewTrigger { filter: filter(&json!({ "/a": 1 })), ..on_sale("t", "deliver") },
        on_sale("t", "relay"),
    ] {
        let refused = runtime.triggers("s").create(other).await.unwrap_err();
        assert!(matches!(refused, TriggerError::Exists { .. }), "{refused:?}");
    }
    let (made, is_new) =
        runtime.triggers("s").create(NewTrigger { id: None, ..on_sale("", "deliver") }).await.unwrap();
    assert!(is_new && made.id.len() == 16, "{made:?}");
}

#[tokio::test]
async fn a_session_has_so_many_and_no_more() {
    let shop = Shop::new();
    let runtime = shop.owner();
    let max = Limits::default().triggers_max;
    assert_eq!(max, 32);
    let makes = (0..max + 8).map(|no| {
        let triggers = runtime.triggers("s");
        async move { triggers.create(on_sale(&format!("t{no}"), "deliver")).await }
    });
    let mut full = 0;
    for made in futures_join(makes).await {
        match made {
            Ok((_, is_new)) => assert!(is_new),
            Err(TriggerError::Full { max: 32 }) => full += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(full, 8);
    assert_eq!(runtime.triggers("s").list().await.unwrap().len() as u64, max);
    assert!(runtime.triggers("s").remove("t0").await.unwrap());
    subscribe(&runtime, on_sale("last", "deliver")).await;
    subscribe_elsewhere(&runtime).await;
}

/// Another session has its own.
async fn subscribe_elsewhere(runtime: &windlass::Runtime) {
    assert!(runtime.triggers("other").create(on_sale("t", "deliver")).await.unwrap().1);
}

async fn futures_join<F: Future + Send + 'static>(all: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F::Output: Send,
{
    let running: Vec<_> = all.map(tokio::spawn).collect();
    let mut ended = Vec::new();
    for one in running {
        ended.push(one.await.unwrap());
    }
    ended
}

#[tokio::test]
async fn who_drives_nothing_only_looks() {
    let shop = Shop::new();
    let runtime = shop.owner();
    subscribe(&runtime, on_sale("t", "deliver")).await;
    drop(runtime);
    let triggers = Triggers::recorded(shop.store.clone(), "s");
    assert_eq!(triggers.list().await.unwrap()[0].id, "t");
    assert!(matches!(triggers.remove("t").await, Err(TriggerError::NotOwned)));
    assert!(matches!(triggers.create(on_sale("u", "deliver")).await, Err(TriggerError::NotOwned)));
}
