//! Batches: folding, comparing a submission with the record, derived keys.

use windlass_core::batch::{Batch, Broken, Compared, Opening, compare, derived_key};
use windlass_core::call::{Arguments, Fact, Given, Lost, Opened};
use windlass_core::entry::{Entry, Event};
use windlass_core::ids::{AttemptNo, Ordinal};
use windlass_core::limits::Limits;
use windlass_core::time::Timestamp;

fn opened(id: &str, tool: &str, args: &str) -> Opened {
    let args = Arguments { given: Given::Text, text: args.into() };
    Opened { id: id.into(), tool: tool.into(), args, provider: None, deadlines: None, priority: 0 }
}

fn entry(event: Event) -> Entry {
    Entry { at: Timestamp(0), event }
}

fn call(ordinal: u16, fact: Fact) -> Entry {
    entry(Event::Call { ordinal: Ordinal(ordinal), fact })
}

fn opening() -> Entry {
    entry(Event::Batch(Opening { key: "k".into(), turn: None, inputs: None }))
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
    let lost = || call(0, Fact::Lost(Lost { attempt: AttemptNo(1), blamed: true }));
    assert_eq!(Batch::fold(&[]), Err(Broken::NoOpening));
    assert_eq!(Batch::fold(&[first()]), Err(Broken::NoOpening));
    assert_eq!(Batch::fold(&[opening(), opening()]), Err(Broken::Misplaced { place: 1 }));
    assert_eq!(Batch::fold(&[opening(), lost()]), Err(Broken::Misplaced { place: 1 }));
    let skipped = call(1, Fact::Opened(opened("b", "t", "{}")));
    assert_eq!(Batch::fold(&[opening(), skipped]), Err(Broken::Misplaced { place: 1 }));
    assert!(matches!(Batch::fold(&[opening(), first(), lost()]), Err(Broken::Illegal { place: 2, .. })));
}

#[test]
fn a_submission_is_compared_by_what_it_means() {
    let check = |left: (&str, &str), right: (&str, &str)| {
        compare(&opened("a", left.0, left.1), &opened("a", right.0, right.1), &Limits::default())
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
        |turn, calls: &[Opened]| derived_key(turn, &calls.iter().collect::<Vec<_>>(), &Limits::default());
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
