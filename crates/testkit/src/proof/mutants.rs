//! Mutants: processes that break one rule on purpose. A proof that stays green against one of them proves nothing, so
//! each must turn one red, for the reason it was made for.

use super::kind::Class;
use super::programs::{Build, cargo};
use super::table::TableEvent;
use super::trial::{Planned, Programs};
use super::{points, poison, rows};
use crate::progress::ProofProgress;
use crate::results::ProofRecord;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A rule that is broken, and what must notice it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name.
    pub rule: &'static str,
    /// Which proof is run.
    pub proof: Proof,
    /// A part of the proof's message when it is red for this reason; several, where chance decides which comes first, have ` | ` between them.
    pub expected: &'static str,
}

/// The cheapest proof that shows it.
#[derive(Clone, Copy, Debug)]
pub enum Proof {
    /// The suite of the SQLite store.
    StoreSuite,
    /// Workers that die before each commit, with this plan.
    Commits(Planned),
    /// Rows of the table, undisturbed.
    Rows(Class, TableEvent),
    /// Calls that kill their workers.
    Poison,
    /// The [hostile model](crate::hostile), for so many calls.
    Hostile(u64),
}

/// Every mutant there is.
pub const MUTANTS: [Mutant; 30] = [
    Mutant {
        rule: "name-reused",
        proof: Proof::Commits(Planned::Deletion),
        expected: "R26: doomed-1-0 was deleted, and took the same batch again",
    },
    Mutant {
        rule: "no-fence",
        proof: Proof::StoreSuite,
        expected: "sqlite_suite::a_stale_owner_changes_nothing",
    },
    Mutant {
        rule: "guard-skipped",
        proof: Proof::StoreSuite,
        expected: "sqlite_suite::a_guard_on_a_record_refuses_the_whole_change",
    },
    Mutant {
        rule: "no-intent",
        proof: Proof::Commits(Planned::Whole),
        expected: "R3: the ledger was asked 2 times",
    },
    // Whoever is told too early and asks again reads what is not there yet, and waits for ever: each batch is submitted
    // whole.
    Mutant { rule: "early-ack", proof: Proof::Commits(Planned::Whole), expected: "R1: s1/" },
    Mutant { rule: "claim-released-early", proof: Proof::Commits(Planned::Whole), expected: "order: " },
    Mutant {
        rule: "cancel-early-ack",
        proof: Proof::Commits(Planned::Asked),
        expected: "cancel: worker 1 was told that it is to stop",
    },
    Mutant {
        rule: "resolution-changes",
        proof: Proof::Commits(Planned::Asked),
        expected: "R12: s2/b3/c11: a resolution was taken that says something else",
    },
    Mutant {
        rule: "once-retried",
        proof: Proof::Rows(Class::Once, TableEvent::FailsSafe),
        expected: "table: it ended as \"failed tool_failed\", 2 attempts",
    },
    Mutant {
        rule: "losers-later",
        proof: Proof::Commits(Planned::Siblings),
        expected: "siblings: s1/b1 was decided in row",
    },
    Mutant {
        rule: "step-early-ack",
        proof: Proof::Commits(Planned::TwoSteps),
        expected: "was told as done, and asked for again",
    },
    Mutant {
        rule: "step-again",
        proof: Proof::Commits(Planned::TwoSteps),
        expected: "R2: the step first was recorded in attempt 1, and asked for again",
    },
    Mutant {
        rule: "nested-again",
        proof: Proof::Commits(Planned::Outside),
        expected: "is recorded, and nobody was to call it",
    },
    Mutant {
        rule: "answer-changes",
        proof: Proof::Commits(Planned::Outside),
        expected: "a second answer was taken that says something else",
    },
    Mutant {
        rule: "signal-apart",
        proof: Proof::Commits(Planned::Stepped),
        expected: "R12: the signals that came are ",
    },
    Mutant {
        rule: "notice-apart",
        proof: Proof::Commits(Planned::Background),
        expected: "and its end is told under {}",
    },
    Mutant {
        rule: "answer-unrecorded",
        proof: Proof::Commits(Planned::Background),
        expected: "R23: a client was told of s1/b3/c4 before it had ended, and that is not recorded",
    },
    Mutant {
        rule: "fire-apart",
        proof: Proof::Commits(Planned::Background),
        expected: "R13: the schedule t2 has started 0 calls",
    },
    Mutant {
        rule: "event-key-forgotten",
        proof: Proof::Commits(Planned::Context),
        expected: "context: context-0: context_caught was called 2 times, and not 1",
    },
    Mutant { rule: "careless", proof: Proof::Poison, expected: "workers died, and it goes on" },
    Mutant { rule: "suspects-together", proof: Proof::Poison, expected: "is failed poison" },
    Mutant {
        rule: "approval-unbound",
        proof: Proof::Hostile(HOSTILE_CALLS),
        expected: "R5: it must not run: [Err(",
    },
    Mutant {
        rule: "approval-kept",
        proof: Proof::Hostile(HOSTILE_CALLS),
        expected: "R5: it must not run: [Err(",
    },
    Mutant {
        rule: "approval-changes",
        proof: Proof::Hostile(HOSTILE_CALLS),
        expected: "was approved and denied at once",
    },
    Mutant { rule: "two-eyes", proof: Proof::Hostile(HOSTILE_CALLS), expected: "R5: it must not run: [Err(" },
    Mutant {
        rule: "judged-once",
        proof: Proof::Hostile(HOSTILE_CALLS),
        expected: "R5: it must not run: [Err(",
    },
    Mutant {
        rule: "wider-grant",
        proof: Proof::Hostile(HOSTILE_CALLS),
        expected: "R5: a copy is wider than its grant",
    },
    Mutant {
        rule: "revoked-grant",
        proof: Proof::Hostile(HOSTILE_CALLS),
        // What waited when it was revoked goes on waiting.
        expected: " is awaiting_approval, and must be Denied",
    },
    Mutant {
        rule: "grant-uncounted",
        proof: Proof::Hostile(HOSTILE_CALLS),
        // The uses that the record has are not those that there were, or a call started when none was left: whichever comes first.
        expected: " is recorded of GrantTruth | R5: it must not run: [Err(Grant)",
    },
    Mutant {
        rule: "grant-per-attempt",
        proof: Proof::Commits(Planned::Granted),
        expected: "uses of a grant are recorded, and 2 calls started by it",
    },
];

