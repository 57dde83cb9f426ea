//! The sandbox of a tool's commands, from the owner's side: which rules hold for a call, and how its command is started under them.

use super::backend::scratch_folder;
use super::usage;
use super::{NoSandbox, RecordedSandbox, SANDBOX_ARG, SandboxBackend, SandboxOrder, SandboxProfile};
use crate::command::{CommandEnd, CommandOutcome, Invocation};
use crate::launcher::Launcher;
use rustix::process::Pid;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;
use windlass::error::FailureClass;
use windlass::{Cx, ToolError};

/// The sandbox of a tool's commands.
#[derive(Clone, Debug)]
pub struct Sandbox {
    profile: Arc<SandboxProfile>,
    launcher: Launcher,
    /// The one that works here. That none does is not remembered: somebody may install one.
    found: Arc<OnceLock<SandboxBackend>>,
}

impl Sandbox {
    /// A sandbox with these rules, enforced by the best part of the system that works here.
    pub fn new(profile: SandboxProfile, launcher: Launcher) -> Sandbox {
        Sandbox { profile: Arc::new(profile), launcher, found: Arc::default() }
    }

    /// A sandbox with these rules, enforced by this part of the system or not at all.
    pub fn enforced_by(backend: SandboxBackend, profile: SandboxProfile, launcher: Launcher) -> Sandbox {
        Sandbox { found: Arc::new(OnceLock::from(backend)), ..Sandbox::new(profile, launcher) }
    }

    /// The rules.
    pub fn profile(&self) -> &SandboxProfile {
        &self.profile
    }

    /// The part of the system that enforces the rules.
    pub async fn backend(&self) -> Result<SandboxBackend, NoSandbox> {
        if let Some(backend) = self.found.get() {
            return Ok(*backend);
        }
        let launcher = self.launcher.clone();
        let found = tokio::task::spawn_blocking(move || SandboxBackend::find(&launcher)).await;
        let found = found.unwrap_or_else(|error| {
            let why = error.to_string();
            Err(NoSandbox { bubblewrap: why.clone(), landlock: why })
        })?;
        Ok(*self.found.get_or_init(|| found))
    }

    /// The rules for a call, to be recorded with it before it starts.
    pub(crate) async fn rules(&self, read_only: bool) -> Result<Value, ToolError> {
        let backend = self.backend().await.map_err(unavailable)?;
        let rules = RecordedSandbox { backend, profile: (*self.profile).clone(), read_only };
        // People read the beginning.
        let reach = if rules.profile.network { "with network" } else { "without network" };
        Ok(json!({ "sandbox": format!("{backend} {reach}"), "sandbox_rules": rules }))
    }

    /// Puts the command of an attempt under the rules that are recorded with its call.
    pub(crate) async fn enter(
        &self,
        invocation: Invocation,
        chosen_by: ProgramChoice,
        cx: &Cx,
    ) -> Result<(Invocation, SandboxedRun), ToolError> {
        let rules = recorded(cx)?;
        let files = cx.files()?;
        let launcher = self.launcher.clone();
        let entered = tokio::task::spawn_blocking(move || {
            let folder = files.host_folder()?;
            Ok(enter(invocation, chosen_by, rules, folder, &launcher)?)
        });
        let entered: Result<_, EntryError> =
            entered.await.unwrap_or_else(|error| Err(EntryError::Scratch(io::Error::other(error))));
        entered.map_err(|error| ToolError {
            detail: Some(windlass::error::chain(&error)),
            class: FailureClass::Unavailable,
            ..ToolError::new("The sandbox of the command could not be prepared; nothing happened.")
                .did_not_happen()
        })
    }
}

/// The one who chose the program of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramChoice {
    /// The operator, in the configuration.
    Operator,
    /// The caller, in the arguments.
    Caller,
}

/// The rules that were recorded when the call was prepared.
pub(crate) fn recorded(cx: &Cx) -> Result<RecordedSandbox, ToolError> {
    let payload: Option<Value> = cx.payload().and_then(|payload| serde_json::from_str(payload).ok());
    let rules = payload.and_then(|mut payload| serde_json::from_value(payload["sandbox_rules"].take()).ok());
    rules.ok_or_else(|| {
        let detail = "the call has no recorded rules of a sandbox: its tool was changed to one with a sandbox; cancel it";
        ToolError { did_not_happen: true, ..ToolError::internal(detail) }
    })
}

