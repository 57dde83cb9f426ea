//! A tool becomes another class while a call of it is open: every old class, new class and phase of the call.

use crate::opened::opened;
use std::sync::Arc;
use windlass_core::call::{
    Abort, Accepted, Begins, Call, CancelAsked, Cause, Connected, Ended, Fact, Intent, LostAttempt, Model,
    Moment, Parked, PreparedCall, Reason, ReconciledAttempt, Result as Attempted, Resumed, Returned,
    Settlement, Spent, Started, State, Step, Stopped, Suspended, Then, Unconnected, Verdict,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::AttemptNo;
use windlass_core::operation::{Completion, Did, Operation, StepResult, Until};
use windlass_core::outcome::{Effect, ModelAnswer, Outcome, Success};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

const READ: EffectClass = EffectClass::Read;
const KEYED: EffectClass = EffectClass::Keyed;
const STEPPED: EffectClass = EffectClass::Stepped;
const ONCE: EffectClass = EffectClass::Once;
/// The columns of the table.
const CLASSES: [EffectClass; 4] = [READ, KEYED, STEPPED, ONCE];

const NOW: Timestamp = Timestamp(1_000);
const FIRST: AttemptNo = AttemptNo(1);
const DUE: Parked = Parked { reason: Reason::Retry, wake_at: NOW, length_us: 1 };

/// Where a call stands when its tool changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// An attempt was lost with its owner.
    Lost,
    /// It waits for its next attempt, after a failure that may have had an effect.
    RetryingInDoubt,
    /// As above, after a failure that certainly had none.
    RetryingInnocent,
    /// Its attempt is put aside; no step was made.
    Aside,
    /// Its attempt is put aside behind a recorded step.
    AsideAfterStep,
    /// The tool has returned, and the world outside has answered.
    Answered,
    /// Its attempt needed a connection, and now has it.
    Connected,
    /// As above; an attempt before that was lost.
    ConnectedAfterLoss,
    /// An attempt was stopped after it had begun.
    Stopped,
    /// An attempt was cut off from outside.
    Aborted,
}

const PHASES: [Phase; 10] = [
    Phase::Lost,
    Phase::RetryingInDoubt,
    Phase::RetryingInnocent,
    Phase::Aside,
    Phase::AsideAfterStep,
    Phase::Answered,
    Phase::Connected,
    Phase::ConnectedAfterLoss,
    Phase::Stopped,
    Phase::Aborted,
];

fn prepared(class: EffectClass, reconciles: bool) -> Fact {
    Fact::Prepared(PreparedCall {
        contract: Digest([1; 32]),
        class,
        rules: None,
        reconciles,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    })
}

fn started(attempt: AttemptNo, redrive: bool) -> Fact {
    Fact::Started(Started { attempt, redrive, policy: None })
}

fn failed(attempt: AttemptNo, did_not_happen: bool) -> Fact {
    let retry = Retry::Safe { after_ms: None };
    let failure = Failure { retry, did_not_happen, ..Failure::invalid_request(Code::ToolFailed, "") };
    Fact::Returned(Returned { attempt, ran_us: 1, result: Attempted::Failed(Box::new(failure)) })
}

fn aside(then: Then, name: &str) -> Fact {
    let parked = Parked { reason: Reason::Completion, wake_at: Timestamp(i64::MAX), length_us: u64::MAX };
    let waits: Vec<Arc<str>> = vec![name.into()];
    Fact::Suspended(Box::new(Suspended { attempt: FIRST, ran_us: 1, parked, waits, then }))
}

fn did(name: &str, did: Did) -> Fact {
    Fact::Operation(Box::new(Operation { name: name.into(), did }))
}

/// The answer of the world outside, awaited and given.
fn answered(then: Then) -> Vec<Fact> {
    let until = Until { wake_at: Timestamp(i64::MAX), length_us: u64::MAX };
    vec![
        did("answer", Did::KeyTaken),
        did("answer", Did::WaitBegan(until)),
        aside(then, "answer"),
        did("answer", Did::Completed(Completion::ok("1"))),
    ]
}

fn unconnected(attempt: AttemptNo) -> Vec<Fact> {
    let parked = Parked { reason: Reason::Connection, ..DUE };
    let provider = "mail".into();
    vec![
        Fact::Unconnected(Box::new(Unconnected { attempt, ran_us: 1, parked, provider, setup_url: None })),
        Fact::Connected(Connected { connected: true }),
    ]
}

fn lost(attempt: AttemptNo) -> Fact {
    Fact::Lost(LostAttempt { attempt, blamed: false })
}

