//! The launcher of one command and everything below it, from the owner's side.

use super::run::Invocation;
use crate::launcher::{CALL_VARIABLE, KILL, Launcher, LauncherReport, TERMINATE, kill_below, kill_orphans};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A launcher and its command. Dropping it kills all of them, without waiting for that.
pub(super) struct Tree {
    state: TreeState,
    /// `None` once another task waits for it.
    child: Option<Child>,
    report: Vec<u8>,
    call: String,
}

enum TreeState {
    /// The launcher works; closing the socket tells it to kill.
    Works(UnixStream),
    /// The launcher has closed its socket, so it ends.
    Ends,
    /// The launcher died before its work was done, and we do it.
    Chased(JoinHandle<io::Result<usize>>),
    /// Nothing is left.
    Gone,
}

/// How long a launcher that was told to kill is given, until we do it instead.
const LAUNCHER_ENDS_WITHIN: Duration = Duration::from_secs(1);

impl Tree {
    pub(super) fn start(
        launcher: &Launcher,
        invocation: &Invocation,
    ) -> io::Result<(Tree, Option<ChildStdout>, Option<ChildStderr>)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let control = UnixStream::from_std(ours)?;
        let mut command = Command::new(&launcher.program);
        // A process group of its own shields it from the terminal's Ctrl-C, which is the owner's decision.
        command.arg0("windlass").args(&launcher.args).args(&invocation.words).process_group(0);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(invocation.env.iter().map(|(name, value)| (name, value)));
        command.env(CALL_VARIABLE, &invocation.call).current_dir(&invocation.cwd);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let report = Vec::with_capacity(LauncherReport::LEN);
        let call = invocation.call.clone();
        let tree = Tree { state: TreeState::Works(control), child: Some(child), report, call };
        Ok((tree, stdout, stderr))
    }

    /// Sends the command's program file and standard input to the launcher; only then it starts the command.
    pub(super) async fn feed(&mut self, invocation: &Invocation) {
        let file = invocation.program_file.as_ref().map(|file| file.path.as_os_str().as_encoded_bytes());
        if let TreeState::Works(control) = &mut self.state {
            let input_file = invocation.stdin_file.as_ref().map(|file| file.as_os_str().as_encoded_bytes());
            for bytes in [file.unwrap_or_default(), input_file.unwrap_or_default(), &invocation.stdin] {
                // A launcher that dies during the write is noticed by its missing report.
                let _ = control.write_all(&(bytes.len() as u64).to_le_bytes()).await;
                let _ = control.write_all(bytes).await;
            }
        }
    }

    /// Asks the command to end.
    pub(super) async fn terminate(&mut self) {
        if let TreeState::Works(control) = &mut self.state {
            // A launcher that is gone has no command left.
            let _ = control.write_all(&[TERMINATE]).await;
        }
    }

    /// Kills the command and everything below it.
    pub(super) async fn kill(&mut self) {
        if let TreeState::Works(control) = &mut self.state {
            let _ = control.write_all(&[KILL]).await;
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, TreeState::Gone)
    }

    /// Waits until nothing is left. Cancel-safe.
    pub(super) async fn gone(&mut self) -> io::Result<()> {
        loop {
            match &mut self.state {
                TreeState::Works(control) => {
                    let mut word = [0; LauncherReport::LEN];
                    match control.read(&mut word).await {
                        Ok(len) if len > 0 => self.report.extend_from_slice(&word[..len]),
                        Ok(_) | Err(_) => self.state = TreeState::Ends,
                    }
                }
                TreeState::Ends => {
                    if let Some(child) = &mut self.child {
                        child.wait().await?;
                    }
                    self.state = if self.report().is_some() { TreeState::Gone } else { self.chase() };
                }
                TreeState::Chased(chase) => {
                    let chased = chase.await;
                    self.state = TreeState::Gone;
                    chased??;
                }
                TreeState::Gone => return Ok(()),
            }
        }
    }

    /// The launcher's report; `None` if it died before.
    pub(super) fn report(&self) -> Option<LauncherReport> {
        LauncherReport::decode(&self.report)
    }

    /// The process id of the launcher, until it was waited for.
    pub(super) fn launcher_id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    fn chase(&self) -> TreeState {
        tracing::warn!(call = self.call, "the launcher of a command died; killing what it left");
        let call = self.call.clone();
        TreeState::Chased(tokio::task::spawn_blocking(move || kill_orphans(&call)))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Closing the socket kills, and needs no help unless the launcher is dead or hangs.
        let left = std::mem::replace(&mut self.state, TreeState::Gone);
        let still_there = matches!(left, TreeState::Works(_) | TreeState::Ends);
        drop(left);
        if let Some(child) = self.child.take()
            && still_there
            && let Ok(threads) = Handle::try_current()
        {
            threads.spawn(see_off(child, std::mem::take(&mut self.call)));
        }
    }
}

/// Makes sure that a launcher that was told to kill does so. The call may have a later launcher by now, whose
/// command is not touched.
async fn see_off(mut launcher: Child, call: String) {
    let ended = tokio::time::timeout(LAUNCHER_ENDS_WITHIN, launcher.wait()).await;
    if matches!(ended, Ok(Ok(status)) if status.success()) {
        return;
    }
    let hangs = launcher.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let killed = tokio::task::spawn_blocking({
        let call = call.clone();
        move || {
            if let Some(hangs) = hangs {
                kill_below(hangs)?;
                // It has no children now, so nothing is orphaned.
                let _ = kill_process(hangs, Signal::KILL);
            }
            kill_orphans(&call)
        }
    });
    let killed = killed.await;
    // Only now, because its process id must not be reused until here.
    let _ = launcher.wait().await;
    if let Ok(Err(error)) = killed {
        tracing::error!(call, %error, "a command that was stopped is still there");
    }
}
