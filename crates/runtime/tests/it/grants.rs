//! Grants: what a call may do by one, how often, until when, and what it may never do.

mod copies;

use crate::rig::{
    Count, batch, call, die_in_an_attempt, echo, hanging, memory, n, reopen, run, spec, sqlite, states,
};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::approvals::{ApprovalDecision, Remember};
use windlass::batch::StreamRequest;
use windlass::grants::{GrantTerms, GrantToken, IssuedGrant};
use windlass::policy::{ApprovalRule, NewPolicy};
use windlass::sessions::SessionOpening;
use windlass::store::memory::MemoryStore;
use windlass::tool::OverlayGuard;
use windlass::{
    BatchAnswer, BatchRequest, CallRequest, Config, Cx, EffectClass, Output, RetryRule, Runtime, ToolError,
    ToolSpec, tool_fn,
};
use windlass_testkit::clock::ManualClock;

fn free(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

fn terms(tool: &str) -> GrantTerms {
    GrantTerms { tool: tool.into(), ..GrantTerms::default() }
}

async fn open(runtime: &Runtime, session: &str) {
    runtime.open_session(session, SessionOpening::default()).await.unwrap();
}

async fn issue(runtime: &Runtime, session: &str, terms: GrantTerms) -> IssuedGrant {
    open(runtime, session).await;
    runtime.grants().issue(session, terms, "ann").await.unwrap()
}

/// The session has every tool but this one, until the guard is dropped.
fn hide(runtime: &Runtime, session: &str, tool: &str) -> OverlayGuard {
    let mut overlay = runtime.overlay();
    overlay.hide(tool);
    runtime.attach(session, overlay)
}

fn by(token: &GrantToken, call: CallRequest) -> CallRequest {
    CallRequest { grant: Some(token.clone()), ..call }
}

/// One call by grant, in a batch of its own.
fn alone(key: &str, token: &GrantToken, tool: &str, args: Value) -> BatchRequest {
    batch(key, vec![by(token, call("a", tool, args))])
}

fn text(answer: &BatchAnswer) -> String {
    answer.calls[0].model_text()
}

#[tokio::test]
async fn a_hidden_tool_runs_by_grant_and_only_by_grant() {
    for class in EffectClass::ALL {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(free("pay", *class), &count)).unwrap();
        let _hidden = hide(&runtime, "s", "pay");
        let token = issue(&runtime, "s", terms("pay")).await.token;
        let calls = vec![
            by(&token, call("a", "pay", n(1))),
            // Its neighbour asks for the same name without a grant, and is not handed the tool.
            call("b", "pay", n(2)),
            by(&token, call("c", "pay", n(3))),
        ];
        let answer = run(&runtime, "s", batch("k", calls)).await;
        assert_eq!(states(&answer), "a succeeded, b failed/no_such_tool, c succeeded", "{class}");
        assert_eq!(count.get(), 2);
        assert!(runtime.tools_of("s").await.unwrap().is_empty(), "the catalog stays as it is");
    }
}

