//! Child sessions: what they may, and with what they are over.

mod kills;
mod tools;

use crate::inside::body;
use crate::rig::{Count, batch, call, echo, end, memory, n, run, spec, states};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Semaphore;
use windlass::ask::Target;
use windlass::batch::NestedBatch;
use windlass::error::{ChildError, SessionError};
use windlass::limits::SessionLimits;
use windlass::sessions::{Child, ChildSpec};
use windlass::store::{MemoryStore, Store};
use windlass::{BatchError, Config, EffectClass, Limits, Output, Runtime, Tool, ToolError, ToolSpec};
use windlass_testkit::clock::ManualClock;

fn on(store: &Arc<dyn Store>, limits: Limits) -> Runtime {
    let unused = Config::new(MemoryStore::new().unwrap());
    Runtime::new(Config { store: store.clone(), limits, ..unused })
}

/// A runtime whose time stands still.
fn frozen() -> (Runtime, ManualClock) {
    let (clock, unused) = (ManualClock::default(), Config::new(MemoryStore::new().unwrap()));
    (Runtime::new(Config { clock: Arc::new(clock.clone()), ..unused }), clock)
}

fn with(tools: &[&str]) -> ChildSpec {
    let tools = Some(tools.iter().map(|name| name.to_string()).collect());
    ChildSpec { tools, ..ChildSpec::default() }
}

fn free(name: &str, class: EffectClass) -> ToolSpec {
    ToolSpec { claims: Some(Vec::new()), ..spec(name, class) }
}

fn turn(tool: &str, args: Value) -> NestedBatch {
    NestedBatch { calls: vec![call("c", tool, args)], ..NestedBatch::default() }
}

/// Begins, says so, and returns when it is told to stop.
fn hangs(begun: &Arc<Semaphore>) -> impl Tool + use<> {
    let begun = begun.clone();
    body(free("hangs", EffectClass::Keyed), move |_, cx| {
        begun.add_permits(1);
        Box::pin(async move {
            cx.stopping().await;
            Err(ToolError::stopped())
        })
    })
}

/// Opens a child, has a call hang in it, and returns the child's name while that hangs; it waits to the end if it is told to.
fn leaves(begun: &Arc<Semaphore>) -> impl Tool + use<> {
    let begun = begun.clone();
    body(free("leaves", EffectClass::Stepped), move |args, cx| {
        let begun = begun.clone();
        Box::pin(async move {
            let child = cx.child("agent", with(&["hangs"])).await?;
            let hanging = child.batch("turn", turn("hangs", json!({})));
            if args["stays"] == json!(true) {
                hanging.await?;
            } else {
                tokio::select! {
                    answer = hanging => drop(answer?),
                    permit = begun.acquire() => permit.unwrap().forget(),
                }
            }
            Ok(json!(child.session()).into())
        })
    })
}

async fn children(runtime: &Runtime, parent: &str) -> Vec<String> {
    Child::page(&**runtime.store(), parent, None, 100).await.unwrap()
}

/// The answer to the recorded batch of a child, once its call has ended.
async fn recorded(runtime: &Runtime, child: &str, key: &str, tool: &str) -> String {
    states(&run(runtime, child, batch(key, vec![call("c", tool, json!({}))])).await)
}

async fn is_closed(runtime: &Runtime, child: &str) -> bool {
    let refused = runtime.submit(child, batch("new", vec![call("c", "hangs", json!({}))])).await.err();
    let known = Child::of(&**runtime.store(), child).await.unwrap().unwrap();
    let recorded = known.is_closed(&**runtime.store()).await.unwrap();
    let told =
        matches!(&refused, Some(BatchError::Session(SessionError::Closed { session })) if session == child);
    assert_eq!(told, recorded, "{refused:?}");
    told
}

