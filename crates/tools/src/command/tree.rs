//! The launcher of one command and all that is below it, as their owner sees them.

use super::run::Invocation;
use crate::launcher::{CALL_VARIABLE, Launcher, Report, TERMINATE, kill_below, kill_orphans};
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
    state: State,
    /// None once somebody else waits for it.
    child: Option<Child>,
    report: Vec<u8>,
    call: String,
}

enum State {
    /// The launcher works; closing the socket tells it to kill.
    Works(UnixStream),
    /// The launcher has closed its socket, so it ends.
    Ends,
    /// The launcher died before its work was done, and we do it.
    Chased(JoinHandle<io::Result<usize>>),
    /// Nothing is left.
    Gone,
}

/// How long a launcher that was told to kill is given, until its work is done for it.
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
        // A group of its own keeps it from the terminal's Ctrl-C, which is for the owner to decide about.
        command.arg0("windlass").args(&launcher.args).args(&invocation.words).process_group(0);
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs(invocation.env.iter().map(|(name, value)| (name, value)));
        command.env(CALL_VARIABLE, &invocation.call).current_dir(&invocation.cwd);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let report = Vec::with_capacity(Report::LEN);
        let call = invocation.call.clone();
        let tree = Tree { state: State::Works(control), child: Some(child), report, call };
        Ok((tree, stdout, stderr))
    }

    /// Gives the launcher what the command is to read; only then it starts the command.
    pub(super) async fn feed(&mut self, stdin: &[u8]) {
        if let State::Works(control) = &mut self.state {
            // A launcher that dies while it is written to is noticed by its missing report.
            let _ = control.write_all(&(stdin.len() as u64).to_le_bytes()).await;
            let _ = control.write_all(stdin).await;
        }
    }

    /// Asks the command to end.
    pub(super) async fn terminate(&mut self) {
        if let State::Works(control) = &mut self.state {
            // A launcher that is gone has nobody left to ask.
            let _ = control.write_all(&[TERMINATE]).await;
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.state, State::Gone)
    }

    /// Waits until nothing is left. Nothing is lost if it is not waited for.
    pub(super) async fn gone(&mut self) -> io::Result<()> {
        loop {
            match &mut self.state {
                State::Works(control) => {
                    let mut word = [0; Report::LEN];
                    match control.read(&mut word).await {
                        Ok(len) if len > 0 => self.report.extend_from_slice(&word[..len]),
                        Ok(_) | Err(_) => self.state = State::Ends,
                    }
                }
                State::Ends => {
                    if let Some(child) = &mut self.child {
                        child.wait().await?;
                    }
                    self.state = if self.report().is_some() { State::Gone } else { self.chase() };
                }
                State::Chased(chase) => {
                    let chased = chase.await;
                    self.state = State::Gone;
                    chased??;
                }
                State::Gone => return Ok(()),
            }
        }
    }

    /// What the launcher said last; none if it died before.
    pub(super) fn report(&self) -> Option<Report> {
        Report::decode(&self.report)
    }

    /// The number of the launcher's process, while it was not waited for.
    pub(super) fn launcher_id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    fn chase(&self) -> State {
        tracing::warn!(call = self.call, "the launcher of a command died; killing what it left");
        let call = self.call.clone();
        State::Chased(tokio::task::spawn_blocking(move || kill_orphans(&call)))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Closing the socket is what kills, and needs nobody's help unless the launcher is dead or hangs.
        let left = std::mem::replace(&mut self.state, State::Gone);
        let still_there = matches!(left, State::Works(_) | State::Ends);
        drop(left);
        if let Some(child) = self.child.take()
            && still_there
            && let Ok(threads) = Handle::try_current()
        {
            threads.spawn(see_off(child, std::mem::take(&mut self.call)));
        }
    }
}

/// Makes sure that a launcher that was told to kill does so. The call may have a later launcher by now, with whose
/// command it does not meddle.
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
    // Only now, because its number must be no other's until here.
    let _ = launcher.wait().await;
    if let Ok(Err(error)) = killed {
        tracing::error!(call, %error, "a command that was stopped is still there");
    }
}
