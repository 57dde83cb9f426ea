//! The process that restricts itself and becomes the command, from its first line to its last.

use super::profile::SYSTEM_FOLDERS;
use super::syscalls::{self, FilterNeeds};
use super::{SandboxBackend, SandboxOrder, bubblewrap, landlocked};
use crate::command::{EXIT_SAFE, executable};
use rustix::fs::{Access, access};
use rustix::process::{Resource, Rlimit, getuid, setrlimit};
use rustix::thread::set_no_new_privs;
use seccompiler::BpfProgram;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The hidden first argument of the process that becomes a sandboxed command: then `main` calls [`launch_main`](crate::launch_main),
/// as for a launcher.
pub const SANDBOX_ARG: &str = "__sandbox";

/// The beginning of the line on standard error if the command was not started; its exit code is then [`EXIT_SAFE`].
pub const SANDBOX_REFUSAL: &str = "windlass sandbox: ";

/// The beginning of a refusal that is about the program, after [`SANDBOX_REFUSAL`].
pub(crate) const REFUSED_PROGRAM: &str = "the program ";

/// Runs this process as a sandboxed command: its arguments are the order, the program and the program's words.
///
/// It exits with [`EXIT_SAFE`] unless all rules are in force: nothing has happened then.
pub fn sandbox_main() -> ExitCode {
    let refusal = become_command(std::env::args_os().skip(2).collect());
    // This process has no caller: its error output is the log of the call.
    let _nobody_reads = writeln!(io::stderr(), "{SANDBOX_REFUSAL}{}", refusal.0);
    ExitCode::from(EXIT_SAFE as u8)
}

/// Why there was no command.
pub(super) struct SandboxRefusal(String);

impl SandboxRefusal {
    pub(super) fn plain(what: &str) -> SandboxRefusal {
        SandboxRefusal(what.to_string())
    }

    pub(super) fn new(what: &str, error: impl Into<Box<dyn std::error::Error>>) -> SandboxRefusal {
        SandboxRefusal(format!("{what}: {}", windlass::error::chain(&*error.into())))
    }

    pub(super) fn not_started(program: &OsStr, error: &io::Error) -> SandboxRefusal {
        let kind = error.kind();
        let why = if kind == io::ErrorKind::NotFound {
            "it is not there, the interpreter in its first line is not, or the sandbox does not show them"
                .to_string()
        } else if kind == io::ErrorKind::PermissionDenied {
            "it is not executable, or the sandbox does not allow it".to_string()
        } else {
            error.to_string()
        };
        SandboxRefusal(format!("{REFUSED_PROGRAM}{program:?} could not be started: {why}"))
    }
}

fn become_command(mut words: Vec<OsString>) -> SandboxRefusal {
    if words.len() < 2 {
        return SandboxRefusal::plain("the order is missing");
    }
    let order = words.remove(0);
    let order: SandboxOrder = match serde_json::from_slice(order.as_encoded_bytes()) {
        Ok(order) => order,
        Err(error) => return SandboxRefusal::new("the order cannot be read", error),
    };
    let name = &words[0];
    let Some(program) = find(name, &order) else {
        return SandboxRefusal::not_started(name, &io::ErrorKind::NotFound.into());
    };
    if !order.program_is_fixed && !is_shown(&program, &order) {
        return SandboxRefusal::not_started(name, &io::ErrorKind::PermissionDenied.into());
    }
    if let Err(error) = close_inherited() {
        return SandboxRefusal::new("inherited files cannot be closed", error);
    }
    // Before the limits: a limit on processes must count bubblewrap's own.
    let bwrap = bubblewrap::installed();
    if let Err(error) = set_limits(&order).and_then(|()| set_no_new_privs(true)) {
        return SandboxRefusal::new("resource limits cannot be set", error);
    }
    // bubblewrap tells a program the path by which it is executed as its name, which only scripts do not mind.
    let is_told = order.rules.backend == SandboxBackend::Bubblewrap;
    let file = order.program_file.as_ref().filter(|file| file.is_script || !is_told);
    // Held until this process has become the command.
    let approved = match file.map(|file| executable(&file.path)).transpose() {
        Ok(approved) => approved,
        Err(error) => return SandboxRefusal::new("the approved program is not there any more", error),
    };
    let executed = approved.as_ref().map_or(program.as_path(), |(_held, path)| path);
    let command = SandboxedProgram { program: &program, executed, words: &words };
    match (order.rules.backend, bwrap) {
        (SandboxBackend::Landlock, _) => landlocked::run(&order, &command),
        (SandboxBackend::Bubblewrap, Some(bwrap)) => bubblewrap::run(&order, &bwrap, &command),
        (SandboxBackend::Bubblewrap, None) => SandboxRefusal::plain("bubblewrap is not installed any more"),
    }
}

