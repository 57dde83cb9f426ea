//! `windlass mcp`: a client on pipes, the owner behind it started, shared and killed.

use crate::rig::{Rig, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

/// Tools that say when they begin, and return once there is a file `go`.
const TOOLS: &str = r#"
[tools.once]
command = ["./work.sh"]
class = "once"

[tools.read]
command = ["./work.sh"]
class = "read"
"#;

const WORK: &str = r#"
echo begin >> log
while [ ! -e go ]; do sleep 0.02; done
echo effect >> log
echo '"done"'
"#;

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.script("work.sh", WORK);
    rig
}

/// A client that has started a bridge.
struct Client {
    bridge: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(rig: &Rig) -> Client {
        Client::start_with(rig, &["mcp", "--session", "chat"])
    }

    fn start_with(rig: &Rig, args: &[&str]) -> Client {
        let mut command = rig.command(args);
        let mut bridge =
            command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("windlass starts");
        let (input, output) = (bridge.stdin.take(), bridge.stdout.take().expect("a pipe"));
        Client { bridge, input, output: BufReader::new(output) }
    }

    /// One that has said hello.
    fn open(rig: &Rig) -> Client {
        let mut client = Client::start(rig);
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
        client.send(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}));
        assert_eq!(client.read()["result"]["protocolVersion"], "2025-11-25");
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: Value) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{message}").and_then(|()| input.flush()).expect("the bridge reads");
    }

    /// With a progress token, so that its answer is held for long.
    fn call(&mut self, id: u64, tool: &str) {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": id}});
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the bridge writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The result of the call of this id, and its text.
    fn result(&mut self, id: u64) -> (Value, String) {
        loop {
            let message = self.read();
            if message["id"] == id {
                let result = message["result"].clone();
                let text = result["content"][0]["text"].as_str().unwrap_or_default().to_string();
                return (message, text);
            }
            // The next owner may have other tools.
            let known = ["notifications/progress", "notifications/tools/list_changed"];
            assert!(known.iter().any(|method| message["method"] == *method), "{message}");
        }
    }

    fn close(mut self) {
        drop(self.input.take());
        assert!(self.bridge.wait().expect("it is our child").success());
    }
}

/// The owners of the rig's folder.
fn owners(rig: &Rig) -> Vec<i32> {
    let is_owner = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"serve")
    };
    rig.processes().into_iter().filter(is_owner).collect()
}

fn kill_owner(rig: &Rig) -> i32 {
    let found = owners(rig);
    let [owner] = found.as_slice() else { panic!("one owner, and not {found:?}") };
    kill_process(Pid::from_raw(*owner).expect("a process"), Signal::KILL).expect("it is ours");
    *owner
}

fn count(rig: &Rig, word: &str) -> usize {
    rig.lines("log").iter().filter(|line| *line == word).count()
}

#[test]
fn an_owner_is_killed_in_the_middle_of_a_call_and_the_client_is_answered() {
    let rig = rig();
    let mut client = Client::open(&rig);
    client.call(1, "once");
    until("it has begun", || count(&rig, "begin") == 1);
    let killed = kill_owner(&rig);
    let (answer, told) = client.result(1);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert!(
        told.contains("not known"),
        "nobody knows whether it took effect, and it is not repeated: {told}"
    );
    assert_eq!(count(&rig, "begin"), 1);
    assert!(owners(&rig).iter().all(|owner| *owner != killed) && owners(&rig).len() == 1);
    // A call that only reads may run again, and does.
    client.call(2, "read");
    until("it has begun", || count(&rig, "begin") == 2);
    kill_owner(&rig);
    until("it runs again", || count(&rig, "begin") >= 3);
    rig.write("go", "");
    assert_eq!(client.result(2).1, "done");
    until("nothing runs", || rig.run(&["calls", "--state", "open", "--json"]).json()["items"] == json!([]));
    let (begun, effects) = (count(&rig, "begin"), count(&rig, "effect"));
    // The client has the answer of the first: now it is a new call.
    client.call(3, "once");
    assert_eq!(client.result(3).1, "done");
    assert_eq!((count(&rig, "begin"), count(&rig, "effect")), (begun + 1, effects + 1));
    client.close();
    assert_eq!(owners(&rig).len(), 1, "the owner stays");
}

