//! The combined effect of steps.

use super::{Fails, INPUT, failure};
use windlass_core::operation::{Did, Operation, Operations, StepResult};
use windlass_core::outcome::Effect;

#[test]
fn what_recorded_steps_have_done_together() {
    let ok = || StepResult::Ok("2".into());
    let failed = |how| StepResult::Failed(Box::new(failure(how)));
    let ended = |result| Did::StepEnded { input: INPUT.into(), result };
    let open = || Did::StepStarted { input: INPUT.into() };
    for (dids, expected) in [
        (vec![], Effect::None),
        (vec![Did::SleepEnded], Effect::None),
        (vec![ended(ok())], Effect::Landed),
        (vec![ended(failed(Fails::WithoutEffect))], Effect::None),
        (vec![ended(failed(Fails::Plainly))], Effect::Unknown),
        (vec![ended(failed(Fails::Plainly)), ended(ok())], Effect::Unknown),
        (vec![ended(ok()), ended(failed(Fails::Plainly))], Effect::Unknown),
        (vec![ended(failed(Fails::WithoutEffect)), ended(ok())], Effect::Landed),
        (vec![ended(ok()), ended(failed(Fails::WithoutEffect))], Effect::Landed),
        (vec![ended(ok()), open()], Effect::Unknown),
        (vec![open(), ended(ok())], Effect::Unknown),
    ] {
        let mut operations = Operations::default();
        for (number, did) in dids.iter().enumerate() {
            operations.apply(&Operation { name: number.to_string().into(), did: did.clone() }, 0);
        }
        assert_eq!(operations.effect(), expected, "{dids:?}");
    }
}

#[test]
fn what_a_step_may_have_done_it_may_have_done_ever_after() {
    let ended = |result| Did::StepEnded { input: INPUT.into(), result };
    let failed = |how| ended(StepResult::Failed(Box::new(failure(how))));
    let mut operations = Operations::default();
    let started = Did::StepStarted { input: INPUT.into() };
    for (round, (did, expected)) in [
        (failed(Fails::WithoutEffect), Effect::None),
        (failed(Fails::Plainly), Effect::Unknown),
        (started, Effect::Unknown),
        (failed(Fails::WithoutEffect), Effect::Unknown),
        (ended(StepResult::Ok("2".into())), Effect::Landed),
    ]
    .into_iter()
    .enumerate()
    {
        let operation = Operation { name: "one".into(), did };
        assert!(operations.can_follow(&operation), "{operation:?}");
        operations.apply(&operation, round as u32);
        assert_eq!(operations.effect(), expected, "{operation:?}");
    }
}
