//! A program mounts the API on its runtime with one call.

use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use windlass::store::memory::MemoryStore;
use windlass::{Config, EffectClass, Runtime, ToolSpec, tool_fn};
use windlass_server::access::TokenScope;
use windlass_server::client::Client;
use windlass_server::wire::{NewToken, Paging};
use windlass_server::{Mount, MountError, MountedApi, mount};

fn runtime() -> Runtime {
    let runtime = Runtime::new(Config::new(MemoryStore::new().expect("a store")));
    let spec = ToolSpec { name: "ping".into(), class: Some(EffectClass::Read), ..ToolSpec::default() };
    runtime.register(tool_fn(spec, |_, _| async { Ok(serde_json::json!("pong").into()) })).expect("a tool");
    runtime
}

fn anywhere(folder: Option<&Path>) -> Mount {
    let address = Some("127.0.0.1:0".parse().expect("an address"));
    Mount { address, folder: folder.map(Path::to_path_buf), ..Mount::default() }
}

/// Submits a call of `ping` as bytes on a connection; the whole response.
async fn ping(mounted: &MountedApi, token: &str) -> String {
    let at = mounted.address().expect("an address");
    let body = r#"{"key": "k", "calls": [{"id": "c1", "tool": "ping"}]}"#;
    let request = format!(
        "POST /v1/sessions/s/batches HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(at).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("it is answered");
    response
}

#[tokio::test]
async fn one_call_serves_the_api_at_an_address() {
    let runtime = runtime();
    let mounted = mount(&runtime, anywhere(None)).await.expect("mounted");
    assert_eq!(mounted.token(), None, "without a folder there is no first token");
    let refused = ping(&mounted, "guessed").await;
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");

    let wanted = NewToken {
        principal: "agent".into(),
        scopes: TokenScope::ALL.to_vec(),
        title: None,
        expires_in_s: None,
        requests_per_minute: None,
        approves: Vec::new(),
    };
    let token = mounted.api().tokens().make(wanted).await.expect("a token").token;
    let answered = ping(&mounted, &token).await;
    assert!(answered.starts_with("HTTP/1.1 200") && answered.contains("pong"), "{answered}");

    let at = mounted.address().expect("an address");
    mounted.stop().await;
    assert!(TcpStream::connect(at).await.is_err(), "a stopped mount listens no more");
}

#[tokio::test]
async fn with_a_folder_it_serves_the_socket_and_writes_the_first_token() {
    let (runtime, folder) = (runtime(), tempfile::tempdir().expect("a folder"));
    let mounted = mount(&runtime, anywhere(Some(folder.path()))).await.expect("mounted");
    let token = std::fs::read_to_string(mounted.token().expect("a token")).expect("it can be read");
    let answered = ping(&mounted, token.trim()).await;
    assert!(answered.starts_with("HTTP/1.1 200") && answered.contains("pong"), "{answered}");

    let owner = Client::find(folder.path()).await.expect("asked").expect("the socket is served");
    let tools = owner.tools(&Paging::default()).await.expect("the tools");
    assert!(serde_json::to_string(&tools).expect("JSON").contains("ping"));
    mounted.stop().await;
    assert!(Client::find(folder.path()).await.expect("asked").is_none(), "a stopped mount leaves no socket");
}

#[tokio::test]
async fn a_mount_that_fails_serves_nothing() {
    let (runtime, folder) = (runtime(), tempfile::tempdir().expect("a folder"));
    let refused = mount(&runtime, Mount::default()).await.err().expect("refused");
    assert!(matches!(refused, MountError::Nowhere), "{refused}");

    let first = mount(&runtime, anywhere(None)).await.expect("mounted");
    let taken = Mount { address: first.address(), ..anywhere(Some(folder.path())) };
    let refused = mount(&runtime, taken).await.err().expect("refused");
    assert!(matches!(refused, MountError::Address { .. }), "{refused}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(left, 0, "neither a token nor a socket was made");
}
