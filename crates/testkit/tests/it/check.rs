//! The checker sees what it is there to see: whole histories pass, and each broken one is named.

use crate::kill::programs;
use serde_json::{Value, json};
use windlass::batch::Siblings;
use windlass::tasks::Wake;
use windlass_core::batch::ClosedBy;
use windlass_core::call::Fact;
use windlass_core::entry::EntryEvent;
use windlass_core::handle::step_key;
use windlass_core::ids::{EntryNo, Ordinal};
use windlass_testkit::proof::check::{Histories, violations};
use windlass_testkit::proof::history::{BatchReply, CallHistory, NestedCalls, RecordedBatch, Taken};
use windlass_testkit::proof::ledger::{Effect, Ledger};
use windlass_testkit::proof::trial::{Planned, Trial};

/// The histories of a plan that nobody disturbed.
fn whole(planned: Planned) -> Histories {
    let (programs, folder) = (programs(), tempfile::tempdir().unwrap());
    let mut ledger = Ledger::start(&programs.ledger, folder.path()).unwrap();
    let mut trial = Trial::new(&programs, &mut ledger, 7, planned).unwrap();
    trial.drain().unwrap();
    trial.histories().unwrap()
}

/// The recorded call of this id.
fn call<'a>(histories: &'a mut Histories, id: &str) -> &'a mut CallHistory {
    histories.journal.calls.iter_mut().find(|call| call.name.ends_with(&format!("/{id}"))).unwrap()
}

/// The ledger's observation of the call of this id.
fn effect<'a>(histories: &'a mut Histories, id: &str) -> &'a mut Effect {
    let is_it = |effect: &&mut Effect| effect.call.ends_with(&format!("/{id}")) && !effect.is_question();
    histories.effects.iter_mut().find(is_it).unwrap()
}

/// The first worker's reply about the batch of this key.
fn answer<'a>(histories: &'a mut Histories, key: &str) -> &'a mut BatchReply {
    histories.told[0].answers.iter_mut().find(|answer| answer.batch == key).unwrap()
}

/// A second line of the ledger for this call, by a later attempt of a later worker.
fn again(histories: &mut Histories, id: &str) {
    let mut again = effect(histories, id).clone();
    again.number = 1_000;
    again.worker.number = 2;
    again.attempt += 1;
    histories.effects.push(again);
}

/// It failed, as if it had been tried as often as it may be.
fn fails(call: &mut CallHistory) {
    call.answer["state"] = json!("failed");
    let retry = json!({"exhausted": {"attempts": 2}});
    call.answer["outcome"] = json!({"failure": {"code": "tool_failed", "retry": retry}});
}

/// Changes a sound history into one that must be noticed.
type Break = fn(&mut Histories);

/// The promises for every call.
const KEPT: [(Break, &str); 18] = [
    (
        |all| all.journal.calls.retain(|call| !call.name.ends_with("/c2")),
        "R1: s1/b1/c2: worker 1 was told its end and it is gone",
    ),
    (|all| all.journal.calls.retain(|call| !call.name.ends_with("/c2")), "R1: s1/b1/c2 is recorded 0 times"),
    (|all| call(all, "c1").answer["state"] = json!("failed"), "R1: s1/b1/c1: worker 1 was told"),
    (|all| all.told[1].answers[0].calls[0]["ran_ms"] = json!(99_999), "worker 2 was told"),
    (|all| answer(all, "b1").calls.reverse(), "R1: worker 1 was answered"),
    (|all| call(all, "c6").ended.push(EntryNo(99)), "R8: s1/b2/c6 ended 2 times"),
    (|all| call(all, "c6").ended.clear(), "R8: s1/b2/c6 ended 0 times"),
    (|all| call(all, "c7").started[0] = EntryNo(1), "order: s1/b2/c7 started at entry 1, before"),
    (|all| call(all, "c2").name.push('x'), "R1: s1/b1/c2x was never submitted"),
    (|all| effect(all, "c2").call.push('x'), "R2: the ledger saw s1/b1/c2x, which is not recorded"),
    (|all| again(all, "c1"), "R3: the ledger was asked 2 times"),
    (|all| again(all, "c3"), "R2: worker 2 ran it at line 1000, after worker 1 was told its end"),
    (
        |all| {
            again(all, "c3");
            all.told.clear()
        },
        "R2: line 1000 is of a run after the recorded one",
    ),
    (|all| effect(all, "c2").key.push('x'), "came under another key"),
    (|all| effect(all, "c1").hash = 0, "came with another class or arguments"),
    (|all| effect(all, "c1").handle.push('x'), "came under another handle"),
    (
        |all| all.effects.retain(|effect| !effect.call.ends_with("/c1")),
        "R3: it succeeded and the ledger knows nothing of it",
    ),
    (|all| call(all, "c1").past.lost = 1, "R3: it is succeeded , and was cut: it must be unknown"),
];

