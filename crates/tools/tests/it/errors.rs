//! The errors of the built-in tools as a model reads them, to be read by a person when they change.

use crate::files::Rig;
use crate::sandbox::{SandboxStage, backends};
use serde_json::{Value, json};
use windlass_tools::sandbox::SandboxProfile;

/// Mistakes with files, of which one is text with this hash and one is not.
fn with_files(hash: &Value, binary: &Value) -> Vec<(&'static str, Value)> {
    let other = "0".repeat(32);
    let edit = |hash: &Value, old: &str| json!({ "path": "src/main.rs", "expected_hash": hash, "old_text": old, "new_text": "x" });
    vec![
        ("read_file", json!({ "path": "src/mian.rs" })),
        ("read_file", json!({ "path": "nowhere/at/all.rs" })),
        ("read_file", json!({ "path": "/etc/passwd" })),
        ("read_file", json!({ "path": "../secret" })),
        ("read_file", json!({ "path": "." })),
        ("read_file", json!({ "path": "src" })),
        ("read_file", json!({ "path": "link" })),
        ("read_file", json!({ "path": "a\\b" })),
        ("write_file", json!({ "path": "src", "content": "x" })),
        ("write_file", json!({ "path": "link", "content": "x" })),
        ("write_file", json!({ "path": "src/main.rs/x", "content": "x" })),
        ("write_file", json!({ "path": "src/main.rs", "content": "x", "expected_hash": "absent" })),
        ("write_file", json!({ "path": "src/main.rs", "content": "x", "expected_hash": other })),
        ("write_file", json!({ "path": "src/new.rs", "content": "x", "expected_hash": other })),
        ("write_file", json!({ "path": "src/main.rs", "content": "x", "expected_hash": "1234" })),
        ("write_file", json!({ "path": "x.bin", "content": "%%%", "encoding": "base64" })),
        ("write_file", json!({ "path": "x.bin" })),
        ("edit_file", edit(&json!(other), "go();")),
        ("edit_file", edit(&json!(other), "fn main")),
        ("edit_file", edit(hash, "go();")),
        ("edit_file", edit(hash, "stop();")),
        ("edit_file", edit(hash, "fn main() {\n\tgo();")),
        ("edit_file", edit(&json!("absent"), "x")),
        ("edit_file", json!({ "path": "src/main.rs", "expected_hash": hash })),
        (
            "edit_file",
            json!({ "path": "data.bin", "expected_hash": binary, "old_text": "a", "new_text": "b" }),
        ),
        ("delete_file", json!({ "path": "folder" })),
        ("delete_file", json!({ "path": "src/main.rs", "expected_hash": other })),
        ("delete_file", json!({ "path": "." })),
        ("list_directory", json!({ "path": "src/main.rs" })),
        ("grep_files", json!({ "pattern": "fn (" })),
        ("grep_files", json!({ "pattern": "fn", "glob": "[" })),
        ("grep_files", json!({ "pattern": "fn", "path": "scr" })),
    ]
}

/// Mistakes with everything else.
fn with_others(artifact: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("read_artifact", json!({ "artifact": "x" })),
        ("read_artifact", json!({ "artifact": "75t2qe9yk2xbrp5gaabqeppnqa" })),
        ("read_artifact", json!({ "artifact": artifact, "line": 7 })),
        ("read_artifact", json!({ "artifact": artifact, "pointer": "/none" })),
        ("read_artifact", json!({ "artifact": artifact, "pointer": "none" })),
        ("read_artifact", json!({ "artifact": artifact, "line": 1, "search": "x" })),
        ("web_fetch", json!({ "url": "example.com" })),
        ("web_fetch", json!({ "url": "ftp://example.com/" })),
        ("web_fetch", json!({ "url": "https://ann:secret@example.com/" })),
        ("web_fetch", json!({ "url": "http://127.0.0.1:7420/v1/sessions" })),
        ("divide", json!({ "a": 1, "b": 0 })),
        ("multiply", json!({ "a": 1e308, "b": 10 })),
        ("get_current_time", json!({ "timezone": "Europe/Berlinn" })),
        ("get_current_time", json!({ "format": "iso" })),
        ("write_todos", json!({ "todos": [{ "content": "", "status": "done" }] })),
        ("report_progress", json!({ "status": "going", "summary": "x" })),
        ("create_schedule", json!({ "tool": "echo" })),
        ("create_schedule", json!({ "tool": "echo", "cron": "every day" })),
        ("create_schedule", json!({ "tool": "ehco", "cron": "0 9 * * 1" })),
        ("kv_set", json!({ "key": "", "value": 1 })),
        ("sleep", json!({ "ms": -1 })),
    ]
}

/// Each mistake, and the answer to it.
#[tokio::test]
async fn errors_as_models_read_them() {
    let rig = Rig::new().await;
    rig.put("src/main.rs", "fn main() {\n    go();\n    go();\n}\n");
    rig.put("data.bin", [0, 159, 146, 150]);
    rig.put("folder/file.txt", "x");
    std::os::unix::fs::symlink("src/main.rs", rig.inside("link")).expect("a link");
    let hash = rig.value("stat_file", json!({ "path": "src/main.rs" })).await["hash"].clone();
    let binary = rig.value("stat_file", json!({ "path": "data.bin" })).await["hash"].clone();
    let cut = rig.call("echo", json!({ "message": "word ".repeat(20_000) })).await.text();
    let artifact =
        cut.split("\"artifact\":\"").nth(1).expect("an artifact").chars().take(26).collect::<String>();
    let mistakes = with_files(&hash, &binary).into_iter().chain(with_others(&artifact));
    let mut told = String::new();
    for (tool, args) in mistakes {
        let shown = args.to_string().replace(&artifact, "ARTIFACT");
        let called = rig.call(tool, args).await;
        assert_eq!(called.view()["state"], "failed", "{tool} {shown}: {}", called.text());
        told.push_str(&format!("{tool} {shown}\n  {}\n", called.text().replace(&artifact, "ARTIFACT")));
    }
    insta::assert_snapshot!(told);
}

#[tokio::test]
async fn errors_of_commands_as_models_read_them() {
    let Some(backend) = backends().pop() else { return };
    let stage = SandboxStage::new(backend, SandboxProfile::default());
    let mut told = String::new();
    for args in [
        json!({ "argv": [] }),
        json!({ "argv": [""] }),
        json!({ "argv": "ls -l" }),
        json!({ "argv": ["ls"], "cwd": "../other" }),
        json!({ "argv": ["ls"], "cwd": "/etc" }),
        json!({ "argv": ["nonesuch"] }),
    ] {
        let answer = stage.call("s", "run_command", args.clone()).await;
        assert_eq!(answer["state"], "failed", "{answer:#}");
        told.push_str(&format!(
            "{args}\n  {}\n",
            answer["model"]["parts"][0]["text"].as_str().expect("text")
        ));
    }
    insta::assert_snapshot!(told);
}
