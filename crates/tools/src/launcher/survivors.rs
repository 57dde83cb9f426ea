//! Ends what an earlier owner left running, before the next one starts anything.

use super::processes::Process;
use super::{CALL_VARIABLE, LAUNCH_ARG};
use rustix::process::{PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Kills every process of the calls that `is_ours` recognises by the handle in their environment, with all their
/// descendants, waits until they are gone, and says how many there were.
///
/// Call it when no owner of these calls lives, from a thread that may block. Launchers whose owner died are
/// killing their commands already and know them best, so they are given a second before they are killed too.
/// A process that both cleared its environment and was orphaned after its launcher had been killed is not found.
///
/// # Errors
///
/// If something is still there after 10 seconds: it runs as another user, or hangs in the kernel.
pub fn kill_survivors(is_ours: impl Fn(&str) -> bool) -> io::Result<usize> {
    let begun = Instant::now();
    let mut chased = BTreeMap::new();
    loop {
        let left = survivors(&is_ours, &chased);
        let waited = begun.elapsed();
        if left.is_empty() {
            return Ok(chased.len());
        }
        if waited > GONE_WITHIN {
            return Err(still_there(&left));
        }
        for process in left {
            chased.insert(process.pid.as_raw_nonzero(), process.started);
            if waited > LAUNCHERS_END_WITHIN || !process.has_first_argument(LAUNCH_ARG) {
                kill(process);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Long enough for a launcher to kill a large tree.
const LAUNCHERS_END_WITHIN: Duration = Duration::from_secs(1);
/// SIGKILL takes milliseconds; what takes this long needs a person.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// The kernel tells nobody but the parent when a process ends, so we look.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What lives of ours: marked by its environment, below something marked, or seen before and not gone.
fn survivors(is_ours: &impl Fn(&str) -> bool, chased: &BTreeMap<std::num::NonZeroI32, u64>) -> Vec<Process> {
    let us = getpid();
    let mut others: Vec<Process> = Process::all().into_iter().filter(|process| process.pid != us).collect();
    let mut ours: Vec<Process> = others
        .extract_if(.., |process| {
            chased.get(&process.pid.as_raw_nonzero()) == Some(&process.started)
                || process.variable(CALL_VARIABLE).is_some_and(|handle| is_ours(&handle))
        })
        .collect();
    let mut seen = 0;
    while let Some(parent) = ours.get(seen).map(|process| process.pid) {
        ours.extend(others.extract_if(.., |process| process.parent == parent));
        seen += 1;
    }
    ours
}

/// Kills this very process, and never a later one of the same number.
fn kill(process: Process) {
    // One that cannot be opened is gone; one that may not be signalled is reported when time is up.
    if let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty())
        && Process::find(process.pid).is_some_and(|now| now.started == process.started)
    {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

fn still_there(left: &[Process]) -> io::Error {
    let pids: Vec<String> = left.iter().map(|process| process.pid.as_raw_nonzero().to_string()).collect();
    let message = format!(
        "processes of calls whose owner died do not end: {}; end them by hand, then start again",
        pids.join(", ")
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}
