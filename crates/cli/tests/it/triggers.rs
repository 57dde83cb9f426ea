//! Triggers from a terminal: made at the owner, used by what commands tell of, listed with and without an owner.

use crate::rig::{Rig, kill, text, until};

const TOOLS: &str = r#"
[tools.sell]
description = "Sells"
command = ["/bin/sh", "-c", "echo '{\"event\": {\"kind\": \"sold\", \"payload\": {\"item\": \"{item}\"}}}' >&2; echo '{\"event\": {\"kind\": \"rain\"}}' >&2"]
input = { type = "object", properties = { item = { type = "string" } }, required = ["item"] }
class = "keyed"
emits = { sold = { type = "object", required = ["item"] } }

[tools.deliver]
description = "Delivers"
command = ["cat"]
class = "keyed"
background = true
claims = []
"#;

#[test]
fn triggers_are_added_used_listed_and_removed() {
    let rig = Rig::with(TOOLS);
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it is served", || {
        rig.path(".windlass/control.sock").exists() && rig.run(&["sessions"]).code == Some(0)
    });
    let add = [
        "triggers",
        "add",
        "sold",
        "deliver",
        r#"{"by": "bike"}"#,
        "--filter",
        "/item=door",
        "--event-as",
        "order",
        "--id",
        "doors",
    ];
    let made = rig.run(&[&add[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((text(&made["id"]), &made["filter"]["/item"]), ("doors".to_string(), &"door".into()));
    let wrong = rig.run(&["triggers", "add", "solt", "deliver"]).expect(4);
    assert!(wrong.stderr.contains("did you mean \"sold\"?"), "{}", wrong.stderr);
    let wrong = rig.run(&["triggers", "add", "sold", "deliver", "--filter", "/item"]).expect(2);
    assert!(wrong.stderr.contains("has no `=`"), "{}", wrong.stderr);
    for item in ["hinge", "door"] {
        rig.run(&["call", "sell", &format!(r#"{{"item": "{item}"}}"#)]).expect(0);
    }
    until("it is delivered", || {
        rig.run(&["inbox", "--json"]).json()["items"].as_array().is_some_and(|items| items.len() == 1)
    });
    let tasks = rig.run(&["tasks", "--json"]).expect(0).json();
    assert_eq!(
        (text(&tasks["items"][0]["trigger"]), tasks["items"].as_array().map(Vec::len)),
        ("doors".to_string(), Some(1))
    );
    let call = rig.run(&["calls", &text(&tasks["items"][0]["task"]), "--json"]).expect(0).json();
    assert_eq!(call["outcome"]["value"], serde_json::json!({"by": "bike", "order": {"item": "door"}}));
    kill(owner);
    let listed = rig.run(&["triggers", "list"]).expect(0).stdout;
    assert!(listed.contains("doors") && listed.contains("/item=\"door\""), "{listed}");
    let refused = rig.run(&["triggers", "remove", "doors"]).expect(2);
    assert!(refused.stderr.contains("start `windlass serve` first"), "{}", refused.stderr);
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it is served", || rig.run(&["triggers", "remove", "doo"]).code == Some(0));
    assert_eq!(rig.run(&["triggers", "list", "--json"]).expect(0).json()["items"], serde_json::json!([]));
    kill(owner);
}

#[test]
fn events_and_notices_are_told_from_a_terminal() {
    let rig = Rig::with(TOOLS);
    rig.run(&["call", "deliver"]).expect(0);
    for args in [&["emit", "sold"][..], &["fulfil", "window", "--ok", "1"], &["notice", "T", "Text."]] {
        let refused = rig.run(args).expect(2);
        assert!(refused.stderr.contains("start `windlass serve` first"), "{}", refused.stderr);
    }
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it is served", || {
        rig.path(".windlass/control.sock").exists() && rig.run(&["sessions"]).code == Some(0)
    });
    rig.run(&["triggers", "add", "sold", "deliver", "--event-as", "order"]).expect(0);
    let emit = ["emit", "sold", r#"{"item": "door"}"#, "--once-by", "order-7"];
    let emitted = rig.run(&[&emit[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((&emitted["number"], &emitted["is_new"]), (&1.into(), &true.into()));
    let task = text(&emitted["tasks"][0]);
    let again = rig.run(&emit).expect(0);
    assert!(again.stdout.contains("emitted before, as event 1"), "{}", again.stdout);
    let started = rig.run(&["emit", "sold", r#"{"item": "hinge"}"#]).expect(0);
    assert!(started.stdout.contains("emitted as event 2\nstarted task "), "{}", started.stdout);
    for (args, told) in [
        (["emit", "solt", "{}"], "but \"sold\""),
        (["emit", "sold", "{}"], "item"),
        (["emit", "sold", "{"], "the payload"),
    ] {
        let wrong = rig.run(&args);
        assert!(matches!(wrong.code, Some(2 | 4)), "{args:?}: {:?}", wrong.code);
        assert!(wrong.stderr.contains(told), "{args:?}: {}", wrong.stderr);
    }
    until("it is delivered", || {
        text(&rig.run(&["calls", &task, "--json"]).expect(0).json()["state"]) == "succeeded"
    });
    let notice = ["notice", "Build is red", "Since commit 4711.", "--urgency", "interrupt", "--key", "k"];
    let posted = rig.run(&[&notice[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(rig.run(&[&notice[..], &["--json"]].concat()).expect(0).json(), posted, "posted once");
    let listed = rig.run(&["inbox", "--json"]).expect(0).json();
    let own = listed["items"].as_array().and_then(|all| all.iter().find(|one| one["id"] == posted["id"]));
    let own = own.expect("it is listed");
    assert_eq!((text(&own["title"]), text(&own["urgency"])), ("Build is red".into(), "interrupt".into()));
    let fulfil = |value| rig.run(&["fulfil", "window", "--ok", value]);
    assert!(fulfil("1").expect(0).stdout.contains("fulfilled"));
    fulfil("1").expect(0);
    fulfil("2").expect(4);
    kill(owner);
}
