//! Batches: folding, comparing a submission with the record, derived keys.

use windlass_args::arguments::{Arguments, Given};
use windlass_core::batch::{
    Batch, Broken, ClosedBy, Compared, Opening, ProvisionalAnswer, compare, derived_key,
};
use windlass_core::call::{
    CancelAsked, Ended, Fact, LostAttempt, Model, Moment, Opened, SetAside, Spent, State, Step,
};
use windlass_core::entry::{Entry, EntryEvent};
use windlass_core::ids::{AttemptNo, Ordinal};
use windlass_core::limits::CallLimits;
use windlass_core::outcome::{Effect, ModelAnswer, Outcome, Success, Value};
use windlass_core::siblings::{Decision, Siblings};
use windlass_core::time::Timestamp;

fn opened(id: &str, tool: &str, args: &str) -> Opened {
    let args = Arguments { given: Given::Text, text: args.into() };
    Opened {
        id: id.into(),
        tool: tool.into(),
        args,
        provider: None,
        deadlines: None,
        priority: 0,
        inline_ms: None,
        task: None,
        answer: None,
        grant: None,
    }
}

fn entry(event: EntryEvent) -> Entry {
    Entry { at: Timestamp(0), event }
}

fn call(ordinal: u16, fact: Fact) -> Entry {
    entry(EntryEvent::Call { ordinal: Ordinal(ordinal), fact })
}

fn opening() -> Entry {
    entry(EntryEvent::Batch(Opening { key: "k".into(), ..Opening::default() }))
}

#[test]
fn a_batch_is_its_entries() {
    let entries = [
        opening(),
        call(0, Fact::Opened(opened("a", "t", "{}"))),
        call(1, Fact::Opened(opened("b", "t", "{}"))),
    ];
    let batch = Batch::fold(&entries).unwrap();
    let ids: Vec<&str> = batch.calls.iter().map(|call| &*call.opened.id).collect();
    assert_eq!((&*batch.opening.key, ids), ("k", vec!["a", "b"]));
}

#[test]
fn a_journal_that_does_not_add_up_is_named() {
    let first = || call(0, Fact::Opened(opened("a", "t", "{}")));
    let lost = || call(0, Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: true }));
    assert_eq!(Batch::fold(&[]), Err(Broken::NoOpening));
    assert_eq!(Batch::fold(&[first()]), Err(Broken::NoOpening));
    assert_eq!(Batch::fold(&[opening(), opening()]), Err(Broken::Misplaced { place: 1 }));
    assert_eq!(Batch::fold(&[opening(), lost()]), Err(Broken::Misplaced { place: 1 }));
    let skipped = call(1, Fact::Opened(opened("b", "t", "{}")));
    assert_eq!(Batch::fold(&[opening(), skipped]), Err(Broken::Misplaced { place: 1 }));
}

#[test]
fn a_contradiction_is_one_calls_and_the_rest_of_its_batch_adds_up() {
    let lost = || call(0, Fact::Lost(LostAttempt { attempt: AttemptNo(1), blamed: true }));
    let why = "a call that is queued cannot have lost (attempt 0)";
    let entries = vec![
        opening(),
        call(0, Fact::Opened(opened("a", "t", "{}"))),
        call(1, Fact::Opened(opened("b", "t", "{}"))),
        lost(),
        // What comes behind it changes nothing, and neither does a second contradiction.
        call(0, Fact::First),
        lost(),
        ended(1, Outcome::Unknown),
    ];
    let mut batch = Batch::fold(&entries).unwrap();
    assert_eq!(batch.calls[0].state, State::SetAside { why: why.into(), recorded: false });
    assert!(batch.is_open() && batch.calls[1].end().is_some());
    assert_eq!(batch.calls[0].next(&Moment::at(Timestamp(9))), Step::SetAside(&why.into()));
    for (place, fact) in [
        Fact::SetAside(SetAside { why: why.into() }),
        Fact::Ended(Ended {
            outcome: Some(Outcome::Unknown),
            model: Model::Own(ModelAnswer::default()),
            spent: Spent::default(),
        }),
    ]
    .into_iter()
    .enumerate()
    {
        batch.apply(entries.len() + place, &call(0, fact)).unwrap();
    }
    assert_eq!((batch.is_open(), batch.calls[0].outcome()), (false, Some(&Outcome::Unknown)));
    // A contradiction behind an end leaves that as it is.
    batch.apply(entries.len() + 2, &lost()).unwrap();
    assert_eq!(batch.calls[0].outcome(), Some(&Outcome::Unknown));
}

fn ended(ordinal: u16, outcome: Outcome) -> Entry {
    let spent = Spent { queued_us: 0, waited_us: 0, ran_us: 0 };
    let model = Model::Own(ModelAnswer::default());
    call(ordinal, Fact::Ended(Ended { outcome: Some(outcome), model, spent }))
}

#[test]
fn a_provisional_answer_names_open_calls_once() {
    let first = || call(0, Fact::Opened(opened("a", "t", "{}")));
    let answered = |calls: &[u16]| {
        let calls = calls.iter().map(|ordinal| Ordinal(*ordinal)).collect();
        entry(EntryEvent::Answered(ProvisionalAnswer { calls }))
    };
    let end = || ended(0, Outcome::Cancelled { effect: Effect::None });
    let batch = Batch::fold(&[opening(), first(), answered(&[0]), end()]).unwrap();
    assert!(batch.calls[0].is_provisional && batch.calls[0].end().is_some());
    let misplaced = |place| Err(Broken::Misplaced { place });
    assert_eq!(Batch::fold(&[opening(), first(), end(), answered(&[0])]), misplaced(3), "it had ended");
    assert_eq!(Batch::fold(&[opening(), first(), answered(&[0]), answered(&[0])]), misplaced(3), "twice");
    assert_eq!(Batch::fold(&[opening(), first(), answered(&[1])]), misplaced(2), "not there");
}