/// How a call of that class gets there, once prepared; `None` where it never does.
fn life(class: EffectClass, phase: Phase) -> Option<Vec<Fact>> {
    let begun = vec![started(FIRST, false)];
    let rest = match phase {
        Phase::Lost => vec![lost(FIRST)],
        // It is not retried.
        Phase::RetryingInDoubt if class == ONCE => return None,
        Phase::RetryingInDoubt => vec![failed(FIRST, false), Fact::Parked(DUE)],
        Phase::RetryingInnocent => vec![failed(FIRST, true), Fact::Parked(DUE)],
        Phase::Aside | Phase::AsideAfterStep if class != STEPPED => return None,
        Phase::Aside => answered(Then::Replay),
        Phase::AsideAfterStep => {
            let input: Arc<str> = "{}".into();
            let step = did("step", Did::StepEnded { input, result: StepResult::Ok("1".into()) });
            [vec![step], answered(Then::Replay)].concat()
        }
        Phase::Answered => answered(Then::Return),
        Phase::Connected => unconnected(FIRST),
        Phase::ConnectedAfterLoss if class == ONCE => return None,
        Phase::ConnectedAfterLoss => {
            [vec![lost(FIRST), started(AttemptNo(2), true)], unconnected(AttemptNo(2))].concat()
        }
        Phase::Aborted => {
            let retry = Retry::Safe { after_ms: None };
            let failure = Failure { retry, ..Failure::invalid_request(Code::ToolFailed, "") };
            vec![Fact::Aborted(Box::new(Abort { attempt: FIRST, ran_us: 1, failure }))]
        }
        Phase::Stopped => vec![Fact::Stopped(Stopped {
            attempt: FIRST,
            ran_us: 1,
            cause: Cause::Attempt,
            may_have_acted: true,
            stuck: false,
            output: None,
        })],
    };
    Some([begun, rest].concat())
}

/// A call of the old class in that phase, whose tool an operator has accepted as the new class.
fn changed(old: EffectClass, phase: Phase, new: EffectClass, reconciles: bool) -> Option<Call> {
    let facts = life(old, phase)?;
    let mut call = Call::new(opened(), Timestamp(0));
    let accepted = Fact::Accepted(Accepted { contract: Digest([2; 32]), class: new, reconciles });
    for fact in [vec![prepared(old, !reconciles)], facts, vec![accepted]].concat() {
        call.apply(Timestamp(0), &fact).unwrap_or_else(|illegal| panic!("{old} {phase:?}: {illegal}"));
    }
    Some(call)
}

/// Its next step, in a word.
fn next(call: &Call) -> String {
    match call.next(&Moment::at(NOW)) {
        Step::Attempt(start) => {
            let is_first = start.intent == Intent::First;
            let must_be_first = matches!(call.class(), Some(EffectClass::Once));
            assert!(is_first || !must_be_first, "the start of a `once` attempt is recorded before it");
            "run".to_string()
        }
        Step::Retry { .. } => "run".to_string(),
        Step::Reconcile(_) => "ask".to_string(),
        Step::Return { .. } => "return".to_string(),
        Step::Settle(Settlement::Unknown) => "unknown".to_string(),
        Step::Settle(Settlement::TimedOut(_)) => "timed out".to_string(),
        Step::Settle(Settlement::Failed(_)) => "failed".to_string(),
        Step::Settle(Settlement::Cancelled(effect)) => format!("cancelled {effect}"),
        other => format!("{other:?}"),
    }
}

