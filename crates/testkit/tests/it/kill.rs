//! Workers are killed at random instants, and nothing that was promised is broken.

use std::time::Duration;
use windlass_testkit::proof::kill::{KillOptions, Plans, run};
use windlass_testkit::proof::trial::Programs;

/// About 25 s on two idle cores; the long form is `cargo run -p windlass-testkit -- kill --count 100000`.
const KILLS: u64 = 1_000;
/// Each waits for people too, so fewer of them do.
const KILLS_WITH_APPROVALS: u64 = 400;
/// By grant alone, beside all the others.
const KILLS_WITH_GRANTS: u64 = 300;
const TIME_MAX: Duration = Duration::from_secs(180);

pub(crate) fn programs() -> Programs {
    Programs {
        worker: env!("CARGO_BIN_EXE_windlass-worker").into(),
        ledger: env!("CARGO_BIN_EXE_windlass-ledger").into(),
        mutant: None,
    }
}

/// Random plans with calls that continue without their callers, and scheduled calls.
#[test]
fn no_task_goes_without_its_notice_and_no_time_is_used_twice() {
    let options = KillOptions { kills: KILLS, seed: 2, time_max: TIME_MAX, lanes: 4, plans: Plans::Tasks };
    let report = run(&programs(), &options).unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0]);
    assert!(report.kills >= KILLS, "{} kills in {} s", report.kills, report.took.as_secs());
    for (what, count) in [
        ("tasks", report.tasks),
        ("tasks that outlasted their callers", report.outlasted),
        ("notices taken", report.taken),
        ("notices taken again", report.taken_again),
        ("notices acknowledged", report.acknowledged),
        ("calls started at their time", report.fired),
        ("jumps of the wall clock", report.jumps),
        ("attempts lost", report.lost),
        ("cancels acknowledged", report.cancels),
        ("questions answered", report.questions_answered),
    ] {
        assert!(count > 0, "no {what}");
    }
}

/// Random plans with calls that wait for people, who approve, edit, deny, remember or do not answer, and change the rules.
#[test]
fn what_was_approved_is_what_runs_and_no_answer_is_lost() {
    let kills = KILLS_WITH_APPROVALS;
    let options = KillOptions { kills, seed: 3, time_max: TIME_MAX, lanes: 4, plans: Plans::Approvals };
    let report = run(&programs(), &options).unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0]);
    assert!(report.kills >= kills, "{} kills in {} s", report.kills, report.took.as_secs());
    let permission = &report.permission;
    for (what, count) in [
        ("questions", permission.asked),
        ("questions about what was asked before", permission.asked_again),
        ("approvals", permission.approved),
        ("approvals with other arguments", permission.edited),
        ("denials", permission.denied),
        ("questions that nobody answered", permission.lapsed),
        ("questions that nobody answered, with a yes by default", permission.lapsed_allowed),
        ("answers acknowledged", permission.acknowledged),
        ("versions of the policy", permission.policies),
        ("provisional answers", report.provisional),
        ("notices taken", report.taken),
        ("attempts lost", report.lost),
    ] {
        assert!(count > 0, "no {what}");
    }
}

/// Random plans with calls by grants that have few uses, are copied, and are revoked while they are used.
#[test]
fn uses_of_grants_are_counted_once_and_nothing_starts_by_a_revoked_one() {
    let kills = KILLS_WITH_GRANTS;
    let options = KillOptions { kills, seed: 5, time_max: TIME_MAX, lanes: 4, plans: Plans::Grants };
    let report = run(&programs(), &options).unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0]);
    assert!(report.kills >= kills, "{} kills in {} s", report.kills, report.took.as_secs());
    let permission = &report.permission;
    for (what, count) in [
        ("calls by grant", permission.granted),
        ("calls by grant that were tried again", permission.granted_again),
        ("calls that their grant refused", permission.ungranted),
        ("revocations acknowledged", permission.revoked),
        ("attempts lost", report.lost),
        ("retries", report.retries),
    ] {
        assert!(count > 0, "no {what}");
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_recorded_runs_again() {
    let report = run(
        &programs(),
        &KillOptions { kills: KILLS, seed: 1, time_max: TIME_MAX, lanes: 4, plans: Plans::Calls },
    )
    .unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0]);
    assert!(report.kills >= KILLS, "{} kills in {} s", report.kills, report.took.as_secs());
    // What the rig is for did happen.
    for (what, count) in [
        ("killed while starting", report.starting),
        ("killed while taking over", report.taking_over),
        ("killed while working", report.working),
        ("attempts lost", report.lost),
        ("unknown ends", report.unknown),
        ("retries", report.retries),
        ("stopped attempts", report.stopped),
        ("attempts asked after", report.reconciled),
        ("cancels acknowledged", report.cancels),
        ("calls cancelled", report.cancelled),
        ("calls resolved", report.resolved),
        ("batches whose calls decide about each other", report.rivals),
        ("calls dismissed", report.dismissed),
        ("calls dismissed while they ran", report.dismissed_running),
        ("steps recorded", report.steps),
        ("open steps that ran again", report.steps_again),
        ("answers acknowledged", report.answered),
        ("sleeps", report.slept),
        ("questions", report.questions),
        ("questions answered", report.questions_answered),
        ("connections", report.connections),
        ("connections declined", report.declined),
        ("results of the client's tools", report.client_results),
        ("nested calls", report.nested),
        ("nested calls made again", report.nested_again),
        ("lost calls with others inside", report.nested_parents_lost),
        ("nested races decided", report.nested_races),
        ("sessions deleted", report.deleted),
        ("deletions cut off by a kill", report.deletions_cut),
        ("streamed batches", report.streamed),
        ("streamed batches cut", report.streamed_cut),
        ("jumps of the wall clock", report.jumps),
    ] {
        assert!(count > 0, "no {what}");
    }
}
