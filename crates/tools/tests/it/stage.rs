//! A runtime with declared commands, calls of them, and how they end.

use crate::rig::{alive, folder, in_time, launcher, wait_until};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use windlass::ask::Target;
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Runtime, Submitted};
use windlass_tools::load;

/// A runtime with one command, `t`, in a folder of its own.
pub struct Stage {
    pub runtime: Runtime,
    pub folder: PathBuf,
    _guard: tempfile::TempDir,
}

impl Stage {
    /// `keys` are what the declaration has beside the command, which is the script `run`.
    pub fn new(keys: &str, run: &str) -> Stage {
        let text = format!(
            "[tools.t]\ncommand = ['/bin/sh', 'run', '{{n}}']\ninput = {{ properties = {{ n = {{}} }} }}\n{keys}"
        );
        let stage = Stage::declared(&text);
        stage.write("run", run);
        stage
    }

    /// A runtime with the tools that this `windlass.toml` declares.
    pub fn declared(text: &str) -> Stage {
        let (guard, folder) = folder();
        let runtime = Runtime::new(Config::new(MemoryStore::new().expect("a store")));
        let declared = load(text, &folder.join("windlass.toml"), launcher()).expect("it is right");
        for tool in declared.tools {
            runtime.register_shared(tool).expect("registered");
        }
        Stage { runtime, folder, _guard: guard }
    }

    pub fn write(&self, file: &str, text: &str) {
        let file = self.folder.join(file);
        std::fs::write(&file, text).expect("written");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("executable");
    }

    /// A stage with a script that reconciles.
    pub fn reconciled(keys: &str, run: &str, reconcile: &str) -> Stage {
        let stage = Stage::new(&format!("{keys}\nreconcile = ['/bin/sh', 'reconcile', '{{n}}']"), run);
        stage.write("reconcile", reconcile);
        stage
    }

    pub async fn submit(&self) -> Submitted {
        submit(&self.runtime, "t", json!({ "n": 7 })).await
    }

    /// How the call ends by itself.
    pub async fn ends(&self) -> String {
        in_time(end(self.submit().await)).await
    }

    /// How the call ends when it is cancelled as soon as its script has made the file `ready`.
    pub async fn cancelled(&self) -> String {
        let waiting = self.submit().await;
        wait_until("the command is ready", || self.folder.join("ready").exists()).await;
        self.cancel(waiting).await
    }

    /// How the call that runs ends when it is cancelled.
    pub async fn cancel(&self, waiting: Submitted) -> String {
        let handle = self.runtime.live()[0].call.clone();
        let asked = in_time(self.runtime.cancel(Target::Call(&handle), None)).await.expect("it is open");
        assert_eq!(asked.asked, 1);
        in_time(end(waiting)).await
    }

    /// The content that the script wrote to this file.
    pub fn wrote(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).expect("the script wrote it").trim().to_string()
    }
}

pub async fn submit(runtime: &Runtime, tool: &str, args: Value) -> Submitted {
    let call = CallRequest {
        id: Some("c".into()),
        tool: tool.into(),
        args: Args::Json(args),
        ..CallRequest::default()
    };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    runtime.submit("s", batch).await.expect("taken")
}

/// The end of a call, its value or what it failed with, and its attempts; and nothing of it is left.
pub async fn end(waiting: Submitted) -> String {
    let answer = waiting.settled().await.expect("answered");
    let call = &answer.calls[0];
    let handle = call.handle().to_string();
    wait_until("nothing of the call is left", || alive(&handle).is_empty()).await;
    let shown = serde_json::to_value(call).expect("shown");
    let outcome = &shown["outcome"];
    let how = match call.failure() {
        Some(failure) => format!(" {}", failure.tool_code.as_deref().unwrap_or(failure.code.as_str())),
        None if outcome["effect"].is_string() => format!("{{{}}}", outcome["effect"].as_str().expect("text")),
        None if call.state() == "succeeded" => format!(" {}", call.model_text()),
        None => String::new(),
    };
    format!("{}{how}, {} attempts", call.state(), shown["attempts"])
}