/// Calls of the hostile model within which each mutant is noticed.
const HOSTILE_CALLS: u64 = 3_000;

/// How often workers die before every commit until a mutant counts as unnoticed.
const PASSES_MAX: u32 = 20;

/// The retained length of the line that noticed a mutant.
const LINE_CHARS_MAX: usize = 160;

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct MutantReport {
    /// For each mutant that was noticed, what noticed it.
    pub noticed: Vec<String>,
    /// Mutants that no proof noticed.
    pub survived: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl MutantReport {
    /// As a line of the results.
    pub fn record(&self) -> ProofRecord {
        ProofRecord {
            proof: "mutants",
            count: (self.noticed.len() + self.survived.len()) as u64,
            seed: 0,
            took: self.took,
            violations: self.survived.len(),
            more: json!({ "noticed": self.noticed }),
        }
    }
}

/// Breaks every rule, or this one, and runs its proof.
pub fn run(build: &Build, only: Option<&str>, lanes: u64) -> Result<MutantReport> {
    let began = Instant::now();
    let mut report = MutantReport::default();
    let chosen: Vec<Mutant> =
        MUTANTS.into_iter().filter(|mutant| only.is_none_or(|only| only == mutant.rule)).collect();
    if chosen.is_empty() {
        bail!("there is no such rule; there are: {}", MUTANTS.map(|mutant| mutant.rule).join(", "));
    }
    let programs = build.clone().with_points().programs()?;
    let progress = ProofProgress::new("mutants", Some(chosen.len() as u64));
    for mutant in chosen {
        let said = match mutant.proof {
            Proof::StoreSuite => store_suite(&build.target, mutant.rule),
            Proof::Hostile(calls) => hostile(&programs, mutant.rule, calls, lanes),
            Proof::Commits(_) | Proof::Rows(..) | Proof::Poison => workers(&programs, &mutant, lanes),
        };
        let said = said.with_context(|| format!("{} could not be tried", mutant.rule))?;
        let is_expected = |line: &&str| mutant.expected.split(" | ").any(|expected| line.contains(expected));
        match said.lines().find(is_expected) {
            Some(line) => {
                let line: String = line.trim().chars().take(LINE_CHARS_MAX).collect();
                report.noticed.push(format!("{}: {line}", mutant.rule));
            }
            None => report.survived.push(format!("{} was not noticed: {said}", mutant.rule)),
        }
        progress.advance(1, 0);
    }
    report.took = began.elapsed();
    Ok(report)
}

/// Which cases of the store's suite fail.
fn store_suite(target: &Path, rule: &str) -> Result<String> {
    let suite = |more: &[&str]| {
        let mut suite = cargo();
        suite.args(["test", "--quiet", "--locked", "--package=windlass-store", "--test=it"]);
        suite.args(["--features=mutants", "--target-dir"]).arg(target).args(more);
        suite.env("WINDLASS_MUTANT", rule).output().context("cargo cannot be started")
    };
    // What cannot be built is not noticed, only broken.
    let built = suite(&["--no-run"])?;
    if !built.status.success() {
        bail!("it cannot be built: {}", String::from_utf8_lossy(&built.stderr));
    }
    let ran = suite(&["sqlite_suite"])?;
    if ran.status.success() {
        return Ok("all cases passed".to_owned());
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// The findings of the hostile model in a process that breaks this rule: the program of the worker plays it too.
fn hostile(programs: &Programs, rule: &str, calls: u64, lanes: u64) -> Result<String> {
    let mut model = Command::new(&programs.worker);
    model.arg("--hostile").args([calls, 1, lanes].map(|number| number.to_string()));
    let said = model.env("WINDLASS_MUTANT", rule).output().context("the worker cannot be started")?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// The broken promises when workers break this rule.
fn workers(programs: &Programs, mutant: &Mutant, lanes: u64) -> Result<String> {
    let programs = Programs { mutant: Some(mutant.rule.to_owned()), ..programs.clone() };
    let violations = match mutant.proof {
        Proof::Commits(planned) => commits(&programs, planned, mutant.expected, lanes),
        Proof::Rows(class, event) => {
            let options = rows::RowOptions { thorough: true, only: Some((class, event)), lanes };
            rows::run(&programs, &options).map(|report| report.violations)
        }
        Proof::Poison => poison::run(&programs).map(|report| report.violations),
        Proof::StoreSuite | Proof::Hostile(_) => Ok(Vec::new()),
    };
    // A rig that is stopped by what it sees has seen it.
    Ok(violations.unwrap_or_else(|error| vec![format!("{error:#}")]).join("\n"))
}

/// The broken promises when workers die before their commits, until there is one. Which calls are committed together is
/// chance, so a death may come beside the commit that shows it in one pass, and at it in the next.
fn commits(programs: &Programs, planned: Planned, until: &'static str, lanes: u64) -> Result<Vec<String>> {
    let options = points::PointOptions {
        planned,
        names: programs.points()?,
        only: Some(("write.commit", "die")),
        every_visit: true,
        until: Some(until),
        lanes,
    };
    let mut violations = Vec::new();
    for _ in 0..PASSES_MAX {
        violations = points::run(programs, &options)?.violations;
        if violations.iter().any(|broken| broken.contains(until)) {
            break;
        }
    }
    Ok(violations)
}
