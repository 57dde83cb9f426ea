//! A call that kills its workers is set aside, and those that run beside it are not.

use crate::kill::programs;
use windlass_testkit::proof::poison::{GUILTY, run};

#[test]
fn who_kills_its_workers_is_set_aside_and_its_neighbours_are_not() {
    let report = run(&programs()).unwrap();
    println!("{:?}", report.record().line());
    assert_eq!(report.violations, [""; 0]);
    assert_eq!(report.classes.len(), GUILTY.len());
    // Nobody waits out the time that a suspect has for itself: it is over long before.
    let alone_ms = u128::from(windlass::Limits::default().suspect_alone_ms);
    assert!(report.classes.iter().all(|class| class.4 < alone_ms), "{:?}", report.classes);
}
