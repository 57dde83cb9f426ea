//! The loop guard: what it takes for a loop, what lifts it, and that it can be made again from the record.

use windlass_args::arguments::{Arguments, Given};
use windlass_core::call::Opened;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::handle::Handle;
use windlass_core::limits::CallLimits;
use windlass_core::loops::{CallFingerprint, EndedFingerprint, Gave, Loop, LoopGuard, can_loop};
use windlass_core::outcome::{Effect, Form, KeptBytes, Outcome, Part, Success, Value};

fn asked(tool: &str, args: &str) -> CallFingerprint {
    asked_as(Given::Text, tool, args)
}

fn asked_as(given: Given, tool: &str, args: &str) -> CallFingerprint {
    let args = Arguments { given, text: args.into() };
    let (id, tool) = ("c".into(), tool.into());
    CallFingerprint::new(
        &Opened {
            id,
            tool,
            args,
            provider: None,
            deadlines: None,
            priority: 0,
            inline_ms: None,
            task: None,
            answer: None,
            grant: None,
        },
        &CallLimits::default(),
    )
}

fn succeeded(value: &str) -> Outcome {
    Outcome::Succeeded(Success { value: Value::Inline(value.into()), parts: Vec::new(), side: None })
}

/// `a1` is the tool `a`, called with the same arguments as ever, giving `1`.
fn seen(call: &str) -> EndedFingerprint {
    let (tool, value) = call.split_at(1);
    EndedFingerprint { asked: asked(tool, "{}"), gave: Gave::new(&succeeded(value)) }
}

/// A guard that saw these batches: calls are joined by `+`, batches separated by spaces.
fn guard(batches: &str) -> LoopGuard {
    guard_by(batches, &CallLimits::default())
}

fn guard_by(batches: &str, limits: &CallLimits) -> LoopGuard {
    let mut guard = LoopGuard::default();
    for batch in batches.split_whitespace() {
        guard.note(batch.split('+').map(seen), limits);
    }
    guard
}

fn check(batches: &str, next: &str) -> Option<(usize, usize)> {
    let next: Vec<CallFingerprint> = next.split_whitespace().map(|tool| asked(tool, "{}")).collect();
    guard(batches).check(&next).map(|Loop { batches, times }| (batches, times))
}

#[test]
fn loops_are_noticed() {
    let cases = [
        // The same in five batches in a row.
        ("", "a", None),
        ("a1 a1 a1 a1", "a", None),
        ("a1 a1 a1 a1 a1", "a", Some((1, 5))),
        ("b1 b2 a1 a1 a1 a1 a1", "a", Some((1, 5))),
        ("a1 a1 a1 a1 a1 a1 a1", "a", Some((1, 5))),
        // Another result, another call, another call in between or beside it.
        ("a1 a1 a1 a1 a2", "a", None),
        ("a1 a1 a1 a1 a1", "b", None),
        ("a1 a1 a1 a1 a1", "a b", None),
        ("a1 a1 b1 a1 a1 a1", "a", None),
        ("a1 a1 a1 a1 a1 b1", "a", None),
        ("a1+b1 a1+b2 a1+b3 a1+b4 a1+b5", "a", None),
        // Batches of several calls, in any order, whole or in part.
        ("a1+b1 b1+a1 a1+b1 a1+b1 b1+a1", "b a", Some((1, 5))),
        ("a1+b1 a1+b1 a1+b1 a1+b1 a1+b1", "b", Some((1, 5))),
        ("a1+a1 a1 a1 a1 a1+a1", "a", Some((1, 5))),
        ("a1+b1 a1+b1 a1 a1+b1 a1+b1", "a", None),
        // Cycles of two to four batches, three times.
        ("a1 b1 a1 b1 a1", "b", None),
        ("a1 b1 a1 b1 a1 b1", "a", Some((2, 3))),
        ("a1 b1 a1 b1 a1 b1", "b", Some((2, 3))),
        ("a1 b1 a1 b1 a1 b1", "c", None),
        ("a1 b1 a1 b1 a1 b2", "a", None),
        ("a1 a2 a1 a2 a1 a2", "a", Some((2, 3))),
        ("a1 b1 c1 a1 b1 c1 a1 b1 c1", "a", Some((3, 3))),
        ("a1 b1 c1 d1 a1 b1 c1 d1 a1 b1 c1 d1", "d", Some((4, 3))),
        ("x1 b1 c1 d1 a1 b1 c1 d1 a1 b1 c1 d1", "d", None),
        ("a1 b1 c1 d1 e1 a1 b1 c1 d1 e1 a1 b1 c1 d1 e1", "a", None),
        ("a1+x1 b1 a1+x1 b1 a1+x1 b1", "x", Some((2, 3))),
    ];
    for (batches, next, expected) in cases {
        assert_eq!(check(batches, next), expected, "{batches} then {next}");
    }
}

