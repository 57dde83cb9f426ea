//! Stories of calls that wait for the world outside, and of sessions that fill their own bounds.

use super::{Story, call, check, check_with, tell};
use windlass_core::ids::SessionNo;
use windlass_core::limits::CallLimits;
use windlass_core::plan::Bound;

#[test]
fn a_call_that_waits_for_the_world_outside_holds_up_others_by_what_it_declares_only() {
    // Other batches pass one that declares nothing, and it stands behind them when it comes back.
    check(
        "a : *; park a; out a; b2 : *; wake a; why a; end b2",
        "a | - | - | b2 | - | waits for the session, held by call 2.1 | a",
    );
    check(
        "a : write x; park a; out a; b2 : write x; c2 : write y; wake a; end a",
        "a | - | - | - | c2 | a | b2",
    );
    // Calls of its own batch wait for it until the batch is answered.
    check(
        "a : *; b : *; park a; out a; why b; answered 1; wake a; end b",
        "a | - | - | - | waits for the session, held by call 1.0 | b | - | a",
    );
    check("a : *; b : *; park a; out a; wake a; end a", "a | - | - | - | a | b");
    check("a : *; b : *; park a; out a; end a", "a | - | - | - | b");
    // Whoever came between stands before both, in their order.
    check(
        "a : *; b : *; c2 : *; park a; out a; why c2; wake a; end c2; end a",
        "a | - | - | - | - | waits for the session, held by call 1.1 | c2 | a | b",
    );
    // One that was answered before, or that an earlier owner left, holds up nobody.
    check("a answered : *; b answered : *; park a; out a", "a | - | - | b");
    check("a away answered : *; b answered : *; c2 : *; wake a", "- | b | - | -");
    check("a away : write x; b2 : write x; c2 : write y", "- | - | c2");
    check("a answered parked : write x; b2 : write x; wake a; end b2", "- | b2 | - | a");
}

#[test]
fn a_body_that_waits_keeps_its_room_and_takes_what_it_claims_anew() {
    let one = CallLimits { calls_running_max: 1, ..CallLimits::default() };
    check_with(
        &one,
        "a : *; out a; b2 : *; in a; why a; end b2",
        "a | - | - | b2 | waits for the session, held by call 2.1 | a",
    );
    check("a : *; out a; b2 : *; in a; end b2", "a | - | b2 | - | a");
    check("a t=one : *; out a; b2 t=one : *; in a; end b2", "a | - | - | b2 | a");
    check("a : write x; out a; b2 : write x; in a; end a", "a | - | - | at once, - | b2");
    // What runs inside it needs what it claims.
    check("a : *; b in=a : ^; park a; out a; c2 : *; end b; end c2", "a | b | - | - | - | c2 | -");
}

#[test]
fn the_time_behind_a_call_that_waits_for_the_world_outside_is_told_apart() {
    let story = "a : write x; b2 : write x; c2 : write x; d2 : write y; at 10; park a; out a; at 25; stood b2; \
                 stood c2; e2 : write x; at 40; stood e2; wake a; at 70; stood b2; end a; stood b2; stood d2";
    check(story, "a | - | - | d2 | - | - | - | - | 15 | 15 | - | - | 15 | a | - | 30 | b2 | 30 | 0");
    // It counts from when the other began to wait, and until it left.
    let mut story = Story::new(&CallLimits::default());
    tell(&mut story, "a : write x; b2 : write x; at 5; park a; out a; at 9");
    story.planner.pass_time(9, call("a"));
    assert_eq!(tell(&mut story, "end a; at 100; stood b2"), "b2 | - | 4");
    // A call of the same batch that is held up only by that.
    check(
        "a : *; b : *; park a; out a; at 7; stood b; answered 1; at 9; stood b",
        "a | - | - | - | - | 7 | b | - | 7",
    );
    // Across sessions too.
    check(
        "a : write global:g; b2 s2 : write global:g; park a; out a; at 6; stood b2; wake a; at 8; stood b2",
        "a | - | - | - | - | 6 | a | - | 6",
    );
}

#[test]
fn a_session_that_fills_its_own_bound_is_refused_alone() {
    let limits = CallLimits { calls_running_max: 1, session_calls_queued_max: 2, ..CallLimits::default() };
    let mut story = Story::new(&limits);
    tell(&mut story, "a : ; b : ; c : ");
    let refused = story.planner.admit(0, SessionNo(1), 1, 0).unwrap_err();
    assert_eq!(refused.bound, Bound::Session { queued: 2, max: 2 });
    assert!(story.planner.admit(0, SessionNo(2), 2, 0).is_ok());
    assert!(story.planner.admit(0, SessionNo(2), 3, 0).is_err(), "a batch is admitted whole or not at all");
    // What is parked is bounded apart.
    tell(&mut story, "park b");
    assert!(story.planner.admit(0, SessionNo(1), 1, 0).is_ok());
    tell(&mut story, "end a; end c; end b");
    assert_eq!(story.planner.kept(), 0);
}