#[tokio::test]
async fn a_call_by_grant_need_not_name_its_tool() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let _hidden = hide(&runtime, "s", "pay");
    let token = issue(&runtime, "s", terms("pay")).await.token;
    let unnamed = |tool: &str| {
        let calls = vec![by(&token, call("a", tool, n(1)))];
        BatchRequest { calls, ..BatchRequest::default() }
    };
    let first = runtime.submit("s", unnamed("")).await.unwrap();
    let key = first.key().to_owned();
    let answer = first.settled().await.unwrap();
    assert_eq!(states(&answer), "a succeeded");
    assert_eq!(&*answer.calls[0].call().opened.tool, "pay", "the record has the name");
    // It is the same call as the one that names the tool.
    let again = runtime.submit("s", unnamed("pay")).await.unwrap();
    assert_eq!(again.key(), key, "the derived key is over the name");
    assert_eq!(states(&again.settled().await.unwrap()), "a succeeded");
    assert_eq!(count.get(), 1);
    // Pushed calls too; and one whose grant is not there is denied like any other.
    let stream = runtime.open_batch("s", StreamRequest { key: "k".into(), ..StreamRequest::default() }).await;
    let stream = stream.unwrap();
    let pushed = stream.push(vec![by(&token, call("b", "", n(2)))]).await.unwrap();
    assert_eq!(states(&pushed.settled().await.unwrap()), "b succeeded");
    let forged = by(&GrantToken::given("grant_forged"), call("c", "", n(3)));
    let answer = run(&runtime, "s", batch("f", vec![forged])).await;
    assert_eq!(states(&answer), "c denied");
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn a_grant_for_a_tool_of_the_catalog_restricts_the_call() {
    let (runtime, count) = (memory(), Count::default());
    runtime
        .register(echo(ToolSpec { id: "pay.v1".into(), ..free("pay", EffectClass::Once) }, &count))
        .unwrap();
    runtime.register(echo(free("other", EffectClass::Once), &count)).unwrap();
    let args = vec![
        json!({"pointer": "/n", "range": {"max": 10}}),
        json!({"pointer": "/to", "one_of": ["ann", "bob"]}),
    ];
    // By its stable id: the call may name it either way.
    let token = issue(&runtime, "s", GrantTerms { args, ..terms("pay.v1") }).await.token;
    let to = |n: u64, to: Value| json!({ "n": n, "to": to });
    for (key, tool, args, expected) in [
        ("1", "pay", to(10, json!("ann")), ""),
        ("2", "pay.v1", to(1, json!(["ann", "bob"])), ""),
        ("3", "pay", to(11, json!("ann")), "the argument \"/n\" is at most 10"),
        ("4", "pay", to(1, json!(["ann", "eve"])), "the argument \"/to\" is \"ann\" or \"bob\""),
        ("5", "pay", to(1, json!([])), "the argument \"/to\""),
        ("6", "pay", json!({"n": 1}), "the argument \"/to\""),
        ("7", "pay", json!({"n": "1", "to": "ann"}), "the argument \"/n\""),
        ("8", "other", to(1, json!("ann")), "the grant is for another tool"),
        ("9", "nothing", to(1, json!("ann")), "the grant is for another tool"),
    ] {
        let answer = run(&runtime, "s", alone(key, &token, tool, args)).await;
        let wanted = if expected.is_empty() { "a succeeded" } else { "a denied" };
        assert_eq!(states(&answer), wanted, "{key} {}", text(&answer));
        // It is a text inside JSON.
        let told = text(&answer).replace("\\\"", "\"");
        assert!(told.contains(expected), "{key} {told}");
    }
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn the_binding_reaches_the_tool_in_every_attempt_and_after_a_restart() {
    let (folder, binding) = (Arc::new(tempfile::tempdir().unwrap()), json!({"order": 7}));
    let registered = |runtime: &Runtime| {
        let returns = tool_fn(free("read", EffectClass::Keyed), |_, cx: &Cx| {
            let binding = cx.binding();
            async move { Ok(Output::from(json!({ "binding": binding }))) }
        });
        runtime.register(returns).unwrap();
    };
    let runtime = reopen(&folder);
    registered(&runtime);
    let without = run(&runtime, "s", batch("0", vec![call("a", "read", n(1))])).await;
    assert_eq!(text(&without), r#"{"binding":null}"#);
    // An answer keeps the store open.
    drop(without);
    let bound = GrantTerms { binding: Some(binding.clone()), uses: Some(1), ..terms("read") };
    let token = issue(&runtime, "s", bound).await.token;
    runtime.idle().await;
    drop(runtime);
    let request = alone("k", &token, "read", n(1));
    die_in_an_attempt(&folder, request.clone(), |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(hanging(free("read", EffectClass::Keyed), begun)).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    registered(&runtime);
    let answer = run(&runtime, "s", request).await;
    assert_eq!(states(&answer), "a succeeded", "{}", text(&answer));
    assert_eq!(text(&answer), json!({ "binding": binding }).to_string());
    assert_eq!(answer.calls[0].call().attempts, 2, "it was driven again, by the same use");
    let grant = runtime.grants().page(Some("s"), None, 10).await.unwrap().items.remove(0);
    assert_eq!((grant.used, grant.left()), (1, Some(0)));
}

#[tokio::test]
async fn uses_are_counted_by_starts_and_not_by_attempts() {
    let (runtime, count) = (memory(), Count::default());
    let tries = count.clone();
    let flaky = tool_fn(free("flaky", EffectClass::Keyed), move |_, _: &Cx| {
        let fails = tries.up() % 3 != 0;
        async move {
            match fails {
                true => Err(ToolError::new("again").safe_to_retry()),
                false => Ok(Output::from(json!("done"))),
            }
        }
    });
    runtime.register(flaky).unwrap();
    let retry = Some(RetryRule { attempts: Some(3), base_ms: Some(1), cap_ms: Some(1) });
    let token = issue(&runtime, "s", GrantTerms { uses: Some(2), retry, ..terms("flaky") }).await.token;
    for key in ["1", "2"] {
        let answer = run(&runtime, "s", alone(key, &token, "flaky", n(1))).await;
        assert_eq!((states(&answer).as_str(), answer.calls[0].call().attempts), ("a succeeded", 3));
    }
    // The same batch again is answered from the record, and takes no use.
    assert_eq!(states(&run(&runtime, "s", alone("1", &token, "flaky", n(1))).await), "a succeeded");
    let answer = run(&runtime, "s", alone("3", &token, "flaky", n(1))).await;
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer).contains("no uses left"), "{}", text(&answer));
    assert_eq!(count.get(), 6);
}

#[tokio::test]
async fn a_grant_has_its_own_retry_rule() {
    let (runtime, count) = (memory(), Count::default());
    let tries = count.clone();
    let fails = tool_fn(
        ToolSpec {
            retry: RetryRule { attempts: Some(3), base_ms: Some(1), cap_ms: Some(1) },
            ..free("fails", EffectClass::Keyed)
        },
        move |_, _: &Cx| {
            tries.up();
            async { Err::<Output, _>(ToolError::new("no").safe_to_retry()) }
        },
    );
    runtime.register(fails).unwrap();
    let plain = issue(&runtime, "s", terms("fails")).await.token;
    let once = Some(RetryRule { attempts: Some(1), ..RetryRule::default() });
    let once = issue(&runtime, "s", GrantTerms { retry: once, ..terms("fails") }).await.token;
    for (key, token, attempts) in [("1", &plain, 3), ("2", &once, 4)] {
        let answer = run(&runtime, "s", alone(key, token, "fails", n(1))).await;
        assert_eq!((states(&answer).as_str(), count.get()), ("a failed/tool_failed", attempts));
    }
}

#[tokio::test]
async fn a_race_over_the_last_use_runs_once() {
    for class in EffectClass::ALL {
        let (runtime, count) = (memory(), Count::default());
        runtime.register(echo(free("pay", *class), &count)).unwrap();
        let token = issue(&runtime, "s", GrantTerms { uses: Some(3), ..terms("pay") }).await.token;
        let calls: Vec<_> = (0..8).map(|i| by(&token, call(&format!("c{i}"), "pay", n(i)))).collect();
        let (one, other) = tokio::join!(
            run(&runtime, "s", batch("k", calls.clone())),
            run(&runtime, "s", batch("l", calls.clone()))
        );
        let ran =
            |answer: &BatchAnswer| answer.calls.iter().filter(|call| call.state() == "succeeded").count();
        assert_eq!((ran(&one) + ran(&other), count.get()), (3, 3), "{class}");
        let refused = one.calls.iter().chain(&other.calls).filter(|call| call.state() == "denied").count();
        assert_eq!(refused, 13);
    }
}

#[tokio::test]
async fn a_use_is_taken_before_the_tool_runs_and_once_across_a_crash() {
    for (class, ends) in [
        (EffectClass::Read, "a succeeded"),
        (EffectClass::Keyed, "a succeeded"),
        (EffectClass::Stepped, "a succeeded"),
        (EffectClass::Once, "a unknown"),
    ] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let runtime = reopen(&folder);
        let token = issue(&runtime, "s", GrantTerms { uses: Some(1), ..terms("pay") }).await.token;
        drop(runtime);
        let request = alone("k", &token, "pay", n(1));
        die_in_an_attempt(&folder, request.clone(), move |config, begun| {
            let runtime = Runtime::new(config);
            runtime.register(hanging(free("pay", class), begun)).unwrap();
            runtime
        })
        .await;
        let (runtime, count) = (reopen(&folder), Count::default());
        runtime.register(echo(free("pay", class), &count)).unwrap();
        // Another call wants the use while the first is driven again: the use is the first one's.
        let other = run(&runtime, "s", alone("l", &token, "pay", n(2))).await;
        assert_eq!(states(&other), "a denied", "{class}");
        assert_eq!(states(&run(&runtime, "s", request).await), ends, "{class}");
        assert_eq!(count.get(), u32::from(ends == "a succeeded"), "{class}");
    }
}

