//! Declared HTTP tools against a server of their own: what is sent, what each answer means, and what nobody knows.

use crate::rig::{folder, in_time, launcher};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use windlass::approvals::ApprovalDecision;
use windlass::error::{Code, FailureClass, Retry};
use windlass::outcome::Part;
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallAnswer, CallRequest, Config, Runtime};
use windlass_tools::load;

const TOKEN: &str = "tok-9f/ü7&x";

/// A server that answers each connection with the next text, and tells what it was sent. An empty answer breaks the connection.
struct Scripted {
    port: u16,
    asked: mpsc::UnboundedReceiver<String>,
}

impl Scripted {
    async fn new(answers: Vec<Vec<u8>>) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let (tell, asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept().await else { return };
                let Some(request) = read(&mut stream).await else { return };
                if tell.send(request).is_err() {
                    return;
                }
                // The client may have gone.
                let _ = stream.write_all(&answer).await;
            }
        });
        Scripted { port, asked }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn asked(&mut self) -> String {
        self.asked.try_recv().expect("it was asked")
    }
}

/// One whole request.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&request).to_lowercase();
    let length =
        head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    request.extend(body);
    Some(String::from_utf8_lossy(&request).into_owned())
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn runtime(text: &str) -> Runtime {
    let (_guard, folder) = folder();
    let secret_key = SecretKeySource::Key(SecretKey::random().expect("a key"));
    let runtime = Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new().expect("a store")) });
    let declared = load(text, &folder.join("windlass.toml"), launcher());
    for tool in declared.map_err(|error| error.to_string()).expect("it is right").tools {
        runtime.register_shared(tool).expect("registered");
    }
    runtime
}

async fn run(runtime: &Runtime, args: Value) -> CallAnswer {
    let call = CallRequest {
        id: Some("c".into()),
        tool: "t".into(),
        args: Args::Json(args),
        ..CallRequest::default()
    };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    let submitted = runtime.submit("s", batch).await.expect("taken");
    in_time(submitted.settled()).await.expect("answered").calls.remove(0)
}

/// A tool that reads from this server.
fn reader(server: &Scripted, keys: &str) -> Runtime {
    runtime(&format!(
        "[tools.t]\nclass = 'read'\nhttp = {{ url = '{}/x', internal = true }}\n{keys}",
        server.url()
    ))
}