/// A task is on disk before its id leaves: the owner is killed between the id and the first question for it.
#[test]
fn a_task_is_found_by_the_next_owner() {
    let rig = Rig::with(&format!("{TOOLS}\n[limits]\nmcp_hold_ms = 100\n"));
    rig.script("work.sh", WORK);
    let mut client = Client::start(&rig);
    let mut ids = 0..;
    let mut ask = |client: &mut Client, method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        });
        let id: u64 = ids.next().expect("another");
        client.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        client.result(id).0["result"].clone()
    };
    for (tool, is_error) in [("read", false), ("once", true)] {
        let before = count(&rig, "begin");
        let made = ask(&mut client, "tools/call", json!({"name": tool, "arguments": {}}));
        assert_eq!(made["resultType"], "task", "{made}");
        until("it has begun", || count(&rig, "begin") > before);
        kill_owner(&rig);
        let begun = count(&rig, "begin");
        rig.write("go", "");
        let ended = loop {
            let task = ask(&mut client, "tasks/get", json!({"taskId": made["taskId"]}));
            if task["status"] != "working" {
                break task;
            }
        };
        assert_eq!(
            (&ended["status"], &ended["result"]["isError"]),
            (&json!("completed"), &json!(is_error)),
            "{ended}"
        );
        let expected = if is_error { begun } else { begun + 1 };
        assert_eq!(count(&rig, "begin"), expected, "{tool}: only what reads runs again");
        std::fs::remove_file(rig.path("go")).expect("it is there");
    }
    client.close();
}

#[test]
fn a_call_that_had_ended_is_delivered_by_the_next_owner() {
    let rig = rig();
    let mut client = Client::open(&rig);
    client.call(1, "once");
    until("it has begun", || count(&rig, "begin") == 1);
    // The bridge stands still while the call ends and its owner is killed: the answer is lost on the way.
    let bridge = Pid::from_child(&client.bridge);
    kill_process(bridge, Signal::STOP).expect("it is ours");
    until("it stands still", || crate::rig::stands_still(bridge.as_raw_nonzero().get()));
    rig.write("go", "");
    until("its end is recorded", || rig.run(&["calls", "--json"]).json()["items"][0]["state"] == "succeeded");
    kill_owner(&rig);
    kill_process(bridge, Signal::CONT).expect("it is ours");
    assert!(client.result(1).1.starts_with("done"));
    assert_eq!(count(&rig, "effect"), 1);
    client.close();
}

#[test]
fn any_number_of_bridges_share_one_owner() {
    let rig = rig();
    rig.write("go", "");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::start(&rig)).collect();
    for client in &mut clients {
        client.send(json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"}));
    }
    for client in &mut clients {
        let listed = client.read();
        let tools = listed["result"]["tools"].as_array().expect("tools").iter();
        assert!(tools.clone().any(|tool| tool["name"] == "once"), "{listed}");
    }
    until("the others have left", || owners(&rig).len() == 1);
    for client in clients {
        client.close();
    }
}

#[test]
fn what_is_no_message_is_answered_and_a_cancel_ends_the_request() {
    let rig = rig();
    let mut client = Client::open(&rig);
    let input = client.input.as_mut().expect("it is open");
    input.write_all(b"no json\n").and_then(|()| input.flush()).expect("the bridge reads");
    assert_eq!(client.read()["error"]["code"], -32_700);
    for odd in [b"\xff\xfe\n".to_vec(), [&vec![b'x'; 65 << 20][..], b"\n"].concat()] {
        let input = client.input.as_mut().expect("it is open");
        input.write_all(&odd).and_then(|()| input.flush()).expect("the bridge reads on");
        assert_eq!(client.read()["error"]["code"], -32_700);
    }
    client.call(1, "once");
    until("it has begun", || count(&rig, "begin") == 1);
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    client.call(2, "once");
    rig.write("go", "");
    let (answer, told) = client.result(2);
    assert!(told == "done" && answer["result"]["content"][1]["text"].is_string(), "it joins: {answer}");
    assert_eq!((count(&rig, "begin"), count(&rig, "effect")), (1, 1));
    client.close();
}

