//! `kill -9` of windlass in the middle of calls: nothing recorded is lost or repeated, and no command survives.

use crate::rig::{Ran, Rig, kill, text, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One command under three promises: a line when it begins, one when it is done.
const TOOLS: &str = r#"
[tools.once]
command = ["./work.sh"]
class = "once"

[tools.keyed]
command = ["./work.sh"]
class = "keyed"

[tools.read]
command = ["./work.sh"]
class = "read"

[tools.stuck]
command = ["sh", "-c", "echo stuck >> log; while :; do sleep 1; done"]
class = "once"
"#;

const WORK: &str = r#"
say() { echo "$1 $WINDLASS_CALL_ID $WINDLASS_ATTEMPT $WINDLASS_IDEMPOTENCY_KEY" >> "log"; }
say begin
sleep 0.05
say done
echo "{\"did\": \"$WINDLASS_CALL_ID\"}"
"#;

/// How many batches are killed; a longer soak sets this.
const ROUNDS: &str = "WINDLASS_TEST_KILL_ROUNDS";

fn rig() -> Rig {
    let rig = Rig::with(TOOLS);
    rig.script("work.sh", WORK);
    rig
}

/// The runs of a call: its attempts with their keys, as they began and were done.
#[derive(Default, Debug, Clone, PartialEq)]
struct Effects {
    begun: Vec<(u32, String)>,
    done: usize,
}

fn effects(rig: &Rig) -> BTreeMap<String, Effects> {
    let mut effects: BTreeMap<String, Effects> = BTreeMap::new();
    for line in rig.lines("log") {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, id, attempt, key] = words.as_slice() else { panic!("a torn line: {line:?}") };
        let effect = effects.entry(id.to_string()).or_default();
        match what {
            "begin" => effect.begun.push((attempt.parse().expect("a number"), key.to_string())),
            _ => effect.done += 1,
        }
    }
    effects
}

/// A batch of calls of all classes, whose ids begin with their class.
fn batch(round: usize) -> String {
    let tools = ["once", "keyed", "read", "read", "once", "read", "keyed", "once", "once", "read"];
    let call = |(place, tool): (usize, &&str)| json!({"id": format!("{tool}-{round}-{place}"), "tool": tool});
    json!({"key": format!("k{round}"), "calls": tools.iter().enumerate().map(call).collect::<Vec<_>>()})
        .to_string()
}

/// The ids of the calls that are recorded as ended.
fn ended(rig: &Rig) -> Vec<String> {
    let listed = rig.run(&["calls", "--json", "--limit", "1000"]);
    if listed.code == Some(6) {
        // Killed before the store was made.
        return Vec::new();
    }
    let items = listed.expect(0).json()["items"].as_array().expect("items").clone();
    let over = items.iter().filter(|call| call["state"] == "succeeded" || call["state"] == "unknown");
    over.map(|call| text(&call["id"])).collect()
}

/// Runs the batch until the log has grown by so many lines, kills it, and sees that nothing of it is left.
/// False if it ended before.
fn run_and_kill(rig: &Rig, file: &str, lines: usize) -> bool {
    let before = rig.lines("log").len();
    let mut child = rig.start(&["run", file]);
    let mut over = false;
    until("the log grows", || {
        over = child.try_wait().expect("our child").is_some();
        over || rig.lines("log").len() >= before + lines
    });
    kill(child);
    until("all commands are gone", || rig.processes().is_empty());
    !over
}

fn check(rig: &Rig, ran: &Ran, kills: usize) -> usize {
    let effects = effects(rig);
    let calls: Vec<Value> = ran.json()["calls"].as_array().expect("calls").clone();
    let mut unknown = 0;
    for call in &calls {
        let id = text(&call["id"]);
        let effect = effects.get(&id).cloned().unwrap_or_default();
        let keys: Vec<&String> = effect.begun.iter().map(|(_, key)| key).collect();
        assert!(keys.windows(2).all(|two| two[0] == two[1]), "{id} changed its key: {effect:?}");
        // The intent of a read is not recorded, so its second run may be attempt 1 again.
        let attempts: Vec<u32> = effect.begun.iter().map(|(attempt, _)| *attempt).collect();
        let counted = id.starts_with("read") || attempts.is_sorted_by(|a, b| a < b);
        assert!(counted, "{id} repeated an attempt: {effect:?}");
        match (id.starts_with("once"), text(&call["state"]).as_str()) {
            (true, "unknown") => {
                unknown += 1;
                assert!(effect.begun.len() <= 1, "{id} ran twice: {effect:?}");
            }
            (true, "succeeded") => assert_eq!((effect.begun.len(), effect.done), (1, 1), "{id}: {effect:?}"),
            (false, "succeeded") => {
                assert!(effect.done >= 1 && effect.begun.len() <= kills + 1, "{id}: {effect:?}");
            }
            (_, state) => panic!("{id} ended as {state}: {call}"),
        }
    }
    assert!(unknown <= kills, "{unknown} unknown after {kills} kills");
    assert_eq!(ran.code, Some(if unknown > 0 { 3 } else { 0 }), "{ran}");
    unknown
}

