//! The content of an approval: when any of it changes before the start, a person is asked again.

use super::{Bound, asking, no, the_one, waiting, yes};
use crate::rig::{Count, batch, call, echo, memory, n, spec, states, waits_for};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::Notify;
use windlass::approvals::ApprovalDecision;
use windlass::error::AskError;
use windlass::inspect::WaitingCall;
use windlass::policy::NewPolicy;
use windlass::tool::{BoundFuture, PrepareCx};
use windlass::{
    CallRequest, Cx, EffectClass, RetryRule, Runtime, Submitted, Tool, ToolError, ToolFuture, ToolSpec,
};

/// A change of what an approval covers, between it and the start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Changed {
    /// Nothing: then it runs.
    Nothing,
    /// The tool has another version.
    Contract,
    /// The tool is bound to other content.
    Bound,
    /// The rule that asks has another text.
    Rule,
    /// One more rule asks.
    Rules,
    /// The rule that asks is gone, and the tool asks by itself.
    Source,
    /// The arguments, by an edit after which another rule asks.
    Arguments,
}

const CHANGES: [Changed; 7] = [
    Changed::Nothing,
    Changed::Contract,
    Changed::Bound,
    Changed::Rule,
    Changed::Rules,
    Changed::Source,
    Changed::Arguments,
];

fn rules(changed: Changed) -> Vec<serde_json::Value> {
    let asks =
        |reason: &str| json!({"name": "asks", "ruling": "ask", "when": {"tool": "pay"}, "reason": reason});
    let high = json!({"name": "high", "ruling": "ask",
        "when": {"tool": "pay", "args": [{"pointer": "/n", "range": {"min": 100}}]}});
    match changed {
        Changed::Rule => vec![asks("otherwise"), high],
        Changed::Rules => vec![asks(""), high, json!({"name": "more", "ruling": "ask"})],
        Changed::Source => vec![high, json!({"name": "other", "ruling": "ask", "when": {"tool": "pay"}})],
        Changed::Nothing | Changed::Contract | Changed::Bound | Changed::Arguments => vec![asks(""), high],
    }
}

async fn set_rules(runtime: &Runtime, changed: Changed) {
    let new = NewPolicy { rules: rules(changed), by: "root".into(), version: None };
    runtime.set_policy(new).await.unwrap();
}

/// A call of this tool, with its name as its id.
fn paying(tool: &str) -> CallRequest {
    call(tool, tool, n(1))
}

/// A runtime with the tool `pay`, and a call of it that waits for a person behind nothing, or that was approved and waits for
/// its turn behind a call that waits for a person.
struct ApprovedCall {
    runtime: Runtime,
    content: Arc<AtomicU32>,
    count: Count,
    submitted: Submitted,
}

impl ApprovedCall {
    async fn new(class: EffectClass, calls: &[&str]) -> ApprovedCall {
        let (runtime, content, count) = (memory(), Arc::new(AtomicU32::new(1)), Count::default());
        let pay = ToolSpec { claims: Some(vec!["write till".into()]), ..spec("pay", class) };
        runtime.register(Bound { spec: pay, content: content.clone(), count: count.clone() }).unwrap();
        let first =
            ToolSpec { claims: Some(vec!["write till".into()]), ..asking("first", EffectClass::Once) };
        runtime.register(echo(first, &Count::default())).unwrap();
        set_rules(&runtime, Changed::Nothing).await;
        let calls = calls.iter().map(|tool| paying(tool)).collect();
        let submitted = runtime.submit("s", batch("k", calls)).await.unwrap();
        submitted.stands_still().await.unwrap();
        ApprovedCall { runtime, content, count, submitted }
    }

    /// The call of this id that waits for a person.
    async fn asked(&self, id: &str) -> WaitingCall {
        let waits = waiting(&self.runtime).await;
        waits.into_iter().find(|waits| waits.call_id == id).unwrap_or_else(|| panic!("{id} does not wait"))
    }

