//! The policy of a store: its parts, its versions, and who has which.

use crate::rig::{Count, batch, call, echo, spec};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::error::{CheckError, PolicyError};
use windlass::policy::{ApprovalRule, NewPolicy, PolicyQuestion, PolicyVersion};
use windlass::sessions::{ABOUT, SessionOpening};
use windlass::store::memory::MemoryStore;
use windlass::store::{RecordChange, Store, StoreSpace};
use windlass::{Config, Cx, EffectClass, Limits, Output, Runtime, Tool, ToolError, ToolSpec, tool_fn};
use windlass_testkit::clock::ManualClock;

fn rule(name: &str, ruling: &str, when: Value) -> Value {
    json!({"name": name, "ruling": ruling, "when": when})
}

fn new(rules: &[Value]) -> NewPolicy {
    NewPolicy { rules: rules.to_vec(), by: "alice".to_string(), version: None }
}

fn on(store: &MemoryStore, declared: Option<Value>) -> Runtime {
    Runtime::new(Config { policy: declared, ..Config::new(store.clone()) })
}

fn names(rules: &[Value]) -> Vec<&str> {
    rules.iter().map(|rule| rule["name"].as_str().unwrap()).collect()
}

/// The version, the author, and the names of declared and set rules.
fn outline(version: &PolicyVersion) -> String {
    let (declared, set) = (names(&version.declared).join(" "), names(&version.rules).join(" "));
    format!("{} {} | {declared} | {set}", version.version, version.by)
}

async fn ruling(runtime: &Runtime, question: PolicyQuestion) -> String {
    let check = runtime.check_policy(&question).await.unwrap();
    format!("{} {}", check.ruling, check.by.join(" + "))
}

fn about(tool: &str, args: Value) -> PolicyQuestion {
    PolicyQuestion { tool: tool.to_string(), args, ..PolicyQuestion::default() }
}

