//! `read_file` as a model reads: pages, tables, logs, images, and what is no text; and `read_artifact` in its four ways.

use super::Rig;
use serde_json::{Value, json};

#[tokio::test]
async fn text_is_numbered_and_says_how_to_read_on() {
    let rig = Rig::new().await;
    rig.put("a.txt", "one\ntwo\nthree\n");
    let read = rig.call("read_file", json!({ "path": "a.txt", "limit": 2 })).await;
    let facts = read.value();
    assert_eq!((&facts["from"], &facts["to"], &facts["total_lines"]), (&json!(1), &json!(2), &json!(3)));
    assert_eq!(facts["next_offset"], 3);
    assert!(read.text().ends_with("     1\tone\n     2\ttwo\n"), "{}", read.text());
    let rest = rig.call("read_file", json!({ "path": "a.txt", "offset": 3 })).await;
    assert!(rest.text().ends_with("     3\tthree\n") && rest.value().get("next_offset").is_none());
    let last = rig.call("read_file", json!({ "path": "a.txt", "offset": -1 })).await;
    assert!(last.text().ends_with("     3\tthree\n"));
    let none = rig.value("read_file", json!({ "path": "a.txt", "offset": 9 })).await;
    assert_eq!(none["note"], "there is no such line: the file has 3");
    rig.put("empty", "");
    assert_eq!(rig.value("read_file", json!({ "path": "empty" })).await["note"], "the file is empty");
    let missing = rig.call("read_file", json!({ "path": "a.tx" })).await;
    assert_eq!(missing.error(), "there is no file \"a.tx\"; did you mean a.txt?");
    assert_eq!(missing.code(), "not_found");
    assert!(rig.call("read_file", json!({ "path": "." })).await.error().contains("name a file"));
}

#[tokio::test]
async fn a_long_file_is_read_in_pages_that_add_up_and_are_never_cut() {
    let rig = Rig::new().await;
    let text: String = (0..12_000).map(|n| format!("line {n} with some words in it\n")).collect();
    rig.put("long.txt", &text);
    let (mut offset, mut read, mut pages) = (Some(json!(1)), String::new(), 0);
    while let Some(next) = offset {
        let page = rig.call("read_file", json!({ "path": "long.txt", "offset": next })).await;
        let shown = page.text();
        assert!(shown.len() <= 50 << 10 && shown.lines().count() <= 2_000 && !shown.contains("truncated"));
        let lines = shown.lines().filter_map(|line| line.split_once('\t'));
        lines.for_each(|(_, line)| read.extend([line, "\n"]));
        offset = page.value().get("next_offset").cloned();
        pages += 1;
    }
    assert_eq!(read, text);
    assert!((6..20).contains(&pages), "{pages}");
}

#[tokio::test]
async fn logs_are_read_from_the_end_and_tables_repeat_their_header() {
    let rig = Rig::new().await;
    rig.put("app.log", (1..=5_000).map(|n| format!("event {n}\n")).collect::<String>());
    let end = rig.call("read_file", json!({ "path": "app.log", "limit": 3 })).await;
    assert!(
        end.text().ends_with("  4998\tevent 4998\n  4999\tevent 4999\n  5000\tevent 5000\n"),
        "{}",
        end.text()
    );
    let note = end.value()["note"].as_str().unwrap().to_string();
    assert_eq!(note, "the end of the log is shown; for earlier lines use offset 4995");
    let start = rig.call("read_file", json!({ "path": "app.log", "offset": 1, "limit": 1 })).await;
    assert!(start.text().ends_with("     1\tevent 1\n"));
    rig.put("t.csv", "name,age\nann,1\nbob,2\ncid,3\n");
    let row = rig.call("read_file", json!({ "path": "t.csv", "offset": 3, "limit": 1 })).await;
    assert!(row.text().ends_with("     1\tname,age\n     3\tbob,2\n"), "{}", row.text());
}

#[tokio::test]
async fn what_is_no_text_is_shown_as_facts_and_images_as_images() {
    let rig = Rig::new().await;
    rig.put("data.bin", [0, 1, 2]);
    let binary = rig.value("read_file", json!({ "path": "data.bin" })).await;
    assert_eq!((&binary["kind"], &binary["bytes"]), (&json!("binary"), &json!(3)));
    assert!(binary["hash"].is_string());
    rig.put("pixel.png", b"\x89PNG\r\n\x1a\nrest");
    let image = rig.call("read_file", json!({ "path": "pixel.png" })).await;
    let view = image.view();
    assert_eq!(view["outcome"]["value"]["media_type"], "image/png");
    let parts = view["model"]["parts"].as_array().unwrap();
    assert!(parts.iter().any(|part| part["type"] == "image"), "{view:#}");
    rig.put("latin.txt", b"caf\xe9 and a good deal of other text that is plain\n");
    assert_eq!(rig.value("read_file", json!({ "path": "latin.txt" })).await["lossy"], true);
    rig.put("bom.txt", "\u{feff}first\r\nsecond\r\n");
    let marked = rig.call("read_file", json!({ "path": "bom.txt" })).await;
    assert!(marked.text().ends_with("     1\tfirst\n     2\tsecond\n"), "{:?}", marked.text());
    let stat = rig.value("stat_file", json!({ "path": "bom.txt" })).await;
    assert_eq!(stat["hash"], marked.value()["hash"], "the hash is of the whole content");
}

#[tokio::test]
async fn an_artifact_is_read_by_bytes_lines_search_and_pointer() {
    let rig = Rig::new().await;
    let items: Vec<Value> = (0..9_000).map(|n| json!({ "name": format!("item {n}"), "n": n })).collect();
    let long = rig.call("echo", json!({ "message": json!({ "items": items }).to_string() })).await;
    let view = long.view();
    let cut = view["model"]["parts"].as_array().unwrap().last().unwrap().clone();
    let text =
        cut["text"].as_str().map_or_else(|| cut["value"].clone(), |text| serde_json::from_str(text).unwrap());
    let id = text["artifact"].as_str().unwrap_or_else(|| panic!("an artifact: {cut:#}"));
    let pointed =
        rig.value("read_artifact", json!({ "artifact": id, "pointer": "/echoed", "limit": 30 })).await;
    assert_eq!(pointed["text"], r#"{"items":[{"n":0,"name":"item "#);
    assert_eq!(pointed["next_offset"], 30);
    let nowhere = rig.call("read_artifact", json!({ "artifact": id, "pointer": "/none" })).await;
    assert!(nowhere.error().contains("an object with 2 fields"), "{}", nowhere.error());
    let found = rig.value("read_artifact", json!({ "artifact": id, "search": "item 8999" })).await;
    assert!(found["text"].as_str().unwrap().starts_with("0: "), "{found}");
    let line = rig.value("read_artifact", json!({ "artifact": id, "line": 1, "limit": 12 })).await;
    assert_eq!(line["text"], r#"{"echoed":"{"#);
    assert!(
        rig.call("read_artifact", json!({ "artifact": id, "line": 2 }))
            .await
            .error()
            .contains("ends with line 1")
    );
    let both = json!({ "artifact": id, "line": 1, "search": "x" });
    assert!(rig.call("read_artifact", both).await.error().contains("one of"));
}
