//! Canary secrets through every channel of a real server: afterwards no file, answer, event, log, trace or output of a command holds one, in
//! any of many encodings. The same run without stored secrets shows that every channel is real, and that the search finds them.

mod search;

use crate::rig::{Rig, finish, text, until};
use search::{encodings, has, hits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};

/// Values that nothing else contains: with signs that encodings change, of digits alone, and of letters.
const CANARIES: [(&str, &str); 3] =
    [("token", "cnry-\"7f/ü<&>'x+K9"), ("pin", "8375019264"), ("plain", "CanaryPlainZulu77")];

const TOKEN: &str = CANARIES[0].1;
const PIN: &str = CANARIES[1].1;
const PLAIN: &str = CANARIES[2].1;

fn tools(env: [&str; 3], collector: u16) -> String {
    let [token, pin, plain] = env;
    let env = format!(
        "env = {{ TOKEN = '''{token}''', PIN = '{pin}', PLAIN = '{plain}' }}\nclaims = []\nbackground = true"
    );
    format!(
        r#"
[limits]
# So that the output of `big` is stored piece by piece.
result_json_bytes_max = 150000

[traces]
endpoint = "http://127.0.0.1:{collector}"
contents = true

[tools.leak]
command = ["./leak.sh"]
class = "read"
{env}

[tools.big]
command = ["sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; printf '%s' \"$PLAIN\"; head -c 200000 /dev/zero | tr '\\0' y; printf '%s' \"$TOKEN\""]
class = "once"
timeout_ms = 60000
{env}

[tools.fails]
command = ["sh", "-c", "printf '%s %s' \"$TOKEN\" \"$PIN\" >&2; exit 3"]
class = "once"
{env}

[tools.killed]
command = ["sh", "-c", "printf '%s %s\\n' \"$TOKEN\" \"$PLAIN\" >&2; kill -9 $$"]
class = "once"
{env}

[tools.arguments]
command = ["sh", "-c", "cat; cat > /dev/null"]
class = "once"
title = "Takes arguments"

[tools.later]
command = ["sh", "-c", "printf '%s\\n' \"$WINDLASS_COMPLETION_KEY\" >> keys; exit 73"]
class = "once"
claims = []
completion = true

[tools.ours]
client = true
"#
    )
}

/// Says its secrets in its result, its log, its progress and in other encodings.
const LEAK: &str = r#"
printf '%s\n' "$TOKEN" >&2
printf '%s' "$TOKEN" | base64 -w0 >&2; echo >&2
printf 'x%s' "$TOKEN" | base64 -w0 >&2; echo >&2
printf 'xy%s' "$TOKEN" | base64 -w0 >&2; echo >&2
printf '%s' "$TOKEN" | od -An -v -tx1 | tr -d ' \n' >&2; echo >&2
printf '{"progress": {"current": 1, "total": 2, "label": "with %s"}}\n' "$PLAIN" >&2
printf '%s' "${PLAIN%77}" >&2; sleep 0.05; printf '77\n' >&2
printf '%s %s ' "$PLAIN" "$PIN"; printf '%s' "$TOKEN" | base64 -w0
"#;

/// A receiver of traces, and what it got.
fn collector() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("an address").port();
    let got = Arc::new(Mutex::new(Vec::new()));
    let kept = got.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || collect(stream, &kept));
        }
    });
    (port, got)
}

fn collect(mut stream: TcpStream, kept: &Mutex<Vec<u8>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(given) = line.to_lowercase().strip_prefix("content-length: ") {
                length = given.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        kept.lock().expect("whole").extend(body);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").is_err() {
            return;
        }
    }
}

/// A served folder, and everything that came out of it, by channel.
struct Served<'a> {
    rig: &'a Rig,
    at: String,
    token: String,
    out: BTreeMap<&'static str, Vec<u8>>,
}

