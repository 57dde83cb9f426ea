//! `windlass grants`: a token by which a call runs, within its conditions, as often as it says, until it is revoked.

use crate::rig::{Rig, kill, text, until};
use serde_json::json;

#[test]
fn grants_are_issued_used_narrowed_listed_and_revoked() {
    let rig = Rig::new();
    rig.run(&["call", "echo", r#"{"message": "hi"}"#, "--session", "s"]).expect(0);
    let alone = rig.run(&["grants", "issue", "echo", "--session", "s"]).expect(2);
    assert!(alone.stderr.contains("windlass serve"), "{alone}");
    let socket = rig.path(".windlass").join("control.sock");
    let server = rig.start(&["serve", "--listen", "127.0.0.1:0"]);
    until("the server is there", || socket.exists());
    let condition = r#"{"pointer": "/message", "prefix": "h"}"#;
    let issue = ["grants", "issue", "echo", "--session", "s", "--uses", "3", "--where", condition];
    let issued = rig.run(&issue).expect(0);
    let token = issued.stdout.trim();
    assert!(token.starts_with("grant_") && issued.stderr.contains("only once"), "{issued}");
    let call = |key: &str, token: &str, message: &str| {
        let calls = json!([{"id": "c", "tool": "echo", "args": {"message": message}, "grant": token}]);
        let batch = json!({"key": key, "calls": calls}).to_string();
        rig.run_on(&["run", "-", "--session", "s", "--json"], batch)
    };
    assert_eq!(call("1", token, "hello").expect(0).states(), ["c succeeded"]);
    assert_eq!(call("2", token, "bye").expect(1).states(), ["c denied"]);
    let listed = rig.run(&["grants", "ls", "--session", "s", "--json"]).expect(0);
    assert!(!listed.stdout.contains(token), "{listed}");
    let id = text(&listed.json()["items"][0]["id"]);
    rig.run(&["grants", "attenuate", &id[..8], "--uses", "9"]).expect(4);
    let copy = rig.run(&["grants", "attenuate", &id[..8], "--uses", "1", "--json"]).expect(0).json();
    assert_eq!(copy["parent"], json!(id));
    let copied = text(&copy["token"]);
    assert_eq!(call("3", &copied, "hello").expect(0).states(), ["c succeeded"]);
    assert_eq!(call("4", &copied, "hello").expect(1).states(), ["c denied"]);
    let table = rig.run(&["grants", "ls"]).expect(0);
    assert!(table.stdout.contains("used_up") && table.stdout.contains("active"), "{table}");
    rig.run(&["grants", "revoke", &id]).expect(0);
    let denied = call("5", token, "hello").expect(1);
    assert!(denied.stdout.contains("was revoked"), "{denied}");
    kill(server);
    // What was revoked stays revoked, and is listed without a server.
    let listed = rig.run(&["grants", "ls", "--json"]).expect(0).json();
    let states: Vec<String> =
        listed["items"].as_array().expect("items").iter().map(|item| text(&item["state"])).collect();
    assert_eq!(states, ["revoked", "revoked"]);
}
