//! `grep_files`: what ripgrep finds, in pages.

use super::Rig;
use serde_json::json;

async fn found(rig: &Rig, args: serde_json::Value) -> Vec<String> {
    let called = rig.call("grep_files", args).await;
    called.value();
    called.text().lines().skip(1).map(str::to_string).collect()
}

#[tokio::test]
async fn lines_are_found_by_pattern_folder_and_glob() {
    let rig = Rig::new().await;
    rig.put("src/main.rs", "fn main() {\n    run();\n}\n");
    rig.put("src/run.rs", "pub fn run() {}\n");
    rig.put("doc/run.md", "# Run\nrun it\n");
    rig.put("target/out.rs", "fn run() {}\n");
    rig.put(".hidden/run.rs", "run\n");
    rig.put(".gitignore", "target/\n");
    rig.put("bin.dat", b"run\0run");
    assert_eq!(
        found(&rig, json!({ "pattern": r"\brun\(" })).await,
        ["src/main.rs:2:    run();", "src/run.rs:1:pub fn run() {}"]
    );
    assert_eq!(found(&rig, json!({ "pattern": "run", "glob": "*.md" })).await, ["doc/run.md:2:run it"]);
    assert_eq!(
        found(&rig, json!({ "pattern": "RUN", "path": "./doc/", "ignore_case": true })).await.len(),
        2
    );
    assert_eq!(
        found(&rig, json!({ "pattern": "run", "path": "src/run.rs" })).await,
        ["src/run.rs:1:pub fn run() {}"]
    );
    let all = found(&rig, json!({ "pattern": "^fn run|^run$", "all": true })).await;
    assert_eq!(all, [".hidden/run.rs:1:run", "target/out.rs:1:fn run() {}"]);
    let around = found(&rig, json!({ "pattern": "run\\(\\);", "context": 1 })).await;
    assert_eq!(around, ["src/main.rs-1-fn main() {", "src/main.rs:2:    run();", "src/main.rs-3-}"]);
    let none = rig.value("grep_files", json!({ "pattern": "nothing" })).await;
    assert!(none["note"].as_str().unwrap().contains("all: true"), "{none}");
    let bad = rig.call("grep_files", json!({ "pattern": "(" })).await.error();
    assert!(bad.contains("not a regular expression"), "{bad}");
    assert!(
        rig.call("grep_files", json!({ "pattern": "x", "path": "sr" }))
            .await
            .error()
            .contains("did you mean src?")
    );
}

#[tokio::test]
async fn many_matches_come_in_pages_that_add_up() {
    let rig = Rig::new().await;
    for file in 0..30 {
        rig.put(
            &format!("d{}/f{file:02}.txt", file % 3),
            (0..25).map(|n| format!("hit {file} {n}\nmiss\n")).collect::<String>(),
        );
    }
    let (mut offset, mut lines) = (json!(0), Vec::new());
    loop {
        let page = rig.call("grep_files", json!({ "pattern": "hit", "offset": offset })).await;
        let shown: Vec<String> = page.text().lines().skip(1).map(str::to_string).collect();
        assert!(shown.len() <= 200);
        lines.extend(shown);
        match page.value().get("next_offset") {
            Some(next) => offset = next.clone(),
            None => break,
        }
    }
    assert_eq!(lines.len(), 30 * 25);
    let mut unique = lines.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), lines.len());
    rig.put("wide.txt", format!("{}needle{}", "ä".repeat(50_000), "x".repeat(50_000)));
    let wide = found(&rig, json!({ "pattern": "needle" })).await;
    assert!(wide[0].len() < 700 && wide[0].contains("ä…needle".replace('…', "").as_str()), "{}", wide[0]);
}
