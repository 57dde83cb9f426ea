//! R6 for tools of MCP servers: what was approved is what runs, once. An approval covers each field of the server's entry and of the
//! tool's definition.

use crate::mcp_servers::{accepted, approvals, count, kill, wait};
use crate::rig::{Rig, until};
use serde_json::{Value, json};

/// A change of the folder between an approval and the start of its call.
struct FolderChange {
    name: &'static str,
    make: Box<dyn Fn(&Rig)>,
    /// How often the approved call takes effect behind it.
    effects: usize,
}

/// The entry of a server on pipes.
fn entry(command: &str, more: &str) -> String {
    format!("[mcp.shop]\ncommand = {command}\n{more}\n[mcp.shop.tools.look]\nclass = \"read\"\n")
}

fn toml(name: &'static str, text: String) -> FolderChange {
    let change = move |rig: &Rig| {
        rig.write("windlass.toml", &text);
    };
    FolderChange { name, make: Box::new(change), effects: 0 }
}

fn change_pins(rig: &Rig, change: impl Fn(&mut Value)) {
    let file = rig.path("windlass.mcp.json");
    let mut pins: Value = serde_json::from_slice(&std::fs::read(&file).expect("pins")).expect("JSON");
    change(&mut pins["servers"]["shop"]);
    std::fs::write(&file, pins.to_string()).expect("it can be written");
}

fn pinned(name: &'static str, change: fn(&mut Value)) -> FolderChange {
    let make = move |rig: &Rig| change_pins(rig, |tools| change(&mut tools["pay"]));
    FolderChange { name, make: Box::new(make), effects: 0 }
}

fn kill_owner(owner: std::process::Child) {
    kill(i32::try_from(owner.id()).expect("a process"));
    wait(owner);
}

/// The state of the newest call, and what is said of it.
fn newest(rig: &Rig) -> Value {
    rig.run(&["calls", "--json"]).json()["items"][0].clone()
}

/// A call is asked about, its owner killed, the folder changed, the call approved as it was shown, and an owner started: it takes effect as often as
/// the change says, and otherwise is asked about anew or has no tool any more.
fn check(rig: &Rig, change: &FolderChange) {
    let what = change.name;
    let asked = rig.start(&["call", "shop_pay", "{}"]);
    until("somebody is asked", || approvals(rig).len() == 1);
    kill_owner(asked);
    (change.make)(rig);
    let approval = approvals(rig)[0].clone();
    let id = approval["id"].as_str().expect("an id").to_string();
    rig.run(&["approve", &id]).expect(0);
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    let is_decided = || {
        let (call, asks) = (newest(rig), approvals(rig));
        let told = call.to_string();
        let is_asked_again = asks.first().is_some_and(|now| now["digest"] != approval["digest"]);
        let waits =
            ["tool_changed", "no_such_tool", "has changed this tool", "does not have this tool any more"];
        call["state"] == "succeeded" || is_asked_again || waits.iter().any(|reason| told.contains(reason))
    };
    until(&format!("{what}: it ran, or is not allowed to"), is_decided);
    assert_eq!(count(rig, "effect"), change.effects, "{what}");
    kill_owner(owner);
}