/// The promises about attempts, cancels and resolutions.
const ASKED: [(Break, &str); 11] = [
    (|all| call(all, "c1").past.lost = 1, "retry: 1 attempts started, and 2 came to an end"),
    (|all| call(all, "c9").past.returned = 9, "retry: it was tried 9 times"),
    (|all| fails(call(all, "c9")), "R3: it must not be failed tool_failed"),
    (
        |all| all.effects.retain(|effect| !effect.call.ends_with("/c10")),
        "R3: it must not be cancelled landed",
    ),
    (|all| call(all, "c11").past.resolved.push(EntryNo(999)), "R12: it was resolved at"),
    (|all| call(all, "c11").past.resolved[0] = EntryNo(1), "R12: it was resolved at"),
    (
        |all| {
            let answers = &mut all.told[1].answers;
            let last = answers.iter_mut().flat_map(|answer| &mut answer.calls);
            let of_it = last.filter(|call| call["id"] == "c11");
            of_it.for_each(|call| call["state"] = json!("failed"));
        },
        "R12: s2/b3/c11: worker 2 was told",
    ),
    (
        |all| call(all, "c12").answer["outcome"]["effect"] = json!("landed"),
        "R3: it must not be cancelled landed",
    ),
    (|all| all.told.iter_mut().for_each(|told| told.cancels.clear()), "R3: it must not be cancelled none"),
    (|all| call(all, "c12").past.cancel_asked = Some(EntryNo(0)), "cancel: asked at entry 0, and started"),
    (|all| again(all, "c12"), "cancel: worker 1 was told that it is to stop, and worker 2 ran it"),
];

/// The journal of the batch of this key.
fn batch<'a>(histories: &'a mut Histories, key: &str) -> &'a mut RecordedBatch {
    histories.journal.batches.iter_mut().find(|batch| batch.name.ends_with(&format!("/{key}"))).unwrap()
}

fn is_cancel(event: &EntryEvent, call: u16) -> bool {
    matches!(event, EntryEvent::Call { ordinal: Ordinal(of), fact: Fact::CancelAsked(_) } if *of == call)
}

/// Takes the cancel of a call out of the row it is in, and puts it into one of its own.
fn cancel_later(batch: &mut RecordedBatch, call: u16) {
    let row = batch.rows.iter_mut().find(|row| row.iter().any(|event| is_cancel(event, call))).unwrap();
    let place = row.iter().position(|event| is_cancel(event, call)).unwrap();
    let cancel = row.remove(place);
    batch.rows.push(vec![cancel]);
}

/// The promises about sibling rules.
const SIBLINGS: [(Break, &str); 7] = [
    (|all| cancel_later(batch(all, "b1"), 0), "without the cancel of s1/b1/c1"),
    // It was added when the batch was decided.
    (|all| cancel_later(batch(all, "b2"), 3), "without the cancel of s1/b2/c7"),
    (|all| cancel_later(batch(all, "b1"), 1), "siblings: s1/b1/c2 was dismissed otherwise than in row"),
    (|all| batch(all, "b3").siblings = Siblings::Independent, "siblings: s1/b3/c9 was dismissed in row"),
    (|all| batch(all, "b1").siblings = Siblings::FailFast, "siblings: s1/b1/c1 was dismissed otherwise"),
    (
        |all| {
            answer(all, "b1").decided["winners"] = json!(["c1"]);
        },
        "siblings: s1/b1: worker 1 was told",
    ),
    (
        |all| {
            let mut ran = effect(all, "c5").clone();
            ran.call = "s1/b2/c7".into();
            ran.attempt = 1;
            all.effects.push(ran);
            call(all, "c7").started.push(EntryNo(99_999));
        },
        "cancel: asked at entry",
    ),
];

/// A second line of the ledger for this step, by a later attempt.
fn step_again(histories: &mut Histories, id: &str, step: &str) {
    let key = step_key(&call(histories, id).key, step);
    let mut again = histories.effects.iter().find(|effect| effect.key == key).unwrap().clone();
    again.number = 1_000;
    again.attempt += 1;
    again.verdict = "again".into();
    histories.effects.push(again);
}