#[tokio::test]
async fn an_expired_grant_admits_nothing_new() {
    let clock = Arc::new(ManualClock::default());
    let config = Config { clock: clock.clone(), ..Config::new(MemoryStore::new().unwrap()) };
    let (runtime, count) = (Runtime::new(config), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    open(&runtime, "s").await;
    let now = windlass::time::Clock::now(&*clock).0;
    let until = GrantTerms { expires_at: Some(now + 60_000_000), ..terms("pay") };
    let token = issue(&runtime, "s", until).await.token;
    assert_eq!(states(&run(&runtime, "s", alone("1", &token, "pay", n(1))).await), "a succeeded");
    clock.advance(Duration::from_secs(60));
    let answer = run(&runtime, "s", alone("2", &token, "pay", n(1))).await;
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer).contains("has expired"), "{}", text(&answer));
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_foreign_and_a_forged_grant_look_like_an_unknown_one() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let hers = issue(&runtime, "hers", terms("pay")).await;
    let mut told = Vec::new();
    // An id is no token, and a tool that exists is told of like one that does not.
    let id = GrantToken::given(hers.grant.id.clone());
    for (place, token) in [hers.token.clone(), GrantToken::given("grant_0"), id].iter().enumerate() {
        for tool in ["pay", "nothing"] {
            let answer = run(&runtime, "his", alone(&format!("{place} {tool}"), token, tool, n(1))).await;
            assert_eq!(states(&answer), "a denied");
            told.push(text(&answer));
        }
    }
    assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
    assert!(told[0].contains("is not known in this session"), "{}", told[0]);
    assert_eq!(states(&run(&runtime, "hers", alone("k", &hers.token, "pay", n(1))).await), "a succeeded");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn a_grant_does_not_go_around_the_policy() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let _hidden = hide(&runtime, "s", "pay");
    let first = issue(&runtime, "s", terms("pay")).await;
    let second = issue(&runtime, "s", terms("pay")).await;
    let rules = vec![
        json!({"name": "no large ones", "ruling": "deny", "when": {"args": [{"pointer": "/n", "range": {"min": 100}}]}}),
        json!({"name": "ask", "ruling": "ask", "when": {"tool": "pay"}}),
    ];
    runtime.set_policy(NewPolicy { rules, by: "ann".into(), version: None }).await.unwrap();
    let denied = run(&runtime, "s", alone("1", &first.token, "pay", n(100))).await;
    assert_eq!(states(&denied), "a denied");
    assert!(text(&denied).contains("no large ones"), "{}", text(&denied));
    // The grant is part of what an approval covers: another grant is another digest.
    let mut digests = Vec::new();
    for (key, token) in [("2", &first.token), ("3", &second.token)] {
        let submitted = runtime.submit("s", alone(key, token, "pay", n(1))).await.unwrap();
        submitted.stands_still().await.unwrap();
        let (_, waits) = runtime.waiting().await.unwrap().pop().unwrap();
        let approve = ApprovalDecision {
            approve: true,
            digest: waits.digest.clone().unwrap(),
            ..ApprovalDecision::default()
        };
        let remembered = ApprovalDecision { remember: Some(Remember::default()), ..approve.clone() };
        let refused = runtime.decide(&waits.id, &remembered, "ann").await.unwrap_err();
        assert!(refused.to_string().contains("made by a grant"), "{refused}");
        runtime.decide(&waits.id, &approve, "ann").await.unwrap();
        assert_eq!(states(&submitted.settled().await.unwrap()), "a succeeded");
        digests.push(waits.digest.clone());
    }
    assert_ne!(digests[0], digests[1]);
    assert_eq!(count.get(), 2);
}

