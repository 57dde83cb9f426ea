//! A worker that stands still for longer than its lease, while others are told that something is in force everywhere.

use super::{Fleet, Worker, answer_of, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpStream;

/// Workers remember tokens for longer than any test takes; a lease is shorter.
const TOML: &str = "[limits]\nheartbeat_ms = 100\nlease_ms = 800\nknock_ms = 50\ntoken_known_ms = 600000\n\n\
    [tools.peek]\ncommand = [\"sh\", \"-c\", \"echo peek >> ran\"]\nclass = \"read\"\n\n\
    [tools.act]\ncommand = [\"sh\", \"-c\", \"echo act >> ran\"]\nclass = \"once\"\n\n\
    [tools.deploy]\ncommand = [\"sh\", \"-c\", \"echo + >> deploys; until [ -e go ]; do sleep 0.02; done; echo - >> deploys\"]\nclass = \"once\"\nclaims = [\"write global:deploy\"]\n\n\
    [tools.slow]\ncommand = [\"sh\", \"-c\", \"until [ -e go ]; do sleep 0.02; done; echo slow >> ran\"]\nclass = \"keyed\"\n";
/// Sessions that are asked for something while their owner stands still.
const SESSIONS: usize = 6;

/// Three workers, the first of which is stopped again and again.
struct Frozen(Fleet);

impl Frozen {
    /// Sessions of the first worker: idle ones, and ones with calls that wait for one that runs.
    fn prepare(&self, token: &str, round: &str) {
        let _ = std::fs::remove_file(self.0.rig.path("go"));
        let first = &self.0.workers[0];
        for no in 0..SESSIONS {
            let echo = json!({"key": "k", "wait": "settled", "calls": [{"id": "c", "tool": "echo", "args": {"message": "x"}}]});
            first.post(token, &format!("/v1/sessions/{round}{no}/batches"), &echo);
            let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "s", "tool": "slow"}, {"id": "p", "tool": "peek"}, {"id": "a", "tool": "act"}]});
            first.post(token, &format!("/v1/sessions/{round}busy{no}/batches"), &calls);
        }
    }

    /// Requests that the first worker reads when it continues.
    fn send(&self, token: &str, round: &str) -> Vec<TcpStream> {
        let first = &self.0.workers[0];
        let ask = |no: usize, tool: &str| {
            let calls = json!({"key": tool, "wait": "none", "calls": [{"id": "c", "tool": tool}]});
            first
                .send(token, "POST", &format!("/v1/sessions/{round}{no}/batches"), &calls)
                .expect("it listens")
        };
        (0..SESSIONS).flat_map(|no| ["peek", "act"].map(|tool| ask(no, tool))).collect()
    }

    /// Stops the first worker, has the second change something, and returns how often tools had run when that was acknowledged.
    fn change_while_stopped(
        &self,
        token: &str,
        round: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (Vec<String>, Vec<TcpStream>) {
        self.prepare(token, round);
        stop(&self.0.workers[0]);
        let sent = self.send(token, round);
        let (status, answer) = self.0.workers[1].ask(&self.0.token, method, path, body).expect("it answers");
        assert_eq!(status, 200, "{answer}");
        let ran = self.0.rig.lines("ran");
        std::fs::write(self.0.rig.path("go"), "").expect("written");
        self.0.workers[0].signal(Signal::CONT);
        (ran, sent)
    }

    /// The states of all calls of these tools in the sessions of a round.
    fn states(&self, round: &str) -> Vec<Value> {
        let shown = |session: String, key: &str| {
            let path = format!("/v1/sessions/{session}/batches/{key}");
            self.0.workers[2].ask(&self.0.token, "GET", &path, &Value::Null)
        };
        let busy = (0..SESSIONS).map(|no| (format!("{round}busy{no}"), "k"));
        let idle = (0..SESSIONS).flat_map(|no| ["peek", "act"].map(|key| (format!("{round}{no}"), key)));
        let batches = busy
            .chain(idle)
            .filter_map(|(session, key)| shown(session, key))
            .filter(|(status, _)| *status == 200);
        batches
            .flat_map(|(_, batch)| batch["calls"].as_array().cloned().unwrap_or_default())
            .filter(|call| call["tool"] != "slow")
            .collect()
    }

    /// Whether nothing but `slow` has run since then.
    fn assert_nothing_ran(&self, before: &[String], what: &str) {
        let now = self.0.rig.lines("ran");
        let count = |lines: &[String]| lines.iter().filter(|line| *line != "slow").count();
        assert_eq!(count(&now), count(before), "{what}: {now:?}");
    }
}

/// Stops all threads of a worker: the signal alone reaches one after the other.
pub(super) fn stop(worker: &Worker) {
    worker.signal(Signal::STOP);
    let threads = format!("/proc/{}/task", worker.child.id());
    let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(thread.expect("a thread").path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
    };
    until("all threads to stand still", || std::fs::read_dir(&threads).expect("threads").all(is_stopped));
}

#[test]
fn what_was_acknowledged_while_a_worker_stood_still_binds_it_when_it_continues() {
    let Some(fleet) = Fleet::with(TOML, 3) else { return };
    let frozen = Frozen(fleet);
    a_revoked_token(&frozen);
    a_paused_tool(&frozen);
    a_policy(&frozen);
}