/// The promises about named operations.
const STEPPED: [(Break, &str); 10] = [
    (|all| step_again(all, "c15", "first"), "R2: the step first was recorded in attempt 1"),
    (|all| step_again(all, "c15", "first"), "R1: the step first was told as done, and asked for again"),
    (|all| step_again(all, "c13", "once"), "R3: the step once was asked for 2 times"),
    (
        |all| {
            step_again(all, "c15", "effect");
            all.effects.last_mut().unwrap().verdict = "applied".into();
        },
        "R3: the step effect is recorded as done, and was applied 2 times",
    ),
    (|all| call(all, "c15").inside.steps.clear(), "R1: it succeeded, and the step first is not recorded"),
    (
        |all| call(all, "c15").inside.steps.get_mut("first").unwrap().done_in.push(2),
        "R2: the step first is recorded as done 2 times",
    ),
    (|all| answers(all, "c13", "answer").push(json!(1)), "R12: it was answered 2 times as answer"),
    (|all| answers(all, "c13", "answer")[0] = json!(1), "and is not what it was answered as answer"),
    (|all| answers(all, "c13", "answer").clear(), "R12: it went on with"),
    (|all| call(all, "c13").inside.sleeps = 2, "R15: it slept 2 times"),
];

/// The answers to the call of this id under this name.
fn answers<'a>(histories: &'a mut Histories, id: &str, name: &str) -> &'a mut Vec<Value> {
    call(histories, id).inside.answers.get_mut(name).unwrap()
}

/// The promises about calls that wait for their client, and about pushes.
const OUTSIDE: [(Break, &str); 22] = [
    (|all| call(all, "c16").inside.questions = 2, "R12: it asked its question 2 times"),
    (|all| call(all, "c16").inside.questions = 0, "R12: it asked its question 0 times"),
    (|all| answers(all, "c16", "question").push(json!(1)), "R12: it was answered 2 times as question"),
    (|all| answers(all, "c16", "question")[0] = json!(1), "and is not what it was answered as question"),
    (|all| call(all, "c16").inside.answers.clear(), "R12: it went on with"),
    (|all| answers(all, "c19", "windlass.client")[0] = json!(1), "is not what it was answered as windlass"),
    (|all| call(all, "c19").value.as_mut().unwrap()["by"] = json!(1), "R12: it went on with"),
    (
        |all| {
            let mut ran = effect(all, "c17").clone();
            ran.attempt = 1;
            all.effects.push(ran);
        },
        "R3: attempt 1 needed a connection, and had an effect",
    ),
    (|all| call(all, "c17").past.connected.push(true), "R12: it was connected 2 times"),
    (|all| call(all, "c17").past.connected[0] = false, "R12: it was connected as [false]"),
    (|all| call(all, "c17").past.connected.clear(), "was acknowledged, and it was not told"),
    (|all| call(all, "c17").past.connected.clear(), "R12: it succeeded, and was never connected"),
    (
        |all| {
            let mut ran = effect(all, "c17").clone();
            ran.call = "s4/b5/c18".into();
            all.effects.push(ran);
        },
        "R3: its connection was declined, and it had an effect",
    ),
    (|all| call(all, "c18").answer["state"] = json!("succeeded"), "R3: it must not be succeeded"),
    (
        |all| all.journal.calls.retain(|call| !call.name.ends_with("/c25")),
        "R1: worker 1 pushed s4/b7/c25, and it is gone",
    ),
    (|all| all.told[1].refused.push("s4/b7/c24".into()), "was refused s4/b7/c24, and it is recorded"),
    (|all| all.told[1].refused.push("s4/b7/c24".into()), "was closed by its client, and refused a call"),
    (|all| batch(all, "b7").calls.swap(0, 1), "R1: s4/b7 has"),
    (|all| batch(all, "b7").calls.truncate(2), "R1: s4/b7 has 2 calls, and 3 were pushed"),
    (|all| batch(all, "b7").closed.clear(), "streams: s4/b7 was closed by []"),
    (|all| batch(all, "b7").closed[0] = ClosedBy::Restart, "streams: s4/b7 was closed by [Restart]"),
    (|all| batch(all, "b7").streamed = false, "R1: s4/b7 is recorded as another kind of batch"),
];