#[tokio::test]
async fn a_request_is_made_of_arguments_and_secrets() {
    let body = json!({ "id": 7, "echo": TOKEN, "other": "tok-9f%2F%C3%BC7%26x" }).to_string();
    let mut server = Scripted::new(vec![answer("201 Created", "", body.as_bytes())]).await;
    let runtime = runtime(&format!(
        r#"
        [tools.t]
        class = "keyed"
        input = {{ type = "object", required = ["repo"], properties = {{ repo = {{}}, n = {{}}, gone = {{}}, state = {{}} }} }}
        [tools.t.http]
        method = "POST"
        url = "{}/repos/{{repo}}/issues?state={{state}}&gone={{gone}}&key={{secret:token}}"
        headers = {{ Authorization = "Bearer {{secret:token}}", X-Gone = "{{gone}}", X-Repo = "{{repo}}" }}
        body = {{ n = "{{n}}", token = "{{secret:token}}", gone = "{{gone}}", text = "is {{n}}" }}
        internal = true
        "#,
        server.url()
    ));
    runtime.folder_secrets().set("token", TOKEN).await.expect("stored");
    let listed = runtime.tool("t").expect("listed").tool.expect("loaded");
    assert_eq!(listed.spec.secrets, ["token"]);
    let call = run(&runtime, json!({ "repo": "a/b?", "n": 5, "state": "x y" })).await;
    let marker = "[secret token]";
    assert_eq!(call.value::<Value>().expect("JSON"), json!({ "id": 7, "echo": marker, "other": marker }));
    let asked = server.asked();
    let (head, sent) = asked.split_once("\r\n\r\n").expect("a head and a body");
    assert!(
        head.starts_with("POST /repos/a%2Fb%3F/issues?state=x%20y&key=tok-9f%2F%C3%BC7%26x HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains(&format!("authorization: Bearer {TOKEN}\r\n")) && head.contains("x-repo: a/b?\r\n"),
        "{head}"
    );
    assert!(head.contains("idempotency-key: ") && !head.contains("x-gone"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let sent: Value = serde_json::from_str(sent).expect("JSON");
    assert_eq!(sent, json!({ "n": 5, "token": TOKEN, "text": "is 5" }));
}

#[tokio::test]
async fn each_answer_has_its_meaning() {
    let png = b"\x89PNG\r\n\x1a\n\x00\xff";
    for (status, headers, body, expected) in [
        ("200 OK", "", &b"{\"a\": 1}"[..], json!({ "a": 1 })),
        ("200 OK", "", b"plain text\n", json!("plain text")),
        ("204 No Content", "", b"", Value::Null),
    ] {
        let server = Scripted::new(vec![answer(status, headers, body)]).await;
        assert_eq!(run(&reader(&server, ""), json!({})).await.value::<Value>().expect("a value"), expected);
    }
    let server = Scripted::new(vec![answer("200 OK", "content-type: image/png; x=1\r\n", png)]).await;
    let call = run(&reader(&server, ""), json!({})).await;
    assert!(
        matches!(&call.model().parts[..], [Part::KeptImage { media_type, .. }] if media_type == "image/png")
    );
    let date = "date: Tue, 17 Nov 2026 10:00:00 GMT\r\nretry-after: Tue, 17 Nov 2026 10:00:07 GMT\r\n";
    for (status, headers, class, retry) in [
        ("404 Not Found", "", FailureClass::Execution, Retry::Never),
        ("304 Not Modified", "", FailureClass::Execution, Retry::Never),
        ("503 Service Unavailable", "", FailureClass::Unavailable, Retry::Safe { after_ms: None }),
        ("408 Request Timeout", "", FailureClass::Unavailable, Retry::Safe { after_ms: None }),
        (
            "429 Too Many Requests",
            "retry-after: 3\r\n",
            FailureClass::Unavailable,
            Retry::Safe { after_ms: Some(3_000) },
        ),
        ("500 Oh", date, FailureClass::Unavailable, Retry::Safe { after_ms: Some(7_000) }),
    ] {
        let server = Scripted::new(vec![answer(status, headers, b"what went wrong")]).await;
        let call = run(&reader(&server, "retry = { attempts = 1 }"), json!({})).await;
        let failure = call.failure().expect("a failure");
        assert_eq!((failure.class, failure.retry), (class, retry), "{status}: {failure:?}");
        let number = status.split(' ').next().unwrap_or_default();
        assert_eq!(failure.tool_code.as_deref(), Some(&*format!("status {number}")));
        assert_eq!(
            failure.message.contains("It said:\nwhat went wrong"),
            number != "304",
            "{}",
            failure.message
        );
    }
}

#[tokio::test]
async fn a_server_that_asks_for_time_gets_it_and_is_asked_again_under_the_same_key() {
    let mut server = Scripted::new(vec![
        answer("503 Service Unavailable", "retry-after: 0\r\n", b""),
        answer("200 OK", "", b"\"done\""),
    ])
    .await;
    let text = format!(
        "[tools.t]\nclass = 'keyed'\nhttp = {{ method = 'POST', url = '{}', internal = true }}",
        server.url()
    );
    let call = run(&runtime(&text), json!({})).await;
    assert_eq!(call.value::<String>().expect("text"), "done");
    let key = |asked: String| asked.split("idempotency-key: ").nth(1).map(|rest| rest[..16].to_string());
    let (first, second) = (key(server.asked()), key(server.asked()));
    assert!(first.is_some() && first == second);
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_the_class_to_decide() {
    // The request was sent, and there is no answer: nobody knows.
    let text = |server: &Scripted, class: &str| {
        format!(
            "[tools.t]\nclass = '{class}'\nretry = {{ attempts = 2, base_ms = 1 }}\n\
             http = {{ method = 'POST', url = '{}', internal = true }}",
            server.url()
        )
    };
    let server = Scripted::new(vec![Vec::new()]).await;
    assert_eq!(run(&runtime(&text(&server, "once")), json!({})).await.state(), "unknown");
    let server = Scripted::new(vec![Vec::new(), answer("200 OK", "", b"1")]).await;
    assert_eq!(run(&runtime(&text(&server, "keyed")), json!({})).await.state(), "succeeded");
    // Nobody listens: it was certainly not sent, so even `once` is tried again, and says that nothing happened.
    let server = Scripted::new(Vec::new()).await;
    let (text, _) = (text(&server, "once"), drop(server));
    tokio::task::yield_now().await;
    let call = run(&runtime(&text), json!({})).await;
    let failure = call.failure().expect("a failure");
    assert!(failure.did_not_happen && failure.class == FailureClass::Unavailable, "{failure:?}");
    assert!(!failure.message.contains("127.0.0.1"), "{failure:?}");
}

#[tokio::test]
async fn secrets_stay_with_the_server_they_are_for() {
    let mut other = Scripted::new(vec![answer("200 OK", "", b"\"moved\"")]).await;
    let moved = answer(
        "302 Found",
        &format!("location: {}/new\r\n", other.url().replace("127.0.0.1", "localhost")),
        b"",
    );
    let kept = answer("307 Temporary Redirect", &format!("location: {}/new\r\n", other.url()), b"");
    let mut server = Scripted::new(vec![moved, kept]).await;
    let text = |method: &str| {
        format!(
            "[tools.t]\nclass = 'once'\nhttp = {{ method = '{method}', url = '{}/x', internal = true, headers = {{ X-Key = 'secret:token' }} }}",
            server.url()
        )
    };
    let (reads, writes) = (runtime(&text("GET")), runtime(&text("POST")));
    for runtime in [&reads, &writes] {
        runtime.folder_secrets().set("token", TOKEN).await.expect("stored");
    }
    assert_eq!(run(&reads, json!({})).await.value::<String>().expect("text"), "moved");
    assert!(server.asked().contains(TOKEN) && !other.asked().contains("tok-9f"));
    // What was posted is for one server alone; that one got it, so nobody knows what it did.
    assert_eq!(run(&writes, json!({})).await.state(), "unknown");
    assert!(server.asked().contains(TOKEN) && other.asked.try_recv().is_err());
}

#[tokio::test]
async fn only_public_addresses_are_reached_unless_declared() {
    let runtime = runtime("[tools.t]\nclass = 'read'\nhttp = { url = 'https://127.0.0.1:9/x' }");
    let call = run(&runtime, json!({})).await;
    let failure = call.failure().expect("a failure");
    assert_eq!((failure.class, failure.code), (FailureClass::Internal, Code::Internal));
    assert!(!failure.message.contains("127.0.0.1"), "{}", failure.message);
    assert!(
        failure.detail.as_ref().is_some_and(|detail| detail.contains("neither public nor allowed")),
        "{failure:?}"
    );
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused_and_a_large_one_is_kept() {
    let server = Scripted::new(vec![answer("200 OK", "", &vec![b'x'; 2_000])]).await;
    let text = format!(
        "[limits]\nhttp_bytes_max = 1000\n[tools.t]\nclass = 'once'\nhttp = {{ url = '{}', internal = true }}",
        server.url()
    );
    let call = run(&runtime(&text), json!({})).await;
    assert_eq!(call.state(), "unknown", "its effect is not known, since its answer is not");
    let text = "x".repeat(9 << 20);
    let server = Scripted::new(vec![answer("200 OK", "", text.as_bytes())]).await;
    let call = run(&reader(&server, ""), json!({})).await;
    assert!(
        call.model_text().contains("\"total\":9437184") || call.model_text().contains("9437184"),
        "{}",
        &call.model_text()[..300]
    );
}

#[tokio::test]
async fn a_command_gets_its_secrets_in_its_environment() {
    let (guard, folder) = folder();
    let secret_key = SecretKeySource::Key(SecretKey::random().expect("a key"));
    let runtime = Runtime::new(Config { secret_key, ..Config::new(MemoryStore::new().expect("a store")) });
    let text = "[tools.t]\ncommand = ['/bin/sh', '-c', 'printf \"%s\" \"$TOKEN\" | wc -c; printf \"%s\\n%s\" \"$TOKEN\" \"$TOKEN\" >&2; exit 3']\n\
                env = { TOKEN = 'secret:token', REGION = 'eu' }";
    for tool in load(text, &folder.join("windlass.toml"), launcher()).expect("it is right").tools {
        runtime.register_shared(tool).expect("registered");
    }
    let call = run(&runtime, json!({})).await;
    assert_eq!(call.failure().expect("a failure").code, Code::SecretUnavailable);
    runtime.secrets("s").set("token", TOKEN).await.expect("stored");
    let call = run(&runtime, json!({ "again": true })).await;
    let failure = call.failure().expect("a failure");
    assert!(failure.message.ends_with("[secret token]\n[secret token]"), "{}", failure.message);
    drop(guard);
}

/// Approves what waits; returns its digest.
async fn approve(runtime: &Runtime) -> String {
    let (_, waits) = runtime.waiting().await.expect("readable").pop().expect("it asks");
    let digest = waits.digest.expect("a digest");
    let decision = ApprovalDecision { approve: true, digest: digest.clone(), ..ApprovalDecision::default() };
    runtime.decide(&waits.id, &decision, "ann").await.expect("decided");
    digest
}

#[tokio::test]
async fn a_request_that_changed_after_it_was_shown_is_asked_for_again() {
    let declared = |method: &str, url: &str, header: &str, body: &str| {
        format!(
            "[tools.t]\napproval = 'ask'\nclass = 'keyed'\ninput = {{ properties = {{ n = {{}} }} }}\n\
             http = {{ method = '{method}', url = '{url}', headers = {{ X-A = '{header}' }}, body = '{body}', internal = true }}"
        )
    };
    for changed in 0..4 {
        let mut server = Scripted::new(vec![answer("200 OK", "", b"done")]).await;
        let url = server.url();
        let old = ["POST", &format!("{url}/x?n={{n}}"), "v {secret:token}", "text {n}"].map(str::to_string);
        let mut new = old.clone();
        new[changed] =
            ["PUT", &format!("{url}/y?n={{n}}"), "v {secret:other}", "other {n}"][changed].to_string();
        let [runtime_text, new_text] =
            [&old, &new].map(|[method, url, header, body]| declared(method, url, header, body));
        let runtime = runtime(&runtime_text);
        for name in ["token", "other"] {
            runtime.folder_secrets().set(name, TOKEN).await.expect("stored");
        }
        let call = CallRequest {
            id: Some("c".into()),
            tool: "t".into(),
            args: Args::Json(json!({ "n": 1 })),
            ..CallRequest::default()
        };
        let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
        let submitted = runtime.submit("s", batch).await.expect("taken");
        in_time(submitted.stands_still()).await.expect("it waits");
        for tool in load(&new_text, "windlass.toml".as_ref(), launcher()).expect("it is right").tools {
            runtime.unregister("t").expect("there");
            runtime.register_shared(tool).expect("registered");
        }
        let first = approve(&runtime).await;
        in_time(submitted.stands_still()).await.expect("it waits again");
        assert!(server.asked.try_recv().is_err(), "nothing was sent");
        assert_ne!(first, approve(&runtime).await, "{}", new[changed]);
        let answer = in_time(submitted.settled()).await.expect("answered").calls.remove(0);
        assert_eq!(answer.model_text(), "done");
        assert!(server.asked().contains(if changed == 0 { "PUT /x" } else { "POST /" }));
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_made_is_refused_before_anybody_is_asked() {
    let runtime = runtime(
        "[tools.t]\napproval = 'ask'\ninput = { properties = { n = {} } }\nhttp = { url = 'https://h/x', headers = { X-A = '{n}' } }",
    );
    let call = run(&runtime, json!({ "n": "a\nb" })).await;
    assert_eq!(call.state(), "failed");
    assert!(call.model_text().contains("stands in a header"), "{}", call.model_text());
}
