//! An agent with an embedded runtime: `agent ADDRESS QUESTION`. ADDRESS speaks Anthropic's API without TLS.
#![allow(clippy::print_stdout, reason = "an agent answers")]

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use serde_json::{json, value::to_raw_value};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Config, Runtime, ToolError, tool};
use windlass_server::{Mount, access::Caller, mount, turns::TurnPost, turns::tools, wire::turns::BatchQuery};
use windlass_wire::Wire;

type Error = Box<dyn std::error::Error + Send + Sync>;
/// Writes a file.
#[tool(class = "keyed", claims = ["write file:{path}"])]
async fn write_file(path: String, text: String) -> Result<String, ToolError> {
    std::fs::write(&path, text)?;
    Ok(format!("wrote {path}"))
}

/// Replaces a text in a file. The file must exist.
#[tool(class = "keyed", claims = ["write file:{path}"])]
async fn edit_file(path: String, old: String, new: String) -> Result<String, ToolError> {
    let text = std::fs::read_to_string(&path).map_err(|_| ToolError::new(format!("No file {path}.")))?;
    std::fs::write(&path, text.replace(&old, &new))?;
    Ok(text.replace(&old, &new))
}

async fn ask_model(address: &str, request: String) -> Result<String, Error> {
    let stream = hyper_util::rt::TokioIo::new(tokio::net::TcpStream::connect(address).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::post("/v1/messages").header("host", address).body(Full::new(Bytes::from(request)));
    let response = sender.send_request(request?).await?.into_body().collect().await?;
    Ok(String::from_utf8(response.to_bytes().to_vec())?)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let [address, question] = [1, 2].map(|nth| std::env::args().nth(nth).unwrap_or_default());
    let runtime = Runtime::new(Config::new(SqliteStore::open(Options::new(".windlass"))?));
    runtime.register(write_file())?;
    runtime.register(edit_file())?;
    let mounted = mount(&runtime, Mount { folder: Some(".windlass".into()), ..Mount::default() }).await?;
    let api = mounted.api();
    api.claim(&Caller::local(), "agent").await?;
    let mut messages = vec![to_raw_value(&json!({"role": "user", "content": question}))?];
    loop {
        let tools = tools(&runtime.catalog("agent").list().await?, Wire::Anthropic);
        let request = json!({"model": "claude", "max_tokens": 4096, "tools": tools, "messages": messages});
        let response = ask_model(&address, request.to_string()).await?;
        let post = TurnPost::new(api, "agent", Wire::Anthropic, BatchQuery::default())?;
        let turn = post.answer(api, &response).await?;
        messages.extend(turn.messages);
        if turn.over {
            println!("{}", messages.last().map(|last| last.get()).unwrap_or_default());
            return Ok(());
        }
    }
}
