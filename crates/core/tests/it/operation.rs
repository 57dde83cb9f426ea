//! Named operations of a tool, through every crash: random lives of a `stepped` call as a driver leads it.

mod effect;

use crate::opened::opened;
use proptest::prelude::*;
use std::collections::BTreeMap;
use windlass_core::call::{
    Call, CancelAsked, Cause, Ended, Fact, Intent, LostAttempt, Model, Moment, Parked, PreparedCall, Reason,
    Result as Attempted, Resumed, Returned, Settlement, Spent, Started, Step, Stopped, Suspended, Then,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::AttemptNo;
use windlass_core::operation::{Completion, Did, Operation, ReplayStep, StepResult, Until};
use windlass_core::outcome::{Effect, ModelAnswer, Outcome, Success};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

/// The operations of a body, one after the other.
#[derive(Clone, Debug)]
enum Part {
    /// Steps, all at the same time.
    Steps(Vec<Planned>),
    /// It sleeps.
    Sleep,
}

#[derive(Clone, Debug)]
struct Planned {
    once: bool,
    /// How it fails, the first times it runs.
    fails: Vec<Fails>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    /// It may have done something.
    Plainly,
    /// It says that nothing happened.
    WithoutEffect,
}

/// Where the owner dies, counted from 0 in each of its lives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    BeforeCommit(u32),
    AfterCommit(u32),
    /// While a step runs, before it has done anything.
    BeforeAct(u32),
    /// While a step runs, when it has.
    AfterAct(u32),
}

struct Died;

/// The true effect of a step, whatever is recorded.
#[derive(Clone, Debug, Default)]
struct Truth {
    once: bool,
    runs: u32,
    /// Runs that did something, or may have.
    effects: u32,
    /// Runs of which nothing is recorded.
    in_doubt: u32,
    /// Runs whose failure is recorded.
    failures: u32,
    done: bool,
    /// The try of the call in which it last failed.
    failed_in: Option<u32>,
}

impl Truth {
    /// Runs that may have done something, and failed; who is done knows what.
    fn doubts(&self) -> u32 {
        if self.done { 0 } else { self.effects }
    }
}

/// A call, whoever owns it, and the world outside it.
struct Life {
    parts: Vec<Part>,
    committed: Vec<Fact>,
    noted: Vec<Fact>,
    call: Call,
    now: Timestamp,
    /// When somebody asks to stop it: after so many runs of steps.
    cancel_at: Option<u32>,
    acts: u32,
    truth: BTreeMap<String, Truth>,
    /// Whether a worker died while an attempt ran.
    died_running: bool,
    /// The order of parallel steps, another one each time.
    order: u64,
    cancelled: Option<Effect>,
}

/// The result of one run of the body.
enum Ran {
    Returned(Attempted),
    Waits(String),
    Stopped { may_have_acted: bool },
}

/// The deaths of one owner, and how far it came.
struct Owner<'a> {
    deaths: &'a [Death],
    commits: u32,
    acts: u32,
}

const INPUT: &str = "1";

fn failure(how: Fails) -> Failure {
    Failure {
        retry: Retry::Safe { after_ms: None },
        did_not_happen: how == Fails::WithoutEffect,
        ..Failure::invalid_request(Code::ToolFailed, "no")
    }
}

fn prepared() -> Fact {
    let contract = Digest([1; 32]);
    let class = EffectClass::Stepped;
    Fact::Prepared(PreparedCall {
        contract,
        class,
        rules: None,
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    })
}

fn ended(outcome: Option<Outcome>) -> Fact {
    let model = Model::Own(ModelAnswer::default());
    Fact::Ended(Ended { outcome, model, spent: Spent::default() })
}

fn operation(name: &str, did: Did) -> Fact {
    Fact::Operation(Box::new(Operation { name: name.into(), did }))
}

impl Life {
    fn new(parts: Vec<Part>, cancel_at: Option<u32>, order: u64) -> Life {
        let mut truth = BTreeMap::new();
        for (place, part) in parts.iter().enumerate() {
            let Part::Steps(steps) = part else { continue };
            for (number, step) in steps.iter().enumerate() {
                truth.insert(name(place, number), Truth { once: step.once, ..Truth::default() });
            }
        }
        Life {
            parts,
            committed: Vec::new(),
            noted: Vec::new(),
            call: Call::new(opened(), Timestamp(0)),
            now: Timestamp(0),
            cancel_at,
            acts: 0,
            truth,
            died_running: false,
            order,
            cancelled: None,
        }
    }

