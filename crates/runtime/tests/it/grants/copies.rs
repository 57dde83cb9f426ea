//! Copies of grants: for child sessions and sub-agents, never wider, and revoked with what they were made of.

use super::{alone, by, free, hide, issue, open, terms, text};
use crate::inside::body;
use crate::rig::{Count, batch, call, echo, memory, n, reopen, run, states};
use serde_json::json;
use std::sync::Arc;
use windlass::batch::NestedBatch;
use windlass::error::GrantError;
use windlass::grants::{GrantNarrowing, GrantProblem, GrantTerms, GrantToken, NewGrantCopy};
use windlass::sessions::ChildSpec;
use windlass::{Config, EffectClass, Limits, Runtime};
use windlass_testkit::clock::ManualClock;

fn narrower(session: &str, uses: u64) -> NewGrantCopy {
    let narrowing = GrantNarrowing { uses: Some(uses), ..GrantNarrowing::default() };
    NewGrantCopy { session: Some(session.into()), narrowing }
}

async fn family(runtime: &Runtime) {
    open(runtime, "s").await;
    let none = || ChildSpec { tools: Some(Vec::new()), ..ChildSpec::default() };
    assert!(runtime.open_child("s", "child", none()).await.unwrap());
    assert!(runtime.open_child("child", "grandchild", none()).await.unwrap());
}

#[tokio::test]
async fn a_copy_takes_its_uses_out_of_the_grant_and_has_its_own_conditions() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    family(&runtime).await;
    let parent = issue(&runtime, "s", GrantTerms { uses: Some(3), ..terms("pay") }).await;
    let copy = NewGrantCopy {
        session: Some("child".into()),
        narrowing: GrantNarrowing {
            args: vec![json!({"pointer": "/n", "range": {"max": 5}})],
            uses: Some(2),
            ..GrantNarrowing::default()
        },
    };
    let copy = runtime.grants().attenuate(&parent.grant.id, copy, "ann").await.unwrap();
    assert_eq!(copy.grant.parent.as_deref(), Some(parent.grant.id.as_str()));
    let kept = runtime.grants().get(&parent.grant.id).await.unwrap();
    assert_eq!((kept.left(), kept.shared, kept.copies.len()), (Some(1), 2, 1));
    // The child has no tools of its own: it calls by grant alone.
    assert_eq!(states(&run(&runtime, "child", alone("1", &copy.token, "pay", n(5))).await), "a succeeded");
    assert_eq!(states(&run(&runtime, "child", alone("2", &copy.token, "pay", n(6))).await), "a denied");
    assert_eq!(states(&run(&runtime, "child", alone("3", &parent.token, "pay", n(5))).await), "a denied");
    assert_eq!(states(&run(&runtime, "child", alone("4", &copy.token, "pay", n(5))).await), "a succeeded");
    assert_eq!(states(&run(&runtime, "child", alone("5", &copy.token, "pay", n(5))).await), "a denied");
    // What the copy took is gone from the grant.
    assert_eq!(states(&run(&runtime, "s", alone("1", &parent.token, "pay", n(6))).await), "a succeeded");
    let answer = run(&runtime, "s", alone("2", &parent.token, "pay", n(6))).await;
    assert!(text(&answer).contains("no uses left"), "{}", text(&answer));
    assert_eq!(count.get(), 3);
}

#[tokio::test]
async fn a_copy_is_never_wider() {
    let runtime = memory();
    family(&runtime).await;
    open(&runtime, "elsewhere").await;
    let until = Some(9_000_000_000_000_000);
    let parent = issue(&runtime, "s", GrantTerms { uses: Some(3), expires_at: until, ..terms("pay") }).await;
    let id = parent.grant.id.as_str();
    let grants = runtime.grants();
    for (copy, wanted) in [
        (narrower("child", 4), "at most 3"),
        (NewGrantCopy { session: Some("child".into()), ..NewGrantCopy::default() }, "at most 3"),
        (narrower("elsewhere", 1), "\"elsewhere\" is none"),
        (narrower("nowhere", 1), "nowhere"),
    ] {
        let refused = grants.attenuate(id, copy, "ann").await.unwrap_err();
        assert!(refused.to_string().contains(wanted), "{refused}");
    }
    let later =
        GrantNarrowing { uses: Some(1), expires_at: until.map(|at| at + 1), ..GrantNarrowing::default() };
    let later = NewGrantCopy { session: None, narrowing: later };
    assert!(matches!(grants.attenuate(id, later, "ann").await, Err(GrantError::Terms(GrantProblem::Later))));
    assert_eq!(grants.get(id).await.unwrap().left(), Some(3), "nothing was taken");
    // A copy of a copy has at most what that one has, and inherits its end.
    let copy = grants.attenuate(id, narrower("child", 2), "ann").await.unwrap().grant;
    assert_eq!(copy.terms.expires_at, until);
    let refused = grants.attenuate(&copy.id, narrower("grandchild", 3), "ann").await.unwrap_err();
    assert!(matches!(refused, GrantError::Terms(GrantProblem::MoreUses { left: 2 })), "{refused}");
    let up = grants.attenuate(&copy.id, narrower("s", 1), "ann").await.unwrap_err();
    assert!(matches!(up, GrantError::NoChild { .. }), "{up}");
    grants.attenuate(&copy.id, narrower("grandchild", 2), "ann").await.unwrap();
    assert_eq!(grants.get(&copy.id).await.unwrap().left(), Some(0));
}

