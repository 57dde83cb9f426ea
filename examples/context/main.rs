//! Runs the sub-agent of `agent.rs` on a folder: `cargo run -p windlass --example context -- FOLDER`. Kill it and start it again
//! on the same folder: it goes on where it was.

#![expect(clippy::print_stdout, reason = "a show says what it does")]

mod agent;

use std::error::Error;
use std::sync::Arc;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{BatchRequest, CallRequest, Config, Runtime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = std::env::args().nth(1).ok_or("give it a folder to work in")?;
    let store = SqliteStore::open(Options::new(folder))?;
    let runtime = Runtime::new(Config { model: Some(Arc::new(agent::Scripted)), ..Config::new(store) });
    agent::register(&runtime)?;
    agent::subscribe(&runtime, "demo").await?;
    runtime.resume().await?;
    let call = CallRequest { id: Some("c1".into()), tool: "research".into(), ..CallRequest::default() };
    let batch = BatchRequest { key: Some("turn-1".into()), calls: vec![call], ..BatchRequest::default() };
    let answer = runtime.submit("demo", batch).await?.settled().await?;
    println!("{}", serde_json::to_string_pretty(&answer.calls[0])?);
    Ok(())
}
