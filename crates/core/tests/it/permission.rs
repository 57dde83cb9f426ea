//! Permission of a call: a table of states and findings, and what an approval covers.

use crate::opened::opened;
use std::sync::Arc;
use windlass_core::call::{
    ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Call, Fact, JudgedCall, LostAttempt, Moment, Parked,
    Permit, PreparedCall, Reason, Returned, Settlement, Started, Step, ToolSearch, Withheld,
};
use windlass_core::failure::{Failure, Retry};
use windlass_core::ids::AttemptNo;
use windlass_core::outcome::Effect;
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

const ASKED_UNTIL: Timestamp = Timestamp(900);
const SHOWN: Digest = Digest([7; 32]);
const FRAME: Digest = Digest([8; 32]);
const OTHER: Digest = Digest([9; 32]);

fn asked(number: u32) -> ApprovalAsked {
    ApprovalAsked {
        number,
        digest: SHOWN,
        frame: FRAME,
        policy: 1,
        by: vec!["rule".into()],
        sources: vec!["00".into()],
        reason: None,
        parked: Parked { reason: Reason::Approval, wake_at: ASKED_UNTIL, length_us: 900 },
        four_eyes: false,
        untrusted: false,
        allows_on_expiry: false,
    }
}

fn ask(number: u32) -> Fact {
    Fact::ApprovalAsked(Box::new(asked(number)))
}

fn answer(number: u32, answer: ApprovalAnswer) -> Fact {
    let by = Some("ann".into());
    Fact::ApprovalAnswered(Box::new(ApprovalAnswered { number, answer, by, remembered: None }))
}

fn approve(number: u32, args: Option<&str>) -> Fact {
    let digest = if args.is_some() { FRAME } else { SHOWN };
    answer(number, ApprovalAnswer::Approved { digest, args: args.map(Into::into) })
}

fn deny(number: u32) -> Fact {
    answer(number, ApprovalAnswer::Denied { reason: None })
}

fn judged(allowed: bool) -> Fact {
    Fact::Judged(Arc::new(JudgedCall { allowed, policy: 1, by: vec!["rule".into()], reason: None }))
}

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

fn started(attempt: u32, redrive: bool) -> Fact {
    Fact::Started(Started { attempt: AttemptNo(attempt), redrive, policy: None })
}

fn call(class: EffectClass, facts: &[Fact]) -> Call {
    let mut call = Call::new(opened(), Timestamp(0));
    call.apply(Timestamp(0), &prepared(class)).unwrap();
    for fact in facts {
        call.apply(Timestamp(10), fact).unwrap_or_else(|illegal| panic!("{illegal}"));
    }
    call
}

fn next(call: &Call, permit: Permit, at: Timestamp) -> String {
    let moment = Moment { permit, ..Moment::at(at) };
    match call.next(&moment) {
        Step::Settle(Settlement::Cancelled(effect)) => format!("cancelled {effect}"),
        Step::Settle(settlement) => format!("{settlement:?}").to_lowercase(),
        Step::Attempt(start) => format!("attempt {}", start.attempt.0),
        Step::Park(parked) => format!("park {}", parked.reason),
        step => format!("{step:?}").to_lowercase(),
    }
}

fn table(call: &Call) -> String {
    let permits = [Permit::Granted, Permit::Unjudged, Permit::Asked, Permit::Asks, Permit::Denied];
    permits.map(|permit| next(call, permit, Timestamp(20))).join(" | ")
}

#[test]
fn nothing_acts_without_permission() {
    let once = |facts: &[Fact]| table(&call(EffectClass::Once, facts));
    // granted | unjudged | asked | asks | denied
    assert_eq!(once(&[]), "attempt 1 | authorize | attempt 1 | ask | denied");
    assert_eq!(once(&[ask(1)]), "park approval | authorize | park approval | ask | denied");
    assert_eq!(once(&[ask(1), approve(1, None)]), "attempt 1 | authorize | attempt 1 | ask | denied");
    let edited = once(&[ask(1), approve(1, Some("{}"))]);
    assert_eq!(edited, "prepare | prepare | prepare | prepare | prepare");
    assert_eq!(once(&[ask(1), deny(1)]), "denied | denied | denied | denied | denied");
    assert_eq!(once(&[ask(1), judged(true)]), "attempt 1 | authorize | attempt 1 | ask | denied");
    let withheld = Fact::Withheld(Withheld { attempt: AttemptNo(1) });
    let again = once(&[started(1, false), withheld]);
    assert_eq!(again, "attempt 2 | authorize | attempt 2 | ask | denied", "nothing happened");
}

#[test]
fn what_may_have_happened_is_not_called_denied() {
    let lost = Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: false });
    let keyed = call(EffectClass::Keyed, &[started(1, false), lost.clone()]);
    assert_eq!(table(&keyed), "attempt 2 | authorize | attempt 2 | ask | unknown");
    let read = call(EffectClass::Read, &[started(1, false), lost]);
    assert_eq!(table(&read), "attempt 2 | authorize | attempt 2 | ask | denied");
}

