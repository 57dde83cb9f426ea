//! Several processes of the real binary on one PostgreSQL: any of them takes any request, and sessions move when one leaves or dies.

mod frozen;
mod limits;
mod mcp;
mod rates;
mod waits;

use crate::rig::Rig;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};
use windlass_testkit::fleet::{FleetOptions, FleetTrouble};
use windlass_testkit::postgres::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);
/// Shorter than usual, so that a death is noticed soon.
const TOML: &str = "[limits]\nheartbeat_ms = 200\nlease_ms = 1500\nknock_ms = 50\n\n\
    [tools.slow]\ndescription = \"Waits\"\ncommand = [\"sh\", \"-c\", \"sleep 0.3; echo done >> ran; echo 1\"]\n\
    class = \"keyed\"\nbackground = true\ninline_ms = 0\nclaims = []\n";

/// A worker: a server process with a data folder of its own.
struct Worker {
    child: Child,
    at: String,
    greeting: String,
}

impl Worker {
    fn start(rig: &Rig, store: &str, name: &str) -> Worker {
        let mut command = rig.command(&["--data", name, "serve", "--listen", "127.0.0.1:0"]);
        command.env("WINDLASS_STORE", store);
        Worker::greeted(command.spawn().expect("it starts"))
    }

    /// A worker that has said where it listens.
    fn greeted(mut child: Child) -> Worker {
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut greeting = String::new();
        for _ in 0..6 {
            let Some(Ok(line)) = lines.next() else {
                let mut told = String::new();
                let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut told));
                panic!("it did not start: {told}");
            };
            greeting.push_str(&line);
            greeting.push('\n');
        }
        let at = greeting.split("http://").nth(1).and_then(|rest| rest.lines().next());
        Worker { child, at: at.expect("an address").to_string(), greeting }
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
        answer_of(self.send(token, method, path, body)?)
    }

    /// Sends a request, whose answer is read later.
    fn send(&self, token: &str, method: &str, path: &str, body: &Value) -> Option<TcpStream> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.at).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        Some(stream)
    }

    fn get(&self, token: &str, path: &str) -> Value {
        let (status, answer) = self.ask(token, "GET", path, &Value::Null).expect("it answers");
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    fn post(&self, token: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(token, "POST", path, body).expect("it answers");
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is ours");
    }

    fn end(mut self, signal: rustix::process::Signal) {
        self.signal(signal);
        self.child.wait().expect("it ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer to a request that was sent.
fn answer_of(mut stream: TcpStream) -> Option<(u16, Value)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => body
            .split_once("\r\n")
            .map_or("", |(_, rest)| rest.rsplit_once("\r\n0\r\n").map_or(rest, |(body, _)| body)),
        false => body,
    };
    Some((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}

struct Fleet {
    rig: Rig,
    cluster: Cluster,
    store: String,
    token: String,
    workers: Vec<Worker>,
}

impl Fleet {
    fn new(count: usize) -> Option<Fleet> {
        Fleet::with(TOML, count)
    }

    fn with(toml: &str, count: usize) -> Option<Fleet> {
        let cluster = Cluster::alone(env!("CARGO_TARGET_TMPDIR"), |_| Ok(String::new()))?;
        let (rig, store) = (Rig::with(toml), cluster.database());
        let names = ["one", "two", "three"];
        let workers: Vec<Worker> =
            names.iter().take(count).map(|name| Worker::start(&rig, &store, name)).collect();
        let token = std::fs::read_to_string(rig.path("one/token")).expect("a token").trim().to_string();
        Some(Fleet { rig, cluster, store, token, workers })
    }

    fn batch(&self, worker: usize, session: &str, key: &str) -> Value {
        let batch = json!({"key": key, "wait": "settled", "calls": [{"id": "c", "tool": "echo", "args": {"message": key}}]});
        let path = format!("/v1/sessions/{session}/batches");
        let mut answer = Value::Null;
        // What was under way at a worker that dies or leaves is asked for again, as clients do.
        until("the end of a call", || match self.workers[worker].ask(&self.token, "POST", &path, &batch) {
            Some((200 | 202, told)) => {
                answer = told;
                answer["calls"][0]["state"] == "succeeded"
            }
            Some((503, _)) => false,
            other => panic!("{path}: {other:?}"),
        });
        answer
    }
}

/// The short form of `windlass-testkit workers`.
fn disturbed(trouble: FleetTrouble, events: u64) {
    let options = FleetOptions {
        windlass: env!("CARGO_BIN_EXE_windlass").into(),
        templates: env!("CARGO_TARGET_TMPDIR").into(),
        trouble,
        events,
        seed: 1,
        time_max: PATIENCE,
        lease_ms: 1_500,
        mutant: None,
    };
    let Some(report) = windlass_testkit::fleet::run(&options).expect("it can be run") else { return };
    assert_eq!(report.violations, [] as [String; 0]);
    assert!(report.batches > 0 && report.effects > 0, "{report:?}");
}

#[test]
fn workers_are_killed_and_stopped_and_cut_off_and_nothing_is_lost_or_done_twice() {
    disturbed(FleetTrouble::Faults, 12);
}

#[test]
fn workers_are_replaced_one_by_one_and_no_request_breaks_off() {
    disturbed(FleetTrouble::Upgrades, 3);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20)); // tidy: the pause between two looks at other processes
    }
}

