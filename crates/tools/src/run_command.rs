//! `run_command`: runs a command in the session's folder, in a sandbox. Only there where the configuration asks for it.

use crate::command::{
    ApprovedProgram, BoundCommand, CapturedOutput, CommandEnd, CommandFiles, CommandResult, EXIT_SAFE,
    FilledWord, FollowedCommand, Invocation, ProgramFile, end_earlier_attempts, failure, killed_for,
};
use crate::files::is_mostly_text;
use crate::launcher::Launcher;
use crate::sandbox::{
    ProgramChoice, REFUSED_PROGRAM, SANDBOX_REFUSAL, Sandbox, complained, recorded, refused,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Component, Path, PathBuf};
use std::string::FromUtf8Error;
use windlass::error::FailureClass;
use windlass::outcome::Part;
use windlass::tool::{
    BoundFuture, Claims, Hints, Need, PrepareCx, PrepareFuture, Prepared, Reconcile, ReconcileFuture,
    Reconciled, ToolSource,
};
use windlass::{
    Cx, Deadlines, EffectClass, Flags, Limits, Output, RetryRule, Tool, ToolError, ToolFuture, ToolSpec,
};

/// A tool that runs the commands of a model.
#[derive(Clone, Debug)]
pub struct RunCommand {
    /// How commands are started.
    pub launcher: Launcher,
    /// The sandbox they run in.
    pub sandbox: Sandbox,
}

#[derive(Deserialize)]
struct RunCommandArgs {
    argv: Vec<String>,
    #[serde(default)]
    cwd: String,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    read_only: bool,
}

/// The name under which calls claim all files of their session.
const ALL_FILES: &str = "file:";
/// How long a caller waits for a command until it continues as a task.
const INLINE_MS: u64 = 30_000;
/// How long a command may run.
const ATTEMPT_MS: u64 = 600_000;
/// A command that had no effect runs once more after a crash.
const ATTEMPTS: u32 = 2;

