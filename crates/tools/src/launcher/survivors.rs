//! Kills processes that launchers left running: all of a dead owner's, before the next one starts anything,
//! and those that a dead or hanging launcher could not end itself.

use super::CALL_VARIABLE;
use super::processes::Process;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroI32;
use std::time::{Duration, Instant};

/// Kills every process of the calls that `is_ours` recognises by the handle in their environment, with all
/// their descendants, waits until they are gone, and returns their number.
///
/// Call it when no owner of these calls lives, from a thread that may block. Launchers whose owner died are
/// killing their commands already and know them best, so they are given a second before they are killed too.
/// Processes of another live owner are spared: a copied data folder has the same handles. A process that both
/// cleared its environment and was orphaned after its launcher had been killed is not found.
///
/// # Errors
///
/// If a process is still there after 10 seconds: it runs as another user, or hangs in the kernel.
pub fn kill_survivors(is_ours: impl Fn(&str) -> bool) -> io::Result<usize> {
    chase(|chased, waited| {
        let everyone = others();
        let ours = |process: &Process| process.variable(CALL_VARIABLE).is_some_and(|handle| is_ours(&handle));
        let is_left = |process: &Process| ours(process) && !is_of_living_owner(process);
        let left = with_descendants(everyone, |process| chased.has(process) || is_left(process));
        let spared = |process: &Process| waited < LAUNCHERS_END_WITHIN && process.is_launcher();
        left.into_iter().map(|process| (process, !spared(&process))).collect()
    })
}

/// Kills the processes that a dead launcher left of a call, and spares those that a later launcher of the
/// same call has started; in doubt it spares, since the next start for the call kills all of them first.
pub(crate) fn kill_orphans(call: &str) -> io::Result<usize> {
    let ours = |process: &Process| process.variable(CALL_VARIABLE).is_some_and(|handle| handle == call);
    chase(|chased, _| {
        let orphaned =
            |process: &Process| (chased.has(process) || ours(process)) && !is_launched(process, call);
        with_descendants(others(), orphaned).into_iter().map(|process| (process, true)).collect()
    })
}

/// Kills everything below a hanging launcher. The caller has not waited for the launcher, so its process id
/// cannot be reused.
pub(crate) fn kill_below(launcher: Pid) -> io::Result<usize> {
    chase(|chased, _| {
        let below = with_descendants(others(), |process| chased.has(process) || process.parent == launcher);
        below.into_iter().map(|process| (process, true)).collect()
    })
}

/// Kills what `find` returns as killable, repeatedly until it finds nothing.
fn chase(find: impl Fn(&Chased, Duration) -> Vec<(Process, bool)>) -> io::Result<usize> {
    let begun = Instant::now();
    let mut chased = Chased::default();
    loop {
        let waited = begun.elapsed();
        let left = find(&chased, waited);
        if left.is_empty() {
            return Ok(chased.0.len());
        }
        if waited > GONE_WITHIN {
            return Err(still_there(&left));
        }
        for (process, may_be_killed) in left {
            chased.0.insert(process.pid.as_raw_nonzero(), process.started);
            if may_be_killed {
                kill(process);
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The found processes, by id, with their start times.
#[derive(Default)]
struct Chased(BTreeMap<NonZeroI32, u64>);

impl Chased {
    fn has(&self, process: &Process) -> bool {
        self.0.get(&process.pid.as_raw_nonzero()) == Some(&process.started)
    }
}

/// Long enough for a launcher to kill a large tree.
const LAUNCHERS_END_WITHIN: Duration = Duration::from_secs(1);
/// SIGKILL takes milliseconds; a process that takes this long needs a person.
const GONE_WITHIN: Duration = Duration::from_secs(10);
/// The kernel notifies only the parent when a process ends, so we poll.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// All processes but this one.
fn others() -> Vec<Process> {
    let us = getpid();
    Process::all().into_iter().filter(|process| process.pid != us).collect()
}

/// The matching processes, and all below them.
fn with_descendants(mut others: Vec<Process>, is_meant: impl Fn(&Process) -> bool) -> Vec<Process> {
    let mut meant: Vec<Process> = others.extract_if(.., |process| is_meant(process)).collect();
    let mut seen = 0;
    while let Some(parent) = meant.get(seen).map(|process| process.pid) {
        meant.extend(others.extract_if(.., |process| process.parent == parent));
        seen += 1;
    }
    meant
}

/// Whether the process belongs to another live owner: that of a copy of our data, or of its original, whose calls have
/// the same handles. A launcher is the program of its owner started again, and its child until the owner dies.
fn is_of_living_owner(process: &Process) -> bool {
    let mut at = *process;
    for _ in 0..STEPS_MAX {
        if at.parent == Pid::INIT {
            return false;
        }
        let Some(parent) = Process::find(at.parent) else { return false };
        if at.is_launcher() {
            return parent.pid != getpid() && !parent.is_launcher() && parent.program() == at.program();
        }
        at = parent;
    }
    false
}

/// Whether a launcher of this call is above the process.
fn is_launched(process: &Process, call: &str) -> bool {
    let is_launcher = |process: &Process| {
        process.is_launcher() && process.variable(CALL_VARIABLE).is_some_and(|handle| handle == call)
    };
    let mut at = *process;
    for _ in 0..STEPS_MAX {
        if is_launcher(&at) {
            return true;
        }
        if at.parent == Pid::INIT {
            return false;
        }
        // A parent that ended meanwhile has left its child to another one: start over.
        match Process::find(at.parent).or_else(|| Process::find(process.pid)) {
            Some(next) => at = next,
            None => return true,
        }
    }
    true
}

/// Deeper than any real tree, and few enough to give up in time on an invisible parent.
const STEPS_MAX: usize = 1_000;

/// Kills this very process, and never a later one with the same id.
fn kill(process: Process) {
    // A process that cannot be opened is gone; one that may not be signalled is reported when time is up.
    if let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty())
        && Process::find(process.pid).is_some_and(|now| now.started == process.started)
    {
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
}

fn still_there(left: &[(Process, bool)]) -> io::Error {
    let pids: Vec<String> =
        left.iter().map(|(process, _)| process.pid.as_raw_nonzero().to_string()).collect();
    let message = format!(
        "processes of calls that are over do not end: {}; end them by hand, then try again",
        pids.join(", ")
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}
