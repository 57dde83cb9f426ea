//! MCP clients of several workers.

use super::{Fleet, until};
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;

const TOML: &str = "[limits]\nheartbeat_ms = 200\nlease_ms = 1500\nknock_ms = 50\n\n\
    [tools.send]\ndescription = \"Sends\"\nclass = \"keyed\"\nclaims = []\n\
    command = [\"sh\", \"-c\", \"echo begun >> begun; until [ -e go ]; do sleep 0.02; done; echo sent\"]\n";

#[test]
fn a_client_hears_that_its_session_has_moved_and_its_repetition_joins_the_call() {
    let Some(mut fleet) = Fleet::with(TOML, 2) else { return };
    let ask = |tool: &str, args: Value| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": args}});
    fleet.workers[0].post(&fleet.token, "/mcp/chat", &ask("echo", json!({"message": "x"})));
    // Passed on to the owner, which dies in the middle.
    let send = ask("send", json!({}));
    let mut waiting = fleet.workers[1].send(&fleet.token, "POST", "/mcp/chat", &send).expect("it listens");
    until("the start of the call", || fleet.rig.lines("begun").len() == 1);
    // Its answer has begun as a stream by then.
    let mut head = [0; 512];
    let count = waiting.read(&mut head).expect("a head");
    assert!(String::from_utf8_lossy(&head[..count]).contains("200 OK"));
    fleet.workers.remove(0).end(rustix::process::Signal::KILL);
    let error = answer(&mut waiting);
    assert_eq!(error["error"]["data"]["code"], "session_moved", "{error}");

    std::fs::write(fleet.rig.path("go"), "").expect("written");
    let mut again = fleet.workers[0].send(&fleet.token, "POST", "/mcp/chat", &send).expect("it listens");
    let told = answer(&mut again);
    let text = told["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(text.contains("sent"), "{told}");
    let shown = fleet.workers[0].get(&fleet.token, "/v1/sessions/chat/calls");
    let calls = shown["items"]
        .as_array()
        .map_or(0, |items| items.iter().filter(|call| call["tool"] == "send").count());
    assert_eq!(calls, 1, "one call, and not another: {shown}");
}

/// The answer of the gateway, in one piece or as the last event of a stream.
fn answer(stream: &mut TcpStream) -> Value {
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("text");
    let is_answer = |line: &&str| line.contains("\"result\"") || line.contains("\"error\"");
    let line = told.lines().rfind(is_answer).unwrap_or_else(|| panic!("no answer: {told}"));
    serde_json::from_str(&line[line.find('{').expect("JSON")..]).expect("JSON")
}
