//! Follows a command of a call from its start to its end.

use super::ending::cut_off;
use super::{
    BoundedOutput, CommandEnd, CommandEvent, CommandOutcome, CommandPiece, EXIT_TERMINATED, Invocation,
    OutputEnds, Tail, spawn, start_failed,
};
use crate::launcher::Launcher;
use crate::sandbox::SandboxedRun;
use std::collections::BTreeMap;
use windlass::error::{Misuse, StepError};
use windlass::sessions::ArtifactWriter;
use windlass::tool::Stream;
use windlass::{Cx, ToolError};

/// A command that is to be run for a call.
pub(crate) struct FollowedCommand<'a> {
    pub(crate) launcher: &'a Launcher,
    pub(crate) invocation: Invocation,
    /// The rules it is under, which are part of the invocation already.
    pub(crate) sandbox: Option<SandboxedRun>,
    /// Whether lines of its log may be events.
    pub(crate) has_events: bool,
    /// Whether its error output is a result like its output, and not only a log.
    pub(crate) captures_stderr: bool,
}

/// A command that has ended, and its output.
pub(crate) struct CommandResult {
    pub(crate) ended: CommandOutcome,
    pub(crate) stdout: CapturedOutput,
    /// Its error output, if that was captured.
    pub(crate) stderr: Option<CapturedOutput>,
    /// The limit of its sandbox that it exceeded, if it was killed for that.
    pub(crate) exceeded: Option<String>,
    asked_to_end: bool,
}

/// Output in memory, and beside the journal if it is too large for that.
pub(crate) struct CapturedOutput {
    pub(crate) held: BoundedOutput,
    /// The ends of what is not held.
    pub(crate) ends: OutputEnds,
    pub(crate) kept: Option<ArtifactWriter>,
}

impl CapturedOutput {
    fn new(cx: &Cx) -> CapturedOutput {
        let held = BoundedOutput::new(cx.limits().result_json_bytes_max as usize);
        CapturedOutput { held, ends: OutputEnds::default(), kept: None }
    }

    async fn take(&mut self, piece: &[u8], cx: &Cx) -> Result<(), ToolError> {
        if let Some(overflow) = self.held.take(piece) {
            self.ends.take(&overflow);
            let kept = self.kept.get_or_insert_with(|| cx.keep());
            kept.write(&overflow).await.map_err(|error| cut_off(error.into()))?;
        }
        Ok(())
    }
}

impl CommandResult {
    /// Whether our stop ended it.
    pub(crate) fn was_stopped(&self) -> bool {
        self.asked_to_end
            && matches!(
                self.ended.end,
                CommandEnd::Signalled(SIGTERM | SIGKILL) | CommandEnd::Exited(EXIT_TERMINATED)
            )
    }
}

const SIGTERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIGKILL: i32 = rustix::process::Signal::KILL.as_raw();

impl FollowedCommand<'_> {
    /// Runs the command to its end. When asked to stop, it asks the command to end and keeps reading: output
    /// within the grace counts. Dropping this future drops `running`, and kills everything it started.
    pub(crate) async fn follow(self, cx: &Cx) -> Result<CommandResult, ToolError> {
        if cx.is_stopping() {
            return Err(ToolError::stopped().did_not_happen());
        }
        let tail = Tail::new(cx.limits().stderr_tail_bytes_max as usize).without(cx.scrubber());
        let tail = if self.has_events { tail.with_events() } else { tail };
        let started = spawn(self.launcher, self.invocation, tail).await;
        let mut running = started.map_err(|error| start_failed(&error))?;
        let mut stdout = CapturedOutput::new(cx);
        let mut stderr = self.captures_stderr.then(|| CapturedOutput::new(cx));
        let (mut asked_to_end, mut exceeded, mut told) = (false, None, BTreeMap::new());
        let launcher = running.launcher_id();
        let over = async {
            match &self.sandbox {
                Some(sandbox) => sandbox.exceeded(launcher).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            let piece = tokio::select! {
                biased;
                () = cx.stopping(), if !asked_to_end => {
                    asked_to_end = true;
                    running.terminate().await;
                    continue;
                }
                what = &mut over, if exceeded.is_none() => {
                    exceeded = Some(what);
                    running.kill().await;
                    continue;
                }
                piece = running.next() => piece.map_err(unreadable).map_err(cut_off)?,
            };
            match piece {
                None => break,
                Some(CommandPiece::Stderr(piece)) => {
                    cx.output(Stream::Err, piece);
                    if let Some(stderr) = &mut stderr {
                        stderr.take(piece, cx).await?;
                    }
                    running.take_progress().into_iter().for_each(|progress| cx.progress(progress));
                    for event in running.take_events() {
                        tell(event, &mut told, cx).await.map_err(cut_off)?;
                    }
                }
                Some(CommandPiece::Stdout(piece)) => {
                    cx.output(Stream::Out, piece);
                    stdout.take(piece, cx).await?;
                }
            }
        }
        Ok(CommandResult { ended: running.end().await, stdout, stderr, exceeded, asked_to_end })
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

fn unreadable(error: std::io::Error) -> ToolError {
    ToolError::internal(format!(
        "the output of a command could not be read: {}",
        windlass::error::chain(&error)
    ))
}
