//! Entries as bytes: golden files that no release may change, and what damage looks like.

mod golden_permissions;

use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};
use windlass_core::attempt::{Rules, TaskDeadlines};
use windlass_core::batch::{ClockMove, ClosedBy, Opening, Parent, ProvisionalAnswer};
use windlass_core::call::{
    Abort, Accepted, CancelAsked, Cause, Connected, Detached, DetachedBy, Ended, Fact, Kind, LostAttempt,
    Model, Opened, Parked, PreparedCall, PreparedResult, Reason, ReconciledAttempt, Resolved, Resolver,
    Result as Attempted, Resumed, Returned, Same, SameAs, SetAside, Spent, Started, Stopped, Suspended, Then,
    Unconnected, Verdict, Wake,
};
use windlass_core::code::Code;
use windlass_core::entry::{Entry, EntryEvent, FORMAT, Packer, Unreadable, unpack};
use windlass_core::failure::{Failure, FailureClass, Retry, Source};
use windlass_core::handle::Handle;
use windlass_core::ids::{AttemptNo, BatchNo, CallId, Mark, Ordinal};
use windlass_core::operation::{
    AnswerExtras, Completion, Did, EventNumber, Handover, Operation, Question, StepResult, Triggered, Until,
};
use windlass_core::outcome::{
    Effect, Form, KeptBytes, ModelAnswer, Outcome, Part, SideOutput, Success, Value,
};
use windlass_core::projection::AnswerBudget;
use windlass_core::siblings::Siblings;
use windlass_core::time::Timestamp;
use windlass_core::tool::{Digest, EffectClass, Origin};

fn call(fact: Fact) -> Entry {
    Entry { at: Timestamp(1_700_000_000_000_000), event: EntryEvent::Call { ordinal: Ordinal(3), fact } }
}

fn failure(retry: Retry) -> Box<Failure> {
    Box::new(Failure {
        class: FailureClass::External,
        source: Source::Tool,
        code: Code::ToolFailed,
        tool_code: Some("exit 3".into()),
        message: "it went wrong".into(),
        detail: Some("for operators".into()),
        retry,
        did_not_happen: false,
        raw: Some("[1]".into()),
        parts: Vec::new(),
        side: None,
    })
}

/// Output that is not for the model.
fn side() -> Option<Box<SideOutput>> {
    let raw = Some(KeptBytes { artifact: Handle(9), bytes: 5_000 });
    Some(Box::new(SideOutput { raw, control: Some("{\"end_turn\":true}".into()) }))
}

/// Facts of results that carry more than a value.
fn golden_results() -> Vec<(&'static str, Entry)> {
    let kept = KeptBytes { artifact: Handle(7), bytes: 12 };
    let shot = Part::KeptImage { kept, media_type: "image/png".into() };
    let parts = || vec![Part::Text("before".into()), shot.clone(), Part::Text("after".into())];
    let success = || Success { value: Value::Inline("1".into()), parts: parts(), side: side() };
    let shown = Box::new(Failure { parts: parts(), side: side(), ..*failure(Retry::Never) });
    let extras = || {
        let (raw, control) = (Some("{\"status\":500}".into()), Some("1".into()));
        Some(Box::new(AnswerExtras { parts: parts(), raw, control }))
    };
    let completed = |completion| {
        let did = Did::Completed(completion);
        call(Fact::Operation(Box::new(Operation { name: "approval".into(), did })))
    };
    let error = Completion::Error { code: "busy".into(), message: "come back".into(), extras: extras() };
    let model = Model::Own(ModelAnswer { parts: parts(), is_error: false });
    let made = PreparedResult {
        answer: Some(success()),
        answered_by: Some("cache".into()),
        ..PreparedResult::default()
    };
    let prepared = PreparedCall {
        contract: Digest([7; 32]),
        class: EffectClass::Read,
        rules: None,
        reconciles: false,
        made: Some(Arc::new(made)),
        same: None,
        answer: None,
        origin: Origin::default(),
    };
    let budget = || Some(Box::new(AnswerBudget { bytes_max: Some(4_000), lines_max: None }));
    let brief = Opened { answer: budget(), ..asked() };
    let (contract, class) = (Digest([9; 32]), EffectClass::Keyed);
    let shortened = PreparedCall { contract, class, made: None, answer: budget(), ..prepared.clone() };
    let traced = Opening {
        key: "key".into(),
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        trace_link: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01".into()),
        ..Opening::default()
    };
    vec![
        ("returned_side", returned(Attempted::Ok(success()))),
        ("returned_failure_parts", returned(Attempted::Failed(shown.clone()))),
        ("ended_side", ended(Some(Outcome::Succeeded(success())), model.clone())),
        ("ended_failure_parts", ended(Some(Outcome::Failed(shown)), model)),
        ("completed_ok_parts", completed(Completion::Ok { value: "[1]".into(), extras: extras() })),
        ("completed_error_parts", completed(error)),
        ("completed_timed_out", completed(Completion::TimedOut)),
        ("prepared_answered_by_hook", call(Fact::Prepared(prepared))),
        ("opened_with_answer_budget", call(Fact::Opened(brief))),
        ("prepared_with_answer_budget", call(Fact::Prepared(shortened))),
        (
            "batch_opened_with_task_deadlines",
            Entry {
                at: Timestamp(-1),
                event: EntryEvent::Batch(Opening {
                    key: "key".into(),
                    task_deadlines: true,
                    ..Opening::default()
                }),
            },
        ),
        ("batch_opened_traced", Entry { at: Timestamp(-1), event: EntryEvent::Batch(traced) }),
    ]
}