/// One row per phase and old class, one column per new class: `read`, `keyed`, `stepped`, `once`.
const TABLE: &[(Phase, EffectClass, [&str; 4])] = &[
    (Phase::Lost, READ, ["run", "run", "run", "run"]),
    (Phase::Lost, KEYED, ["run", "run", "unknown", "unknown"]),
    (Phase::Lost, STEPPED, ["run", "unknown", "run", "unknown"]),
    (Phase::Lost, ONCE, ["unknown", "unknown", "unknown", "unknown"]),
    (Phase::RetryingInDoubt, READ, ["run", "run", "run", "run"]),
    (Phase::RetryingInDoubt, KEYED, ["run", "run", "unknown", "unknown"]),
    // Its body has no effects of its own, and it made no step.
    (Phase::RetryingInDoubt, STEPPED, ["run", "run", "run", "run"]),
    (Phase::RetryingInnocent, READ, ["run", "run", "run", "run"]),
    (Phase::RetryingInnocent, KEYED, ["run", "run", "run", "run"]),
    (Phase::RetryingInnocent, STEPPED, ["run", "run", "run", "run"]),
    (Phase::RetryingInnocent, ONCE, ["run", "run", "run", "run"]),
    (Phase::Aside, STEPPED, ["run", "run", "run", "run"]),
    (Phase::AsideAfterStep, STEPPED, ["run", "unknown", "run", "unknown"]),
    (Phase::Answered, READ, ["return", "return", "return", "return"]),
    (Phase::Answered, KEYED, ["return", "return", "return", "return"]),
    (Phase::Answered, STEPPED, ["return", "return", "return", "return"]),
    (Phase::Answered, ONCE, ["return", "return", "return", "return"]),
    (Phase::Connected, READ, ["run", "run", "run", "run"]),
    (Phase::Connected, KEYED, ["run", "run", "run", "run"]),
    (Phase::Connected, STEPPED, ["run", "run", "run", "run"]),
    (Phase::Connected, ONCE, ["run", "run", "run", "run"]),
    (Phase::ConnectedAfterLoss, READ, ["run", "run", "run", "run"]),
    (Phase::ConnectedAfterLoss, KEYED, ["run", "run", "unknown", "unknown"]),
    (Phase::ConnectedAfterLoss, STEPPED, ["run", "unknown", "run", "unknown"]),
    // What has become `once` is tried once: nothing is in doubt, and no try is left.
    (Phase::Stopped, READ, ["run", "run", "run", "timed out"]),
    (Phase::Stopped, KEYED, ["run", "run", "unknown", "unknown"]),
    (Phase::Stopped, STEPPED, ["run", "unknown", "run", "unknown"]),
    (Phase::Stopped, ONCE, ["unknown", "unknown", "unknown", "unknown"]),
    (Phase::Aborted, READ, ["run", "run", "run", "failed"]),
    (Phase::Aborted, KEYED, ["run", "run", "unknown", "unknown"]),
    (Phase::Aborted, STEPPED, ["run", "run", "run", "failed"]),
    (Phase::Aborted, ONCE, ["unknown", "unknown", "unknown", "unknown"]),
];

#[test]
fn every_old_class_new_class_and_phase_has_its_next_step() {
    let mut seen = 0;
    for (phase, old, row) in TABLE {
        for (new, expected) in CLASSES.into_iter().zip(row) {
            let place = format!("{phase:?}: {old} becomes {new}");
            let call = changed(*old, *phase, new, false).unwrap();
            assert_eq!(next(&call), *expected, "{place}");
            let asks = changed(*old, *phase, new, true).unwrap();
            // A tool of another class is asked by the key of the call, and knows nothing of steps.
            let expected = if *expected == "unknown" && *old != STEPPED { "ask" } else { expected };
            assert_eq!(next(&asks), expected, "{place}, and its tool can be asked");
            seen += 1;
        }
    }
    let reached = PHASES.iter().flat_map(|phase| CLASSES.map(|class| life(class, *phase)));
    assert_eq!(seen, 4 * reached.flatten().count(), "every phase that a class reaches is in the table");
}

/// Whether an attempt that nobody heard of again is known to be lost before its tool changes, or after.
#[test]
fn an_attempt_is_judged_by_the_class_it_was_started_under() {
    for (old, new) in CLASSES.into_iter().flat_map(|old| CLASSES.map(|new| (old, new))) {
        let accepted = Accepted { contract: Digest([2; 32]), class: new, reconciles: false };
        let changed = || Fact::Accepted(accepted);
        let [first, last] = [[changed(), lost(FIRST)], [lost(FIRST), changed()]].map(|facts| {
            let mut call = Call::new(opened(), Timestamp(0));
            let begun = [prepared(old, false), started(FIRST, false)];
            for fact in begun.into_iter().chain(facts) {
                call.apply(Timestamp(0), &fact).unwrap_or_else(|illegal| panic!("{old} to {new}: {illegal}"));
            }
            (next(&call), call.doubt)
        });
        assert_eq!(first, last, "{old} becomes {new}");
    }
}

#[test]
fn a_cancel_never_runs_and_never_states_what_is_not_known() {
    for (phase, old, row) in TABLE {
        for (new, without) in CLASSES.into_iter().zip(row) {
            let place = format!("{phase:?}: {old} becomes {new}, and is cancelled");
            let mut call = changed(*old, *phase, new, false).unwrap();
            let knows_nothing_happened = call.doubt.is_none()
                && !(*phase == Phase::AsideAfterStep || (*phase == Phase::Stopped && *old != READ));
            call.apply(NOW, &Fact::CancelAsked(CancelAsked { reason: None })).unwrap();
            let said = next(&call);
            match (*without, &*said) {
                ("unknown", "cancelled unknown") => {}
                (_, "cancelled none") => assert!(knows_nothing_happened, "{place}: {said}"),
                (_, "cancelled landed") => {
                    assert!(*phase == Phase::AsideAfterStep && new == STEPPED, "{place}")
                }
                ("run" | "return" | "timed out" | "failed", "cancelled unknown") => {
                    assert!(!knows_nothing_happened, "{place}: {said}");
                }
                _ => panic!("{place}: {said}"),
            }
        }
    }
}