    /// A new owner finds what was committed, and nothing else.
    fn taken_over(&mut self) {
        self.noted.clear();
        self.cancelled = None;
        self.call = Call::new(opened(), Timestamp(0));
        for fact in &self.committed {
            assert_eq!(self.call.apply(self.now, fact), Ok(()), "what was committed is legal");
        }
    }

    fn note(&mut self, fact: Fact) {
        assert_eq!(self.call.apply(self.now, &fact), Ok(()), "what next() asked for is legal: {fact:?}");
        self.noted.push(fact);
    }

    fn is_told_to_stop(&self) -> bool {
        self.cancel_at.is_some_and(|at| self.acts >= at)
    }

    /// Follows `next()` until the call is over and that is committed, or until a death.
    fn live(&mut self, deaths: &[Death]) -> Result<(), Died> {
        let mut owner = Owner { deaths, commits: 0, acts: 0 };
        loop {
            if self.is_told_to_stop() && self.call.cancel.is_none() && self.call.end().is_none() {
                self.note(Fact::CancelAsked(CancelAsked::default()));
            }
            match self.call.next(&Moment::at(self.now)) {
                Step::Prepare => self.note(prepared()),
                Step::Attempt(start) => {
                    self.note(start.fact(None).unwrap());
                    if start.intent == Intent::First {
                        self.commit(&mut owner)?;
                    }
                    self.run(start.attempt, &mut owner)?;
                }
                Step::Lose(attempt) => self.note(Fact::Lost(LostAttempt { attempt, blamed: false })),
                Step::Retry { .. } => {
                    let parked = Parked { reason: Reason::Retry, wake_at: self.now, length_us: 0 };
                    self.note(Fact::Parked(parked));
                    self.commit(&mut owner)?;
                }
                Step::Park(parked) => self.now = parked.wake_at,
                Step::Settle(Settlement::Returned(_)) => self.note(ended(None)),
                Step::Settle(Settlement::Exhausted(failure)) => {
                    let outcome = Outcome::Failed(Box::new(failure.clone()));
                    self.note(ended(Some(outcome)));
                }
                Step::Settle(Settlement::Cancelled(effect)) => {
                    self.cancelled = Some(effect);
                    self.note(ended(Some(Outcome::Cancelled { effect })));
                }
                Step::Done(_) if self.noted.is_empty() => return Ok(()),
                Step::Done(_) => self.commit(&mut owner)?,
                step => panic!("{step:?} after {:?}", self.committed),
            }
        }
    }

    /// One run of the body, and what is noted of its end.
    fn run(&mut self, attempt: AttemptNo, owner: &mut Owner<'_>) -> Result<(), Died> {
        let ran = self.body(owner).inspect_err(|_| self.died_running = true)?;
        let fact = match ran {
            Ran::Returned(result) => Fact::Returned(Returned { attempt, ran_us: 1, result }),
            Ran::Stopped { may_have_acted } => {
                self.note(Fact::CancelAsked(CancelAsked::default()));
                let (cause, stuck) = (Cause::Cancel, false);
                Fact::Stopped(Stopped { attempt, ran_us: 1, cause, may_have_acted, stuck, output: None })
            }
            Ran::Waits(name) => {
                let (reason, wake_at) = (Reason::Sleep, Timestamp(self.now.0 + 10));
                let parked = Parked { reason, wake_at, length_us: 10 };
                let waits = vec![name.as_str().into()];
                let then = Then::Replay;
                self.note(Fact::Suspended(Box::new(Suspended { attempt, ran_us: 1, parked, waits, then })));
                return self.commit(owner);
            }
        };
        self.note(fact);
        Ok(())
    }

