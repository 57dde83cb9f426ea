//! Runs one command through the launcher, without knowing what a call is.

use super::ending::End;
use super::stderr::Tail;
use crate::launcher::{CALL_VARIABLE, Launcher, Report, TERMINATE, kill_survivors};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

/// Starts a command. Its environment is `PATH`, the call's handle and what the invocation lists.
///
/// Whether there is such a program is known when it has [ended](Running::end): the launcher starts it.
pub async fn spawn(launcher: &Launcher, invocation: Invocation, tail: Tail) -> Result<Running, StartError> {
    let program =
        invocation.words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let stdin = invocation.stdin.clone();
    let call = invocation.call.clone();
    let (mut control, mut child) =
        start(launcher, &invocation).map_err(|source| StartError::new(&invocation, source))?;
    // A launcher that dies while it is written to is noticed by its missing report.
    let _ = write_frame(&mut control, &stdin).await;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    Ok(Running {
        control: Some(control),
        child,
        stdout,
        stderr,
        report: Vec::with_capacity(Report::LEN),
        tail,
        buffer: vec![0; PIECE_BYTES_MAX].into(),
        call,
        program,
    })
}

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
        let program = invocation.words.first().map(|word| word.to_string_lossy().into_owned());
        StartError { program: program.unwrap_or_default(), cwd: invocation.cwd.clone(), source }
    }

    /// Whether the words are more than the system passes to a program.
    pub(crate) fn too_long(&self) -> bool {
        self.source.kind() == io::ErrorKind::ArgumentListTooLong
    }
}

fn why(cwd: &std::path::Path, source: &io::Error) -> String {
    if cwd.is_dir() { source.to_string() } else { "there is no such folder".to_string() }
}

/// A command that runs, or has ended and not been asked yet. Dropping it kills the command and all it started.
pub struct Running {
    /// Closing it tells the launcher to kill; none once the launcher is gone.
    control: Option<UnixStream>,
    child: Child,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    report: Vec<u8>,
    tail: Tail,
    buffer: Box<[u8]>,
    call: String,
    program: String,
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

/// What is read of the output at once.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// How long output is awaited after all processes of the command are gone: what they wrote is in the pipe already,
/// and only a process outside of the tree, to which one of them passed the pipe, can still hold it open.
const HELD_PIPE_WAIT: Duration = Duration::from_secs(1);

impl Running {
    /// The next piece of standard output; none when the command and all it started are gone.
    pub async fn stdout(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            if self.stdout.is_none() && self.stderr.is_none() && self.control.is_none() {
                return Ok(None);
            }
            let launcher_is_gone = self.control.is_none();
            let (mut word, mut log) = ([0; Report::LEN], [0; 4 << 10]);
            tokio::select! {
                read = read(&mut self.stdout, &mut self.buffer), if self.stdout.is_some() => match read? {
                    0 => self.stdout = None,
                    len => return Ok(Some(&self.buffer[..len])),
                },
                read = read(&mut self.stderr, &mut log), if self.stderr.is_some() => match read? {
                    0 => self.stderr = None,
                    len => self.tail.push(&log[..len]),
                },
                read = read(&mut self.control, &mut word), if self.control.is_some() => match read {
                    Ok(len) if len > 0 => self.report.extend_from_slice(&word[..len]),
                    Ok(_) | Err(_) => self.launcher_ended().await?,
                },
                () = tokio::time::sleep(HELD_PIPE_WAIT), if launcher_is_gone => {
                    (self.stdout, self.stderr) = (None, None);
                }
            }
        }
    }

    /// Asks the command to end (SIGTERM to its process group); whether it does is its own matter.
    pub async fn terminate(&mut self) -> io::Result<()> {
        match &mut self.control {
            Some(control) => control.write_all(&[TERMINATE]).await,
            None => Ok(()),
        }
    }

    /// Waits for the end, dropping what it still writes to standard output.
    pub async fn end(mut self) -> Ended {
        while let Ok(Some(_)) = self.stdout().await {}
        let end = match Report::decode(&self.report) {
            Some(Report::Exited(code)) => End::Exited(code),
            Some(Report::Signalled(signal)) => End::Signalled(signal),
            Some(Report::NotStarted(errno)) => End::NotStarted(io::Error::from_raw_os_error(errno)),
            None => End::Lost,
        };
        Ended { end, stderr: self.tail, program: self.program }
    }

    /// The number of the launcher's process, while it was not waited for.
    pub fn launcher_id(&self) -> Option<u32> {
        self.child.id()
    }

    async fn launcher_ended(&mut self) -> io::Result<()> {
        self.control = None;
        self.child.wait().await?;
        if Report::decode(&self.report).is_none() {
            tracing::warn!(call = self.call, "the launcher of a command died; killing what it left");
            let call = self.call.clone();
            tokio::task::spawn_blocking(move || kill_survivors(|handle| handle == call)).await??;
        }
        Ok(())
    }
}

fn start(launcher: &Launcher, invocation: &Invocation) -> io::Result<(UnixStream, Child)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let mut command = Command::new(&launcher.program);
    // A group of its own keeps it from the terminal's Ctrl-C, which is for the owner to decide about.
    command.arg0("windlass").args(&launcher.args).args(&invocation.words).process_group(0);
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.envs(invocation.env.iter().map(|(name, value)| (name, value)));
    command.env(CALL_VARIABLE, &invocation.call).current_dir(&invocation.cwd);
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn()?;
    Ok((UnixStream::from_std(ours)?, child))
}

async fn write_frame(control: &mut UnixStream, stdin: &[u8]) -> io::Result<()> {
    control.write_all(&(stdin.len() as u64).to_le_bytes()).await?;
    control.write_all(stdin).await
}

async fn read<S: AsyncRead + Unpin>(source: &mut Option<S>, buffer: &mut [u8]) -> io::Result<usize> {
    match source {
        Some(source) => source.read(buffer).await,
        None => Ok(0),
    }
}