#[test]
fn one_worker_at_a_time_has_a_global_name_also_when_one_stands_still_with_it() {
    let Some(fleet) = Fleet::with(TOML, 3) else { return };
    let (workers, token) = (&fleet.workers, &fleet.token);
    let deploys = || fleet.rig.lines("deploys");
    let ask = |worker: usize, session: &str| {
        let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "c", "tool": "deploy"}]});
        workers[worker].post(token, &format!("/v1/sessions/{session}/batches"), &calls);
    };
    let state = |session: &str| {
        let answer = workers[1].ask(token, "GET", &format!("/v1/sessions/{session}/batches/k"), &Value::Null);
        answer.map_or(Value::Null, |(_, batch)| batch["calls"][0].clone())
    };
    ask(0, "frozen");
    until("the first one", || deploys().len() == 1);
    ask(1, "waits");
    until("a call that waits for the other worker", || {
        state("waits")["waiting_for"]
            .as_str()
            .is_some_and(|why| why.contains("of another worker on global:deploy"))
    });
    stop(&workers[0]);
    // What it began in the world ends; only its lease and the record of its call tell the others.
    std::fs::write(fleet.rig.path("go"), "").expect("written");
    until("the next one", || state("waits")["state"] == "succeeded");
    assert_eq!(
        state("frozen")["state"],
        "unknown",
        "the name is free only once the call that had it is settled"
    );
    workers[0].signal(Signal::CONT);
    let sessions: Vec<String> = (0..9).map(|no| format!("s{no}")).collect();
    for (no, session) in sessions.iter().enumerate() {
        until("a worker that takes it", || {
            let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "c", "tool": "deploy"}]});
            let answer =
                workers[no % 3].ask(token, "POST", &format!("/v1/sessions/{session}/batches"), &calls);
            matches!(answer, Some((200 | 202, _)))
        });
    }
    until("all of them", || sessions.iter().all(|session| state(session)["state"] == "succeeded"));
    let ledger = deploys();
    assert_eq!(ledger.len(), 2 * (2 + sessions.len()), "{ledger:?}");
    assert!(ledger.chunks(2).all(|pair| pair == ["+", "-"]), "two at once: {ledger:?}");
}

fn a_revoked_token(frozen: &Frozen) {
    let Fleet { workers, token, .. } = &frozen.0;
    let made =
        workers[0].post(token, "/v1/tokens", &json!({"principal": "ada", "scopes": ["calls", "read"]}));
    let (hers, id) = (made["token"].as_str().expect("a token"), made["id"].as_str().expect("an id"));
    for worker in workers {
        worker.get(hers, "/v1/sessions");
    }
    let (_, sent) =
        frozen.change_while_stopped(hers, "token", "DELETE", &format!("/v1/tokens/{id}"), &Value::Null);
    for worker in &workers[1..] {
        let (status, _) = worker.ask(hers, "GET", "/v1/sessions", &Value::Null).expect("it answers");
        assert_eq!(status, 401, "every other worker has forgotten it");
    }
    for stream in sent {
        let (status, answer) = answer_of(stream).expect("it answers");
        // A worker that cannot read the store yet takes nothing either.
        assert!([401, 503].contains(&status), "{status}: {answer}");
    }
    until("the first worker to refuse it as well", || {
        let (status, answer) = workers[0].ask(hers, "GET", "/v1/sessions", &Value::Null).expect("it answers");
        assert!([401, 503].contains(&status), "{status}: {answer}");
        status == 401
    });
    // What was accepted before goes on.
    until("the calls that were accepted", || {
        let states = frozen.states("token");
        states.len() == 2 * SESSIONS
            && states
                .iter()
                .all(|call| ["succeeded", "unknown"].contains(&call["state"].as_str().unwrap_or("")))
    });
}

fn a_paused_tool(frozen: &Frozen) {
    let Fleet { workers, token, .. } = &frozen.0;
    workers[1].post(token, "/v1/tools/act/pause", &json!({}));
    let (ran, sent) = frozen.change_while_stopped(token, "pause", "POST", "/v1/tools/peek/pause", &json!({}));
    // All is recorded, and waits; what was not taken is asked for again.
    sent.into_iter().for_each(|stream| _ = answer_of(stream));
    until("requests that are taken again", || {
        frozen
            .send(token, "pause")
            .into_iter()
            .all(|stream| matches!(answer_of(stream), Some((200 | 202, _))))
    });
    until("calls that wait for their tools", || {
        let states = frozen.states("pause");
        states.len() == 4 * SESSIONS
            && states
                .iter()
                .all(|call| call["waiting_for"].as_str().is_some_and(|why| why.starts_with("tool_paused")))
    });
    frozen.assert_nothing_ran(&ran, "paused");
    for tool in ["peek", "act"] {
        workers[2].post(token, &format!("/v1/tools/{tool}/resume"), &json!({}));
    }
    until("the calls of resumed tools", || {
        let states = frozen.states("pause");
        states.len() == 4 * SESSIONS && states.iter().all(|call| call["state"] == "succeeded")
    });
}

fn a_policy(frozen: &Frozen) {
    let Fleet { workers, token, .. } = &frozen.0;
    let rules = json!({"rules": [{"name": "nothing", "ruling": "deny", "when": {"tool": ["peek", "act"]}}]});
    let (ran, sent) = frozen.change_while_stopped(token, "policy", "PUT", "/v1/policy", &rules);
    sent.into_iter().for_each(|stream| _ = answer_of(stream));
    until("requests that are taken again", || {
        frozen
            .send(token, "policy")
            .into_iter()
            .all(|stream| matches!(answer_of(stream), Some((200 | 202, _))))
    });
    until("calls that are denied", || {
        let states = frozen.states("policy");
        states.len() == 4 * SESSIONS && states.iter().all(|call| call["state"] == "denied")
    });
    frozen.assert_nothing_ran(&ran, "denied");
    assert_eq!(
        workers[0].get(token, "/v1/policy")["version"],
        workers[1].get(token, "/v1/policy")["version"]
    );
}
