//! Commands in a sandbox: what they can do, what is recorded, and what they cannot reach.

mod outputs;
mod probes;
mod running;

use crate::rig::{PATIENCE, in_time, launcher};
use serde_json::{Value, json};
use std::path::PathBuf;
use windlass::store::memory::MemoryStore;
use windlass::{Args, BatchRequest, CallRequest, Config, Runtime};
use windlass_tools::RunCommand;
use windlass_tools::sandbox::{Sandbox, SandboxBackend, SandboxProfile};

/// The folder for the data folders of tests, for a user who cannot write to the usual one.
pub const PLACE: &str = "WINDLASS_TEST_SANDBOX_PLACE";

/// A runtime whose commands run in a sandbox, with a data folder of its own.
pub struct SandboxStage {
    pub runtime: Runtime,
    pub data: PathBuf,
    _guard: tempfile::TempDir,
}

impl SandboxStage {
    pub fn new(backend: SandboxBackend, profile: SandboxProfile) -> SandboxStage {
        let stage = SandboxStage::empty();
        let sandbox = Sandbox::enforced_by(backend, profile, launcher());
        stage.runtime.register(RunCommand { launcher: launcher(), sandbox }).expect("registered");
        stage
    }

    /// A runtime without tools.
    pub fn empty() -> SandboxStage {
        // Not in /tmp, which the sandbox replaces: data folders are elsewhere.
        let place = std::env::var_os(PLACE).map_or(PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
        let guard = tempfile::tempdir_in(place).expect("a folder");
        let data = guard.path().join("data");
        std::fs::create_dir(&data).expect("a data folder");
        let files = Some(data.join("files"));
        let runtime = Runtime::new(Config { files, ..Config::new(MemoryStore::new().expect("a store")) });
        SandboxStage { runtime, data, _guard: guard }
    }

    /// The answer to one call in a session.
    pub async fn call(&self, session: &str, tool: &str, args: Value) -> Value {
        let call = CallRequest {
            id: Some("c".into()),
            tool: tool.into(),
            args: Args::Json(args),
            // Its end is wanted, however busy the machine is.
            inline_ms: Some(PATIENCE.as_millis() as u64),
            ..CallRequest::default()
        };
        let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
        let answer = in_time(async {
            let submitted = self.runtime.submit(session, batch).await.expect("submitted");
            submitted.settled().await.expect("settled")
        })
        .await;
        serde_json::to_value(answer.calls[0].view_for_operators()).expect("shown")
    }

    pub async fn run(&self, session: &str, argv: &[&str]) -> Value {
        self.call(session, "run_command", json!({ "argv": argv })).await
    }
}

/// The backends that work here. The others are named with the reason, so that nobody takes them for tested.
pub fn backends() -> Vec<SandboxBackend> {
    let works = |backend: &SandboxBackend| match backend.check(&launcher()) {
        Ok(()) => true,
        Err(why) => {
            eprintln!("SKIPPED: {backend} does not work here: {why}");
            false
        }
    };
    SandboxBackend::ALL.into_iter().filter(works).collect()
}
