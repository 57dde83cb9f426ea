//! A call that kills its worker each time it runs is set aside; those that ran beside it are not, and end as they should.

use super::check::violations;
use super::history::CallHistory;
use super::kind::{CallKind, Class};
use super::ledger::Ledger;
use super::plan::{BatchPlan, CallPlan, ProofPlan, SessionPlan, Then};
use super::trial::{Planned, Programs, Trial, WorkerExit};
use crate::results::ProofRecord;
use anyhow::{Result, bail};
use serde_json::json;
use std::time::{Duration, Instant};
use windlass::tasks::Wake;

/// How many workers may be started before all is over.
const WORKERS_MAX: u32 = 12;

/// The guilty calls by class, with the number of workers they kill.
pub const GUILTY: [(&str, u32); 4] = [("keyed", 3), ("read", 4), ("once", 1), (TASK, 3)];
/// A task that kills its workers, among neighbours that have work for a while; and the same neighbours without it.
const TASK: &str = "task";
const CALM: &str = "calm";
/// The minimum throughput of neighbours, in hundredths of their throughput without it.
const THROUGHPUT_PERCENT: u128 = 80;
/// How often that is measured: what else the machine does in one of them is not the guilty one's doing.
const MEASURED: u32 = 3;

/// The report of the run.
#[derive(Clone, Debug, Default)]
pub struct PoisonReport {
    /// For each class of the guilty: how many workers it killed, how many neighbours there were, and after how many
    /// milliseconds the last of them had ended, and all.
    pub classes: Vec<(&'static str, u32, usize, u128, u128)>,
    /// The throughput of the neighbours of a task that kills its workers, in hundredths of their throughput without it.
    pub throughput_percent: u128,
    /// Every broken promise.
    pub violations: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

impl PoisonReport {
    /// As a line of the results.
    pub fn record(&self) -> ProofRecord {
        let classes = self.classes.iter().map(|(class, deaths, neighbours, last_ms, all_ms)| {
            json!({"class": class, "deaths": deaths, "neighbours": neighbours, "neighbours_ms": last_ms, "all_ms": all_ms})
        });
        ProofRecord {
            proof: "poison",
            count: self.classes.iter().map(|class| u64::from(class.1)).sum(),
            seed: 0,
            took: self.took,
            violations: self.violations.len(),
            more: json!({
                "guilty": classes.collect::<Vec<_>>(), "throughput_percent": self.throughput_percent as u64,
            }),
        }
    }
}

/// The guilty among its neighbours: before and behind it in its batch, in other sessions, short and long.
pub fn plan(class: &str) -> Option<ProofPlan> {
    if [TASK, CALM].contains(&class) {
        return Some(busy(class == TASK));
    }
    let guilty = [Class::Keyed, Class::Read, Class::Once].into_iter().find(|known| known.name() == class)?;
    let guilty = CallPlan { then: Then::DieAlways, ..CallPlan::new("guilty", CallKind::new(guilty)) };
    let ok = CallPlan::new;
    let long = |id: &str, kind| CallPlan { order: "late:250".to_owned(), ..ok(id, kind) };
    let session = |name: &str, batches: Vec<Vec<CallPlan>>| SessionPlan {
        name: name.to_owned(),
        ahead: batches.len(),
        batches: (1..)
            .zip(batches)
            .map(|(no, calls)| BatchPlan { key: format!("b{no}"), calls, ..BatchPlan::default() })
            .collect(),
    };
    let sessions = vec![
        session(
            "guilty",
            vec![
                vec![
                    long("before", CallKind::READ),
                    ok("short", CallKind::READ),
                    guilty,
                    ok("beside", CallKind::READ),
                    ok("behind", CallKind::KEYED),
                ],
                vec![ok("next", CallKind::KEYED)],
            ],
        ),
        session("long", vec![vec![long("keyed", CallKind::KEYED), ok("after", CallKind::KEYED)]]),
        session(
            "reads",
            vec![vec![
                long("read1", CallKind::READ),
                long("read2", CallKind::READ),
                ok("read3", CallKind::READ),
            ]],
        ),
        session("short", (0..6).map(|no| vec![ok(&format!("s{no}"), CallKind::KEYED)]).collect()),
    ];
    Some(ProofPlan { sessions, ..ProofPlan::default() })
}

/// Neighbours that have work for a while, and a task that kills its workers, or none.
fn busy(guilty: bool) -> ProofPlan {
    let session = |name: String, calls: Vec<CallPlan>| SessionPlan {
        name,
        batches: vec![BatchPlan { key: "b1".into(), calls, ..BatchPlan::default() }],
        ahead: 1,
    };
    let call = |id: String| CallPlan { order: "late:25".into(), ..CallPlan::new(&id, CallKind::KEYED) };
    let neighbours =
        (0..6).map(|no| session(format!("n{no}"), (0..120).map(|k| call(format!("n{no}c{k}"))).collect()));
    let mut sessions: Vec<SessionPlan> = neighbours.collect();
    let kind = CallKind::KEYED.background();
    let task = CallPlan { then: Then::DieAlways, task: Some(Wake::OnEnd), ..CallPlan::new("guilty", kind) };
    if guilty {
        sessions.insert(0, session("guilty".into(), vec![task]));
    }
    ProofPlan { sessions, ..ProofPlan::default() }
}

/// The best throughput of the neighbours, in hundredths of their throughput without the guilty.
fn throughput(programs: &Programs, ledger: &mut Ledger, report: &mut PoisonReport) -> Result<()> {
    for number in 0..MEASURED {
        let mut took_ms = [0, 0];
        for (took, class) in took_ms.iter_mut().zip([CALM, TASK]) {
            let number = 100 + 2 * u64::from(number) + u64::from(class == TASK);
            let mut trial = Trial::new(programs, ledger, number, Planned::Poison(class))?;
            workers(&mut trial)?;
            trial.drain()?;
            let histories = trial.histories()?;
            let neighbours =
                histories.journal.calls.iter().filter(|call| !is_guilty(call)).collect::<Vec<_>>();
            *took = last_told_ms(&neighbours);
        }
        let [calm, poisoned] = took_ms;
        report.throughput_percent = report.throughput_percent.max(100 * calm / poisoned.max(1));
        if report.throughput_percent >= THROUGHPUT_PERCENT {
            return Ok(());
        }
    }
    let percent = report.throughput_percent;
    report.violations.push(format!("R16: the neighbours of a poison task keep {percent} % of their work"));
    Ok(())
}

/// Starts workers until one is done: how many died.
fn workers(trial: &mut Trial<'_>) -> Result<u32> {
    let mut died = 0;
    loop {
        let mut child = trial.start(&[])?;
        match trial.wait(&mut child)? {
            WorkerExit::Done => return Ok(died),
            WorkerExit::Killed if died < WORKERS_MAX => died += 1,
            WorkerExit::Killed | WorkerExit::Lost => bail!("R16: {died} workers died, and it goes on"),
        }
    }
}

fn is_guilty(call: &CallHistory) -> bool {
    call.name.ends_with("/guilty")
}

/// Lets each guilty call kill its workers until all is over.
pub fn run(programs: &Programs) -> Result<PoisonReport> {
    let began = Instant::now();
    let mut report = PoisonReport::default();
    let folder = tempfile::tempdir()?;
    let mut ledger = Ledger::start(&programs.ledger, folder.path())?;
    for (number, (class, deaths)) in (0..).zip(GUILTY) {
        let mut trial = Trial::new(programs, &mut ledger, number, Planned::Poison(class))?;
        let mut broken = one(&mut trial, class, deaths, &mut report)?;
        if !broken.is_empty() {
            let place = trial.keep();
            broken
                .iter_mut()
                .for_each(|broken| *broken = format!("{broken} ({class}, in {})", place.display()));
        }
        report.violations.append(&mut broken);
    }
    throughput(programs, &mut ledger, &mut report)?;
    report.took = began.elapsed();
    Ok(report)
}

fn one(
    trial: &mut Trial<'_>,
    class: &'static str,
    deaths: u32,
    report: &mut PoisonReport,
) -> Result<Vec<String>> {
    let began = Instant::now();
    let died = workers(trial)?;
    let all_ms = began.elapsed().as_millis();
    trial.drain()?;
    let histories = trial.histories()?;
    let mut broken = violations(&histories);
    if died != deaths {
        broken.push(format!("R16: {died} workers died, and {deaths} must"));
    }
    let (guilty, neighbours): (Vec<_>, Vec<_>) =
        histories.journal.calls.iter().partition(|call| is_guilty(call));
    let expected = if class == "once" { ("unknown", "") } else { ("failed", "poison") };
    for call in guilty {
        let counted = if class == "once" { 1 } else { 3 };
        if (call.state(), call.detail()) != expected || call.deaths != counted {
            let (state, detail) = (call.state(), call.detail());
            broken.push(format!("R16: the guilty is {state} {detail} after {} deaths", call.deaths));
        }
    }
    for call in &neighbours {
        if call.state() != "succeeded" {
            broken.push(format!("R16: {} is {} {}", call.name, call.state(), call.detail()));
        }
    }
    report.classes.push((class, died, neighbours.len(), last_told_ms(&neighbours), all_ms));
    Ok(broken)
}

/// When the last of these calls had ended, from when the first was asked for.
fn last_told_ms(calls: &[&CallHistory]) -> u128 {
    let opened = calls.iter().map(|call| call.opened_at.0).min().unwrap_or(0);
    let ended = calls.iter().map(|call| call.ended_at.0).max().unwrap_or(0);
    u128::try_from((ended - opened) / 1_000).unwrap_or(0)
}
