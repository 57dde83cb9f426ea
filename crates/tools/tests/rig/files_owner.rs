//! The owner of a session with files, which may be killed at any time: it reads batches of calls, a line of JSON each, and answers
//! each with a line.

use serde::Deserialize;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use windlass::sessions::SessionOpening;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::{Args, BatchRequest, CallRequest, Config, Runtime};
use windlass_tools::{BuiltinGroup, builtin};

#[derive(Deserialize)]
struct GivenBatch {
    key: String,
    /// The names of tools with their arguments.
    calls: Vec<(String, Value)>,
}

/// Owns the session `s` with the folder `project` in this folder, until its input ends.
pub fn own(folder: &Path) -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let store = SqliteStore::open(Options::new(folder.join("data")))?;
        let (files, folders) = (Some(folder.join("files")), vec![folder.to_path_buf()]);
        let runtime = Runtime::new(Config { files, folders, ..Config::new(store) });
        for tool in builtin(&[BuiltinGroup::Files]) {
            runtime.register_shared(tool)?;
        }
        let opening = SessionOpening { folder: Some(folder.join("project")), ..SessionOpening::default() };
        runtime.open_session("s", opening).await?;
        runtime.resume().await?;
        for line in std::io::stdin().lock().lines() {
            let GivenBatch { key, calls } = serde_json::from_str(&line?)?;
            let calls = calls.into_iter().enumerate().map(|(at, (tool, args))| CallRequest {
                id: Some(at.to_string()),
                tool,
                args: Args::Json(args),
                ..CallRequest::default()
            });
            let batch = BatchRequest { key: Some(key), calls: calls.collect(), ..BatchRequest::default() };
            let answer = runtime.submit("s", batch).await?.settled().await?;
            let mut outcomes = Vec::new();
            for call in &answer.calls {
                let mut view = serde_json::to_value(call.view())?;
                outcomes.push(json!({ "state": view["state"].take(), "outcome": view["outcome"].take() }));
            }
            let mut told = std::io::stdout().lock();
            writeln!(told, "{}", Value::Array(outcomes))?;
            told.flush()?;
        }
        Ok(())
    })
}
