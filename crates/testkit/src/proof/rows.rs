//! Kill it at every write of every row: each row of the [table](super::table) is run in a worker that dies at each of the
//! points it passes, before and after; the next workers go on undisturbed, and the end is one that the row allows.

use super::check::{Histories, violations};
use super::history::CallHistory;
use super::kind::Class;
use super::ledger::Ledger;
use super::points::visits;
use super::table::{ProofRow, TableEvent, rows};
use super::trial::{Planned, Programs, Trial, WorkerExit};
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How workers die at a write. Between two writes there is no after.
const DEATHS: [&str; 2] = ["die", "die-after"];

/// The options of the run.
#[derive(Clone, Copy, Debug)]
pub struct RowOptions {
    /// Both deaths at the first and the last visit of each point; or one of them at one visit, without the points that
    /// every worker passes when it opens, and the rows in which a reconciler makes no difference.
    pub thorough: bool,
    /// Only these rows, and undisturbed; for who knows what to look for.
    pub only: Option<(Class, TableEvent)>,
    /// How many folders are worked on together.
    pub lanes: u64,
}

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct RowReport {
    /// How often each row was struck.
    pub strikes: BTreeMap<String, u64>,
    /// How often each point was.
    pub points: BTreeMap<String, u64>,
    /// Workers that ended before the visit they were to die at.
    pub missed: u64,
    /// How often rows ended in which way.
    pub ends: BTreeMap<String, u64>,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl RowReport {
    /// As a line of the results.
    pub fn record(&self) -> ProofRecord {
        let fewest = self.strikes.values().min().copied().unwrap_or(0);
        ProofRecord {
            proof: "table",
            count: self.strikes.values().sum(),
            seed: 0,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "rows": self.strikes.len(), "fewest_strikes_of_a_row": fewest, "points": self.points,
                "missed": self.missed, "ends": self.ends,
            }),
        }
    }
}

/// Runs every row undisturbed, and then with a death at each of its points.
pub fn run(programs: &Programs, options: &RowOptions) -> Result<RowReport> {
    let began = Instant::now();
    let (rows, next, report) = (rows(), AtomicUsize::new(0), Mutex::default());
    let progress = ProofProgress::new("runs", None);
    std::thread::scope(|scope| {
        let lane = || -> Result<()> {
            let folder = tempfile::tempdir()?;
            let mut ledger = Ledger::start(&programs.ledger, folder.path())?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(row) = rows.get(number) else { return Ok(()) };
                let wanted = options.only.is_none_or(|only| only == (row.class, row.event));
                if !wanted || (!options.thorough && !row.is_distinct()) {
                    continue;
                }
                let striker =
                    Striker { programs, options, row, number, progress: &progress, report: &report };
                striker.row(&mut ledger).with_context(|| row.name())?;
            }
        };
        let lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = began.elapsed();
    Ok(report)
}

/// The striker of one row.
struct Striker<'a> {
    programs: &'a Programs,
    options: &'a RowOptions,
    row: &'a ProofRow,
    number: usize,
    progress: &'a ProofProgress,
    report: &'a Mutex<RowReport>,
}

/// Where a worker dies.
#[derive(Clone, Debug)]
struct Strike {
    point: String,
    visit: u64,
    death: &'static str,
}