fn parts() -> Vec<Part> {
    let kept = KeptBytes { artifact: Handle(7), bytes: 12 };
    vec![
        Part::Text("text".into()),
        Part::Json("{\"a\":1}".into()),
        Part::Image { media_type: "image/png".into(), data: vec![0, 255, 7].into() },
        Part::File { kept, media_type: "text/plain".into(), name: "log".into() },
    ]
}

fn ended(outcome: Option<Outcome>, model: Model) -> Entry {
    let spent = Spent { queued_us: 1, waited_us: 2, ran_us: 3 };
    call(Fact::Ended(Ended { outcome, model, spent }))
}

fn returned(result: Attempted) -> Entry {
    call(Fact::Returned(Returned { attempt: AttemptNo(2), ran_us: 1_500, result }))
}

fn golden() -> Vec<(&'static str, Entry)> {
    let kept = KeptBytes { artifact: Handle(u128::MAX - 1), bytes: 1 << 40 };
    let opening = Opening { key: "key".into(), turn: Some("turn 7".into()), ..Opening::default() };
    let with = |siblings| Entry {
        at: Timestamp(-1),
        event: EntryEvent::Batch(Opening { key: "key".into(), siblings, ..Opening::default() }),
    };
    let answer = ModelAnswer { parts: parts(), is_error: true };
    let opened = asked();
    let urgent = Opened { priority: -3, ..opened.clone() };
    let patient = Opened { inline_ms: Some(5_000), ..opened.clone() };
    let prepared = PreparedCall {
        contract: Digest([9; 32]),
        class: EffectClass::Keyed,
        rules: None,
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    };
    let same = |for_ms| PreparedCall {
        same: Some(Box::new(Same { mark: Mark([5; 16]), for_ms })),
        ..prepared.clone()
    };
    let first = CallId { batch: BatchNo(1 << 40), ordinal: Ordinal(255) };
    let success = |value| Success { value, parts: parts(), side: None };
    let inline = || Value::Inline("{\"echoed\":\"hi\"}".into());
    let own = |outcome| ended(Some(outcome), Model::Own(answer.clone()));
    vec![
        ("batch_opened", Entry { at: Timestamp(-1), event: EntryEvent::Batch(opening) }),
        ("batch_opened_race", with(Siblings::Race)),
        ("batch_opened_fail_fast", with(Siblings::FailFast)),
        ("batch_opened_quorum", with(Siblings::Quorum(2))),
        (
            "batch_opened_streamed",
            Entry {
                at: Timestamp(-1),
                event: EntryEvent::Batch(Opening { key: "key".into(), streamed: true, ..Opening::default() }),
            },
        ),
        (
            "batch_clock_moved",
            Entry { at: Timestamp(-8), event: EntryEvent::ClockMoved(ClockMove { by_us: -86_400_000_000 }) },
        ),
        ("batch_closed", Entry { at: Timestamp(7), event: EntryEvent::Closed(ClosedBy::Idle) }),
        ("opened", call(Fact::Opened(opened))),
        ("opened_with_priority", call(Fact::Opened(urgent))),
        ("opened_with_budget", call(Fact::Opened(patient))),
        ("prepared", call(Fact::Prepared(prepared.clone()))),
        ("started", call(Fact::Started(Started { attempt: AttemptNo(2), redrive: true, policy: None }))),
        ("lost", call(Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: true }))),
        ("returned_value", returned(Attempted::Ok(success(inline())))),
        ("returned_kept", returned(Attempted::Ok(success(Value::Kept { kept, form: Form::Json })))),
        ("returned_failure", returned(Attempted::Failed(failure(Retry::Safe { after_ms: Some(9) })))),
        ("ended_as_returned", ended(None, Model::ValueText)),
        ("ended_with_string", ended(None, Model::ValueString)),
        ("ended_succeeded", own(Outcome::Succeeded(success(inline())))),
        ("ended_kept", own(Outcome::Succeeded(success(Value::Kept { kept, form: Form::Text })))),
        ("ended_failed", own(Outcome::Failed(failure(Retry::Exhausted { attempts: 3 })))),
        ("ended_denied", own(Outcome::Denied { reason: "not today".into() })),
        ("ended_cancelled", own(Outcome::Cancelled { effect: Effect::Landed })),
        ("ended_unknown", own(Outcome::Unknown)),
        ("prepared_same", call(Fact::Prepared(same(None)))),
        ("prepared_same_for", call(Fact::Prepared(same(Some(3_600_000))))),
        ("same_as", call(Fact::SameAs(SameAs { first }))),
        ("first", call(Fact::First)),
        ("copy_found", call(Fact::CopyFound)),
    ]
}

