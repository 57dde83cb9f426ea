//! The tool that runs a command of this machine.
//!
//! The command's input: words made from the arguments ([`CommandTemplate`]), the arguments as JSON on
//! standard input, and an environment that is empty but for `PATH`, the `WINDLASS_` variables of the call and
//! the declared ones. Its output: standard output is the result, standard error the log, and the exit code
//! the outcome: 0 is a result, 75 means that nothing happened and a retry is safe, 73 that the result comes
//! later by the issued key ([`Later`]), everything else is a failure. A command that was ended by a signal,
//! or whose launcher was, has no known outcome: then its class decides, as after a crash.

/// The exit code of shells and virtual machines when SIGTERM ended them or their command.
const EXIT_TERMINATED: i32 = 128 + 15;

mod ending;
mod pipe;
mod run;
mod stderr;
mod stdout;
mod template;
mod tree;

use ending::cut_off;
pub use ending::{CommandEnd, EXIT_PENDING, EXIT_SAFE, failure, start_failed};
pub use run::{CommandOutcome, CommandPiece, Invocation, RunningCommand, StartError, spawn};
pub use stderr::{CommandEvent, Tail};
pub use stdout::{BoundedOutput, TEXT};
pub(crate) use template::has_place;
pub use template::{CommandTemplate, TemplateError};

use crate::launcher::{Launcher, kill_survivors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use windlass::error::{FailureClass, Misuse, StepError};
use windlass::outcome::Part;
use windlass::sessions::ArtifactWriter;
use windlass::tool::{Reconcile, ReconcileFuture, Reconciled, Stream};
use windlass::wait::CompletionKey;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// A command as a tool.
#[derive(Clone, Debug)]
pub struct CommandTool {
    /// Its declaration.
    pub spec: ToolSpec,
    /// The words of its command line.
    pub words: CommandTemplate,
    /// The words of the command that determines whether an attempt took effect, if there is one.
    pub reconcile: Option<CommandTemplate>,
    /// How its result may come later, if it may.
    pub later: Option<Later>,
    /// The folder it is started in.
    pub cwd: PathBuf,
    /// Its environment, in addition to what every command gets.
    pub env: Vec<(String, String)>,
    /// The media type of its output, where that is declared: then the output is bytes, whatever it looks like.
    pub output_media_type: Option<String>,
    /// How it is started.
    pub launcher: Launcher,
}

/// The result may come later: the command gets a key, and the holder of the key posts the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Later {
    /// The maximum wait, if it is declared.
    pub within: Option<Duration>,
}

impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            if cx.attempt().0 > 1 {
                end_earlier_attempts(cx).await?;
            }
            let key = match self.later {
                Some(_) => Some(cx.completion(COMPLETION).await?),
                None => None,
            };
            let done = self.follow(&self.words, key.as_ref(), &args, cx).await?;
            if done.was_stopped() {
                return Err(ToolError::stopped());
            }
            if let CommandEnd::Exited(EXIT_PENDING) = done.ended.end {
                return Ok(self.pending(key));
            }
            match failure(&done.ended, &done.stdout) {
                Some(error) => Err(error),
                // Its effect stands, even if its result cannot be stored.
                None => done.into_output(self, cx).await.map_err(cut_off),
            }
        })
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        self.reconcile.as_ref().map(|_| self as &dyn Reconcile)
    }
}

impl Reconcile for CommandTool {
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        let Some(words) = &self.reconcile else { return Box::pin(async { Ok(Reconciled::Unknown) }) };
        Box::pin(async move {
            // A process that still runs could take effect after this check.
            end_earlier_attempts(cx).await?;
            let done = self.follow(words, None, &args, cx).await?;
            match failure(&done.ended, &done.stdout) {
                None => Ok(Reconciled::Landed(done.into_output(self, cx).await?)),
                Some(_) if matches!(done.ended.end, CommandEnd::Exited(EXIT_SAFE)) => {
                    Ok(Reconciled::DidNotHappen)
                }
                Some(error) => Err(error),
            }
        })
    }
}

/// A command that has ended, and its output.
struct CommandResult {
    ended: CommandOutcome,
    stdout: BoundedOutput,
    /// Output that is too large for memory.
    kept: Option<ArtifactWriter>,
    asked_to_end: bool,
}

impl CommandResult {
    /// Whether our stop ended it.
    fn was_stopped(&self) -> bool {
        self.asked_to_end
            && matches!(
                self.ended.end,
                CommandEnd::Signalled(SIGTERM | SIGKILL) | CommandEnd::Exited(EXIT_TERMINATED)
            )
    }

    async fn into_output(self, tool: &CommandTool, cx: &Cx) -> Result<Output, ToolError> {
        let CommandResult { stdout, mut kept, .. } = self;
        let promises = tool.spec.output_schema.is_some();
        let media_type = tool.output_media_type.as_deref().unwrap_or(stdout.media_type()).to_string();
        let (value, bytes) = match &tool.output_media_type {
            Some(_) => (Value::Null, stdout.into_bytes()),
            None => stdout.into_result(cx.limits()),
        };
        if let Some(bytes) = bytes {
            kept.get_or_insert_with(|| cx.keep()).write(&bytes).await?;
        }
        let Some(kept) = kept else { return Ok(value.into()) };
        let kept = kept.finish(&media_type).await?;
        // Where a value was promised, the runtime refuses bytes.
        if media_type == TEXT || promises {
            return Ok(Output { kept: Some(kept), ..Output::default() });
        }
        let part = match Part::is_image(&media_type) {
            true => Part::KeptImage { kept, media_type },
            false => Part::File { kept, media_type, name: "stdout".into() },
        };
        Ok(Output { parts: vec![part], ..Output::default() })
    }
}

