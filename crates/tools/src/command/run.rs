//! Runs one command through the launcher, without knowing what a call is.

use super::bound::ApprovedProgram;
use super::ending::CommandEnd;
use super::pipe::Pipe;
use super::stderr::{CommandEvent, Tail};
use super::tree::Tree;
use crate::launcher::{Launcher, LauncherReport};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use tokio::process::{ChildStderr, ChildStdout};
use windlass::tool::Progress;

/// Starts a command. Its environment is `PATH`, the call's handle and the invocation's variables.
///
/// A missing program is reported when it has [ended](RunningCommand::end): the launcher starts it.
pub async fn spawn(
    launcher: &Launcher,
    invocation: Invocation,
    tail: Tail,
) -> Result<RunningCommand, StartError> {
    let (mut tree, stdout, stderr) =
        Tree::start(launcher, &invocation).map_err(|source| StartError::new(&invocation, source))?;
    tree.feed(&invocation).await;
    Ok(RunningCommand {
        tree,
        stdout: Pipe::new(stdout, OUTPUT_PIECE_BYTES_MAX),
        stderr: Pipe::new(stderr, LOG_PIECE_BYTES_MAX),
        tail,
        program: invocation.program(),
    })
}

/// The usual capacity of a pipe.
const OUTPUT_PIECE_BYTES_MAX: usize = 64 << 10;
/// A log comes in lines, and only its end is kept.
const LOG_PIECE_BYTES_MAX: usize = 4 << 10;

/// A command to run.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The handle of the call, by which its processes are found if all else fails.
    pub call: String,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// The file that is executed instead of the one that the first word names: exactly what a person approved.
    pub program_file: Option<ProgramFile>,
    /// The environment, in addition to `PATH` and the call's handle; the last of two variables with one name counts.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in.
    pub cwd: PathBuf,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// A path at which the launcher can open a file that is its standard input instead: a pipe of ours, for a command that stays.
    pub stdin_file: Option<PathBuf>,
}

/// An open file of this process that is to be executed. Whoever made it holds it open until the command has started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramFile {
    /// A path at which the launcher can open it.
    pub path: PathBuf,
    /// Whether an interpreter runs it: then the program is not told its name by its first word anyway.
    pub is_script: bool,
}

impl ProgramFile {
    pub(crate) fn of(approved: &ApprovedProgram) -> ProgramFile {
        ProgramFile { path: approved.path(), is_script: approved.is_script }
    }
}

/// Opens a [program file](ProgramFile::path) in this process, to be executed at the path that is returned. The descriptor stays open
/// in the children of this process: an interpreter opens its script by it.
pub(crate) fn executable(file: &Path) -> io::Result<(File, PathBuf)> {
    let file = File::open(file)?;
    fcntl_setfd(&file, FdFlags::empty())?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok((file, path))
}

impl Invocation {
    fn program(&self) -> String {
        self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Why even the launcher could not be started; certainly nothing happened.
#[derive(Debug, thiserror::Error)]
#[error("{program:?} could not be started in {}: {}", .cwd.display(), why(.cwd, .source))]
pub struct StartError {
    program: String,
    cwd: PathBuf,
    source: io::Error,
}

impl StartError {
    fn new(invocation: &Invocation, source: io::Error) -> StartError {
        StartError { program: invocation.program(), cwd: invocation.cwd.clone(), source }
    }

    /// Whether the words are too long for the system.
    pub(crate) fn too_long(&self) -> bool {
        self.source.kind() == io::ErrorKind::ArgumentListTooLong
    }
}

fn why(cwd: &std::path::Path, source: &io::Error) -> String {
    if cwd.is_dir() { source.to_string() } else { "there is no such folder".to_string() }
}

/// A command that runs, or has ended and was not collected yet. Dropping it kills the command and all its
/// descendants, without waiting for that.
pub struct RunningCommand {
    tree: Tree,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    tail: Tail,
    program: String,
}

/// The next piece of a command's output.
#[derive(Clone, Copy, Debug)]
pub enum CommandPiece<'a> {
    /// On standard output.
    Stdout(&'a [u8]),
    /// On standard error; its end is also kept for [`CommandOutcome`].
    Stderr(&'a [u8]),
}

/// The outcome of a command.
#[derive(Debug)]
pub struct CommandOutcome {
    /// The end.
    pub end: CommandEnd,
    /// The end of standard error.
    pub stderr: Tail,
    /// The program, for messages.
    pub program: String,
}

impl RunningCommand {
    /// The next piece of output; `None` when the command and all its descendants are gone. Cancel-safe.
    pub async fn next(&mut self) -> io::Result<Option<CommandPiece<'_>>> {
        while !self.tree.is_gone() {
            tokio::select! {
                len = self.stdout.read(), if self.stdout.is_open() => match len? {
                    0 => {}
                    len => return Ok(Some(self.said(len))),
                },
                len = self.stderr.read(), if self.stderr.is_open() => match len? {
                    0 => {}
                    len => return Ok(Some(self.logged(len))),
                },
                gone = self.tree.gone() => {
                    gone?;
                    self.stdout.writers_are_gone()?;
                    self.stderr.writers_are_gone()?;
                }
            }
        }
        let said = self.stdout.rest()?;
        if said > 0 {
            return Ok(Some(self.said(said)));
        }
        let logged = self.stderr.rest()?;
        Ok(if logged > 0 { Some(self.logged(logged)) } else { None })
    }

    /// The last reported progress, if it is new since the last call.
    pub fn take_progress(&mut self) -> Option<Progress> {
        self.tail.take_progress()
    }

    /// The events emitted since the last call.
    pub fn take_events(&mut self) -> Vec<CommandEvent> {
        self.tail.take_events()
    }

    /// Asks the command to end (SIGTERM to its process group); it may ignore that.
    pub async fn terminate(&mut self) {
        self.tree.terminate().await;
    }

    /// Kills the command and everything it started; its end is reported as usual.
    pub async fn kill(&mut self) {
        self.tree.kill().await;
    }

    /// Waits for the end, dropping further output.
    pub async fn end(mut self) -> CommandOutcome {
        while let Ok(Some(_)) = self.next().await {}
        let end = match self.tree.report() {
            Some(LauncherReport::Exited(code)) => CommandEnd::Exited(code),
            Some(LauncherReport::Signalled(signal)) => CommandEnd::Signalled(signal),
            Some(LauncherReport::NotStarted(errno)) => {
                CommandEnd::NotStarted(io::Error::from_raw_os_error(errno))
            }
            None => CommandEnd::Lost,
        };
        CommandOutcome { end, stderr: self.tail, program: self.program }
    }

    /// The process id of the launcher, until it was waited for.
    pub fn launcher_id(&self) -> Option<u32> {
        self.tree.launcher_id()
    }

    fn said(&self, len: usize) -> CommandPiece<'_> {
        CommandPiece::Stdout(self.stdout.piece(len))
    }

    fn logged(&mut self, len: usize) -> CommandPiece<'_> {
        let piece = self.stderr.piece(len);
        self.tail.push(piece);
        CommandPiece::Stderr(piece)
    }
}