fn golden_answers() -> Vec<(&'static str, Entry)> {
    vec![
        (
            "batch_answered",
            Entry {
                at: Timestamp(7),
                event: EntryEvent::Answered(ProvisionalAnswer { calls: vec![Ordinal(1), Ordinal(255)] }),
            },
        ),
        (
            "batch_opened_silent",
            Entry {
                at: Timestamp(-1),
                event: EntryEvent::Batch(Opening {
                    key: "key".into(),
                    wake: Wake::Silent,
                    ..Opening::default()
                }),
            },
        ),
    ]
}

/// One of each kind, and of each form its fields can take.
fn all_golden() -> Vec<(&'static str, Entry)> {
    [
        golden(),
        golden_answers(),
        golden_attempts(),
        golden_insides(),
        golden_permissions::all(),
        golden_waits(),
        golden_tasks(),
        golden_results(),
    ]
    .concat()
}

fn golden_attempts() -> Vec<(&'static str, Entry)> {
    let stopped = Stopped {
        attempt: AttemptNo(2),
        ran_us: 30_000_000,
        cause: Cause::Silence,
        may_have_acted: true,
        stuck: true,
        output: Some("half way".into()),
    };
    let landed = Success { value: Value::Inline("7".into()), parts: parts(), side: None };
    let reconciled = |verdict| call(Fact::Reconciled(ReconciledAttempt { attempt: AttemptNo(2), verdict }));
    let abort =
        Abort { attempt: AttemptNo(2), ran_us: 1_500, failure: *failure(Retry::Safe { after_ms: None }) };
    let accepted = Accepted { contract: Digest([8; 32]), class: EffectClass::Once, reconciles: true };
    let resolved = Resolved {
        outcome: Outcome::Succeeded(landed.clone()),
        model: ModelAnswer { parts: parts(), is_error: false },
        by: Resolver::Operator,
    };
    vec![
        ("stopped", call(Fact::Stopped(stopped))),
        ("reconciled_landed", reconciled(Verdict::Landed(landed))),
        ("reconciled_failed", reconciled(Verdict::Failed(failure(Retry::Never)))),
        ("reconciled_did_not_happen", reconciled(Verdict::DidNotHappen)),
        ("parked", call(Fact::Parked(parked(Reason::Retry)))),
        ("cancel_asked", call(Fact::CancelAsked(CancelAsked { reason: Some("wrong customer".into()) }))),
        ("accepted", call(Fact::Accepted(accepted))),
        (
            "set_aside",
            call(Fact::SetAside(SetAside { why: "a call that is queued cannot have lost".into() })),
        ),
        ("resolved", call(Fact::Resolved(Box::new(resolved)))),
        ("aborted", call(Fact::Aborted(Box::new(abort)))),
    ]
}

fn parked(reason: Reason) -> Parked {
    Parked { reason, wake_at: Timestamp(1_700_000_000_187_000), length_us: 187_000 }
}

