//! A call through every crash: transcripts, the class table, and properties over random lives.

use crate::opened::opened;
use proptest::prelude::*;
use windlass_core::call::{
    Call, Ended, Fact, Intent, LostAttempt, Model, Moment, Parked, PreparedCall, Reason, Result as Attempted,
    Returned, Same, SameAs, Settlement, Spent, Started, State, Step,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::{AttemptNo, BatchNo, CallId, Mark, Ordinal};
use windlass_core::outcome::{Effect, ModelAnswer, Outcome, Success};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

fn prepared(class: EffectClass) -> Fact {
    Fact::Prepared(PreparedCall {
        contract: Digest([1; 32]),
        class,
        rules: None,
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    })
}

fn returned(attempt: AttemptNo) -> Fact {
    Fact::Returned(Returned { attempt, ran_us: 5, result: Attempted::Ok(Success::default()) })
}

fn ended(outcome: Option<Outcome>) -> Fact {
    let model = match outcome {
        None => Model::ValueText,
        Some(_) => Model::Own(ModelAnswer::default()),
    };
    Fact::Ended(Ended { outcome, model, spent: Spent::default() })
}

/// A life of a call as a driver leads it: facts are noted, noted facts are lost in a crash, committed ones stay.
struct Life {
    class: EffectClass,
    committed: Vec<Fact>,
    noted: Vec<Fact>,
    call: Call,
    /// How often the tool ran.
    acts: u32,
}

/// Where the owner dies. `Commit` counts the commits, `Act` the runs of the tool, each from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    BeforeCommit(u32),
    AfterCommit(u32),
    BeforeAct(u32),
    AfterAct(u32),
}

struct Died;

impl Life {
    fn new(class: EffectClass) -> Life {
        let call = Call::new(opened(), Timestamp(0));
        Life { class, committed: Vec::new(), noted: Vec::new(), call, acts: 0 }
    }

    /// A new owner finds what was committed, and nothing else.
    fn taken_over(mut self) -> Life {
        self.noted.clear();
        self.call = Call::new(opened(), Timestamp(0));
        for fact in &self.committed {
            assert_eq!(self.call.apply(Timestamp(0), fact), Ok(()), "what was committed is legal");
        }
        self
    }

    fn note(&mut self, fact: Fact) {
        assert_eq!(self.call.apply(Timestamp(0), &fact), Ok(()), "what next() asked for is legal");
        self.noted.push(fact);
    }

    /// Follows `next()` until the call is over and that is committed, or until a death.
    fn live(&mut self, deaths: &[Death]) -> Result<(), Died> {
        let (mut commits, mut acts) = (0, 0);
        loop {
            match self.call.next(&Moment::at(Timestamp(0))) {
                Step::Prepare => self.note(prepared(self.class)),
                Step::Attempt(start) => {
                    self.note(start.fact(None).unwrap());
                    if start.intent == Intent::First {
                        self.commit(deaths, &mut commits)?;
                    }
                    self.act(deaths, &mut acts)?;
                    self.note(returned(start.attempt));
                }
                Step::Lose(attempt) => self.note(Fact::Lost(LostAttempt { attempt, blamed: true })),
                Step::Settle(Settlement::Returned(_)) => self.note(ended(None)),
                Step::Settle(Settlement::Unknown) => self.note(ended(Some(Outcome::Unknown))),
                // This tool neither fails nor can be asked, so poison is all that is left.
                Step::Settle(Settlement::Poison) => {
                    let poison = Failure::invalid_request(Code::Poison, "");
                    self.note(ended(Some(Outcome::Failed(Box::new(poison)))));
                }
                step @ (Step::Join(_)
                | Step::Continue(_)
                | Step::Authorize
                | Step::Ask
                | Step::ApproveByDefault
                | Step::Reconcile(_)
                | Step::Retry { .. }
                | Step::Return { .. }
                | Step::Park(_)
                | Step::AwaitTool(_)
                | Step::SetAside(_)
                | Step::Settle(_)) => {
                    panic!("{step:?} after {:?}", self.committed)
                }
                Step::Done(_) if self.noted.is_empty() => return Ok(()),
                Step::Done(_) => self.commit(deaths, &mut commits)?,
            }
        }
    }

    fn commit(&mut self, deaths: &[Death], commits: &mut u32) -> Result<(), Died> {
        let number = *commits;
        *commits += 1;
        if deaths.contains(&Death::BeforeCommit(number)) {
            return Err(Died);
        }
        self.committed.append(&mut self.noted);
        if deaths.contains(&Death::AfterCommit(number)) { Err(Died) } else { Ok(()) }
    }

