//! A real `windlass serve`: started, asked over TCP and through the folder, stopped in good order, and killed under load.

use crate::rig::{Ran, Rig, finish, kill, text, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TOOLS: &str = r#"
[tools.once]
command = ["./work.sh"]
class = "once"
claims = []

[tools.keyed]
command = ["./work.sh"]
class = "keyed"
claims = []

[tools.hold]
command = ["sh", "-c", "echo held >> held; while [ ! -e go ]; do sleep 0.01; done; echo '\"went\"'"]
class = "once"
claims = []
timeout_ms = 60000

[tools.stuck]
command = ["sh", "-c", "echo stuck >> held; while :; do sleep 1; done"]
class = "once"
claims = []

[limits]
drain_ms = 1500
# Whoever kills the server here is not one of the calls that it runs.
deaths_max = 1000
"#;

/// A line when it begins, one when it is done.
const WORK: &str = r#"
echo "begin $WINDLASS_CALL_ID $WINDLASS_ATTEMPT $WINDLASS_IDEMPOTENCY_KEY" >> log
echo "done $WINDLASS_CALL_ID $WINDLASS_ATTEMPT $WINDLASS_IDEMPOTENCY_KEY" >> log
echo "{\"did\": \"$WINDLASS_CALL_ID\"}"
"#;

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.script("work.sh", WORK);
    rig
}

/// A server that runs.
struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    at: String,
    greeting: String,
}

fn serve(rig: &Rig) -> Server {
    serve_at(rig, "127.0.0.1:0")
}

fn serve_at(rig: &Rig, listen: &str) -> Server {
    let mut started = None;
    // A connection that somebody makes may be given the port of a server that was killed, for a moment.
    until("the address is free", || {
        started = try_serve_at(rig, listen);
        started.is_some()
    });
    started.expect("it has started")
}

/// `None`: the address is somebody else's.
fn try_serve_at(rig: &Rig, listen: &str) -> Option<Server> {
    let mut child = rig.start(&["serve", "--listen", listen]);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut greeting = String::new();
    for _ in 0..5 {
        let line = lines.next().and_then(Result::ok);
        let Some(line) = line else {
            let mut told = String::new();
            let _ = child.stderr.take().expect("a pipe").read_to_string(&mut told);
            let _ended = child.wait();
            assert!(told.contains("Address already in use"), "it did not start: {told}");
            return None;
        };
        greeting.push_str(&line);
        greeting.push('\n');
    }
    let at = greeting.split("http://").nth(1).and_then(|rest| rest.lines().next());
    Some(Server { child, at: at.expect("an address").to_string(), greeting })
}

/// Asks the server there; `None` if it goes away or is not there.
fn ask(rig: &Rig, at: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let token = std::fs::read_to_string(rig.path(".windlass/token")).expect("a token");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(at).ok()?;
    // Where nobody listens, a connection to a port of this machine can be given that very port, and meets itself.
    if stream.local_addr().ok()? == stream.peer_addr().ok()? {
        return None;
    }
    let (token, length) = (token.trim(), body.len());
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, serde_json::from_str(body).ok()?))
}

impl Server {
    fn ask(&self, rig: &Rig, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        ask(rig, &self.at, method, path, body)
    }

    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    }
}