fn golden_insides() -> Vec<(&'static str, Entry)> {
    let did = |did| call(Fact::Operation(Box::new(Operation { name: "approval".into(), did })));
    let until = Until { wake_at: Timestamp(1_700_000_000_187_000), length_us: 187_000 };
    let input = || "{\"to\":\"Ann\"}".into();
    let step = |result| did(Did::StepEnded { input: input(), result });
    let error = Completion::error("busy", "come back");
    let asks = |schema| did(Did::Asked(Arc::new(Question { text: "May I?".into(), schema, until })));
    let suspended = |then| {
        let (attempt, waits) = (AttemptNo(2), vec!["approval".into(), "night".into()]);
        let parked = parked(Reason::Completion);
        call(Fact::Suspended(Box::new(Suspended { attempt, ran_us: 1_500, parked, waits, then })))
    };
    let around = CallId { batch: BatchNo(1 << 40), ordinal: Ordinal(255) };
    let emitted = |triggered| {
        let (event, payload) = ("sold".into(), "{\"at\":3}".into());
        did(Did::Emitted { event, payload, triggered, numbered: EventNumber::default() })
    };
    let started = Triggered { trigger: "on-sale".into(), call: around };
    let unconnected = |setup_url| {
        let (attempt, parked, provider) = (AttemptNo(2), parked(Reason::Connection), "mail".into());
        call(Fact::Unconnected(Box::new(Unconnected { attempt, ran_us: 1_500, parked, provider, setup_url })))
    };
    vec![
        ("step_started", did(Did::StepStarted { input: input() })),
        ("step_ended", step(StepResult::Ok("{\"sent\":true}".into()))),
        ("step_failed", step(StepResult::Failed(failure(Retry::Never)))),
        ("sleep_began", did(Did::SleepBegan(until))),
        ("sleep_ended", did(Did::SleepEnded)),
        ("key_taken", did(Did::KeyTaken)),
        ("wait_began", did(Did::WaitBegan(until))),
        ("completed_ok", did(Did::Completed(Completion::ok("[1]")))),
        ("completed_error", did(Did::Completed(error))),
        ("completed_cancelled", did(Did::Completed(Completion::Cancelled))),
        ("timed_out", did(Did::TimedOut)),
        ("called", did(Did::Called { generation: 2 })),
        ("pairs_read", did(Did::PairsRead { asked: input(), found: "null".into() })),
        ("pair_written", did(Did::PairWritten { asked: input(), written: true })),
        ("pair_refused", did(Did::PairWritten { asked: input(), written: false })),
        ("emitted", emitted([].into())),
        ("emitted_triggering", emitted([started].into())),
        ("signal_awaited", did(Did::SignalAwaited(until))),
        ("signalled", did(Did::Signalled { payload: "[1]".into() })),
        (
            "attached",
            did(Did::Attached { content: input(), kept: KeptBytes { artifact: Handle(7), bytes: 12 } }),
        ),
        (
            "batch_opened_inside",
            Entry {
                at: Timestamp(-1),
                event: EntryEvent::Batch(Opening {
                    key: "key".into(),
                    parent: Some(Parent { call: around, depth: 3 }),
                    ..Opening::default()
                }),
            },
        ),
        ("asked", asks(Some("{\"type\":\"boolean\"}".into()))),
        ("asked_anything", asks(None)),
        ("suspended_replay", suspended(Then::Replay)),
        ("suspended_return", suspended(Then::Return)),
        ("unconnected", unconnected(Some("https://example.com/connect".into()))),
        ("unconnected_without_url", unconnected(None)),
        ("connected", call(Fact::Connected(Connected { connected: true }))),
        ("declined", call(Fact::Connected(Connected { connected: false }))),
        ("resumed", call(Fact::Resumed(Resumed { attempt: AttemptNo(2) }))),
    ]
}

/// A call as it is asked for.
fn asked() -> Opened {
    Opened {
        id: "call_1".into(),
        tool: "echo".into(),
        args: Arguments { given: Given::Text, text: "{\"message\": \"hi\"}".into() },
        provider: Some("{\"signature\":\"x\"}".into()),
        deadlines: None,
        priority: 0,
        inline_ms: None,
        task: None,
        answer: None,
        grant: None,
    }
}

