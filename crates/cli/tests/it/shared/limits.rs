//! The limit of a tool over several workers, one of which stands still for longer than its lease.

use super::frozen::stop;
use super::{Fleet, until};
use rustix::process::Signal;
use serde_json::{Value, json};

const TOML: &str = "[limits]\nheartbeat_ms = 100\nlease_ms = 800\nknock_ms = 50\n\n\
    [tools.narrow]\nclass = \"keyed\"\nclaims = []\nlimits = { running = 2 }\n\
    command = [\"sh\", \"-c\", \"echo + >> narrow; until [ -e go ]; do sleep 0.02; done; sleep 0.1; echo - >> narrow\"]\n";
/// Sessions of each worker.
const SESSIONS: usize = 5;

#[test]
fn no_more_than_its_limit_run_over_all_workers_also_when_one_stands_still_with_permits() {
    let Some(fleet) = Fleet::with(TOML, 3) else { return };
    let (workers, token) = (&fleet.workers, &fleet.token);
    let ledger = || fleet.rig.lines("narrow");
    let calls = json!({"key": "k", "wait": "none", "calls": [{"id": "c", "tool": "narrow"}]});
    let path = |worker: usize, no: usize| format!("/v1/sessions/w{worker}s{no}/batches");
    // The first one has both permits, and calls that wait.
    for no in 0..SESSIONS {
        workers[0].post(token, &path(0, no), &calls);
    }
    until("the first two", || ledger().len() == 2);
    for (number, worker) in workers.iter().enumerate().skip(1) {
        (0..SESSIONS).for_each(|no| _ = worker.post(token, &path(number, no), &calls));
    }
    stop(&workers[0]);
    // What it began in the world ends; only its lease tells the others that it has the permits no more.
    std::fs::write(fleet.rig.path("go"), "").expect("written");
    until("one of another worker", || ledger().len() > 4);
    workers[0].signal(Signal::CONT);
    let is_over = |worker: usize, no: usize| {
        let shown = workers[1].ask(token, "GET", &format!("{}/k", path(worker, no)), &Value::Null);
        shown.is_some_and(|(_, batch)| batch["calls"][0]["state"] == "succeeded")
    };
    let all = || (0..3).flat_map(|worker| (0..SESSIONS).map(move |no| (worker, no)));
    until("all of them", || all().all(|(worker, no)| is_over(worker, no)));
    let mut running = 0;
    for (at, line) in ledger().iter().enumerate() {
        running += if line == "+" { 1 } else { -1 };
        assert!((0..=2).contains(&running), "{running} at once, at {at}: {:?}", ledger());
    }
}