#[test]
fn a_killed_batch_is_brought_to_its_end_and_nothing_is_repeated() {
    let rounds = std::env::var(ROUNDS).map_or(10, |rounds| rounds.parse().expect("a number"));
    let rig = rig();
    let (mut killed, mut unknown) = (0, 0);
    for round in 0..rounds {
        rig.write("batch.json", batch(round));
        // Each round dies at another line, every third one twice.
        let mut kills = usize::from(run_and_kill(&rig, "batch.json", 1 + (round * 7) % 17));
        if round % 3 == 2 {
            kills += usize::from(run_and_kill(&rig, "batch.json", 1 + round % 4));
        }
        let (over, before) = (ended(&rig), effects(&rig));
        let ran = rig.run(&["run", "batch.json", "--json"]);
        unknown += check(&rig, &ran, kills);
        killed += kills;
        let after = effects(&rig);
        for id in over {
            assert_eq!(before.get(&id), after.get(&id), "{id} had ended and was run again");
        }
        let again = rig.run(&["run", "batch.json", "--json"]);
        assert_eq!(again.stdout, ran.stdout);
        assert_eq!(effects(&rig), after, "what is over was run again");
        assert_eq!(rig.processes(), [0; 0]);
    }
    assert!(killed > rounds / 2, "only {killed} kills hit a run");
    assert!(unknown > 0, "no kill hit a call that must not be repeated, so nothing was shown");
    rig.run(&["doctor"]).expect(0);
}

#[test]
fn an_unknown_call_is_told_with_the_next_step() {
    let rig = rig();
    rig.write(
        "batch.json",
        r#"{"key": "k", "calls": [{"id": "a", "tool": "stuck"}, {"id": "b", "tool": "read"}]}"#,
    );
    assert!(run_and_kill(&rig, "batch.json", 1));
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(3);
    assert_eq!(ran.states(), ["a unknown", "b succeeded"]);
    let call = &ran.json()["calls"][0];
    assert!(call["outcome"]["since"].is_string(), "{call}");
    let told = format!("{}\n{}", text(&call["model"]["parts"][0]["text"]), rig.redact(&ran.stderr));
    insta::assert_snapshot!(told);
}

#[test]
fn what_was_left_open_is_finished_by_the_next_batch_of_the_session() {
    let rig = rig();
    rig.write("batch.json", batch(0));
    assert!(run_and_kill(&rig, "batch.json", 1));
    // Another batch: its own answer is there at once, and the calls it took over must not lose their owner again.
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    let calls = effects(&rig);
    let ran = rig.run(&["run", "batch.json", "--json"]);
    check(&rig, &ran, 1);
    assert_eq!(effects(&rig), calls, "all had ended before");
    assert!(ran.stderr.contains("10 of 10 answers were recorded"), "{ran}");
}

/// A command that kills windlass each time it runs is set aside after three deaths, and its neighbours are not.
#[test]
fn a_command_that_kills_its_owner_is_set_aside() {
    let rig = Rig::with(
        r#"
[tools.deadly]
command = ["sh", "-c", "kill -9 $(sed -n 's/^process \\([0-9]*\\).*/\\1/p' .windlass/owner.lock); sleep 60"]
class = "keyed"
"#,
    );
    let calls = json!({"key": "k", "calls": [
        {"id": "before", "tool": "echo", "args": {"message": "a"}},
        {"id": "deadly", "tool": "deadly", "args": {}},
        {"id": "after", "tool": "echo", "args": {"message": "b"}},
    ]});
    rig.write("batch.json", calls.to_string());
    for death in 1..=3 {
        let ran = rig.run(&["run", "batch.json", "--json"]);
        assert_eq!(ran.code, None, "death {death}: {ran}");
    }
    let ran = rig.run(&["run", "batch.json", "--json"]).expect(1);
    assert_eq!(ran.states(), ["before succeeded", "deadly failed", "after succeeded"]);
    assert_eq!(ran.json()["calls"][1]["outcome"]["failure"]["code"], "poison");
    until("nothing is left running", || rig.processes().is_empty());
}
