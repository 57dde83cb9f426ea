//! `windlass.toml`: where it is read from, and what is said about mistakes in it.

use crate::rig::Rig;

/// The table says at a glance which effects each tool may have.
#[test]
fn tools_are_listed_with_what_they_may_do() {
    let rig = Rig::new();
    rig.write(
        "windlass.toml",
        r#"
builtin = ["files", "time"]
run_command = "strict"
[tools.deploy]
description = "Deploys a service. It takes a while."
command = ["true"]
approval = "ask"
background = true
claims = ["write service:{service}"]
input = { properties = { service = { type = "string" } } }
[tools.clean]
description = "Removes everything that was built."
command = ["true"]
"#,
    );
    let listed = rig.run(&["tools"]).expect(0).stdout;
    let doctor = rig.run(&["doctor"]).expect(0).stdout;
    let warning = doctor.lines().find(|line| line.starts_with("warning")).expect("a warning");
    insta::assert_snapshot!(format!("{listed}\n{warning}"));
}

#[test]
fn mistakes_are_named_with_their_place_and_nothing_runs() {
    let cases = [
        ("unknown key", "[tools.t]\ncomand = [\"true\"]\n"),
        ("unknown table", "[tool.t]\ncommand = [\"true\"]\n"),
        ("no TOML", "[tools.t\n"),
        ("later version", "[tools.t]\ncommand = [\"true\"]\napproval = \"always\"\n"),
        (
            "refused schema",
            "[tools.t]\ncommand = [\"true\"]\ninput = { type = \"object\", properties = { n = { type = \"nubmer\" } } }\n",
        ),
        (
            "schema from elsewhere",
            "[tools.t]\ncommand = [\"true\"]\ninput = { \"$ref\" = \"https://example.com/schema.json\" }\n",
        ),
        ("a name that is taken", "[tools.Read_File]\ncommand = [\"true\"]\n"),
        ("a group that is none", "builtin = [\"file\"]\n"),
        ("a folder that is none", "[files]\nallow = [\"nowhere\"]\n"),
        ("a trace that goes nowhere", "[traces]\nendpiont = \"http://127.0.0.1:4318\"\n"),
        (
            "a sentence about nothing",
            "[tools.t]\ncommand = [\"true\"]\nnarration = { started = \"Deploying {servcie}\" }\n",
        ),
        ("a phase that is none", "[tools.t]\ncommand = [\"true\"]\nnarration = { begun = \"x\" }\n"),
        ("a limit that is none", "[limits]\nbatch_calls_max = 0\n"),
        ("a ballast that fills the disk", "[limits]\nballast_bytes = 1073741825\n"),
    ];
    let mut told = String::new();
    for (name, toml) in cases {
        let rig = Rig::new();
        rig.write("windlass.toml", toml);
        let ran = rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(2);
        told.push_str(&format!("# {name}: {}", rig.told(&ran)));
        assert_eq!(rig.run(&["tools"]).expect(2).stderr, ran.stderr);
        assert_eq!(ran.stdout, "", "{name}: something ran");
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_file_that_is_no_text_is_told() {
    let rig = Rig::new();
    rig.write("windlass.toml", b"\xff\xfe");
    insta::assert_snapshot!(rig.told(&rig.run(&["tools"]).expect(2)));
}

#[test]
fn the_data_folder_comes_before_the_current_one() {
    let rig = Rig::with("[tools.here]\ncommand = [\"true\"]\n");
    let names = |args: &[&str]| {
        let tools = rig.run(args).expect(0).json();
        let tools = tools.as_array().expect("a list").iter();
        tools.map(|tool| tool["name"].to_string()).filter(|name| !name.contains('_')).collect::<Vec<_>>()
    };
    assert!(names(&["tools", "--json"]).contains(&"\"here\"".to_string()));
    std::fs::create_dir(rig.path("data")).expect("a folder");
    rig.write("data/windlass.toml", "[tools.there]\ncommand = [\"true\"]\n");
    let in_data = names(&["--data", "data", "tools", "--json"]);
    assert!(in_data.contains(&"\"there\"".to_string()) && !in_data.contains(&"\"here\"".to_string()));
}

/// Calls of both sides meet at a pipe: neither ends before the other runs.
const MEET: &str = r#"
[tools.meet]
command = ["./meet.sh", "{side}"]
input = { type = "object", properties = { side = { type = "string" }, at = { type = "string" } }, required = ["side"] }
timeout_ms = 20000
"#;

/// A rig in which calls of the tool `meet` can meet, with these lines in its declaration.
fn meeting(lines: &str) -> Rig {
    let rig = Rig::with(&format!("{MEET}{lines}"));
    rig.script(
        "meet.sh",
        "[ -p pipe ] || mkfifo pipe 2>/dev/null\nif [ $1 = a ]; then echo met > pipe; else cat pipe; fi",
    );
    rig
}

fn meet(a: &str, b: &str) -> String {
    let call =
        |id: &str, at: &str| serde_json::json!({"id": id, "tool": "meet", "args": {"side": id, "at": at}});
    serde_json::json!({"calls": [call("a", a), call("b", b)]}).to_string()
}

#[test]
fn calls_that_claim_different_things_run_together() {
    let rig = meeting("claims = [\"write service:{at}\"]\n");
    let ran = rig.run_on(&["run", "-", "--json"], meet("web", "shop")).expect(0);
    assert_eq!(ran.states(), ["a succeeded", "b succeeded"]);
    // A claim cannot be made without what it names.
    let batch = serde_json::json!({"calls": [{"id": "a", "tool": "meet", "args": {"side": "a"}}]});
    let ran = rig.run_on(&["run", "-", "--json"], batch.to_string()).expect(1);
    let failure = ran.json()["calls"][0]["outcome"]["failure"].clone();
    assert_eq!(failure["code"], "invalid_args", "{failure}");
}

/// A tool of which no two run at once, or one of them fails.
fn alone(lines: &str) -> Rig {
    let toml = "[tools.alone]\ncommand = [\"./alone.sh\"]\nclass = \"read\"\n";
    let rig = Rig::with(&format!("{toml}{lines}"));
    rig.script("alone.sh", "mkdir inside || exit 1\necho x >> order\n/bin/true\nrmdir inside");
    rig
}

#[test]
fn limits_of_tools_and_groups_hold() {
    let calls: Vec<_> = (0..12).map(|n| serde_json::json!({"id": n.to_string(), "tool": "alone"})).collect();
    let batch = serde_json::json!({ "calls": calls }).to_string();
    for lines in ["limits = { running = 1 }\n", "groups = [\"g\"]\n[groups.g]\nrunning = 1\n"] {
        let rig = alone(lines);
        rig.run_on(&["run", "-"], &batch).expect(0);
        assert_eq!(rig.lines("order").len(), 12);
    }
}
