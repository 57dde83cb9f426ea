//! Which part of the system can enforce the rules here. It is tried, not guessed: a part that is installed may be forbidden.

use super::profile::{RecordedSandbox, SandboxProfile};
use super::{SANDBOX_ARG, SANDBOX_REFUSAL, SandboxOrder, bubblewrap};
use crate::launcher::Launcher;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::process::{Command, Stdio};

/// A part of the system that enforces the rules of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxBackend {
    /// Namespaces, made by the program `bwrap`, with seccomp and resource limits.
    Bubblewrap,
    /// Landlock, with seccomp and resource limits.
    Landlock,
}

impl SandboxBackend {
    /// Every one, the better one first.
    pub const ALL: [SandboxBackend; 2] = [SandboxBackend::Bubblewrap, SandboxBackend::Landlock];

    /// The best one that works on this machine. Blocks for some milliseconds.
    pub fn find(launcher: &Launcher) -> Result<SandboxBackend, NoSandbox> {
        let [first, second] = SandboxBackend::ALL;
        let Err(bubblewrap) = first.check(launcher) else { return Ok(first) };
        let Err(landlock) = second.check(launcher) else { return Ok(second) };
        Err(NoSandbox { bubblewrap, landlock })
    }

    /// Runs a command that does nothing; says why that is not possible. Blocks for some milliseconds.
    pub fn check(self, launcher: &Launcher) -> Result<(), String> {
        if self == SandboxBackend::Bubblewrap && bubblewrap::installed().is_none() {
            return Err("bwrap is not installed".to_string());
        }
        match self.run_true(launcher) {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.trim();
                Err(said.strip_prefix(SANDBOX_REFUSAL).unwrap_or(said).to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn run_true(self, launcher: &Launcher) -> io::Result<std::process::Output> {
        let folder = scratch_folder()?;
        let rules = RecordedSandbox { backend: self, profile: SandboxProfile::default(), read_only: true };
        let path = folder.path().to_path_buf();
        let order = SandboxOrder {
            rules,
            folder: path.clone(),
            scratch: path.clone(),
            cwd: path,
            program_is_fixed: false,
            program_file: None,
        };
        let mut command = Command::new(&launcher.program);
        command.arg(SANDBOX_ARG).arg(serde_json::to_string(&order)?).arg("true").env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path))).stdin(Stdio::null());
        command.output()
    }
}

impl fmt::Display for SandboxBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SandboxBackend::Bubblewrap => "bubblewrap",
            SandboxBackend::Landlock => "Landlock",
        })
    }
}

/// A new folder for temporary files of a sandboxed command.
pub(super) fn scratch_folder() -> io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("windlass-").tempdir()?;
    std::fs::create_dir(folder.path().join(bubblewrap::SHARED_MEMORY))?;
    Ok(folder)
}

/// Nothing on this machine can enforce the rules of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no sandbox is available: bubblewrap: {bubblewrap}; Landlock: {landlock}; install bubblewrap and permit user namespaces, or use \
     Linux 6.12 or newer with Landlock"
)]
pub struct NoSandbox {
    /// Why bubblewrap does not work.
    pub bubblewrap: String,
    /// Why Landlock does not work.
    pub landlock: String,
}
