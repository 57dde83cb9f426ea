//! Tools that note each of their runs, in memory or in a file that outlives the process.

use super::class;
use anyhow::Context;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass::{Cx, Deadlines, Flags, Output, Runtime, Tool, ToolError, ToolFuture, ToolSpec};

/// How often each call ran, as its tool knows it and no journal does.
#[derive(Clone, Default)]
pub struct RunCounts(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    runs: BTreeMap<String, u32>,
    file: Option<File>,
}

impl RunCounts {
    /// Noted in a file, after what is noted there already. A run is in the file before it has any effect.
    pub fn in_file(path: &Path) -> anyhow::Result<RunCounts> {
        let mut noted = Noted::default();
        if path.exists() {
            for line in std::fs::read_to_string(path)?.lines() {
                *noted.runs.entry(line.to_owned()).or_default() += 1;
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        noted.file = Some(file.with_context(|| format!("could not note runs in {}", path.display()))?);
        Ok(RunCounts(Arc::new(Mutex::new(noted))))
    }

    /// Calls by `session/batch/id`.
    pub fn all(&self) -> BTreeMap<String, u32> {
        self.lock().runs.clone()
    }

    fn note(&self, call: String) -> Result<(), ToolError> {
        let mut noted = self.lock();
        if let Some(file) = &mut noted.file {
            file.write_all(format!("{call}\n").as_bytes())
                .map_err(|error| ToolError::internal(format!("could not note a run: {error}")))?;
        }
        *noted.runs.entry(call).or_default() += 1;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const TOOLS: [&str; 9] = ["look", "put", "send", "kept", "long", "stream", "fail", "broken", "panics"];

/// Long enough to be kept beside the journal in several pieces.
pub const LONG_CHARS: usize = 300_000;

pub(super) fn register(runtime: &Runtime, runs: &RunCounts) -> anyhow::Result<()> {
    for name in TOOLS {
        runtime.register(Noting { name, runs: runs.clone() })?;
    }
    Ok(())
}

struct Noting {
    name: &'static str,
    runs: RunCounts,
}

impl Tool for Noting {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.to_owned(),
            class: Some(class(self.name)),
            input_schema: Some(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
            flags: Flags {
                quick: self.name == "look",
                persist_output: self.name == "kept",
                ..Flags::default()
            },
            deadlines: Deadlines { queue_ms: Some(600_000), ..Deadlines::default() },
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: serde_json::Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            self.runs.note(format!("{}/{}/{}", cx.session(), cx.batch_key(), cx.id()))?;
            // Others get their turn while this one runs, so that claims are waited for.
            if self.name != "look" {
                tokio::task::yield_now().await;
            }
            match self.name {
                "fail" => Err(ToolError::new("The tool could not do it; ask for less.")),
                "broken" => Err(ToolError::internal("SECRET-DETAIL of the database")),
                // A panic that calls no hook: it is part of the work, and thousands of them would drown the rest.
                "panics" => std::panic::resume_unwind(Box::new("SECRET-DETAIL of a panic")),
                "long" => Ok(json!("l".repeat(LONG_CHARS)).into()),
                "stream" => {
                    let mut writer = cx.keep();
                    for _ in 0..3 {
                        writer.write(&vec![b's'; LONG_CHARS / 3]).await?;
                    }
                    Ok(Output { kept: Some(writer.finish("text/plain").await?), ..Output::default() })
                }
                name => Ok(json!({"did": name, "n": args["n"]}).into()),
            }
        })
    }
}
