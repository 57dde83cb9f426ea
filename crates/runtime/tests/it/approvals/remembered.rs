//! A remembered answer stands for calls of the same kind in its session, and for nothing else.

use super::{stand_still, the_one, yes};
use crate::rig::{Count, batch, call, echo, n, spec, states};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::approvals::{ApprovalDecision, Remember, RememberedArgs};
use windlass::error::AskError;
use windlass::grants::GrantTerms;
use windlass::policy::NewPolicy;
use windlass::{CallRequest, Config, EffectClass, Runtime, ToolSpec};
use windlass_testkit::clock::ManualClock;

/// The difference between the call whose approval was remembered and the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Differs {
    Nothing,
    /// The tool has another version.
    Contract,
    /// The answer was remembered for a shorter time.
    Time,
    /// One more rule asks.
    Rules,
    /// The rule that asks has another text.
    Rule,
    /// It is made by a grant.
    Grant,
}

fn asks(more: &Value) -> Value {
    let mut rule = json!({"name": "asks", "ruling": "ask", "when": {"tool": "pay"}});
    rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    rule
}

async fn set_rules(runtime: &Runtime, rules: Vec<Value>) {
    runtime.set_policy(NewPolicy { rules, by: "root".into(), version: None }).await.unwrap();
}

fn paying(runtime: &Runtime, version: &str, count: &Count) {
    let spec =
        ToolSpec { version: version.into(), claims: Some(Vec::new()), ..spec("pay", EffectClass::Once) };
    runtime.replace(echo(spec, count)).unwrap();
}

#[tokio::test]
async fn it_answers_nothing_that_differs() {
    use Differs::{Contract, Grant, Nothing, Rule, Rules, Time};
    for differs in [Nothing, Contract, Time, Rules, Rule, Grant] {
        let (clock, count) = (Arc::new(ManualClock::default()), Count::default());
        let store = windlass::store::MemoryStore::new().unwrap();
        let runtime = Runtime::new(Config { clock: clock.clone(), ..Config::new(store) });
        paying(&runtime, "1", &count);
        set_rules(&runtime, vec![asks(&json!({}))]).await;
        let first = stand_still(&runtime, batch("1", vec![call("a", "pay", n(1))])).await;
        let waits = the_one(&runtime).await;
        let remember = Some(Remember { args: RememberedArgs::Any, for_ms: Some(60_000) });
        runtime.decide(&waits.id, &ApprovalDecision { remember, ..yes(&waits) }, "ann").await.unwrap();
        assert_eq!(states(&first.settled().await.unwrap()), "a succeeded");
        let mut next = call("a", "pay", n(2));
        match differs {
            Nothing => {}
            Contract => paying(&runtime, "2", &count),
            Time => clock.advance(Duration::from_secs(61)),
            Rules => {
                set_rules(&runtime, vec![asks(&json!({})), json!({"name": "more", "ruling": "ask"})]).await
            }
            Rule => set_rules(&runtime, vec![asks(&json!({"reason": "it costs"}))]).await,
            Grant => {
                let terms = GrantTerms { tool: "pay".into(), ..GrantTerms::default() };
                let token = runtime.grants().issue("s", terms, "root").await.unwrap().token;
                next = CallRequest { grant: Some(token), ..next };
            }
        }
        let second = stand_still(&runtime, batch("2", vec![next])).await;
        let expected = if differs == Nothing { "a succeeded" } else { "a awaiting_approval" };
        assert_eq!(states(&second.now().await.unwrap()), expected, "{differs:?}");
        assert_eq!(count.get(), if differs == Nothing { 2 } else { 1 }, "{differs:?}");
    }
}

#[tokio::test]
async fn an_answer_of_four_eyes_or_about_untrusted_content_is_not_remembered() {
    let exposed = json!({"when": {"tool": "pay", "exposed": true}});
    for (rule, why) in [(json!({"four_eyes": true}), "four eyes"), (exposed, "untrusted content")] {
        let (runtime, count) = (crate::rig::memory(), Count::default());
        paying(&runtime, "1", &count);
        // Hints that are not set mean yes: it reads private data and content of strangers.
        runtime.register(echo(spec("read", EffectClass::Read), &count)).unwrap();
        crate::rig::run(&runtime, "s", batch("0", vec![call("a", "read", n(0))])).await;
        set_rules(&runtime, vec![asks(&rule)]).await;
        let first = stand_still(&runtime, batch("1", vec![call("a", "pay", n(1))])).await;
        let waits = the_one(&runtime).await;
        let decision = ApprovalDecision { remember: Some(Remember::default()), ..yes(&waits) };
        let refused = runtime.decide(&waits.id, &decision, "ann").await.unwrap_err();
        assert!(matches!(&refused, AskError::Invalid { what } if what.contains(why)), "{refused}");
        runtime.decide(&waits.id, &yes(&waits), "ann").await.unwrap();
        assert_eq!(states(&first.settled().await.unwrap()), "a succeeded");
        let second = stand_still(&runtime, batch("2", vec![call("a", "pay", n(1))])).await;
        assert_eq!(states(&second.now().await.unwrap()), "a awaiting_approval", "{why}");
    }
}
