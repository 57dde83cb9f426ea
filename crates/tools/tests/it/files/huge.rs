//! Files of a gigabyte, lines of a gigabyte, bytes that are no text, folders of any depth: bounded memory and time.

use super::{Rig, peak_kib};
use serde_json::{Value, json};
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

const GIB: u64 = 1 << 30;

/// How many bytes this process has read, from any file.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
    line.parse().unwrap()
}

/// A file of a gigabyte that takes no space, with these words at its end.
fn sparse(rig: &Rig, name: &str, head: &str, tail: &str) {
    rig.put(name, head);
    let mut file = std::fs::OpenOptions::new().write(true).open(rig.inside(name)).unwrap();
    file.seek(SeekFrom::Start(GIB - tail.len() as u64)).unwrap();
    file.write_all(tail.as_bytes()).unwrap();
}

async fn timed(rig: &Rig, tool: &str, args: Value) -> (super::Called, Duration) {
    let began = Instant::now();
    let called = rig.call(tool, args).await;
    (called, began.elapsed())
}

/// In a process of its own: other tests use memory too.
#[test]
fn a_gigabyte_is_read_at_its_end_in_constant_time_and_memory() {
    const ALONE: &str = "WINDLASS_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return threads.block_on(read_a_gigabyte());
    }
    let name = "files::huge::a_gigabyte_is_read_at_its_end_in_constant_time_and_memory";
    let mut own = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = own.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let told = [ended.stdout, ended.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
}

async fn read_a_gigabyte() {
    let rig = Rig::new().await;
    let head = "first line, long enough to look like text for some kilobytes\n".repeat(200);
    sparse(&rig, "big.log", &head, "\nlast but one\nlast\n");
    let before = peak_kib();
    let read_before = bytes_read();
    let end = rig.call("read_file", json!({ "path": "big.log", "limit": 2 })).await;
    let stat = rig.value("stat_file", json!({ "path": "big.log" })).await;
    let read = bytes_read() - read_before;
    assert!(read < 1 << 20, "{read} bytes were read: its time grows with the file");
    assert!(end.text().ends_with("    -2\tlast but one\n    -1\tlast\n"), "{}", end.text());
    for facts in [end.value(), stat] {
        assert!(["hash", "lines", "total_lines"].iter().all(|fact| facts.get(fact).is_none()), "{facts}");
    }
    let (start, _) = timed(&rig, "read_file", json!({ "path": "big.log", "offset": 2, "limit": 1 })).await;
    assert!(start.text().contains("     2\tfirst line"), "{}", start.text());
    // The line of nearly a gigabyte in the middle is shown by its beginning.
    let (middle, took) = timed(&rig, "read_file", json!({ "path": "big.log", "offset": 201 })).await;
    assert!(
        middle.text().len() < 60 << 10 && middle.value().get("next_column").is_some(),
        "{}",
        middle.value()
    );
    assert!(took < Duration::from_secs(60), "{took:?}");
    let far = rig.call("read_file", json!({ "path": "big.log", "offset": -900 })).await;
    assert_eq!(far.code(), "too_far");
    for (tool, args) in [
        ("grep_files", json!({ "pattern": "last" })),
        (
            "edit_file",
            json!({ "path": "big.log", "expected_hash": "0".repeat(32), "old_text": "a", "new_text": "b" }),
        ),
    ] {
        let (_, took) = timed(&rig, tool, args).await;
        assert!(took < Duration::from_secs(60), "{tool}: {took:?}");
    }
    let grown = peak_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB more");
}

#[tokio::test]
async fn deep_and_wide_folders_are_bounded() {
    let rig = Rig::new().await;
    // Deeper than a path may be long.
    let mut at = rig.inside("");
    for _ in 0..200 {
        at = at.join("deeper");
        std::fs::create_dir(&at).unwrap();
    }
    std::fs::write(at.join("bottom.txt"), "needle").unwrap();
    let found = rig.value("grep_files", json!({ "pattern": "needle" })).await;
    assert_eq!(found["matches"], 0, "deeper than files can be named");
    for n in 0..3_000 {
        std::fs::write(rig.inside(&format!("file-{n}")), b"\xfd\xfc\xfb text\n").unwrap();
    }
    let listed = rig.value("list_directory", json!({})).await;
    assert_eq!(
        (listed["total"].as_u64(), listed["entries"].as_array().map(Vec::len)),
        (Some(3_001), Some(200))
    );
    assert_eq!(
        rig.value("delete_file", json!({ "path": "deeper", "recursive": true })).await["deleted"],
        true
    );
    let found = rig.value("grep_files", json!({ "pattern": "text" })).await;
    assert_eq!((&found["matches"], &found["next_offset"]), (&json!(200), &json!(200)));
}
