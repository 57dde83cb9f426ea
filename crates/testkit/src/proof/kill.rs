//! The kill rig: `kill -9` at random instants, from the first moment of a worker's life to its last, also while it
//! takes over what the one before it left.

mod permission;

pub use permission::PermissionCounts;

use super::check::{Histories, violations};
use super::history::{CallHistory, SCHEDULE, WorkerReplies};
use super::jumps;
use super::ledger::Ledger;
use super::plan::RACE;
use super::tools::{ANSWER, QUESTION};
use super::trial::{Planned, Programs, Trial, WorkerExit};
use crate::chance::Chance;
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass::batch::Siblings;
use windlass_core::batch::ClosedBy;
use windlass_core::entry::EntryEvent;
use windlass_core::operation::CLIENT;

/// Workers of one folder that are killed before it is drained and checked.
const KILLS_PER_TRIAL: u64 = 24;
/// Workers that are killed so many moments after they were started, whatever they have reached.
const EARLY_PERCENT: u64 = 30;
/// How often it is looked whether a worker has the store.
const LOOK: Duration = Duration::from_micros(300);
/// After so many violations there is no need for more.
const VIOLATIONS_MAX: usize = 20;

/// The options of the run.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// How many kills.
    pub kills: u64,
    /// Where the numbers come from.
    pub seed: u64,
    /// Stop after this long, however few kills it were.
    pub time_max: Duration,
    /// How many folders are worked on together.
    pub lanes: u64,
    /// The plans of each trial.
    pub plans: Plans,
}

