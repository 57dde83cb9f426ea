//! A deadline passes, or the tool is not there, while a call does not run: every state it can be in, every column of the table.

use crate::opened::opened;
use std::sync::Arc;
use windlass_core::attempt::Rules;
use windlass_core::call::{
    Call, CallClock, CancelAsked, Fact, LostAttempt, Moment, Parked, Permit, PreparedCall, Reason,
    Result as Attempted, Returned, Same, Started, Step, Suspended, Then, TooLate, ToolSearch, Waited,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::{AttemptNo, Mark};
use windlass_core::operation::{Completion, Did, Operation, Until};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

const FIRST: AttemptNo = AttemptNo(1);
const NOW: Timestamp = Timestamp(1_000);

fn call(facts: Vec<Fact>) -> Call {
    let mut call = Call::new(opened(), Timestamp(0));
    for fact in facts {
        call.apply(Timestamp(0), &fact).unwrap();
    }
    call
}

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

fn joins() -> Fact {
    let same = Some(Box::new(Same { mark: Mark([1; 16]), for_ms: Some(1) }));
    let Fact::Prepared(prepared) = prepared(EffectClass::Read, false) else { unreachable!() };
    Fact::Prepared(PreparedCall { same, ..prepared })
}

fn started() -> Fact {
    Fact::Started(Started { attempt: FIRST, redrive: false, policy: None })
}

fn lost() -> Fact {
    Fact::Lost(LostAttempt { attempt: FIRST, blamed: false })
}

fn failed() -> Fact {
    let retry = Retry::Safe { after_ms: None };
    let failure = Failure { retry, ..Failure::invalid_request(Code::ToolFailed, "") };
    Fact::Returned(Returned { attempt: FIRST, ran_us: 1, result: Attempted::Failed(Box::new(failure)) })
}

fn retrying() -> Fact {
    Fact::Parked(Parked { reason: Reason::Retry, wake_at: Timestamp(5_000), length_us: 5_000 })
}

/// The tool has returned, and the world outside has answered.
fn answered() -> Vec<Fact> {
    let name: Arc<str> = "key".into();
    let operation = |did| Fact::Operation(Box::new(Operation { name: name.clone(), did }));
    let parked = Parked { reason: Reason::Completion, wake_at: Timestamp(9_000), length_us: 9_000 };
    let until = Until { wake_at: parked.wake_at, length_us: parked.length_us };
    vec![
        operation(Did::KeyTaken),
        operation(Did::WaitBegan(until)),
        Fact::Suspended(Box::new(Suspended {
            attempt: FIRST,
            ran_us: 1,
            parked,
            waits: vec![name.clone()],
            then: Then::Return,
        })),
        operation(Did::Completed(Completion::ok("1"))),
    ]
}

/// Where a call can stand that does not run.
fn standing(name: &str) -> Call {
    let cancel = || Fact::CancelAsked(CancelAsked { reason: None });
    let once = |reconciles| vec![prepared(EffectClass::Once, reconciles), started(), lost()];
    call(match name {
        "opened" => vec![],
        "ready" => vec![prepared(EffectClass::Once, false)],
        "same" => vec![joins()],
        "retrying" => vec![prepared(EffectClass::Keyed, false), started(), failed(), retrying()],
        "lost keyed" => vec![prepared(EffectClass::Keyed, false), started(), lost()],
        "lost once" => once(true),
        "lost once, cancelled" => [once(true), vec![cancel()]].concat(),
        "lost once, not asked" => once(false),
        "answered" => [vec![prepared(EffectClass::Keyed, false), started()], answered()].concat(),
        "answered once" => [vec![prepared(EffectClass::Once, false), started()], answered()].concat(),
        "over" => vec![prepared(EffectClass::Keyed, false), started(), failed()],
        other => panic!("no call is {other}"),
    })
}

fn moment(late: bool, tool: ToolSearch) -> Moment {
    let now_us = if late { u64::MAX / 2 } else { 1 };
    let rules = Rules::unsaid(EffectClass::Read);
    let waited = Waited { clock: CallClock::default(), now_us, rules, is_answered: false };
    Moment { at: NOW, waited: Some(waited), tool, permit: Permit::Granted }
}

/// A step, in a word.
fn word(step: &Step<'_>) -> String {
    let told = format!("{step:?}");
    let word = told.split(['(', ' ', '{']).next().unwrap_or_default();
    match step {
        Step::Settle(settlement) => {
            let told = format!("{settlement:?}");
            told.split([' ', '{']).next().unwrap_or_default().to_string()
        }
        Step::AwaitTool(reason) => format!("wait: {reason}"),
        _ => word.to_string(),
    }
}

/// One row per state; the columns: in time; late; tool missing in time; tool missing and late; not prepared in time.
const TABLE: &[(&str, [&str; 5])] = &[
    ("opened", ["Prepare", "Prepare", "wait: no_such_tool", "Overdue(Queue)", "Overdue(Queue)"]),
    ("ready", ["Attempt", "Overdue(Queue)", "wait: no_such_tool", "Overdue(Queue)", "Overdue(Queue)"]),
    ("same", ["Join", "Overdue(Queue)", "Join", "Overdue(Queue)", "Overdue(Queue)"]),
    ("retrying", ["Park", "Overdue(Total)", "Park", "Overdue(Total)", "Overdue(Total)"]),
    ("lost keyed", ["Attempt", "Overdue(Total)", "wait: no_such_tool", "Overdue(Total)", "Overdue(Total)"]),
    ("lost once", ["Reconcile", "Reconcile", "wait: no_such_tool", "Unknown", "Reconcile"]),
    (
        "lost once, cancelled",
        ["Reconcile", "Reconcile", "Cancelled(Unknown)", "Cancelled(Unknown)", "Reconcile"],
    ),
    ("lost once, not asked", ["Unknown", "Unknown", "Unknown", "Unknown", "Unknown"]),
    // A wait for the world outside has a deadline of its own.
    ("answered", ["Return", "Return", "wait: no_such_tool", "wait: no_such_tool", "Return"]),
    ("answered once", ["Return", "Return", "wait: no_such_tool", "wait: no_such_tool", "Return"]),
    // Where an attempt has just returned, its result decides.
    ("over", ["Retry", "Retry", "Retry", "Retry", "Retry"]),
];

#[test]
fn deadlines_and_missing_tools_are_decided_here() {
    let missing = ToolSearch::Missing(Reason::NoSuchTool);
    let columns = [
        moment(false, ToolSearch::NotMissed),
        moment(true, ToolSearch::NotMissed),
        moment(false, missing),
        moment(true, missing),
        moment(true, ToolSearch::TooSlow),
    ];
    for (name, expected) in TABLE {
        let call = standing(name);
        let found = columns.each_ref().map(|moment| word(&call.next(moment)));
        assert_eq!(found, *expected, "{name}");
    }
}

#[test]
fn once_its_tool_was_waited_for_a_call_that_was_answered_is_overdue_like_any_other() {
    for (name, expected) in [("answered", "Overdue(Total)"), ("answered once", "Unknown")] {
        let mut call = standing(name);
        let parked = Parked { reason: Reason::NoSuchTool, wake_at: Timestamp(9_000), length_us: 9_000 };
        call.apply(NOW, &Fact::Parked(parked)).unwrap();
        let missing = moment(true, ToolSearch::Missing(Reason::NoSuchTool));
        assert_eq!(word(&call.next(&missing)), expected, "{name}");
    }
}

#[test]
fn what_has_its_answer_is_never_too_late() {
    let Moment { at, waited: Some(waited), tool, permit } = moment(true, ToolSearch::NotMissed) else {
        unreachable!()
    };
    let answered = Moment { at, waited: Some(Waited { is_answered: true, ..waited }), tool, permit };
    assert_eq!(word(&standing("same").next(&answered)), "Join");
}

#[test]
fn a_wait_that_lasted_as_long_as_it_was_to_is_over_whatever_the_wall_clock_says() {
    let call = standing("retrying");
    let at = |parked_us, now_us| {
        let clock = CallClock { parked_us, ..CallClock::default() };
        let rules = Rules::unsaid(EffectClass::Keyed);
        let waited = Waited { clock, now_us, rules, is_answered: false };
        Moment {
            at: Timestamp(-1_000_000),
            waited: Some(waited),
            tool: ToolSearch::NotMissed,
            permit: Permit::Granted,
        }
    };
    assert_eq!(word(&call.next(&at(Some(0), 4_999))), "Park");
    assert_eq!(word(&call.next(&at(Some(0), 5_000))), "Attempt");
    assert_eq!(word(&call.next(&at(None, 5_000))), "Park", "by the wall clock it is not due");
}

#[test]
fn a_retry_that_would_come_too_late_is_not_waited_for() {
    let call = standing("over");
    assert_eq!(call.retry(Some(3), 0, 3_001), Ok(3_000));
    assert_eq!(call.retry(Some(3), 0, 3_000), Err(TooLate { delay_us: 3_000 }));
    assert_eq!(call.retry(None, u64::MAX, u64::MAX), Ok(199_999));
}