/// Follows every way a call can go from here, as a driver would, and expects every fact to be legal. Counts the ends.
fn follow(call: &Call, depth: u32) -> u32 {
    if depth == 0 {
        return 0;
    }
    let in_doubt_once = call.doubt == Some(ONCE);
    let ways: Vec<Vec<Fact>> = match call.next(&Moment::at(NOW)) {
        Step::Done(_) => return 1,
        Step::Attempt(start) => {
            assert!(!in_doubt_once, "an attempt in doubt under `once` is repeated");
            let (attempt, begin) = (start.attempt, start.fact(None).unwrap());
            let ok = Attempted::Ok(Success::default());
            let mut ways = vec![
                vec![begin.clone(), lost(attempt)],
                vec![begin.clone(), failed(attempt, false)],
                vec![begin.clone(), failed(attempt, true)],
                vec![begin, Fact::Returned(Returned { attempt, ran_us: 1, result: ok })],
            ];
            if start.begins == Begins::Resumed {
                assert_eq!(ways[0][0], Fact::Resumed(Resumed { attempt }));
            }
            if depth > 3 {
                ways.truncate(3);
            }
            ways
        }
        Step::Lose(attempt) | Step::Continue(attempt) => vec![vec![lost(attempt)]],
        Step::Reconcile(attempt) => [
            Verdict::Landed(Success::default()),
            Verdict::Failed(Box::new(windlass_core::failure::Failure::did_not_happen())),
            Verdict::DidNotHappen,
            Verdict::Unknown,
        ]
        .map(|verdict| vec![Fact::Reconciled(ReconciledAttempt { attempt, verdict })])
        .to_vec(),
        Step::Retry { .. } => vec![vec![Fact::Parked(DUE)]],
        Step::Return { attempt, .. } => {
            let result = Attempted::Ok(Success::default());
            vec![vec![Fact::Returned(Returned { attempt, ran_us: 0, result })]]
        }
        Step::Settle(settlement) => vec![vec![end(&settlement)]],
        Step::Authorize | Step::Ask | Step::ApproveByDefault => unreachable!("there is no policy here"),
        Step::Prepare | Step::Join(_) | Step::Park(_) | Step::AwaitTool(_) | Step::SetAside(_) => {
            panic!("nothing to prepare, join, wait for or set aside: {call:?}")
        }
    };
    let mut ends = 0;
    for way in ways {
        let mut call = call.clone();
        for fact in way {
            let legal = call.apply(NOW, &fact);
            assert_eq!(legal, Ok(()), "{fact:?} after {:?}", call.state);
        }
        ends += follow(&call, depth - 1);
    }
    ends
}

fn end(settlement: &Settlement<'_>) -> Fact {
    let outcome = match settlement {
        Settlement::Returned(_) => None,
        Settlement::Cancelled(effect) => Some(Outcome::Cancelled { effect: *effect }),
        Settlement::Unknown => Some(Outcome::Unknown),
        _ => Some(Outcome::Cancelled { effect: Effect::Unknown }),
    };
    let model = Model::Own(ModelAnswer::default());
    Fact::Ended(Ended { outcome, model, spent: Spent::default() })
}

#[test]
fn whatever_next_asks_for_can_be_recorded() {
    for (phase, old, _) in TABLE {
        for new in CLASSES {
            for reconciles in [false, true] {
                for cancelled in [false, true] {
                    let mut call = changed(*old, *phase, new, reconciles).unwrap();
                    if cancelled {
                        call.apply(NOW, &Fact::CancelAsked(CancelAsked { reason: None })).unwrap();
                    }
                    assert!(follow(&call, 7) > 0, "{phase:?}: {old} becomes {new}: it never ends");
                }
            }
        }
    }
}

#[test]
fn a_call_that_never_started_is_prepared_anew_under_the_new_class() {
    for (old, new) in CLASSES.into_iter().flat_map(|old| CLASSES.map(|new| (old, new))) {
        let mut call = Call::new(opened(), Timestamp(0));
        for fact in [prepared(old, false), prepared(new, true)] {
            call.apply(NOW, &fact).unwrap();
        }
        assert_eq!((call.class(), next(&call)), (Some(new), "run".to_string()), "{old} becomes {new}");
    }
}

#[test]
fn an_outside_wait_that_gives_way_to_a_wait_for_the_tool_stays_excused() {
    let mut call = Call::new(opened(), Timestamp(0));
    let facts = [vec![prepared(KEYED, false), started(FIRST, false)], answered(Then::Return)].concat();
    facts.iter().for_each(|fact| call.apply(Timestamp(0), fact).unwrap());
    let waits = Parked { reason: Reason::ToolChanged, ..DUE };
    call.apply(Timestamp(700), &Fact::Parked(waits)).unwrap();
    assert_eq!((call.excused_us, call.waited_us), (700, 700));
    assert!(matches!(call.state, State::Suspended(_)));
}
