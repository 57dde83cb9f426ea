//! A command that writes a gigabyte: kept whole, told by its ends, read piece by piece, in bounded memory.

use crate::rig::{Ran, Rig, finish, text, until};
use serde_json::Value;

/// How many bytes the command writes; set it lower where the disk is slow.
const SIZE: &str = "WINDLASS_TEST_FLOOD_BYTES";
/// The memory limit for a large output (SPEC §15), beside what the program uses for a small one.
const MEMORY_KIB_MAX: u64 = 64 << 10;
/// The number on the first line.
const FIRST: u64 = 100_000_000;

#[test]
fn a_flood_is_kept_and_memory_stays_bounded() {
    let bytes: u64 = std::env::var(SIZE).map_or(1 << 30, |bytes| bytes.parse().expect("a number"));
    // Each line is a number of nine digits, so every piece says where it is from.
    let (lines, bytes) = (bytes / 10, bytes / 10 * 10);
    let last = FIRST + lines - 1;
    // On a busy machine a gigabyte takes longer than an attempt usually may.
    let rig = Rig::with(&format!(
        "[tools.flood]\ncommand = [\"seq\", \"{FIRST}\", \"{last}\"]\ntimeout_ms = 300000\n\
         [tools.drop]\ncommand = [\"seq\", \"1\"]\n"
    ));
    let (_, before) = watched(&rig, "drop");
    let (ran, peak) = watched(&rig, "flood");
    let cost = peak.saturating_sub(before);
    assert!(before > 0 && cost <= MEMORY_KIB_MAX, "{bytes} bytes of output cost {cost} KiB");

    let json = ran.json();
    assert_eq!(json["outcome"]["kept"]["bytes"], bytes);
    let parts: Vec<String> =
        json["model"]["parts"].as_array().expect("parts").iter().map(|part| text(&part["text"])).collect();
    assert!(parts[0].starts_with("100000000\n100000001\n"), "the head is shown");
    let shown: usize = parts.iter().map(String::len).sum();
    assert!(shown <= 50 << 10, "{shown} bytes are told");
    let told = parts.join("\n");
    assert!(told.contains(&format!("{last}\n")), "the tail is shown");
    let how: Value = serde_json::from_str(parts.last().expect("a part")).expect("how to read on is JSON");
    assert_eq!((&how["truncated"], &how["total"]), (&true.into(), &bytes.into()));

    let middle = lines / 2;
    let read = format!(r#"{{"artifact": {}, "offset": {}, "limit": 20}}"#, how["artifact"], middle * 10);
    let read = rig.run(&["call", "read_artifact", &read]).expect(0).json();
    assert_eq!(text(&read["text"]), format!("{}\n{}\n", FIRST + middle, FIRST + middle + 1));
    assert_eq!(read["next_offset"], middle * 10 + 20);
    // Reading on at the offset that the answer named follows on what it showed.
    let next = how["next_offset"].as_u64().expect("an offset");
    let rest = format!(r#"{{"artifact": {}, "offset": {next}, "limit": 10}}"#, how["artifact"]);
    let rest = rig.run(&["call", "read_artifact", &rest]).expect(0).json();
    assert_eq!(text(&rest["text"]), format!("{}\n", FIRST + next / 10));
}

/// Calls a tool, and watches how much memory that takes at most, in KiB.
fn watched(rig: &Rig, tool: &str) -> (Ran, u64) {
    let child = rig.start(&["call", tool, "--json"]);
    let status = format!("/proc/{}/status", child.id());
    let watching = std::thread::spawn(move || {
        let mut peak = 0;
        until("windlass ends", || match peak_kib(&status) {
            Some(kib) => {
                peak = kib;
                false
            }
            None => true,
        });
        peak
    });
    let ran = finish(child).expect(0);
    (ran, watching.join().expect("it was watched"))
}

fn peak_kib(status: &str) -> Option<u64> {
    let status = std::fs::read_to_string(status).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
