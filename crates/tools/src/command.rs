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

mod bound;
mod ending;
mod ends;
mod follow;
mod pipe;
mod run;
mod stderr;
mod stdout;
mod template;
mod tree;

pub(crate) use bound::{ApprovedProgram, BoundCommand, CommandFiles};
pub(crate) use ending::cut_off;
pub use ending::{CommandEnd, EXIT_PENDING, EXIT_SAFE, failure, start_failed};
pub(crate) use ends::OutputEnds;
pub(crate) use follow::{CapturedOutput, CommandResult, FollowedCommand};
pub(crate) use run::executable;
pub use run::{CommandOutcome, CommandPiece, Invocation, ProgramFile, RunningCommand, StartError, spawn};
pub use stderr::{CommandEvent, Tail};
pub(crate) use stdout::image_type;
pub use stdout::{BoundedOutput, TEXT};
pub use template::{CommandTemplate, TemplateError};
pub(crate) use template::{FilledWord, has_place};

use crate::launcher::{Launcher, kill_survivors};
use crate::sandbox::{ProgramChoice, SANDBOX_REFUSAL, Sandbox, complained, refused};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use windlass::error::{FailureClass, Retry};
use windlass::outcome::Part;
use windlass::tool::{
    BoundFuture, PrepareCx, PrepareFuture, Prepared, Reconcile, ReconcileFuture, Reconciled,
};
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
    pub env: Vec<(String, Variable)>,
    /// The media type of its output, where that is declared: then the output is bytes, whatever it looks like.
    pub output_media_type: Option<String>,
    /// How it is started.
    pub launcher: Launcher,
    /// The sandbox it runs in, if it has one.
    pub sandbox: Option<Sandbox>,
}

/// The value of a variable of a command's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// As it is.
    Plain(String),
    /// The secret of this name.
    Secret(String),
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
            let approved = cx.approved::<ApprovedProgram>();
            let words = CommandWords { template: &self.words, approved: approved.as_deref() };
            let done = self.follow(words, key.as_ref(), &args, cx).await?;
            if done.was_stopped() {
                return Err(ToolError::stopped());
            }
            if let CommandEnd::Exited(EXIT_PENDING) = done.ended.end {
                return Ok(self.pending(key));
            }
            match failure(&done.ended, &done.stdout.held, &cx.scrubber()) {
                Some(error) => Err(error),
                // Its effect stands, even if its result cannot be stored.
                None => done.into_output(self, cx).await.map_err(cut_off),
            }
        })
    }

    /// Records the rules of the sandbox with the call.
    fn prepare<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        let sandbox = self.sandbox.as_ref()?;
        Some(Box::pin(async move { sandbox.rules(false).await.map(Prepared::Payload) }))
    }

    /// The declaration, and the bytes of the program and of the files that the words name.
    fn bound<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        Some(Box::pin(async move {
            let words = self.words.fill_words(args).map_err(|error| unfilled(&error))?;
            let cwd = match self.sandbox {
                Some(_) => cx.files()?.host_folder()?.join(&self.cwd),
                None => self.cwd.clone(),
            };
            let files = CommandFiles::Host { cwd, path: self.program_path() };
            BoundCommand { declared: self.declared(), words, files }.read().await
        }))
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
            let words = CommandWords { template: words, approved: None };
            let done = self.follow(words, None, &args, cx).await?;
            match failure(&done.ended, &done.stdout.held, &cx.scrubber()) {
                None => Ok(Reconciled::Landed(done.into_output(self, cx).await?)),
                Some(_) if matches!(done.ended.end, CommandEnd::Exited(EXIT_SAFE)) => {
                    Ok(Reconciled::DidNotHappen)
                }
                Some(error) => Err(error),
            }
        })
    }
}