#[tokio::test]
async fn without_a_policy_nothing_is_stored_and_calls_run() {
    let store = MemoryStore::new().unwrap();
    let runtime = on(&store, Some(json!({"rules": []})));
    let count = Count::default();
    runtime.register(echo(spec("x", EffectClass::Once), &count)).unwrap();
    runtime.submit("s", batch("b", vec![call("c1", "x", json!({}))])).await.unwrap().settled().await.unwrap();
    let policy = runtime.policy().await.unwrap();
    assert_eq!((policy.version, policy.broken.clone(), policy.rules.len()), (0, None, 0));
    assert_eq!(store.count_records(StoreSpace::Policy.shelf()).await.unwrap(), 0);
    assert!(runtime.policy_history(None, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn versions_are_counted_kept_and_survive_a_restart() {
    let store = MemoryStore::new().unwrap();
    let runtime = on(&store, None);
    let (ask, deny) = (rule("ask", "ask", json!({"tool": "x"})), rule("deny", "deny", json!({})));
    assert_eq!(
        outline(&runtime.set_policy(new(std::slice::from_ref(&ask))).await.unwrap()),
        "1 alice |  | ask"
    );
    assert_eq!(
        outline(&runtime.set_policy(new(&[ask.clone(), deny.clone()])).await.unwrap()),
        "2 alice |  | ask deny"
    );
    let same = runtime.set_policy(new(&[ask.clone(), deny.clone()])).await.unwrap();
    assert_eq!(same.version, 2, "nothing changed, so there is no new version");
    drop(runtime);
    let runtime = on(&store, None);
    assert_eq!(outline(&runtime.policy().await.unwrap()), "2 alice |  | ask deny");
    assert_eq!(outline(&runtime.set_policy(new(&[])).await.unwrap()), "3 alice |  | ");
    let history = runtime.policy_history(None, 10).await.unwrap();
    let lines: Vec<String> = history.iter().map(outline).collect();
    assert_eq!(lines, ["3 alice |  | ", "2 alice |  | ask deny", "1 alice |  | ask"]);
    assert_eq!(runtime.policy_history(Some(3), 1).await.unwrap()[0].version, 2);
}

#[tokio::test]
async fn declared_rules_become_a_version_when_they_change() {
    let store = MemoryStore::new().unwrap();
    let file = |names: &[&str]| {
        let rules: Vec<Value> = names.iter().map(|name| rule(name, "ask", json!({"tool": *name}))).collect();
        Some(json!({ "rules": rules }))
    };
    let runtime = on(&store, file(&["a"]));
    assert_eq!(outline(&runtime.policy().await.unwrap()), "1 windlass.toml | a | ");
    runtime.set_policy(new(&[rule("s", "deny", json!({"tool": "x"}))])).await.unwrap();
    drop(runtime);
    assert_eq!(outline(&on(&store, file(&["a"])).policy().await.unwrap()), "2 alice | a | s", "unchanged");
    assert_eq!(
        outline(&on(&store, None).policy().await.unwrap()),
        "2 alice | a | s",
        "a host without a file keeps it"
    );
    assert_eq!(outline(&on(&store, file(&["b"])).policy().await.unwrap()), "3 windlass.toml | b | s");
    assert_eq!(outline(&on(&store, file(&[])).policy().await.unwrap()), "4 windlass.toml |  | s");
}

#[tokio::test]
async fn a_broken_policy_denies_everything_and_says_why() {
    let store = MemoryStore::new().unwrap();
    let runtime = on(&store, Some(json!({"rules": [{"name": "a", "ruling": "block"}]})));
    runtime.register(echo(spec("x", EffectClass::Once), &Count::default())).unwrap();
    let problem = r#"windlass.toml: policy.rules[0].ruling: "block" is not known here; write one of "allow", "ask", "deny""#;
    assert_eq!(runtime.policy().await.unwrap().broken.as_deref(), Some(problem));
    let check = runtime.check_policy(&about("x", json!({}))).await.unwrap();
    assert_eq!(check.ruling, "deny");
    assert!(check.reason.unwrap().contains(problem));
    let set = runtime.set_policy(new(&[])).await.unwrap();
    assert!(set.broken.is_some(), "rules that are set do not mend the file");
    drop(runtime);

    let unreadable = RecordChange::put(StoreSpace::Policy, "newest", *b"{");
    store.commit(vec![unreadable.into()]).await.unwrap().pop().unwrap().unwrap();
    let runtime = on(&store, None);
    assert!(runtime.policy().await.unwrap().broken.unwrap().contains("cannot be read"));
    let mended = runtime.set_policy(new(&[rule("a", "allow", json!({}))])).await.unwrap();
    assert_eq!(
        (mended.broken, mended.version),
        (None, 2),
        "a readable policy replaces it, and numbers go on"
    );
}

#[tokio::test]
async fn two_writers_do_not_lose_a_change() {
    let store = MemoryStore::new().unwrap();
    let runtime = on(&store, None);
    let at =
        |version, name: &str| NewPolicy { version: Some(version), ..new(&[rule(name, "ask", json!({}))]) };
    runtime.set_policy(at(0, "first")).await.unwrap();
    let refused = runtime.set_policy(at(0, "second")).await.unwrap_err();
    assert!(matches!(refused, PolicyError::Conflict { version: 0, newest: 1 }), "{refused}");
    let both = tokio::join!(runtime.set_policy(at(1, "left")), runtime.set_policy(at(1, "right")));
    assert!(both.0.is_ok() != both.1.is_ok(), "{both:?}");
    assert_eq!(runtime.policy().await.unwrap().version, 2);
}

#[tokio::test]
async fn limits_of_a_policy_hold() {
    let store = MemoryStore::new().unwrap();
    let limits =
        Limits { policy_rules_max: 3, policy_bytes_max: 1_000, policy_versions_max: 2, ..Limits::default() };
    let declared = Some(json!({"rules": [rule("a", "ask", json!({})), rule("b", "ask", json!({}))]}));
    let runtime = Runtime::new(Config { limits, policy: declared, ..Config::new(store.clone()) });
    let many = new(&[rule("c", "ask", json!({})), rule("d", "ask", json!({}))]);
    let refused = runtime.set_policy(many).await.unwrap_err();
    assert!(matches!(refused, PolicyError::TooMany { declared: 2, set: 2, max: 3 }), "{refused}");
    let long = rule("c", "ask", json!({"tool": "x".repeat(900)}));
    let refused = runtime.set_policy(new(&[long])).await.unwrap_err();
    assert!(matches!(refused, PolicyError::TooLarge { max: 1_000, .. }), "{refused}");
    let refused = runtime.set_policy(new(&[json!({"name": "c"})])).await.unwrap_err();
    assert!(refused.to_string().contains("rules[0]: the key \"ruling\" is missing"), "{refused}");
    assert_eq!(runtime.policy().await.unwrap().version, 1, "nothing was stored");
    for name in ["c", "d", "e"] {
        runtime.set_policy(new(&[rule(name, "ask", json!({}))])).await.unwrap();
    }
    let versions: Vec<u64> =
        runtime.policy_history(None, 10).await.unwrap().iter().map(|v| v.version).collect();
    assert_eq!(versions, [4, 3]);
}

struct AsksByArguments;

impl Tool for AsksByArguments {
    fn spec(&self) -> ToolSpec {
        ToolSpec { approval: ApprovalRule::ByArgs, ..spec("pay", EffectClass::Once) }
    }

    fn run<'a>(&'a self, _: Value, _: &'a Cx) -> windlass::ToolFuture<'a> {
        Box::pin(async { Ok::<Output, ToolError>(json!(null).into()) })
    }

    fn asks(&self, args: &Value) -> bool {
        assert!(args["cents"] != 0, "a panic asks too");
        args["cents"].as_u64() > Some(100)
    }
}

#[tokio::test]
async fn a_check_looks_at_everything_that_a_call_has() {
    let store = MemoryStore::new().unwrap();
    let runtime = on(&store, None);
    runtime.register(echo(spec("x", EffectClass::Once), &Count::default())).unwrap();
    let asking = ToolSpec { approval: ApprovalRule::Ask, ..spec("send", EffectClass::Once) };
    runtime.register(tool_fn(asking, |_, _| async { Ok(json!(null).into()) })).unwrap();
    runtime.register(AsksByArguments).unwrap();
    let settings = vec![(ABOUT.to_string(), Arc::from(&br#"{"labels":{"env":"prod"}}"#[..]))];
    let opening = SessionOpening { principal: "bob".into(), settings, ..SessionOpening::default() };
    runtime.open_session("s", opening).await.unwrap();
    let rules = [
        rule("no etc", "deny", json!({"tool": "x", "args": [{"pointer": "/path", "prefix": "/etc/"}]})),
        rule(
            "bob in prod",
            "ask",
            json!({"tool": "x", "principal": "bob", "labels": {"env": "prod"}, "args": [{"pointer": "/path", "glob": "*"}]}),
        ),
        rule("exposed", "deny", json!({"tool": "x", "exposed": true})),
    ];
    runtime.set_policy(new(&rules)).await.unwrap();
    let in_session = |args: Value| PolicyQuestion { session: Some("s".to_string()), ..about("x", args) };
    let path = |path: &str| json!({ "path": path });
    for (question, expected) in [
        (about("send", json!({})), "ask the tool asks"),
        (about("pay", json!({"cents": 100})), "allow "),
        (about("pay", json!({"cents": 101})), "ask the tool asks"),
        (about("pay", json!({"cents": 0})), "ask the tool asks"),
        (in_session(path("/etc/passwd")), "deny no etc"),
        (in_session(path("/tmp/x")), "ask bob in prod"),
        (PolicyQuestion { principal: Some("eve".to_string()), ..in_session(path("/tmp/x")) }, "allow "),
        (PolicyQuestion { exposed: true, ..in_session(path("/tmp/x")) }, "deny exposed"),
        (about("x", json!({})), "deny no etc"),
    ] {
        assert_eq!(ruling(&runtime, question.clone()).await, expected, "{question:?}");
    }
    let check = runtime.check_policy(&in_session(path("/tmp/x"))).await.unwrap();
    assert_eq!(check.version, 1);
    let matched: Vec<(&str, bool)> =
        check.rules.iter().map(|rule| (rule.name.as_str(), rule.matched)).collect();
    assert_eq!(matched, [("no etc", false), ("bob in prod", true), ("exposed", false)]);
    let missing = runtime.check_policy(&about("sned", json!({}))).await.unwrap_err();
    assert!(
        matches!(&missing, CheckError::Tool(tool) if tool.nearest.as_deref() == Some("send")),
        "{missing}"
    );
}

/// Time passes for all of them until this is over.
async fn while_time_passes<T>(clocks: &[&ManualClock], work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::task::yield_now() => clocks.iter().for_each(|clock| clock.advance(Duration::from_millis(100))),
        }
    }
}

#[tokio::test]
async fn a_change_is_acknowledged_when_every_live_worker_has_it() {
    let shared = MemoryStore::new().unwrap();
    let member = || {
        let clock = ManualClock::default();
        let config = Config { clock: Arc::new(clock.clone()), shared: true, ..Config::new(shared.clone()) };
        (Runtime::new(config), clock)
    };
    let ((one, one_clock), (two, two_clock)) = (member(), member());
    let both = [&one_clock, &two_clock];
    while_time_passes(&both, async {
        while one.worker().is_none() || two.worker().is_none() {
            tokio::task::yield_now().await
        }
    })
    .await;
    let first = [rule("first", "ask", json!({}))];
    while_time_passes(&both, one.set_policy(new(&first))).await.unwrap();
    assert_eq!(two.policy().await.unwrap().version, 1, "it is in force at the other one");

    // The other one stands still for less than a lease: it may still start calls, by the old rules.
    let limits = Limits { policy_acknowledge_ms: 4_000, ..Limits::default() };
    let clock = ManualClock::default();
    let config =
        Config { clock: Arc::new(clock.clone()), shared: true, limits, ..Config::new(shared.clone()) };
    let three = Runtime::new(config);
    while_time_passes(&[&clock, &one_clock, &two_clock], async {
        while three.worker().is_none() {
            tokio::task::yield_now().await
        }
    })
    .await;
    let second = [rule("second", "deny", json!({}))];
    let stands_still = two.worker().unwrap();
    let refused = while_time_passes(&[&clock, &one_clock], three.set_policy(new(&second))).await.unwrap_err();
    let PolicyError::Unacknowledged { version: 2, workers } = &refused else { panic!("{refused}") };
    assert_eq!(*workers, [stands_still]);
    let all = [&clock, &one_clock, &two_clock];
    let again = while_time_passes(&all, three.set_policy(new(&second))).await.unwrap();
    assert_eq!((again.version, two.policy().await.unwrap().version), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_do_not_lose_a_change() {
    let store = MemoryStore::new().unwrap();
    let (one, two) = (on(&store, None), on(&store, None));
    for round in 0..200 {
        let set = |runtime: &Runtime, name: &str| {
            let (runtime, name) = (runtime.clone(), format!("{name} {round}"));
            let new = NewPolicy { version: Some(round), ..new(&[rule(&name, "ask", json!({}))]) };
            tokio::spawn(async move { runtime.set_policy(new).await })
        };
        let (left, right) = (set(&one, "left"), set(&two, "right"));
        let (left, right) = (left.await.unwrap(), right.await.unwrap());
        assert!(left.is_ok() != right.is_ok(), "round {round}: {left:?} {right:?}");
    }
    assert_eq!(one.policy_history(Some(201), 300).await.unwrap().len(), 200, "each version is kept");
}
