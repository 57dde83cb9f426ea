//! Calls of other MCP servers that wait: as tasks of the server, and for answers of people; and servers behind a URL.

use crate::mcp_servers::{ALLOWED, SERVER, accepted, call, count, kill, names, peak_kb, text, wait};
use crate::rig::{Ran, Rig, finish, until};
use serde_json::Value;
use std::process::{Child, Stdio};

const MODERN: &str = "approval = \"never\"\nenv = { ERA = \"modern\" }";

fn start(rig: &Rig) -> Child {
    rig.start(&["call", "shop_pay", "{}", "--json", "--id", "one"])
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

fn kill_owner(owner: Child) {
    kill(i32::try_from(owner.id()).expect("a process"));
    wait(owner);
}

/// The one question that is open.
fn question(rig: &Rig) -> Option<String> {
    let listed: Value = serde_json::from_str(&rig.run(&["questions", "--json"]).stdout).unwrap_or_default();
    Some(listed["items"].as_array()?.first()?["id"].as_str()?.to_string())
}

fn answer(rig: &Rig) {
    until("somebody is asked", || question(rig).is_some());
    let id = question(rig).expect("it is open");
    rig.run(&["answer", &id, r#"{"colour": 7}"#]).expect(4);
    rig.run(&["answer", &id, r#"{"colour": "red"}"#]).expect(0);
}

/// The id of a task is recorded before it is waited for: the next owner follows the same task, and the call is not sent again.
#[test]
fn a_task_of_a_server_is_followed_by_the_next_owner() {
    for (mode, error) in [("task", false), ("task failing", true)] {
        let rig = accepted(MODERN);
        rig.write("mode", mode);
        let owner = start(&rig);
        until("it is followed", || count(&rig, "tasks/get") > 0);
        kill_owner(owner);
        rig.write("go", "");
        let ended = rig.run(&["call", "shop_pay", "{}", "--json", "--id", "one"]);
        assert_eq!(ended.code, Some(i32::from(error)), "{mode}: {}{}", ended.stdout, ended.stderr);
        let ended = json(&ended);
        assert!(text(&ended).contains("done as a task"), "{mode}: {ended}");
        assert_eq!(ended["state"], if error { "failed" } else { "succeeded" }, "{mode}: {ended}");
        assert_eq!((count(&rig, "begin pay"), count(&rig, "effect")), (1, 1), "{mode}");
    }
}

#[test]
fn a_task_ends_its_call_and_is_cancelled_with_it() {
    let rig = accepted(MODERN);
    rig.write("mode", "task");
    rig.write("go", "");
    assert_eq!(text(&call(&rig, "shop_pay")), "done as a task");
    rig.write("mode", "task failing");
    assert_eq!(call(&rig, "shop_pay")["state"], "failed");
    std::fs::remove_file(rig.path("go")).expect("it is there");
    rig.write("mode", "task");
    let looks = count(&rig, "tasks/get");
    let called = start(&rig);
    until("it is followed", || count(&rig, "tasks/get") > looks);
    let open = rig.run(&["calls", "--state", "open", "--json"]).json();
    let id = open["items"][0]["call"].as_str().unwrap_or_else(|| panic!("{open}")).to_string();
    rig.run(&["cancel", &id]).expect(0);
    until("the server is told", || count(&rig, "tasks/cancel") == 1);
    finish(called);
}

/// A server may ask in the answer to a call, or in a task. The question is an ordinary one of the call.
#[test]
fn questions_of_a_server_are_put_to_people() {
    for (mode, told) in [("asks", "answer red sealed"), ("asks task", "answer red")] {
        let rig = accepted(MODERN);
        rig.write("mode", mode);
        rig.write("go", "");
        let called = start(&rig);
        answer(&rig);
        let ended = finish(called);
        assert_eq!(ended.code, Some(0), "{mode}: {}{}", ended.stdout, ended.stderr);
        assert_eq!((count(&rig, told), count(&rig, "effect")), (1, 1), "{mode}");
    }
}

/// A call that may be repeated waits on after its owner was killed: the question stays, and its answer is given to the server.
#[test]
fn a_question_of_a_server_outlives_the_owner() {
    let rig = accepted(&format!("{MODERN}\nclass = \"keyed\""));
    rig.write("mode", "asks");
    let owner = start(&rig);
    until("somebody is asked", || question(&rig).is_some());
    kill_owner(owner);
    let next = start(&rig);
    answer(&rig);
    let ended = finish(next);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!((count(&rig, "answer red sealed"), count(&rig, "effect")), (1, 1));
    assert_eq!(count(&rig, "begin pay"), 2, "asked once, and continued once");
}

/// Before 2026-07-28 a server asks in a request of its own, in the middle of the call, on its pipe or on a stream behind a URL.
#[test]
fn questions_of_an_older_server_are_put_to_people() {
    for on_pipes in [true, false] {
        let remote =
            if on_pipes { Remote { rig: accepted(ALLOWED), server: None } } else { remote("legacy") };
        let rig = &remote.rig;
        rig.write("mode", "elicits");
        let called = start(rig);
        answer(rig);
        let ended = finish(called);
        assert_eq!(ended.code, Some(0), "{on_pipes}: {}{}", ended.stdout, ended.stderr);
        assert_eq!(count(rig, "answer red large"), 1, "with the form's own value of what was left out");
        assert_eq!(count(rig, "effect"), 1);
    }
}

#[test]
fn a_definition_that_is_nested_too_deep_hides_no_other() {
    let rig = crate::mcp_servers::rig(ALLOWED);
    rig.write("mode", "deep");
    let shown = rig.run(&["mcp", "accept", "shop", "--yes"]).expect(0);
    assert!(
        shown.stdout.contains("cannot be offered: deep: its definition cannot be read"),
        "{}",
        shown.stdout
    );
    assert_eq!(call(&rig, "shop_pay")["state"], "succeeded");
}

/// A server behind a URL, which wants a secret in a header. It ends with this.
struct Remote {
    rig: Rig,
    server: Option<Child>,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.kill());
            drop(server.wait());
        }
    }
}

fn remote(era: &str) -> Remote {
    let rig = Rig::with("");
    rig.write("server.py", SERVER);
    let mut command = std::process::Command::new("python3");
    command.args(["server.py", "http"]).current_dir(rig.path("")).env("ERA", era).stdin(Stdio::null());
    let remote = Remote { server: Some(command.spawn().expect("python3 starts")), rig };
    let rig = &remote.rig;
    until("it serves", || rig.path("port").exists());
    let port = std::fs::read_to_string(rig.path("port")).expect("a port");
    rig.run_on(&["secrets", "set", "shop"], "tr0ub4dor").expect(0);
    let toml = format!(
        "{}[mcp.shop]\nurl = \"http://127.0.0.1:{port}/mcp\"\ninternal = true\n{ALLOWED}\n\
         headers = {{ Authorization = \"Bearer {{secret:shop}}\" }}\n",
        crate::rig::DEMO
    );
    rig.write("windlass.toml", toml);
    let ran = rig.run(&["mcp", "accept", "shop", "--yes"]);
    assert_eq!(ran.code, Some(0), "{era}: {}{}", ran.stdout, ran.stderr);
    remote
}

#[test]
fn a_server_behind_a_url_is_called_with_its_secret_and_tells_its_progress() {
    for era in ["legacy", "modern"] {
        let remote = remote(era);
        let rig = &remote.rig;
        let paid = call(rig, "shop_pay");
        assert_eq!(text(&paid), "pay: True", "{era}: {paid}");
        assert_eq!(call(rig, "shop_fail")["state"], "failed");
        rig.write("mode", "reports slow");
        let called = start(rig);
        until("its progress is seen before its end", || {
            rig.run(&["calls", "--state", "open", "--json"]).stdout.contains("counted")
        });
        rig.write("go", "");
        assert_eq!(finish(called).code, Some(0));
        assert_eq!((count(rig, "without its secret"), count(rig, "without its headers")), (0, 0), "{era}");
        assert_eq!(count(rig, "key False"), 0, "every call has its key");
    }
}

#[test]
fn a_server_behind_a_url_that_vanishes_after_the_effect_leaves_the_call_unknown() {
    let mut remote = remote("modern");
    remote.rig.write("mode", "dies");
    let ran = finish(start(&remote.rig));
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(count(&remote.rig, "effect"), 1);
    drop(remote.server.take().map(|mut server| server.wait()));
    let refused = call(&remote.rig, "shop_look");
    assert_eq!(refused["state"], "failed", "it is not reached, and nothing happened: {refused}");
}

/// A gigabyte from a server behind a URL ends its call, and the owner stays small.
#[test]
fn a_gigabyte_from_a_server_behind_a_url_is_not_read() {
    let remote = remote("modern");
    let rig = &remote.rig;
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it serves", || rig.path(".windlass/control.sock").exists());
    assert_eq!(text(&call(rig, "shop_look")), "look: True");
    let before = peak_kb(owner.id());
    rig.write("mode", "huge");
    let ran = finish(start(rig));
    assert_eq!(ran.code, Some(3), "it was sent, and nobody knows: {}{}", ran.stdout, ran.stderr);
    let grown = peak_kb(owner.id()).saturating_sub(before);
    println!("the owner grew by {grown} kB");
    assert!(grown < 64 << 10, "{grown} kB for a result of a gigabyte");
    rig.write("mode", "");
    assert!(text(&call(rig, "shop_rich")).contains("hologram"), "and the server is used again");
    kill_owner(owner);
}

/// A task does not depend on the connection by which it is followed, nor on the process behind that.
#[test]
fn a_task_outlives_the_process_that_told_of_it() {
    let rig = accepted(MODERN);
    rig.write("mode", "task dies@tasks/get");
    let called = start(&rig);
    until("the server has died twice", || count(&rig, "dies@tasks/get") >= 2);
    rig.write("go", "");
    rig.write("mode", "task");
    let ended = finish(called);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!((count(&rig, "begin pay"), count(&rig, "effect")), (1, 1));
}

/// A server that hangs when it is listed again is ended and started anew: what it has changed is seen then.
#[test]
fn a_server_that_hangs_when_it_is_listed_again_is_started_anew() {
    let rig = accepted(&format!("{MODERN}\n[limits]\nmcp_connect_ms = 1500"));
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it listens", || count(&rig, "listens") == 1);
    rig.write("mode", "hangs@tools/list");
    rig.write("changed", "");
    until("it hangs", || count(&rig, "hangs@tools/list") > 0);
    rig.write("mode", "rug");
    until("the changed tool is gone", || !names(&rig).contains(&"shop_pay".to_string()));
    assert!(names(&rig).contains(&"shop_look".to_string()));
    kill_owner(owner);
}

/// In the modern era a server tells of changes to whoever listens, on pipes and behind a URL.
#[test]
fn a_changed_list_is_seen_at_once() {
    for on_pipes in [true, false] {
        let mut remote =
            if on_pipes { Remote { rig: accepted(MODERN), server: None } } else { remote("modern") };
        let rig = &remote.rig;
        let mut owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
        until("it listens", || count(rig, "listens") == 1);
        assert!(names(rig).contains(&"shop_pay".to_string()));
        rig.write("mode", "rug");
        rig.write("changed", "");
        until("the changed tool is gone", || !names(rig).contains(&"shop_pay".to_string()));
        assert!(names(rig).contains(&"shop_look".to_string()));
        drop(owner.kill());
        wait(owner);
        drop(remote.server.as_mut().map(Child::kill));
    }
}

#[test]
fn servers_of_another_client_are_imported() {
    let rig = Rig::with("");
    rig.write("server.py", SERVER);
    let theirs = r#"{"mcpServers": {"shop": {"command": "python3", "args": ["server.py"], "env": {"ERA": "modern", "API_TOKEN": "ghp_12345678"}}}}"#;
    rig.write("theirs.json", theirs);
    let printed = rig.run(&["mcp", "import", "theirs.json"]).expect(0);
    assert!(
        !printed.stdout.contains("ghp_12345678") && printed.stderr.contains("secrets set shop_api_token"),
        "{printed}"
    );
    rig.write("windlass.toml", format!("{}{}", crate::rig::DEMO, printed.stdout));
    rig.run_on(&["secrets", "set", "shop_api_token"], "ghp_12345678").expect(0);
    rig.run(&["mcp", "accept", "shop", "--yes"]).expect(0);
    assert!(names(&rig).contains(&"shop_pay".to_string()));
    rig.run(&["mcp", "import", "server.py"]).expect(2);
    // By the name of the client: its file in the project.
    std::fs::create_dir(rig.path(".cursor")).expect("a folder");
    rig.write(".cursor/mcp.json", theirs);
    assert_eq!(rig.run(&["mcp", "import", "cursor"]).expect(0).stdout, printed.stdout);
    let mut elsewhere = rig.command(&["mcp", "import", "windsurf"]);
    let ran = elsewhere.env("HOME", rig.path("")).output().expect("windlass starts");
    assert_eq!(ran.status.code(), Some(2), "it has no file");
}
