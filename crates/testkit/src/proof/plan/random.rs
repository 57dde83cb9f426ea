//! Plans from a seed.

use super::{BatchPlan, CallPlan, CancelPlan, Connects, Inside, Nested, Plan, Says, SessionPlan, Then, When};
use crate::chance::Chance;
use crate::proof::kind::{Class, Kind};
use windlass::Siblings;

impl Plan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn of(seed: u64) -> Plan {
        let mut seed = Chance::new(seed).branch(1);
        let mut calls = 0;
        let sessions = 1..=seed.between(1, 3);
        let sessions: Vec<_> = sessions.map(|no| session(no, &mut seed, &mut calls)).collect();
        let mut cancels = Vec::new();
        for session in &sessions {
            cancels.extend(cancel(session, &mut seed));
        }
        Plan { sessions, cancels, resolved_percent: 50, schedules: Vec::new() }
    }
}

fn session(no: u64, seed: &mut Chance, calls: &mut u64) -> SessionPlan {
    let batches = 1..=seed.between(1, 4);
    SessionPlan {
        name: format!("s{no}"),
        batches: batches.map(|no| batch(no, seed, calls)).collect(),
        ahead: seed.between(1, 3) as usize,
    }
}

fn batch(no: u64, seed: &mut Chance, calls: &mut u64) -> BatchPlan {
    let count = seed.between(1, 5);
    let streamed = seed.percent(15);
    let grows = count > 1 && !streamed && seed.percent(15);
    let most = count as u32 - u32::from(grows);
    let quorum = Siblings::Quorum(seed.between(1, u64::from(most)) as u32);
    let siblings = seed.one_of(&[Siblings::Race, quorum, quorum, Siblings::FailFast]);
    let siblings = if seed.percent(40) { siblings } else { Siblings::Independent };
    let rivals = siblings != Siblings::Independent;
    let calls = (0..count).map(|_| if rivals { rival(seed, calls) } else { call(seed, calls) }).collect();
    let walks_away = !streamed && !grows && no.is_multiple_of(3);
    BatchPlan { key: format!("b{no}"), calls, grows, siblings, streamed, walks_away }
}

/// A call of a batch whose calls decide about each other: most run together, and many are not done at once.
fn rival(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    let mut rival = call(seed, calls);
    if seed.percent(75) {
        rival = rival.apart();
    }
    if seed.percent(35) && rival.kind.has_code() {
        rival.kind = rival.kind.brief();
        rival.then = seed.one_of(&[Then::Hang, Then::Obey]);
    } else if seed.percent(40) {
        let wait = seed.between(1, 12);
        rival.order = format!("{}:{wait}", seed.one_of(&["delay", "late"]));
    }
    rival
}

pub(super) fn call(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    use Kind as K;
    *calls += 1;
    let kinds = [
        [K::ONCE, K::ONCE, K::ONCE, K::ONCE.asks(), K::KEYED, K::KEYED, K::KEYED],
        [K::READ, K::READ, K::READ, K::STEPPED, K::STEPPED, K::STEPPED, K::STEPPED],
    ]
    .concat();
    let mut kind = seed.one_of(&kinds);
    if seed.percent(10) {
        kind = seed.one_of(&[Kind::MISSING, Kind::MISSING, Kind::CLIENT]);
    }
    let wait = seed.between(1, 12);
    let order = match seed.between(0, 24) {
        0 => "reject".to_owned(),
        1 => "drop".to_owned(),
        2 => "twice".to_owned(),
        3 => format!("delay:{wait}"),
        4 => format!("late:{wait}"),
        5..=7 => format!("reject:{}", wait % 3 + 1),
        _ => "ok".to_owned(),
    };
    let says = seed.one_of(&[Says::Plain, Says::Safe, Says::SafeAfter(wait), Says::Never]);
    let mut then = if seed.percent(3) { Then::Panic } else { Then::Return };
    if seed.percent(10) && kind.has_code() {
        kind = kind.brief();
        then = seed.one_of(&[Then::Hang, Then::Return, Then::Obey]);
    }
    let long = seed.percent(8);
    // Who runs it is the client, and that always goes well.
    let (order, then) =
        if kind.class == Class::Client { ("ok".to_owned(), Then::Return) } else { (order, then) };
    let id = format!("c{calls}");
    let inside = match kind.class {
        Class::Stepped => Inside {
            step: seed.percent(70),
            nap: seed.percent(40),
            once: seed.percent(50),
            answer: seed.percent(35),
            question: seed.percent(20),
            signal: seed.percent(20),
        },
        Class::Once | Class::Keyed | Class::Read | Class::Client | Class::Missing => Inside::default(),
    };
    let nested = match kind.class {
        Class::Stepped | Class::Keyed | Class::Once if seed.percent(22) => nested(&id, seed),
        Class::Stepped | Class::Keyed | Class::Once | Class::Read | Class::Client | Class::Missing => {
            Nested::default()
        }
    };
    let connects = match seed.between(0, 19) {
        0 | 1 if kind.has_code() => Connects::Made,
        2 if kind.has_code() => Connects::Declined,
        _ => Connects::Nothing,
    };
    CallPlan { id, kind, order, then, says, long, inside, connects, nested, task: None }
}