impl Served<'_> {
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.ask_bytes(method, path, body.as_bytes(), "application/json");
        let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
        let is_problem = answer["type"] == "about:blank" && answer["status"] != 404;
        assert!(!is_problem || path.ends_with("/schedules"), "{method} {path}: {answer}");
        answer
    }

    fn ask_bytes(&mut self, method: &str, path: &str, body: &[u8], media_type: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.at).expect("connected");
        let (token, length) = (&self.token, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
        )
        .expect("sent");
        stream.write_all(body).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("answered");
        self.out.entry("answers").or_default().extend(&answer);
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
        answer[body..].to_vec()
    }

    fn run(&mut self, args: &[&str]) -> String {
        let ran = self.rig.run(args);
        let out = self.out.entry("commands").or_default();
        out.extend(ran.stdout.as_bytes());
        out.extend(ran.stderr.as_bytes());
        ran.stdout
    }
}

/// Reads events until the server is gone.
fn follow(at: &str, token: &str) -> std::thread::JoinHandle<Vec<u8>> {
    let mut stream = TcpStream::connect(at).expect("connected");
    write!(
        stream,
        "GET /v1/sessions/s/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    .expect("sent");
    std::thread::spawn(move || {
        let mut events = Vec::new();
        // The server may cut it off.
        let _ = stream.read_to_end(&mut events);
        events
    })
}

fn serve(rig: &Rig) -> (Child, String) {
    let mut command = rig.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.env("WINDLASS_LOG", "trace").spawn().expect("windlass starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut at = None;
    for _ in 0..5 {
        let Some(line) = lines.next().and_then(Result::ok) else {
            panic!("it did not start: {}", finish(child));
        };
        at = at.or_else(|| line.split("http://").nth(1).map(str::to_string));
    }
    (child, at.expect("an address"))
}

/// Runs everything, with stored secrets or with plain values, and returns what came out, by channel.
fn scenario(is_stored: bool) -> BTreeMap<&'static str, Vec<u8>> {
    let (port, traces) = collector();
    let rig = Rig::with(&match is_stored {
        true => tools(["secret:token", "secret:pin", "secret:plain"], port),
        false => tools([TOKEN, PIN, PLAIN], port),
    });
    rig.script("leak.sh", LEAK);
    if is_stored {
        rig.run_on(&["secrets", "set", "token"], format!("{TOKEN}\n")).expect(0);
        rig.run_on(&["secrets", "set", "unused"], "another secret value").expect(0);
    }
    let (mut child, at) = serve(&rig);
    // Read at once: a server whose log nobody reads stands still.
    let mut stderr = child.stderr.take().expect("a pipe");
    let log = std::thread::spawn(move || {
        let mut log = Vec::new();
        stderr.read_to_end(&mut log).expect("readable");
        log
    });
    let token = std::fs::read_to_string(rig.path(".windlass/token")).expect("a token").trim().to_string();
    let mut served = Served { rig: &rig, at: at.clone(), token: token.clone(), out: BTreeMap::new() };
    served.ask("POST", "/v1/sessions", &json!({ "id": "s" }));
    if is_stored {
        for (name, value) in &CANARIES[1..] {
            let stored =
                served.ask("PUT", &format!("/v1/sessions/s/secrets/{name}"), &json!({ "value": value }));
            assert_eq!(stored["name"], *name);
        }
    }
    let events = follow(&at, &token);
    calls(&mut served);
    others(&mut served);
    look(&mut served);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    finish(child);
    let mut out = served.out;
    out.insert("log", log.join().expect("it was read"));
    out.insert("events", events.join().expect("they were read"));
    out.insert("traces", traces.lock().expect("whole").clone());
    let mut files = Vec::new();
    read_all(&rig.path(".windlass"), &mut files);
    out.insert("files", files);
    out
}

/// Calls whose arguments, results, logs, failures and artifacts hold canaries.
fn calls(served: &mut Served<'_>) {
    let provider = json!({ "signature": PLAIN });
    let holds = json!({ "header": format!("Bearer {TOKEN}"), "pin": 8_375_019_264_u64, PLAIN: [PIN, { "x": PLAIN }] });
    let batch = json!({
        "key": "k1", "inputs": { "user": PLAIN }, "wait": "settled",
        "calls": [
            { "id": "a", "tool": "leak", "provider": provider },
            { "id": "b", "tool": "arguments", "args": holds },
            { "id": "c", "tool": "fails" },
            { "id": "d", "tool": "killed" },
            { "id": "e", "tool": PLAIN, "args": { "a": TOKEN } },
            { "id": "f", "tool": "arguments", "args": format!("{{\"cut\": {}, \"off\": \"{PIN}", json!(TOKEN)) },
        ],
    });
    let answer = served.ask("POST", "/v1/sessions/s/batches", &batch);
    let states: Vec<&str> =
        answer["calls"].as_array().into_iter().flatten().filter_map(|call| call["state"].as_str()).collect();
    assert_eq!(states, ["succeeded", "succeeded", "failed", "unknown", "failed", "failed"], "{answer}");
    let derived = json!({ "calls": [{ "id": "a", "tool": "arguments", "args": holds }], "wait": "settled" });
    served.ask("POST", "/v1/sessions/s/batches", &derived);
    let again = served.ask("POST", "/v1/sessions/s/batches", &derived);
    assert_eq!(again["calls"][0]["state"], "succeeded");
    // A task from the start: its log, its notice, its artifacts.
    let tasks = json!({ "key": "k2", "wait": "none", "calls": [
        { "id": "t", "tool": "leak", "inline_ms": 0 }, { "id": "u", "tool": "big", "inline_ms": 0 },
    ] });
    served.ask("POST", "/v1/sessions/s/batches", &tasks);
    let mut found = Value::Null;
    until("the tasks have ended", || {
        found = served.ask("GET", "/v1/sessions/s/batches/k2", &Value::Null);
        found["calls"].as_array().is_some_and(|calls| calls.iter().all(|call| call["state"] == "succeeded"))
    });
    let kept = found["calls"][1]["outcome"]["kept"]["artifact"].as_str().map(str::to_string);
    if let Some(kept) = kept {
        served.ask_bytes("GET", &format!("/v1/artifacts/{kept}"), b"", "application/json");
    }
    served.ask("POST", "/v1/sessions/s/inbox/take", &json!({ "limit": 10 }));
}

/// Answers from outside, and everything that a host puts into a session.
fn others(served: &mut Served<'_>) {
    let waits = json!({ "key": "k3", "wait": "none", "calls": [
        { "id": "w1", "tool": "later" }, { "id": "w2", "tool": "later" }, { "id": "w3", "tool": "ours", "args": { "x": PLAIN } },
        { "id": "w4", "tool": "later" },
    ] });
    served.ask("POST", "/v1/sessions/s/batches", &waits);
    until("keys are given out", || served.rig.lines("keys").len() == 3);
    until("all wait", || {
        let found = served.ask("GET", "/v1/sessions/s/batches/k3", &Value::Null);
        found["calls"].as_array().is_some_and(|calls| {
            calls.iter().all(|call| call["state"].as_str().is_some_and(|state| state.starts_with("awaiting")))
        })
    });
    let keys = served.rig.lines("keys");
    let ok = json!({ "ok": { "said": TOKEN, "pin": 8_375_019_264_u64 }, "parts": [{ "type": "text", "text": PLAIN }] });
    served.ask("POST", &format!("/v1/completions/{}", keys[0]), &ok);
    let error =
        json!({ "error": { "code": "bad", "message": format!("{TOKEN} is wrong"), "raw": { "t": PLAIN } } });
    served.ask("POST", &format!("/v1/completions/{}", keys[1]), &error);
    let open = served.ask("GET", "/v1/sessions/s/batches/k3", &Value::Null);
    let ours = text(&open["calls"][2]["call"]);
    served.ask("POST", &format!("/v1/calls/{ours}/result"), &json!({ "ok": format!("got {PLAIN}") }));
    // One of them waits still: keys were given out in any order.
    served.ask("POST", "/v1/sessions/s/cancel", &json!({ "reason": format!("not with {PLAIN}") }));
    let unknown = served.ask("GET", "/v1/sessions/s/batches/k1", &Value::Null);
    let unknown = text(&unknown["calls"][3]["call"]);
    served.ask("POST", &format!("/v1/calls/{unknown}/resolve"), &json!({ "landed": { "t": TOKEN } }));
    served.ask("PUT", "/v1/sessions/s/kv/key", &json!({ "value": { "t": TOKEN, "n": 8_375_019_264_u64 } }));
    served.ask("GET", "/v1/sessions/s/kv/key", &Value::Null);
    served.ask("POST", "/v1/sessions/s/inbox", &json!({ "title": PLAIN, "text": format!("about {TOKEN}") }));
    served.ask("GET", "/v1/sessions/s/inbox", &Value::Null);
    let schedule = json!({ "cron": "0 9 * * *", "tool": "leak", "args": { "t": TOKEN }, "title": "daily" });
    served.ask("POST", "/v1/sessions/s/schedules", &schedule);
    let titled = json!({ "id": "titled", "title": TOKEN, "labels": { "label": TOKEN } });
    served.ask("POST", "/v1/sessions", &titled);
    served.ask("GET", "/v1/sessions/titled", &Value::Null);
    let uploaded =
        served.ask_bytes("POST", "/v1/sessions/s/artifacts", format!("a {TOKEN} b").as_bytes(), "text/plain");
    let uploaded: Value = serde_json::from_slice(&uploaded).expect("an artifact");
    served.ask_bytes("GET", &format!("/v1/artifacts/{}", text(&uploaded["artifact"])), b"", "text/plain");
}

/// Everything that can be looked at.
fn look(served: &mut Served<'_>) {
    until("every call has ended", || {
        let open = served.ask("GET", "/v1/sessions/s/calls?state=open", &Value::Null);
        open["items"].as_array().is_some_and(Vec::is_empty)
    });
    let batches = ["k1", "k2", "k3"]
        .map(|key| served.ask("GET", &format!("/v1/sessions/s/batches/{key}"), &Value::Null));
    let calls: Vec<String> = batches
        .iter()
        .flat_map(|batch| batch["calls"].as_array().cloned().unwrap_or_default())
        .map(|call| text(&call["call"]))
        .collect();
    for call in &calls {
        served.ask("GET", &format!("/v1/calls/{call}?journal=true"), &Value::Null);
        served.ask("GET", &format!("/v1/sessions/s/tasks/{call}"), &Value::Null);
        served.ask("GET", &format!("/v1/sessions/s/tasks/{call}/log"), &Value::Null);
        served.run(&["calls", call, "--journal"]);
        served.run(&["logs", call]);
    }
    for path in [
        "/v1/calls",
        "/v1/sessions/s",
        "/v1/sessions/s/tasks",
        "/v1/sessions/s/secrets",
        "/v1/secrets",
        "/v1/tools",
    ] {
        served.ask("GET", path, &Value::Null);
    }
    for args in [
        &["calls", "--json"][..],
        &["sessions"],
        &["tasks", "--json"],
        &["inbox", "--session", "s"],
        &["secrets", "ls"],
        &["secrets", "ls", "--session", "s", "--json"],
        &["watch", "s", "--until-idle", "--after", "0"],
        &["schedules", "list", "--session", "s"],
        &["doctor"],
    ] {
        served.run(args);
    }
}

/// All bytes below a folder but those of the key.
fn read_all(folder: &Path, into: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            read_all(&path, into);
        } else if path.file_name().is_some_and(|name| name != "secret.key") && path.is_file() {
            into.extend(std::fs::read(path).expect("readable"));
        }
    }
}

#[test]
fn the_search_finds_a_planted_canary_in_every_encoding() {
    for (name, value) in CANARIES {
        let encodings = encodings(value);
        assert!(encodings.len() >= 50, "{}", encodings.len());
        for (encoding, planted) in encodings {
            let bytes = [&b"before "[..], &planted, b" behind"].concat();
            assert!(hits(&bytes).contains(&format!("{name} as {encoding}")), "{name} as {encoding}");
        }
    }
    assert_eq!(hits(b"nothing of the kind, CanaryPlainZulu7, 837501926"), Vec::<String>::new());
}

#[test]
fn no_stored_secret_leaves_by_any_channel() {
    for is_stored in [false, true] {
        let out = scenario(is_stored);
        let channels: Vec<&str> = out.keys().copied().collect();
        assert_eq!(channels, ["answers", "commands", "events", "files", "log", "traces"]);
        for (channel, bytes) in out {
            let hits = hits(&bytes);
            match is_stored {
                true => {
                    assert!(hits.is_empty(), "{channel}: {hits:?}");
                    assert!(channel == "log" || has(&bytes, b"[secret "), "{channel} shows no marker");
                }
                false => assert!(!hits.is_empty(), "{channel} is no channel, so it proves nothing"),
            }
        }
    }
}
