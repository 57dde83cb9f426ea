//! How much the processes of a command use, from `/proc`.

use rustix::process::Pid;
use std::fs;
use std::path::{Path, PathBuf};

/// The usage of a process and everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeUsage {
    /// Processes and threads.
    pub(crate) tasks: u64,
    pub(crate) memory_bytes: u64,
}

/// The usage of everything below a process; a process that ends meanwhile counts for nothing.
pub(crate) fn below(root: Pid) -> TreeUsage {
    let mut usage = TreeUsage::default();
    let mut left = children(root.as_raw_nonzero().get());
    while let Some(pid) = left.pop() {
        left.extend(children(pid));
        let status = fs::read_to_string(folder(pid).join("status")).unwrap_or_default();
        usage.tasks += field(&status, "Threads:");
        // Pages of files can be dropped at any time.
        usage.memory_bytes += (field(&status, "RssAnon:") + field(&status, "RssShmem:")) * 1_024;
    }
    usage
}

/// The memory of everything below a process, where pages that several share count once. It costs more to find out.
pub(crate) fn memory_below(root: Pid) -> u64 {
    let mut bytes = 0;
    let mut left = children(root.as_raw_nonzero().get());
    while let Some(pid) = left.pop() {
        left.extend(children(pid));
        let rollup = fs::read_to_string(folder(pid).join("smaps_rollup")).unwrap_or_default();
        bytes += (field(&rollup, "Pss_Anon:") + field(&rollup, "Pss_Shmem:")) * 1_024;
    }
    bytes
}

/// The number of processes and threads of a user.
pub(super) fn tasks_of(uid: u32) -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let statuses = entries.flatten().filter_map(|entry| {
        let _pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(entry.path().join("status")).ok()
    });
    statuses
        .filter(|status| field(status, "Uid:") == u64::from(uid))
        .map(|status| field(&status, "Threads:"))
        .sum()
}

fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(folder(pid).join("task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|pid| pid.trim().parse().ok()).collect::<Vec<i32>>())
        .collect()
}

/// The first number behind a name.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getpid, getuid};
    use std::process::{Command, Stdio};

    #[test]
    fn children_are_counted_with_their_memory() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let usage = below(getpid());
        let exact = memory_below(getpid());
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert!(usage.tasks >= 1 && usage.memory_bytes > 0, "{usage:?}");
        assert!(exact > 0);
        assert!(tasks_of(getuid().as_raw()) >= 2);
    }
}