/// What the call of this id calls.
fn nested(id: &str, seed: &mut Chance) -> Nested {
    let (alone, races) = (seed.between(0, 2), seed.percent(65));
    let alone = if races { alone } else { alone.max(1) };
    let calls = (0..alone).map(|no| inside(format!("{id}n{no}"), seed)).collect();
    let race = (0..if races { 3 } else { 0 }).map(|no| racer(format!("{id}r{no}"), seed)).collect();
    Nested { calls, race }
}

/// A call inside another.
fn inside(id: String, seed: &mut Chance) -> CallPlan {
    let kinds = [Kind::KEYED, Kind::KEYED, Kind::ONCE, Kind::ONCE.asks(), Kind::READ, Kind::STEPPED];
    let mut call = CallPlan::new(&id, seed.one_of(&kinds));
    let wait = seed.between(1, 12);
    call.order = match seed.between(0, 11) {
        0 => "reject".to_owned(),
        1 | 2 => "refuse:1".to_owned(),
        3 => format!("reject:{}", wait % 3 + 1),
        4 | 5 => format!("{}:{wait}", seed.one_of(&["delay", "late"])),
        6 if call.kind.class == Class::Keyed => "drop".to_owned(),
        _ => "ok".to_owned(),
    };
    call.says = seed.one_of(&[Says::Plain, Says::Plain, Says::Safe, Says::Never]);
    if seed.percent(25) {
        call.kind = call.kind.apart();
    }
    if seed.percent(8) {
        call.kind = call.kind.brief();
        call.then = seed.one_of(&[Then::Hang, Then::Obey]);
    }
    if call.kind.class == Class::Stepped {
        call.inside = Inside { step: seed.percent(70), nap: seed.percent(30), ..Inside::default() };
    }
    call
}

/// One of those that race inside another: each beside the others.
fn racer(id: String, seed: &mut Chance) -> CallPlan {
    let mut call = inside(id, seed).apart();
    if seed.percent(30) {
        call.kind = call.kind.brief();
        call.then = seed.one_of(&[Then::Hang, Then::Obey]);
    } else {
        // Long enough to be killed in the middle.
        call.order = format!("{}:{}", seed.one_of(&["delay", "late"]), seed.between(10, 60));
    }
    call
}

/// In two of three sessions a call, a batch or all of it is cancelled.
pub(super) fn cancel(session: &SessionPlan, seed: &mut Chance) -> Option<CancelPlan> {
    let (chosen, scope) = (seed.percent(65), seed.between(0, 5));
    let batch = &session.batches[seed.below(session.batches.len() as u64) as usize];
    let call = &batch.calls[seed.below(batch.calls.len() as u64) as usize];
    let when = When::Within(seed.one_of(&[3_000, 12_000, 40_000]));
    let cancel = CancelPlan {
        session: session.name.clone(),
        batch: (scope > 0).then(|| batch.key.clone()),
        call: (scope > 1).then(|| call.id.clone()),
        when,
    };
    chosen.then_some(cancel)
}
