//! A hostile model stays inside the policy, and what may run does.

use windlass_testkit::hostile::truth::PermittedBy;
use windlass_testkit::hostile::{HostileOptions, VIOLATIONS_MAX, run};

/// The long form is `cargo run -p windlass-testkit -- hostile --count 1000000`.
const CALLS: u64 = 10_000;

#[test]
fn a_hostile_model_executes_nothing_outside_and_everything_inside_the_policy() {
    let options = HostileOptions { calls: CALLS, seed: 1, lanes: 4, violations_max: VIOLATIONS_MAX };
    let report = run(&options).unwrap();
    println!("{report:#?}");
    assert_eq!(report.violations, [""; 0]);
    let counts = &report.counts;
    assert!(counts.calls >= CALLS, "{} calls", counts.calls);
    // What it is for did happen.
    for (what, count) in [
        ("executions by the rules", counts.permitted_by(PermittedBy::Rules)),
        ("executions by an approval", counts.permitted_by(PermittedBy::Person)),
        ("executions with edited arguments", counts.permitted_by(PermittedBy::Edit)),
        ("executions by a remembered answer", counts.permitted_by(PermittedBy::Memory)),
        ("executions because nobody answered", counts.permitted_by(PermittedBy::Silence)),
        ("calls denied", counts.ended_as("denied")),
        ("calls that failed for their arguments", counts.ended_as("invalid_args")),
        ("calls of no tool", counts.ended_as("no_such_tool")),
        ("calls cancelled", counts.cancelled),
        ("questions", counts.asked),
        ("questions about what was approved before", counts.asked_again),
        ("denials by people", counts.denied_by_people),
        ("answers refused", counts.refused_answers),
        ("answers at once", counts.raced),
        ("questions that nobody answered", counts.expired),
        ("answers remembered", counts.remembered),
        ("answers forgotten", counts.forgotten),
        ("changes of the policy", counts.policies),
        ("tools replaced", counts.replaced_tools),
        ("contents changed", counts.changed_contents),
        ("changes taken back", counts.taken_back),
        ("executions by grant", counts.granted),
        ("grants issued", counts.issued),
        ("copies of grants", counts.narrowed),
        ("copies refused", counts.narrowings_refused),
        ("grants revoked", counts.revoked),
    ] {
        assert!(count > 0, "no {what}");
    }
}