    async fn change(&self, class: EffectClass, changed: Changed) {
        match changed {
            Changed::Nothing | Changed::Arguments => {}
            Changed::Contract => {
                let (content, count) = (self.content.clone(), self.count.clone());
                let claims = Some(vec!["write till".into()]);
                let spec = ToolSpec { version: "2".into(), claims, ..spec("pay", class) };
                self.runtime.replace(Bound { spec, content, count }).unwrap();
            }
            Changed::Bound => self.content.store(2, Ordering::SeqCst),
            Changed::Rule | Changed::Rules | Changed::Source => set_rules(&self.runtime, changed).await,
        }
    }

    /// The call is asked for again, has not run, and runs once it is approved as it is now.
    async fn runs_after_a_second_approval(self, changed: Changed, first: &WaitingCall) {
        self.submitted.stands_still().await.unwrap();
        let second = self.asked("pay").await;
        assert_ne!((&first.id, &first.digest), (&second.id, &second.digest), "{changed:?}");
        assert_eq!(self.count.get(), 0, "{changed:?}");
        let old = self.runtime.decide(&first.id, &yes(first), "ann").await.unwrap_err();
        assert!(matches!(old, AskError::Over { .. }), "{changed:?}: {old}");
        self.runtime.decide(&second.id, &yes(&second), "ann").await.unwrap();
        assert!(states(&self.submitted.settled().await.unwrap()).contains("pay succeeded"), "{changed:?}");
        assert_eq!(self.count.get(), 1, "{changed:?}");
    }
}

/// Between the question and its answer. Session, principal and call cannot change: an approval is in the record of its call.
#[tokio::test]
async fn what_changed_after_it_was_shown_is_asked_for_again() {
    for (class, changed) in EffectClass::ALL.iter().flat_map(|class| CHANGES.map(|changed| (*class, changed)))
    {
        let call = ApprovedCall::new(class, &["pay"]).await;
        let first = call.asked("pay").await;
        call.change(class, changed).await;
        if matches!(changed, Changed::Rule | Changed::Rules | Changed::Source) {
            // It was asked for again at once, so the old answer is none.
            call.submitted.stands_still().await.unwrap();
            while call.asked("pay").await.id == first.id {
                tokio::task::yield_now().await;
            }
            call.runs_after_a_second_approval(changed, &first).await;
            continue;
        }
        let args = (changed == Changed::Arguments).then(|| n(500));
        let decision = ApprovalDecision { args, ..yes(&first) };
        call.runtime.decide(&first.id, &decision, "ann").await.unwrap();
        if changed == Changed::Nothing {
            assert_eq!(states(&call.submitted.settled().await.unwrap()), "pay succeeded");
            assert_eq!(call.count.get(), 1);
            continue;
        }
        call.runs_after_a_second_approval(changed, &first).await;
    }
}

/// Between the answer and the start: it waits for its turn behind a call that waits for a person.
#[tokio::test]
async fn what_changed_after_it_was_approved_is_asked_for_again() {
    for (class, changed) in EffectClass::ALL.iter().flat_map(|class| CHANGES.map(|changed| (*class, changed)))
    {
        if matches!(changed, Changed::Nothing | Changed::Arguments) {
            continue;
        }
        let call = ApprovedCall::new(class, &["first", "pay"]).await;
        let first = call.asked("pay").await;
        call.runtime.decide(&first.id, &yes(&first), "ann").await.unwrap();
        waits_for(&call.runtime, "claim").await;
        call.change(class, changed).await;
        let before = call.asked("first").await;
        call.runtime.decide(&before.id, &no(&before, "no"), "ann").await.unwrap();
        call.runs_after_a_second_approval(changed, &first).await;
    }
}

