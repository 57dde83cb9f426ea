//! Kill it at every write: at each kill point, before and after, by death and by error, in a new folder and in one
//! that another worker left. The next workers go on undisturbed, and the end is compared with that of a run in which
//! nothing happened.

use super::check::{Histories, violations};
use super::history::CallHistory;
use super::ledger::Ledger;
use super::trial::{Planned, Programs, Trial, WorkerExit};
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The actions at a point, by the worker's names.
pub const ACTIONS: [&str; 4] = ["die", "die-after", "fail", "fail-after"];

/// The actions at this point: between two waits there is no write that could fail.
pub fn actions(name: &str) -> &'static [&'static str] {
    if name.starts_with("at.") { &ACTIONS[..1] } else { &ACTIONS }
}

/// Points before the store is open whose failure does not always end the worker: it opens once more with the ballast released.
const WHILE_OPENING: [&str; 3] = ["log.catch-up", "open.identity", "open.reserve"];

/// Whether the store makes up for a failure there by itself. After a failed write it opens its file anew and decides; a checkpoint
/// is made later; the index of so few batches is written when the store is closed, or read by the next owner.
fn is_made_up_for(name: &str) -> bool {
    let own = ["write.", "log.", "index."].iter().any(|kind| name.starts_with(kind));
    own || WHILE_OPENING.contains(&name)
}

/// Where the worker before the one that takes over dies: in the middle of its work.
const LEFT_BY: (&str, u64, &str) = ("write.commit", 5, "die-after");

/// The options of the run.
#[derive(Clone, Debug)]
pub struct PointOptions {
    /// The plans of the workers.
    pub planned: Planned,
    /// Every point there is, as `windlass-worker-points --points` lists them.
    pub names: Vec<String>,
    /// Only this point with this action, in a new folder; for who knows what to look for.
    pub only: Option<(&'static str, &'static str)>,
    /// Every visit, or only the first and the last in a new folder, and the middle one in a folder that was left.
    pub every_visit: bool,
    /// Stop as soon as something is broken in whose description this stands; for who knows what to look for.
    pub until: Option<&'static str>,
    /// How many folders are worked on together.
    pub lanes: u64,
}

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct PointReport {
    /// Runs that were disturbed.
    pub runs: u64,
    /// How often each point was hit by each action.
    pub hits: BTreeMap<(String, &'static str), u64>,
    /// Runs that ended before the visit they were to be disturbed at.
    pub missed: u64,
    /// Calls that were cut and ended as `unknown`.
    pub unknown: u64,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl PointReport {
    /// Whether what was looked for is found.
    fn is_enough(&self, options: &PointOptions) -> bool {
        options.until.is_some_and(|until| self.violations.iter().any(|broken| broken.contains(until)))
    }

    /// As a line of the results.
    pub fn record(&self) -> ProofRecord {
        let points: BTreeSet<&String> = self.hits.keys().map(|(name, _)| name).collect();
        ProofRecord {
            proof: "points",
            count: self.hits.values().sum(),
            seed: 0,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "points": points.len(), "pairs": self.hits.len(), "missed": self.missed, "unknown": self.unknown,
            }),
        }
    }
}

/// One disturbed run.
#[derive(Clone, Debug)]
struct Disturbance {
    name: String,
    visit: u64,
    action: &'static str,
    /// Whether the folder was left by another worker.
    left: bool,
}

