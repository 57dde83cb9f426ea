//! Workers die and fail at every write, and the end is that of a run in which nothing happened.

use std::path::Path;
use windlass_testkit::proof::points::{PointOptions, actions, run};
use windlass_testkit::proof::programs::Build;
use windlass_testkit::proof::trial::{Planned, Programs};

/// The programs, with kill points.
pub(crate) fn with_points() -> Programs {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = temporary.parent().unwrap().to_owned();
    let build = Build { target, ..Build::like_this_program().unwrap() };
    build.with_points().programs().unwrap()
}

/// Each point with each action, at its first and last visit in a new folder and in the middle of one that was left. The
/// long form, `cargo run -p windlass-testkit -- points`, takes every visit.
#[test]
fn every_write_can_be_the_last() {
    let programs = with_points();
    let names = programs.points().unwrap();
    let pairs: usize = names.iter().map(|name| actions(name).len()).sum();
    let options = PointOptions {
        planned: Planned::EveryWrite,
        names,
        only: None,
        every_visit: false,
        until: None,
        lanes: 4,
    };
    let report = run(&programs, &options).unwrap();
    println!("{:?}", report.record().line());
    assert_eq!(report.violations, [""; 0]);
    assert_eq!(report.hits.len(), pairs, "a point without a run");
    assert!(report.unknown > 0, "no call was cut");
}

/// Calls that wait for their client, call others, race, or are pushed, cut before each commit.
#[test]
fn what_lies_inside_can_be_cut_at_every_commit() {
    let programs = with_points();
    let (names, only) = (programs.points().unwrap(), Some(("write.commit", "die")));
    let options =
        PointOptions { planned: Planned::Outside, names, only, every_visit: true, until: None, lanes: 4 };
    let report = run(&programs, &options).unwrap();
    assert_eq!(report.violations, [""; 0]);
    let hits: u64 = report.hits.values().sum();
    assert!(hits > 20, "{hits} commits were cut");
}

/// A task and a call at a time, cut before and after each of their commits.
#[test]
fn what_goes_on_without_a_caller_can_be_cut_at_every_commit() {
    let programs = with_points();
    let names = programs.points().unwrap();
    for action in ["die", "die-after"] {
        let (names, only) = (names.clone(), Some(("write.commit", action)));
        let planned = Planned::Background;
        let options = PointOptions { planned, names, only, every_visit: true, until: None, lanes: 4 };
        let report = run(&programs, &options).unwrap();
        assert_eq!(report.violations, [""; 0], "{action}");
        let hits: u64 = report.hits.values().sum();
        // How many there are depends on what the writer finds together.
        assert!(hits > 2, "{hits} commits were cut by {action}");
    }
}

/// A batch whose calls decide about each other, cut before and after each of its commits.
#[test]
fn a_decision_can_be_the_last_commit() {
    let programs = with_points();
    let names = programs.points().unwrap();
    for action in ["die", "die-after"] {
        let only = Some(("write.commit", action));
        let names = names.clone();
        let options = PointOptions {
            planned: Planned::Siblings,
            names,
            only,
            every_visit: true,
            until: None,
            lanes: 4,
        };
        let report = run(&programs, &options).unwrap();
        assert_eq!(report.violations, [""; 0], "{action}");
        let hits: u64 = report.hits.values().sum();
        // How many there are depends on what the writer finds together.
        assert!(hits > 2, "{hits} commits were cut by {action}");
    }
}