/// Waits for tasks and events, planned and repeated events.
fn golden_waits() -> Vec<(&'static str, Entry)> {
    let did = |did| call(Fact::Operation(Box::new(Operation { name: "approval".into(), did })));
    let until = Until { wake_at: Timestamp(1_700_000_000_187_000), length_us: 187_000 };
    vec![
        ("awaited", did(Did::Awaited { what: "{\"task\":\"c7\"}".into(), until })),
        ("event_planned", did(Did::EventPlanned { event: "sold".into(), payload: "{\"at\":3}".into() })),
        (
            "emitted_again",
            did(Did::Emitted {
                event: "sold".into(),
                payload: "{\"at\":3}".into(),
                triggered: Arc::default(),
                numbered: EventNumber { number: 7, is_again: true },
            }),
        ),
    ]
}

/// Tasks and their messages. Rules whose deadlines of tasks do not follow from the others.
fn with_task_deadlines() -> Rules {
    let rules = Rules::unsaid(EffectClass::Keyed);
    let detached = TaskDeadlines { queue_ms: 1, attempt_ms: 2, silence_ms: 3, total_ms: 4 };
    Rules { detached, ..rules }
}

/// Rules as a journal holds them that says nothing of tasks.
fn with_own_deadline() -> Rules {
    let rules = Rules { attempt_ms: 5_000, ..Rules::unsaid(EffectClass::Keyed) };
    Rules { detached: rules.unsaid_detached(), ..rules }
}

fn prepared_with(rules: Rules) -> Entry {
    call(Fact::Prepared(PreparedCall {
        contract: Digest([9; 32]),
        class: EffectClass::Keyed,
        rules: Some(rules.into()),
        reconciles: false,
        made: None,
        same: None,
        answer: None,
        origin: Origin::default(),
    }))
}

fn golden_tasks() -> Vec<(&'static str, Entry)> {
    let did = |did| call(Fact::Operation(Box::new(Operation { name: "night".into(), did })));
    let starter = Some(CallId { batch: BatchNo(1 << 40), ordinal: Ordinal(255) });
    let title = Some("Nightly build".into());
    let (by, wake, tags) = (DetachedBy::Spawned, Wake::Silent, Vec::new());
    let task = Detached { by, wake, title, starter, depth: 0, budget_ms: None, tags };
    let tagged = Detached { tags: vec!["nightly".into(), "größer".into()], ..task.clone() };
    let started = Opened { task: Some(Box::new(task.clone())), ..asked() };
    let task = Detached { by: DetachedBy::Triggered, depth: 3, ..task };
    let triggered = Opened { task: Some(Box::new(task)), ..asked() };
    vec![
        (
            "detached",
            call(Fact::Detached(Box::new(Detached {
                by: DetachedBy::Budget,
                wake: Wake::OnEnd,
                title: None,
                starter: None,
                depth: 0,
                budget_ms: None,
                tags: Vec::new(),
            }))),
        ),
        ("opened_as_tagged_task", call(Fact::Opened(Opened { task: Some(Box::new(tagged)), ..asked() }))),
        (
            "detached_by_budget",
            call(Fact::Detached(Box::new(Detached {
                by: DetachedBy::Budget,
                wake: Wake::OnEnd,
                title: None,
                starter: None,
                depth: 0,
                budget_ms: Some(300),
                tags: Vec::new(),
            }))),
        ),
        ("opened_as_task", call(Fact::Opened(started))),
        ("opened_by_event", call(Fact::Opened(triggered))),
        ("spawned", did(Did::Spawned { asked: "{\"tool\":\"build\"}".into() })),
        (
            "child_opened",
            did(Did::ChildOpened { asked: "{\"session\":\"inside.7\",\"tools\":[\"read\"]}".into() }),
        ),
        ("said", did(Did::Said { message: "{\"text\":\"half done\"}".into() })),
        (
            "handed",
            did(Did::Handed(Handover { attempt: AttemptNo(2), toolbox: "crm".into(), token: "5f0c".into() })),
        ),
        ("start_refused", call(Fact::StartRefused)),
        ("prepared_for_tasks", prepared_with(with_task_deadlines())),
        ("prepared_with_rules", prepared_with(with_own_deadline())),
    ]
}

#[test]
fn every_kind_has_a_golden_file() {
    let written = all_golden();
    for kind in Kind::ALL {
        let found = written
            .iter()
            .any(|(_, entry)| matches!(&entry.event, EntryEvent::Call { fact, .. } if fact.kind() == *kind));
        assert!(found, "{kind} has no golden file");
    }
}