impl CommandResult {
    async fn into_output(self, tool: &CommandTool, cx: &Cx) -> Result<Output, ToolError> {
        let CapturedOutput { held: stdout, mut kept, .. } = self.stdout;
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

impl CommandTool {
    /// Runs a command to its end, in the sandbox if the tool has one.
    async fn follow(
        &self,
        words: CommandWords<'_>,
        key: Option<&CompletionKey>,
        args: &Value,
        cx: &Cx,
    ) -> Result<CommandResult, ToolError> {
        let mut invocation = self.invocation(words, args, cx).await?;
        invocation.env.extend(key.map(|key| ("WINDLASS_COMPLETION_KEY".into(), key.as_str().into())));
        let (invocation, sandbox) = match &self.sandbox {
            Some(sandbox) => {
                let (invocation, run) = sandbox.enter(invocation, ProgramChoice::Operator, cx).await?;
                (invocation, Some(run))
            }
            None => (invocation, None),
        };
        let (launcher, has_events) = (&self.launcher, !self.spec.emits.is_empty());
        let command = FollowedCommand { launcher, invocation, sandbox, has_events, captures_stderr: false };
        let done = command.follow(cx).await?;
        if self.sandbox.is_some()
            && matches!(done.ended.end, CommandEnd::Exited(EXIT_SAFE))
            && let Some(why) = done.ended.stderr.clone().text().strip_prefix(SANDBOX_REFUSAL)
        {
            return Err(refused(why));
        }
        if self.sandbox.is_some()
            && let Some(complaint) = complained(&done.ended)
        {
            return Err(complaint);
        }
        match done.exceeded {
            // It would do so again.
            Some(what) => Err(ToolError { retry: Retry::Never, ..ToolError::aborted(killed_for(&what)) }),
            None => Ok(done),
        }
    }

    fn pending(&self, key: Option<CompletionKey>) -> Output {
        match self.later.and_then(|later| later.within) {
            Some(within) => Output::pending(key).within(within),
            None => Output::pending(key),
        }
    }

    async fn invocation(
        &self,
        words: CommandWords<'_>,
        args: &Value,
        cx: &Cx,
    ) -> Result<Invocation, ToolError> {
        let program_file = words.approved.map(ProgramFile::of);
        let words = words.template.fill(args).map_err(|error| unfilled(&error))?;
        let call = cx.handle().to_string();
        let own = [
            ("WINDLASS_CALL_ID", cx.id().to_string()),
            ("WINDLASS_IDEMPOTENCY_KEY", cx.idempotency_key()),
            ("WINDLASS_ATTEMPT", cx.attempt().0.to_string()),
            ("WINDLASS_SESSION", cx.session().to_string()),
        ];
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        for (name, value) in &self.env {
            let value = match value {
                Variable::Plain(value) => value.into(),
                Variable::Secret(secret) => environment_secret(secret, cx).await?,
            };
            env.push((name.into(), value));
        }
        env.extend(own.map(|(name, value)| (name.into(), value.into())));
        let traced = cx.traceparent().map(|parent| ("TRACEPARENT".into(), parent.to_string().into()));
        env.extend(traced);
        let (cwd, stdin) = (self.cwd.clone(), args.to_string().into_bytes());
        Ok(Invocation { call, words, program_file, env, cwd, stdin, stdin_file: None })
    }

    /// Everything that is declared about what runs, as one text, with the names of secrets.
    fn declared(&self) -> String {
        let env: Vec<Value> = self.env.iter().map(|(name, value)| json!([name, value.declared()])).collect();
        json!({
            "command": self.words.declared(),
            "reconcile": self.reconcile.as_ref().map(CommandTemplate::declared),
            "cwd": self.cwd.to_string_lossy(),
            "env": env,
            "sandbox": self.sandbox.as_ref().map(Sandbox::profile),
        })
        .to_string()
    }

    /// The folders in which the program is looked for: the declared ones, or ours.
    fn program_path(&self) -> OsString {
        let declared = self.env.iter().rev().find_map(|(name, value)| match value {
            Variable::Plain(value) if name == "PATH" => Some(value.into()),
            Variable::Plain(_) | Variable::Secret(_) => None,
        });
        declared.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
    }
}

/// The words of a command that is run for a call.
#[derive(Clone, Copy)]
struct CommandWords<'a> {
    template: &'a CommandTemplate,
    /// The program that a person approved, if one had to.
    approved: Option<&'a ApprovedProgram>,
}

impl Variable {
    fn declared(&self) -> String {
        match self {
            Variable::Plain(value) => value.clone(),
            Variable::Secret(name) => format!("secret:{name}"),
        }
    }
}

fn unfilled(error: &TemplateError) -> ToolError {
    let class = FailureClass::InvalidRequest;
    ToolError { class, did_not_happen: true, ..ToolError::new(error.to_string()) }
}

/// The secret of this name, for an environment.
async fn environment_secret(name: &str, cx: &Cx) -> Result<OsString, ToolError> {
    let secret = cx.secret(name).await?;
    if secret.expose().contains('\0') {
        let what = format!("the secret {name:?} contains a NUL character, which no environment can carry");
        return Err(ToolError::internal(what).did_not_happen());
    }
    Ok(secret.expose().into())
}

/// Kills the remains of earlier attempts of this call: dropping them did not wait for their end.
pub(crate) async fn end_earlier_attempts(cx: &Cx) -> Result<(), ToolError> {
    let call = cx.handle().to_string();
    let killed = tokio::task::spawn_blocking(move || kill_survivors(|handle| handle == call)).await;
    let error = match killed {
        Ok(Ok(_)) => return Ok(()),
        Ok(Err(error)) => error,
        Err(error) => error.into(),
    };
    Err(ToolError::internal(format!("an earlier attempt of this call does not end: {error}")))
}

/// The failure of a command that its sandbox killed.
pub(crate) fn killed_for(what: &str) -> String {
    format!(
        "The command used {what}, which its sandbox does not allow, and was killed with everything it had started."
    )
}