#[test]
fn it_says_how_to_ask_and_every_command_asks_it() {
    let rig = rig();
    let server = serve(&rig);
    assert!(server.greeting.contains("Bearer $(cat .windlass/token)"), "{}", server.greeting);
    assert!(server.greeting.contains("durability full"), "{}", server.greeting);
    let batch = json!({"key": "k", "calls": [{"id": "a", "tool": "add", "args": {"a": 1, "b": 2}}]});
    let (status, answer) =
        server.ask(&rig, "POST", "/v1/sessions/web/batches", &batch).expect("it is answered");
    assert_eq!((status, &answer["calls"][0]["state"]), (200, &json!("succeeded")));
    // `run` and `call` have theirs driven by it, and say what was on record.
    rig.write("batch.json", batch.to_string());
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(0);
    assert_eq!(ran.states(), ["a succeeded"]);
    let again = rig.run(&["run", "batch.json"]).expect(0);
    assert!(again.stderr.contains("1 of 1 answers were recorded under key k"), "{again}");
    assert_eq!(rig.run(&["call", "echo", r#"{"message": "hi"}"#]).expect(0).json()["echoed"], "hi");
    rig.run(&["call", "nope"]).expect(1);
    rig.run(&["call", "add", "--id", "x", r#"{"a": 1, "b": 1}"#]).expect(0);
    rig.run(&["call", "add", "--id", "x", r#"{"a": 1, "b": 2}"#]).expect(4);
    rig.run(&["call", "add", "--session", "a b", r#"{"a": 1, "b": 2}"#]).expect(4);
    let child = json!({"id": "web.agent", "parent": "web", "tools": ["add"]});
    let (status, _) = server.ask(&rig, "POST", "/v1/sessions", &child).expect("it is answered");
    assert_eq!(status, 201);
    let sessions = rig.run(&["sessions", "--json"]).expect(0).json();
    let names: Vec<String> =
        sessions["items"].as_array().expect("items").iter().map(|session| text(&session["id"])).collect();
    assert_eq!(names, ["default", "web", "web.agent"]);
    let agent = &sessions["items"][2];
    assert_eq!((&agent["parent"], &agent["tools"]), (&json!("web"), &json!(["add"])));
    let shown = || {
        let listed = rig.run(&["sessions"]).expect(0).stdout;
        let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).map(str::to_string);
        line("web.agent").expect("it is listed").split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    let expected = ["web.agent", "local", "0", "0", "web"];
    assert_eq!(shown(), expected);
    assert!(rig.run(&["tools"]).expect(0).stdout.contains("hold"));
    assert_eq!(rig.run(&["calls", "--session", "web", "--json"]).expect(0).json()["items"][0]["id"], "a");
    // The same from anywhere, with a token.
    let url = format!("http://{}", server.at);
    let remote = |args: &[&str]| {
        let args = [&["--server", &url, "--token-file", ".windlass/token"], args].concat();
        rig.run(&args)
    };
    assert_eq!(remote(&["run", "batch.json", "--json"]).expect(0).states(), ["a succeeded"]);
    let call = text(&remote(&["calls", "--json", "--session", "web"]).expect(0).json()["items"][0]["call"]);
    assert_eq!(remote(&["calls", &call[..8], "--json"]).expect(0).json()["call"], call.as_str());
    let made = remote(&["token", "create", "ci", "--scope", "read", "--json"]).expect(0).json();
    rig.write("ci", text(&made["token"]));
    let ci = |args: &[&str]| rig.run(&[&["--server", &url, "--token-file", "ci"], args].concat());
    assert_eq!(ci(&["calls", "--json"]).expect(0).json()["items"], json!([]), "nothing of it is ci's");
    let refused = ci(&["call", "add"]).expect(6);
    assert!(refused.stderr.contains("lacks the scope \"calls\""), "{refused}");
    remote(&["token", "revoke", &text(&made["id"])]).expect(0);
    ci(&["calls"]).expect(6);
    assert_eq!(
        rig.run(&["token", "list", "--json"]).expect(0).json()["items"].as_array().map(Vec::len),
        Some(1)
    );
    server.terminate();
    let ended = finish(server.child).expect(0);
    assert!(ended.stderr.contains("SIGTERM: stopping"), "{ended}");
    // What was recorded is there for the next, and its token is the same.
    let token = rig.lines(".windlass/token");
    assert_eq!(shown(), expected, "also from the folder");
    let second = serve(&rig);
    assert_eq!(rig.lines(".windlass/token"), token);
    let (_, shown) =
        second.ask(&rig, "GET", "/v1/sessions/web/batches/k", &Value::Null).expect("it is answered");
    assert_eq!(shown["calls"], answer["calls"]);
    second.terminate();
    finish(second.child).expect(0);
}

#[test]
fn what_runs_may_end_and_what_does_not_goes_on_with_the_next_owner() {
    let rig = rig();
    let server = serve(&rig);
    let waiting = rig.start(&["call", "hold", "--id", "h"]);
    let stuck = rig.start(&["call", "stuck", "--id", "s"]);
    until("both run", || rig.lines("held").len() == 2);
    server.terminate();
    until("nobody is let in any more", || TcpStream::connect(&server.at).is_err());
    rig.write("go", "");
    let ended = finish(server.child).expect(0);
    assert!(ended.stderr.contains("1 call of session default stay open"), "{ended}");
    // One was answered in time, or by the command itself, which is the next owner.
    let held = finish(waiting).expect(0);
    assert!(held.stdout.contains("went"), "{held}");
    // The other was cut off, and nobody knows whether it took effect.
    finish(stuck).expect(3);
    assert_eq!(rig.lines("held").len(), 2, "nothing ran twice");
}

#[test]
fn a_second_server_and_a_wrong_address_are_told() {
    let rig = rig();
    let server = serve(&rig);
    let second = rig.run(&["serve", "--listen", "127.0.0.1:0"]).expect(6);
    assert!(second.stderr.contains("is in use by process"), "{second}");
    let other = Rig::new();
    let taken = other.run(&["serve", "--listen", &server.at]).expect(2);
    assert!(taken.stderr.contains("could not listen on"), "{taken}");
    for url in ["https://localhost:1", "localhost", "http://localhost:1/x"] {
        rig.run(&["--server", url, "calls"]).expect(2);
    }
    let nobody = rig.run(&["--server", "http://127.0.0.1:1", "calls"]).expect(6);
    assert!(nobody.stderr.contains("does not answer"), "{nobody}");
    rig.write("bad.toml", "[server]\nhosts = [\"a:1\"]\n");
    server.terminate();
    finish(server.child).expect(0);
    let refused = rig.run(&["serve", "--config", "bad.toml"]).expect(2);
    assert!(refused.stderr.contains("without a port"), "{refused}");
}

/// How many removals are killed.
const ROUNDS: u64 = 8;

/// The server is killed while it removes a session; the next one goes on without being asked.
#[test]
fn a_removal_that_was_killed_is_finished_by_the_next_server() {
    let rig = rig();
    let call = |n: usize| json!({"id": format!("a{n}"), "tool": "add", "args": {"a": n, "b": 1}});
    let path = |round: u64| format!("/v1/sessions/s{round}");
    let fill = |server: &Server, round: u64, key: usize| {
        let calls: Vec<Value> = (0..50).map(|n| call(key * 50 + n)).collect();
        let batch = json!({"key": format!("k{key}"), "wait": "settled", "calls": calls});
        let asked = server.ask(&rig, "POST", &format!("{}/batches", path(round)), &batch);
        assert_eq!(asked.expect("it is answered").0, 200);
    };
    let mut cut = 0;
    for round in 0..ROUNDS {
        let server = serve(&rig);
        let (path, batches) = (&path(round), &format!("{}/batches", path(round)));
        (0..20).for_each(|key| fill(&server, round, key));
        let held = json!({"key": "held", "wait": "none", "calls": [{"id": "h", "tool": "stuck"}]});
        server.ask(&rig, "POST", batches, &held).expect("it is answered");
        let entries = |at: &str| {
            let shown = ask(&rig, at, "GET", path, &Value::Null);
            shown.filter(|(status, _)| *status == 200).and_then(|(_, shown)| shown["entries"].as_u64())
        };
        let Server { child, at, .. } = server;
        let all = entries(&at).expect("it is there");
        std::thread::scope(|scope| {
            let removed = scope.spawn(|| ask(&rig, &at, "DELETE", path, &Value::Null));
            // Sooner and later in it: at once, or when so much of it is gone.
            let left = all - all * round / ROUNDS;
            until("it goes", || round == 0 || entries(&at).is_none_or(|entries| entries < left));
            kill(child);
            cut += usize::from(removed.join().expect("no panic").is_none());
        });
        let next = serve(&rig);
        let mut removed = false;
        until("the session is gone", || match next.ask(&rig, "GET", path, &Value::Null) {
            Some((410, _)) => true,
            // Killed before that it is to go was recorded: nothing was promised, and it is asked for again.
            Some((200, _)) if !removed => {
                removed = next.ask(&rig, "DELETE", path, &Value::Null).is_some_and(|told| told.0 == 200);
                removed
            }
            _ => false,
        });
        // Its name is not free: the same batch must not run a second time.
        let batch = json!({"key": "k0", "wait": "settled", "calls": [call(0)]});
        let (status, told) = next.ask(&rig, "POST", batches, &batch).expect("it is answered");
        assert_eq!((status, &told["code"]), (410, &json!("gone")), "{told}");
        let (_, listed) = next.ask(&rig, "GET", "/v1/sessions", &Value::Null).expect("it is answered");
        assert_eq!(listed["items"], json!([]));
        kill(next.child);
    }
    assert!(cut > 0, "no removal was cut off");
}

/// With or without an owner, a command that uses a deleted session is refused, and nothing is opened under its name.
#[test]
fn a_command_is_told_that_a_session_was_deleted() {
    let rig = rig();
    let add = |session: &str| rig.run(&["call", "add", "--session", session, r#"{"a": 1, "b": 2}"#]);
    add("s").expect(0);
    let server = serve(&rig);
    let deleted = server.ask(&rig, "DELETE", "/v1/sessions/s", &Value::Null).expect("it is answered");
    assert_eq!(deleted, (200, json!({"deleted": true})));
    let told = |ran: Ran| {
        let ran = ran.expect(4);
        assert!(ran.stderr.contains("was removed, and its name is not used again"), "{}", ran.stderr);
    };
    told(add("s"));
    add("t").expect(0);
    kill(server.child);
    told(add("s"));
    let listed = rig.run(&["sessions", "--json"]).expect(0);
    assert!(!listed.stdout.contains(r#""s""#) && listed.stdout.contains(r#""t""#), "{}", listed.stdout);
}

/// How often the server is killed; a longer soak sets this.
const KILLS: &str = "WINDLASS_TEST_SERVE_KILLS";
/// How many send batches at once.
const CLIENTS: usize = 3;

#[test]
fn killed_under_load_nothing_is_lost_and_nothing_is_doubled() {
    let kills: usize = std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(4);
    let rig = rig();
    let Server { child, at, .. } = serve(&rig);
    let (over, mut child) = (AtomicBool::new(false), Some(child));
    let answered: BTreeMap<String, Value> = std::thread::scope(|scope| {
        let load = |client| {
            let (rig, at, over) = (&rig, &at, &over);
            scope.spawn(move || load(rig, at, client, over))
        };
        let clients: Vec<_> = (0..CLIENTS).map(load).collect();
        for round in 1..=kills {
            until("it is under load", || rig.lines("log").len() >= round * 20);
            child.take().into_iter().for_each(kill);
            child = Some(serve_at(&rig, &at).child);
        }
        over.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
    });
    check(&rig, &answered);
    child.into_iter().for_each(kill);
}

/// Sends batches, each again until it is answered whole; returns what was answered, by call.
fn load(rig: &Rig, at: &str, client: usize, over: &AtomicBool) -> BTreeMap<String, Value> {
    let mut answered = BTreeMap::new();
    let mut batch = 0;
    while !over.load(Ordering::SeqCst) {
        let tools = ["once", "keyed", "once", "keyed"].iter().enumerate();
        let call =
            |(n, tool): (usize, &&str)| json!({"id": format!("{tool}-{client}-{batch}-{n}"), "tool": tool});
        let calls: Vec<Value> = tools.map(call).collect();
        let body = json!({"key": format!("{client}-{batch}"), "wait": "settled", "calls": calls});
        let path = format!("/v1/sessions/s{client}/batches");
        until("the batch is answered", || match ask(rig, at, "POST", &path, &body) {
            Some((200, answer)) => {
                let calls = answer["calls"].as_array().expect("calls");
                let whole = calls.iter().all(|call| call.get("outcome").is_some());
                if whole {
                    answered.extend(calls.iter().map(|call| (text(&call["id"]), call.clone())));
                }
                whole
            }
            Some((503, _)) | None => false,
            Some((status, answer)) => panic!("{status} {answer}"),
        });
        batch += 1;
    }
    answered
}

/// Compares the effects with the replies to clients.
fn check(rig: &Rig, answered: &BTreeMap<String, Value>) {
    let mut seen: BTreeMap<String, (Vec<String>, usize)> = BTreeMap::new();
    for line in rig.lines("log") {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, id, _, key] = words.as_slice() else { panic!("a torn line: {line:?}") };
        let effects = seen.entry(id.to_string()).or_default();
        match what {
            "begin" => effects.0.push(key.to_string()),
            _ => effects.1 += 1,
        }
    }
    assert!(answered.len() > 20, "there was no load: {}", answered.len());
    for (id, call) in answered {
        let (begun, done) = seen.get(id).cloned().unwrap_or_default();
        match (id.starts_with("once"), text(&call["state"]).as_str()) {
            (true, "succeeded") => assert_eq!((begun.len(), done), (1, 1), "{id}"),
            (true, "unknown") => assert!(begun.len() <= 1, "{id} ran twice"),
            (false, "succeeded") => {
                assert!(done >= 1, "{id} was lost");
                assert!(begun.windows(2).all(|keys| keys[0] == keys[1]), "{id} changed its key");
            }
            (_, state) => panic!("{id} is {state}: {call}"),
        }
    }
    let listed = rig.run(&["calls", "--json", "--limit", "10000"]).expect(0).json();
    let states: BTreeMap<String, Value> = listed["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|call| (text(&call["id"]), call["state"].clone()))
        .collect();
    for (id, call) in answered {
        assert_eq!(states.get(id), Some(&call["state"]), "{id} is told otherwise later");
    }
}

/// A connection that does nothing is let go, so that the limits of the file are those in force.
#[test]
fn the_limits_of_the_file_are_in_force() {
    let rig = Rig::with("[limits]\nheader_wait_ms = 50\nconnections_max = 3\n");
    let server = serve(&rig);
    let mut silent = TcpStream::connect(&server.at).expect("let in");
    silent.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut end = Vec::new();
    silent.read_to_end(&mut end).expect("it is closed");
    let doctor = rig.run(&["doctor", "--json"]).expect(0).json();
    assert_eq!(
        (&doctor["limits"]["header_wait_ms"], &doctor["limits"]["connections_max"]),
        (&json!(50), &json!(3))
    );
    server.terminate();
    finish(server.child).expect(0);
}