/// The promises about nested calls.
const NESTED: [(Break, &str); 20] = [
    (
        |all| {
            let mut again = call(all, "c20a").clone();
            again.name = again.name.replace("c20a/", "c20a~2/");
            again.nesting.as_mut().unwrap().name.push_str("~2");
            all.journal.calls.push(again);
        },
        "c20a~2/c20a is recorded, and nobody was to call it",
    ),
    (|all| again(all, "c20b"), "R3: the ledger was asked 2 times"),
    (|all| call(all, "c20b").past.lost = 1, "R3: it is succeeded , and was cut: it must be unknown"),
    (|all| again(all, "c20c"), "R2: worker 2 ran it at line 1000, after worker 1 was told its end"),
    (|all| called(all, "c20", "c20a").push(SECOND), "nested: it called c20a as"),
    (|all| called(all, "c21", "c21b")[1].round = 0, "nested: it called c21b as"),
    (|all| called(all, "c20", "c20a").clear(), "and it is not recorded that it was called"),
    (|all| called(all, "c20", "c20a")[0].at = EntryNo(99_999), "started before it was called"),
    (|all| call(all, "c20c").ended[0] = EntryNo(99_999), "c20c ended at entry 99999, and the call around it"),
    (|all| first(all, "c21b").answer["state"] = json!("succeeded"), "is succeeded, and was made again"),
    (|all| first(all, "c21b").ended[0] = EntryNo(99_999), "was not over when it was called again"),
    (
        |all| {
            // What the ledger refused it has applied.
            let key = call(all, "c21b").key.clone();
            let refused =
                all.effects.iter_mut().find(|effect| effect.key == key && effect.verdict == "rejected");
            refused.unwrap().verdict = "applied".into();
        },
        "R3: the ledger was asked 1 times and applied it 2 times",
    ),
    (
        |all| call(all, "c20").value.as_mut().unwrap()["nested"]["race"] = json!(["c20d"]),
        "nested: it went on with",
    ),
    (
        |all| call(all, "c20").value.as_mut().unwrap()["nested"]["c20b"] = json!(["unknown", null]),
        "nested: it went on",
    ),
    (
        |all| all.journal.calls.retain(|call| !call.name.ends_with("/c20c")),
        "it succeeded, and c20c was never made",
    ),
    (|all| all.journal.calls.retain(|call| !call.name.ends_with("/c20c")), "/c20c, which is not recorded"),
    (|all| call(all, "c20c").answer["state"] = json!("failed"), "nested: it succeeded, and c20c failed"),
    (
        |all| {
            call(all, "c20e").past.dismissed = false;
            call(all, "c20e").past.cancel_reason = Some("the call around it was cancelled".into());
        },
        "R3: it must not be cancelled unknown",
    ),
    (|all| too_long(all), "R3: it must not be cancelled unknown"),
    (|all| cancel_later(batch(all, "race"), 1), "was dismissed otherwise than in row"),
];

/// The promises about tasks, their notices, and scheduled calls.
const TASKS: [(Break, &str); 14] = [
    (
        |all| {
            let second = Taken { id: "second".into(), ..notice(all, "c1").clone() };
            all.journal.notices.push(second);
        },
        "/c1 is Some(OnEnd), and its end is told under {",
    ),
    (|all| call(all, "c1").task = Some(Wake::Silent), "/c1 is Some(Silent), and its end is told under {"),
    (
        |all| call(all, "c1").task = None,
        "R23: s1/b1/c1 was answered before its end: false, and its end is told under {",
    ),
    (
        |all| call(all, "c4").provisional = false,
        "R23: a client was told of s1/b3/c4 before it had ended, and that is not recorded",
    ),
    (
        |all| {
            let handle = call(all, "c4").answer["call"].clone();
            all.journal.notices.retain(|notice| handle != notice.task.as_str());
            all.told.iter_mut().for_each(|told| told.taken.retain(|taken| handle != taken.task.as_str()));
        },
        "R23: s1/b3/c4 was answered before its end: true, and its end is told under {}",
    ),
    (|all| call(all, "c1").task = Some(Wake::OnActivity), "task: s1/b1/c1 is to be"),
    (|all| call(all, "c1").inside.questions = 1, "R12: it asked its question 1 times"),
    (
        |all| {
            call(all, "run").task = Some(Wake::OnActivity);
            call(all, "run").inside.questions = 1;
        },
        "run asked 1 times, and that is told 0 times",
    ),
    (
        |all| {
            let gone = notice(all, "c1").clone();
            all.told[0].taken.push(gone.clone());
            all.journal.notices.retain(|left| left.task != gone.task);
            all.told.iter_mut().for_each(|told| told.acknowledging.retain(|id| *id != gone.id));
        },
        "is gone, and nobody acknowledged it",
    ),
    (
        |all| {
            let gone = notice(all, "c1").clone();
            all.told[0].acknowledged.push(gone.id.clone());
            all.told[1].taken.push(gone);
        },
        "was acknowledged, and worker 2 got it again",
    ),
    (
        |all| {
            let back = notice(all, "c1").clone();
            all.told[0].acknowledged.push(back.id.clone());
            all.journal.notices.push(back);
        },
        "was acknowledged, and is there",
    ),
    (
        |all| {
            let open = Taken { state: "running".into(), ..notice(all, "c1").clone() };
            all.told[1].taken.push(open);
        },
        "tells of an end, and it is running",
    ),
    (
        |all| {
            let lent = Taken { within_us: (1_000, 2_000), ..notice(all, "c1").clone() };
            let again = Taken { within_us: (9_000, 15_999), ..lent.clone() };
            all.told[0].requeued.clear();
            all.told[0].taken.extend([lent, again]);
        },
        "was lent for 15 ms, and worker 1 got it again after 14999 us",
    ),
    (
        |all| all.journal.calls.retain(|call| !call.name.ends_with("/run")),
        "R13: the schedule t2 has started 0 calls",
    ),
];