#[tokio::test]
async fn a_revoked_grant_starts_nothing_and_ends_what_waits() {
    let (runtime, count) = (memory(), Count::default());
    let asks = ToolSpec { approval: ApprovalRule::Ask, ..free("pay", EffectClass::Once) };
    runtime.register(echo(asks, &count)).unwrap();
    let issued = issue(&runtime, "s", GrantTerms { uses: Some(2), ..terms("pay") }).await;
    let submitted = runtime.submit("s", alone("1", &issued.token, "pay", n(1))).await.unwrap();
    submitted.stands_still().await.unwrap();
    assert_eq!(runtime.waiting().await.unwrap().len(), 1);
    assert!(runtime.grants().revoke(&issued.grant.id).await.unwrap());
    assert!(!runtime.grants().revoke(&issued.grant.id).await.unwrap(), "it was revoked before");
    let answer = submitted.settled().await.unwrap();
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer).contains("was revoked"), "{}", text(&answer));
    let answer = run(&runtime, "s", alone("2", &issued.token, "pay", n(1))).await;
    assert!(text(&answer).contains("was revoked"), "{}", text(&answer));
    assert_eq!(count.get(), 0);
}

/// A call that is asked about in the moment in which its grant is revoked does not wait for a person.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_revocation_reaches_calls_that_are_just_being_asked_about() {
    for round in 0..50 {
        let (runtime, count) = (memory(), Count::default());
        let asks = ToolSpec { approval: ApprovalRule::Ask, ..free("pay", EffectClass::Once) };
        runtime.register(echo(asks, &count)).unwrap();
        let issued = issue(&runtime, "s", terms("pay")).await;
        let calls = (0..8).map(|id| by(&issued.token, call(&format!("c{id}"), "pay", n(id)))).collect();
        let submitting = tokio::spawn({
            let runtime = runtime.clone();
            async move { runtime.submit("s", batch("1", calls)).await.unwrap() }
        });
        assert!(runtime.grants().revoke(&issued.grant.id).await.unwrap());
        let settled = submitting.await.unwrap().settled();
        let answer = tokio::time::timeout(Duration::from_secs(60), settled).await;
        let answer = answer.unwrap_or_else(|_| panic!("round {round}: a call still waits")).unwrap();
        assert!(
            answer.calls.iter().all(|call| call.state() == "denied"),
            "round {round}: {}",
            states(&answer)
        );
        assert_eq!(count.get(), 0);
    }
}