    fn body(&mut self, owner: &mut Owner<'_>) -> Result<Ran, Died> {
        // As the driver has it: what it noted is recorded before the first step that runs.
        let mut start_is_noted = !self.noted.is_empty();
        for (place, part) in self.parts.clone().into_iter().enumerate() {
            match part {
                Part::Sleep => {
                    if let Some(waits) = self.sleep(&format!("sleep {place}")) {
                        return Ok(Ran::Waits(waits));
                    }
                }
                Part::Steps(steps) => {
                    let (open, mut failed) = self.begin(place, &steps);
                    if !open.is_empty() && std::mem::take(&mut start_is_noted) {
                        self.commit(owner)?;
                    }
                    let mut ends = Vec::new();
                    for number in open {
                        let name = name(place, number);
                        if steps[number].once {
                            self.note(operation(&name, Did::StepStarted { input: INPUT.into() }));
                            self.commit(owner)?;
                        }
                        ends.push((name.clone(), self.act(&name, &steps[number], owner)?));
                        if self.is_told_to_stop() {
                            return Ok(Ran::Stopped { may_have_acted: true });
                        }
                    }
                    // They end in another order than they began.
                    ends.reverse();
                    for (name, result) in ends {
                        failed = self.end(&name, result, owner)?.or(failed);
                    }
                    if let Some(failure) = failed {
                        return Ok(Ran::Returned(Attempted::Failed(Box::new(failure))));
                    }
                    if self.is_told_to_stop() {
                        return Ok(Ran::Stopped { may_have_acted: false });
                    }
                }
            }
        }
        Ok(Ran::Returned(Attempted::Ok(Success::default())))
    }

    /// Whether the body has to wait, and for what.
    fn sleep(&mut self, name: &str) -> Option<String> {
        let operations = self.call.operations.as_deref().cloned().unwrap_or_default();
        let until = Until { wake_at: Timestamp(self.now.0 + 10), length_us: 10 };
        match operations.sleep(name).unwrap() {
            Some((_, true)) => return None,
            Some(_) if operations.is_over(name, self.now) => {
                self.note(operation(name, Did::SleepEnded));
                return None;
            }
            Some(_) => {}
            None => self.note(operation(name, Did::SleepBegan(until))),
        }
        Some(name.to_string())
    }

    /// The steps that are to run, in any order, and what is known of a failure.
    fn begin(&mut self, place: usize, steps: &[Planned]) -> (Vec<usize>, Option<Failure>) {
        let mut numbers: Vec<usize> = (0..steps.len()).collect();
        self.order = self.order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let turn = (self.order >> 33) as usize % steps.len();
        numbers.rotate_left(turn);
        let (mut open, mut failed) = (Vec::new(), None);
        let operations = self.call.operations.as_deref().cloned().unwrap_or_default();
        for number in numbers {
            let name = name(place, number);
            let truth = &self.truth[&name];
            match operations.step(&name, INPUT, self.call.tries).unwrap() {
                ReplayStep::Run => open.push(number),
                ReplayStep::Done(_) => assert!(truth.done, "{name}: what is recorded happened"),
                ReplayStep::Failed(failure) => {
                    assert_eq!(truth.failed_in, Some(self.call.tries), "{name}: a failure of this try");
                    failed = Some(failure.clone());
                }
                ReplayStep::Unknown => {
                    assert!(truth.once && self.died_running, "{name}: nothing was cut");
                }
            }
        }
        (open, failed)
    }

    /// A step does what it does in the world outside.
    fn act(&mut self, name: &str, step: &Planned, owner: &mut Owner<'_>) -> Result<StepResult, Died> {
        let number = owner.acts;
        owner.acts += 1;
        if owner.deaths.contains(&Death::BeforeAct(number)) {
            return Err(Died);
        }
        let is_start_recorded = self.committed.iter().rev().find_map(|fact| match fact {
            Fact::Started(_) | Fact::Resumed(_) => Some(true),
            Fact::Lost(_) | Fact::Suspended(_) | Fact::Parked(_) | Fact::Returned(_) => Some(false),
            _ => None,
        });
        let tries = self.call.tries;
        let doubted_before = self.call.doubt.is_some();
        let truth = self.truth.get_mut(name).unwrap();
        assert!(
            is_start_recorded == Some(true) || doubted_before,
            "{name} acts before its attempt is recorded"
        );
        assert!(!truth.done, "{name} is recorded and runs again");
        assert_ne!(truth.failed_in, Some(tries), "{name} runs again in the try it failed in");
        if truth.once {
            assert_eq!(truth.in_doubt, 0, "{name} runs again, and must not");
        }
        let fails = step.fails.get(truth.failures as usize).copied();
        truth.runs += 1;
        truth.in_doubt += 1;
        truth.effects += u32::from(fails != Some(Fails::WithoutEffect));
        self.acts += 1;
        if owner.deaths.contains(&Death::AfterAct(number)) {
            return Err(Died);
        }
        Ok(match fails {
            Some(how) => StepResult::Failed(Box::new(failure(how))),
            None => StepResult::Ok("2".into()),
        })
    }

