//! Tokens and who they stand for: wrong, expired, revoked and overused ones, and pages that have no business here.

use crate::tcp::Served;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass::Limits;
use windlass_server::access::TokenScope;

#[tokio::test]
async fn the_first_token_is_written_once_and_for_its_owner_alone() {
    let served = Served::new().await;
    let file = served.folder.path().join("token");
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    served.api.tokens().first().await.expect("it is there");
    assert_eq!(std::fs::read_to_string(&file).expect("a token").trim(), served.token);
    let listed = served.get("/v1/tokens").await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    assert!(!listed.to_string().contains(&served.token), "a token is told once");
    // Nothing of it lies in the store.
    let database = std::fs::read(served.folder.path().join("windlass.db-wal")).expect("it is there");
    let needle = &served.token.as_bytes()[3..];
    assert!(!database.windows(needle.len()).any(|part| part == needle));
    // Revoked, it is gone with its file, and a start later there is a new one.
    let id = listed["items"][0]["id"].as_str().expect("an id").to_string();
    served.ask("DELETE", &format!("/v1/tokens/{id}"), Value::Null).await.expect(200);
    assert!(!file.exists());
    assert_eq!(served.get("/v1/tokens").await.told(), (401, "wrong_token".into()));
    served.api.tokens().first().await.expect("a new one");
    assert_ne!(std::fs::read_to_string(&file).expect("a token").trim(), served.token);
}

#[tokio::test]
async fn a_token_that_was_written_and_not_kept_is_kept_by_the_next_start() {
    let served = Served::new().await;
    let id =
        served.get("/v1/tokens").await.expect(200)["items"][0]["id"].as_str().expect("an id").to_string();
    let file = served.folder.path().join("token");
    assert!(served.api.tokens().revoke(&id).await.expect("revoked"));
    std::fs::write(&file, "wl_written_before_a_crash_and_not_recorded\n").expect("written");
    served.api.tokens().first().await.expect("kept");
    let asked = served
        .ask_as(Some("wl_written_before_a_crash_and_not_recorded"), "GET", "/v1/calls", Value::Null)
        .await;
    assert_eq!(asked.status, 200);
}

#[tokio::test]
async fn what_could_be_guessed_never_becomes_the_first_token() {
    let served = Served::new().await;
    let id =
        served.get("/v1/tokens").await.expect(200)["items"][0]["id"].as_str().expect("an id").to_string();
    let file = served.folder.path().join("token");
    assert!(served.api.tokens().revoke(&id).await.expect("revoked"));
    let spaced = format!("{} {}", "x".repeat(20), "x".repeat(20));
    for weak in ["", "\n", "x", "wl_31_characters_are_not_enough", &spaced, &"ü".repeat(40), &"x".repeat(257)]
    {
        std::fs::write(&file, weak).expect("written");
        let told = served.api.tokens().first().await.expect_err("refused").to_string();
        assert!(told.contains("remove the file"), "{told}");
        let asked = served.ask_as(Some(weak.trim()), "GET", "/v1/calls", Value::Null).await;
        assert_eq!(asked.status, 401, "{weak:?}");
    }
    std::fs::remove_file(&file).expect("removed");
    served.api.tokens().first().await.expect("a new one");
    // A file that is no token does no harm where there are others.
    std::fs::write(&file, "x").expect("written");
    served.api.tokens().first().await.expect("it is not one of the tokens");
}

#[tokio::test]
async fn wrong_tokens_are_refused() {
    let served = Served::new().await;
    let ask = async |header: &str| {
        let request =
            format!("GET /v1/calls HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{header}\r\n");
        let answer = served.raw(&request).await;
        assert!(answer.status != 401 || answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        answer.told()
    };
    let token = &served.token;
    assert_eq!(ask("").await, (401, "no_token".into()));
    assert_eq!(ask("authorization: Bearer\r\n").await, (401, "no_token".into()));
    assert_eq!(ask(&format!("authorization: Basic {token}\r\n")).await, (401, "no_token".into()));
    for wrong in ["x", "", "wl_0000", &"x".repeat(10_000), &token[..token.len() - 1], &token.to_uppercase()] {
        assert_eq!(ask(&format!("authorization: Bearer {wrong}\r\n")).await.0, 401, "{wrong}");
    }
    assert_eq!(ask(&format!("authorization: bearer {token}\r\n")).await.0, 200);
}

#[tokio::test]
async fn who_shows_another_token_on_the_same_connection_is_somebody_else() {
    let served = Served::new().await;
    let reader = served.token_of("reader", &[TokenScope::Read]).await;
    let shown = [
        (&served.token, 200),
        (&served.token, 200),
        (&reader, 403),
        (&served.token, 200),
        (&"x".into(), 401),
    ];
    let mut stream = TcpStream::connect(served.at()).await.expect("let in");
    for (place, (token, _)) in shown.iter().enumerate() {
        let stays = if place + 1 < shown.len() { "keep-alive" } else { "close" };
        let head = format!("host: localhost\r\nconnection: {stays}\r\nauthorization: Bearer {token}\r\n");
        stream.write_all(format!("GET /v1/tokens HTTP/1.1\r\n{head}\r\n").as_bytes()).await.expect("sent");
    }
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.expect("answered");
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, shown.map(|(_, status)| status.to_string()));
}