/// The program that this process becomes.
pub(super) struct SandboxedProgram<'a> {
    /// Its file, as an absolute path.
    pub(super) program: &'a Path,
    /// The path at which it is executed: its file, or a descriptor of what was approved.
    pub(super) executed: &'a Path,
    /// Its name and its arguments.
    pub(super) words: &'a [OsString],
}

/// The program as an absolute path: looked up in `PATH`, or from the folder of the command if it has a `/`.
fn find(name: &OsStr, order: &SandboxOrder) -> Option<PathBuf> {
    let given = Path::new(name);
    if given.components().count() > 1 || given.is_absolute() {
        let program = order.cwd.join(given);
        return is_executable(&program).then_some(program);
    }
    let path = std::env::var_os("PATH")?;
    let places =
        std::env::split_paths(&path).filter(|place| place.is_absolute()).map(|place| place.join(given));
    let found: Vec<PathBuf> = places.filter(|file| is_executable(file)).collect();
    // One that the sandbox does not show is passed over, as a shell does.
    let shown = found.iter().find(|file| order.program_is_fixed || is_shown(file, order));
    shown.or(found.first()).cloned()
}

/// Whether the sandbox shows the program anyway.
pub(super) fn is_shown(program: &Path, order: &SandboxOrder) -> bool {
    let Ok(program) = std::fs::canonicalize(program) else { return false };
    let profile = &order.rules.profile;
    let system = SYSTEM_FOLDERS.iter().map(Path::new);
    let own = profile
        .read
        .iter()
        .chain(&profile.write)
        .chain([&order.folder, &order.scratch])
        .map(PathBuf::as_path);
    system.chain(own).any(|shown| program.starts_with(shown))
}

pub(crate) fn is_executable(file: &Path) -> bool {
    file.is_file() && access(file, Access::EXEC_OK).is_ok()
}

/// Closes everything but standard input, output and error: a host that left a file open must not pass it on.
fn close_inherited() -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?;
    let open: Vec<i32> =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The one that listed the others is closed already.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

fn set_limits(order: &SandboxOrder) -> rustix::io::Result<()> {
    let profile = &order.rules.profile;
    let cpu = profile.cpu_ms.div_ceil(1_000).max(1);
    let set = |resource, soft, hard| setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) });
    // First SIGXCPU, which a program may handle, then SIGKILL.
    set(Resource::Cpu, cpu, cpu + 1)?;
    set(Resource::Data, profile.memory_bytes, profile.memory_bytes)?;
    set(Resource::Fsize, profile.file_bytes, profile.file_bytes)?;
    set(Resource::Core, 0, 0)?;
    set(Resource::Nofile, FILES_MAX, FILES_MAX)?;
    // The kernel counts all processes of the user, so those of others are added.
    let processes = profile.processes + super::usage::tasks_of(getuid().as_raw());
    set(Resource::Nproc, processes, processes)
}

/// Open files of one process: enough for builds.
const FILES_MAX: u64 = 4_096;

/// The filter of system calls for this order.
pub(super) fn filter(order: &SandboxOrder) -> Result<BpfProgram, SandboxRefusal> {
    let (backend, network) = (order.rules.backend, order.rules.profile.network);
    let needs = FilterNeeds { backend, network, is_root: getuid().is_root() };
    syscalls::program(needs)
        .map_err(|error| SandboxRefusal::new("there is no filter of system calls for this machine", error))
}