    /// Records the end of a step. It returns to the body when that is durable.
    fn end(
        &mut self,
        name: &str,
        result: StepResult,
        owner: &mut Owner<'_>,
    ) -> Result<Option<Failure>, Died> {
        let failed = match &result {
            StepResult::Ok(_) => None,
            StepResult::Failed(failure) => Some((**failure).clone()),
        };
        let tries = self.call.tries;
        self.note(operation(name, Did::StepEnded { input: INPUT.into(), result }));
        let recorded = self.commit(owner);
        if self.noted.is_empty() {
            let truth = self.truth.get_mut(name).unwrap();
            truth.in_doubt -= 1;
            truth.failures += u32::from(failed.is_some());
            truth.failed_in = failed.is_some().then_some(tries);
            truth.done = failed.is_none();
        }
        recorded.map(|()| failed)
    }

    fn commit(&mut self, owner: &mut Owner<'_>) -> Result<(), Died> {
        let number = owner.commits;
        owner.commits += 1;
        if owner.deaths.contains(&Death::BeforeCommit(number)) {
            return Err(Died);
        }
        self.committed.append(&mut self.noted);
        if owner.deaths.contains(&Death::AfterCommit(number)) { Err(Died) } else { Ok(()) }
    }

    /// A cancelled call's stated effect is true, and states all that is known.
    fn check_effect(&self) {
        let Some(said) = self.cancelled else { return };
        let (effects, in_doubt): (u32, u32) = self
            .truth
            .values()
            .fold((0, 0), |sum, truth| (sum.0 + truth.effects, sum.1 + truth.in_doubt + truth.doubts()));
        let done = self.truth.values().any(|truth| truth.done);
        match said {
            Effect::None => assert_eq!(effects, 0, "it says that nothing happened: {:?}", self.truth),
            Effect::Landed => {
                assert!(done && in_doubt == 0, "it says that all is recorded: {:?}", self.truth)
            }
            Effect::Unknown => {
                assert!(in_doubt > 0 || self.died_running, "it is known what happened: {:?}", self.truth)
            }
        }
    }
}

fn name(place: usize, number: usize) -> String {
    format!("step {place} {number}")
}

fn any_step() -> impl Strategy<Value = Planned> {
    let fails = prop::sample::select(vec![Fails::Plainly, Fails::WithoutEffect]);
    (any::<bool>(), prop::collection::vec(fails, 0..3)).prop_map(|(once, fails)| Planned { once, fails })
}

fn any_part() -> impl Strategy<Value = Part> {
    prop_oneof![
        3 => prop::collection::vec(any_step(), 1..4).prop_map(Part::Steps),
        1 => Just(Part::Sleep),
    ]
}