#[tokio::test]
async fn what_runs_in_a_child_ends_with_the_call_that_opened_it() {
    let (runtime, begun) = (memory(), Arc::new(Semaphore::new(0)));
    runtime.register(hangs(&begun)).unwrap();
    runtime.register(leaves(&begun)).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "leaves", json!({}))])).await;
    let child: String = answer.calls[0].value().unwrap();
    assert_eq!(children(&runtime, "s").await, [&*child]);
    assert_eq!(recorded(&runtime, &child, "turn", "hangs").await, "c cancelled", "it is told to stop");
    assert!(is_closed(&runtime, &child).await);
    assert_eq!(recorded(&runtime, &child, "turn", "hangs").await, "c cancelled", "and is read as before");
    let streamed = windlass::batch::StreamRequest { key: "stream".into(), ..Default::default() };
    assert!(matches!(
        runtime.open_batch(&child, streamed).await,
        Err(BatchError::Session(SessionError::Closed { .. }))
    ));
    let inside = runtime.open_child(&child, "below", ChildSpec::default()).await;
    assert!(matches!(inside, Err(ChildError::Closed { .. })), "{inside:?}");
    runtime.idle().await;
}

#[tokio::test]
async fn a_turn_without_calls_is_answered_and_leaves_nothing() {
    let runtime = memory();
    runtime
        .register(body(free("thinks", EffectClass::Stepped), |_, cx| {
            Box::pin(async move {
                let child = cx.child("agent", ChildSpec::default()).await?;
                let answer = child.batch("turn", NestedBatch::default()).await?;
                Ok(json!([child.session(), answer.calls.len()]).into())
            })
        }))
        .unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "thinks", json!({}))])).await;
    let (child, calls): (String, u64) = answer.calls[0].value().unwrap();
    assert_eq!(calls, 0);
    let child = runtime.store().session(&child).await.unwrap().unwrap();
    assert_eq!(child.head.0, 0, "nothing was done there");
    runtime.idle().await;
}

#[tokio::test]
async fn what_runs_in_a_child_is_cancelled_with_its_call_and_with_its_parent() {
    for whole in [true, false] {
        // Its time stands still: a call ends because its child does, and not because its grace is over.
        let (runtime, begun) = (frozen().0, Arc::new(Semaphore::new(0)));
        runtime.register(hangs(&begun)).unwrap();
        runtime.register(leaves(&begun)).unwrap();
        let asked = batch("k", vec![call("c", "leaves", json!({ "stays": true }))]);
        let submitted = runtime.submit("s", asked).await.unwrap();
        begun.acquire().await.unwrap().forget();
        let child = children(&runtime, "s").await.remove(0);
        assert!(
            !Child::of(&**runtime.store(), &child)
                .await
                .unwrap()
                .unwrap()
                .is_closed(&**runtime.store())
                .await
                .unwrap()
        );
        let handle = submitted.now().await.unwrap().calls[0].handle().to_string();
        let target = if whole { Target::Session("s") } else { Target::Call(&handle) };
        let asked = runtime.cancel(target, None).await.unwrap();
        assert_eq!(asked.asked, if whole { 2 } else { 1 });
        assert_eq!(end(&submitted.settled().await.unwrap()), "c cancelled{landed}, 1 attempts");
        assert_eq!(recorded(&runtime, &child, "turn", "hangs").await, "c cancelled");
        assert!(is_closed(&runtime, &child).await);
    }
}

/// A child opened by its host, which lives on, and children of children.
#[tokio::test]
async fn a_session_is_cancelled_with_all_below_it() {
    let (store, begun): (Arc<dyn Store>, _) =
        (Arc::new(MemoryStore::new().unwrap()), Arc::new(Semaphore::new(0)));
    let start = || {
        let runtime = on(&store, Limits::default());
        runtime.register(hangs(&begun)).unwrap();
        runtime
    };
    let runtime = start();
    assert!(runtime.open_child("s", "child", ChildSpec::default()).await.unwrap());
    assert!(runtime.open_child("child", "grandchild", ChildSpec::default()).await.unwrap());
    let hanging = async |runtime: &Runtime, key: &str| {
        let asked = batch(key, vec![call("c", "hangs", json!({}))]);
        let submitted = runtime.submit("grandchild", asked).await.unwrap();
        submitted.admitted().await.unwrap();
        submitted
    };
    let submitted = hanging(&runtime, "here").await;
    run(&runtime, "s", batch("nothing", vec![call("c", "none", json!({}))])).await;
    assert_eq!(runtime.cancel(Target::Session("s"), None).await.unwrap().asked, 1);
    assert_eq!(states(&submitted.settled().await.unwrap()), "c cancelled");
    drop(hanging(&runtime, "left").await);
    drop(runtime);
    assert_eq!(windlass::ask::post_cancel(&*store, Target::Session("s"), None).await.unwrap().asked, 1);
    let runtime = start();
    runtime.resume().await.unwrap();
    assert_eq!(recorded(&runtime, "grandchild", "left", "hangs").await, "c cancelled");
    let opened = Child::of(&*store, "grandchild").await.unwrap().unwrap();
    assert!(!opened.is_closed(&*store).await.unwrap() && opened.opener(store.secret()).is_none());
}