#[test]
fn any_worker_takes_any_request() {
    let Some(fleet) = Fleet::new(3) else { return };
    let greeting = &fleet.workers[0].greeting;
    assert!(greeting.contains("durability full") && greeting.contains("worker "), "{greeting}");
    assert!(!greeting.contains("windlass.db"), "{greeting}");
    // Each session belongs to whoever was asked first, and all of them answer alike.
    for (first, session) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(fleet.batch(first, session, "k")["calls"][0]["state"], "succeeded");
        for worker in 0..3 {
            let again = fleet.batch(worker, session, "k");
            assert_eq!(
                (&again["recorded"], &again["calls"][0]["outcome"]["value"]["echoed"]),
                (&json!(1), &json!("k"))
            );
            let call = again["calls"][0]["call"].as_str().expect("a handle").to_string();
            let shown = fleet.workers[worker].get(&fleet.token, &format!("/v1/calls/{call}"));
            assert_eq!(shown["state"], "succeeded");
            assert_eq!(fleet.batch(worker, session, &format!("{worker}"))["calls"][0]["state"], "succeeded");
        }
    }
    let listed = fleet.workers[1].get(&fleet.token, "/v1/workers");
    let items = listed["items"].as_array().expect("a list");
    let addresses: Vec<&str> = items.iter().filter_map(|item| item["address"].as_str()).collect();
    assert_eq!(addresses.len(), 3, "{listed}");
    for worker in &fleet.workers {
        assert!(addresses.contains(&&*format!("http://{}", worker.at)), "{listed}");
    }
    assert_eq!(items.iter().filter(|item| item["this"] == true).count(), 1, "{listed}");
    // One with a forged word of another worker is nobody.
    let mut stream = TcpStream::connect(&fleet.workers[0].at).expect("it listens");
    let forged = "GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-windlass-forwarded: 00.AA\r\n\r\n";
    stream.write_all(forged.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn a_process_of_a_toolbox_asks_any_worker() {
    let Some(fleet) = Fleet::new(3) else { return };
    let [owner, put, take] = &fleet.workers[..] else { panic!("there are three") };
    let tools = json!({"tools": [{"name": "import", "class": "keyed", "claims": []}]});
    let (status, toolbox) = put.ask(&fleet.token, "PUT", "/v1/toolboxes/shop", &tools).expect("it answers");
    assert_eq!(status, 200, "{toolbox}");
    until("the tool at another worker", || {
        let shown = owner.ask(&fleet.token, "GET", "/v1/tools/import", &Value::Null);
        shown.is_some_and(|(status, _)| status == 200)
    });
    let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "c", "tool": "import"}]});
    owner.post(&fleet.token, "/v1/sessions/hers/batches", &calls);
    let wants = json!({"worker": "w", "manifest": toolbox["manifest"], "max": 1, "wait_ms": 2_000});
    let mut attempt = Value::Null;
    until("an attempt of another worker", || {
        let taken = take.post(&fleet.token, "/v1/toolboxes/shop/take", &wants);
        attempt = taken["attempts"][0]["attempt"].clone();
        attempt.is_string()
    });
    // Reports go to its owner, whoever is told.
    let alive = json!({"worker": "w", "reports": [{"attempt": attempt}]});
    let news = put.post(&fleet.token, "/v1/toolboxes/shop/reports", &alive);
    assert_eq!(news["attempts"][0]["state"], "running", "{news}");
    let end =
        json!({"worker": "w", "reports": [{"attempt": attempt, "end": {"type": "value", "value": "done"}}]});
    let news = take.post(&fleet.token, "/v1/toolboxes/shop/reports", &end);
    assert_eq!(news["attempts"][0]["state"], "over", "{news}");
    let shown = put.get(&fleet.token, "/v1/sessions/hers/batches/k");
    assert_eq!(shown["calls"][0]["outcome"]["value"], "done", "{shown}");
}

