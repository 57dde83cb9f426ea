//! The launcher: our own binary started again between us and a command, so that nothing of the command stays.
//!
//! It is a process of its own because it must outlive its owner by a moment: when the owner dies, however it
//! dies, the kernel closes the owner's end of the socket that is the launcher's standard input, and the launcher
//! kills the command and everything the command started. As child subreaper it inherits whatever is orphaned
//! below it, also what left the process group or the terminal session.
//!
//! The socket speaks, from the owner: the length of the command's standard input (8 bytes, little endian), those
//! bytes, then single bytes: `TERMINATE` and `KILL`; its end means `KILL`. From the launcher: one `Report`, when nothing of the command is left. Program, arguments, environment and folder of the
//! command are the launcher's own, so they need no encoding.

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

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The hidden first argument that makes our binary a launcher: then `main` calls [`launch_main`] and nothing else.
pub const LAUNCH_ARG: &str = "__launch";

/// The environment variable that carries the handle of the call, by which survivors are found.
pub const CALL_VARIABLE: &str = "WINDLASS_CALL";

/// How to start a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// What comes before the command's own words; the first is [`LAUNCH_ARG`].
    pub args: Vec<OsString>,
}

impl Launcher {
    /// The running binary, whose `main` must call [`launch_main`] when its first argument is [`LAUNCH_ARG`].
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
/// Asks the launcher to kill the command and everything it started.
pub(crate) const KILL: u8 = b'K';

/// What the launcher says last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command ended with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signalled(i32),
    /// There was no command: the system's error number.
    NotStarted(i32),
}

impl Report {
    pub(crate) const LEN: usize = 5;

    pub(crate) fn encode(self) -> [u8; Report::LEN] {
        let (tag, number) = match self {
            Report::Exited(code) => (b'E', code),
            Report::Signalled(signal) => (b'S', signal),
            Report::NotStarted(errno) => (b'N', errno),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Reads a report; none if the launcher died before it said one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Report> {
        let &[tag, a, b, c, d] = bytes else { return None };
        let number = i32::from_le_bytes([a, b, c, d]);
        match tag {
            b'E' => Some(Report::Exited(number)),
            b'S' => Some(Report::Signalled(number)),
            b'N' => Some(Report::NotStarted(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_arrives_as_it_was_sent() {
        for report in [Report::Exited(75), Report::Signalled(9), Report::NotStarted(2), Report::Exited(-1)] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        assert_eq!(Report::decode(b""), None);
        assert_eq!(Report::decode(b"X\0\0\0\0"), None);
    }
}