#[tokio::test]
async fn grants_are_outside_the_identity_of_a_call_and_their_tokens_are_recorded_nowhere() {
    let (runtime, folder) = sqlite();
    let count = Count::default();
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let (one, two) = (issue(&runtime, "s", terms("pay")).await, issue(&runtime, "s", terms("pay")).await);
    let derived = |token: &GrantToken| BatchRequest { key: None, ..alone("", token, "pay", n(1)) };
    let first = run(&runtime, "s", derived(&one.token)).await;
    let again = run(&runtime, "s", derived(&two.token)).await;
    assert_eq!(
        (first.key.clone(), states(&again).as_str(), count.get()),
        (again.key.clone(), "a succeeded", 1)
    );
    let recorded = first.calls[0].call().opened.grant.as_deref().unwrap().to_string();
    assert_eq!(recorded, one.grant.id);
    let shown = serde_json::to_value(&first.calls[0]).unwrap();
    assert_eq!(shown["grant"], one.grant.id);
    runtime.idle().await;
    drop(runtime);
    let secret = one.token.reveal().as_bytes().to_vec();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "{}", path.display());
        }
    }
    assert_eq!(format!("{:?}", one.token), "GrantToken(…)");
}

#[tokio::test]
async fn a_grant_that_names_a_contract_or_a_source_ends_with_the_tool() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let contract = runtime.tools_of("s").await.unwrap()[0].tool.as_ref().unwrap().contract.whole();
    let token = issue(&runtime, "s", GrantTerms { contract: Some(contract), ..terms("pay") }).await.token;
    let declared =
        issue(&runtime, "s", GrantTerms { source: Some("declared".into()), ..terms("pay") }).await.token;
    assert_eq!(states(&run(&runtime, "s", alone("1", &token, "pay", n(1))).await), "a succeeded");
    assert_eq!(states(&run(&runtime, "s", alone("2", &declared, "pay", n(1))).await), "a denied");
    runtime
        .replace(echo(ToolSpec { version: "2".into(), ..free("pay", EffectClass::Once) }, &count))
        .unwrap();
    let answer = run(&runtime, "s", alone("3", &token, "pay", n(1))).await;
    assert_eq!(states(&answer), "a denied");
    assert!(text(&answer).contains("no longer the one"), "{}", text(&answer));
}

