//! Which calls are the same: keys, ids of clients, and answers that were lost.

use crate::rig::{Mcp, Rig, call, text};
use serde_json::{Value, json};
use windlass::ask::Target;

#[tokio::test]
async fn an_answer_that_was_delivered_is_not_given_again() {
    let rig = Rig::new();
    rig.go.add_permits(3);
    for (place, pay) in Mcp::calls(&call("pay")).iter().enumerate() {
        let told = text(&rig.result(pay).await);
        assert_eq!(
            told,
            format!("effect {}", place + 1),
            "the client had the answer before: this is a new call"
        );
    }
    let mut named = call("pay");
    named["_meta"] = json!({"claudecode/toolUseId": "toolu_1"});
    let named = Mcp::legacy("tools/call", named);
    assert_eq!(text(&rig.result(&named).await), "effect 3");
    let again = text(&rig.result(&named).await);
    assert!(again.starts_with("effect 3"), "the same id of the client is the same call: {again}");
    assert_eq!(rig.effects(), 3);
}

#[tokio::test]
async fn a_key_of_the_caller_is_one_call() {
    let rig = Rig::new();
    rig.go.add_permits(2);
    let pay = |key: &str| {
        let mut pay = Mcp::legacy("tools/call", call("pay"));
        pay.headers.key = Some(key.to_string());
        pay
    };
    assert_eq!(text(&rig.result(&pay("a")).await), "effect 1");
    assert_eq!(text(&rig.result(&pay("a")).await), "effect 1");
    let mut meta = call("pay");
    meta["_meta"] = json!({"io.windlass/key": "a"});
    assert_eq!(text(&rig.result(&Mcp::legacy("tools/call", meta)).await), "effect 1");
    assert_eq!(text(&rig.result(&pay("b")).await), "effect 2");
    let mut other = pay("a");
    other.message["params"]["arguments"] = json!({"to": "bob"});
    assert_eq!(rig.result(&other).await["isError"], true, "another call under the same key is refused");
    assert_eq!(rig.effects(), 2);
}

/// R25: the answer is lost before or after the effect, and the model makes the call again under a new id.
#[tokio::test]
async fn a_call_whose_answer_was_lost_has_one_effect() {
    for pay in Mcp::calls(&call("pay")) {
        for effect_first in [false, true] {
            let mut rig = Rig::new();
            let mut lost = rig.begin(&pay).await;
            rig.begun(1).await;
            if effect_first {
                rig.go.add_permits(1);
                assert!(lost.next().await.is_some(), "the answer is there, and breaks on its way");
                drop(lost);
            } else {
                drop(lost);
                rig.go.add_permits(1);
            }
            let told = text(&rig.result(&pay).await);
            assert!(
                told.starts_with("effect 1") && told.contains("identical call"),
                "it joins, and says so: {told}"
            );
            rig.go.add_permits(1);
            assert_eq!(text(&rig.result(&pay).await), "effect 2", "one delivery ends it");
            assert_eq!((rig.effects(), rig.attempts()), (2, 2));
        }
    }
}

#[tokio::test]
async fn a_repetition_that_comes_before_the_loss_is_noticed_waits_for_it() {
    for pay in Mcp::calls(&call("pay")) {
        let mut rig = Rig::new();
        let lost = rig.begin(&pay).await;
        rig.begun(1).await;
        let mut again = rig.begin(&pay).await;
        let mut next = Box::pin(again.next());
        let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending()));
        assert!(waits.await);
        drop(lost);
        rig.go.add_permits(1);
        let told = next.await.expect("an answer");
        assert!(text(&told["result"]).starts_with("effect 1"), "{told}");
        assert_eq!(rig.attempts(), 1);
    }
}

#[tokio::test]
async fn two_calls_at_once_are_two_calls() {
    let mut rig = Rig::new();
    let pay = Mcp::legacy("tools/call", call("pay"));
    let (mut first, mut second) = (rig.begin(&pay).await, rig.begin(&pay).await);
    rig.begun(1).await;
    rig.go.add_permits(2);
    let told = first.next().await.expect("an answer");
    assert_eq!((text(&told["result"]).as_str(), first.next().await), ("effect 1", None));
    let told = second.next().await.expect("an answer");
    assert_eq!(text(&told["result"]), "effect 2");
}

