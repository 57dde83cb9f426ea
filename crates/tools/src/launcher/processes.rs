//! The processes of this machine, from `/proc`.

use super::LAUNCH_ARG;
use rustix::process::Pid;
use std::fs;
use std::path::{Path, PathBuf};

/// A process that existed when we looked and is no zombie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) parent: Pid,
    /// Its start, in ticks since boot: with the process id it identifies a process permanently.
    pub(crate) started: u64,
}

impl Process {
    /// All processes. One that comes or goes meanwhile may be missing.
    pub(crate) fn all() -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| Process::find(Pid::from_raw(name.to_str()?.parse().ok()?)?)).collect()
    }

    /// The process with this id.
    pub(crate) fn find(pid: Pid) -> Option<Process> {
        let stat = fs::read(folder(pid).join("stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The second field is the program's name in parentheses, which may itself hold blanks and parentheses.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        let lives = !matches!(state, "Z" | "X");
        // The parent of a process started by the kernel is 0.
        let parent = Pid::from_raw(parent).unwrap_or(Pid::INIT);
        lives.then_some(Process { pid, parent, started })
    }

    /// The value of a variable in the environment it was started with, if we may see it.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let environment = fs::read(folder(self.pid).join("environ")).ok()?;
        environment.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        })
    }

    /// The program it runs, if we may see it.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        fs::read_link(folder(self.pid).join("exe")).ok()
    }

    /// Whether it is one of our launchers.
    pub(crate) fn is_launcher(&self) -> bool {
        let line = fs::read(folder(self.pid).join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(LAUNCH_ARG.as_bytes())
    }
}

fn folder(pid: Pid) -> PathBuf {
    Path::new("/proc").join(pid.as_raw_nonzero().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, getppid};

    #[test]
    fn we_find_ourselves() {
        let us = Process::find(getpid()).expect("we live");
        assert_eq!(Some(us.parent), getppid());
        assert!(us.started > 0);
        assert!(Process::all().contains(&us));
        assert_eq!(us.variable("PATH"), std::env::var("PATH").ok());
        assert_eq!(us.variable("PAT"), None);
    }
}
