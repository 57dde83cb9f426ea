//! The client against a server of its own: what it refuses, what it follows, what it bounds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test speaks")]

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use windlass_http::{HttpClient, HttpConfig, HttpError, HttpRequest, HttpResponse};

/// A server that answers each connection with the next text, and tells what it was asked.
struct Scripted {
    port: u16,
    asked: mpsc::UnboundedReceiver<String>,
}

impl Scripted {
    async fn new(answers: Vec<String>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let head = read_head(&mut stream).await;
                tell.send(head).unwrap();
                // The client may have gone.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Scripted { port, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn asked(&mut self) -> String {
        self.asked.try_recv().expect("it was asked")
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn to(place: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nconnection: close\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")
}

fn local() -> HttpConfig {
    let allowed = vec!["127.0.0.1".parse().unwrap()];
    HttpConfig { allowed, plain_http: true, ..HttpConfig::default() }
}

async fn get(config: HttpConfig, url: &str) -> Result<HttpResponse, HttpError> {
    HttpClient::new(config).unwrap().send(HttpRequest::get(url)).await
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_however_they_are_spelled() {
    let plain = || HttpConfig { plain_http: true, ..HttpConfig::default() };
    for url in [
        "http://127.0.0.1:9/",
        "http://127.1:9/",
        "http://0x7f000001:9/",
        "http://2130706433:9/",
        "http://[::1]:9/",
        "http://[::ffff:127.0.0.1]:9/",
        "http://169.254.169.254/",
        "http://localhost:9/",
    ] {
        let refused = get(plain(), url).await.unwrap_err();
        assert!(matches!(refused, HttpError::Address { .. }), "{url}: {refused:?}");
    }
    for (url, what) in [
        ("ftp://example.com/", "neither https nor http"),
        ("https://user:hunter2@example.com/?k=hunter2", "credentials"),
        ("nonsense?hunter2", "not a URL"),
    ] {
        let refused = get(plain(), url).await.unwrap_err().to_string();
        assert!(refused.contains(what) && !refused.contains("hunter2"), "{refused}");
    }
    let refused = get(HttpConfig::default(), "http://example.com/").await.unwrap_err();
    assert!(refused.to_string().contains("not encrypted"), "{refused}");
}

#[tokio::test]
async fn an_allowed_address_is_requested_and_a_redirect_elsewhere_is_not() {
    let mut server =
        Scripted::new(vec![ok("hello"), to("/there"), ok("there"), to("http://127.0.0.2:9/")]).await;
    assert_eq!(get(local(), &server.url("/")).await.unwrap().body, b"hello");
    let followed = get(local(), &server.url("/here")).await.unwrap();
    assert_eq!((followed.body.as_slice(), followed.url), (&b"there"[..], server.url("/there")));
    let refused = get(local(), &server.url("/")).await.unwrap_err();
    assert!(matches!(&refused, HttpError::Address { host } if host == "127.0.0.2"), "{refused:?}");
    assert!(server.asked().starts_with("GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn another_origin_gets_no_headers() {
    let mut other = Scripted::new(vec![ok("taken")]).await;
    let mut server = Scripted::new(vec![to("/same"), to(&other.url("/other"))]).await;
    let request = HttpRequest::get(server.url("/")).header("authorization", "Bearer hunter2");
    let response = HttpClient::new(local()).unwrap().send(request).await.unwrap();
    assert_eq!(response.body, b"taken");
    assert!(
        server.asked().contains("hunter2") && server.asked().contains("hunter2"),
        "the same origin gets them"
    );
    assert!(!other.asked().contains("hunter2"));
}

#[tokio::test]
async fn a_post_is_followed_by_a_get_unless_its_method_is_to_stay() {
    for (status, follows) in
        [("302 Found", "GET"), ("303 See Other", "GET"), ("307 Temporary Redirect", "POST")]
    {
        let moved = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n"
        );
        let mut server = Scripted::new(vec![moved, ok("there")]).await;
        let request = HttpRequest::post_json(server.url("/"), "{}");
        assert_eq!(HttpClient::new(local()).unwrap().send(request).await.unwrap().body, b"there");
        assert!(server.asked().starts_with("POST / "));
        let followed = server.asked().to_lowercase();
        assert!(followed.starts_with(&format!("{} /there ", follows.to_lowercase())), "{followed}");
        assert_eq!(followed.contains("application/json"), follows == "POST", "{followed}");
        assert_eq!(followed.contains("content-length: 2"), follows == "POST", "{followed}");
    }
}

#[tokio::test]
async fn redirects_sizes_and_times_are_bounded() {
    let server = Scripted::new(vec![to("/1"), to("/2"), to("/3")]).await;
    let config = HttpConfig { redirects_max: 2, ..local() };
    let refused = get(config, &server.url("/")).await.unwrap_err();
    assert!(matches!(refused, HttpError::Redirects { max: 2 }), "{refused:?}");

    let chunked =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n";
    let server = Scripted::new(vec![ok("hello world"), chunked.to_string(), ok("hello")]).await;
    let config = HttpConfig { body_bytes_max: 8, ..local() };
    for _ in 0..2 {
        let refused = get(config.clone(), &server.url("/")).await.unwrap_err();
        assert!(matches!(refused, HttpError::TooLarge { max: 8 }), "{refused:?}");
    }
    assert_eq!(get(config, &server.url("/")).await.unwrap().body, b"hello");

    // It says that more is to come, and nothing comes.
    let stuck = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello".to_string();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let held = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        stream.write_all(stuck.as_bytes()).await.unwrap();
        // Until the client gives up.
        while stream.read_u8().await.is_ok() {}
    });
    let config = HttpConfig { timeout: Duration::from_millis(200), ..local() };
    let refused = get(config, &url).await.unwrap_err();
    assert!(matches!(refused, HttpError::Timeout { .. }), "{refused:?}");
    held.await.unwrap();
}

/// Set for this test alone, which runs in a process of its own.
const IN_CHILD: &str = "WINDLASS_TEST_PROXIED";

#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    let mut server = Scripted::new(vec![ok("direct")]).await;
    // A proxy that answers would be believed.
    let mut proxy = Scripted::new(vec![ok("proxied"), ok("proxied")]).await;
    if let Ok(url) = std::env::var(IN_CHILD) {
        let got = get(local(), &url).await.unwrap();
        assert_eq!(got.body, b"direct");
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "proxies_of_the_environment_are_ignored"])
        .env(IN_CHILD, server.url("/"))
        .envs(
            ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
                .map(|name| (name, proxy.url(""))),
        )
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ran = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert!(server.asked().starts_with("GET / HTTP/1.1"));
    assert!(proxy.asked.try_recv().is_err(), "the proxy saw a request");
}

#[tokio::test]
async fn an_answer_that_is_not_read_may_be_as_long_as_it_likes() {
    let server = Scripted::new(vec![ok(&"x".repeat(5_000))]).await;
    let client = HttpClient::new(HttpConfig { body_bytes_max: 10, ..local() }).unwrap();
    let got = client.send_unread(HttpRequest::get(server.url("/"))).await.unwrap();
    assert_eq!((got.status, got.body.len(), got.header("content-length")), (200, 0, Some("5000")));
    assert!(client.check("http://127.0.0.1/").is_ok());
    assert!(matches!(client.check("http://169.254.169.254/"), Err(HttpError::Address { .. })));
}
