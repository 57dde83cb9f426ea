//! The launcher: our own binary started again between us and a command, so that nothing of the command stays.
//!
//! It is a process of its own because it must outlive its owner by a moment: when the owner dies, in any way, the kernel closes
//! the owner's end of the socket that is the launcher's standard input, and the launcher kills the command and all its
//! descendants. As child subreaper it inherits every orphan below it, even those that left the process group or the terminal
//! session.
//!
//! The protocol of the socket, from the owner: the path of the file that is executed (empty: the program's own), the path of
//! the file that is the command's standard input (empty: what follows is), then that input, each after its length (8 bytes, little endian); then single bytes: `TERMINATE` and `KILL`; its end means `KILL`. From the launcher: one `LauncherReport`, when nothing of the
//! command is left. Program, arguments, environment and folder of the command are the launcher's own, so they need no encoding.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "windlass-tools runs commands on Linux only: elsewhere no process inherits the orphans below it"
);

mod inside;
mod processes;
mod survivors;

pub use inside::launch_main;
pub use survivors::kill_survivors;
pub(crate) use survivors::{kill_below, kill_orphans};

use crate::sandbox::SANDBOX_ARG;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The hidden first argument that makes our binary a launcher: then `main` calls [`launch_main`] and nothing else.
pub const LAUNCH_ARG: &str = "__launch";

/// Whether this first argument makes our binary a launcher or a sandboxed command: then `main` calls [`launch_main`] and nothing else.
pub fn is_launch_arg(arg: &OsStr) -> bool {
    arg == LAUNCH_ARG || arg == SANDBOX_ARG
}

/// The environment variable with the handle of the call, by which survivors are found.
pub const CALL_VARIABLE: &str = "WINDLASS_CALL";

/// How to start a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// The arguments before the command's own words; the first is [`LAUNCH_ARG`].
    pub args: Vec<OsString>,
}

impl Launcher {
    /// The running binary, whose `main` must call [`launch_main`] when its first argument is a [launch argument](is_launch_arg).
    pub fn this_binary() -> std::io::Result<Launcher> {
        // The link still works after an upgrade has replaced the file, and then starts the old version, which
        // is the one that speaks our protocol.
        let link = Path::new("/proc/self/exe");
        let program = if link.exists() { link.to_path_buf() } else { std::env::current_exe()? };
        Ok(Launcher { program, args: vec![LAUNCH_ARG.into()] })
    }
}

/// Asks the launcher to send SIGTERM to the command's process group.
pub(crate) const TERMINATE: u8 = b'T';
/// Asks the launcher to kill the command and all its descendants.
pub(crate) const KILL: u8 = b'K';

/// The launcher's last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LauncherReport {
    /// The command ended with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signalled(i32),
    /// There was no command: the system's error number.
    NotStarted(i32),
}

impl LauncherReport {
    pub(crate) const LEN: usize = 5;

    pub(crate) fn encode(self) -> [u8; LauncherReport::LEN] {
        let (tag, number) = match self {
            LauncherReport::Exited(code) => (b'E', code),
            LauncherReport::Signalled(signal) => (b'S', signal),
            LauncherReport::NotStarted(errno) => (b'N', errno),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Parses a report; `None` if the launcher died before it sent one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<LauncherReport> {
        let &[tag, a, b, c, d] = bytes else { return None };
        let number = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'E' => Some(LauncherReport::Exited(number)),
            b'S' => Some(LauncherReport::Signalled(number)),
            b'N' => Some(LauncherReport::NotStarted(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        for report in [
            LauncherReport::Exited(75),
            LauncherReport::Signalled(9),
            LauncherReport::NotStarted(2),
            LauncherReport::Exited(-1),
        ] {
            assert_eq!(LauncherReport::decode(&report.encode()), Some(report));
        }
        assert_eq!(LauncherReport::decode(b""), None);
        assert_eq!(LauncherReport::decode(b"X\0\0\0\0"), None);
    }
}
