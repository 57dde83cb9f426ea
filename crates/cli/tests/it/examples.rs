//! The examples, run as their readers would.

use crate::rig::{Rig, finish, repository, text};
use std::process::{Command, Stdio};

fn example(name: &str) -> String {
    repository().join("examples").join(name).to_string_lossy().into_owned()
}

#[test]
fn the_first_command_of_the_readme() {
    let rig = Rig::new();
    let ran = rig.run(&["run", &example("first.json")]).expect(0);
    assert_eq!(ran.stdout.lines().count(), 6);
    assert_eq!(ran.stdout.matches("succeeded").count(), 5, "{ran}");
    assert_eq!(ran.stderr, "");
    let again = rig.run(&["run", &example("first.json")]).expect(0);
    assert_eq!(again.stdout, ran.stdout);
    assert!(again.stderr.contains("--new runs them again"), "{again}");
}

#[test]
fn mistakes_are_told_to_the_model() {
    let rig = Rig::new();
    let ran = rig.run(&["run", &example("mistakes.json"), "--json"]).expect(4);
    let calls = ran.json()["calls"].as_array().expect("calls").clone();
    let told = calls
        .iter()
        .map(|call| format!("{}: {}", text(&call["id"]), text(&call["model"]["parts"][0]["text"])));
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn durability_can_be_watched() {
    let mut command = Command::new(example("durability/watch.sh"));
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
        assert!(row("stock ", step).contains("succeeded"), "{ran}");
        for id in ["parcel ", "stock-after "] {
            assert!(row(id, step).contains("cancelled"), "{ran}");
        }
    }
    let begun = |when: &str| {
        let effects = ran.stdout.split(when).nth(1).expect("the effects");
        let effects = effects.split("\n==").next().expect("the effects");
        assert!(!effects.contains("done  charge"), "{effects}");
        ["charge charge", "ship parcel"].map(|what| effects.matches(&format!("begin {what} ")).count())
    };
    assert_eq!(begun("== what took effect so far"), [1, 0], "nothing is shipped while the charge is unknown");
    assert!(row("parcel ", "== a person looks").contains("succeeded"), "{ran}");
    assert_eq!(begun("== what took effect in the end"), [1, 1]);
    assert!(ran.stdout.contains("the owner died while attempt 1 was running"), "{ran}");
}