#[test]
fn an_approval_covers_the_entry_and_the_definition() {
    let plain = r#"["python3", "server.py"]"#;
    let url = "[mcp.shop]\nurl = \"http://127.0.0.1:9/mcp\"\ninternal = true\n";
    let changes: Vec<FolderChange> = vec![
        FolderChange { effects: 1, ..toml("nothing", entry(plain, "")) },
        toml("a word of the command", entry(r#"["python3", "server.py", "--more"]"#, "")),
        toml("the program", entry(r#"["/usr/bin/env", "python3", "server.py"]"#, "")),
        toml("a variable", entry(plain, "env = { X = \"1\" }")),
        toml("the folder", entry(plain, "cwd = \".windlass\"")),
        toml("a class", entry(plain, "class = \"keyed\"")),
        toml("claims", entry(plain, "claims = []")),
        toml("a time", entry(plain, "timeout_ms = 900000")),
        toml("whether it detaches", entry(plain, "detach = false")),
        toml("whether it is trusted", entry(plain, "trust = true")),
        toml("a rule of the tool", entry(plain, "[mcp.shop.tools.pay]\ntimeout_ms = 900000")),
        toml("who is asked", entry(plain, "approval = \"ask\"")),
        toml("another tool that is hidden", entry(plain, "[mcp.shop.tools.rich]\nhidden = true")),
        toml("a prefix", entry(plain, "prefix = \"other_\"")),
        toml("the way", url.to_string()),
        pinned("the description", |tool| tool["description"] = "Pays twice.".into()),
        pinned("the schema", |tool| tool["inputSchema"]["properties"] = json!({"a": {}})),
        pinned("the title", |tool| tool["title"] = "Pay".into()),
        pinned("the output", |tool| tool["outputSchema"] = json!({"type": "object"})),
        pinned("an icon", |tool| tool["icons"] = json!([{"src": "https://example.com/i.png"}])),
        pinned("an annotation", |tool| tool["annotations"] = json!({"readOnlyHint": true})),
        pinned("a field that nobody knows", |tool| tool["x-vendor"] = 1.into()),
    ];
    for change in &changes {
        check(&accepted(""), change);
    }
}

/// The tool gets another name, or its name another tool, where it was accepted or at the server.
#[test]
fn an_approval_covers_a_renamed_tool() {
    let renamed = |rig: &Rig| {
        change_pins(rig, |tools| {
            let mut pay = tools.as_object_mut().and_then(|tools| tools.remove("pay")).expect("it is there");
            pay["name"] = "remit".into();
            tools["remit"] = pay;
        });
    };
    let swapped = |rig: &Rig| {
        change_pins(rig, |tools| {
            let (pay, fail) = (tools["pay"].clone(), tools["fail"].clone());
            (tools["pay"], tools["fail"]) = (fail, pay);
        });
    };
    let at_the_server = |mode: &'static str| {
        move |rig: &Rig| {
            rig.write("mode", mode);
        }
    };
    let changes: [FolderChange; 4] = [
        FolderChange { name: "another name", make: Box::new(renamed), effects: 0 },
        FolderChange { name: "another tool of this name", make: Box::new(swapped), effects: 0 },
        FolderChange {
            name: "another name at the server",
            make: Box::new(at_the_server("renamed")),
            effects: 0,
        },
        FolderChange {
            name: "another definition at the server",
            make: Box::new(at_the_server("rug")),
            effects: 0,
        },
    ];
    for change in &changes {
        check(&accepted(""), change);
    }
}

/// A server behind a URL: where it is, what it is sent, and which addresses it may have. `accept` is not repeated: the definitions stay.
#[test]
fn an_approval_covers_the_address_and_its_headers() {
    let port = 9;
    let url = |host: &str, more: &str| format!("[mcp.shop]\nurl = \"https://{host}:{port}/mcp\"\n{more}\n");
    let plain =
        || url("127.0.0.1", "internal = true\nheaders = { Authorization = \"Bearer {secret:shop}\" }");
    let with = |headers: &str| url("127.0.0.1", &format!("internal = true\nheaders = {{ {headers} }}"));
    let changes: Vec<FolderChange> = vec![
        toml(
            "the address",
            url("localhost", "internal = true\nheaders = { Authorization = \"Bearer {secret:shop}\" }"),
        ),
        toml("another secret", with(r#"Authorization = "Bearer {secret:other}""#)),
        toml("the text around the secret", with(r#"Authorization = "Basic {secret:shop}""#)),
        toml("no secret but a text", with(r#"Authorization = "Bearer tr0ub4dor""#)),
        toml("the name of a header", with(r#"X-Authorization = "Bearer {secret:shop}""#)),
        toml("one more header", with(r#"Authorization = "Bearer {secret:shop}", X-Tenant = "2""#)),
        toml("no header", url("127.0.0.1", "internal = true")),
        toml(
            "which addresses it may have",
            url("127.0.0.1", "headers = { Authorization = \"Bearer {secret:shop}\" }"),
        ),
    ];
    for change in &changes {
        let rig = accepted("");
        for secret in ["shop", "other"] {
            // The same value under both names: the approval covers the name.
            rig.run_on(&["secrets", "set", secret], "tr0ub4dor").expect(0);
        }
        rig.write("windlass.toml", plain());
        check(&rig, change);
    }
}

/// One approval is one run: the same call asks again once the first has ended.
#[test]
fn an_approval_is_used_once() {
    let rig = accepted("");
    for round in 1..=2 {
        let called = rig.start(&["call", "shop_pay", "{}"]);
        until("somebody is asked", || approvals(&rig).len() == 1);
        assert_eq!(count(&rig, "effect"), round - 1, "not before it is approved");
        let id = approvals(&rig)[0]["id"].as_str().expect("an id").to_string();
        rig.run(&["approve", &id]).expect(0);
        assert_eq!(crate::rig::finish(called).code, Some(0));
        assert_eq!(count(&rig, "effect"), round);
        assert_ne!(rig.run(&["approve", &id]).code, Some(0), "it is used");
        assert_eq!(count(&rig, "effect"), round);
    }
}