/// Disturbs every point in every way.
pub fn run(programs: &Programs, options: &PointOptions) -> Result<PointReport> {
    let began = Instant::now();
    let mut report = PointReport::default();
    let (fresh, calm, broken) = undisturbed(programs, options.planned, false)?;
    report.violations.extend(broken);
    let (left, _, broken) = match options.only {
        None => undisturbed(programs, options.planned, true)?,
        Some(_) => UndisturbedRun::default(),
    };
    report.violations.extend(broken);
    if report.is_enough(options) {
        return Ok(report);
    }
    // A plan for one point need not pass the others.
    if options.only.is_none() {
        registered(&options.names, &[&fresh, &left], &mut report.violations);
    }
    let mut disturbances = Vec::new();
    for (visits, is_left) in [(&fresh, false), (&left, true)] {
        for (name, &count) in visits {
            for visit in chosen(count, is_left, options.every_visit) {
                disturbances.extend(actions(name).iter().map(|action| Disturbance {
                    name: name.clone(),
                    visit,
                    action,
                    left: is_left,
                }));
            }
        }
    }
    let wanted = |name: &str, action: &str| options.only.is_none_or(|only| only == (name, action));
    disturbances.retain(|disturbance| wanted(&disturbance.name, disturbance.action));
    let next = AtomicU64::new(0);
    let shared = Mutex::new(report);
    let progress = ProofProgress::new("points", Some(disturbances.len() as u64));
    std::thread::scope(|scope| {
        let lane = || {
            lane(
                programs,
                options,
                &Disturbances { all: &disturbances, next: &next, progress: &progress },
                &calm,
                &shared,
            )
        };
        let lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut report = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    for name in options.names.iter().filter(|_| options.until.is_none()) {
        for &action in actions(name).iter().filter(|action| wanted(name, action)) {
            if !report.hits.contains_key(&(name.clone(), action)) {
                report.violations.push(format!("points: {name} was never hit by {action}"));
            }
        }
    }
    report.took = began.elapsed();
    Ok(report)
}

/// How often each point is visited, how each call ends, and what is broken all the same.
type UndisturbedRun = (BTreeMap<String, u64>, Calm, Vec<String>);

/// Runs the plan without a disturbance.
fn undisturbed(programs: &Programs, planned: Planned, left: bool) -> Result<UndisturbedRun> {
    let folder = tempfile::tempdir()?;
    let mut ledger = Ledger::start(&programs.ledger, folder.path())?;
    let mut trial = Trial::new(programs, &mut ledger, 0, planned)?;
    if left {
        leave(&mut trial)?;
    }
    let counted = folder.path().join("visits");
    let mut child = trial.start(&[("WINDLASS_KILL_VISITS", counted.display().to_string())])?;
    let WorkerExit::Done = trial.wait(&mut child)? else { bail!("the undisturbed run did not end well") };
    trial.drain()?;
    let histories = trial.histories()?;
    let broken = violations(&histories).into_iter().map(|broken| format!("{broken} (undisturbed)"));
    Ok((visits(&counted)?, ends(&histories), broken.collect()))
}

/// A worker that dies in the middle of its work.
fn leave(trial: &mut Trial<'_>) -> Result<()> {
    let (name, visit, action) = LEFT_BY;
    let mut child = trial.start(&[("WINDLASS_KILL_POINT", format!("{name} {visit} {action}"))])?;
    let WorkerExit::Killed = trial.wait(&mut child)? else { bail!("{name} was not visited {visit} times") };
    Ok(())
}

/// The list of points and the points that are visited are the same.
fn registered(names: &[String], visits: &[&BTreeMap<String, u64>], found: &mut Vec<String>) {
    let visited: BTreeSet<&String> = visits.iter().flat_map(|visits| visits.keys()).collect();
    let names: BTreeSet<&String> = names.iter().collect();
    found.extend(names.difference(&visited).map(|name| format!("points: {name} is never visited")));
    found.extend(visited.difference(&names).map(|name| format!("points: {name} is not registered")));
}

/// Which visits of a point are disturbed, in a new folder or in one that was left.
fn chosen(count: u64, is_left: bool, every: bool) -> BTreeSet<u64> {
    match (every, is_left) {
        (true, _) => (1..=count).collect(),
        (false, false) => [1, count].into(),
        (false, true) => [count.div_ceil(2)].into(),
    }
}

/// How each call ended, without what differs from run to run; of one that was made again inside another, the last.
fn ends(histories: &Histories) -> Calm {
    let mut calls: Vec<&CallHistory> = histories.journal.calls.iter().collect();
    calls.sort_by_key(|call| call.nesting.as_ref().map(|nesting| nesting.generation));
    let end = |call: &CallHistory| {
        let failure = &call.answer["outcome"]["failure"];
        let value = call.value.as_ref().map(|value| json!([value["call"], value["filler"]]));
        json!([call.state(), failure["code"], failure["message"], value])
    };
    calls.into_iter().map(|call| (call.path(), end(call))).collect()
}

type Calm = BTreeMap<String, Value>;

/// The disturbances of a run, which its lanes take in turn.
struct Disturbances<'a> {
    all: &'a [Disturbance],
    next: &'a AtomicU64,
    progress: &'a ProofProgress,
}

fn lane(
    programs: &Programs,
    options: &PointOptions,
    disturbances: &Disturbances<'_>,
    calm: &Calm,
    report: &Mutex<PointReport>,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut ledger = Ledger::start(&programs.ledger, folder.path())?;
    // Whoever looks for one thing knows what broke it.
    let keep = options.only.is_none();
    loop {
        let number = disturbances.next.fetch_add(1, Ordering::Relaxed);
        let Some(disturbance) = disturbances.all.get(number as usize) else { return Ok(()) };
        if report.lock().unwrap_or_else(PoisonError::into_inner).is_enough(options) {
            return Ok(());
        }
        let mut trial = Trial::new(programs, &mut ledger, number, options.planned)?;
        let mut broken = Vec::new();
        let hit = match disturb(&mut trial, disturbance) {
            Ok(hit) => hit,
            Err(error) => {
                broken.push(format!("{error:#}"));
                true
            }
        };
        let histories = trial.histories();
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        match &histories {
            Ok(histories) => {
                broken.extend(violations(histories));
                broken.extend(compared(histories, calm));
                let calls = histories.journal.calls.iter();
                let was_unknown = calls.filter(|call| call.state() == "unknown" || call.is_resolved());
                report.unknown += was_unknown.filter(|call| call.past.lost > 0).count() as u64;
            }
            Err(error) => broken.push(format!("R1: the folder cannot be read: {error:#}")),
        }
        disturbances.progress.advance(1, broken.len());
        report.runs += 1;
        if hit {
            *report.hits.entry((disturbance.name.clone(), disturbance.action)).or_default() += 1;
        } else {
            report.missed += 1;
        }
        if !broken.is_empty() {
            let Disturbance { name, visit, action, left } = disturbance;
            let mut place = format!("{action} at visit {visit} of {name}, left: {left}");
            if keep {
                place = format!("{place}, in {}", trial.keep().display());
            }
            report.violations.extend(broken.into_iter().map(|broken| format!("{broken} ({place})")));
        }
    }
}

/// Runs one worker into the point, and the next ones without. Whether the point was hit.
fn disturb(trial: &mut Trial<'_>, disturbance: &Disturbance) -> Result<bool> {
    let Disturbance { name, visit, action, left } = disturbance;
    if *left {
        leave(trial)?;
    }
    let counted = tempfile::NamedTempFile::new()?;
    let mut child = trial.start(&[
        ("WINDLASS_KILL_POINT", format!("{name} {visit} {action}")),
        ("WINDLASS_KILL_VISITS", counted.path().display().to_string()),
    ])?;
    let ended = trial.wait(&mut child)?;
    // Which calls are committed together is chance, so the last visits may not come.
    let hit = visits(counted.path())?.get(name).is_some_and(|visits| visits >= visit);
    // That a message was adopted is written while nobody waits for it.
    let in_the_background = name == "lane.durable";
    let as_told = match (ended, *action) {
        (WorkerExit::Killed, "die" | "die-after") => hit,
        // A write that fails once is no reason to lose anything.
        (WorkerExit::Lost, "fail" | "fail-after") => hit && !name.starts_with("write."),
        (WorkerExit::Done, "fail" | "fail-after") => !hit || is_made_up_for(name) || in_the_background,
        (WorkerExit::Done, _) => !hit || in_the_background,
        (WorkerExit::Killed | WorkerExit::Lost, _) => false,
    };
    if !as_told {
        bail!("R8: the worker was to {action} and did not");
    }
    trial.drain()?;
    Ok(hit)
}

/// How often each point was visited.
pub(super) fn visits(counted: &Path) -> Result<BTreeMap<String, u64>> {
    let mut visits = BTreeMap::new();
    for name in std::fs::read_to_string(counted)?.lines() {
        *visits.entry(name.to_owned()).or_default() += 1;
    }
    Ok(visits)
}

/// Every call ended as it does undisturbed; only what must not be repeated and was cut may be `unknown`, or resolved to
/// what the ledger saw; and what is not there may be given up after a wait.
fn compared(histories: &Histories, calm: &Calm) -> Vec<String> {
    let calls = &histories.journal.calls;
    let resolved: BTreeSet<String> =
        calls.iter().filter(|call| call.is_resolved()).map(CallHistory::path).collect();
    let ended = ends(histories);
    let mut found = Vec::new();
    for (name, calm) in calm {
        let Some(end) = ended.get(name) else {
            if !is_cut_with(histories, name) && !is_pushed(histories, name) {
                found.push(format!("R1: {name} is not recorded, undisturbed it is"));
            }
            continue;
        };
        // What is cancelled by chance of time ends as the checker says.
        let may_differ = end[0] == "unknown" || calm[0] == "cancelled" || resolved.contains(name);
        let given_up = calm[1] == "no_such_tool" && end[1] == "timeout";
        if end != calm && !may_differ && !given_up && !is_cut_with(histories, name) {
            found.push(format!("R3: {name} ended as {end}, undisturbed as {calm}"));
        }
    }
    let more = ended.keys().filter(|name| !calm.contains_key(*name));
    found.extend(more.map(|name| format!("R1: {name} is recorded, undisturbed it is not")));
    found
}

/// Whether a call is inside one that is unknown: a death ended that one in the middle.
fn is_cut_with(histories: &Histories, name: &str) -> bool {
    let mut cut =
        histories.journal.calls.iter().filter(|call| call.state() == "unknown" || call.is_resolved());
    cut.any(|call| name.strip_prefix(call.name.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

/// Whether a call is pushed: a death may come before.
fn is_pushed(histories: &Histories, name: &str) -> bool {
    let mut calls = histories.plan.calls().filter(|(_, batch, _)| batch.streamed);
    calls.any(|(session, batch, call)| format!("{}/{}/{}", session.name, batch.key, call.id) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_points_is_what_is_visited() {
        let check = |names: &[&str], visited: &[&str], expected: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let visits = visited.iter().map(|name| (name.to_string(), 1)).collect();
            let mut found = Vec::new();
            registered(&names, &[&visits], &mut found);
            assert_eq!(found, expected);
        };
        check(&["a", "b"], &["b", "a"], &[]);
        check(&["a", "b"], &["a"], &["points: b is never visited"]);
        check(&["a"], &["a", "b"], &["points: b is not registered"]);
    }

    #[test]
    fn first_middle_and_last_visits() {
        assert_eq!(chosen(1, false, false), [1].into());
        assert_eq!(chosen(7, false, false), [1, 7].into());
        assert_eq!(chosen(7, true, false), [4].into());
        assert_eq!(chosen(3, true, true), [1, 2, 3].into());
    }
}
