//! A sentence for every kind of fact.

use super::*;
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};
use windlass_core::call::{
    Accepted, ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Connected, JudgedCall, Model, PreparedResult,
    Resumed, Same, SetAside, Spent, Withheld,
};
use windlass_core::code::Code;
use windlass_core::failure::Failure;
use windlass_core::handle::Handle;
use windlass_core::ids::{AttemptNo, BatchNo, CallId, Mark, Ordinal};
use windlass_core::operation::{EventNumber, Handover, Question, Triggered, Until, signal_slot};
use windlass_core::outcome::{KeptBytes, ModelAnswer, Success};
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

const ATTEMPT: AttemptNo = AttemptNo(2);

fn success(text: &str) -> Success {
    Success { value: Value::Inline(text.into()), parts: Vec::new(), side: None }
}

fn failure() -> Box<Failure> {
    Box::new(Failure::invalid_request(Code::ToolFailed, "the \"disk\" is\non fire"))
}

fn end(outcome: Option<Outcome>) -> Fact {
    let model = Model::Own(ModelAnswer::default());
    Fact::Ended(Ended { outcome, model, spent: Spent::default() })
}

fn beginnings() -> Vec<Fact> {
    let args = Arguments { given: Given::Json, text: r#"{"cents":1250}"#.into() };
    let opened = Opened {
        id: "c1".into(),
        tool: "pay".into(),
        args,
        provider: None,
        deadlines: None,
        priority: 0,
        inline_ms: None,
        task: None,
        answer: None,
        grant: None,
    };
    let asked = Deadlines { attempt_ms: Some(500), total_ms: Some(600_000), ..Deadlines::default() };
    let hurried = Opened { deadlines: Some(Box::new(asked)), priority: 5, ..opened.clone() };
    let plain = PreparedCall {
        contract: Digest([7; 32]),
        class: EffectClass::Keyed,
        rules: None,
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    };
    let same =
        |for_ms| PreparedCall { same: Some(Box::new(Same { mark: Mark([7; 16]), for_ms })), ..plain.clone() };
    let made = PreparedResult {
        args: Some(r#"{"cents":1200}"#.into()),
        payload: Some(r#"{"rate":2}"#.into()),
        answer: Some(success("7")),
        repairs: Vec::new(),
        answered_by: None,
    };
    let rules = Rules { attempts: 5, silence_ms: 2_000, ..Rules::unsaid(EffectClass::Keyed) };
    let rich = PreparedCall {
        rules: Some(Arc::new(rules)),
        reconciles: true,
        made: Some(Arc::new(made)),
        ..plain.clone()
    };
    let start = |redrive| Fact::Started(Started { attempt: ATTEMPT, redrive, policy: None });
    vec![
        Fact::Opened(opened),
        Fact::Opened(hurried),
        Fact::Prepared(same(None)),
        Fact::Prepared(same(Some(3_600_000))),
        Fact::Prepared(plain),
        Fact::Prepared(rich),
        Fact::SameAs(SameAs { first: CallId { batch: BatchNo(7), ordinal: Ordinal(1) } }),
        Fact::First,
        Fact::CopyFound,
        start(false),
        start(true),
    ]
}

fn middles() -> Vec<Fact> {
    let stop = |cause, output: Option<&str>| {
        let (may_have_acted, stuck) = (cause != Cause::Total, cause == Cause::Silence);
        let output = output.map(Arc::from);
        let stopped = Stopped { attempt: ATTEMPT, ran_us: 30_000_400, cause, may_have_acted, stuck, output };
        Fact::Stopped(stopped)
    };
    let said = |verdict| Fact::Reconciled(ReconciledAttempt { attempt: ATTEMPT, verdict });
    let parked = |reason| {
        Fact::Parked(Parked { reason, wake_at: Timestamp(1_700_000_000_000_000), length_us: 187_000 })
    };
    let mut certain = failure();
    certain.did_not_happen = true;
    let back = |result| Fact::Returned(Returned { attempt: ATTEMPT, ran_us: 4_321, result });
    vec![
        Fact::Lost(LostAttempt { attempt: ATTEMPT, blamed: true }),
        Fact::Lost(LostAttempt { attempt: ATTEMPT, blamed: false }),
        back(Attempted::Ok(success(r#"{"ok":true}"#))),
        back(Attempted::Failed(failure())),
        back(Attempted::Failed(certain)),
        stop(Cause::Attempt, Some(&format!("{}\nhalf way\n", "x".repeat(200)))),
        stop(Cause::Silence, None),
        stop(Cause::Total, None),
        stop(Cause::Cancel, None),
        said(Verdict::Landed(success("1"))),
        said(Verdict::Failed(failure())),
        said(Verdict::DidNotHappen),
        said(Verdict::Unknown),
        parked(Reason::Retry),
        parked(Reason::ToolChanged),
        parked(Reason::NoSuchTool),
        parked(Reason::ToolPaused),
        parked(Reason::NoWorker),
        parked(Reason::Sleep),
        parked(Reason::Completion),
        parked(Reason::Input),
        parked(Reason::Connection),
        parked(Reason::Client),
        parked(Reason::Signal),
        parked(Reason::Awaited),
        parked(Reason::Approval),
        Fact::CancelAsked(CancelAsked { reason: Some("wrong customer".into()) }),
        Fact::CancelAsked(CancelAsked::default()),
        Fact::Accepted(Accepted { contract: Digest([8; 32]), class: EffectClass::Once, reconciles: false }),
    ]
}

fn permissions() -> Vec<Fact> {
    let names = || vec!["pay".into(), "the tool asks".into()];
    let judged = |allowed, reason: Option<&str>| {
        let reason = reason.map(Into::into);
        Fact::Judged(Arc::new(JudgedCall { allowed, policy: 3, by: names(), reason }))
    };
    let asked = |four_eyes, allows_on_expiry| {
        let parked = Parked {
            reason: Reason::Approval,
            wake_at: Timestamp(1_700_000_000_000_000),
            length_us: 900_000_000,
        };
        Fact::ApprovalAsked(Box::new(ApprovalAsked {
            number: 1,
            digest: Digest([7; 32]),
            frame: Digest([8; 32]),
            policy: 3,
            by: names(),
            sources: names(),
            reason: Some("ask before money moves".into()),
            parked,
            four_eyes,
            untrusted: false,
            allows_on_expiry,
        }))
    };
    let answered = |answer, by: Option<&str>, remembered: Option<&str>| {
        let (by, remembered) = (by.map(Into::into), remembered.map(Into::into));
        Fact::ApprovalAnswered(Box::new(ApprovalAnswered { number: 1, answer, by, remembered }))
    };
    let approved =
        |args: Option<&str>| ApprovalAnswer::Approved { digest: Digest([7; 32]), args: args.map(Into::into) };
    vec![
        judged(true, None),
        judged(false, Some("not at night")),
        asked(false, false),
        asked(true, true),
        answered(approved(None), Some("ann"), Some("m1")),
        answered(approved(Some(r#"{"n":1,"password":"hunter2"}"#)), Some("ann"), None),
        answered(approved(None), None, None),
        answered(ApprovalAnswer::Denied { reason: None }, Some("ann"), None),
        answered(ApprovalAnswer::Denied { reason: Some("no".into()) }, Some("ann"), None),
        Fact::Withheld(Withheld { attempt: ATTEMPT }),
    ]
}

fn insides() -> Vec<Fact> {
    let did = |did| Fact::Operation(Box::new(Operation { name: "approval".into(), did }));
    let told = |did| Fact::Operation(Box::new(Operation { name: signal_slot("go", 2).into(), did }));
    let until = Until { wake_at: Timestamp(1_700_000_000_000_000), length_us: 187_000 };
    let input = || r#"{"to":"Ann"}"#.into();
    let kept = KeptBytes { artifact: Handle(7), bytes: 3 };
    let ended = |result| did(Did::StepEnded { input: input(), result });
    let aside = |then| {
        let parked = Parked { reason: Reason::Sleep, wake_at: until.wake_at, length_us: 187_000 };
        let waits = vec!["approval".into(), "night".into()];
        Fact::Suspended(Box::new(Suspended { attempt: ATTEMPT, ran_us: 4_321, parked, waits, then }))
    };
    let answered = |completion| did(Did::Completed(completion));
    let unconnected = |setup_url| {
        let parked = Parked { reason: Reason::Connection, wake_at: until.wake_at, length_us: 187_000 };
        let provider = "mail".into();
        Fact::Unconnected(Box::new(Unconnected {
            attempt: ATTEMPT,
            ran_us: 4_321,
            parked,
            provider,
            setup_url,
        }))
    };
    vec![
        did(Did::StepStarted { input: input() }),
        ended(StepResult::Ok("7".into())),
        ended(StepResult::Failed(failure())),
        did(Did::SleepBegan(until)),
        did(Did::SleepEnded),
        did(Did::KeyTaken),
        did(Did::WaitBegan(until)),
        answered(Completion::ok(r#"{"yes":true}"#)),
        answered(Completion::error("busy", "come\nback")),
        answered(Completion::Cancelled),
        did(Did::TimedOut),
        did(Did::PairsRead { asked: r#"{"key":"a"}"#.into(), found: "null".into() }),
        did(Did::PairWritten { asked: r#"{"key":"a","value":1}"#.into(), written: true }),
        did(Did::PairWritten { asked: r#"{"key":"a","value":1}"#.into(), written: false }),
        emitted(0),
        emitted(1),
        emitted(2),
        did(Did::Spawned { asked: r#"{"tool":"build"}"#.into() }),
        did(Did::ChildOpened { asked: r#"{"session":"inside.7"}"#.into() }),
        did(Did::Handed(Handover { attempt: ATTEMPT, toolbox: "crm".into(), token: "5f0c".into() })),
        did(Did::Said { message: r#"{"text":"half done"}"#.into() }),
        did(Did::EventPlanned { event: "sold".into(), payload: r#"{"item":"a"}"#.into() }),
        did(Did::Awaited { what: r#"{"task":"c7"}"#.into(), until }),
        did(emitted_again()),
        did(Did::Attached { content: r#"{"bytes":3}"#.into(), kept }),
        told(Did::SignalAwaited(until)),
        told(Did::Signalled { payload: r#"{"yes":true}"#.into() }),
        told(Did::TimedOut),
        did(Did::Called { generation: 1 }),
        did(Did::Called { generation: 2 }),
        did(Did::Asked(Arc::new(Question { text: "May\nI?".into(), schema: None, until }))),
        unconnected(Some("https://example.com/connect".into())),
        unconnected(None),
        Fact::Connected(Connected { connected: true }),
        Fact::Connected(Connected { connected: false }),
        detach(DetachedBy::Budget, Wake::OnEnd),
        detach(DetachedBy::Queue, Wake::OnActivity),
        detach(DetachedBy::Spawned, Wake::Silent),
        detach(DetachedBy::Scheduled, Wake::OnEnd),
        detach(DetachedBy::Triggered, Wake::OnEnd),
        Fact::StartRefused,
        aside(Then::Replay),
        aside(Then::Return),
        Fact::Resumed(Resumed { attempt: ATTEMPT }),
    ]
}

fn emitted_again() -> Did {
    let numbered = EventNumber { number: 7, is_again: true };
    Did::Emitted { event: "sold".into(), payload: "{}".into(), triggered: Arc::default(), numbered }
}

fn emitted(started: u32) -> Fact {
    let one = |batch| Triggered {
        trigger: "on-sale".into(),
        call: CallId { batch: BatchNo(u64::from(batch)), ordinal: Ordinal(0) },
    };
    let (event, payload) = ("sold".into(), r#"{"item":"a\nb"}"#.into());
    let triggered = (0..started).map(one).collect();
    let did = Did::Emitted { event, payload, triggered, numbered: EventNumber::default() };
    Fact::Operation(Box::new(Operation { name: "approval".into(), did }))
}

fn detach(by: DetachedBy, wake: Wake) -> Fact {
    let tags = Vec::new();
    Fact::Detached(Box::new(Detached {
        by,
        wake,
        title: None,
        starter: None,
        depth: 0,
        budget_ms: None,
        tags,
    }))
}

fn ends() -> Vec<Fact> {
    let resolve =
        |outcome, by| Fact::Resolved(Box::new(Resolved { outcome, model: ModelAnswer::default(), by }));
    let cancelled = |effect| end(Some(Outcome::Cancelled { effect }));
    vec![
        end(None),
        end(Some(Outcome::Succeeded(success("5")))),
        end(Some(Outcome::Failed(failure()))),
        end(Some(Outcome::Denied { reason: "not at night".into() })),
        cancelled(Effect::None),
        cancelled(Effect::Landed),
        cancelled(Effect::Unknown),
        end(Some(Outcome::Unknown)),
        Fact::SetAside(SetAside { why: "a call that is queued cannot have lost".into() }),
        Fact::Aborted(Box::new(Abort { attempt: ATTEMPT, ran_us: 1_500, failure: *failure() })),
        resolve(Outcome::Succeeded(success("1")), Resolver::Operator),
        resolve(Outcome::Failed(Box::new(Failure::did_not_happen())), Resolver::Tool),
    ]
}

fn tell(fact: &Fact) -> String {
    story(fact, &Secret([7; 32]), &SecretNames::default())
}

#[test]
fn every_kind_of_fact_has_its_sentence() {
    let facts = [beginnings(), middles(), permissions(), insides(), ends()].concat();
    let told = facts.iter().map(|fact| format!("{:12} {}", fact.kind().as_str(), tell(fact)));
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"));
    for kind in windlass_core::call::Kind::ALL {
        assert!(facts.iter().any(|fact| fact.kind() == *kind), "{kind} is not told");
    }
    assert!(facts.iter().all(|fact| !tell(fact).contains('\n')), "a line is a line");
}