/// It waits for its turn behind a call that waits for a person when the rules allow it.
#[tokio::test]
async fn a_question_that_nobody_asks_any_more_is_not_listed_and_not_answered() {
    for class in EffectClass::ALL {
        let call = ApprovedCall::new(*class, &["first", "pay"]).await;
        let asked = call.asked("pay").await;
        let none = NewPolicy { rules: Vec::new(), by: "root".into(), version: None };
        call.runtime.set_policy(none).await.unwrap();
        waits_for(&call.runtime, "claim").await;
        assert!(waiting(&call.runtime).await.iter().all(|waits| waits.call_id == "first"), "{class}");
        let late = call.runtime.decide(&asked.id, &no(&asked, "no"), "ann").await.unwrap_err();
        assert!(matches!(late, AskError::Over { .. }), "{class}: {late}");
        let before = call.asked("first").await;
        call.runtime.decide(&before.id, &yes(&before), "ann").await.unwrap();
        assert_eq!(states(&call.submitted.settled().await.unwrap()), "first succeeded, pay succeeded");
        assert_eq!(call.count.get(), 1, "{class}");
    }
}

/// Its batch is submitted and it is approved several times at once: it runs once.
#[tokio::test]
async fn an_approval_is_used_once_however_often_it_is_given_and_asked_for() {
    for _ in 0..20 {
        let call = ApprovedCall::new(EffectClass::Once, &["pay"]).await;
        let (first, runtime) = (call.asked("pay").await, &call.runtime);
        let yes = yes(&first);
        let decide = || runtime.decide(&first.id, &yes, "ann");
        let again = || runtime.submit("s", batch("k", vec![paying("pay")]));
        let (one, two, three, four) = tokio::join!(decide(), again(), decide(), again());
        assert!(one.is_ok() && three.is_ok(), "{one:?} {three:?}");
        for submitted in [two.unwrap(), four.unwrap(), call.submitted] {
            assert_eq!(states(&submitted.settled().await.unwrap()), "pay succeeded");
        }
        assert_eq!(call.count.get(), 1);
    }
}

/// A tool whose first attempt fails, maybe after its bound content has changed.
struct FailsOnce {
    bound: Bound,
    changes: bool,
    ran: Arc<Notify>,
}

impl Tool for FailsOnce {
    fn spec(&self) -> ToolSpec {
        self.bound.spec()
    }

    fn run<'a>(&'a self, args: Value, _: &'a Cx) -> ToolFuture<'a> {
        let attempt = self.bound.count.up();
        self.ran.notify_one();
        if attempt > 1 {
            return Box::pin(async move { Ok(args.into()) });
        }
        if self.changes {
            self.bound.content.store(2, Ordering::SeqCst);
        }
        Box::pin(async { Err(ToolError::new("busy").safe_to_retry()) })
    }

    fn bound<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        self.bound.bound(args, cx)
    }
}

#[tokio::test]
async fn an_approval_covers_retries_only_while_its_digest_holds() {
    for changes in [false, true] {
        let (runtime, count, ran) = (memory(), Count::default(), Arc::new(Notify::new()));
        let retry = RetryRule { attempts: Some(2), base_ms: Some(0), ..RetryRule::default() };
        let spec = ToolSpec { retry, ..asking("pay", EffectClass::Keyed) };
        let bound = Bound { spec, content: Arc::new(AtomicU32::new(1)), count: count.clone() };
        runtime.register(FailsOnce { bound, changes, ran: ran.clone() }).unwrap();
        let submitted = runtime.submit("s", batch("k", vec![paying("pay")])).await.unwrap();
        submitted.stands_still().await.unwrap();
        let first = the_one(&runtime).await;
        runtime.decide(&first.id, &yes(&first), "ann").await.unwrap();
        ran.notified().await;
        if changes {
            waits_for(&runtime, "approval").await;
            assert_eq!(count.get(), 1, "what nobody has seen is not tried");
            let again = the_one(&runtime).await;
            assert_ne!((&again.id, &again.digest), (&first.id, &first.digest));
            runtime.decide(&again.id, &yes(&again), "ann").await.unwrap();
        }
        assert_eq!(states(&submitted.settled().await.unwrap()), "pay succeeded");
        assert_eq!(count.get(), 2);
    }
}
