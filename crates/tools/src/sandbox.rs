//! Commands in a sandbox: they see the system read-only, change nothing but the folder of their session, and have no network unless
//! that is allowed.
//!
//! A sandboxed command is our own binary started again by the launcher: it restricts itself and becomes the command. Two parts of
//! the system can enforce the rules. bubblewrap gives the command namespaces of its own, in which nothing else exists. Where it is
//! not installed or not permitted, Landlock refuses the rest of the file system. Either way seccomp leaves out the system calls that
//! a command does not need, and resource limits hold. Where neither works there is no sandbox, and the command does not run.

mod backend;
mod bubblewrap;
mod entry;
mod inside;
mod landlocked;
mod profile;
mod syscalls;
mod usage;

pub use backend::{NoSandbox, SandboxBackend};
pub use entry::Sandbox;
pub(crate) use entry::{ProgramChoice, SandboxedRun, complained, recorded, refused};
pub(crate) use inside::{REFUSED_PROGRAM, is_executable};
pub use inside::{SANDBOX_ARG, SANDBOX_REFUSAL, sandbox_main};
pub use profile::{RecordedSandbox, SandboxProfile};

use crate::command::ProgramFile;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The order to the process that restricts itself: one word on its command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SandboxOrder {
    pub(crate) rules: RecordedSandbox,
    /// The folder of the session.
    pub(crate) folder: PathBuf,
    /// A folder for temporary files, which is removed afterwards.
    pub(crate) scratch: PathBuf,
    /// The folder that the command runs in.
    pub(crate) cwd: PathBuf,
    /// Whether an operator chose the program: then the command may read and execute its file, wherever that lies.
    pub(crate) program_is_fixed: bool,
    /// The file that is executed instead of the one that the first word names.
    pub(crate) program_file: Option<ProgramFile>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_arrives_as_it_was_given() {
        let rules = RecordedSandbox {
            backend: SandboxBackend::Landlock,
            profile: SandboxProfile { network: true, read: vec!["/opt".into()], ..SandboxProfile::default() },
            read_only: true,
        };
        let order = SandboxOrder {
            rules: rules.clone(),
            folder: "/f".into(),
            scratch: "/s".into(),
            cwd: "/f/x".into(),
            program_is_fixed: true,
            program_file: None,
        };
        let text = serde_json::to_string(&order).expect("text");
        let back: SandboxOrder = serde_json::from_str(&text).expect("an order");
        assert_eq!((back.rules, back.cwd), (rules, PathBuf::from("/f/x")));
    }
}