/// The plans submitted while workers are killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plans {
    /// Calls of all kinds.
    #[default]
    Calls,
    /// Calls that go on without their callers.
    Tasks,
    /// Calls that wait for people.
    Approvals,
    /// Calls by grants.
    Grants,
}

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct KillReport {
    /// The submitted plans.
    pub plans: Plans,
    /// Workers killed with calls to be answered.
    pub kills: u64,
    /// Of these, before the store was open, while it took over, and while it worked.
    pub starting: u64,
    /// See above.
    pub taking_over: u64,
    /// See above.
    pub working: u64,
    /// Data folders that were drained and checked.
    pub trials: u64,
    /// Calls in them.
    pub calls: u64,
    /// Answers that were given to a client, all of which must be kept.
    pub answers: u64,
    /// Lines of the ledger.
    pub effects: u64,
    /// Calls that ended as `unknown`.
    pub unknown: u64,
    /// Attempts that were lost with their worker.
    pub lost: u64,
    /// Attempts that were made again because the tool said so.
    pub retries: u64,
    /// Attempts that were stopped.
    pub stopped: u64,
    /// Attempts that the ledger was asked about.
    pub reconciled: u64,
    /// Cancels that were acknowledged, and calls that ended so.
    pub cancels: u64,
    /// See above.
    pub cancelled: u64,
    /// Calls that ended as unknown and were resolved.
    pub resolved: u64,
    /// Changed tools that the client accepted.
    pub accepted: u64,
    /// Calls that were set aside.
    pub poison: u64,
    /// Calls that were cancelled because their batch was decided, and those of them that had started.
    pub dismissed: u64,
    /// See above.
    pub dismissed_running: u64,
    /// Batches whose calls decide about each other.
    pub rivals: u64,
    /// Steps that are recorded as done, and those of them that were asked for before, by a worker that died.
    pub steps: u64,
    /// See above.
    pub steps_again: u64,
    /// Answers from outside that were acknowledged, and calls that slept.
    pub answered: u64,
    /// See above.
    pub slept: u64,
    /// Questions that were asked, and answers to them that were acknowledged.
    pub questions: u64,
    /// See above.
    pub questions_answered: u64,
    /// Signals that were acknowledged, and those that came.
    pub signals: u64,
    /// See above.
    pub signals_received: u64,
    /// Calls that were connected to what they need, and those where somebody declined.
    pub connections: u64,
    /// See above.
    pub declined: u64,
    /// Results of tools that the client runs, acknowledged.
    pub client_results: u64,
    /// Calls inside others, and those of them that were made again in a later try of the call around them.
    pub nested: u64,
    /// See above.
    pub nested_again: u64,
    /// Calls that called others and were lost with their worker.
    pub nested_parents_lost: u64,
    /// Races inside a call that were won, and those in which a worker died.
    pub nested_races: u64,
    /// See above.
    pub nested_races_cut: u64,
    /// Batches whose calls were pushed, and those of them that a restart closed.
    pub streamed: u64,
    /// See above.
    pub streamed_cut: u64,
    /// Tasks, and those of them that outlasted their callers.
    pub tasks: u64,
    /// Calls of which a client was told before they had ended.
    pub provisional: u64,
    /// See above.
    pub outlasted: u64,
    /// Notices that were taken, those of them that were taken again, and those that were acknowledged.
    pub taken: u64,
    /// See above.
    pub taken_again: u64,
    /// See above.
    pub acknowledged: u64,
    /// Calls that were started at their time.
    pub fired: u64,
    /// Sessions that were deleted, and those whose deletion was cut off by a kill.
    pub deleted: u64,
    /// See above.
    pub deletions_cut: u64,
    /// Sessions in which calls started and awaited tasks, and workers that died before they knew how those ended.
    pub contexts: u64,
    /// See above.
    pub contexts_cut: u64,
    /// Moves of the wall clock that batches have recorded: jumps, and time without an owner.
    pub jumps: u64,
    /// Questions about calls, and what became of them.
    pub permission: PermissionCounts,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl KillReport {
    /// As a line of the results.
    pub fn record(&self, seed: u64) -> ProofRecord {
        let mut record = self.counted(seed);
        record.more["permission"] = self.permission.json();
        record
    }

    fn counted(&self, seed: u64) -> ProofRecord {
        ProofRecord {
            proof: match self.plans {
                Plans::Calls => "kill",
                Plans::Tasks => "kill-tasks",
                Plans::Approvals => "kill-approvals",
                Plans::Grants => "kill-grants",
            },
            count: self.kills,
            seed,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "starting": self.starting, "taking_over": self.taking_over, "working": self.working,
                "trials": self.trials, "calls": self.calls, "answers": self.answers, "effects": self.effects,
                "unknown": self.unknown, "lost_attempts": self.lost, "retries": self.retries,
                "stopped": self.stopped, "reconciled": self.reconciled, "cancels": self.cancels,
                "cancelled": self.cancelled, "resolved": self.resolved, "accepted": self.accepted, "poison": self.poison,
                "rivals": self.rivals, "dismissed": self.dismissed, "dismissed_running": self.dismissed_running,
                "steps": self.steps, "steps_again": self.steps_again, "answered": self.answered,
                "slept": self.slept, "questions": self.questions, "questions_answered": self.questions_answered,
                "signals": self.signals, "signals_received": self.signals_received,
                "connections": self.connections, "declined": self.declined, "client_results": self.client_results,
                "nested": self.nested, "nested_again": self.nested_again,
                "nested_parents_lost": self.nested_parents_lost, "nested_races": self.nested_races,
                "nested_races_cut": self.nested_races_cut, "streamed": self.streamed,
                "streamed_cut": self.streamed_cut, "deletions": self.deletions(), "jumps": self.jumps,
                "background": self.background(),
            }),
        }
    }

    fn deletions(&self) -> Value {
        json!({"done": self.deleted, "cut": self.deletions_cut})
    }

    fn add(&mut self, histories: &Histories) {
        self.trials += 1;
        self.calls += histories.journal.calls.len() as u64;
        self.effects += histories.effects.len() as u64;
        let answers = histories.told.iter().flat_map(|told| &told.answers);
        self.answers += answers.map(|answer| answer.calls.len() as u64).sum::<u64>();
        for call in &histories.journal.calls {
            self.unknown += u64::from(call.state() == "unknown");
            self.cancelled += u64::from(call.state() == "cancelled");
            self.poison += u64::from(call.detail() == "poison");
            let past = &call.past;
            self.lost += u64::from(past.lost);
            self.retries += u64::from(past.retries);
            self.stopped += u64::from(past.stopped + past.stopped_in_time);
            self.reconciled += past.reconciled.len() as u64;
            self.resolved += past.resolved.len() as u64;
            self.accepted += u64::from(past.accepted);
            self.dismissed += u64::from(past.dismissed);
            self.steps += call.inside.steps.values().map(|step| step.done_in.len() as u64).sum::<u64>();
            self.slept += u64::from(call.inside.sleeps);
            self.dismissed_running += u64::from(
                past.dismissed
                    && call.started.first() < past.cancel_asked.as_ref()
                    && !call.started.is_empty(),
            );
        }
        let answered = |name: &str| {
            let all = histories.told.iter().flat_map(|told| &told.answered);
            all.filter(|answered| answered.name == name).count() as u64
        };
        self.answered += answered(ANSWER);
        self.questions_answered += answered(QUESTION);
        self.client_results += answered(CLIENT);
        // A later worker's client is told so again.
        let signalled: BTreeSet<_> = histories.told.iter().flat_map(|told| &told.signalled).collect();
        self.signals += signalled.len() as u64;
        let deleted: u64 = histories.told.iter().map(|told| told.deleted.len() as u64).sum();
        self.deleted += deleted;
        self.deletions_cut +=
            histories.told.iter().map(|told| told.deleting.len() as u64).sum::<u64>() - deleted;
        self.contexts += histories.plan.contexts;
        if histories.plan.contexts > 0 {
            let is_cut = |told: &&WorkerReplies| told.died && told.contexts.is_empty();
            self.contexts_cut += histories.told.iter().filter(is_cut).count() as u64;
        }
        self.add_nested(histories);
        self.add_tasks(histories);
        self.permission.add(histories);
        let stepped = histories.effects.iter().filter(|effect| effect.verdict == "again");
        let keys: BTreeSet<&str> = histories.journal.calls.iter().map(|call| call.key.as_str()).collect();
        self.steps_again += stepped.filter(|effect| !keys.contains(effect.key.as_str())).count() as u64;
        let batches = histories.journal.batches.iter();
        let events = batches.clone().flat_map(|batch| batch.rows.iter().flatten());
        self.jumps += events.filter(|event| matches!(event, EntryEvent::ClockMoved(_))).count() as u64;
        self.rivals += batches.filter(|batch| batch.siblings != Siblings::Independent).count() as u64;
        let cancels = histories.told.iter().flat_map(|told| &told.cancels);
        self.cancels += cancels.filter(|cancel| cancel.acknowledged).count() as u64;
    }
}