#[tokio::test]
async fn a_child_is_opened_once_and_stays_what_it_is() {
    let runtime = memory();
    for name in ["read", "write"] {
        runtime.register(echo(free(name, EffectClass::Read), &Count::default())).unwrap();
    }
    assert!(runtime.open_child("s", "a", with(&["write", "read", "read"])).await.unwrap());
    assert!(!runtime.open_child("s", "a", with(&["read", "write"])).await.unwrap(), "the same again");
    let told = async |parent: &str, name: &str, spec: ChildSpec| {
        runtime.open_child(parent, name, spec).await.unwrap_err().to_string()
    };
    let other = "as a child of \"s\" with the tools read, write; give the child another name";
    assert!(told("s", "a", with(&["read"])).await.contains(other));
    assert!(told("t", "a", with(&["read", "write"])).await.contains(other));
    run(&runtime, "used", batch("k", vec![call("c", "read", n(1))])).await;
    assert!(told("s", "used", ChildSpec::default()).await.contains("and is no child of another"));
    assert!(told("s", "s", ChildSpec::default()).await.contains("and is no child of another"));
    assert!(told("s", "no name", ChildSpec::default()).await.contains("1 to 64 of"));
    assert_eq!(
        told("s", "b", with(&["read", "wirte"])).await,
        "a child session has tools of its parent \"s\", and there is no tool \"wirte\"; did you mean \"write\"?; leave it out, \
         or name one that is there"
    );
    assert_eq!(children(&runtime, "s").await, ["a"], "what was refused is not there");
    let bound = SessionLimits { calls_running_max: Some(1), ..SessionLimits::default() };
    runtime.limit_session("a", bound).await.unwrap();
    assert_eq!(SessionLimits::of(runtime.store(), "a").await.unwrap(), bound);
    assert!(Child::of(&**runtime.store(), "a").await.unwrap().is_some(), "it is bounded, and still a child");
}

#[tokio::test]
async fn there_is_an_end_to_children_and_to_their_depth() {
    let limits = Limits { children_max: 2, nesting_max: 2, child_tools_max: 1, ..Limits::default() };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, limits);
    let opens = async |parent: &str, name: &str| runtime.open_child(parent, name, ChildSpec::default()).await;
    assert!(opens("s", "a").await.unwrap() && opens("s", "b").await.unwrap());
    assert!(matches!(opens("s", "c").await, Err(ChildError::TooMany { max: 2, .. })));
    assert!(!opens("s", "b").await.unwrap(), "one that is there is found");
    runtime.remove_session("b").await.unwrap();
    assert!(opens("s", "c").await.unwrap(), "there is room again");
    let gone = opens("s", "b").await;
    assert!(
        matches!(gone, Err(ChildError::Session(SessionError::Gone { .. }))),
        "its name is not used again"
    );
    assert!(matches!(opens("s", "d").await, Err(ChildError::TooMany { max: 2, .. })));
    let many = runtime.open_child("s", "d", with(&["x", "y"])).await;
    assert!(matches!(many, Err(ChildError::TooManyTools { max: 1 })));
    assert!(opens("a", "a.a").await.unwrap());
    assert!(matches!(opens("a.a", "a.a.a").await, Err(ChildError::TooDeep { depth: 3, max: 2 })));
    runtime.register(echo(free("echo", EffectClass::Read), &Count::default())).unwrap();
    let nests = body(free("nests", EffectClass::Stepped), |args, cx| {
        Box::pin(async move { Ok(json!(states_of(cx.call("inside", "echo", args).await?)).into()) })
    });
    runtime.register(nests).unwrap();
    let nested = async |session: &str| {
        let answer = run(&runtime, session, batch("k", vec![call("c", "nests", n(1))])).await;
        answer.calls[0].value::<String>().unwrap()
    };
    assert_eq!(nested("a").await, "succeeded", "one session and one call around it");
    assert_eq!(nested("a.a").await, "failed/nested_too_deep", "two sessions and one call");
}

