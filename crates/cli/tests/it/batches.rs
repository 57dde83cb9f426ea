//! `windlass run`: answers in order, recorded answers byte for byte, and identity by key and id.

use crate::rig::{Ran, Rig, text};
use serde_json::{Value, json};

/// A tool that leaves a line for each time it is run.
const NOTE: &str = r#"
[tools.note]
description = "Leaves a note"
command = ["./note.sh", "{n}"]
input = { type = "object", properties = { n = { type = "integer" } }, required = ["n"] }
class = "once"
"#;

fn rig() -> Rig {
    let rig = Rig::with(NOTE);
    rig.script("note.sh", "echo \"$1 $WINDLASS_CALL_ID\" >> notes\necho \"{\\\"noted\\\": $1}\"");
    rig
}

fn note(id: &str, n: i32) -> Value {
    json!({"id": id, "tool": "note", "args": {"n": n}})
}

/// Fifty calls; every fifth leaves a note.
fn fifty() -> Vec<Value> {
    let call = |n: i32| match n % 5 {
        0 => note(&format!("c{n}"), n),
        _ => json!({"id": format!("c{n}"), "tool": "add", "args": {"a": n, "b": 1000}}),
    };
    (0..50).map(call).collect()
}

fn batch(calls: &[Value]) -> String {
    json!({"calls": calls}).to_string()
}

fn codes(ran: &Ran) -> Vec<Value> {
    let calls = ran.json()["calls"].as_array().expect("calls").clone();
    calls.iter().map(|call| call["outcome"]["failure"]["code"].clone()).collect()
}

#[test]
fn fifty_answers_come_in_order_and_again_byte_for_byte() {
    let rig = rig();
    rig.write("fifty.json", batch(&fifty()));
    let run = |more: &[&str]| rig.run(&[&["run", "fifty.json", "--key", "k"], more].concat()).expect(0);
    let first = run(&["--json"]);
    let calls = first.json()["calls"].as_array().expect("calls").clone();
    assert_eq!(calls.len(), 50);
    for (n, call) in calls.iter().enumerate() {
        assert_eq!(text(&call["id"]), format!("c{n}"));
        let expected = if n % 5 == 0 { json!({"noted": n}) } else { json!({"result": n + 1000}) };
        assert_eq!(call["outcome"]["value"], expected, "{call}");
    }
    assert_eq!(first.stderr, "");
    let notes = rig.lines("notes");
    let expected: Vec<String> = (0..50).step_by(5).map(|n| format!("{n} c{n}")).collect();
    assert_eq!(notes, expected);

    let again = run(&["--json"]);
    assert_eq!(again.stdout, first.stdout);
    let said = "windlass: 50 of 50 answers were recorded under key k and did not run again\n";
    assert_eq!(again.stderr, said);
    let (table, table_again) = (run(&[]), run(&[]));
    assert_eq!(table.stdout, table_again.stdout);
    assert_eq!(table.stdout.lines().count(), 51);
    assert_eq!(rig.lines("notes"), notes, "nothing was started");
}

/// Each run is a process of its own, and the guard knows what the ones before it recorded.
#[test]
fn the_same_batch_over_and_over_is_a_loop_whoever_runs_it() {
    let rig = rig();
    let run = |key: &str, calls: &[Value]| rig.run_on(&["run", "-", "--key", key, "--json"], batch(calls));
    for key in ["1", "2", "3", "4", "5"] {
        run(key, &[note("c", 7)]).expect(0);
    }
    for key in ["6", "7"] {
        assert_eq!(codes(&run(key, &[note("c", 7)]).expect(1)), ["loop"]);
    }
    assert_eq!(rig.lines("notes").len(), 5, "what is refused is not run");
    run("8", &[note("c", 8)]).expect(0);
    run("9", &[note("c", 7)]).expect(0);
    // A tool that is meant to be asked again and again.
    rig.write("windlass.toml", format!("{NOTE}polls = true\n"));
    for key in 10..20 {
        run(&key.to_string(), &[note("c", 7)]).expect(0);
    }
}