impl Tool for RunCommand {
    fn spec(&self) -> ToolSpec {
        let network = self.sandbox.profile().network;
        let reach = if network { "It may use the network." } else { "It has no network." };
        ToolSpec {
            name: "run_command".into(),
            title: "Run a command".into(),
            description: format!(
                "Runs a program with its arguments in the session's folder and returns its exit code and output. There is no shell: for \
                 pipes and wildcards run [\"sh\", \"-c\", \"...\"]. The command runs in a sandbox: it sees the programs of the system, and \
                 can change only files of the session's folder and temporary files in $TMPDIR. {reach} An exit code above 128 means that \
                 signal code - 128 ended it."
            ),
            input_schema: Some(input_schema()),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "exit_code": { "type": "integer" },
                    "stdout": { "type": ["string", "null"] },
                    "stderr": { "type": ["string", "null"] },
                },
                "required": ["exit_code", "stdout", "stderr"],
            })),
            class: Some(EffectClass::Once),
            hints: Hints {
                read_only: Some(false),
                destructive: Some(true),
                open_world: Some(network),
                long_running: Some(true),
                ingests_untrusted: Some(network),
                sends_out: Some(network),
                ..Hints::default()
            },
            flags: Flags { background: true, ..Flags::default() },
            claims: Some(vec![format!("write {ALL_FILES}")]),
            deadlines: Deadlines { attempt_ms: Some(ATTEMPT_MS), ..Deadlines::default() },
            inline_ms: Some(INLINE_MS),
            retry: RetryRule { attempts: Some(ATTEMPTS), ..RetryRule::default() },
            needs: vec![Need::Files],
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    /// A command that only reads holds up no other reader.
    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        let only_reads = args.get("read_only").and_then(Value::as_bool) == Some(true);
        only_reads.then(|| {
            let claims = Claims::parse([format!("read {ALL_FILES}").as_str()], &Limits::default().call());
            claims.map_err(|error| ToolError::internal(error.to_string()))
        })
    }

    /// Records the rules of the sandbox with the call.
    fn prepare<'a>(&'a self, args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        Some(Box::pin(async move {
            let args: RunCommandArgs = crate::small::parse(args.clone())?;
            checked(&args)?;
            self.sandbox.rules(args.read_only).await.map(Prepared::Payload)
        }))
    }

    /// The bytes of the files of the session that its words name.
    fn bound<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        Some(Box::pin(async move {
            let args: RunCommandArgs = crate::small::parse(args.clone())?;
            let files = CommandFiles::Session { files: cx.files()?, cwd: checked(&args)? };
            let words =
                args.argv.iter().map(|word| FilledWord { text: word.into(), is_fixed: false }).collect();
            let declared = json!({ "sandbox": self.sandbox.profile() }).to_string();
            BoundCommand { declared, words, files }.read().await
        }))
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: RunCommandArgs = crate::small::parse(args)?;
            let cwd = checked(&args)?;
            if cx.attempt().0 > 1 {
                end_earlier_attempts(cx).await?;
            }
            // A whole command line in one string is the usual mistake.
            let one_word = match args.argv.as_slice() {
                [line] if line.contains(' ') => Some(line.clone()),
                _ => None,
            };
            let words = args.argv.iter().map(Into::into).collect();
            let (call, stdin) = (cx.handle().to_string(), args.stdin.into_bytes());
            let env = vec![("WINDLASS_SESSION".into(), cx.session().into())];
            let approved = cx.approved::<ApprovedProgram>();
            let program_file = approved.as_deref().map(ProgramFile::of);
            let invocation = Invocation { call, words, program_file, env, cwd, stdin, stdin_file: None };
            let (invocation, run) = self.sandbox.enter(invocation, ProgramChoice::Caller, cx).await?;
            let command = FollowedCommand {
                launcher: &self.launcher,
                invocation,
                sandbox: Some(run),
                has_events: false,
                captures_stderr: true,
            };
            let done = Box::pin(command.follow(cx)).await?;
            Box::pin(answer(done, one_word.as_deref(), cx)).await
        })
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        Some(self)
    }
}

impl Reconcile for RunCommand {
    /// A command that could change nothing had no effect, however far it came. Of any other nobody knows.
    fn reconcile<'a>(&'a self, _args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin(async move {
            end_earlier_attempts(cx).await?;
            let rules = recorded(cx)?;
            let can_change_nothing =
                rules.read_only && !rules.profile.network && rules.profile.write.is_empty();
            Ok(if can_change_nothing { Reconciled::DidNotHappen } else { Reconciled::Unknown })
        })
    }
}

fn input_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "argv": {
                "type": "array",
                "items": { "type": "string", "pattern": "^[^\\u0000]*$" },
                "minItems": 1,
                "maxItems": 1_000,
                "description": "The program and its arguments, each a string of its own.",
            },
            "cwd": {
                "type": "string",
                "description": "The folder to run in, relative to the session's folder; default the session's folder itself.",
            },
            "stdin": { "type": "string", "description": "The text on its standard input; default none." },
            "read_only": {
                "type": "boolean",
                "default": false,
                "description": "True if the command changes no file of the session: then it cannot, and other calls can read files \
                    while it runs.",
            },
        },
        "required": ["argv"],
        "additionalProperties": false,
    })
}

/// The folder to run in, relative to the session's.
fn checked(args: &RunCommandArgs) -> Result<PathBuf, ToolError> {
    let refused = |message: String| {
        Err(ToolError {
            class: FailureClass::InvalidRequest,
            did_not_happen: true,
            ..ToolError::new(message)
        })
    };
    if args.argv.first().is_none_or(String::is_empty) {
        return refused("argv must begin with the program".to_string());
    }
    let cwd = Path::new(&args.cwd);
    if cwd.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
        || args.cwd.contains('\0')
    {
        return refused(format!(
            "cwd is {:?}, and must be a folder below the session's folder, without ..",
            args.cwd
        ));
    }
    Ok(cwd.to_path_buf())
}