fn states_of(answer: windlass::CallAnswer) -> String {
    let code = answer.failure().map(|failure| format!("/{}", failure.code)).unwrap_or_default();
    format!("{}{code}", answer.state())
}

#[tokio::test]
async fn a_child_has_a_name_of_its_own_in_its_call() {
    let runtime = memory();
    runtime.register(echo(free("echo", EffectClass::Read), &Count::default())).unwrap();
    let names = body(free("names", EffectClass::Stepped), |_, cx| {
        Box::pin(async move {
            let one = cx.child("one", with(&["echo"])).await?.session().to_string();
            let two = cx.child("two", with(&["echo"])).await?.session().to_string();
            let mut told = Vec::new();
            for (name, spec) in [(" ", with(&[])), ("one", with(&["echo"])), ("three", with(&["ecoh"]))] {
                told.push(
                    cx.child(name, spec).await.err().map(|error| error.to_string()).unwrap_or_default(),
                );
            }
            Ok(json!({ "one": one, "two": two, "told": told }).into())
        })
    });
    runtime.register(names).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "names", json!({}))])).await;
    let value: Value = answer.calls[0].value().unwrap();
    let mut named = [value["one"].as_str().unwrap(), value["two"].as_str().unwrap()];
    named.sort_unstable();
    assert_eq!(children(&runtime, "s").await, named);
    let told = |place: usize| value["told"][place].as_str().unwrap();
    assert!(told(0).contains("blank name"), "{}", told(0));
    assert!(told(1).contains("used twice"), "{}", told(1));
    assert!(told(2).contains("did you mean \"echo\"?"), "{}", told(2));
    let (_, lines) =
        windlass::inspect::call(runtime.store(), answer.calls[0].handle()).await.unwrap().unwrap();
    let opened = lines.iter().filter(|line| line.text.contains("it opened the child session")).count();
    assert_eq!(opened, 2, "what was refused is not recorded");
}

/// All room is one place, and the call that waits for its child has it.
#[tokio::test]
async fn a_call_that_waits_for_its_child_gives_it_its_room() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let runtime = on(&store, Limits { calls_running_max: 1, ..Limits::default() });
    runtime.register(echo(free("work", EffectClass::Keyed), &Count::default())).unwrap();
    runtime.register(delegate(EffectClass::Keyed)).unwrap();
    let answer = run(&runtime, "s", batch("k", vec![call("c", "delegate", n(1))])).await;
    assert_eq!(states(&answer), "c succeeded");
}

/// Has its child do two turns of work; its name, and what came of them.
fn delegate(class: EffectClass) -> impl Tool {
    body(free("delegate", class), |args, cx| {
        Box::pin(async move {
            let agent = cx.child("agent", with(&["work"])).await?;
            let mut told = vec![json!(agent.session())];
            for key in ["turn 1", "turn 2"] {
                let answer = agent.batch(key, turn("work", args.clone())).await?;
                told.push(answer.calls[0].value::<Value>()?);
            }
            Ok(Output::from(json!(told)))
        })
    })
}

#[tokio::test]
async fn a_removed_session_takes_its_children_with_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let (runtime, begun) = (on(&store, Limits::default()), Arc::new(Semaphore::new(0)));
    runtime.register(hangs(&begun)).unwrap();
    runtime.register(leaves(&begun)).unwrap();
    let stays = batch("k", vec![call("c", "leaves", json!({ "stays": true }))]);
    let running = runtime.submit("s", stays).await.unwrap();
    begun.acquire().await.unwrap().forget();
    let opened = children(&runtime, "s").await.remove(0);
    let settings = vec![("setting".to_string(), Arc::from(&b"{}"[..]))];
    let spec = ChildSpec { settings, ..ChildSpec::default() };
    assert!(runtime.open_child(&opened, "below", spec).await.unwrap());
    let apart = runtime.submit("below", batch("k", vec![call("c", "hangs", json!({}))])).await.unwrap();
    apart.admitted().await.unwrap();
    assert!(runtime.open_child("s", "unused", ChildSpec::default()).await.unwrap());
    assert!(runtime.open_child("other", "stays", ChildSpec::default()).await.unwrap());
    assert!(runtime.remove_session("s").await.unwrap());
    assert_eq!(states(&running.settled().await.unwrap()), "c cancelled");
    assert_eq!(states(&apart.settled().await.unwrap()), "c cancelled");
    check_gone(&runtime, &["s", &opened, "below", "unused"]).await;
    assert_eq!(children(&runtime, "other").await, ["stays"]);
    runtime.idle().await;
    drop(runtime);
    let runtime = on(&store, Limits::default());
    assert!(runtime.remove_session("other").await.unwrap(), "opening a child is a use of its parent");
    check_gone(&runtime, &["other", "stays"]).await;
}