impl KillReport {
    /// Waits for the world outside, calls inside others, and what was pushed.
    fn add_nested(&mut self, histories: &Histories) {
        for call in &histories.journal.calls {
            self.questions += u64::from(call.inside.questions);
            self.signals_received += call.inside.signals.len() as u64;
            let connected = call.past.connected.iter();
            self.connections += connected.clone().filter(|made| **made).count() as u64;
            self.declined += connected.filter(|made| !**made).count() as u64;
            self.nested_parents_lost += u64::from(!call.inside.called.is_empty() && call.past.lost > 0);
            if let Some(nesting) = &call.nesting {
                self.nested += 1;
                self.nested_again += u64::from(nesting.generation > 1);
                let won = nesting.name == RACE && call.state() == "succeeded" && !call.past.dismissed;
                self.nested_races += u64::from(won);
            }
        }
        let calls = histories.journal.calls.iter();
        let races = |call: &&CallHistory| call.nesting.as_ref().is_some_and(|nesting| nesting.name == RACE);
        let cut = calls.filter(races).filter(|call| call.past.lost > 0).map(|call| call.batch);
        self.nested_races_cut += cut.collect::<BTreeSet<_>>().len() as u64;
        for batch in histories.journal.batches.iter().filter(|batch| batch.streamed) {
            self.streamed += 1;
            self.streamed_cut += u64::from(batch.closed.contains(&ClosedBy::Restart));
        }
    }
}

impl KillReport {
    fn background(&self) -> Value {
        json!({
            "tasks": self.tasks, "outlasted": self.outlasted, "taken": self.taken, "taken_again": self.taken_again,
            "acknowledged": self.acknowledged, "fired": self.fired, "provisional": self.provisional,
            "contexts": self.contexts, "contexts_cut": self.contexts_cut,
        })
    }

    /// Adds tasks and their notices.
    fn add_tasks(&mut self, histories: &Histories) {
        let planned: BTreeSet<&str> = histories
            .plan
            .calls()
            .filter(|(_, _, call)| call.task.is_some())
            .map(|(_, _, call)| call.id.as_str())
            .collect();
        for call in histories.journal.calls.iter().filter(|call| call.task.is_some()) {
            self.tasks += 1;
            let id = call.name.rsplit('/').next().unwrap_or_default();
            let fired = call.name.contains(SCHEDULE);
            self.fired += u64::from(fired);
            self.outlasted += u64::from(!fired && !planned.contains(id));
        }
        let taken: Vec<&str> =
            histories.told.iter().flat_map(|told| told.taken.iter().map(|taken| taken.id.as_str())).collect();
        self.taken += taken.len() as u64;
        self.taken_again += (taken.len() - taken.iter().collect::<BTreeSet<_>>().len()) as u64;
        let provisional: BTreeSet<&String> =
            histories.told.iter().flat_map(|told| &told.provisional).collect();
        self.provisional += provisional.len() as u64;
        let acknowledged = histories.told.iter().map(|told| told.acknowledged.len() as u64);
        self.acknowledged += acknowledged.sum::<u64>();
    }
}