fn unavailable(error: NoSandbox) -> ToolError {
    let told = "Commands cannot run on this machine now, because it has no sandbox for them; nothing happened. Only an operator can \
        change that.";
    let error = ToolError {
        class: FailureClass::Unavailable,
        detail: Some(error.to_string()),
        ..ToolError::new(told)
    };
    // A retry within seconds changes nothing.
    ToolError { did_not_happen: true, ..error }
}

/// The failure of a command that its sandbox did not start, for this reason.
pub(crate) fn refused(why: &str) -> ToolError {
    let told = "The command could not be started in its sandbox; nothing happened. Only an operator can change that.";
    ToolError {
        class: FailureClass::Unavailable,
        tool_code: Some("not_started".into()),
        detail: Some(why.to_string()),
        did_not_happen: true,
        ..ToolError::new(told)
    }
}

/// The failure of a command of which only bubblewrap has said something. It names places of this machine, which are for operators.
/// Whether the command ran is not known from that: it may have said so itself.
pub(crate) fn complained(ended: &CommandOutcome) -> Option<ToolError> {
    let said = ended.stderr.clone().text();
    let is_its = matches!(ended.end, CommandEnd::Exited(1)) && said.starts_with(BUBBLEWRAP_SAYS);
    if !is_its || said.lines().count() > 1 {
        return None;
    }
    let told = "The sandbox of the command reported a problem, and the command has probably not run. Only an operator can change that.";
    let (class, tool_code) = (FailureClass::Unavailable, Some("not_started".into()));
    Some(ToolError { class, tool_code, detail: Some(said), ..ToolError::new(told) })
}

/// The beginning of what bubblewrap says.
const BUBBLEWRAP_SAYS: &str = "bwrap: ";

#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("the folder of the session is not available")]
    Folder(#[from] windlass::error::FileError),
    #[error("no folder for temporary files")]
    Scratch(#[from] io::Error),
}

fn enter(
    invocation: Invocation,
    chosen_by: ProgramChoice,
    rules: RecordedSandbox,
    folder: PathBuf,
    launcher: &Launcher,
) -> io::Result<(Invocation, SandboxedRun)> {
    let scratch = scratch_folder()?;
    let profile = rules.profile.clone();
    let temporary = match rules.backend {
        SandboxBackend::Bubblewrap => PathBuf::from("/tmp"),
        SandboxBackend::Landlock => scratch.path().to_path_buf(),
    };
    let program_is_fixed = chosen_by == ProgramChoice::Operator;
    let cwd = folder.join(&invocation.cwd);
    let order = SandboxOrder {
        rules,
        folder: folder.clone(),
        scratch: scratch.path().to_path_buf(),
        cwd,
        program_is_fixed,
        program_file: invocation.program_file,
    };
    let mut words: Vec<OsString> =
        vec![launcher.program.clone().into(), SANDBOX_ARG.into(), serde_json::to_string(&order)?.into()];
    words.extend(invocation.words);
    // What the tool declares counts more.
    let mut env: Vec<(OsString, OsString)> =
        vec![("HOME".into(), folder.clone().into()), ("TMPDIR".into(), temporary.into())];
    env.extend(invocation.env);
    let run = SandboxedRun { scratch: Some(scratch), profile };
    Ok((Invocation { words, program_file: None, env, cwd: folder, ..invocation }, run))
}

/// A command that runs in a sandbox. Dropping it removes its temporary files.
pub(crate) struct SandboxedRun {
    scratch: Option<TempDir>,
    profile: SandboxProfile,
}

/// Often enough for a machine to survive what a command starts in between.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl SandboxedRun {
    /// Waits until the processes below the launcher use more than they may together, and says what. The kernel bounds only each by
    /// itself, and the number of processes of root not at all.
    pub(crate) async fn exceeded(&self, launcher: Option<u32>) -> String {
        let Some(launcher) = launcher.and_then(|id| Pid::from_raw(id.cast_signed())) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let used = usage::below(launcher);
            if used.tasks > self.profile.processes {
                return format!("more than {} processes and threads", self.profile.processes);
            }
            let max = self.profile.memory_bytes;
            if used.memory_bytes > max && usage::memory_below(launcher) > max {
                return format!("more than {max} bytes of memory");
            }
        }
    }
}

impl Drop for SandboxedRun {
    fn drop(&mut self) {
        // Removing many files takes its time.
        if let (Some(scratch), Ok(threads)) = (self.scratch.take(), tokio::runtime::Handle::try_current()) {
            threads.spawn_blocking(move || drop(scratch));
        }
    }
}
