//! Plans from a seed.

use super::{
    BatchPlan, CallPlan, CancelPlan, CancelTime, Connects, FirstReply, InsidePlan, Nested, PlannedAnswer,
    ProofPlan, Says, SessionPlan, Then,
};
use crate::chance::Chance;
use crate::proof::kind::{CallKind, Class};
use windlass::batch::Siblings;

impl ProofPlan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn of(seed: u64) -> ProofPlan {
        let numbered = seed;
        let mut seed = Chance::new(seed).branch(1);
        let mut calls = 0;
        let sessions = 1..=seed.between(1, 3);
        let sessions: Vec<_> = sessions.map(|no| session(no, &mut seed, &mut calls)).collect();
        let mut cancels = Vec::new();
        for session in &sessions {
            cancels.extend(cancel(session, &mut seed));
        }
        let usual = sessions.len();
        // Of chances of their own, so that all else of a seed stays as it was.
        let mut own = Chance::new(numbered).branch(2);
        let shifting = own.percent(SHIFTING_PERCENT).then(|| shifting(&mut own));
        let sessions = sessions.into_iter().chain(shifting).collect::<Vec<_>>();
        cancels.extend(sessions.iter().skip(usual).filter_map(|session| cancel(session, &mut own)));
        let deletions = seed.between(0, 2);
        let contexts = u64::from(Chance::new(numbered).branch(3).percent(CONTEXT_PERCENT));
        ProofPlan { sessions, cancels, resolved_percent: 50, deletions, contexts, ..ProofPlan::default() }
    }
}

/// How many of a hundred plans have a session in which calls start and await tasks.
const CONTEXT_PERCENT: u64 = 30;
/// How many of a hundred plans have a session whose tools change their class from worker to worker.
const SHIFTING_PERCENT: u64 = 40;

/// A session whose tools change their class from worker to worker, with the client's acceptance.
fn shifting(seed: &mut Chance) -> SessionPlan {
    let mut calls = 0;
    let mut batch = |no| {
        let calls = (0..seed.between(1, 4)).map(|_| {
            calls += 1;
            let kind = seed.one_of(&[CallKind::SHIFTING, CallKind::SHIFTING, CallKind::SHIFTING.asks()]);
            let mut call = CallPlan::new(&format!("x{calls}"), kind);
            let wait = seed.between(5, 40);
            // Long enough to be killed in the middle, mostly; some fail, and are tried again.
            call.order = match seed.between(0, 9) {
                0 => "drop".to_owned(),
                1 | 2 => format!("reject:{}", wait % 2 + 1),
                _ => format!("{}:{wait}", seed.one_of(&["delay", "late"])),
            };
            call.says = seed.one_of(&[Says::Plain, Says::Safe, Says::SafeAfter(wait), Says::Never]);
            if seed.percent(15) {
                call.connects = Connects::Made;
            }
            call
        });
        BatchPlan { key: format!("b{no}"), calls: calls.collect(), ..BatchPlan::default() }
    };
    SessionPlan { name: "shifting".to_owned(), batches: vec![batch(1), batch(2)], ahead: 2 }
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
    let asks =
        seed.one_of(&[FirstReply::AtTheEnd, FirstReply::AtTheEnd, FirstReply::Early, FirstReply::Unattended]);
    let silent = seed.percent(15);
    BatchPlan { key: format!("b{no}"), calls, grows, siblings, streamed, walks_away, asks, silent }
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
    use CallKind as K;
    *calls += 1;
    let kinds = [
        [K::ONCE, K::ONCE, K::ONCE, K::ONCE.asks(), K::KEYED, K::KEYED, K::KEYED],
        [K::READ, K::READ, K::READ, K::STEPPED, K::STEPPED, K::STEPPED, K::STEPPED],
    ]
    .concat();
    let mut kind = seed.one_of(&kinds);
    if seed.percent(10) {
        kind = seed.one_of(&[CallKind::MISSING, CallKind::MISSING, CallKind::CLIENT]);
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
        Class::Stepped => InsidePlan {
            step: seed.percent(70),
            nap: seed.percent(40),
            once: seed.percent(50),
            answer: seed.percent(35),
            question: seed.percent(20),
            signal: seed.percent(20),
        },
        Class::Once | Class::Keyed | Class::Read | Class::Shifting | Class::Client | Class::Missing => {
            InsidePlan::default()
        }
    };
    let nested = match kind.class {
        Class::Stepped | Class::Keyed | Class::Once if seed.percent(22) => nested(&id, seed),
        Class::Stepped
        | Class::Keyed
        | Class::Once
        | Class::Read
        | Class::Shifting
        | Class::Client
        | Class::Missing => Nested::default(),
    };
    let connects = match seed.between(0, 19) {
        0 | 1 if kind.has_code() => Connects::Made,
        2 if kind.has_code() => Connects::Declined,
        _ => Connects::Nothing,
    };
    let answer = PlannedAnswer::Unruled;
    CallPlan { id, kind, order, then, says, long, inside, connects, nested, task: None, answer, grant: None }
}

/// The nested calls of the call of this id.
fn nested(id: &str, seed: &mut Chance) -> Nested {
    let (alone, races) = (seed.between(0, 2), seed.percent(65));
    let alone = if races { alone } else { alone.max(1) };
    let calls = (0..alone).map(|no| inside(format!("{id}n{no}"), seed)).collect();
    let race = (0..if races { 3 } else { 0 }).map(|no| racer(format!("{id}r{no}"), seed)).collect();
    Nested { calls, race }
}

/// A call inside another.
fn inside(id: String, seed: &mut Chance) -> CallPlan {
    let kinds = [
        CallKind::KEYED,
        CallKind::KEYED,
        CallKind::ONCE,
        CallKind::ONCE.asks(),
        CallKind::READ,
        CallKind::STEPPED,
    ];
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
        call.inside = InsidePlan { step: seed.percent(70), nap: seed.percent(30), ..InsidePlan::default() };
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
    let when = CancelTime::Within(seed.one_of(&[3_000, 12_000, 40_000]));
    let cancel = CancelPlan {
        session: session.name.clone(),
        batch: (scope > 0).then(|| batch.key.clone()),
        call: (scope > 1).then(|| call.id.clone()),
        when,
    };
    chosen.then_some(cancel)
}