#[test]
fn no_calls_are_no_loop() {
    assert_eq!(check("a1 a1 a1 a1 a1", ""), None);
    let mut guard = guard("a1 a1 a1 a1 a1");
    let before = guard.clone();
    guard.note(Vec::new(), &CallLimits::default());
    assert_eq!(guard, before, "a batch of exempt or refused calls changes nothing");
}

#[test]
fn it_holds_until_something_else_was_done() {
    let limits = CallLimits::default();
    let mut guard = guard("a1 a1 a1 a1 a1");
    for _ in 0..3 {
        assert!(guard.check(&[asked("a", "{}")]).is_some(), "what was refused is not noted");
    }
    guard.note(vec![seen("b1")], &limits);
    for _ in 0..5 {
        assert!(guard.check(&[asked("a", "{}")]).is_none());
        guard.note(vec![seen("a1")], &limits);
    }
    assert!(guard.check(&[asked("a", "{}")]).is_some());
    guard.lift();
    assert_eq!(guard, LoopGuard::default());
}

#[test]
fn arguments_are_compared_by_what_they_mean() {
    assert_eq!(asked("a", r#"{"x": 1, "y": [true]}"#), asked("a", r#"{"y":[true],"x":1.0}"#));
    assert_eq!(asked("a", ""), asked("a", "{}"));
    assert_eq!(asked("a", "not JSON"), asked("a", "not JSON"));
    assert_ne!(asked("a", "not JSON"), asked("a", "not  JSON"));
    assert_ne!(asked("a", r#"{"x": 1}"#), asked("a", r#"{"x": 2}"#));
    assert_ne!(asked("a", "{}"), asked("b", "{}"));
    assert_eq!(asked("a", r#"{"x": 1}"#), asked_as(Given::Json, "a", r#"{"x":1}"#));
    // Every length, every place, and where one text ends and the next begins.
    let long =
        |at: usize, text: &str| asked_as(Given::Json, "a", &("x".repeat(at) + text + &"x".repeat(40 - at)));
    let mut sums: Vec<CallFingerprint> =
        (0..40).flat_map(|at| [long(at, "y"), long(at, ""), long(at, "yy")]).collect();
    sums.extend((0..40).map(|at| asked_as(Given::Json, &"x".repeat(at), &"x".repeat(40 - at))));
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), 40 * 3 - 39 + 40);
}

#[test]
fn results_are_told_apart() {
    let failed = |message: &str| Failure::invalid_request(Code::InvalidArgs, message);
    let kept = |handle: u128| KeptBytes { artifact: Handle(handle), bytes: 9 };
    let part = |part| Outcome::Succeeded(Success { value: Value::default(), parts: vec![part], side: None });
    let different = [
        succeeded("1"),
        succeeded("2"),
        succeeded("null"),
        part(Part::Text("1".into())),
        part(Part::Json("1".into())),
        part(Part::Image { media_type: "image/png".into(), data: [1].into() }),
        part(Part::File { kept: kept(1), media_type: "text/plain".into(), name: "a".into() }),
        Outcome::Succeeded(Success {
            value: Value::Kept { kept: kept(1), form: Form::Json },
            parts: Vec::new(),
            side: None,
        }),
        Outcome::Succeeded(Success {
            value: Value::Kept { kept: kept(2), form: Form::Json },
            parts: Vec::new(),
            side: None,
        }),
        part(Part::KeptImage { kept: kept(3), media_type: "image/png".into() }),
        Outcome::Failed(Box::new(Failure { parts: vec![Part::Text("shot".into())], ..failed("1") })),
        succeeded(&"1".repeat(100)),
        succeeded(&("1".repeat(99) + "2")),
        Outcome::Failed(Box::new(failed("1"))),
        Outcome::Failed(Box::new(failed("2"))),
        Outcome::Failed(Box::new(Failure { code: Code::TooLarge, ..failed("1") })),
        Outcome::Failed(Box::new(Failure { class: FailureClass::External, ..failed("1") })),
        Outcome::Failed(Box::new(Failure { tool_code: Some("404".into()), ..failed("1") })),
        Outcome::Failed(Box::new(Failure { raw: Some("1".into()), ..failed("1") })),
        Outcome::Denied { reason: "1".into() },
        Outcome::Cancelled { effect: Effect::None },
        Outcome::Cancelled { effect: Effect::Landed },
        Outcome::Unknown,
    ];
    for (place, left) in different.iter().enumerate() {
        for (other, right) in different.iter().enumerate() {
            assert_eq!(Gave::new(left) == Gave::new(right), place == other, "{left:?} {right:?}");
        }
    }
    let internal = |reference| Outcome::Failed(Box::new(Failure::internal(Code::Internal, reference, "x")));
    assert_eq!(Gave::new(&internal("r1")), Gave::new(&internal("r2")), "the reference is new each time");
}

#[test]
fn it_looks_back_so_far_and_holds_no_more() {
    let limits = CallLimits { loop_calls_max: 10, ..CallLimits::default() };
    let batch = |calls: usize| (0..calls).map(|call| seen(&format!("{}1", (b'a' + call as u8) as char)));
    for (calls, is_seen) in [(1, true), (2, true), (3, false), (10, false), (11, false)] {
        let mut guard = LoopGuard::default();
        for _ in 0..20 {
            guard.note(batch(calls), &limits);
        }
        let next: Vec<CallFingerprint> = batch(calls).map(|seen| seen.asked).collect();
        assert_eq!(guard.check(&next).is_some(), is_seen, "{calls} calls in a batch");
        assert!(can_loop(calls, &limits) || !is_seen, "{calls} calls in a batch");
        let lasting = if calls > 10 { 0 } else { 10 / calls };
        let mut same = LoopGuard::default();
        (0..lasting).for_each(|_| same.note(batch(calls), &limits));
        assert_eq!(guard, same, "only the last {lasting} batches of {calls} calls are held");
    }
    let can: Vec<bool> = [1, 3, 4, 10].map(|calls| can_loop(calls, &limits)).into();
    assert_eq!(can, [true, true, false, false], "three rounds of three calls are nine");
}

#[test]
fn limits_change_it_and_zero_turns_it_off() {
    let next = [asked("a", "{}")];
    let found = |loop_batches_max, loop_cycles_max| {
        let limits = CallLimits { loop_batches_max, loop_cycles_max, ..CallLimits::default() };
        guard_by("a1 a1 b1 a1 b1", &limits).check(&next).map(|Loop { batches, times }| (batches, times))
    };
    assert_eq!(found(5, 3), None);
    assert_eq!(found(5, 2), Some((2, 2)));
    assert_eq!(found(0, 0), None);
    assert_eq!(found(u64::MAX, u64::MAX), None);
}

#[test]
fn the_record_makes_the_same_guard() {
    // What is read begins before the window, or at it: the guard is the same.
    let limits = CallLimits { loop_calls_max: 4, ..CallLimits::default() };
    let mut all = LoopGuard::default();
    let mut last = LoopGuard::default();
    for (place, batch) in ["x1", "a1", "b1", "a1", "b1"].into_iter().enumerate() {
        all.note(vec![seen(batch)], &limits);
        if place > 0 {
            last.note(vec![seen(batch)], &limits);
        }
    }
    assert_eq!(all, last);
}

#[test]
fn the_answer_says_what_to_do() {
    let failure = Loop { batches: 1, times: 5 }.failure();
    assert_eq!(
        (failure.class, failure.source, failure.code),
        (FailureClass::ResourceLimit, Source::Runtime, Code::Loop)
    );
    let told = [failure.message, Loop { batches: 2, times: 3 }.failure().message];
    insta::assert_snapshot!(told.join("\n"), @r"
    The same was called 5 times in a row and gave the same result each time, so it was not run again. Change the arguments, call something else, or say what is missing; any other call lifts this.
    The same 2 steps were repeated 3 times and gave the same results each time, so it was not run again. Change the arguments, call something else, or say what is missing; any other call lifts this.
    ");
}