#[tokio::test]
async fn copies_that_want_the_last_uses_at_once_get_them_once() {
    let runtime = memory();
    family(&runtime).await;
    let parent = issue(&runtime, "s", GrantTerms { uses: Some(3), ..terms("pay") }).await;
    let grants = runtime.grants();
    let copy = || grants.attenuate(&parent.grant.id, narrower("child", 2), "ann");
    let (one, other) = tokio::join!(copy(), copy());
    assert_eq!(usize::from(one.is_ok()) + usize::from(other.is_ok()), 1, "{one:?} {other:?}");
    assert_eq!(grants.get(&parent.grant.id).await.unwrap().left(), Some(1));
}

#[tokio::test]
async fn revoking_reaches_every_copy_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = reopen(&folder);
    family(&runtime).await;
    let parent = issue(&runtime, "s", GrantTerms { uses: Some(9), ..terms("pay") }).await;
    let grants = runtime.grants();
    let child = grants.attenuate(&parent.grant.id, narrower("child", 5), "ann").await.unwrap();
    let below = grants.attenuate(&child.grant.id, narrower("grandchild", 2), "ann").await.unwrap();
    let beside = grants.attenuate(&parent.grant.id, narrower("s", 1), "ann").await.unwrap();
    runtime.idle().await;
    drop((grants, runtime));
    let (runtime, count) = (reopen(&folder), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    assert!(runtime.grants().revoke(&parent.grant.id).await.unwrap());
    for (session, token) in
        [("s", parent.token), ("child", child.token), ("grandchild", below.token), ("s", beside.token)]
    {
        let key = windlass::batch::fresh_key().unwrap();
        let answer = run(&runtime, session, alone(&key, &token, "pay", n(1))).await;
        assert!(text(&answer).contains("was revoked"), "{session}: {}", text(&answer));
    }
    assert_eq!(count.get(), 0);
    let refused = runtime.grants().attenuate(&child.grant.id, narrower("grandchild", 1), "ann").await;
    assert!(matches!(refused, Err(GrantError::Over { .. })), "{refused:?}");
}

/// Opens a child without tools, passes a copy of the grant on, and has the child call by it.
#[tokio::test]
async fn a_tool_passes_a_narrower_grant_on_to_its_child_session() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let attempts = Count::default();
    let tries = attempts.clone();
    let agent = body(free("agent", EffectClass::Stepped), move |args, cx| {
        let fails = tries.up() == 1;
        Box::pin(async move {
            let token = GrantToken::given(args["token"].as_str().unwrap());
            let spec = ChildSpec { tools: Some(Vec::new()), ..ChildSpec::default() };
            let child = cx.child("agent", spec).await?;
            let narrowing = GrantNarrowing { uses: Some(1), ..GrantNarrowing::default() };
            let copy = child.grant("pay", &token, narrowing).await?;
            if fails {
                // The next attempt gets the same copy, and takes no more uses.
                return Err(windlass::ToolError::new("again").safe_to_retry());
            }
            let calls = vec![by(&copy, call("a", "pay", n(1))), by(&copy, call("b", "pay", n(2)))];
            let answer = child.batch("turn 1", NestedBatch { calls, ..NestedBatch::default() }).await?;
            let other = GrantNarrowing { uses: Some(2), ..GrantNarrowing::default() };
            let differs = child.grant("pay", &token, other).await.unwrap_err().to_string();
            Ok(json!({ "states": states(&answer), "differs": differs }).into())
        })
    });
    runtime.register(agent).unwrap();
    let _hidden = hide(&runtime, "s", "pay");
    let grant = issue(&runtime, "s", GrantTerms { uses: Some(5), ..terms("pay") }).await;
    let args = json!({ "token": grant.token.reveal() });
    let answer = run(&runtime, "s", batch("k", vec![call("a", "agent", args)])).await;
    assert_eq!(states(&answer), "a succeeded", "{}", text(&answer));
    assert!(text(&answer).contains("a succeeded, b denied"), "{}", text(&answer));
    assert!(text(&answer).contains("other terms"), "{}", text(&answer));
    assert_eq!((count.get(), attempts.get()), (1, 2));
    assert_eq!(runtime.grants().get(&grant.grant.id).await.unwrap().left(), Some(4));
}

