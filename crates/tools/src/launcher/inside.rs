//! The launcher process, from its first line to its last.

use super::processes::Process;
use super::{KILL, LauncherReport, TERMINATE};
use crate::command::executable;
use crate::sandbox::{SANDBOX_ARG, sandbox_main};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait, waitid,
};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Runs this process as a launcher: its arguments from the second on are the command.
///
/// Call it first thing in `main`, when the first argument is a [launch argument](super::is_launch_arg). With
/// [`SANDBOX_ARG`] this process restricts itself and becomes the command.
pub fn launch_main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == SANDBOX_ARG) {
        return sandbox_main();
    }
    match launch(std::env::args_os().skip(2).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // This process has no caller: its error output is the log of the call.
            let _nobody_reads = writeln!(io::stderr(), "the launcher could not do its work: {error}");
            ExitCode::FAILURE
        }
    }
}

fn launch(words: Vec<OsString>) -> io::Result<()> {
    let mut owner = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let file = OsString::from_vec(read_bytes(&mut owner)?);
    let input_file = OsString::from_vec(read_bytes(&mut owner)?);
    let input = read_bytes(&mut owner)?;
    set_child_subreaper(Some(getpid()))?;
    let (command, stdin) = match start(words, file, &input_file) {
        Ok(started) => started,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
            return owner.write_all(&LauncherReport::NotStarted(errno).encode());
        }
    };
    // Neither thread is joined: they block on other processes, and end with this one.
    thread::spawn(move || feed(stdin, &input));
    thread::spawn({
        let (command, owner) = (Arc::clone(&command), owner.try_clone()?);
        move || obey(owner, &command)
    });
    let status = command.wait()?;
    kill_what_is_left();
    let report = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => LauncherReport::Exited(code),
        (None, signal) => LauncherReport::Signalled(signal.unwrap_or_default()),
    };
    // An owner that is gone needs no report.
    let _ = owner.write_all(&report.encode());
    Ok(())
}

fn read_bytes(owner: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 8];
    owner.read_exact(&mut len)?;
    let len = u64::from_le_bytes(len);
    let mut input = Vec::new();
    owner.take(len).read_to_end(&mut input)?;
    if input.len() as u64 == len { Ok(input) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Starts the command, from another file than its program's own if one is given.
fn start(
    words: Vec<OsString>,
    file: OsString,
    input_file: &OsStr,
) -> io::Result<(Arc<LaunchedCommand>, Option<ChildStdin>)> {
    let mut words = words.into_iter();
    let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
    let approved = match file.is_empty() {
        true => None,
        false => Some(executable(Path::new(&file))?),
    };
    let mut command = match &approved {
        Some((_held, path)) => Command::new(path),
        None => Command::new(&program),
    };
    let input = match input_file.is_empty() {
        true => Stdio::piped(),
        false => File::open(input_file)?.into(),
    };
    command.arg0(&program).args(words).stdin(input).process_group(0);
    let mut child = command.spawn()?;
    let running = LaunchedCommand { pid: Pid::from_child(&child), status: Mutex::new(None) };
    Ok((Arc::new(running), child.stdin.take()))
}

/// Writes the command's standard input. The command need not read to the end.
fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input);
    }
}

/// Executes the owner's requests, until the owner is gone.
fn obey(mut owner: UnixStream, command: &LaunchedCommand) {
    let mut order = [0];
    loop {
        let order = match owner.read(&mut order) {
            Ok(1) => order[0],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(_) | Err(_) => KILL,
        };
        match order {
            TERMINATE => command.signal(Signal::TERM),
            // Its remaining descendants are killed when it has ended.
            _ => return command.signal(Signal::KILL),
        }
    }
}

/// The command, and its end once it is reaped.
struct LaunchedCommand {
    pid: Pid,
    status: Mutex<Option<WaitStatus>>,
}

impl LaunchedCommand {
    /// Signals the command and its group, unless it was reaped: then its process id may be reused.
    fn signal(&self, signal: Signal) {
        let status = self.lock();
        if status.is_none() && signal == Signal::TERM && self.is_bubblewrap() {
            self.terminate_inside();
        } else if status.is_none() {
            let _ = kill_process_group(self.pid, signal);
            if signal == Signal::KILL {
                // It may have moved to another group.
                let _ = kill_process(self.pid, signal);
            }
        }
    }

    fn is_bubblewrap(&self) -> bool {
        let program = Process::find(self.pid).and_then(|process| process.program());
        program.is_some_and(|program| program.file_name().is_some_and(|name| name == "bwrap"))
    }

    /// Asks the processes in the sandbox to end. bubblewrap itself and the first process inside belong to the sandbox: ending them
    /// would kill the others.
    fn terminate_inside(&self) {
        let mut everyone = Process::all();
        let mut below =
            |parent: Pid| everyone.extract_if(.., |process| process.parent == parent).collect::<Vec<_>>();
        let mut inside: Vec<Process> =
            below(self.pid).into_iter().flat_map(|first| below(first.pid)).collect();
        let mut seen = 0;
        while let Some(parent) = inside.get(seen).map(|process| process.pid) {
            inside.extend(below(parent));
            seen += 1;
        }
        for process in inside {
            let _ = kill_process(process.pid, Signal::TERM);
        }
    }

    /// Waits for the command to end, and reaps the orphans that end before it.
    fn wait(&self) -> io::Result<WaitStatus> {
        loop {
            // Waits without reaping, because reaping must happen under the lock.
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let mut status = self.lock();
            while let Some((pid, ended)) = wait(WaitOptions::NOHANG)? {
                if pid == self.pid {
                    *status = Some(ended);
                    return Ok(ended);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WaitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Kills our children until there are none. The children of each that dies become ours, so this reaches all;
/// and since only we reap ours, no process id here can be reused.
fn kill_what_is_left() {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => continue,
            Ok(None) => {}
            Err(_) => return,
        }
        let us = getpid();
        let everyone = Process::all();
        let children: Vec<&Process> = everyone.iter().filter(|process| process.parent == us).collect();
        let killed = children.iter().filter(|child| kill_process(child.pid, Signal::KILL).is_ok()).count();
        if killed == 0 && (everyone.is_empty() || !children.is_empty()) {
            // We see no process, or the remaining ones run as another user: nothing we do can end them.
            return;
        }
        if killed == 0 {
            // The last one ended between the two looks; its children are ours now.
            continue;
        }
        let _ = wait(WaitOptions::empty());
    }
}