#[test]
fn an_ask_ends_by_its_rule_when_nobody_answers() {
    let late = Timestamp(ASKED_UNTIL.0);
    let asking = call(EffectClass::Once, &[ask(1)]);
    assert_eq!(next(&asking, Permit::Asked, late), "denied");
    let allows = Fact::ApprovalAsked(Box::new(ApprovalAsked { allows_on_expiry: true, ..asked(1) }));
    let asking = call(EffectClass::Once, &[allows]);
    assert_eq!(next(&asking, Permit::Asked, late), "approvebydefault");
    assert_eq!(next(&asking, Permit::Asked, Timestamp(ASKED_UNTIL.0 - 1)), "park approval");
}

#[test]
fn an_approval_covers_what_was_shown_and_nothing_else() {
    let approved = call(EffectClass::Once, &[ask(1), approve(1, None)]);
    assert!(approved.covers(&SHOWN, &OTHER), "the whole decides");
    assert!(!approved.covers(&OTHER, &FRAME));
    let edited = call(EffectClass::Once, &[ask(1), approve(1, Some("{\"n\":2}"))]);
    assert!(edited.covers(&OTHER, &FRAME), "all but the arguments decides");
    assert!(!edited.covers(&SHOWN, &OTHER));
    assert_eq!(edited.edited_args().map(|args| &**args), Some("{\"n\":2}"));
    let denied = call(EffectClass::Once, &[ask(1), deny(1)]);
    assert!(!denied.covers(&SHOWN, &FRAME));
    let asked_anew = call(EffectClass::Once, &[ask(1), approve(1, None), ask(2)]);
    assert!(!asked_anew.covers(&SHOWN, &FRAME), "the approval before counts no more");
}

#[test]
fn an_answer_counts_once_and_for_its_own_question() {
    let mut asking = call(EffectClass::Once, &[ask(1)]);
    assert!(asking.apply(Timestamp(11), &approve(2, None)).is_err(), "of another question");
    asking.apply(Timestamp(11), &approve(1, None)).unwrap();
    assert!(asking.apply(Timestamp(12), &deny(1)).is_err(), "the first one stands");
    let mut denied = call(EffectClass::Once, &[ask(1), deny(1)]);
    assert!(denied.apply(Timestamp(12), &approve(1, None)).is_err());
    let mut skipped = call(EffectClass::Once, &[]);
    assert!(skipped.apply(Timestamp(12), &ask(2)).is_err(), "questions are numbered without gaps");
}

#[test]
fn arguments_are_not_edited_after_a_start() {
    let failure = Failure { retry: Retry::Safe { after_ms: None }, ..Failure::did_not_happen() };
    let failed = Fact::Returned(Returned {
        attempt: AttemptNo(1),
        ran_us: 1,
        result: windlass_core::call::Result::Failed(Box::new(failure)),
    });
    let retry = Fact::Parked(Parked { reason: Reason::Retry, wake_at: Timestamp(0), length_us: 0 });
    let mut call = call(EffectClass::Keyed, &[started(1, false), failed, retry, ask(1)]);
    assert!(call.apply(Timestamp(12), &approve(1, Some("{}"))).is_err());
    call.apply(Timestamp(12), &approve(1, None)).unwrap();
    assert_eq!(next(&call, Permit::Granted, Timestamp(20)), "attempt 2", "it is as it was before");
}

#[test]
fn time_spent_waiting_for_a_person_is_excused_and_counted_as_waiting() {
    let mut call = call(EffectClass::Once, &[ask(1)]);
    call.apply(Timestamp(510), &approve(1, None)).unwrap();
    assert_eq!((call.waited_us, call.excused_us), (500, 500));
}

#[test]
fn a_cancel_ends_the_wait_for_an_answer() {
    let cancel = Fact::CancelAsked(windlass_core::call::CancelAsked { reason: None });
    let call = call(EffectClass::Once, &[ask(1), cancel]);
    assert_eq!(next(&call, Permit::Asked, Timestamp(20)), format!("cancelled {}", Effect::None));
}

#[test]
fn nothing_is_judged_without_its_tool() {
    let missing = Moment {
        permit: Permit::Unjudged,
        tool: ToolSearch::Missing(Reason::NoSuchTool),
        ..Moment::at(Timestamp(20))
    };
    let ready = call(EffectClass::Once, &[]);
    assert_eq!(ready.next(&missing), Step::AwaitTool(Reason::NoSuchTool));
    let asking = call(EffectClass::Once, &[ask(1)]);
    assert_eq!(asking.next(&missing), Step::Authorize, "whose driver goes on waiting");
}
