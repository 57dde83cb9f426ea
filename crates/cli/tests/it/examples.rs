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

/// The blocks of the page about the first agent whose first line names a file, and the commands with what they print.
#[test]
fn the_tools_of_the_first_agent_work_as_they_are_documented() {
    let page = std::fs::read_to_string(repository().join("docs/first-agent.md")).expect("the page");
    let rig = Rig::new();
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let mut files = 0;
    for block in &blocks {
        let lines = block.split_once('\n').map_or("", |(_, lines)| lines);
        if let Some(name) = lines.lines().next().and_then(|line| line.strip_prefix("# ")) {
            rig.write(name, lines);
            files += 1;
        }
    }
    assert_eq!(files, 3, "a declaration and two scripts");
    let console = blocks.iter().find(|block| block.contains("$ windlass call")).expect("commands");
    let mut tried = 0;
    for command in console.split("\n$ windlass ").skip(1) {
        let (line, printed) = command.split_once('\n').expect("a command and what it prints");
        let (words, args) = line.split_once(" '").expect("arguments in quotes");
        let words = words.split(' ').chain([args.trim_end_matches('\'')]);
        let ran = rig.run(&words.collect::<Vec<_>>());
        assert_eq!(ran.stdout.trim_end(), printed.trim_end(), "{line}");
        tried += 1;
    }
    assert_eq!(tried, 4);
    assert_eq!(rig.lines("notes.txt").len(), 1);
}
