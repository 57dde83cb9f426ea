//! The tool that runs a command of this machine.
//!
//! What the command is given: words made from the arguments ([`Template`]), the arguments as JSON on standard
//! input, and an environment that is empty but for `PATH`, the `WINDLASS_` variables of the call and what the
//! declaration lists. What it says: standard output is the result, standard error the log, and the exit code
//! how it went: 0 is a result, 75 means that nothing happened and it may be tried again, everything else failed.

mod ending;
mod run;
mod stderr;
mod stdout;
mod template;

pub use ending::{EXIT_SAFE, End, failure};
pub use run::{Ended, Invocation, Running, StartError, spawn};
pub use stderr::Tail;
pub use stdout::{Held, TEXT};
pub(crate) use template::has_place;
pub use template::{Template, TemplateError};

use crate::launcher::Launcher;
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use windlass::core::outcome::Part;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// A command as a tool.
#[derive(Clone, Debug)]
pub struct CommandTool {
    /// What is known of it.
    pub spec: ToolSpec,
    /// The words it is started with.
    pub words: Template,
    /// The folder it is started in.
    pub cwd: PathBuf,
    /// What its environment has beside what every command gets.
    pub env: Vec<(String, String)>,
    /// How it is started.
    pub launcher: Launcher,
}

impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        // Dropping this future drops `running`, and with it goes the command and all it started.
        Box::pin(async move {
            let invocation = self.invocation(&args, cx)?;
            let limits = cx.limits();
            let tail = Tail::new(limits.stderr_tail_bytes_max as usize);
            let mut running = spawn(&self.launcher, invocation, tail).await?;
            let mut held = Held::new(limits.result_json_bytes_max as usize);
            let mut kept = None;
            while let Some(piece) = running.stdout().await.map_err(unreadable)? {
                if let Some(overflow) = held.take(piece) {
                    kept.get_or_insert_with(|| cx.keep()).write(&overflow).await?;
                }
            }
            let ended = running.end().await;
            if let Some(error) = failure(self.spec.display_title(), &ended, &held) {
                return Err(error);
            }
            let media_type = held.media_type();
            let (value, bytes) = held.into_result(limits);
            if let Some(bytes) = bytes {
                kept.get_or_insert_with(|| cx.keep()).write(&bytes).await?;
            }
            let Some(kept) = kept else { return Ok(value.into()) };
            let kept = kept.finish().await?;
            if media_type == TEXT {
                return Ok(Output { kept: Some(kept), ..Output::default() });
            }
            let file = Part::File { kept, media_type: media_type.into(), name: "stdout".into() };
            Ok(Output { parts: vec![file], ..Output::default() })
        })
    }
}

impl CommandTool {
    fn invocation(&self, args: &Value, cx: &Cx) -> Result<Invocation, ToolError> {
        let words =
            self.words.fill(args).map_err(|error| ToolError::new(error.to_string()).did_not_happen())?;
        let call = cx.call().to_string();
        let own = [
            ("WINDLASS_CALL_ID", cx.id().to_string()),
            ("WINDLASS_IDEMPOTENCY_KEY", cx.idempotency_key()),
            ("WINDLASS_ATTEMPT", cx.attempt().0.to_string()),
            ("WINDLASS_SESSION", cx.session().to_string()),
        ];
        let listed = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let mut env: Vec<(OsString, OsString)> = listed.collect();
        env.extend(own.map(|(name, value)| (name.into(), value.into())));
        Ok(Invocation { call, words, env, cwd: self.cwd.clone(), stdin: args.to_string().into_bytes() })
    }
}

fn unreadable(error: std::io::Error) -> ToolError {
    ToolError::internal(format!("the output of a command could not be read: {}", windlass::chain(&error)))
}