#[tokio::test]
async fn a_call_whose_tool_became_another_while_it_waited_is_denied() {
    let (runtime, count) = (memory(), Count::default());
    let pay = |version: &str| ToolSpec {
        approval: ApprovalRule::Ask,
        version: version.into(),
        ..free("pay", EffectClass::Once)
    };
    runtime.register(echo(pay("1"), &count)).unwrap();
    let contract = runtime.tools_of("s").await.unwrap()[0].tool.as_ref().unwrap().contract.whole();
    let token = issue(&runtime, "s", GrantTerms { contract: Some(contract), ..terms("pay") }).await.token;
    let submitted = runtime.submit("s", alone("1", &token, "pay", n(1))).await.unwrap();
    submitted.stands_still().await.unwrap();
    let (_, waits) = runtime.waiting().await.unwrap().pop().unwrap();
    runtime.replace(echo(pay("2"), &count)).unwrap();
    let digest = waits.digest.clone().unwrap();
    let approve = ApprovalDecision { approve: true, digest, ..ApprovalDecision::default() };
    runtime.decide(&waits.id, &approve, "ann").await.unwrap();
    // It is not waited for the tool that it was.
    let answer = tokio::time::timeout(Duration::from_secs(20), submitted.settled()).await.unwrap().unwrap();
    assert_eq!((states(&answer).as_str(), count.get()), ("a denied", 0));
    assert!(text(&answer).contains("no longer the one"), "{}", text(&answer));
}

/// Recorded with its batch and not prepared when its owner died: its grant is looked at before its tool is waited for.
#[tokio::test]
async fn a_taken_over_call_whose_grant_is_for_another_tool_is_denied() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let pay = |version: &str| ToolSpec { version: version.into(), ..free("pay", EffectClass::Once) };
    let (runtime, count) = (reopen(&folder), Count::default());
    runtime.register(echo(pay("1"), &count)).unwrap();
    let contract = runtime.tools_of("s").await.unwrap()[0].tool.as_ref().unwrap().contract.whole();
    let token = issue(&runtime, "s", GrantTerms { contract: Some(contract), ..terms("pay") }).await.token;
    drop(runtime);
    let request = batch("k", vec![call("h", "hang", n(1)), by(&token, call("a", "pay", n(1)))]);
    let unpaid = count.clone();
    die_in_an_attempt(&folder, request.clone(), move |config, begun| {
        let runtime = Runtime::new(config);
        runtime.register(hanging(spec("hang", EffectClass::Once), begun)).unwrap();
        runtime.register(echo(ToolSpec { claims: None, ..pay("1") }, &unpaid)).unwrap();
        runtime
    })
    .await;
    let runtime = reopen(&folder);
    runtime.register(echo(spec("hang", EffectClass::Once), &count)).unwrap();
    runtime.register(echo(pay("2"), &count)).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), run(&runtime, "s", request)).await.unwrap();
    assert_eq!((states(&answer).as_str(), count.get()), ("h unknown, a denied", 0));
}