/// The name of the one answer that a command waits for.
const COMPLETION: &str = "completion";

const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

impl CommandTool {
    /// Runs a command to its end. When asked to stop, it asks the command to end and keeps reading: output
    /// within the grace counts. Dropping this future drops `running`, and kills everything it started.
    async fn follow(
        &self,
        words: &CommandTemplate,
        key: Option<&CompletionKey>,
        args: &Value,
        cx: &Cx,
    ) -> Result<CommandResult, ToolError> {
        if cx.is_stopping() {
            return Err(ToolError::stopped().did_not_happen());
        }
        let limits = cx.limits();
        let tail = Tail::new(limits.stderr_tail_bytes_max as usize);
        let tail = if self.spec.emits.is_empty() { tail } else { tail.with_events() };
        let mut invocation = self.invocation(words, args, cx)?;
        invocation.env.extend(key.map(|key| ("WINDLASS_COMPLETION_KEY".into(), key.as_str().into())));
        let started = spawn(&self.launcher, invocation, tail).await;
        let mut running = started.map_err(|error| start_failed(&error))?;
        let mut stdout = BoundedOutput::new(limits.result_json_bytes_max as usize);
        let mut kept: Option<ArtifactWriter> = None;
        let mut asked_to_end = false;
        let mut told = BTreeMap::new();
        loop {
            let piece = tokio::select! {
                biased;
                () = cx.stopping(), if !asked_to_end => {
                    asked_to_end = true;
                    running.terminate().await;
                    continue;
                }
                piece = running.next() => piece.map_err(unreadable).map_err(cut_off)?,
            };
            match piece {
                None => break,
                Some(CommandPiece::Stderr(piece)) => {
                    cx.output(Stream::Err, piece);
                    running.take_progress().into_iter().for_each(|progress| cx.progress(progress));
                    for event in running.take_events() {
                        tell(event, &mut told, cx).await.map_err(cut_off)?;
                    }
                }
                Some(CommandPiece::Stdout(piece)) => {
                    cx.output(Stream::Out, piece);
                    if let Some(overflow) = stdout.take(piece) {
                        let kept = kept.get_or_insert_with(|| cx.keep());
                        kept.write(&overflow).await.map_err(|error| cut_off(error.into()))?;
                    }
                }
            }
        }
        Ok(CommandResult { ended: running.end().await, stdout, kept, asked_to_end })
    }

    fn pending(&self, key: Option<CompletionKey>) -> Output {
        match self.later.and_then(|later| later.within) {
            Some(within) => Output::pending(key).within(within),
            None => Output::pending(key),
        }
    }

    fn invocation(&self, words: &CommandTemplate, args: &Value, cx: &Cx) -> Result<Invocation, ToolError> {
        let words = words.fill(args).map_err(|error| ToolError {
            class: FailureClass::InvalidRequest,
            did_not_happen: true,
            ..ToolError::new(error.to_string())
        })?;
        let call = cx.handle().to_string();
        let own = [
            ("WINDLASS_CALL_ID", cx.id().to_string()),
            ("WINDLASS_IDEMPOTENCY_KEY", cx.idempotency_key()),
            ("WINDLASS_ATTEMPT", cx.attempt().0.to_string()),
            ("WINDLASS_SESSION", cx.session().to_string()),
        ];
        let listed = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let mut env: Vec<(OsString, OsString)> = listed.collect();
        env.extend(own.map(|(name, value)| (name.into(), value.into())));
        let traced = cx.traceparent().map(|parent| ("TRACEPARENT".into(), parent.to_string().into()));
        env.extend(traced);
        Ok(Invocation { call, words, env, cwd: self.cwd.clone(), stdin: args.to_string().into_bytes() })
    }
}

/// Emits an event, identified by its kind and its number within the kind. The command continues despite a
/// wrong event, since its work has begun: the log reports it.
async fn tell(event: CommandEvent, told: &mut BTreeMap<String, u64>, cx: &Cx) -> Result<(), ToolError> {
    let count = told.entry(event.kind.clone()).or_insert(0);
    *count += 1;
    match cx.emit(&format!("{} {count}", event.kind), &event.kind, &event.payload).await {
        Ok(_) => Ok(()),
        // An earlier attempt emitted it with another payload, which stands.
        Err(StepError::Misused(Misuse::Diverged { .. })) => Ok(()),
        Err(StepError::Misused(misuse)) => {
            cx.output(Stream::Err, format!("windlass: an event was not told: {misuse}\n").as_bytes());
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Kills the remains of earlier attempts of this call: dropping them did not wait for their end.
async fn end_earlier_attempts(cx: &Cx) -> Result<(), ToolError> {
    let call = cx.handle().to_string();
    let killed = tokio::task::spawn_blocking(move || kill_survivors(|handle| handle == call)).await;
    let error = match killed {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error,
        Err(error) => error.into(),
    };
    Err(ToolError::internal(format!("an earlier attempt of this call does not end: {error}")))
}

fn unreadable(error: std::io::Error) -> ToolError {
    ToolError::internal(format!(
        "the output of a command could not be read: {}",
        windlass::error::chain(&error)
    ))
}