#[test]
fn sessions_of_a_worker_that_is_killed_or_leaves_go_on_elsewhere() {
    let Some(mut fleet) = Fleet::new(3) else { return };
    for session in ["a", "b"] {
        let slow = json!({"key": "slow", "wait": "none", "calls": [{"id": "s", "tool": "slow"}]});
        fleet.workers[0].post(&fleet.token, &format!("/v1/sessions/{session}/batches"), &slow);
    }
    // Killed in the middle: a request that needs the session waits for the next owner, and is answered.
    let killed = fleet.workers.remove(0);
    killed.end(rustix::process::Signal::KILL);
    let began = Instant::now();
    assert_eq!(fleet.batch(0, "a", "after")["calls"][0]["state"], "succeeded");
    assert!(began.elapsed() < Duration::from_secs(12), "it took {:?}", began.elapsed());
    for session in ["a", "b"] {
        until("the end of the slow call", || {
            let shown = fleet.workers[1].get(&fleet.token, &format!("/v1/sessions/{session}/batches/slow"));
            shown["calls"][0]["state"] == "succeeded"
        });
    }
    // One that leaves in good order keeps nobody waiting for its lease.
    assert_eq!(fleet.batch(0, "leaving", "k")["calls"][0]["state"], "succeeded");
    let leaves = fleet.workers.remove(0);
    leaves.signal(rustix::process::Signal::TERM);
    let began = Instant::now();
    for number in 0..20 {
        assert_eq!(fleet.batch(0, "leaving", &format!("{number}"))["calls"][0]["state"], "succeeded");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    drop(leaves);
    // Whatever ran twice ran under the same key, and nothing was forgotten.
    assert!(fleet.rig.lines("ran").len() >= 2, "{:?}", fleet.rig.lines("ran"));
    // The folder of the one that was killed serves again.
    let back = Worker::start(&fleet.rig, &fleet.store, "one");
    fleet.workers.push(back);
    assert_eq!(fleet.batch(1, "a", "back")["calls"][0]["state"], "succeeded");
}

#[test]
fn an_outage_is_answered_at_once_and_waited_for() {
    outage(Duration::from_secs(2));
}

/// Longer than any lease; as long as `WINDLASS_OUTAGE_S` says.
#[test]
fn a_long_outage_is_answered_at_once_and_waited_for() {
    let seconds = std::env::var("WINDLASS_OUTAGE_S").ok().and_then(|seconds| seconds.parse().ok());
    outage(Duration::from_secs(seconds.unwrap_or(13)));
}

fn outage(length: Duration) {
    let Some(fleet) = Fleet::new(2) else { return };
    assert_eq!(fleet.batch(0, "s", "before")["calls"][0]["state"], "succeeded");
    fleet.cluster.stop();
    let (stopped, mut asked, mut late) = (Instant::now(), 0, 0);
    while stopped.elapsed() < length {
        for worker in &fleet.workers {
            let began = Instant::now();
            let (status, _) = worker.ask(&fleet.token, "GET", "/healthz", &Value::Null).expect("it answers");
            assert_eq!(status, 200);
            asked += 1;
            late += u32::from(began.elapsed() > Duration::from_millis(100));
        }
        std::thread::sleep(Duration::from_millis(20)); // tidy: the pause between two looks at other processes
    }
    // A thread that stands still would make all of them late; a busy machine makes some.
    assert!(late * 10 <= asked, "{late} of {asked} answers took longer than 100 ms");
    let (status, told) =
        fleet.workers[0].ask(&fleet.token, "GET", "/readyz", &Value::Null).expect("it answers");
    assert_eq!((status, &told["code"]), (503, &json!("store_unavailable")), "{told}");
    let began = Instant::now();
    let (status, told) =
        fleet.workers[0].ask(&fleet.token, "GET", "/v1/sessions/s", &Value::Null).expect("it answers");
    assert_eq!(status, 503, "{told}");
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    fleet.cluster.start();
    let ready = Instant::now();
    until("the first call after the outage", || {
        fleet.workers.iter().all(|worker| {
            let batch = json!({"key": "after", "wait": "settled", "calls": [{"id": "c", "tool": "echo", "args": {"message": "x"}}]});
            let answer = worker.ask(&fleet.token, "POST", "/v1/sessions/s/batches", &batch);
            answer.is_some_and(|(status, answer)| status == 200 && answer["calls"][0]["state"] == "succeeded")
        })
    });
    assert!(ready.elapsed() < Duration::from_secs(5), "it took {:?}", ready.elapsed());
}

/// Nothing but the address of the database is needed: without a folder for files there are no file tools.
#[test]
fn a_worker_needs_no_configuration() {
    let Some(cluster) = Cluster::of_process(env!("CARGO_TARGET_TMPDIR")) else { return };
    let (rig, store) = (Rig::new(), cluster.database());
    let worker = Worker::start(&rig, &store, "one");
    let token = std::fs::read_to_string(rig.path("one/token")).expect("a token");
    let tools = worker.get(token.trim(), "/v1/tools").to_string();
    assert!(tools.contains("\"echo\"") && !tools.contains("\"write_file\""), "{tools}");
}

#[test]
fn commands_without_a_worker_read_and_make_tokens_and_change_nothing_else() {
    let Some(cluster) = Cluster::of_process(env!("CARGO_TARGET_TMPDIR")) else { return };
    let (rig, store) = (Rig::with(TOML), cluster.database());
    let run = |args: &[&str]| {
        let output = rig.command(args).env("WINDLASS_STORE", &store).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run(&["migrate", "--json"]).1.trim().chars().filter(|c| c.is_ascii_digit()).count(), 1);
    let (code, told, _) = run(&["migrate"]);
    assert!(code == Some(0) && told.contains("nothing to do"), "{told}");
    let (code, token, _) = run(&["token", "create", "ada", "--scope", "calls"]);
    assert_eq!((code, token.trim().len() > 30), (Some(0), true), "{token}");
    assert!(run(&["token", "list"]).1.contains("ada"));
    let (code, told, _) = run(&["doctor"]);
    assert!(code == Some(0) && told.contains("full"), "{told}");
    assert_eq!(run(&["sessions"]).0, Some(0));
    for args in [&["call", "echo", "{\"message\": \"x\"}"][..], &["policy"], &["cancel", "--session", "s"]] {
        let (code, _, told) = run(args);
        assert!(code == Some(2) && told.contains("--server"), "{args:?}: {code:?} {told}");
    }
    let worker = Worker::start(&rig, &store, ".windlass");
    let (code, _, told) = run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(code == Some(2) && told.contains("another worker uses the data folder"), "{code:?} {told}");
    let (code, told, _) = run(&["call", "echo", "{\"message\": \"through the worker\"}"]);
    assert!(code == Some(0) && told.contains("through the worker"), "{told}");
    worker.end(rustix::process::Signal::TERM);
    let told = rig.command(&["serve", "--store", "postgres://u:secret@h/d"]).output().expect("it runs");
    assert_eq!(told.status.code(), Some(2));
}