impl Striker<'_> {
    fn row(&self, ledger: &mut Ledger) -> Result<()> {
        let calm = self.run(ledger, None)?;
        if self.options.only.is_some() {
            return Ok(());
        }
        let mut strikes = Vec::new();
        for (place, (point, &count)) in calm.iter().enumerate() {
            // The folder is made before there is a row.
            let of_opening = point.starts_with("lock.") || point.starts_with("log.");
            if point.starts_with("file.") || (of_opening && !self.options.thorough) {
                continue;
            }
            let deaths = if point.starts_with("at.") { &DEATHS[..1] } else { &DEATHS[..] };
            if self.options.thorough {
                let mut visits = vec![1, count];
                visits.dedup();
                for (&visit, &death) in
                    visits.iter().flat_map(|visit| deaths.iter().map(move |death| (visit, death)))
                {
                    strikes.push(Strike { point: point.clone(), visit, death });
                }
            } else {
                // Which of them takes turns from row to row.
                let visit = if ((self.number + place) / 2).is_multiple_of(2) { count } else { 1 };
                let death = deaths[(self.number + place) % deaths.len()];
                strikes.push(Strike { point: point.clone(), visit, death });
            }
        }
        for strike in &strikes {
            self.run(ledger, Some(strike))?;
        }
        Ok(())
    }

    /// Runs the row, with a death if one is told, and checks its end. How often each point was visited.
    fn run(&self, ledger: &mut Ledger, strike: Option<&Strike>) -> Result<BTreeMap<String, u64>> {
        // Each run has a number of its own, so that what the ledger saw is told apart.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let number = RUNS.fetch_add(1, Ordering::Relaxed) as u64;
        let mut trial = Trial::new(self.programs, ledger, number, Planned::Row(self.number))?;
        let mut broken = Vec::new();
        let ran = self.disturb(&mut trial, strike);
        let histories = trial.histories();
        let (visits, hit) = match ran {
            Ok(ran) => ran,
            Err(error) => {
                broken.push(format!("{error:#}"));
                Default::default()
            }
        };
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        match &histories {
            Ok(histories) => {
                broken.extend(violations(histories));
                broken.extend(self.end(histories, strike.is_some(), &mut report));
            }
            Err(error) => broken.push(format!("R1: the folder cannot be read: {error:#}")),
        }
        self.progress.advance(1, broken.len());
        match strike {
            Some(strike) if hit => {
                *report.strikes.entry(self.row.name()).or_default() += 1;
                *report.points.entry(strike.point.clone()).or_default() += 1;
            }
            Some(_) => report.missed += 1,
            None => {}
        }
        if !broken.is_empty() {
            let place =
                format!("row {} {}, {strike:?}, in {}", self.number, self.row.name(), trial.keep().display());
            report.violations.extend(broken.into_iter().map(|broken| format!("{broken} ({place})")));
        }
        Ok(visits)
    }

    /// Runs one worker into the point, and the next ones without. What was visited, and whether it was hit.
    fn disturb(
        &self,
        trial: &mut Trial<'_>,
        strike: Option<&Strike>,
    ) -> Result<(BTreeMap<String, u64>, bool)> {
        // A crash is a death by itself: who takes over is struck.
        if self.row.dies() {
            let mut child = trial.start(&[])?;
            let WorkerExit::Killed = trial.wait(&mut child)? else {
                bail!("the worker did not die of its tool")
            };
        }
        let counted = tempfile::NamedTempFile::new()?;
        let mut environment = vec![("WINDLASS_KILL_VISITS", counted.path().display().to_string())];
        if let Some(Strike { point, visit, death }) = strike {
            environment.push(("WINDLASS_KILL_POINT", format!("{point} {visit} {death}")));
        }
        let mut child = trial.start(&environment)?;
        let ended = trial.wait(&mut child)?;
        let visits = visits(counted.path())?;
        let hit = strike
            .is_some_and(|strike| visits.get(&strike.point).is_some_and(|times| *times >= strike.visit));
        let dies_of_its_tool = self.row.dies();
        // Who is to die after its last write may be over before that is answered.
        let may_be_over = strike.is_some_and(|strike| strike.death == "die-after");
        match ended {
            WorkerExit::Killed if hit || dies_of_its_tool => {}
            WorkerExit::Done if !hit || may_be_over => {}
            WorkerExit::Killed | WorkerExit::Done | WorkerExit::Lost => {
                bail!("R8: the worker did not end as it was told")
            }
        }
        trial.drain()?;
        Ok((visits, hit))
    }

    /// The call ended as its row says; if a worker died, as the row allows then.
    fn end(&self, histories: &Histories, struck: bool, report: &mut RowReport) -> Vec<String> {
        let is_it = |call: &&CallHistory| call.name.ends_with(ProofRow::CALL);
        let Some(call) = histories.journal.calls.iter().find(is_it) else {
            return vec!["R1: the call is not recorded".to_owned()];
        };
        let of_it = histories.effects.iter().filter(|effect| effect.call == call.name);
        let applied = of_it.filter(|effect| effect.verdict == "applied").count();
        let (end, ended) = (&self.row.end, (call.state(), call.detail()));
        let text = format!("{} {}", ended.0, ended.1);
        *report.ends.entry(text.trim().to_owned()).or_default() += 1;
        let told = call.answer["model"]["parts"][0]["text"].as_str().unwrap_or_default();
        let as_calm = ended == (end.state, end.detail) && told.starts_with(end.told);
        let lost = call.past.lost;
        let mut broken = Vec::new();
        if !struck && (!as_calm || applied != end.applied || !end.attempts.contains(&call.attempts)) {
            broken.push(format!(
                "table: it ended as {text:?}, {} attempts, {applied} applied, {told:?}",
                call.attempts
            ));
        }
        if struck && !self.row.may_end_so(ended.0, ended.1, applied) {
            broken.push(format!("table: it ended as {text:?} with {applied} applied"));
        }
        if struck && ended == (end.state, end.detail) && !told.starts_with(end.told) {
            broken.push(format!("table: the model was told {told:?}"));
        }
        if struck && call.attempts > end.attempts.end() + lost {
            broken.push(format!("table: it has {} attempts, {lost} of them lost", call.attempts));
        }
        broken
    }
}