/// Nothing is left of these.
async fn check_gone(runtime: &Runtime, sessions: &[&str]) {
    for name in sessions {
        assert!(runtime.store().session(name).await.unwrap().is_none(), "{name}");
        assert!(Child::of(&**runtime.store(), name).await.unwrap().is_none(), "{name}");
        assert_eq!(children(runtime, name).await, Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_removed_child_is_nothing_that_its_call_can_use() {
    let (runtime, gate) = (memory(), Arc::new(Semaphore::new(0)));
    let count = Count::default();
    runtime.register(echo(free("work", EffectClass::Keyed), &count)).unwrap();
    let waits = gate.clone();
    let late = body(free("late", EffectClass::Keyed), move |_, cx| {
        let gate = waits.clone();
        Box::pin(async move {
            let agent = cx.child("agent", with(&[])).await?;
            gate.acquire().await.unwrap().forget();
            match agent.batch("turn", turn("work", n(1))).await {
                Err(error) => Ok(json!(error.to_string()).into()),
                Ok(answer) => Err(ToolError::new(states(&answer))),
            }
        })
    });
    runtime.register(late).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "late", json!({}))])).await.unwrap();
    let child = loop {
        match children(&runtime, "s").await.pop() {
            Some(child) => break child,
            None => tokio::task::yield_now().await,
        }
    };
    runtime.remove_session(&child).await.unwrap();
    gate.add_permits(1);
    submitted.settled().await.unwrap();
    assert_eq!(count.get(), 0, "the tool was not the child's, and its name is no other session's now");
}

/// A child's schedules and triggers end with it, and it takes no new ones.
#[tokio::test]
async fn a_closed_child_starts_nothing_by_itself() {
    let (runtime, clock) = frozen();
    let (ran, gate) = (Count::default(), Arc::new(Semaphore::new(0)));
    let flags = windlass::Flags { background: true, ..Default::default() };
    runtime.register(echo(ToolSpec { flags, ..free("tick", EffectClass::Keyed) }, &ran)).unwrap();
    let opened = gate.clone();
    let opens = body(free("opens", EffectClass::Keyed), move |_, cx| {
        let gate = opened.clone();
        Box::pin(async move {
            let child = cx.child("agent", ChildSpec::default()).await?;
            gate.acquire().await.unwrap().forget();
            Ok(json!(child.session()).into())
        })
    });
    runtime.register(opens).unwrap();
    let submitted = runtime.submit("s", batch("k", vec![call("c", "opens", json!({}))])).await.unwrap();
    let child = loop {
        match children(&runtime, "s").await.pop() {
            Some(child) => break child,
            None => tokio::task::yield_now().await,
        }
    };
    let minutely = || windlass::schedules::NewSchedule {
        cron: Some("* * * * *".into()),
        tool: "tick".into(),
        ..windlass::schedules::NewSchedule::default()
    };
    for session in [&*child, "s"] {
        runtime.schedules(session).create(minutely()).await.unwrap();
    }
    clock.advance(std::time::Duration::from_secs(60));
    while ran.get() < 2 {
        tokio::task::yield_now().await;
    }
    gate.add_permits(1);
    submitted.settled().await.unwrap();
    for time in 1..=3 {
        clock.advance(std::time::Duration::from_secs(60));
        while ran.get() < 2 + time {
            tokio::task::yield_now().await;
        }
        runtime.idle().await;
    }
    assert_eq!(ran.get(), 5, "its parent's goes on alone");
    let refused = runtime.schedules(&child).create(minutely()).await.unwrap_err();
    assert!(refused.to_string().contains("is closed"), "{refused}");
}
