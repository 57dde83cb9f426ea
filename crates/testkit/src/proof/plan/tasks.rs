//! Plans from a seed whose calls go on without their callers, by themselves, because they are asked to, or because it is time.

use super::random::{call, cancel};
use super::{
    BatchPlan, CallPlan, Connects, FirstReply, InsidePlan, Nested, ProofPlan, SchedulePlan, SessionPlan,
};
use crate::chance::Chance;
use crate::proof::kind::{CallKind, Class};
use windlass::tasks::Wake;

impl ProofPlan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn tasks(seed: u64) -> ProofPlan {
        let mut seed = Chance::new(seed).branch(2);
        let (mut calls, mut schedules) = (0, Vec::new());
        let mut sessions = Vec::new();
        for no in 1..=seed.between(1, 2) {
            let session = session(no, &mut seed, &mut calls);
            schedules.extend((0..seed.between(0, 2)).map(|_| schedule(&session, &mut seed, &mut calls)));
            sessions.push(session);
        }
        let cancels = sessions.iter().filter_map(|session| cancel(session, &mut seed)).collect();
        ProofPlan { sessions, cancels, resolved_percent: 50, schedules, ..ProofPlan::default() }
    }
}

impl ProofPlan {
    /// One task, and one call at a time, with nobody beside them: each commit is the same one in every run.
    pub fn background() -> ProofPlan {
        let task = |id: &str| CallPlan {
            task: Some(Wake::OnEnd),
            ..CallPlan::new(id, CallKind::KEYED.background())
        };
        let batch = BatchPlan { key: "b1".into(), calls: vec![task("c1")], ..BatchPlan::default() };
        // One that waits for its client, who is answered before.
        let waits = InsidePlan { answer: true, ..InsidePlan::default() };
        let early = CallPlan { inside: waits, ..CallPlan::new("c4", CallKind::STEPPED.apart()) };
        let (key, asks) = ("b3".to_owned(), FirstReply::Early);
        let early = BatchPlan { key, asks, calls: vec![early], ..BatchPlan::default() };
        let sessions = vec![SessionPlan { name: "s1".into(), batches: vec![batch, early], ahead: 1 }];
        let (session, id) = ("s1".to_owned(), "t2".to_owned());
        let schedules = vec![SchedulePlan { session, id, after_ms: 10, call: task("c2") }];
        ProofPlan { sessions, schedules, ..ProofPlan::default() }
    }
}

fn session(no: u64, seed: &mut Chance, calls: &mut u64) -> SessionPlan {
    let batch = |no, seed: &mut Chance, calls: &mut u64| BatchPlan {
        key: format!("b{no}"),
        calls: (0..seed.between(1, 4)).map(|_| task(seed, calls)).collect(),
        walks_away: seed.percent(25),
        asks: seed.one_of(&[
            FirstReply::AtTheEnd,
            FirstReply::AtTheEnd,
            FirstReply::Early,
            FirstReply::Unattended,
        ]),
        silent: seed.percent(15),
        ..BatchPlan::default()
    };
    SessionPlan {
        name: format!("s{no}"),
        batches: (1..=seed.between(1, 3)).map(|no| batch(no, seed, calls)).collect(),
        ahead: seed.between(1, 3) as usize,
    }
}

/// A call that may outlast its caller, or is a task from its beginning.
fn task(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    let mut task = call(seed, calls);
    if !task.kind.has_code() {
        task.kind = CallKind::KEYED;
    }
    task.kind = task.kind.background();
    (task.connects, task.nested) = (Connects::Nothing, Nested::default());
    // Half of those that go well do so after their caller has left.
    if task.order == "ok" && seed.percent(50) {
        task.order = format!("{}:{}", seed.one_of(&["delay", "late"]), seed.between(1, 15));
    }
    if seed.percent(45) {
        task.task = Some(seed.one_of(&[Wake::Silent, Wake::OnEnd, Wake::OnEnd, Wake::OnActivity]));
    }
    task
}

/// A call that is to be started once.
fn schedule(session: &SessionPlan, seed: &mut Chance, calls: &mut u64) -> SchedulePlan {
    *calls += 1;
    let class = seed.one_of(&[Class::Once, Class::Keyed, Class::Read, Class::Stepped]);
    let mut call = CallPlan::new(&format!("c{calls}"), CallKind::new(class).background());
    call.task = Some(Wake::OnEnd);
    let (session, id) = (session.name.clone(), format!("t{calls}"));
    SchedulePlan { session, id, after_ms: seed.between(1, 60), call }
}
