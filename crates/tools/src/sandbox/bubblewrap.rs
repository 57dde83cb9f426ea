//! The rules enforced by bubblewrap: the command gets namespaces of its own, with a file system in which nothing else exists.

use super::SandboxOrder;
use super::inside::{SandboxRefusal, SandboxedProgram};
use super::profile::{SYSTEM_FOLDERS, SYSTEM_SETTINGS};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Makes the namespaces and becomes the command. Returns only if that fails.
pub(super) fn run(order: &SandboxOrder, bwrap: &Path, program: &SandboxedProgram<'_>) -> SandboxRefusal {
    let filter = match filter_file(order) {
        Ok(filter) => filter,
        Err(refusal) => return refusal,
    };
    let mut command = Command::new(bwrap);
    command.args(["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--hostname", "sandbox"]);
    if order.rules.profile.network {
        command.arg("--share-net");
    }
    show_system(&mut command);
    show_own(&mut command, order, program.program);
    command.arg("--chdir").arg(&order.cwd).arg("--seccomp").arg(filter.as_raw_fd().to_string());
    command.arg("--").arg(program.executed).args(program.words.iter().skip(1));
    let error = command.exec();
    SandboxRefusal::new("bubblewrap cannot be started", error)
}

/// The parts of the system, read-only.
fn show_system(command: &mut Command) {
    for folder in SYSTEM_FOLDERS {
        match std::fs::read_link(folder) {
            Ok(target) => command.arg("--symlink").arg(target).arg(folder),
            Err(_) => bind(command, "--ro-bind-try", Path::new(folder)),
        };
    }
    for file in SYSTEM_SETTINGS {
        // A link is shown as the file that it leads to: its target may lie where the command sees nothing.
        if let Ok(target) = std::fs::canonicalize(file) {
            command.arg("--ro-bind-try").arg(target).arg(file);
        }
    }
    command.args(["--proc", "/proc", "--dev", "/dev"]);
    for facts in KERNEL_FACTS.into_iter().filter(|facts| Path::new(facts).is_file()) {
        command.args(["--ro-bind", "/dev/null", facts]);
    }
}

/// Files of `/proc` that are about the kernel and not about processes of the sandbox, and say more than a command needs.
const KERNEL_FACTS: [&str; 6] = [
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
];

/// The parts that belong to the command. Later ones lie above earlier ones, so what it may change comes last.
fn show_own(command: &mut Command, order: &SandboxOrder, program: &Path) {
    let profile = &order.rules.profile;
    command.arg("--bind").arg(&order.scratch).arg("/tmp");
    command.arg("--bind").arg(order.scratch.join(SHARED_MEMORY)).arg("/dev/shm");
    for path in &profile.read {
        bind(command, "--ro-bind", path);
    }
    if !super::inside::is_shown(program, order) {
        bind(command, "--ro-bind", program);
    }
    bind(command, if order.rules.read_only { "--ro-bind" } else { "--bind" }, &order.folder);
    for path in &profile.write {
        bind(command, "--bind", path);
    }
    // Settings of the kernel in /proc belong to root, whose processes have that name in the sandbox too. The rest is memory, and
    // nobody's to fill.
    command.args(["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]);
}

/// The folder among the temporary files that stands for shared memory: files there are bounded like others.
pub(super) const SHARED_MEMORY: &str = ".shm";

fn bind<'c>(command: &'c mut Command, how: &str, path: &Path) -> &'c mut Command {
    command.arg(how).arg(path).arg(path)
}

/// The filter of system calls in a file without a name, which bubblewrap reads.
fn filter_file(order: &SandboxOrder) -> Result<File, SandboxRefusal> {
    let program = super::inside::filter(order)?;
    let write = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("filter", MemfdFlags::empty())?);
        file.write_all(&super::syscalls::encoded(&program))?;
        file.rewind()?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    };
    write().map_err(|error| SandboxRefusal::new("the filter of system calls cannot be passed on", error))
}

/// The program, if it is installed: only where no sandboxed command could have put it.
pub(super) fn installed() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_os_string());
    let mut places =
        std::env::split_paths(&path).filter(|place| place.is_absolute()).map(|place| place.join("bwrap"));
    places.find(|file| super::inside::is_executable(file))
}
