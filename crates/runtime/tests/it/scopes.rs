//! Overlays and providers: which tool a call gets.

use crate::rig::{
    Count, batch, call, config, die_in_an_attempt, echo, hanging, memory, n, one, quick, returns, run, spec,
    states,
};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use windlass::tool::{Listed, LoadFuture, Overlay, Provider, Summary};
use windlass::{BatchRequest, EffectClass, Runtime, Tool, ToolError, ToolSpec};

/// A tool that says who it is.
fn says(name: &str, who: &str) -> impl Tool + use<> {
    returns(quick(name, EffectClass::Read), Ok(json!(who)))
}

/// An overlay of tools that say `who`, and of names it hides: `"a b -c"`.
fn overlay(runtime: &Runtime, who: &str, words: &str) -> Overlay {
    let mut overlay = runtime.overlay();
    for word in words.split_whitespace() {
        match word.strip_prefix('-') {
            Some(hidden) => overlay.hide(hidden),
            None => overlay.add(says(word, who)).unwrap(),
        }
    }
    overlay
}

fn names(listed: Vec<Listed>) -> String {
    listed.into_iter().map(|listed| listed.summary.name).collect::<Vec<_>>().join(" ")
}

/// The tool behind each name in a session.
async fn who(runtime: &Runtime, session: &str, tools: &str) -> String {
    let calls = tools.split_whitespace().map(|tool| call(tool, tool, n(1))).collect();
    let key = windlass::batch::fresh_key().unwrap();
    let answer = run(runtime, session, batch(&key, calls)).await;
    let texts = answer.calls.iter().map(|call| match call.failure() {
        Some(failure) => failure.code.to_string(),
        None => call.model_text(),
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn base(names: &str) -> Runtime {
    let runtime = memory();
    names.split_whitespace().for_each(|name| runtime.register(says(name, "base")).unwrap());
    runtime
}

#[tokio::test]
async fn overlays_add_shadow_and_hide_for_their_session_alone() {
    let cases: [(&str, &str, &str); 6] = [
        ("c", "a b c", "base base one"),
        ("a", "a b c", "one base no_such_tool"),
        ("-a", "a b c", "no_such_tool base no_such_tool"),
        ("-a a", "a b c", "one base no_such_tool"),
        ("a -a", "a b c", "no_such_tool base no_such_tool"),
        ("A", "a A b", "no_such_tool one base"),
    ];
    for (words, tools, expected) in cases {
        let runtime = base("a b");
        let guard = runtime.attach("s", overlay(&runtime, "one", words));
        assert_eq!(who(&runtime, "s", tools).await, expected, "{words}");
        assert_eq!(who(&runtime, "other", "a b").await, "base base", "{words}");
        assert_eq!(names(runtime.tools()), "a b", "the base is the base");
        drop(guard);
        assert_eq!(who(&runtime, "s", "a b").await, "base base", "{words}");
    }
}

#[tokio::test]
async fn the_last_one_attached_wins_and_guards_are_dropped_in_any_order() {
    let runtime = base("a");
    let mut guards: Vec<_> =
        ["one", "two", "three"].map(|who| Some(runtime.attach("s", overlay(&runtime, who, "a")))).into();
    for (dropped, left) in [(1, "three"), (2, "one"), (0, "base")] {
        guards[dropped] = None;
        assert_eq!(who(&runtime, "s", "a").await, left);
    }
    let shared = Arc::new(overlay(&runtime, "shared", "-a b"));
    let (first, second) = (runtime.attach("s", shared.clone()), runtime.attach("t", shared));
    drop(first);
    assert_eq!(who(&runtime, "s", "a b").await, "base no_such_tool");
    assert_eq!(who(&runtime, "t", "a b").await, "no_such_tool shared");
    drop(runtime);
    drop(second);
}

#[tokio::test]
async fn what_is_listed_is_what_can_be_called_and_nothing_hidden_is_told() {
    let runtime = base("read_file write_file");
    let _guard = runtime.attach("s", overlay(&runtime, "one", "-write_file Read-File zeta"));
    assert_eq!(names(runtime.tools_of("s").await.unwrap()), "Read-File zeta");
    assert_eq!(names(runtime.tools_of("other").await.unwrap()), "read_file write_file");
    let told = one(&runtime, "write_fil", json!({})).await["model"].to_string();
    assert!(!told.contains("write_file"), "{told}");
    let told = one(&runtime, "read_file", json!({})).await["model"].to_string();
    assert!(told.contains("Read-File"), "{told}");
}

#[tokio::test]
async fn stable_ids_lead_through_the_layers_too() {
    let runtime = memory();
    let with_id = |name: &str, id: &str| ToolSpec { id: id.into(), ..quick(name, EffectClass::Read) };
    runtime.register(returns(with_id("a", "id-a"), Ok(json!("base")))).unwrap();
    assert_eq!(who(&runtime, "s", "a id-a").await, "base base");
    let mut same_id = runtime.overlay();
    same_id.add(returns(with_id("b", "id-a"), Ok(json!("one")))).unwrap();
    let guard = runtime.attach("s", same_id);
    assert_eq!(who(&runtime, "s", "a b id-a").await, "no_such_tool one one");
    drop(guard);
    let _guard = runtime.attach("s", overlay(&runtime, "one", "-a"));
    assert_eq!(who(&runtime, "s", "a id-a").await, "no_such_tool no_such_tool", "hidden under any name");
}

#[tokio::test]
async fn names_are_checked_within_an_overlay() {
    let runtime = memory();
    let mut overlay = overlay(&runtime, "one", "read_file");
    let same_id = ToolSpec { id: "read_file".into(), ..quick("other", EffectClass::Read) };
    let bad = ToolSpec { input_schema: Some(json!({"type": "objekt"})), ..quick("bad", EffectClass::Read) };
    for (refused, names) in [
        (overlay.add(says("Read-File", "x")), "read_file"),
        (overlay.add(returns(same_id, Ok(json!(1)))), "read_file"),
        (overlay.add(says("no spaces", "x")), "no spaces"),
        (overlay.add(returns(bad, Ok(json!(1)))), "/type"),
    ] {
        assert!(refused.unwrap_err().to_string().contains(names));
    }
}

#[tokio::test]
async fn a_batch_has_an_overlay_of_its_own_above_all_others() {
    let runtime = base("a b");
    let _guard = runtime.attach("s", overlay(&runtime, "session", "a"));
    let own = Arc::new(overlay(&runtime, "batch", "a c -b"));
    let calls = |tools: &str| tools.split(' ').map(|tool| call(tool, tool, n(1))).collect::<Vec<_>>();
    let mine = BatchRequest { overlay: Some(own), ..batch("mine", calls("a b c")) };
    let answer = run(&runtime, "s", mine).await;
    assert_eq!(states(&answer), "a succeeded, b failed/no_such_tool, c succeeded");
    assert_eq!(answer.calls[0].model_text(), "batch");
    assert_eq!(who(&runtime, "s", "a b c").await, "session base no_such_tool");
    // It is not part of what the batch is.
    assert_eq!(states(&run(&runtime, "s", batch("mine", calls("a"))).await), "a succeeded");
}

#[tokio::test]
async fn a_call_that_runs_keeps_its_tool() {
    let runtime = memory();
    let (gate, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (go, started) = (gate.clone(), begun.clone());
    let mut overlay = runtime.overlay();
    overlay
        .add(windlass::tool_fn(spec("x", EffectClass::Once), move |_, _| {
            let (go, started) = (go.clone(), started.clone());
            async move {
                started.notify_one();
                go.notified().await;
                Ok(json!("done").into())
            }
        }))
        .unwrap();
    let guard = runtime.attach("s", overlay);
    let running = runtime.submit("s", batch("k", vec![call("c", "x", n(1))])).await.unwrap();
    begun.notified().await;
    drop(guard);
    gate.notify_one();
    assert_eq!(running.settled().await.unwrap().calls[0].model_text(), "done");
}

#[tokio::test]
async fn an_overlay_that_is_attached_again_carries_a_recovered_call_on() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let request = || batch("k", vec![call("c", "x", n(1))]);
    let keyed = || spec("x", EffectClass::Keyed);
    die_in_an_attempt(&folder, request(), move |config, begun| {
        let runtime = Runtime::new(config);
        let mut overlay = runtime.overlay();
        overlay.add(hanging(keyed(), begun)).unwrap();
        // Its owner dies before it could let go of it.
        std::mem::forget(runtime.attach("s", overlay));
        runtime
    })
    .await;
    let runtime = Runtime::new(config(&folder));
    let ran = Count::default();
    let mut overlay = runtime.overlay();
    overlay.add(echo(keyed(), &ran)).unwrap();
    let _guard = runtime.attach("s", overlay);
    assert_eq!(states(&run(&runtime, "s", request()).await), "c succeeded");
    assert_eq!(ran.get(), 1);
}

/// A provider of tools that say what they are; each loading is counted, and may go wrong by plan.
#[derive(Default)]
struct Shelf {
    names: Mutex<Vec<&'static str>>,
    loaded: Count,
    gate: Option<Arc<Notify>>,
}

impl Shelf {
    fn new(names: &str) -> Arc<Shelf> {
        let names = names.split_whitespace().map(|name| &*name.to_string().leak());
        Arc::new(Shelf { names: Mutex::new(names.collect()), ..Shelf::default() })
    }
}

impl Provider for Shelf {
    fn list(&self) -> Vec<Summary> {
        let names = self.names.lock().unwrap().clone();
        names.into_iter().map(|name| Summary { name: name.into(), ..Summary::default() }).collect()
    }

    fn tool<'a>(&'a self, name: &'a str) -> LoadFuture<'a> {
        let times = self.loaded.up();
        assert_ne!(name, "early", "panics at once");
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let tool =
                |name: &str| Ok(Some(Arc::new(says(name, &format!("{name}{times}"))) as Arc<dyn Tool>));
            match name {
                "gone" => Ok(None),
                "down" => Err(ToolError::new("The shelf is closed until noon.")),
                "secret" => Err(ToolError::internal("hunter2")),
                "late" => panic!("hunter2"),
                "mistaken" => tool("other"),
                "refused" => Ok(Some(Arc::new(returns(
                    ToolSpec {
                        input_schema: Some(json!({"type": "hunter2"})),
                        ..spec(name, EffectClass::Read)
                    },
                    Ok(json!(1)),
                )) as Arc<dyn Tool>)),
                name => tool(name),
            }
        })
    }
}

#[tokio::test]
async fn provided_tools_are_loaded_once_and_again_after_a_refresh() {
    let runtime = base("m");
    let shelf = Shelf::new("zeta alpha");
    let provider: Arc<dyn Provider> = shelf.clone();
    runtime.provide(provider.clone()).unwrap();
    assert_eq!((names(runtime.tools()).as_str(), shelf.loaded.get()), ("alpha m zeta", 0));
    assert!(runtime.tools()[0].tool.is_none());
    assert_eq!(who(&runtime, "s", "alpha m").await, "alpha1 base");
    assert_eq!(who(&runtime, "s", "alpha").await, "alpha1");
    assert!(runtime.tools()[0].tool.is_some());
    *shelf.names.lock().unwrap() = vec!["alpha", "new"];
    runtime.refresh(&provider).unwrap();
    assert_eq!(names(runtime.tools()), "alpha m new");
    assert_eq!(who(&runtime, "s", "alpha zeta").await, "alpha2 no_such_tool");
    runtime.withdraw(&provider).unwrap();
    assert_eq!(who(&runtime, "s", "alpha m").await, "no_such_tool base");
    assert!(runtime.refresh(&provider).unwrap_err().to_string().contains("provide it first"));
}

#[tokio::test]
async fn a_provider_that_fails_answers_its_own_calls_only() {
    let runtime = base("m");
    let down =
        r#"{"error":"The tool cannot be had now. The shelf is closed until noon.","code":"provider_failed"}"#;
    runtime.provide(Shelf::new("gone down secret early late mistaken refused")).unwrap();
    let cases = [
        ("gone", "no_such_tool", "never", "There is no tool"),
        ("down", "provider_failed", "safe", down),
        ("secret", "provider_failed", "safe", "reference"),
        ("early", "provider_failed", "safe", "reference"),
        ("late", "provider_failed", "safe", "reference"),
        ("mistaken", "provider_failed", "never", "reference"),
        ("refused", "provider_failed", "never", "reference"),
        ("m", "", "", "base"),
    ];
    let calls = cases.iter().map(|(tool, ..)| call(tool, tool, n(1))).collect();
    let answer = run(&runtime, "s", batch("k", calls)).await;
    for (call, (tool, code, retry, told)) in answer.calls.iter().zip(cases) {
        let shown = serde_json::to_value(call).unwrap();
        let failure = &shown["outcome"]["failure"];
        let text = |field: &str| failure[field].as_str().unwrap_or_default();
        assert_eq!((text("code"), text("retry")), (code, retry), "{tool}");
        assert!(code.is_empty() || text("class") == "unavailable", "{tool}: {failure}");
        assert!(call.model_text().contains(told), "{tool}: {}", call.model_text());
        assert!(!shown.to_string().contains("hunter2"), "{tool}");
        assert_eq!(call.call().attempts, u32::from(code.is_empty()), "{tool}");
    }
    assert!(
        answer.calls[2].failure().unwrap().detail.as_ref().unwrap().contains("hunter2"),
        "operators see it"
    );
}

#[tokio::test]
async fn a_slow_provider_holds_up_no_other_session_and_is_asked_once() {
    let runtime = base("m");
    let gate = Arc::new(Notify::new());
    let names = Mutex::new(vec!["slow"]);
    let shelf = Arc::new(Shelf { names, gate: Some(gate.clone()), ..Shelf::default() });
    runtime.provide(shelf.clone()).unwrap();
    let slow = |key| batch(key, vec![call("c", "slow", n(1))]);
    let first = runtime.submit("s", slow("1")).await.unwrap();
    let second = runtime.submit("s", slow("2")).await.unwrap();
    assert_eq!(who(&runtime, "other", "m").await, "base");
    gate.notify_one();
    for waiting in [first, second] {
        assert_eq!(waiting.settled().await.unwrap().calls[0].model_text(), "slow1");
    }
    assert_eq!(shelf.loaded.get(), 1);
}

#[tokio::test]
async fn names_of_providers_must_differ_from_those_that_are_there() {
    let runtime = base("read_file");
    let first = Shelf::new("alpha");
    let provider: Arc<dyn Provider> = first.clone();
    runtime.provide(provider.clone()).unwrap();
    for (names, clash) in
        [("new Read-File", "read_file"), ("new Alpha", "alpha"), ("new NEW", "new"), ("no!", "no!")]
    {
        let refused = runtime.provide(Shelf::new(names)).unwrap_err().to_string();
        assert!(refused.contains(clash), "{refused}");
        assert_eq!(crate::scopes::names(runtime.tools()), "alpha read_file", "all or none");
    }
    assert!(runtime.register(says("ALPHA", "x")).unwrap_err().to_string().contains("alpha"));
    assert!(runtime.replace(says("alpha", "x")).err().unwrap().to_string().contains("provider"));
    assert!(runtime.unregister("alpha").is_none());
    *first.names.lock().unwrap() = vec!["beta", "read_file"];
    assert!(runtime.refresh(&provider).is_err());
    assert_eq!(who(&runtime, "s", "alpha").await, "alpha1", "what there was is still there");
    let _guard = runtime.attach("s", overlay(&runtime, "one", "alpha"));
    assert_eq!(who(&runtime, "s", "alpha").await, "one", "an overlay shadows them like all others");
}

#[tokio::test]
async fn a_paused_tool_stays_paused_when_it_is_replaced() {
    let runtime = base("m other");
    let paused = || {
        let tools = runtime.tools().into_iter().filter_map(|listed| listed.tool);
        tools.filter(|tool| tool.is_paused()).map(|tool| tool.spec.name.clone()).collect::<Vec<_>>().join(" ")
    };
    runtime.pause("m").await.unwrap();
    assert_eq!(paused(), "m");
    runtime.replace(says("m", "second")).unwrap();
    assert_eq!(paused(), "m");
    let shadow = overlay(&runtime, "one", "m");
    let _guard = runtime.attach("s", shadow);
    assert_eq!(who(&runtime, "s", "m").await, "one", "what shadows it is another tool");
    runtime.resume_tool("m").await.unwrap();
    assert_eq!(paused(), "");
    let unknown = runtime.pause("ohter").await.unwrap_err();
    assert_eq!(unknown.to_string(), r#"there is no tool "ohter"; did you mean "other"?"#);
    assert_eq!(runtime.resume_tool("zzzzzz").await.unwrap_err().to_string(), r#"there is no tool "zzzzzz""#);
}