/// A notice of the call of this id: one that is left, or that was taken.
fn notice<'a>(histories: &'a mut Histories, id: &str) -> &'a mut Taken {
    let task = call(histories, id).answer["call"].clone();
    let taken = histories.told.iter_mut().flat_map(|told| &mut told.taken);
    taken.chain(&mut histories.journal.notices).find(|notice| task == notice.task.as_str()).unwrap()
}

/// A call inside another was stopped because of that one.
fn too_long(histories: &mut Histories) {
    let past = &mut call(histories, "c20e").past;
    past.dismissed = false;
    past.cancel_reason = Some("the call around it took too long".into());
}

/// It was called once more, in a try that was none.
const SECOND: NestedCalls = NestedCalls { generation: 2, at: EntryNo(99_999), round: 0 };

/// The nested calls of the call of this id under this name.
fn called<'a>(histories: &'a mut Histories, id: &str, name: &str) -> &'a mut Vec<NestedCalls> {
    call(histories, id).inside.called.get_mut(name).unwrap()
}

/// The call of this id inside another, as it was made first.
fn first<'a>(histories: &'a mut Histories, id: &str) -> &'a mut CallHistory {
    let is_first = |call: &&mut CallHistory| {
        call.name.ends_with(&format!("/{id}")) && call.nesting.as_ref().is_some_and(|it| it.generation == 1)
    };
    histories.journal.calls.iter_mut().find(is_first).unwrap()
}

#[test]
fn each_broken_promise_is_named() {
    named(&whole(Planned::Outside), &[&OUTSIDE[..], &NESTED[..]].concat());
    named(&whole(Planned::Stepped), &STEPPED);
    named(&whole(Planned::EveryWrite), &[&KEPT[..], &ASKED[..]].concat());
    named(&whole(Planned::Siblings), &SIBLINGS);
    named(&whole(Planned::Background), &TASKS);
}

/// A call that died need not come back to what it was about, and may have stopped what was inside it.
#[test]
fn what_died_is_excused() {
    let mut died = whole(Planned::Outside);
    call(&mut died, "c20").past.lost = 1;
    for (id, excused) in [("c20c", true), ("c20a", false)] {
        let mut gone = died.clone();
        gone.journal.calls.retain(|call| !call.name.ends_with(&format!("/{id}")));
        let found = violations(&gone);
        let named = found.iter().any(|line| line.contains("which is not recorded"));
        assert_eq!(named, !excused, "{id}: what only reads may run before it is recorded: {found:#?}");
    }
    too_long(&mut died);
    let found = violations(&died);
    assert!(!found.iter().any(|line| line.contains("must not be cancelled")), "{found:#?}");
}

fn named(whole: &Histories, broken: &[(Break, &str)]) {
    assert_eq!(violations(whole), [""; 0]);
    for (number, (spoil, expected)) in broken.iter().enumerate() {
        let mut spoiled = whole.clone();
        spoil(&mut spoiled);
        let found = violations(&spoiled);
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "case {number}: {expected:?} in {found:#?}"
        );
    }
}