#[tokio::test]
async fn nested_calls_use_grants_of_their_session() {
    let (runtime, count) = (memory(), Count::default());
    runtime.register(echo(free("pay", EffectClass::Once), &count)).unwrap();
    let outer = body(free("outer", EffectClass::Stepped), |args, cx| {
        Box::pin(async move {
            let token = GrantToken::given(args["token"].as_str().unwrap());
            let calls = vec![by(&token, call("a", "pay", n(1))), call("b", "pay", n(2))];
            let answer = cx.batch("inside", NestedBatch { calls, ..NestedBatch::default() }).await?;
            Ok(json!(states(&answer)).into())
        })
    });
    runtime.register(outer).unwrap();
    let _hidden = hide(&runtime, "s", "pay");
    let token = issue(&runtime, "s", terms("pay")).await.token;
    let args = json!({ "token": token.reveal() });
    let answer = run(&runtime, "s", batch("k", vec![call("a", "outer", args)])).await;
    assert_eq!(text(&answer), "a succeeded, b failed/no_such_tool");
    assert_eq!(count.get(), 1);
}

#[tokio::test]
async fn grants_are_listed_in_pages_and_bounded() {
    let limits = Limits { grants_max: 3, grant_copies_max: 1, ..Limits::default() };
    let store = windlass::store::MemoryStore::new().unwrap();
    let clock = Arc::new(ManualClock::default());
    let runtime = Runtime::new(Config { limits, clock: clock.clone(), ..Config::new(store) });
    family(&runtime).await;
    let first = issue(&runtime, "s", terms("a")).await.grant;
    issue(&runtime, "s", terms("b")).await;
    issue(&runtime, "child", terms("c")).await;
    let grants = runtime.grants();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = grants.page(None, after.as_deref(), 1).await.unwrap();
        seen.extend(page.items.into_iter().map(|grant| grant.terms.tool));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(grants.page(Some("child"), None, 9).await.unwrap().items.len(), 1);
    let beside = |tool: &str| NewGrantCopy { session: Some(tool.into()), ..NewGrantCopy::default() };
    grants.attenuate(&first.id, beside("s"), "ann").await.unwrap();
    let refused = grants.attenuate(&first.id, beside("s"), "ann").await.unwrap_err();
    assert!(matches!(refused, GrantError::TooManyCopies { max: 1 }), "{refused}");
    let refused = grants.issue("s", terms("d"), "ann").await.unwrap_err();
    assert!(matches!(refused, GrantError::Full { max: 3, .. }), "{refused}");
    // One that was revoked stays for the calls that run by it, and then makes room.
    grants.revoke(&first.id).await.unwrap();
    assert!(grants.issue("s", terms("d"), "ann").await.is_err());
    clock.advance(std::time::Duration::from_millis(Limits::default().grant_kept_ms + 1_000));
    assert!(grants.issue("s", terms("d"), "ann").await.is_ok());
    for (terms, wanted) in [
        (terms(""), "one tool"),
        (GrantTerms { uses: Some(0), ..terms("a") }, "1 to 10000 uses"),
        (GrantTerms { source: Some("moon".into()), ..terms("a") }, "no source \"moon\""),
        (GrantTerms { contract: Some("7".into()), ..terms("a") }, "64 hexadecimal digits"),
        (GrantTerms { args: vec![json!({"pointer": "n"})], ..terms("a") }, "args[0].pointer"),
        (GrantTerms { binding: Some("x".repeat(9_000).into()), ..terms("a") }, "9002 bytes"),
    ] {
        let refused = grants.issue("child", terms, "ann").await.unwrap_err();
        assert!(refused.to_string().contains(wanted), "{refused}");
    }
    assert!(matches!(grants.get("0123").await, Err(GrantError::NotFound { .. })));
}