/// Kills until there were enough, or time is up, or it is clear that something is broken.
pub fn run(programs: &Programs, options: &KillOptions) -> Result<KillReport> {
    let rig = KillRig {
        programs,
        options,
        began: Instant::now(),
        trials: AtomicU64::new(0),
        kills: AtomicU64::new(0),
        progress: ProofProgress::new("kills", Some(options.kills)),
        report: Mutex::new(KillReport { plans: options.plans, ..KillReport::default() }),
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| scope.spawn(|| rig.lane())).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut report = rig.report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = rig.began.elapsed();
    Ok(report)
}

struct KillRig<'a> {
    programs: &'a Programs,
    options: &'a KillOptions,
    began: Instant,
    trials: AtomicU64,
    kills: AtomicU64,
    progress: ProofProgress,
    report: Mutex<KillReport>,
}

impl KillRig<'_> {
    fn lane(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut ledger = Ledger::start(&self.programs.ledger, folder.path())?;
        while !self.enough() {
            let number = self.trials.fetch_add(1, Ordering::Relaxed);
            self.trial(number, &mut ledger)?;
        }
        Ok(())
    }

    /// One folder: workers are killed until one is quicker than its killer, or enough were; then it is drained.
    fn trial(&self, number: u64, ledger: &mut Ledger) -> Result<()> {
        let mut seed = Chance::new(self.options.seed).branch(number);
        let planned = match self.options.plans {
            Plans::Calls => Planned::Seed(seed.any()),
            Plans::Tasks => Planned::Tasks(seed.any()),
            Plans::Approvals => Planned::Approvals(seed.any()),
            Plans::Grants => Planned::Grants(seed.any()),
        };
        let mut trial = Trial::new(self.programs, ledger, number, planned)?;
        let ran = self.kill_and_drain(&mut trial, &mut seed);
        let histories = trial.histories();
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let mut broken: Vec<String> = ran.err().map(|error| format!("{error:#}")).into_iter().collect();
        match histories {
            Ok(histories) => {
                report.add(&histories);
                broken.extend(violations(&histories));
            }
            Err(error) => broken.push(format!("R1: the folder cannot be read: {error:#}")),
        }
        if !broken.is_empty() {
            self.progress.advance(0, broken.len());
            let kept = trial.keep();
            let place = format!("seed {} trial {number} in {}", self.options.seed, kept.display());
            report.violations.extend(broken.into_iter().map(|broken| format!("{broken} ({place})")));
        }
        Ok(())
    }

    fn kill_and_drain(&self, trial: &mut Trial<'_>, seed: &mut Chance) -> Result<()> {
        for _ in 0..KILLS_PER_TRIAL {
            if self.enough() {
                break;
            }
            let mut child = trial.start(&[(jumps::VARIABLE, jumps::setting(seed))])?;
            wait_for_the_instant(trial, &mut child, seed)?;
            match trial.kill(&mut child)? {
                WorkerExit::Killed => {}
                WorkerExit::Done => break,
                WorkerExit::Lost => anyhow::bail!("R8: the store failed without a cause"),
            }
            let told = trial.last_told()?;
            if told.reached("done") {
                break;
            }
            self.kills.fetch_add(1, Ordering::Relaxed);
            self.progress.advance(1, 0);
            let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
            report.kills += 1;
            match (told.reached("opened"), told.reached("resumed")) {
                (false, _) => report.starting += 1,
                (true, false) => report.taking_over += 1,
                (true, true) => report.working += 1,
            }
        }
        trial.drain_as(&[(jumps::VARIABLE, jumps::latest())])
    }

    fn enough(&self) -> bool {
        let broken = self.report.lock().unwrap_or_else(PoisonError::into_inner).violations.len();
        self.kills.load(Ordering::Relaxed) >= self.options.kills
            || self.began.elapsed() >= self.options.time_max
            || broken >= VIOLATIONS_MAX
    }
}

/// From the first moment of a worker's life, or from the moment it has the store: its takeover, then its work.
fn wait_for_the_instant(trial: &mut Trial<'_>, child: &mut Child, seed: &mut Chance) -> Result<()> {
    let early = seed.percent(EARLY_PERCENT);
    let most_us = if early { 25_000 } else { seed.one_of(&[3_000, 12_000, 50_000]) };
    let delay = Duration::from_micros(seed.between(0, most_us));
    while !early && !trial.has_told()? && child.try_wait()?.is_none() {
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(delay);
    Ok(())
}
