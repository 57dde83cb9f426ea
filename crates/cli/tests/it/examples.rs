//! The examples, run as their readers would.

use crate::rig::{Rig, finish, repository};
use std::process::{Command, Stdio};

#[test]
fn the_first_command_of_the_readme() {
    let rig = Rig::new();
    let file = repository().join("examples/first.json");
    let ran = rig.run(&["run", file.to_str().expect("a path"), "--json"]).expect(1);
    assert_eq!(
        ran.states(),
        [
            "greet succeeded",
            "when succeeded",
            "sum succeeded",
            "nothing failed",
            "typo failed",
            "wrong failed"
        ]
    );
    let model: Vec<String> = ran.json()["calls"]
        .as_array()
        .expect("calls")
        .iter()
        .filter(|call| call["id"] != "when")
        .map(|call| call["model"]["parts"][0]["text"].to_string())
        .collect();
    insta::assert_snapshot!(model.join("\n"));
}

#[test]
fn durability_can_be_watched() {
    let script = repository().join("examples/durability/watch.sh");
    let mut command = Command::new(script);
    command.arg(env!("CARGO_BIN_EXE_windlass")).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = finish(command.spawn().expect("the example starts")).expect(0);
    let row = |id: &str, after: &str| {
        let part = ran.stdout.split(after).nth(1).expect("the step");
        part.lines()
            .find(|line| line.starts_with(id))
            .unwrap_or_else(|| panic!("no {id} in {ran}"))
            .to_string()
    };
    for step in ["== run it again", "== run it once more"] {
        assert!(row("charge ", step).contains("unknown"), "{ran}");
        for id in ["stock ", "parcel ", "thanks ", "stock-after "] {
            assert!(row(id, step).contains("succeeded"), "{ran}");
        }
    }
    let effects = ran.stdout.split("== what took effect").nth(1).expect("the effects");
    let effects = effects.split("== what is recorded").next().expect("the effects");
    let begun = |what: &str| effects.matches(&format!("begin {what} ")).count();
    assert_eq!(
        (begun("charge charge"), begun("charge thanks"), begun("ship parcel")),
        (1, 1, 1),
        "{effects}"
    );
    assert!(!effects.contains("done  charge charge"), "{effects}");
    assert!(ran.stdout.contains("the owner died while attempt 1 was running"), "{ran}");
}