    fn act(&mut self, deaths: &[Death], acts: &mut u32) -> Result<(), Died> {
        let number = *acts;
        *acts += 1;
        if deaths.contains(&Death::BeforeAct(number)) {
            return Err(Died);
        }
        let intent_is_recorded = matches!(self.committed.last(), Some(Fact::Started(_)));
        assert!(self.class == EffectClass::Read || intent_is_recorded, "acted before its record");
        self.acts += 1;
        if deaths.contains(&Death::AfterAct(number)) { Err(Died) } else { Ok(()) }
    }
}

/// Dies once at `death`, is taken over, and tells how it went.
fn check(class: EffectClass, death: Death) -> String {
    let mut life = Life::new(class);
    if life.live(&[death]).is_err() {
        life = life.taken_over();
        assert!(life.live(&[]).is_ok());
    }
    let outcome = life.call.outcome().map(Outcome::name).unwrap_or("open");
    format!("{outcome}, ran {}, attempts {}, deaths {}", life.acts, life.call.attempts, life.call.deaths)
}

#[test]
fn every_class_at_every_crash_point() {
    use Death::{AfterAct, AfterCommit, BeforeAct, BeforeCommit};
    use EffectClass::{Keyed, Once, Read};
    let table = [
        // A read waits once for the disk: whatever is lost before that never happened.
        (Read, BeforeAct(0), "succeeded, ran 1, attempts 1, deaths 0"),
        (Read, AfterAct(0), "succeeded, ran 2, attempts 1, deaths 0"),
        (Read, BeforeCommit(0), "succeeded, ran 2, attempts 1, deaths 0"),
        (Read, AfterCommit(0), "succeeded, ran 1, attempts 1, deaths 0"),
        // The intent of a keyed call is recorded, and it runs again under the same key.
        (Keyed, BeforeCommit(0), "succeeded, ran 1, attempts 1, deaths 0"),
        (Keyed, AfterCommit(0), "succeeded, ran 1, attempts 2, deaths 1"),
        (Keyed, BeforeAct(0), "succeeded, ran 1, attempts 2, deaths 1"),
        (Keyed, AfterAct(0), "succeeded, ran 2, attempts 2, deaths 1"),
        (Keyed, BeforeCommit(1), "succeeded, ran 2, attempts 2, deaths 1"),
        (Keyed, AfterCommit(1), "succeeded, ran 1, attempts 1, deaths 0"),
        // A once call whose intent is recorded and whose end is not never runs again by itself.
        (Once, BeforeCommit(0), "succeeded, ran 1, attempts 1, deaths 0"),
        (Once, AfterCommit(0), "unknown, ran 0, attempts 1, deaths 1"),
        (Once, BeforeAct(0), "unknown, ran 0, attempts 1, deaths 1"),
        (Once, AfterAct(0), "unknown, ran 1, attempts 1, deaths 1"),
        (Once, BeforeCommit(1), "unknown, ran 1, attempts 1, deaths 1"),
        (Once, AfterCommit(1), "succeeded, ran 1, attempts 1, deaths 0"),
    ];
    for (class, death, expected) in table {
        assert_eq!(check(class, death), expected, "{class} dies {death:?}");
    }
}

#[test]
fn a_refused_call_ends_without_an_attempt() {
    let mut call = Call::new(opened(), Timestamp(0));
    let failure = Failure::invalid_request(Code::InvalidArgs, "no");
    call.apply(Timestamp(7), &ended(Some(Outcome::Failed(Box::new(failure))))).unwrap();
    assert_eq!((call.state.name(), call.attempts), ("failed", 0));
}

#[test]
fn what_cannot_follow_is_refused_and_changes_nothing() {
    use EffectClass::Once;
    let started =
        |attempt, redrive| Fact::Started(Started { attempt: AttemptNo(attempt), redrive, policy: None });
    let lost = |attempt| Fact::Lost(LostAttempt { attempt: AttemptNo(attempt), blamed: true });
    let cases: [(&str, Vec<Fact>, Fact); 9] = [
        ("started before it was prepared", vec![], started(1, false)),
        ("the second attempt first", vec![prepared(Once)], started(2, false)),
        ("a re-drive of what never ran", vec![prepared(Once)], started(1, true)),
        ("returned what never started", vec![prepared(Once)], returned(AttemptNo(1))),
        ("another attempt returned", vec![prepared(Once), started(1, false)], returned(AttemptNo(2))),
        ("another attempt was lost", vec![prepared(Once), started(1, false)], lost(2)),
        ("a once call runs again", vec![prepared(Once), started(1, false), lost(1)], started(2, true)),
        ("ended while it runs", vec![prepared(Once), started(1, false)], ended(Some(Outcome::Unknown))),
        ("ended as nothing returned", vec![prepared(Once)], ended(None)),
    ];
    for (what, facts, last) in cases {
        let mut call = Call::new(opened(), Timestamp(0));
        for fact in &facts {
            call.apply(Timestamp(0), fact).unwrap();
        }
        let before = call.clone();
        assert!(call.apply(Timestamp(0), &last).is_err(), "{what}");
        assert_eq!(call, before, "{what}");
    }
}

