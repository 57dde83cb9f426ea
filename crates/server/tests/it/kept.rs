//! Artifacts and files over HTTP.

use crate::tcp::{Answer, Served};
use serde_json::{Value, json};
use windlass_server::access::TokenScope;

/// Attaches a text, and says under which id it is kept.
async fn attached(served: &Served, text: &str) -> String {
    let calls = json!([{"id": "f", "tool": "file", "args": {"text": text}}]);
    let batch = json!({"key": format!("{} bytes", text.len()), "calls": calls});
    let answer = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let part = &answer["calls"][0]["outcome"]["parts"][0];
    assert_eq!(
        (&part["type"], &part["media_type"], &part["name"]),
        (&json!("file"), &json!("text/csv"), &json!("file.csv"))
    );
    part["artifact"].as_str().expect("an id").to_string()
}

/// Asks for an artifact with these headers.
async fn ask(served: &Served, id: &str, headers: &str) -> Answer {
    let token = &served.token;
    let head = format!("GET /v1/artifacts/{id} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    served.raw(&format!("{head}authorization: Bearer {token}\r\n{headers}\r\n")).await
}

#[tokio::test]
async fn an_artifact_is_read_whole_and_in_ranges() {
    let served = Served::new().await;
    let text = "0123456789".repeat(100_000);
    let id = attached(&served, &text).await;
    let whole = ask(&served, &id, "").await;
    assert_eq!((whole.status, whole.body == text), (200, true));
    for header in [
        "content-type: text/csv",
        "content-length: 1000000",
        "accept-ranges: bytes",
        "x-content-type-options: nosniff",
        "content-disposition: attachment",
        &format!("etag: \"{id}\""),
    ] {
        assert!(whole.head.contains(header), "{header}: {}", whole.head);
    }
    for (range, status, told, body) in [
        ("bytes=0-9", 206, "bytes 0-9/1000000", &text[..10]),
        ("bytes=262140-262150", 206, "bytes 262140-262150/1000000", &text[262_140..=262_150]),
        ("bytes=999995-", 206, "bytes 999995-999999/1000000", "56789"),
        ("bytes=-3", 206, "bytes 999997-999999/1000000", "789"),
        ("bytes=10-2000000", 206, "bytes 10-999999/1000000", &text[10..]),
    ] {
        let part = ask(&served, &id, &format!("range: {range}\r\n")).await;
        assert_eq!((part.status, part.body == body), (status, true), "{range}");
        assert!(part.head.contains(&format!("content-range: {told}")), "{range}: {}", part.head);
    }
    let none = ask(&served, &id, "range: bytes=1000000-\r\n").await;
    assert_eq!(none.told(), (416, "no_such_range".into()));
    assert!(none.head.contains("content-range: bytes */1000000"), "{}", none.head);
    // Several ranges, and a range of something else, are answered whole.
    for headers in ["range: bytes=0-1,3-4\r\n", "range: bytes=0-1\r\nif-range: \"other\"\r\n"] {
        assert_eq!(ask(&served, &id, headers).await.status, 200, "{headers}");
    }
    let meant = ask(&served, &id, &format!("range: bytes=0-1\r\nif-range: \"{id}\"\r\n")).await;
    assert_eq!((meant.status, &*meant.body), (206, "01"));
}

#[tokio::test]
async fn the_log_of_a_running_task_is_tagged_as_one_that_changes() {
    let served = Served::new().await;
    let batch = json!({"key": "k", "wait": "settled", "calls": [{"id": "b", "tool": "build"}]});
    let answer = served.post("/v1/sessions/s/batches", batch).await.expect(200);
    let task = format!("/v1/sessions/s/tasks/{}", answer["calls"][0]["task"].as_str().expect("a task"));
    let log = served.get(&task).await.expect(200)["log_artifact"].as_str().expect("a log").to_string();
    let running = loop {
        let whole = ask(&served, &log, "").await;
        if !whole.body.is_empty() {
            break whole;
        }
    };
    let (weak, strong) = (format!("W/\"{log}\""), format!("\"{log}\""));
    assert!(running.head.contains(&format!("etag: {}", weak.to_lowercase())), "{}", running.head);
    // What was read before may be no part of what it is now: only a range of what never changes is continued.
    for tag in [&weak, &strong] {
        let part = ask(&served, &log, &format!("range: bytes=0-1\r\nif-range: {tag}\r\n")).await;
        assert_eq!(part.status, 200, "{tag}");
    }
    served.go.add_permits(1);
    while served.get(&task).await.expect(200)["state"] != "succeeded" {}
    let part = ask(&served, &log, &format!("range: bytes=0-4\r\nif-range: {strong}\r\n")).await;
    assert_eq!((part.status, &*part.body), (206, "err: "), "{}", part.head);
    assert!(part.head.contains(&format!("etag: {strong}")), "{}", part.head);
}

#[tokio::test]
async fn an_empty_artifact_has_no_ranges() {
    let served = Served::new().await;
    let id = attached(&served, "").await;
    let whole = ask(&served, &id, "").await;
    assert_eq!((whole.status, &*whole.body), (200, ""));
    assert_eq!(ask(&served, &id, "range: bytes=0-\r\n").await.told(), (416, "no_such_range".into()));
    for forged in ["x", "00000000000000000000000000"] {
        assert_eq!(ask(&served, forged, "").await.told(), (404, "not_found".into()), "{forged}");
    }
}

#[tokio::test]
async fn files_are_put_got_listed_and_deleted() {
    let served = Served::new().await;
    let place = "/v1/sessions/s/files";
    let put = async |path: &str, body: &str| {
        let token = &served.token;
        let head = format!("PUT {place}/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        let length = body.len();
        let head = format!("{head}authorization: Bearer {token}\r\ncontent-length: {length}\r\n\r\n{body}");
        served.raw(&head).await
    };
    let long = "0123456789".repeat(60_000);
    let written = put("a/long.txt", &long).await.expect(200);
    assert_eq!((&written["path"], &written["bytes"]), (&json!("a/long.txt"), &json!(600_000)));
    put("b%20c.txt", "no JSON").await.expect(200);
    let read = served.get(&format!("{place}/a/long.txt")).await;
    assert_eq!((read.status, read.body == long), (200, true));
    assert!(read.head.contains("content-type: application/octet-stream"), "{}", read.head);
    assert_eq!(served.get(&format!("{place}/b%20c.txt")).await.body, "no JSON");
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| format!("{} {}", item["kind"], item["name"])).collect()
    };
    let page = served.get(&format!("{place}?limit=1")).await.expect(200);
    assert_eq!((names(&page), &page["next"]), (vec![r#""folder" "a""#.into()], &json!("a")));
    let page = served.get(&format!("{place}?after=a")).await.expect(200);
    assert_eq!((names(&page), &page["next"]), (vec![r#""file" "b c.txt""#.into()], &Value::Null));
    let page = served.get(&format!("{place}?folder=a")).await.expect(200);
    assert_eq!(page["items"], json!([{"name": "long.txt", "kind": "file", "bytes": 600_000}]));

    let delete = async |path: &str| served.ask("DELETE", &format!("{place}/{path}"), Value::Null).await;
    assert_eq!(delete("a").await.told(), (409, "conflict".into()));
    for path in ["a/long.txt", "a", "a"] {
        assert_eq!(delete(path).await.expect(200), json!({"deleted": true}));
    }
    assert_eq!(served.get(&format!("{place}/a/long.txt")).await.told(), (404, "not_found".into()));
    // Whatever would leave the folder, however it is written.
    std::fs::write(served.folder.path().join("outside.txt"), "outside").expect("written");
    for path in
        ["../../outside.txt", "..%2f..%2foutside.txt", "%2e%2e/%2e%2e/outside.txt", "a%00b", "%2fetc/passwd"]
    {
        for answer in [served.get(&format!("{place}/{path}")).await, put(path, "x").await, delete(path).await]
        {
            assert_eq!(answer.told(), (422, "invalid_file".into()), "{path}: {}", answer.body);
        }
    }
    assert_eq!(std::fs::read(served.folder.path().join("outside.txt")).expect("it is there"), b"outside");
}

#[tokio::test]
async fn files_are_bounded_and_need_a_place() {
    let served = Served::with(|config| config.limits.file_bytes_max = 10).await;
    let path = "/v1/sessions/s/files/a";
    let all = served.token_of("p", &[TokenScope::Calls]).await;
    assert_eq!(served.ask_as(Some(&all), "PUT", path, json!("12345678")).await.status, 200);
    assert_eq!(
        served.ask_as(Some(&all), "PUT", path, json!("123456789")).await.told(),
        (413, "too_large".into())
    );
    let without = Served::with(|config| config.files = None).await;
    let told = without.ask("PUT", "/v1/sessions/s/files/a", json!("x")).await;
    assert_eq!(told.told(), (422, "invalid_file".into()));
    assert!(told.body.contains("set `files`"), "{}", told.body);
}

#[tokio::test]
async fn files_are_changed_only_from_what_is_expected() {
    let served = Served::new().await;
    let place = "/v1/sessions/s/files";
    let written =
        served.ask("PUT", &format!("{place}/a.txt?expected_hash=absent"), json!("one")).await.expect(200);
    assert_eq!(written["created"], true);
    let hash = written["hash"].as_str().expect("a hash");
    let stat = served.get("/v1/sessions/s/stat/a.txt").await.expect(200);
    assert_eq!((&stat["kind"], &stat["hash"]), (&json!("file"), &written["hash"]));
    let again = served.ask("PUT", &format!("{place}/a.txt?expected_hash=absent"), json!("two")).await;
    assert_eq!(again.told(), (409, "conflict".into()));
    let other =
        served.ask("PUT", &format!("{place}/a.txt?expected_hash={hash}"), json!("two")).await.expect(200);
    assert_eq!(other["created"], false);
    for (method, body) in [("PUT", json!("three")), ("DELETE", Value::Null)] {
        let stale = served.ask(method, &format!("{place}/a.txt?expected_hash={hash}"), body).await;
        assert_eq!(stale.told(), (409, "conflict".into()), "{}", stale.body);
    }
    let wrong = served.ask("PUT", &format!("{place}/a.txt?expected_hash=short"), json!("x")).await;
    assert_eq!(wrong.told(), (422, "invalid_file".into()));
    // Folders are made, and removed with what is in them if that is said.
    let made = served.ask("PUT", &format!("{place}/d/e?folder=true"), Value::Null).await.expect(200);
    assert_eq!((&made["created"], made.get("hash")), (&json!(true), None));
    assert_eq!(served.get("/v1/sessions/s/stat/d/e").await.expect(200)["kind"], "folder");
    assert_eq!(
        served.ask("DELETE", &format!("{place}/d"), Value::Null).await.told(),
        (409, "conflict".into())
    );
    served.ask("DELETE", &format!("{place}/d?recursive=true"), Value::Null).await.expect(200);
    assert_eq!(served.get("/v1/sessions/s/stat/d").await.expect(200), json!({"path": "d", "exists": false}));
}

#[tokio::test]
async fn a_session_is_opened_with_a_folder_that_the_host_allows() {
    let projects = tempfile::tempdir().expect("a folder");
    let project = projects.path().join("shop");
    std::fs::create_dir(&project).expect("made");
    std::fs::write(project.join("main.rs"), "fn main() {}").expect("written");
    let allowed = projects.path().to_path_buf();
    let served = Served::with(|config| config.folders = vec![allowed]).await;
    let wanted = json!({"id": "shop", "folder": project});
    served.post("/v1/sessions", wanted.clone()).await.expect(201);
    served.post("/v1/sessions", wanted).await.expect(200);
    assert_eq!(served.get("/v1/sessions/shop").await.expect(200)["folder"], json!(project));
    assert_eq!(served.get("/v1/sessions/shop/files/main.rs").await.body, "fn main() {}");
    let other = served.post("/v1/sessions", json!({"id": "shop", "folder": projects.path()})).await;
    assert_eq!(other.told(), (409, "conflict".into()));
    for folder in ["/etc", "shop"] {
        let refused = served.post("/v1/sessions", json!({"id": "x", "folder": folder})).await;
        assert_eq!(refused.told(), (422, "invalid_session".into()), "{}", refused.body);
    }
    let child = served.post("/v1/sessions", json!({"id": "c", "parent": "shop", "folder": project})).await;
    assert_eq!(child.told(), (422, "invalid_session".into()));
    served.ask("DELETE", "/v1/sessions/shop", Value::Null).await.expect(200);
    assert!(project.join("main.rs").is_file(), "it was there before the session");
}