async fn answer(done: CommandResult, one_word: Option<&str>, cx: &Cx) -> Result<Output, ToolError> {
    if done.was_stopped() {
        return Err(ToolError::stopped());
    }
    if let Some(what) = &done.exceeded {
        return Err(ToolError {
            tool_code: Some("sandbox_limit".into()),
            ..ToolError::new(killed_for(what))
        });
    }
    if let Some(complaint) = complained(&done.ended) {
        return Err(complaint);
    }
    let exit_code = match done.ended.end {
        CommandEnd::Exited(EXIT_SAFE) => match refusal(&done, one_word) {
            Some(error) => return Err(error),
            None => EXIT_SAFE,
        },
        CommandEnd::Exited(code) => code,
        CommandEnd::Signalled(signal) => 128 + signal,
        CommandEnd::NotStarted(_) | CommandEnd::Lost => {
            let error = failure(&done.ended, &done.stdout.held, &cx.scrubber());
            return Err(error.unwrap_or_else(|| ToolError::internal("the command did not end")));
        }
    };
    let mut parts = Vec::new();
    let stdout = shown(done.stdout, "stdout", &mut parts, cx).await?;
    let stderr = match done.stderr {
        Some(stderr) => shown(stderr, "stderr", &mut parts, cx).await?,
        None => Value::Null,
    };
    let value = json!({ "exit_code": exit_code, "stdout": stdout, "stderr": stderr });
    Ok(Output { value, parts, ..Output::default() })
}

/// The text of an output. All bytes are a part of the answer too where the text is not all of them: stray bytes that are no UTF-8,
/// or more than fits in memory. Null: it is no text.
async fn shown(
    output: CapturedOutput,
    name: &str,
    parts: &mut Vec<Part>,
    cx: &Cx,
) -> Result<Value, ToolError> {
    let CapturedOutput { held, ends, mut kept } = output;
    let media_type = held.media_type().to_string();
    let text = match held.into_bytes().map(String::from_utf8) {
        Some(Ok(text)) if is_readable(&text) => return Ok(text.into()),
        Some(text) => {
            let bytes = text.map_or_else(FromUtf8Error::into_bytes, String::into_bytes);
            kept.get_or_insert_with(|| cx.keep()).write(&bytes).await?;
            is_mostly_text(&bytes).then(|| String::from_utf8_lossy(&bytes).into_owned())
        }
        None => is_mostly_text(&ends.head).then(|| ends.text()),
    };
    if let Some(kept) = kept {
        let kept = kept.finish(&media_type).await?;
        parts.push(match Part::is_image(&media_type) {
            true => Part::KeptImage { kept, media_type },
            false => Part::File { kept, media_type, name: name.into() },
        });
    }
    Ok(text.map_or(Value::Null, Value::String))
}

/// Whether it says something: names that end in a NUL do (`find -print0`), a page of zeros does not.
fn is_readable(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == 0).count() * 4 <= text.len()
}

/// The reason why the command was not started, if it was not.
fn refusal(done: &CommandResult, one_word: Option<&str>) -> Option<ToolError> {
    let said = done.ended.stderr.clone().text();
    let why = said.strip_prefix(SANDBOX_REFUSAL)?;
    // The program is named as the caller named it; everything else is about this machine.
    if !why.starts_with(REFUSED_PROGRAM) {
        return Some(refused(why));
    }
    let mut message = format!("The command did not run, and nothing happened: {why}.");
    if let Some(line) = one_word {
        let words = json!(line.split_whitespace().collect::<Vec<_>>());
        let shell = json!(["sh", "-c", line]);
        message.push_str(&format!(
            " Each word is a string of its own: give argv as {words}, or as {shell} for a shell."
        ));
    }
    Some(ToolError { did_not_happen: true, tool_code: Some("not_started".into()), ..ToolError::new(message) })
}