#[test]
fn other_arguments_under_the_same_key_conflict_for_that_call_only() {
    let rig = rig();
    let mut calls = fifty();
    rig.run_on(&["run", "-", "--key", "k"], batch(&calls)).expect(0);
    let notes = rig.lines("notes");
    calls[7]["args"]["b"] = json!(1001);
    calls[10] = json!({"id": "c10", "tool": "echo", "args": {"message": "x"}});
    let ran = rig.run_on(&["run", "-", "--key", "k", "--json"], batch(&calls)).expect(4);
    let json = ran.json();
    for (n, call) in json["calls"].as_array().expect("calls").iter().enumerate() {
        let state = if n == 7 || n == 10 { "failed" } else { "succeeded" };
        assert_eq!(call["state"], state, "{call}");
    }
    let failure = &json["calls"][7]["outcome"]["failure"];
    assert_eq!((&failure["class"], &failure["code"]), (&json!("conflict"), &json!("conflict")));
    insta::assert_snapshot!(text(&failure["message"]), @r#"The call "c7" of this batch is recorded with other arguments at /b. The recorded one is untouched and this one was not run; give it another id to run it."#);
    insta::assert_snapshot!(text(&json["calls"][10]["outcome"]["failure"]["message"]), @r#"The call "c10" of this batch is recorded with another tool. The recorded one is untouched and this one was not run; give it another id to run it."#);
    insta::assert_snapshot!(ran.stderr, @"windlass: 48 of 50 answers were recorded under key k and did not run again");
    assert_eq!(rig.lines("notes"), notes, "nothing was started");
}

#[test]
fn a_key_is_derived_from_the_calls() {
    let rig = rig();
    rig.write("two.json", batch(&[note("a", 1), note("b", 2)]));
    let first = rig.run(&["run", "two.json"]).expect(0);
    assert_eq!(first.stderr, "");
    let again = rig.run(&["run", "two.json"]).expect(0);
    assert_eq!(again.stdout, first.stdout);
    assert!(again.stderr.starts_with("windlass: 2 of 2 answers were recorded under key "), "{again}");
    assert!(again.stderr.ends_with(" and did not run again; --new runs them again\n"), "{again}");
    assert_eq!(rig.lines("notes").len(), 2);
    // Blanks and the order of keys are no difference.
    let spelled = r#"{"calls": [{"tool": "note", "args": { "n" : 1 }, "id": "a"}, {"id": "b", "args": "{\"n\": 2}", "tool": "note"}]}"#;
    rig.run_on(&["run", "-"], spelled).expect(0);
    assert_eq!(rig.lines("notes").len(), 2);
    let anew = rig.run(&["run", "two.json", "--new"]).expect(0);
    assert_eq!(anew.stderr, "");
    assert_eq!(rig.lines("notes").len(), 4);
    // Another session is another world.
    rig.run(&["run", "two.json", "--session", "other"]).expect(0);
    assert_eq!(rig.lines("notes").len(), 6);
}

#[test]
fn calls_come_line_by_line_too() {
    let rig = rig();
    let lines =
        format!("{}\n\n{}\r\n{}", note("a", 1), note("b", 2), json!({"id": "c", "tool": "get_current_time"}));
    let ran = rig.run_on(&["run", "-", "--json"], &lines).expect(0);
    assert_eq!(ran.states(), ["a succeeded", "b succeeded", "c succeeded"]);
    let again = rig.run_on(&["run", "-", "--json"], &lines).expect(0);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(rig.lines("notes").len(), 2);
}

#[test]
fn calls_without_ids_are_new_each_time() {
    let rig = rig();
    let call = r#"{"tool": "note", "args": {"n": 1}}"#;
    rig.run_on(&["run", "-"], call).expect(0);
    let again = rig.run_on(&["run", "-", "--json"], call).expect(0);
    assert_eq!(again.states(), ["call-1 succeeded"]);
    assert_eq!(again.stderr, "");
    assert_eq!(rig.lines("notes").len(), 2);
}

#[test]
fn equal_calls_of_one_id_are_one_call() {
    let rig = rig();
    let ran =
        rig.run_on(&["run", "-", "--json"], batch(&[note("a", 1), note("b", 2), note("a", 1)])).expect(0);
    assert_eq!(ran.states(), ["a succeeded", "b succeeded", "a succeeded"]);
    let json = ran.json();
    assert_eq!(json["calls"][0], json["calls"][2]);
    assert_eq!(rig.lines("notes"), ["1 a", "2 b"]);
    assert_eq!(ran.stderr, "", "nothing was on record");
}

#[test]
fn different_calls_of_one_id_are_both_refused() {
    let rig = rig();
    let calls = batch(&[note("a", 1), note("b", 2), note("a", 3)]);
    let ran = rig.run_on(&["run", "-", "--json"], &calls).expect(4);
    assert_eq!(ran.states(), ["a failed", "b succeeded", "a failed"]);
    assert_eq!(codes(&ran), [json!("call_id_conflict"), Value::Null, json!("call_id_conflict")]);
    assert_eq!(rig.lines("notes"), ["2 b"]);
    let again = rig.run_on(&["run", "-", "--json"], &calls).expect(4);
    assert_eq!(again.stdout, ran.stdout);
    assert_eq!(rig.lines("notes"), ["2 b"]);
}

#[test]
fn a_call_added_to_a_recorded_batch_runs_alone() {
    let rig = rig();
    let run = |calls: &[Value]| rig.run_on(&["run", "-", "--key", "k", "--json"], batch(calls)).expect(0);
    let first = run(&[note("a", 1), note("b", 2)]);
    let more = run(&[note("a", 1), note("c", 3), note("b", 2)]);
    assert_eq!(more.states(), ["a succeeded", "c succeeded", "b succeeded"]);
    assert_eq!(more.json()["calls"][2], first.json()["calls"][1]);
    assert_eq!(rig.lines("notes"), ["1 a", "2 b", "3 c"]);
    assert_eq!(more.stderr, "windlass: 2 of 3 answers were recorded under key k and did not run again\n");
    let again = run(&[note("a", 1), note("c", 3), note("b", 2)]);
    assert_eq!(again.stdout, more.stdout);
    assert_eq!(rig.lines("notes").len(), 3);
}

#[test]
fn a_key_in_the_file_counts_and_the_command_line_wins() {
    let rig = rig();
    let file = json!({"key": "in-file", "calls": [note("a", 1)]}).to_string();
    assert_eq!(rig.run_on(&["run", "-", "--json"], &file).expect(0).json()["key"], "in-file");
    assert_eq!(rig.run_on(&["run", "-", "--json", "--key", "given"], &file).expect(0).json()["key"], "given");
    assert_eq!(rig.lines("notes").len(), 2);
}

#[test]
fn one_call_with_an_id_is_one_call_however_often() {
    let rig = rig();
    let first = rig.run(&["call", "note", r#"{"n": 1}"#, "--id", "x"]).expect(0);
    let again = rig.run(&["call", "note", r#"{"n": 1}"#, "--id", "x"]).expect(0);
    assert_eq!((first.stdout.as_str(), &again.stdout), ("{\"noted\":1}\n", &first.stdout));
    assert_eq!(again.stderr, "windlass: this answer was recorded before; the tool did not run again\n");
    rig.run(&["call", "note", r#"{"n": 2}"#, "--id", "x"]).expect(4);
    assert_eq!(rig.lines("notes").len(), 1);
    rig.run(&["call", "note", r#"{"n": 1}"#]).expect(0);
    assert_eq!(rig.lines("notes").len(), 2);
}

#[test]
fn every_exit_code_but_those_of_kills_and_damage() {
    let rig = rig();
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    rig.run(&["call", "divide", r#"{"a": 1, "b": 0}"#]).expect(1);
    rig.run(&["call"]).expect(2);
    rig.run(&["call", "add", "--session", "no blanks"]).expect(4);
    rig.write("a-file", "").run(&["--data", "a-file", "call", "add"]).expect(6);
    // 3 is for `kills`, 5 for calls that stay open, which nothing does yet.
}

#[test]
fn a_race_has_one_winner_and_says_so() {
    let rig = rig();
    let calls = [json!({"id": "f", "tool": "fail", "args": {"message": "no"}}), note("a", 1), note("b", 2)];
    rig.write("race.json", json!({"key": "k", "siblings": "race", "calls": calls}).to_string());
    let raced = rig.run(&["run", "race.json", "--json"]).expect(1);
    let shown = raced.json();
    let states: Vec<&str> = shown["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| call["state"].as_str().expect("state"))
        .collect();
    assert_eq!(states, ["failed", "succeeded", "cancelled"]);
    assert_eq!(shown["decided"], json!({"siblings": "race", "decision": "reached", "winners": ["a"]}));
    assert_eq!(raced.stderr, "windlass: race was reached by a\n");
    assert_eq!(rig.lines("notes"), ["1 a"]);
    let again = rig.run(&["run", "race.json"]).expect(1);
    assert!(again.stderr.ends_with("windlass: race was reached by a\n"), "{}", again.stderr);
    rig.write("quorum.json", json!({"siblings": {"quorum": 4}, "calls": calls}).to_string());
    let refused = rig.run(&["run", "quorum.json"]).expect(4);
    assert!(refused.stderr.contains("a quorum of 4 cannot be reached by 3 calls"), "{}", refused.stderr);
}

#[test]
fn a_providers_response_is_run_once_and_answered_with_messages() {
    let rig = rig();
    let response = json!({"id": "msg_1", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "note", "input": {"n": 7}},
        {"type": "tool_use", "id": "toolu_2", "name": "add", "input": {"a": 1, "b": 2}}]});
    rig.write("response.json", response.to_string());
    let run = |more: &[&str]| rig.run(&[&["run", "--wire", "anthropic", "response.json"], more].concat());
    let first = run(&[]).expect(0);
    let messages: Vec<Value> =
        first.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(messages[0]["content"], response["content"]);
    assert_eq!(messages[1]["content"][0]["tool_use_id"], "toolu_1");
    assert_eq!(run(&[]).expect(0).stdout, first.stdout, "from the record");
    assert_eq!(rig.lines("notes"), ["7 toolu_1"]);
    let whole = run(&["--json", "--turn", "2"]).expect(0).json();
    assert_eq!((&whole["key"], &whole["over"]), (&json!("anthropic/msg_1/2"), &json!(false)));
    // A driver elsewhere is asked in the same way.
    let server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    crate::rig::until("the server has its socket", || rig.path(".windlass/control.sock").exists());
    assert_eq!(run(&[]).expect(0).stdout, first.stdout);
    crate::rig::kill(server);
    rig.write(
        "response.json",
        r#"{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "fail", "input": {}}]}"#,
    );
    assert!(run(&[]).expect(4).stderr.contains("give the batch a `turn` or a `key`"));
    assert!(run(&["--turn", "3"]).expect(1).stdout.contains("\"is_error\":true"));
}