#[test]
fn a_batch_is_decided_once_by_its_journal() {
    let won =
        || Outcome::Succeeded(Success { value: Value::Inline("1".into()), parts: Vec::new(), side: None });
    let cancelled = |reason: &str| call(1, Fact::CancelAsked(CancelAsked { reason: Some(reason.into()) }));
    let race = Opening { key: "k".into(), siblings: Siblings::Race, ..Opening::default() };
    let entries = [
        entry(EntryEvent::Batch(race)),
        call(0, Fact::Opened(opened("a", "t", "{}"))),
        call(1, Fact::Opened(opened("b", "t", "{}"))),
        ended(0, won()),
        cancelled("decided"),
        // Somebody else had asked for it too: the first one stands.
        cancelled("asked"),
        ended(1, won()),
        call(2, Fact::Opened(opened("c", "t", "{}"))),
        ended(2, Outcome::Cancelled { effect: Effect::None }),
    ];
    let batch = Batch::fold(&entries).unwrap();
    let reason = batch.calls[1].cancel.as_ref().and_then(|cancel| cancel.reason.clone());
    assert_eq!(reason.as_deref(), Some("decided"));
    let tally = batch.tally.unwrap();
    assert_eq!((tally.decision(), tally.won()), (Some(Decision::Reached), &[Ordinal(0)][..]));
    let undecided = Batch::fold(&entries[..3]).unwrap();
    assert_eq!(undecided.tally.unwrap().decision(), None);
}

#[test]
fn a_streamed_batch_grows_until_it_is_closed() {
    let lost = || Outcome::Cancelled { effect: Effect::None };
    let stream = |siblings| {
        entry(EntryEvent::Batch(Opening { key: "k".into(), siblings, streamed: true, ..Opening::default() }))
    };
    let (first, second) = (opened("a", "t", "{}"), opened("b", "t", "{}"));
    let closed = || entry(EntryEvent::Closed(ClosedBy::Caller));
    let mut entries = vec![stream(Siblings::Race), call(0, Fact::Opened(first)), ended(0, lost())];
    let open = Batch::fold(&entries).unwrap();
    assert!(open.may_grow() && open.is_open());
    assert_eq!(open.tally.unwrap().decision(), None, "one may come that succeeds");
    entries.push(closed());
    let over = Batch::fold(&entries).unwrap();
    assert!(!over.may_grow() && !over.is_open());
    assert_eq!(over.tally.unwrap().decision(), Some(Decision::Unreachable));
    for late in [closed(), call(1, Fact::Opened(second))] {
        entries.push(late);
        assert_eq!(Batch::fold(&entries), Err(Broken::Misplaced { place: 4 }));
        entries.pop();
    }
    assert_eq!(
        Batch::fold(&[opening(), closed()]),
        Err(Broken::Misplaced { place: 1 }),
        "it was submitted whole"
    );
}

#[test]
fn a_submission_is_compared_by_what_it_means() {
    let check = |left: (&str, &str), right: (&str, &str)| {
        compare(&opened("a", left.0, left.1), &opened("a", right.0, right.1), &CallLimits::default())
    };
    let other = |pointers: &[&str]| Compared::OtherArgs(pointers.iter().map(|p| p.to_string()).collect());
    assert_eq!(check(("t", r#"{"a":1,"b":2}"#), ("t", r#"{ "b": 2, "a": 1.0 }"#)), Compared::Same);
    assert_eq!(check(("t", ""), ("t", "{}")), Compared::Same);
    assert_eq!(check(("t", "null"), ("t", " { } ")), Compared::Same);
    assert_eq!(check(("t", "{}"), ("u", "{}")), Compared::OtherTool);
    assert_eq!(check(("t", r#"{"a":{"b":[1,2]}}"#), ("t", r#"{"a":{"b":[1,3]}}"#)), other(&["/a/b/1"]));
    assert_eq!(check(("t", "{broken"), ("t", "{broken")), Compared::Same);
    assert_eq!(check(("t", "{broken"), ("t", "{}")), other(&[]));
    // Beyond 2^53 a canonical form that rounds would take these for the same.
    assert_eq!(check(("t", r#"{"n":9007199254740993}"#), ("t", r#"{"n":9007199254740992}"#)), other(&["/n"]));
}

#[test]
fn a_derived_key_follows_what_is_asked_for() {
    let key =
        |turn, calls: &[Opened]| derived_key(turn, &calls.iter().collect::<Vec<_>>(), &CallLimits::default());
    let base = || vec![opened("a", "t", r#"{"x":1,"y":2}"#)];
    assert_eq!(key(None, &base()), key(None, &[opened("a", "t", r#"{"y": 2, "x": 1}"#)]));
    let others = [
        key(Some("1"), &base()),
        key(None, &[opened("b", "t", r#"{"x":1,"y":2}"#)]),
        key(None, &[opened("a", "u", r#"{"x":1,"y":2}"#)]),
        key(None, &[opened("a", "t", r#"{"x":1,"y":3}"#)]),
        key(None, &[]),
    ];
    for other in &others {
        assert_ne!(*other, key(None, &base()));
    }
}