fn any_death() -> impl Strategy<Value = Death> {
    prop_oneof![
        (0..8u32).prop_map(Death::BeforeCommit),
        (0..8u32).prop_map(Death::AfterCommit),
        (0..4u32).prop_map(Death::BeforeAct),
        (0..4u32).prop_map(Death::AfterAct),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// However often its owner dies, and whenever it is cancelled: the call ends; a recorded step never runs again,
    /// only one that was open does; what failed runs again in the next try and not before; what must not be repeated
    /// is not; what a cancelled call says it did is true; and every prefix of the journal goes on.
    #[test]
    fn a_stepped_call_survives_any_deaths(
        parts in prop::collection::vec(any_part(), 1..4),
        deaths in prop::collection::vec(any_death(), 0..6),
        cancel_at in prop::option::of(0..6u32),
        order in any::<u64>(),
    ) {
        let mut life = Life::new(parts, cancel_at, order);
        for death in deaths {
            if life.live(&[death]).is_err() {
                life.taken_over();
            }
        }
        prop_assert!(life.live(&[]).is_ok());
        life.check_effect();
        for (name, truth) in &life.truth {
            prop_assert!(!truth.once || truth.runs <= truth.failures + 1, "{} ran {} times", name, truth.runs);
            let succeeded = matches!(life.call.outcome(), Some(Outcome::Succeeded(_)));
            let told_unknown = truth.once && life.died_running;
            prop_assert!(!succeeded || truth.done || told_unknown, "{} was left out", name);
        }
        let acts = life.acts;
        life.taken_over();
        prop_assert!(life.live(&[]).is_ok());
        prop_assert_eq!(life.acts, acts, "an ended call ran again");
        for cut in 0..=life.committed.len() {
            let mut call = Call::new(opened(), Timestamp(0));
            for fact in &life.committed[..cut] {
                prop_assert!(call.apply(Timestamp(0), fact).is_ok());
            }
            let over = matches!(call.next(&Moment::at(Timestamp(i64::MAX))), Step::Done(_));
            prop_assert_eq!(over, cut == life.committed.len());
        }
    }

    /// Any fact at any time is either legal or refused without a trace; nothing panics, and a recorded result stays.
    #[test]
    fn any_sequence_is_legal_or_refused(picks in prop::collection::vec((0..16u32, 0..3u32), 0..24)) {
        let mut call = Call::new(opened(), Timestamp(0));
        for fact in [prepared(), started(1)] {
            call.apply(Timestamp(0), &fact).unwrap();
        }
        for (pick, which) in picks {
            let fact = any_fact(pick, which);
            let before = call.clone();
            let applied = call.apply(Timestamp(0), &fact).is_ok();
            if !applied || before.end().is_some() {
                prop_assert_eq!(&call, &before, "{:?}", fact);
            }
            for name in NAMES {
                let known = |call: &Call| {
                    let operations = call.operations.as_deref().cloned().unwrap_or_default();
                    match operations.step(name, INPUT, 9) {
                        Ok(ReplayStep::Done(value)) => Some(value.to_string()),
                        _ => operations.wait(name).1.map(|answer| format!("{answer:?}")),
                    }
                };
                if let Some(recorded) = known(&before) {
                    prop_assert_eq!(known(&call), Some(recorded), "what is recorded stays");
                }
            }
            let _ = (call.next(&Moment::at(Timestamp(0))), call.next(&Moment::at(Timestamp(i64::MAX))));
        }
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn started(attempt: u32) -> Fact {
    Fact::Started(Started { attempt: AttemptNo(attempt), redrive: attempt > 1, policy: None })
}

fn any_fact(pick: u32, which: u32) -> Fact {
    let name = NAMES[which as usize % NAMES.len()];
    let attempt = AttemptNo(which + 1);
    let until = Until { wake_at: Timestamp(5), length_us: 5 };
    let parked = Parked { reason: Reason::Completion, wake_at: Timestamp(5), length_us: 5 };
    let suspended = |then| {
        let waits = vec![name.into()];
        Fact::Suspended(Box::new(Suspended { attempt: AttemptNo(1), ran_us: 1, parked, waits, then }))
    };
    let input = || INPUT.into();
    match pick {
        0 => operation(name, Did::StepStarted { input: input() }),
        1 => operation(name, Did::StepEnded { input: input(), result: StepResult::Ok("2".into()) }),
        2 => operation(name, Did::StepEnded { input: "7".into(), result: StepResult::Ok("3".into()) }),
        3 => {
            let result = StepResult::Failed(Box::new(failure(Fails::Plainly)));
            operation(name, Did::StepEnded { input: input(), result })
        }
        4 => operation(name, Did::SleepBegan(until)),
        5 => operation(name, Did::SleepEnded),
        6 => operation(name, Did::KeyTaken),
        7 => operation(name, Did::WaitBegan(until)),
        8 => operation(name, Did::Completed(Completion::ok(which.to_string()))),
        9 => operation(name, Did::TimedOut),
        10 => suspended(Then::Replay),
        11 => suspended(Then::Return),
        12 => Fact::Resumed(Resumed { attempt: AttemptNo(1) }),
        13 => Fact::Lost(LostAttempt { attempt, blamed: true }),
        14 => started(which + 1),
        _ => Fact::CancelAsked(CancelAsked::default()),
    }
}