#[test]
fn the_model_is_told_the_value_itself() {
    let told = |value: &str, model| {
        let mut call = Call::new(opened(), Timestamp(0));
        let success = Success {
            value: windlass_core::outcome::Value::Inline(value.into()),
            parts: Vec::new(),
            side: None,
        };
        let attempt = AttemptNo(1);
        let facts = [
            prepared(EffectClass::Read),
            Fact::Started(Started { attempt, redrive: false, policy: None }),
            Fact::Returned(Returned { attempt, ran_us: 1, result: Attempted::Ok(success) }),
            Fact::Ended(Ended { outcome: None, model, spent: Spent::default() }),
        ];
        for fact in &facts {
            call.apply(Timestamp(0), fact).unwrap();
        }
        let State::Ended(end) = call.state else { panic!("it ended") };
        format!("{:?}", end.model().parts)
    };
    assert_eq!(told(r#"{"a":1}"#, Model::ValueText), r#"[Text("{\"a\":1}")]"#);
    assert_eq!(told(r#""a\nb""#, Model::ValueString), r#"[Text("a\nb")]"#);
}

fn any_death() -> impl Strategy<Value = Death> {
    prop_oneof![
        (0..3u32).prop_map(Death::BeforeCommit),
        (0..3u32).prop_map(Death::AfterCommit),
        (0..2u32).prop_map(Death::BeforeAct),
        (0..2u32).prop_map(Death::AfterAct),
    ]
}

fn any_class() -> impl Strategy<Value = EffectClass> {
    prop::sample::select(EffectClass::ALL)
}

proptest! {
    /// However often its owner dies: the call ends, `once` ran at most once, nothing runs after the end, the
    /// journal folds to the same end, and so does every prefix to a state that goes on.
    #[test]
    fn a_call_survives_any_deaths(class in any_class(), deaths in prop::collection::vec(any_death(), 0..6)) {
        let mut life = Life::new(class);
        for death in deaths {
            if life.live(&[death]).is_err() {
                life = life.taken_over();
            }
        }
        prop_assert!(life.live(&[]).is_ok());
        if class == EffectClass::Once {
            prop_assert!(life.acts <= 1);
        }
        let acts = life.acts;
        let mut life = life.taken_over();
        prop_assert!(life.live(&[]).is_ok());
        prop_assert_eq!(life.acts, acts, "an ended call ran again");
        for cut in 0..=life.committed.len() {
            let mut call = Call::new(opened(), Timestamp(0));
            for fact in &life.committed[..cut] {
                prop_assert!(call.apply(Timestamp(0), fact).is_ok());
            }
            let over = matches!(call.next(&Moment::at(Timestamp(0))), Step::Done(_));
            prop_assert_eq!(over, cut == life.committed.len());
        }
    }

    /// Any fact at any time is either legal or refused without a trace; nothing panics.
    #[test]
    fn any_sequence_is_legal_or_refused(picks in prop::collection::vec((0..8u32, 1..4u32), 0..12)) {
        let mut call = Call::new(opened(), Timestamp(0));
        for (pick, attempt) in picks {
            let attempt = AttemptNo(attempt);
            let fact = match pick {
                0 => prepared(EffectClass::Once),
                1 => prepared(EffectClass::Read),
                2 => Fact::Started(Started { attempt, redrive: false, policy: None }),
                3 => Fact::Started(Started { attempt, redrive: true, policy: None }),
                4 => Fact::Lost(LostAttempt { attempt, blamed: true }),
                5 => returned(attempt),
                6 => ended(None),
                _ => ended(Some(Outcome::Unknown)),
            };
            let before = call.clone();
            if call.apply(Timestamp(0), &fact).is_err() {
                prop_assert_eq!(&call, &before);
            }
            if before.end().is_some() {
                prop_assert_eq!(&call, &before, "the end is final");
            }
            let _ = call.next(&Moment::at(Timestamp(0)));
        }
    }
}

fn deduped(mark: u8) -> Fact {
    let Fact::Prepared(prepared) = prepared(EffectClass::Keyed) else { unreachable!() };
    let same = Same { mark: Mark([mark; 16]), for_ms: None };
    Fact::Prepared(PreparedCall { same: Some(Box::new(same)), ..prepared })
}

fn start() -> Fact {
    Fact::Started(Started { attempt: AttemptNo(1), redrive: false, policy: None })
}

/// The next step after these facts, in a word; or that the last of them is illegal.
fn after(facts: &[Fact]) -> &'static str {
    let mut call = Call::new(opened(), Timestamp(0));
    for fact in facts {
        if call.apply(Timestamp(0), fact).is_err() {
            return "illegal";
        }
    }
    match call.next(&Moment::at(Timestamp(0))) {
        Step::Join(_) if call.same_as().is_some() => "follow",
        Step::Join(_) => "join",
        Step::Attempt(_) => "attempt",
        Step::Settle(Settlement::Cancelled(Effect::None)) => "cancelled{none}",
        Step::Done(_) => "done",
        step => panic!("{step:?}"),
    }
}

#[test]
fn a_call_that_may_be_the_same_as_another_runs_only_as_the_first() {
    let same_as = || {
        let first = CallId { batch: BatchNo(1), ordinal: Ordinal(0) };
        Fact::SameAs(SameAs { first })
    };
    let cancel = || Fact::CancelAsked(windlass_core::call::CancelAsked::default());
    for (facts, expected) in [
        (vec![deduped(1)], "join"),
        (vec![deduped(1), start()], "illegal"),
        (vec![deduped(1), Fact::First], "attempt"),
        (vec![deduped(1), same_as()], "follow"),
        (vec![deduped(1), same_as(), start()], "illegal"),
        (vec![deduped(1), same_as(), same_as()], "follow"),
        (vec![deduped(1), same_as(), Fact::First], "attempt"),
        (vec![deduped(1), same_as(), cancel()], "cancelled{none}"),
        (vec![deduped(1), same_as(), ended(Some(Outcome::Unknown))], "done"),
        // Prepared again it is what it was, unless it is the same as others now.
        (vec![deduped(1), Fact::First, deduped(1)], "attempt"),
        (vec![deduped(1), Fact::First, deduped(2)], "join"),
        (vec![deduped(1), Fact::First, prepared(EffectClass::Keyed)], "attempt"),
        (vec![prepared(EffectClass::Keyed), Fact::First], "illegal"),
        (vec![prepared(EffectClass::Keyed), same_as()], "illegal"),
        (vec![deduped(1), Fact::First, start(), same_as()], "illegal"),
    ] {
        assert_eq!(after(&facts), expected, "{facts:?}");
    }
}

/// A cancel after a crash says that nothing happened only if that is so: a retry that could be the first to do something
/// is recorded before it runs.
#[test]
fn a_retry_is_recorded_first_unless_it_may_have_landed_before() {
    for (did_not_happen, expected) in [(true, Intent::First), (false, Intent::WithResult)] {
        let failure = Failure {
            retry: Retry::Safe { after_ms: None },
            did_not_happen,
            ..Failure::invalid_request(Code::ToolFailed, "no")
        };
        let result = Attempted::Failed(Box::new(failure));
        let parked = Parked { reason: Reason::Retry, wake_at: Timestamp(0), length_us: 0 };
        let facts = [
            prepared(EffectClass::Keyed),
            start(),
            Fact::Returned(Returned { attempt: AttemptNo(1), ran_us: 1, result }),
            Fact::Parked(parked),
        ];
        let mut call = Call::new(opened(), Timestamp(0));
        for fact in &facts {
            call.apply(Timestamp(0), fact).unwrap();
        }
        let Step::Attempt(start) = call.next(&Moment::at(Timestamp(0))) else { panic!("it is tried again") };
        assert_eq!(start.intent, expected);
    }
}

#[test]
fn what_took_effect_or_may_have_stands_for_others() {
    let failed = || Outcome::Failed(Box::new(Failure::did_not_happen()));
    for (outcome, stands) in [
        (Outcome::Succeeded(Success::default()), true),
        (Outcome::Unknown, true),
        (Outcome::Cancelled { effect: Effect::Unknown }, true),
        (Outcome::Cancelled { effect: Effect::Landed }, true),
        (Outcome::Cancelled { effect: Effect::None }, false),
        (Outcome::Denied { reason: String::new() }, false),
        (failed(), false),
    ] {
        let mut call = Call::new(opened(), Timestamp(0));
        call.apply(Timestamp(0), &ended(Some(outcome.clone()))).unwrap();
        assert_eq!(call.end().map(windlass_core::call::End::stands), Some(stands), "{outcome:?}");
    }
}