#[tokio::test]
async fn tokens_expire_are_revoked_and_have_a_rate() {
    let limits = Limits { token_requests_per_minute: 100, ..Limits::default() };
    let (served, clock) = Served::with_clock(limits).await;
    let make = |more: Value| {
        let mut wanted = json!({"principal": "ci", "scopes": ["read"]});
        wanted.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        served.post("/v1/tokens", wanted)
    };
    let short = make(json!({"expires_in_s": 60, "title": "short"})).await.expect(201);
    let few = make(json!({"requests_per_minute": 2})).await.expect(201);
    let ask = async |token: &Value| {
        let token = token["token"].as_str().expect("a token");
        served.ask_as(Some(token), "GET", "/v1/calls", Value::Null).await
    };
    assert_eq!(ask(&short).await.status, 200);
    assert_eq!((ask(&few).await.status, ask(&few).await.status), (200, 200));
    let often = ask(&few).await;
    assert_eq!(often.told(), (429, "too_many_requests".into()));
    assert!(often.head.contains("retry-after: 30"), "{}", often.head);
    clock.advance(Duration::from_secs(30));
    assert_eq!((ask(&few).await.status, ask(&few).await.status), (200, 429), "half a minute, one of two");
    clock.advance(Duration::from_secs(30));
    assert_eq!(ask(&short).await.told(), (401, "wrong_token".into()), "it has expired");
    let few_path = format!("/v1/tokens/{}", few["id"].as_str().expect("an id"));
    served.ask("DELETE", &few_path, Value::Null).await.expect(200);
    assert_eq!(ask(&few).await.told(), (401, "wrong_token".into()), "it was revoked");
    let again = served.ask("DELETE", &few_path, Value::Null).await;
    assert_eq!(again.told(), (404, "not_found".into()));
}

#[tokio::test]
async fn a_token_that_is_revoked_elsewhere_is_worthless_within_a_second() {
    let (served, clock) = Served::with_clock(Limits::default()).await;
    let token = served.token_of("ci", &[TokenScope::Read]).await;
    let ask = async || served.ask_as(Some(&token), "GET", "/v1/calls", Value::Null).await.status;
    assert_eq!(ask().await, 200);
    // By another process on the same store: this one does not hear of it.
    let elsewhere = windlass_server::tokens::Tokens::new(served.api.runtime(), None);
    let listed = elsewhere.list(None, 10).await.expect("listed").0;
    let id = &listed.iter().find(|token| token.principal == "ci").expect("it is there").id;
    assert!(elsewhere.revoke(id).await.expect("revoked"));
    clock.advance(Duration::from_secs(1));
    assert_eq!(ask().await, 401);
}

#[tokio::test]
async fn such_tokens_are_not_made() {
    let served = Served::with(|config| config.limits.tokens_max = 2).await;
    for wanted in [
        json!({"principal": "", "scopes": ["read"]}),
        json!({"principal": "a/b", "scopes": ["read"]}),
        json!({"principal": "a", "scopes": []}),
        json!({"principal": "a", "scopes": ["read"], "expires_in_s": 0}),
        json!({"principal": "a", "scopes": ["read"], "expires_in_s": u64::MAX}),
        json!({"principal": "a", "scopes": ["read"], "requests_per_minute": 0}),
        json!({"principal": "a", "scopes": ["read"], "title": "x".repeat(201)}),
    ] {
        assert_eq!(served.post("/v1/tokens", wanted).await.told(), (422, "invalid_token".into()));
    }
    assert_eq!(served.post("/v1/tokens", json!({"principal": "a", "scopes": ["rule"]})).await.status, 400);
    let fine = || json!({"principal": "a", "scopes": ["read", "read"]});
    assert_eq!(served.post("/v1/tokens", fine()).await.expect(201)["scopes"], json!(["read"]));
    assert_eq!(served.post("/v1/tokens", fine()).await.told(), (422, "too_many_tokens".into()));
}

#[tokio::test]
async fn pages_and_names_that_are_not_ours_are_refused() {
    let served = Served::new().await;
    let token = &served.token;
    let ask = async |path: &str, headers: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{headers}\r\n"
        );
        let answer = served.raw(&request).await;
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
        answer.told()
    };
    let no_host = (403, "host_not_allowed".to_string());
    let no_origin = (403, "origin_not_allowed".to_string());
    for path in ["/v1/calls", "/openapi.json", "/healthz"] {
        assert_eq!(ask(path, "host: evil.example\r\n").await, no_host);
        assert_eq!(ask(path, "host: localhost\r\norigin: https://evil.example\r\n").await, no_origin);
        assert_eq!(ask(path, "host: localhost\r\norigin: null\r\n").await, no_origin);
        let two = "host: localhost\r\norigin: https://ui.example\r\norigin: https://evil.example\r\n";
        assert_eq!(ask(path, two).await, no_origin);
        assert_eq!(ask(path, &format!("host: {}\r\n", served.at())).await.0, 200);
        assert_eq!(ask(path, "host: tools.example\r\norigin: https://ui.example\r\n").await.0, 200);
    }
    let cross = served
        .raw("OPTIONS /v1/calls HTTP/1.1\r\nhost: localhost\r\norigin: https://evil.example\r\nconnection: close\r\n\r\n")
        .await;
    assert!((400..500).contains(&cross.status), "{}", cross.status);
}
