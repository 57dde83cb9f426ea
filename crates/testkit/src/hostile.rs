//! The hostile model: any call with any arguments in any order, against random rules that change in between, with people who approve,
//! edit, deny and remember at random, and operators who issue, narrow and revoke grants. What really ran is judged by an evaluator that shares no code with the policy.
//!
//! [`chances`] makes rules, tools and arguments of a seed, [`world`] plays them against a runtime, [`truth`] judges each execution
//! with the [second evaluator](second), [`tools`] tell it what they run with. All of a world follows from its number and the seed.

pub mod chances;
pub mod grants;
pub mod second;
pub mod tools;
pub mod truth;
pub mod world;

use crate::chance::Chance;
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use truth::PermittedBy;

/// After so many violations there is no need for more.
pub const VIOLATIONS_MAX: usize = 20;
/// The retained length of a violation.
const LINE_CHARS_MAX: usize = 16_000;

/// The options of the run.
#[derive(Clone, Copy, Debug)]
pub struct HostileOptions {
    /// How many calls at least.
    pub calls: u64,
    /// Where the numbers come from.
    pub seed: u64,
    /// How many worlds are played together.
    pub lanes: u64,
    /// After how many violations it ends: [`VIOLATIONS_MAX`] by default.
    pub violations_max: usize,
}

/// Counts of a run.
#[derive(Clone, Debug, Default)]
pub struct HostileCounts {
    /// Calls of the model, without those inside others.
    pub calls: u64,
    /// Executions, by what permitted them.
    pub permitted: BTreeMap<PermittedBy, u64>,
    /// Calls by how they ended.
    pub ended: BTreeMap<String, u64>,
    /// Questions to people, and those about a call that had been approved for something else.
    pub asked: u64,
    /// See above.
    pub asked_again: u64,
    /// Denials by people, answers that were refused, and pairs of answers at once.
    pub denied_by_people: u64,
    /// See above.
    pub refused_answers: u64,
    /// See above.
    pub raced: u64,
    /// Questions that nobody answered in time.
    pub expired: u64,
    /// Answers that were remembered, and those that were forgotten.
    pub remembered: u64,
    /// See above.
    pub forgotten: u64,
    /// Cancelled calls.
    pub cancelled: u64,
    /// Changes of the policy, of tools, and of the content that approvals cover.
    pub policies: u64,
    /// See above.
    pub replaced_tools: u64,
    /// See above.
    pub changed_contents: u64,
    /// Changes that were taken back behind an approval.
    pub taken_back: u64,
    /// Executions by grant.
    pub granted: u64,
    /// Grants that were issued, copies of them, copies that were refused, and grants that were revoked.
    pub issued: u64,
    /// See above.
    pub narrowed: u64,
    /// See above.
    pub narrowings_refused: u64,
    /// See above.
    pub revoked: u64,
}

impl HostileCounts {
    fn add(&mut self, other: &HostileCounts) {
        self.calls += other.calls;
        for (reason, count) in &other.permitted {
            *self.permitted.entry(*reason).or_default() += count;
        }
        for (state, count) in &other.ended {
            *self.ended.entry(state.clone()).or_default() += count;
        }
        self.asked += other.asked;
        self.asked_again += other.asked_again;
        self.denied_by_people += other.denied_by_people;
        self.refused_answers += other.refused_answers;
        self.raced += other.raced;
        self.expired += other.expired;
        self.remembered += other.remembered;
        self.forgotten += other.forgotten;
        self.cancelled += other.cancelled;
        self.policies += other.policies;
        self.replaced_tools += other.replaced_tools;
        self.changed_contents += other.changed_contents;
        self.taken_back += other.taken_back;
        self.granted += other.granted;
        self.issued += other.issued;
        self.narrowed += other.narrowed;
        self.narrowings_refused += other.narrowings_refused;
        self.revoked += other.revoked;
    }

    /// Executions that this permitted.
    pub fn permitted_by(&self, reason: PermittedBy) -> u64 {
        self.permitted.get(&reason).copied().unwrap_or_default()
    }

    /// Calls that ended so.
    pub fn ended_as(&self, state: &str) -> u64 {
        self.ended.get(state).copied().unwrap_or_default()
    }

    fn json(&self) -> Value {
        let permitted: BTreeMap<String, u64> = self
            .permitted
            .iter()
            .map(|(reason, count)| (format!("{reason:?}").to_lowercase(), *count))
            .collect();
        json!({
            "permitted_by": permitted, "ended": self.ended, "asked": self.asked, "asked_again": self.asked_again,
            "denied_by_people": self.denied_by_people, "refused_answers": self.refused_answers, "raced": self.raced,
            "expired": self.expired, "remembered": self.remembered, "forgotten": self.forgotten,
            "cancelled": self.cancelled, "policies": self.policies, "replaced_tools": self.replaced_tools,
            "changed_contents": self.changed_contents, "taken_back": self.taken_back, "granted": self.granted,
            "issued": self.issued, "narrowed": self.narrowed, "narrowings_refused": self.narrowings_refused,
            "revoked": self.revoked,
        })
    }
}

/// The outcome of one world.
#[derive(Clone, Debug, Default)]
pub struct WorldOutcome {
    /// Its counts.
    pub counts: HostileCounts,
    /// Every broken promise.
    pub violations: Vec<String>,
}

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct HostileReport {
    /// Worlds that were played.
    pub worlds: u64,
    /// Counts of all of them.
    pub counts: HostileCounts,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl HostileReport {
    /// As a line of the results.
    pub fn record(&self, seed: u64) -> ProofRecord {
        let mut more = self.counts.json();
        more["worlds"] = json!(self.worlds);
        let (count, took) = (self.counts.calls, self.took);
        ProofRecord { proof: "hostile", count, seed, took, violations: self.violations.len(), more }
    }
}

/// Plays worlds until there were enough calls, or it is clear that something is broken.
pub fn run(options: &HostileOptions) -> Result<HostileReport> {
    let began = Instant::now();
    let (worlds, report) = (AtomicU64::new(0), Mutex::new(HostileReport::default()));
    let progress = ProofProgress::new("calls", Some(options.calls));
    let lane = || -> Result<()> {
        loop {
            {
                let report = report.lock().unwrap_or_else(PoisonError::into_inner);
                if report.counts.calls >= options.calls || report.violations.len() >= options.violations_max {
                    return Ok(());
                }
            }
            let number = worlds.fetch_add(1, Ordering::Relaxed);
            let outcome = one(options.seed, number)?;
            progress.advance(outcome.counts.calls, outcome.violations.len());
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.worlds += 1;
            report.counts.add(&outcome.counts);
            let place = format!("(seed {} world {number})", options.seed);
            for broken in outcome.violations {
                let broken: String = broken.chars().take(LINE_CHARS_MAX).collect();
                // At once: whoever watches a long run need not wait for its end.
                eprintln!("{broken} {place}");
                report.violations.push(format!("{broken} {place}"));
            }
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..options.lanes.max(1)).map(|_| scope.spawn(lane)).collect();
        lanes
            .into_iter()
            .try_for_each(|lane| lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = began.elapsed();
    Ok(report)
}

/// Plays the world of this number.
pub fn one(seed: u64, number: u64) -> Result<WorldOutcome> {
    // One thread: nothing comes between a tool's last look at the policy and its execution.
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played = threads.block_on(world::play(Chance::new(seed).branch(number)));
    played.with_context(|| format!("seed {seed} world {number} could not be played"))
}
