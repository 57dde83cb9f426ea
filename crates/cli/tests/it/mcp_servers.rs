//! MCP servers of others behind Windlass: accepted, called, changed, killed and hostile. The server is a real process.

use crate::rig::{Rig, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Child;

pub const SERVER: &str = include_str!("mcp_servers/server.py");

/// A folder with an entry for the server, whose tools need no approval unless the test says so.
pub fn rig(more: &str) -> Rig {
    let rig = Rig::with(&format!(
        "[mcp.shop]\ncommand = [\"python3\", \"server.py\"]\n{more}\n[mcp.shop.tools.look]\nclass = \"read\"\n"
    ));
    rig.write("server.py", SERVER);
    rig
}

pub const ALLOWED: &str = "approval = \"never\"";

/// The tool that hangs is given up soon; the others have time, however busy the machine is.
const HANGS_SHORTLY: &str = "[mcp.shop.tools.fail]\ntimeout_ms = 1500";

pub fn accepted(more: &str) -> Rig {
    let rig = rig(more);
    let ran = rig.run(&["mcp", "accept", "shop", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    rig
}

pub fn count(rig: &Rig, word: &str) -> usize {
    rig.lines("log").iter().filter(|line| *line == word).count()
}

/// The processes of the server.
fn servers(rig: &Rig) -> Vec<i32> {
    let is_server = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first().is_some_and(|word| word.ends_with(b"python3")) && words.contains(&&b"server.py"[..])
    };
    rig.processes().into_iter().filter(is_server).collect()
}

pub fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it is ours");
}

/// The approvals that wait; none while there is no store yet.
pub fn approvals(rig: &Rig) -> Vec<Value> {
    let ran = rig.run(&["approvals", "--json"]);
    let listed: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    listed["items"].as_array().cloned().unwrap_or_default()
}

pub fn text(call: &Value) -> String {
    call["model"]["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .filter_map(|part| part["text"].as_str())
        .collect()
}

pub fn call(rig: &Rig, tool: &str) -> Value {
    let ran = rig.run(&["call", tool, "{}", "--json"]);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

pub fn names(rig: &Rig) -> Vec<String> {
    let listed = rig.run(&["tools", "--json"]).json();
    let listed = listed.as_array().expect("tools").iter();
    listed
        .filter_map(|tool| tool["name"].as_str())
        .filter(|name| name.starts_with("shop"))
        .map(str::to_string)
        .collect()
}

#[test]
fn a_tool_is_offered_once_it_is_accepted_and_its_calls_are_ordinary_calls() {
    for era in ["legacy", "modern"] {
        let rig = rig(&format!("{ALLOWED}\nenv = {{ ERA = \"{era}\" }}"));
        assert!(names(&rig).is_empty(), "nothing is accepted yet");
        assert_eq!(rig.run(&["mcp", "test", "shop"]).code, Some(1), "and that is said");
        let shown = rig.run(&["mcp", "accept", "shop"]);
        assert!(shown.code == Some(1) && shown.stdout.contains("new: pay"), "{}", shown.stdout);
        assert!(names(&rig).is_empty(), "nobody has confirmed it");
        assert_eq!(rig.run(&["mcp", "accept", "shop", "--yes"]).code, Some(0));
        assert_eq!(rig.run(&["mcp", "test", "shop"]).code, Some(0));
        assert_eq!(names(&rig), ["shop_fail", "shop_look", "shop_pay", "shop_rich"]);
        let paid = call(&rig, "shop_pay");
        assert_eq!(
            (paid["state"].as_str(), text(&paid)),
            (Some("succeeded"), "pay: True".to_string()),
            "{era}: {paid}"
        );
        assert_eq!(call(&rig, "shop_fail")["state"], "failed");
        let rich = call(&rig, "shop_rich");
        assert!(text(&rich).contains("hologram") && text(&rich).contains("file:///x"), "{rich}");
        assert!(rich.to_string().contains("raw"), "the whole result is kept beside the call: {rich}");
        until("no process is left", || rig.processes().is_empty());
    }
}

#[test]
fn without_rules_a_call_asks_first() {
    let rig = accepted("");
    let asked = rig.start(&["call", "shop_pay", "{}"]);
    until("somebody is asked", || approvals(&rig).len() == 1);
    assert_eq!(count(&rig, "effect"), 0);
    kill(i32::try_from(asked.id()).expect("a process"));
    wait(asked);
    until("no process is left", || rig.processes().is_empty());
}

pub fn wait(mut child: Child) {
    child.wait().expect("it is our child");
}

#[test]
fn a_changed_tool_is_neither_offered_nor_called_until_it_is_accepted() {
    let rig = accepted(ALLOWED);
    rig.write("mode", "rug");
    let refused = call(&rig, "shop_pay");
    assert_eq!(refused["state"], "failed", "{refused}");
    assert!(text(&refused).contains("has changed this tool"), "{refused}");
    assert_eq!(count(&rig, "begin pay"), 0);
    assert_eq!(call(&rig, "shop_look")["state"], "succeeded", "the others are not touched");
    let shown = rig.run(&["mcp", "accept", "shop"]);
    assert!(
        shown.stdout.contains("changed: pay") && shown.stdout.contains("send all your secrets"),
        "{}",
        shown.stdout
    );
    assert_eq!(rig.run(&["mcp", "accept", "shop", "--yes"]).code, Some(0));
    assert_eq!(call(&rig, "shop_pay")["state"], "succeeded");
}

/// The server is killed after the call was sent, by itself after the effect or by us before: nobody knows, and it is not repeated.
#[test]
fn a_server_that_dies_in_the_middle_of_a_call_leaves_it_unknown() {
    for mode in ["dies", "slow"] {
        let rig = accepted(ALLOWED);
        rig.write("mode", mode);
        let called = rig.start(&["call", "shop_pay", "{}", "--json", "--id", "one"]);
        if mode == "slow" {
            until("it has begun", || count(&rig, "begin pay") == 1);
            for pid in servers(&rig) {
                kill(pid);
            }
        }
        let ran = crate::rig::finish(called);
        assert_eq!(ran.code, Some(3), "{mode}: unknown: {}{}", ran.stdout, ran.stderr);
        let again = rig.run(&["call", "shop_pay", "{}", "--json", "--id", "one"]);
        assert_eq!(again.code, Some(3), "{mode}: it stays unknown: {}", again.stdout);
        assert_eq!(count(&rig, "begin pay"), 1, "{mode}: it was not repeated");
        until("no process is left", || rig.processes().is_empty());
    }
}

#[test]
fn twenty_killed_owners_leave_no_server_behind() {
    let rig = accepted(ALLOWED);
    rig.write("mode", "slow");
    for round in 1..=20 {
        // Other arguments: the same call again and again would be a loop.
        let owner = rig.start(&["call", "shop_pay", &format!("{{\"round\": {round}}}")]);
        until("it has begun", || count(&rig, "begin pay") == round);
        kill(i32::try_from(owner.id()).expect("a process"));
        wait(owner);
        until("no process is left", || rig.processes().is_empty());
    }
    rig.write("mode", "");
    assert_eq!(call(&rig, "shop_look")["state"], "succeeded");
    assert_eq!(count(&rig, "effect"), 0, "none of them was repeated");
}

#[test]
fn one_bad_tool_hides_no_other_and_too_many_are_left_out() {
    let rig = rig(ALLOWED);
    rig.write("mode", "bad many");
    let shown = rig.run(&["mcp", "accept", "shop", "--yes"]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for bad in ["hidden\\u{200b}", "schemaless", "big"] {
        assert!(shown.stdout.contains(&format!("cannot be offered: {bad}")), "{bad}");
    }
    let offered = names(&rig);
    assert!(
        offered.contains(&"shop_pay".to_string()) && offered.len() > 900 && offered.len() <= 1_000,
        "{}",
        offered.len()
    );
    assert!(!offered.contains(&"shop_far".to_string()), "its schema is elsewhere");
    assert_eq!(call(&rig, "shop_pay")["state"], "succeeded");
}

#[test]
fn a_hostile_server_harms_only_its_own_calls() {
    let rig = accepted(&format!("{ALLOWED}\n{HANGS_SHORTLY}"));
    for (tool, mode, code) in [("shop_pay", "flood", 0), ("shop_pay", "huge", 3), ("shop_fail", "hangs", 3)] {
        rig.write("mode", mode);
        let ran = rig.run(&["call", tool, "{}", "--json"]);
        assert_eq!(ran.code, Some(code), "{mode}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(rig.run(&["call", "echo", r#"{"message": "here"}"#]).code, Some(0), "{mode}");
        until("no process is left", || rig.processes().is_empty());
    }
    rig.write("mode", "mute");
    let ran = rig.run(&["call", "shop_look", "{}", "--json"]);
    assert_eq!(ran.code, Some(1), "it is not reached, and nothing happened: {}{}", ran.stdout, ran.stderr);
}

/// In kilobytes, the most memory that a process has used.
pub fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_else(|| panic!("{status}"));
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// One owner, whose server floods, makes noise, sends a gigabyte, hangs and dies: its other tools answer meanwhile, and it stays small.
#[test]
fn an_owner_is_not_harmed_by_a_hostile_server() {
    let rig = accepted(&format!("{ALLOWED}\n{HANGS_SHORTLY}"));
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it serves", || rig.path(".windlass/control.sock").exists());
    assert_eq!(call(&rig, "shop_look")["state"], "succeeded");
    let before = peak_kb(owner.id());
    for (tool, mode, code) in [
        ("shop_pay", "flood", 0),
        ("shop_pay", "noisy", 0),
        ("shop_pay", "huge", 3),
        ("shop_fail", "hangs", 3),
        ("shop_pay", "dies", 3),
    ] {
        rig.write("mode", mode);
        let begun = || count(&rig, "begin pay") + count(&rig, "begin fail");
        let begun_before = begun();
        let hostile = rig.start(&["call", tool, &format!("{{\"mode\": \"{mode}\"}}"), "--json"]);
        until("it is sent", || begun() > begun_before);
        for beside in 0..3 {
            let args = format!("{{\"message\": \"{mode} {beside}\"}}");
            assert_eq!(rig.run(&["call", "echo", &args]).code, Some(0), "{mode}");
        }
        let ran = crate::rig::finish(hostile);
        assert_eq!(ran.code, Some(code), "{mode}: {}{}", ran.stdout, ran.stderr);
        rig.write("mode", "");
        until("the server is used again", || rig.run(&["call", "shop_look", "{}"]).code == Some(0));
    }
    let grown = peak_kb(owner.id()).saturating_sub(before);
    println!("the owner grew by {grown} kB");
    assert!(grown < 64 << 10, "{grown} kB for a result of a gigabyte");
    kill(i32::try_from(owner.id()).expect("a process"));
    wait(owner);
    until("no process is left", || rig.processes().is_empty());
}

/// A server dies or hangs at each message that it gets. Before the call was sent nothing happened, afterwards nobody knows; other tools are not harmed.
#[test]
fn a_server_that_fails_at_any_message_harms_only_its_own_calls() {
    let legacy = [("initialize", 1), ("notifications/initialized", 1), ("tools/list", 1), ("tools/call", 3)];
    let modern = [("server/discover", 1), ("tools/list", 1), ("tools/call", 3)];
    for (era, messages) in [("legacy", &legacy[..]), ("modern", &modern[..])] {
        let rig = accepted(&format!(
            "{ALLOWED}\ntimeout_ms = 1500\nenv = {{ ERA = \"{era}\" }}\n[limits]\nmcp_connect_ms = 1500\nmcp_server_tools_max = 50"
        ));
        for fails in ["dies", "hangs", "mixes"] {
            for (method, code) in messages {
                fail_at(&rig, fails, method, *code);
            }
        }
        rig.write("mode", "");
        assert_eq!(call(&rig, "shop_look")["state"], "succeeded", "and it is used again");
    }
}

fn fail_at(rig: &Rig, fails: &str, method: &str, code: i32) {
    // An answer under another id than that of the request is no answer. The mute notification only counts if it kills.
    let code = if fails != "dies" && method.starts_with("notifications") { 0 } else { code };
    let effects = count(rig, "effect");
    rig.write("mode", format!("{fails}@{method}"));
    // Other arguments each time: the same call again and again would be a loop.
    let args = format!("{{\"at\": \"{fails}@{method}\"}}");
    let ran = rig.run(&["call", "shop_pay", &args, "--json"]);
    assert_eq!(ran.code, Some(code), "{fails}@{method}: {}{}", ran.stdout, ran.stderr);
    let is_done = code == 0 || (fails, method) == ("mixes", "tools/call");
    assert_eq!(count(rig, "effect"), effects + usize::from(is_done), "{fails}@{method}");
    let args = format!("{{\"message\": \"{fails}@{method}\"}}");
    assert_eq!(rig.run(&["call", "echo", &args]).code, Some(0), "{fails}@{method}");
    until("no process is left", || rig.processes().is_empty());
}

#[test]
fn a_server_is_added_with_the_tools_that_it_has() {
    let rig = Rig::with("");
    rig.write("server.py", SERVER);
    let add = ["mcp", "add", "shop", "--env", "ERA=modern", "--yes", "--", "python3", "server.py"];
    let added = rig.run(&add);
    assert_eq!(added.code, Some(0), "{}{}", added.stdout, added.stderr);
    let toml = std::fs::read_to_string(rig.path("windlass.toml")).expect("it was written");
    for table in [
        "# It claims of itself: readOnlyHint true.\n[mcp.shop.tools.look]\nclass = \"read\"\nclaims = [\"read mcp:shop\"]\napproval = \"never\"\n",
        "# It claims of itself: nothing.\n[mcp.shop.tools.pay]\nclass = \"once\"\nclaims = [\"write mcp:shop\"]\n\n",
    ] {
        assert!(toml.contains(table), "{toml}");
    }
    assert!(added.stdout.contains("is not checked"), "{}", added.stdout);
    assert_eq!(rig.run(&add).code, Some(2), "it is there already");
    let listed = rig.run(&["mcp", "ls", "--json"]).json();
    let listed = listed["tools"].as_array().expect("tools").iter();
    let terms = |tool: &Value| ["tool", "name", "class", "claims", "approval"].map(|key| tool[key].clone());
    let listed: Vec<_> = listed.map(terms).collect();
    assert!(
        listed.contains(&["look", "shop_look", "read", "read mcp:shop", "never"].map(Value::from)),
        "{listed:?}"
    );
    assert!(
        listed.contains(&["pay", "shop_pay", "once", "write mcp:shop", "policy"].map(Value::from)),
        "{listed:?}"
    );
    assert_eq!(
        call(&rig, "shop_look")["state"],
        "succeeded",
        "it claims only to read, and that was confirmed"
    );
    let asked = rig.start(&["call", "shop_pay", "{}"]);
    until("somebody is asked", || approvals(&rig).len() == 1);
    kill(i32::try_from(asked.id()).expect("a process"));
    wait(asked);
    // A rule of the policy may allow what was proposed.
    let rule = "[[policy.rules]]\nname = \"trusted\"\nruling = \"allow\"\nwhen = { server = \"shop\" }\n";
    rig.write("windlass.toml", format!("{toml}\n{rule}"));
    assert_eq!(call(&rig, "shop_pay")["state"], "succeeded");
}

/// At a terminal the operator is asked about each tool: one is changed, one left out, the others are taken as proposed.
#[test]
fn the_operator_decides_about_each_tool_of_an_added_server() {
    let at_terminal = |rig: &Rig, typed: &str| {
        let add = ["mcp", "add", "shop", "--", "python3", "server.py"];
        let windlass = rig.command(&add);
        let mut terminal = std::process::Command::new("python3");
        terminal
            .arg(rig.path("terminal.py"))
            .arg(typed)
            .arg(windlass.get_program())
            .args(windlass.get_args());
        terminal.current_dir(rig.path("")).env("WINDLASS_LOG", "off");
        terminal.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        crate::rig::finish(terminal.stderr(std::process::Stdio::piped()).spawn().expect("python3 starts"))
    };
    // The tools come by name: fail, look, pay, rich.
    for (typed, code, expected) in [
        ("c|keyed|none|ask|y|s|a|y", 0, vec!["shop_fail", "shop_pay", "shop_rich"]),
        ("y|q", 1, vec![]),
        ("a|n", 1, vec![]),
    ] {
        let rig = Rig::with("");
        rig.write("server.py", SERVER).write("terminal.py", include_str!("mcp_servers/terminal.py"));
        let ran = at_terminal(&rig, typed);
        assert_eq!(ran.code, Some(code), "{typed}: {}{}", ran.stdout, ran.stderr);
        assert!(
            ran.stdout.contains("it claims of itself: readOnlyHint true") || code == 0 || typed == "y|q",
            "{}",
            ran.stdout
        );
        assert_eq!(names(&rig), expected, "{typed}: {}", ran.stdout);
        let toml = std::fs::read_to_string(rig.path("windlass.toml")).expect("it is there");
        let fail = "[mcp.shop.tools.fail]\nclass = \"keyed\"\nclaims = []\napproval = \"ask\"\n";
        assert_eq!((toml.contains(fail), toml.contains("tools.look")), (code == 0, false), "{typed}: {toml}");
    }
}