#[tokio::test]
async fn a_cancel_followed_at_once_by_a_repetition_runs_once() {
    let mut rig = Rig::new();
    let pay = |id: u64| {
        let mut pay = Mcp::legacy("tools/call", call("pay"));
        pay.message["id"] = json!(id);
        pay
    };
    for round in 1..=20 {
        let mut first = rig.begin(&pay(1)).await;
        rig.begun(round).await;
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert!(rig.ask(&Mcp { message: cancel, ..pay(1) }).await.is_empty());
        let mut second = rig.begin(&pay(2)).await;
        rig.go.add_permits(1);
        let told = text(&second.next().await.expect("an answer")["result"]);
        assert!(told.starts_with(&format!("effect {round}")) && told.contains("identical call"), "{told}");
        assert_eq!(second.next().await, None);
        assert_eq!(first.next().await, None, "a cancelled request has no answer");
        assert_eq!((rig.effects(), rig.attempts()), (round, round));
    }
}

#[tokio::test]
async fn who_leaves_cancels_what_only_reads_and_leaves_the_rest() {
    let mut rig = Rig::new();
    let modern = |tool: &str| Mcp::modern("tools/call", &json!({}), call(tool));
    let (look, pay) = (rig.begin(&modern("look")).await, rig.begin(&modern("pay")).await);
    rig.begun(2).await;
    let calls = rig.runtime.live_in("chat");
    let handle = |tool: &str| calls.iter().find(|call| call.tool == tool).expect("it runs").call.clone();
    drop((look, pay));
    let within = std::time::Duration::from_secs(60);
    // A call that only reads is recorded with its end.
    let looked = loop {
        match rig.runtime.call_ended("chat", &handle("look"), within).await {
            Ok(looked) => break looked,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    assert_eq!(looked.state(), "cancelled");
    rig.go.add_permits(1);
    let paid = rig.runtime.call_ended("chat", &handle("pay"), within).await.expect("it is there");
    assert_eq!((paid.state(), rig.effects()), ("succeeded", 1));
}

/// A call that was cancelled before it began did not happen, so the next one does.
#[tokio::test]
async fn a_call_that_did_not_happen_is_not_joined() {
    let mut rig = Rig::new();
    let pay = Mcp::legacy("tools/call", call("pay"));
    let lost = rig.begin(&pay).await;
    rig.begun(1).await;
    drop(lost);
    rig.runtime.cancel(Target::Session("chat"), None).await.expect("it is asked");
    let told: Value = rig.result(&pay).await;
    assert_eq!(told["isError"], true, "nobody knows whether it took effect, and it is not repeated: {told}");
    rig.go.add_permits(1);
    assert_eq!(text(&rig.result(&pay).await), "effect 1");
    let mut risky = rig.begin(&Mcp::modern("tools/call", &json!({}), call("risky"))).await;
    let mut next = Box::pin(risky.next());
    let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(next.as_mut().poll(cx).is_pending()));
    assert!(waits.await, "it waits for an approval");
    drop(next);
    drop(risky);
    let asked = Mcp::modern("tools/call", &json!({"elicitation": {}}), call("risky"));
    let form = rig.result(&asked).await;
    assert!(
        form["inputRequests"].is_object(),
        "the first was cancelled before it began, this is another: {form}"
    );
}

/// An answer that was not delivered is joined for `mcp_join_ms`, and not longer.
#[tokio::test]
async fn a_lost_answer_is_joined_for_a_while() {
    for (join_ms, expected) in [(600_000, "effect 1"), (0, "effect 2")] {
        let mut rig = Rig::within(|limits| limits.mcp_join_ms = join_ms);
        let pay = Mcp::legacy("tools/call", call("pay"));
        let mut lost = rig.begin(&pay).await;
        rig.begun(1).await;
        rig.go.add_permits(2);
        assert!(lost.next().await.is_some(), "it has ended, and its answer breaks on its way");
        drop(lost);
        let told = text(&rig.result(&pay).await);
        assert!(told.starts_with(expected), "{join_ms}: {told}");
    }
}
