//! The tool that runs a command of this machine.
//!
//! What the command is given: words made from the arguments ([`Template`]), the arguments as JSON on standard
//! input, and an environment that is empty but for `PATH`, the `WINDLASS_` variables of the call and what the
//! declaration lists. What it says: standard output is the result, standard error the log, and the exit code
//! how it went: 0 is a result, 75 means that nothing happened and it may be tried again, 73 that the result comes later by
//! the key it was given ([`Later`]), everything else failed.

/// What shells and virtual machines exit with when SIGTERM ended them or what they ran.
const EXIT_TERMINATED: i32 = 128 + 15;

mod ending;
mod pipe;
mod run;
mod stderr;
mod stdout;
mod template;
mod tree;

pub use ending::{EXIT_PENDING, EXIT_SAFE, End, failure};
pub use run::{Ended, Invocation, Piece, Running, StartError, spawn};
pub use stderr::{Event, Tail};
pub use stdout::{Held, TEXT};
pub(crate) use template::has_place;
pub use template::{Template, TemplateError};

use crate::launcher::{Launcher, kill_survivors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use windlass::core::failure::FailureClass;
use windlass::core::outcome::Part;
use windlass::{
    ArtifactWriter, CompletionKey, Cx, Misuse, Output, Reconcile, ReconcileFuture, Reconciled, StepError,
    Stream, Tool, ToolError, ToolFuture, ToolSpec,
};

/// A command as a tool.
#[derive(Clone, Debug)]
pub struct CommandTool {
    /// What is known of it.
    pub spec: ToolSpec,
    /// The words it is started with.
    pub words: Template,
    /// The words of the command that tells whether an attempt took effect, if there is one.
    pub reconcile: Option<Template>,
    /// How its result may come later, if it may.
    pub later: Option<Later>,
    /// The folder it is started in.
    pub cwd: PathBuf,
    /// What its environment has beside what every command gets.
    pub env: Vec<(String, String)>,
    /// How it is started.
    pub launcher: Launcher,
}

/// The result may come later: the command is given a key, and whoever has it says the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Later {
    /// How long that is waited for, where the command's declaration says so.
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
            let done = self.follow((&self.words, key.as_ref()), &args, cx).await?;
            if done.was_stopped() {
                return Err(ToolError::stopped());
            }
            if let End::Exited(EXIT_PENDING) = done.ended.end {
                return Ok(self.pending(key));
            }
            match failure(self.spec.display_title(), &done.ended, &done.stdout) {
                Some(error) => Err(error),
                None => done.into_output(cx).await,
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
            // What still runs could take effect after it was found that it did not.
            end_earlier_attempts(cx).await?;
            let done = self.follow((words, None), &args, cx).await?;
            match failure(self.spec.display_title(), &done.ended, &done.stdout) {
                None => Ok(Reconciled::Landed(done.into_output(cx).await?)),
                Some(_) if matches!(done.ended.end, End::Exited(EXIT_SAFE)) => Ok(Reconciled::DidNotHappen),
                Some(error) => Err(error),
            }
        })
    }
}

/// A command that has ended, and what it said.
struct Done {
    ended: Ended,
    stdout: Held,
    /// What is too much to be held.
    kept: Option<ArtifactWriter>,
    asked_to_end: bool,
}

impl Done {
    /// Whether it ended by what we did to end it, and not by itself.
    fn was_stopped(&self) -> bool {
        self.asked_to_end
            && matches!(self.ended.end, End::Signalled(SIGTERM | SIGKILL) | End::Exited(EXIT_TERMINATED))
    }

    async fn into_output(self, cx: &Cx) -> Result<Output, ToolError> {
        let Done { stdout, mut kept, .. } = self;
        let media_type = stdout.media_type();
        let (value, bytes) = stdout.into_result(cx.limits());
        if let Some(bytes) = bytes {
            kept.get_or_insert_with(|| cx.keep()).write(&bytes).await?;
        }
        let Some(kept) = kept else { return Ok(value.into()) };
        let kept = kept.finish(media_type).await?;
        if media_type == TEXT {
            return Ok(Output { kept: Some(kept), ..Output::default() });
        }
        let file = Part::File { kept, media_type: media_type.into(), name: "stdout".into() };
        Ok(Output { parts: vec![file], ..Output::default() })
    }
}

/// The name of the one answer that a command waits for.
const COMPLETION: &str = "completion";

const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

impl CommandTool {
    /// Runs a command to its end. Told to stop, it asks the command to end and goes on reading: what the command
    /// makes of its grace counts. Dropping this future drops `running`, and with it goes all that was started.
    async fn follow(
        &self,
        (words, key): (&Template, Option<&CompletionKey>),
        args: &Value,
        cx: &Cx,
    ) -> Result<Done, ToolError> {
        if cx.is_stopping() {
            return Err(ToolError::stopped().did_not_happen());
        }
        let limits = cx.limits();
        let tail = Tail::new(limits.stderr_tail_bytes_max as usize);
        let tail = if self.spec.emits.is_empty() { tail } else { tail.with_events() };
        let mut invocation = self.invocation(words, args, cx)?;
        invocation.env.extend(key.map(|key| ("WINDLASS_COMPLETION_KEY".into(), key.as_str().into())));
        let mut running = spawn(&self.launcher, invocation, tail).await?;
        let mut stdout = Held::new(limits.result_json_bytes_max as usize);
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
                piece = running.next() => piece.map_err(unreadable)?,
            };
            match piece {
                None => break,
                Some(Piece::Stderr(piece)) => {
                    cx.output(Stream::Err, piece);
                    running.take_progress().into_iter().for_each(|progress| cx.progress(progress));
                    for event in running.take_events() {
                        tell(event, &mut told, cx).await?;
                    }
                }
                Some(Piece::Stdout(piece)) => {
                    cx.output(Stream::Out, piece);
                    if let Some(overflow) = stdout.take(piece) {
                        kept.get_or_insert_with(|| cx.keep()).write(&overflow).await?;
                    }
                }
            }
        }
        Ok(Done { ended: running.end().await, stdout, kept, asked_to_end })
    }

    fn pending(&self, key: Option<CompletionKey>) -> Output {
        match self.later.and_then(|later| later.within) {
            Some(within) => Output::pending(key).within(within),
            None => Output::pending(key),
        }
    }

    fn invocation(&self, words: &Template, args: &Value, cx: &Cx) -> Result<Invocation, ToolError> {
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
        Ok(Invocation { call, words, env, cwd: self.cwd.clone(), stdin: args.to_string().into_bytes() })
    }
}

/// Tells of an event, known by its kind and by how many of that kind came before it. The command goes on whatever is wrong with
/// an event, since what it does has begun: the log says so.
async fn tell(event: Event, told: &mut BTreeMap<String, u64>, cx: &Cx) -> Result<(), ToolError> {
    let count = told.entry(event.kind.clone()).or_insert(0);
    *count += 1;
    match cx.emit(&format!("{} {count}", event.kind), &event.kind, &event.payload).await {
        Ok(()) => Ok(()),
        // An attempt before this one has told of it in other words, and those stand.
        Err(StepError::Misused(Misuse::Diverged { .. })) => Ok(()),
        Err(StepError::Misused(misuse)) => {
            cx.output(Stream::Err, format!("windlass: an event was not told: {misuse}\n").as_bytes());
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Kills what is left of earlier attempts of this call: whoever dropped them did not wait for their end.
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
    ToolError::internal(format!("the output of a command could not be read: {}", windlass::chain(&error)))
}
