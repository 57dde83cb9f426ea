//! A server whose data folder goes away for a while: it says so, acknowledges nothing, and goes on once the folder is back.

use crate::rig::{Rig, kill, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TOOLS: &str = r#"
[tools.hold]
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done; echo did >> did; echo did"]
class = "once"
claims = []
"#;

/// The status, the headers and the body of an answer.
type Answer = (u16, String, Value);

fn ask(at: &str, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    read(send(at, token, method, path, body))
}

fn send(at: &str, token: &str, method: &str, path: &str, body: &Value) -> TcpStream {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(at).expect("the server is there");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("it listens");
    stream
}

fn read(mut stream: TcpStream) -> Answer {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn a_folder_that_was_moved_away_is_a_503_until_it_is_back_and_what_runs_is_not_cut_off() {
    let rig = Rig::with(TOOLS);
    let mut server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let greeting = lines.next().and_then(Result::ok).expect("a greeting");
    let at = greeting.split("http://").nth(1).expect("an address").to_string();
    until("the token is there", || rig.path(".windlass/token").exists());
    let token = std::fs::read_to_string(rig.path(".windlass/token")).expect("a token").trim().to_string();
    let ask = |method: &str, path: &str, body: &Value| ask(&at, &token, method, path, body);
    let batch = |id: &str, tool: &str| json!({"key": id, "calls": [{"id": id, "tool": tool, "args": {}}], "wait": "none"});
    assert_eq!(ask("GET", "/readyz", &Value::Null).0, 200);
    assert_eq!(ask("POST", "/v1/sessions/s/batches", &batch("a", "hold")).0, 200);
    until("the command runs", || rig.lines("held").len() == 1);
    let mut again = batch("a", "hold");
    again["wait"] = json!("settled");
    let waiting = send(&at, &token, "POST", "/v1/sessions/s/batches", &again);
    std::fs::rename(rig.path(".windlass"), rig.path("away")).expect("it can be moved");
    let (status, head, problem) = ask("GET", "/readyz", &Value::Null);
    assert_eq!((status, &problem["code"]), (503, &json!("store_unavailable")), "{head}");
    assert!(!problem["detail"].to_string().contains("windlass.db"), "paths are told to operators only");
    let (status, head, problem) = ask("POST", "/v1/sessions/s/batches", &batch("b", "get_current_time"));
    assert_eq!((status, &problem["code"]), (503, &json!("store_unavailable")));
    assert!(head.contains("retry-after: 1"), "{head}");
    let (status, _, problem) = read(waiting);
    assert_eq!((status, &problem["code"]), (503, &json!("store_unavailable")), "whoever waited is told");
    assert_eq!(ask("GET", "/healthz", &Value::Null).0, 200, "the process is there");
    // The command ends while nothing can be written; its result waits.
    rig.write("go", "");
    until("the command has ended", || rig.lines("did").len() == 1);
    assert!(!rig.path(".windlass").exists(), "nothing was made in its place");
    std::fs::rename(rig.path("away"), rig.path(".windlass")).expect("it can be moved back");
    until("it is ready again", || ask("GET", "/readyz", &Value::Null).0 == 200);
    until("the result is recorded", || {
        let (_, _, shown) = ask("GET", "/v1/sessions/s/batches/a", &Value::Null);
        shown["calls"][0]["state"] == "succeeded"
    });
    let (status, _, answer) = ask(
        "POST",
        "/v1/sessions/s/batches",
        &json!({
            "key": "b", "calls": [{"id": "b", "tool": "get_current_time", "args": {}}], "wait": "settled",
        }),
    );
    assert_eq!((status, &answer["calls"][0]["state"]), (200, &json!("succeeded")), "{answer}");
    assert_eq!(rig.lines("held").len(), 1, "it ran once");
    let mut stderr = server.stderr.take().expect("a pipe");
    kill(server);
    let mut told = String::new();
    stderr.read_to_string(&mut told).expect("readable");
    assert!(told.contains("cannot write") && told.contains("moved away"), "{told}");
    assert!(told.contains("writes again"), "{told}");
}
