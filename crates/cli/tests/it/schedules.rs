//! Schedules from a terminal: made at the owner, listed with and without one.

use crate::rig::{Rig, kill, text, until};

const TOOLS: &str = r#"
[tools.build]
description = "Builds"
command = ["true"]
class = "keyed"
background = true
claims = []
"#;

#[test]
fn schedules_are_added_listed_switched_and_removed() {
    let rig = Rig::with(TOOLS);
    let add = [
        "schedules",
        "add",
        "build",
        "--cron",
        "0 9 * * MON-FRI",
        "--zone",
        "Europe/Berlin",
        "--id",
        "morning",
    ];
    let preview =
        rig.run(&["schedules", "preview", "--cron", "0 9 * * *", "--zone", "Asia/Kolkata", "--limit", "2"]);
    let preview = preview.expect(0).stdout;
    assert_eq!(preview.matches("T09:00:00+05:30").count(), 2, "{preview}");
    let wrong = rig.run(&["schedules", "preview", "--cron", "0 25 * * *"]).expect(2);
    assert!(wrong.stderr.contains("no value from 0 to 23"), "{}", wrong.stderr);
    let owner = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("it is served", || {
        rig.path(".windlass/control.sock").exists() && rig.run(&["sessions"]).code == Some(0)
    });
    let made = rig.run(&[&add[..], &["--json"]].concat()).expect(0).json();
    assert_eq!((text(&made["id"]), &made["enabled"]), ("morning".to_string(), &true.into()));
    let monitors = rig.run(&["tasks", "--json"]).expect(0).json();
    assert_eq!(text(&monitors["items"][0]["kind"]), "monitor");
    let off = rig.run(&["schedules", "disable", "mor", "--json"]).expect(0).json();
    assert_eq!(off["enabled"], false);
    rig.run(&["schedules", "enable", "morning"]).expect(0);
    kill(owner);
    let listed = rig.run(&["schedules", "list"]).expect(0).stdout;
    assert!(listed.contains("morning") && listed.contains("0 9 * * MON-FRI"), "{listed}");
    let refused = rig.run(&["schedules", "remove", "morning"]).expect(2);
    assert!(refused.stderr.contains("start `windlass serve` first"), "{}", refused.stderr);
}