/// `detach = false`: the tools keep their output schemas, and an answer is the end of its call, however long that takes.
#[test]
fn tools_of_a_server_that_does_not_detach_are_answered_with_their_end() {
    for (detach, provisional) in [("", true), ("detach = false", false)] {
        let rig = Rig::with(&format!(
            "[limits]\nmcp_hold_ms = 50\n[mcp.shop]\ncommand = [\"python3\", \"server.py\"]\napproval = \"never\"\n{detach}\n"
        ));
        rig.write("server.py", crate::mcp_servers::SERVER);
        rig.run(&["mcp", "accept", "shop", "--yes"]).expect(0);
        let mut client = Client::open(&rig);
        client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        let listed = client.read()["result"]["tools"].clone();
        let rich = listed.as_array().expect("tools").iter().find(|tool| tool["name"] == "shop_rich");
        assert_eq!(rich.expect("it is there")["outputSchema"].is_object(), !provisional);
        let params = |tool: &str| json!({"name": tool, "arguments": {}});
        client
            .send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params("shop_rich")}));
        let mut result = client.read()["result"].clone();
        if provisional && result["structuredContent"].is_null() {
            // It was slower than the hold.
            result["structuredContent"] = json!({"answer": 42});
        }
        assert_eq!(result["structuredContent"], json!({"answer": 42}), "{result}");
        rig.write("mode", "slow");
        client.send(json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params("shop_pay")}));
        until("it has begun", || count(&rig, "begin pay") == 1);
        if provisional {
            assert!(client.result(3).1.contains("continues as task"));
            rig.write("go", "");
        } else {
            rig.write("go", "");
            assert_eq!(client.result(3).1, "pay: True");
        }
        client.close();
    }
}

/// An owner that a bridge has started leaves once nobody needs it, and the bridge starts the next.
#[test]
fn an_owner_leaves_when_nothing_is_open_and_nobody_asks() {
    let rig = Rig::with(&format!("[limits]\nmcp_owner_idle_ms = 1\nmcp_hold_ms = 50\n{TOOLS}"));
    rig.script("work.sh", WORK);
    let mut client = Client::open(&rig);
    client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "once", "arguments": {}}}));
    assert!(client.result(1).1.contains("continues as task"));
    let owner = owners(&rig);
    assert_eq!(owner.len(), 1, "a call is open");
    rig.write("go", "");
    until("it has ended", || count(&rig, "effect") == 1);
    assert_eq!(owners(&rig), owner, "a client listens for changes of its tools");
    client.close();
    until("it has left", || owners(&rig).is_empty());
    let mut client = Client::open(&rig);
    client.send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    assert!(client.read()["result"]["tools"].is_array(), "the next one answers");
    client.close();
}

/// A changed tool of another server is told to an older client behind a bridge within a second, and so is a new owner.
#[test]
fn a_client_of_the_older_era_hears_of_changed_tools() {
    let rig = Rig::with("[mcp.shop]\ncommand = [\"python3\", \"server.py\"]\nenv = { ERA = \"modern\" }\n");
    rig.write("server.py", crate::mcp_servers::SERVER);
    rig.run(&["mcp", "accept", "shop", "--yes"]).expect(0);
    let mut client = Client::open(&rig);
    until("the server is listened to", || count(&rig, "listens") == 1);
    rig.write("mode", "rug");
    let changed_at = Instant::now();
    rig.write("changed", "");
    assert_eq!(client.read()["method"], "notifications/tools/list_changed");
    let took = changed_at.elapsed();
    client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    let listed = client.read()["result"]["tools"].to_string();
    assert!(!listed.contains("shop_pay") && listed.contains("shop_look"), "{listed}");
    println!("told after {} ms", took.as_millis());
    // On a machine that is busy with other tests a second says nothing.
    assert!(std::env::var_os("BENCH").is_none() || took < Duration::from_secs(1), "{took:?}");
    kill_owner(&rig);
    client.send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    let told = [client.read(), client.read()];
    assert!(told.iter().any(|message| message["id"] == 2), "{told:?}");
    assert!(told.iter().any(|message| message["method"] == "notifications/tools/list_changed"), "{told:?}");
    client.close();
}

/// `--list search` and `mcp_list = "search"`: two tools stand for all others.
#[test]
fn a_bridge_lists_two_tools_for_all() {
    for (toml, args) in [
        ("", &["mcp", "--session", "chat", "--list", "search"][..]),
        ("[server]\nmcp_list = \"search\"\n", &["mcp", "--session", "chat"][..]),
    ] {
        let rig = Rig::with(toml);
        let mut client = Client::start_with(&rig, args);
        client.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
        let listed = client.read()["result"]["tools"].clone();
        let listed = listed.as_array().expect("tools").iter();
        let names: Vec<&str> = listed.filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names, ["call_tool", "cancel_task", "search_tools", "wait_task"]);
        let call =
            json!({"name": "call_tool", "arguments": {"tool": "echo", "args": {"message": "through"}}});
        client.send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}));
        assert!(client.result(2).1.contains("through"));
        client.close();
    }
}