fn pack(entries: &[Entry]) -> Vec<u8> {
    let mut packer = Packer::default();
    entries.iter().for_each(|entry| packer.push(entry));
    packer.finish()
}

fn hex(bytes: &[u8]) -> String {
    let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.chunks(32).map(|line| line.concat() + "\n").collect()
}

/// With `UPDATE=1` new golden files are written; one that exists is never changed.
#[test]
fn released_entries_never_change() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, entry) in all_golden() {
        let file = folder.join(format!("{name}.hex"));
        let written = hex(&pack(std::slice::from_ref(&entry)));
        if std::env::var_os("UPDATE").is_some() && !file.exists() {
            std::fs::write(&file, &written).unwrap();
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_else(|error| {
            panic!("{name}: {error}; a new kind needs its golden file: run with UPDATE=1")
        });
        assert_eq!(written, golden, "{name}: a released kind was changed");
        let bytes: Vec<u8> = golden
            .split_whitespace()
            .flat_map(|line| {
                (0..line.len()).step_by(2).map(|at| u8::from_str_radix(&line[at..at + 2], 16).unwrap())
            })
            .collect();
        assert_eq!(unpack(&bytes), Ok(vec![entry]), "{name}: a released kind is not read any more");
    }
}

#[test]
fn entries_packed_together_come_back_in_order() {
    let entries: Vec<Entry> = all_golden().into_iter().map(|(_, entry)| entry).collect();
    assert_eq!(unpack(&pack(&entries)), Ok(entries));
}

#[test]
fn what_is_newer_is_named() {
    let mut row = pack(&[all_golden()[0].1.clone()]);
    row[0] = FORMAT + 1;
    assert_eq!(unpack(&row), Err(Unreadable::Format { format: FORMAT + 1 }));
    row[0] = FORMAT;
    row[1] = 200;
    assert_eq!(unpack(&row), Err(Unreadable::Kind { kind: 200 }));
}

#[test]
fn fields_of_a_newer_release_are_passed_over() {
    // The fields of `lost` are {0: 1}; a newer release may write {0: 1, 99: "x"}.
    let row = pack(&[call(Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: true }))]);
    let fields = 1 + 1 + 2 + 8;
    let mut newer = row[..fields].to_vec();
    let longer = [0xa2, 0x00, 0x01, 0x18, 99, 0x61, b'x'];
    newer.extend_from_slice(&(longer.len() as u32).to_le_bytes());
    newer.extend_from_slice(&0u32.to_le_bytes());
    newer.extend_from_slice(&longer);
    assert_eq!(unpack(&newer), unpack(&row));
}

proptest! {
    /// Cut or changed bytes are an error or other entries, never a panic.
    #[test]
    fn damage_never_panics(at in 0..4_000usize, bit in 0..8u32, cut in 0..4_000usize) {
        let entries: Vec<Entry> = all_golden().into_iter().map(|(_, entry)| entry).collect();
        let mut row = pack(&entries);
        let at = at % row.len();
        row[at] ^= 1 << bit;
        let _ = unpack(&row);
        row.truncate(cut % (row.len() + 1));
        let _ = unpack(&row);
    }
}

#[test]
fn what_the_clock_did_comes_before_all_but_the_opening_and_every_time_can_be_changed() {
    let jump = Entry { at: Timestamp(50), event: EntryEvent::ClockMoved(ClockMove { by_us: 43 }) };
    let opening = Entry {
        at: Timestamp(7),
        event: EntryEvent::Batch(Opening { key: "key".into(), ..Opening::default() }),
    };
    let closed = Entry { at: Timestamp(8), event: EntryEvent::Closed(ClosedBy::Idle) };
    for (given, expected) in [
        (vec![], vec![&jump]),
        (vec![&closed], vec![&jump, &closed]),
        (vec![&opening, &closed], vec![&opening, &jump, &closed]),
    ] {
        let (mut packer, mut before) = (Packer::default(), Packer::default());
        given.iter().for_each(|entry| packer.push(entry));
        packer.restamp(|at| Timestamp(at.0 - 43));
        packer.restamp(|at| Timestamp(at.0 + 43));
        before.push(&jump);
        packer.prepend(before);
        assert_eq!(packer.count() as usize, expected.len());
        assert_eq!(unpack(&packer.finish()).unwrap().iter().collect::<Vec<_>>(), expected);
    }
}
