//! Runs one command through the launcher, without knowing what a call is.

use super::ending::End;
use super::pipe::Pipe;
use super::stderr::{Event, Tail};
use super::tree::Tree;
use crate::launcher::{Launcher, Report};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use tokio::process::{ChildStderr, ChildStdout};
use windlass::Progress;

/// Starts a command. Its environment is `PATH`, the call's handle and what the invocation lists.
///
/// Whether there is such a program is known when it has [ended](Running::end): the launcher starts it.
pub async fn spawn(launcher: &Launcher, invocation: Invocation, tail: Tail) -> Result<Running, StartError> {
    let (mut tree, stdout, stderr) =
        Tree::start(launcher, &invocation).map_err(|source| StartError::new(&invocation, source))?;
    tree.feed(&invocation.stdin).await;
    Ok(Running {
        tree,
        stdout: Pipe::new(stdout, OUTPUT_PIECE_BYTES_MAX),
        stderr: Pipe::new(stderr, LOG_PIECE_BYTES_MAX),
        tail,
        program: invocation.program(),
    })
}

/// As much as a pipe usually holds.
const OUTPUT_PIECE_BYTES_MAX: usize = 64 << 10;
/// A log comes in lines, and only its end is kept.
const LOG_PIECE_BYTES_MAX: usize = 4 << 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The handle of the call, by which its processes are found if all else fails.
    pub call: String,
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// What the environment has beside `PATH` and the call's handle; the last of two of the same name counts.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in.
    pub cwd: PathBuf,
    /// What it reads.
    pub stdin: Vec<u8>,
}

impl Invocation {
    fn program(&self) -> String {
        self.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Why not even the launcher could be started; certainly nothing happened.
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

    /// Whether the words are more than the system passes to a program.
    pub(crate) fn too_long(&self) -> bool {
        self.source.kind() == io::ErrorKind::ArgumentListTooLong
    }
}

fn why(cwd: &std::path::Path, source: &io::Error) -> String {
    if cwd.is_dir() { source.to_string() } else { "there is no such folder".to_string() }
}

/// A command that runs, or has ended and not been asked yet. Dropping it kills the command and all it started,
/// without waiting for that.
pub struct Running {
    tree: Tree,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    tail: Tail,
    program: String,
}

/// What a command says next.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// On standard output.
    Stdout(&'a [u8]),
    /// On standard error; its end is kept for [`Ended`] too.
    Stderr(&'a [u8]),
}

/// How it went.
#[derive(Debug)]
pub struct Ended {
    /// The end.
    pub end: End,
    /// The last of standard error.
    pub stderr: Tail,
    /// The program, for messages.
    pub program: String,
}

impl Running {
    /// The next piece of what the command says; none when it and all it started are gone. Nothing is lost if it is
    /// not waited for.
    pub async fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
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

    /// How far the command last said that it is, if it said so since this was last asked.
    pub fn take_progress(&mut self) -> Option<Progress> {
        self.tail.take_progress()
    }

    /// The events that the command told of since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.tail.take_events()
    }

    /// Asks the command to end (SIGTERM to its process group); whether it does is its own matter.
    pub async fn terminate(&mut self) {
        self.tree.terminate().await;
    }

    /// Waits for the end, dropping what it still says.
    pub async fn end(mut self) -> Ended {
        while let Ok(Some(_)) = self.next().await {}
        let end = match self.tree.report() {
            Some(Report::Exited(code)) => End::Exited(code),
            Some(Report::Signalled(signal)) => End::Signalled(signal),
            Some(Report::NotStarted(errno)) => End::NotStarted(io::Error::from_raw_os_error(errno)),
            None => End::Lost,
        };
        Ended { end, stderr: self.tail, program: self.program }
    }

    /// The number of the launcher's process, while it was not waited for.
    pub fn launcher_id(&self) -> Option<u32> {
        self.tree.launcher_id()
    }

    fn said(&self, len: usize) -> Piece<'_> {
        Piece::Stdout(self.stdout.piece(len))
    }

    fn logged(&mut self, len: usize) -> Piece<'_> {
        let piece = self.stderr.piece(len);
        self.tail.push(piece);
        Piece::Stderr(piece)
    }
}
