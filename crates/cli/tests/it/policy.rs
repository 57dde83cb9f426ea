//! `windlass policy` and `windlass init`, as people and the docs use them.

use crate::rig::Rig;
use serde_json::json;

const DOCS: &str = include_str!("../../../../docs/policy.md");

/// The blocks of the docs, each with its language.
fn blocks() -> Vec<(&'static str, &'static str)> {
    // Text and blocks take turns.
    DOCS.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The commands of a block, each with what it prints.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push((command.to_string(), String::new())),
            (None, Some((_, printed))) => printed.push_str(&format!("{line}\n")),
            (None, None) => panic!("{line:?} follows no command"),
        }
    }
    found
}

#[test]
fn the_docs_print_what_they_show() {
    let rig = Rig::new();
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_windlass")).parent().expect("a folder");
    let trimmed = |text: &str| text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>();
    let (mut toml, mut ran) = (String::new(), 0);
    for (language, block) in blocks() {
        match language {
            "toml" => {
                toml.push_str(block);
                rig.write("windlass.toml", &toml);
            }
            "json" => {
                rig.write("rules.json", block);
            }
            "console" => {
                for (command, printed) in commands(block) {
                    let mut shell = std::process::Command::new("sh");
                    shell.args(["-c", &command]).current_dir(rig.path("")).env("WINDLASS_LOG", "off");
                    shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
                    let said = shell.output().expect("sh runs");
                    let said = [said.stdout, said.stderr].concat();
                    assert_eq!(trimmed(&String::from_utf8_lossy(&said)), trimmed(&printed), "{command}");
                    ran += 1;
                }
            }
            other => panic!("a block of {other}"),
        }
    }
    assert_eq!(ran, 5, "every command was run");
}

#[test]
fn the_template_reads_freely_and_asks_before_anything_destructive() {
    let rig = Rig::new();
    rig.run(&["init", "--policy"]).expect(0);
    let again = rig.run(&["init", "--policy"]).expect(2);
    assert!(again.stderr.contains("windlass init --policy --print"), "{again}");
    let mut toml = std::fs::read_to_string(rig.path("windlass.toml")).expect("it was written");
    toml.push_str("[tools.careless]\ncommand = [\"true\"]\n[tools.gentle]\ncommand = [\"true\"]\nhints = { destructive = false }\n");
    toml.push_str("[tools.deploy]\ncommand = [\"true\"]\napproval = \"ask\"\nhints = { destructive = false, sends_out = false }\n");
    rig.write("windlass.toml", toml);
    for (args, ruling, by) in [
        (&["get_current_time"][..], "allow", "read freely"),
        (&["disk_free", "--exposed"], "allow", "read freely"),
        (&["careless"], "ask", "ask before anything destructive"),
        (&["gentle"], "allow", ""),
        (&["gentle", "--exposed"], "ask", "ask before private data can leave"),
        (&["deploy"], "ask", "the tool asks"),
    ] {
        let mut command = vec!["policy", "check", "--json"];
        command.extend(args);
        let check = rig.run(&command).expect(0).json();
        let decided: Vec<&str> =
            check["by"].as_array().expect("a list").iter().filter_map(|by| by.as_str()).collect();
        assert_eq!((check["ruling"].as_str(), decided.join(" + ").as_str()), (Some(ruling), by), "{args:?}");
    }
    let printed = rig.run(&["init", "--policy", "--print"]).expect(0);
    assert!(printed.stdout.starts_with("# The policy") && !printed.stdout.contains("[tools."), "{printed}");
}

#[test]
fn a_policy_is_set_with_and_without_an_owner_and_broken_ones_are_told() {
    let rig = Rig::with("");
    assert!(rig.run(&["policy"]).expect(0).stdout.contains("no policy"), "nothing was set");
    rig.write(
        "rules.json",
        json!({"rules": [{"name": "no echo", "ruling": "deny", "when": {"tool": "get_current_time"}}]})
            .to_string(),
    );
    let set = rig.run(&["policy", "set", "rules.json", "--json"]).expect(0).json();
    assert_eq!((&set["version"], &set["by"]), (&json!(1), &json!("local")));
    rig.run(&["policy", "set", "rules.json", "--version", "7"]).expect(4);
    rig.write("wrong.json", "{\"rules\": [], \"more\": 1}");
    rig.run(&["policy", "set", "wrong.json"]).expect(2);
    rig.run(&["policy", "check", "eco"]).expect(4);
    let history = rig.run(&["policy", "history", "--json"]).expect(0).json();
    assert_eq!(history["items"].as_array().map(Vec::len), Some(1), "{history}");

    rig.write("windlass.toml", "[[policy.rules]]\nname = \"x\"\nruling = \"block\"\n");
    let shown = rig.run(&["policy"]).expect(0);
    assert!(
        shown.stdout.contains("every call is denied") && shown.stdout.contains("rules[0].ruling"),
        "{shown}"
    );
    let doctor = rig.run(&["doctor", "--json"]).expect(6).json();
    assert!(
        doctor["facts"]["policy"].as_str().is_some_and(|told| told.contains("rules[0].ruling")),
        "{doctor}"
    );
    assert_eq!(
        rig.run(&["policy", "check", "get_current_time", "--json"]).expect(0).json()["ruling"],
        "deny"
    );
}
