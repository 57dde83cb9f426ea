//! Input of every wrong kind: told, with what to do, and never a crash.

use crate::rig::{Rig, text};
use serde_json::json;

#[test]
fn files_that_are_no_batch_are_told() {
    let mut told = String::new();
    let cases: [(&str, &[u8]); 10] = [
        ("binary", b"\x7fELF\x02\x01\x01\x00\xff\xfe"),
        ("nothing", b""),
        ("no JSON", b"hello"),
        ("a list", br#"[{"tool": "add"}]"#),
        ("cut off", br#"{"calls": [{"id": "a", "tool"#),
        ("unknown field", br#"{"calls": [{"id": "a", "tool": "add", "arguments": {}}]}"#),
        ("a line that is wrong", b"{\"tool\": \"add\"}\n{\"tol\": \"add\"}\n"),
        ("no tool", br#"{"calls": [{"id": "a"}]}"#),
        ("two keys", br#"{"calls": [{"id": "a", "id": "b", "tool": "add"}]}"#),
        ("byte order mark", b"\xef\xbb\xbf{\"calls\": []}"),
    ];
    for (name, bytes) in cases {
        let rig = Rig::new();
        rig.write("batch.json", bytes);
        let ran = rig.run(&["run", "batch.json"]);
        told.push_str(&format!("# {name}: {}", rig.told(&ran)));
    }
    let rig = Rig::new();
    for args in [&["run", "nowhere.json"][..], &["run", "."], &["calls", "x", "--data", "nowhere"]] {
        told.push_str(&format!("# {args:?}: {}", rig.told(&rig.run(args))));
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_batch_that_is_too_large_is_refused_whole() {
    let rig = Rig::with("[tools.note]\ncommand = [\"sh\", \"-c\", \"echo x >> notes\"]\n");
    let calls: Vec<_> = (0..257).map(|n| json!({"id": format!("c{n}"), "tool": "note"})).collect();
    let ran = rig.run_on(&["run", "-"], json!({"calls": calls}).to_string()).expect(4);
    insta::assert_snapshot!(rig.told(&ran));
    assert_eq!(rig.lines("notes"), [""; 0]);
    assert!(rig.run(&["calls", "--json"]).expect(0).json()["items"].as_array().expect("items").is_empty());
    let long = "x".repeat(129);
    for id in ["", &long, "a\nb"] {
        let call = json!({"id": id, "tool": "note"}).to_string();
        rig.run_on(&["run", "-"], call).expect(4);
    }
    assert_eq!(rig.lines("notes"), [""; 0]);
}

#[test]
fn an_empty_batch_is_answered_with_nothing() {
    let rig = Rig::new();
    let ran = rig.run_on(&["run", "-", "--json", "--key", "k"], r#"{"calls": []}"#).expect(0);
    assert_eq!(ran.json(), json!({"key": "k", "calls": []}));
    insta::assert_snapshot!(rig.told(&rig.run_on(&["run", "-"], r#"{"calls": []}"#)));
}

#[test]
fn bad_arguments_are_the_failure_of_their_call_alone() {
    let rig = Rig::new();
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let nested = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let args = [
        deep(100_000),
        nested,
        format!(r#"{{"message": {}}}"#, deep(1000)),
        serde_json::to_string(&deep(100_000)).expect("JSON"),
        r#"{"message": "a", "message": "b"}"#.to_string(),
        r#"{"message": 1e999}"#.to_string(),
        r#""{broken""#.to_string(),
        r#""nonsense""#.to_string(),
        "5".to_string(),
        format!(r#"{{"message": "{}"}}"#, "x".repeat(1 << 20)),
        r#"{"message": "fine"}"#.to_string(),
    ];
    let calls: Vec<String> = args
        .iter()
        .zip(0..)
        .map(|(args, n)| format!(r#"{{"id": "c{n}", "tool": "echo", "args": {args}}}"#))
        .collect();
    let batch = format!(r#"{{"calls": [{}]}}"#, calls.join(","));
    let ran = rig.run_on(&["run", "-", "--json"], &batch).expect(1);
    let json = ran.json();
    let told: Vec<String> = json["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .map(|call| {
            let failure = &call["outcome"]["failure"];
            let code = failure["code"].as_str().unwrap_or("-");
            format!(
                "{} {} {code}: {}",
                text(&call["id"]),
                text(&call["state"]),
                failure["message"].as_str().unwrap_or("-")
            )
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"));
    // What is recorded is recognised, however it was written.
    let again = rig.run_on(&["run", "-", "--json"], calls.join("\n")).expect(1);
    assert_eq!(again.stdout, ran.stdout);
    assert!(again.stderr.contains("11 of 11 answers were recorded"), "{again}");
    rig.run(&["calls"]).expect(0);
    rig.run(&["doctor"]).expect(0);
}

#[test]
fn one_call_takes_bad_arguments_too() {
    let rig = Rig::new();
    let mut told = String::new();
    for args in ["{", "[]", r#"{"message": 5}"#, r#"{"mesage": "x"}"#, &"[".repeat(100_000), ""] {
        let ran = rig.run(&["call", "echo", args]).expect(1);
        told.push_str(&rig.told(&ran));
    }
    insta::assert_snapshot!(told);
}
