//! `windlass backup` of folders with and without an owner, and what becomes of the copies.

use crate::copies::{self, ADD, commands, listed, orphan_commands};
use crate::rig::{Rig, kill, text, until};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Answers that are stored beside the journal.
const LONG: &str = "[tools.long]\ncommand = [\"seq\", \"1\", \"60000\"]\nclass = \"read\"\n";

#[test]
fn a_backup_of_an_idle_folder_is_its_original() {
    let rig = Rig::with(LONG);
    let batch = r#"{"key": "k", "calls": [{"id": "sum", "tool": "add", "args": {"a": 1, "b": 2}},
                    {"id": "long", "tool": "long"}, {"id": "wrong", "tool": "add", "args": {}}]}"#;
    let answer = rig.write("batch.json", batch).run(&["run", "batch.json", "--json"]).expect(1).json();
    std::fs::create_dir_all(rig.path(".windlass/files/default/notes")).expect("it is ours");
    rig.write(".windlass/files/default/notes/today.txt", "milk").write(".windlass/token", "secret");
    let made = rig.run(&["backup", "copy", "--json"]).expect(0).json();
    assert_eq!((made["sessions"].as_u64(), made["files"].as_u64()), (Some(1), Some(2)), "{made}");
    assert!(made["entries"].as_u64() > Some(5) && made["bytes"].as_u64() > Some(100_000), "{made}");
    assert_eq!(made["left_out"], serde_json::json!([]));
    for args in [&["calls", "--json"][..], &["sessions", "--json"]] {
        let shown = |data: &str| rig.run(&[&["--data", data], args].concat()).expect(0).stdout;
        assert_eq!(shown("copy"), shown(".windlass"), "{args:?}");
    }
    for name in ["files/default/notes/today.txt", "token"] {
        let read = |data: &str| std::fs::read(rig.path(data).join(name)).expect("it is there");
        assert_eq!(read("copy"), read(".windlass"), "{name}");
    }
    // The copy is started, and has the artifact.
    let parts = answer["calls"][1]["model"]["parts"].as_array().expect("parts");
    let how: Value = serde_json::from_str(&text(&parts.last().expect("a part")["text"])).expect("JSON");
    let args = format!(r#"{{"artifact": {}, "offset": 200000}}"#, how["artifact"]);
    let read = |data: &str| rig.run(&["--data", data, "call", "read_artifact", &args]).expect(0).stdout;
    let (copied, original) = (read("copy"), read(".windlass"));
    assert!(copied.len() > 1_000, "{copied}");
    assert_eq!(copied, original);
}

#[test]
fn a_backup_of_a_busy_folder_leaves_its_owner_alone_and_starts_as_a_copy() {
    let rig = copies::rig();
    let server = copies::start(&rig);
    let acknowledged: Vec<String> = (0..5).map(|n| format!("acked{n}")).collect();
    for id in &acknowledged {
        rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#, "--id", id, "--session", "acked"]).expect(0);
    }
    let made = rig.run(&["backup", "copied"]).expect(0);
    assert!(made.stdout.contains("complete and verified: everything acknowledged before"), "{made}");
    let doctor = rig.run(&["--data", "copied", "doctor"]).expect(0).stdout;
    assert!(doctor.contains("confirm --original-gone") && doctor.contains("taken at 20"), "{doctor}");
    let first = rig.run(&ADD).expect(0);
    assert!(first.stderr.contains("3 calls that were under way"), "{first}");
    assert!(first.stderr.contains("1 parked calls wait on, 1 schedules are disabled"), "{first}");
    let judged = ["parked awaiting_completion", "queued unknown", "reads unknown", "runs unknown"];
    assert_eq!(listed(&rig, "copied"), judged);
    let kept = rig.run(&["--data", "copied", "calls", "--session", "acked", "--json"]).expect(0).json();
    let kept = kept["items"].as_array().expect("items");
    for id in &acknowledged {
        assert!(kept.iter().any(|call| call["id"] == **id && call["state"] == "succeeded"), "{id}: {kept:?}");
    }
    let doctor = rig.run(&["--data", "copied", "doctor"]).expect(0).stdout;
    assert!(doctor.lines().any(|line| line.split_whitespace().eq(["copy", "no"])), "{doctor}");
    assert!(!doctor.lines().any(|line| line.starts_with("backup ")), "{doctor}");
    // The original goes on as if nothing had been.
    assert!(commands(&rig) >= 2, "a command of the original was ended");
    assert_eq!(rig.lines("held").len(), 2, "something ran again");
    rig.write("go", "");
    until("the original ends its calls", || {
        listed(&rig, ".windlass")
            == ["parked awaiting_completion", "queued succeeded", "reads succeeded", "runs succeeded"]
    });
    kill(server);
}

#[test]
fn a_backup_whose_original_is_gone_is_started_as_after_a_crash() {
    let rig = copies::rig();
    let server = copies::start(&rig);
    rig.run(&["backup", "copied"]).expect(0);
    orphan_commands(&rig, server);
    rig.run(&["--data", "copied", "confirm", "--original-gone"]).expect(0);
    let mut again = rig.start(&["--data", "copied", "serve", "--listen", "127.0.0.1:0"]);
    let mut said = BufReader::new(again.stdout.take().expect("a pipe")).lines();
    said.next().expect("it greets").expect("readable");
    rig.write("go", "");
    let ended = ["parked awaiting_completion", "queued succeeded", "reads succeeded", "runs unknown"];
    until("the class of each decides", || listed(&rig, "copied") == ended);
    kill(again);
}

#[test]
fn backups_that_cannot_be_made_say_what_to_do_and_leave_nothing() {
    let rig = Rig::new();
    let nothing = rig.run(&["backup", "copy"]).expect(6);
    assert!(nothing.stderr.contains("there is no store; name the data folder with --data"), "{nothing}");
    assert!(!rig.path(".windlass").exists(), "it made a folder to back up");
    rig.run(&["call", "add", r#"{"a": 1, "b": 2}"#]).expect(0);
    std::fs::create_dir(rig.path("full")).expect("it is ours");
    rig.write("full/x", "x");
    for (args, told) in [
        (&["backup", "full"][..], "it is not empty, and a backup replaces nothing"),
        (&["backup", ".windlass/copy"], "it is inside the data folder"),
        (&["backup", "no/copy"], "create that first"),
        (&["backup", "copy", "--rate", "0"], "such as 20MiB"),
        (&["backup", "copy", "--server", "http://127.0.0.1:1"], "leave out --server"),
        (&["backup"], "<DIR>"),
    ] {
        let ran = rig.run(args).expect(2);
        assert!(ran.stderr.contains(told), "{args:?}: {ran}");
    }
    flip_last_entry(&rig.database());
    let damaged = rig.run(&["backup", "copy"]).expect(6);
    assert!(damaged.stderr.contains("the data folder is damaged"), "{damaged}");
    assert!(!rig.path("copy").exists() && !rig.path(".copy.unfinished").exists());
}

/// Changes a byte of the journal that no index covers.
fn flip_last_entry(database: &Path) {
    let mut bytes = std::fs::read(database).expect("it is there");
    let at =
        bytes.windows(3).rposition(|window| window == b"add").expect("the tool's name is in the journal");
    bytes[at] ^= 1;
    std::fs::write(database, bytes).expect("it is ours");
}
