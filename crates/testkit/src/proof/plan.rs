//! What a worker submits and asks for, from one seed: sessions of batches of calls with mixed classes, what the ledger
//! and the tool do with each, and what the client cancels.

use super::kind::{Class, Kind};
use crate::chance::Chance;
use serde_json::{Value, json};
use windlass::{Args, BatchRequest, CallRequest, Siblings};

/// Everything that is submitted to one data folder.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In no order among themselves.
    pub sessions: Vec<SessionPlan>,
    /// What the client asks to stop.
    pub cancels: Vec<CancelPlan>,
    /// How many of a hundred calls that end as unknown are resolved by each worker's client.
    pub resolved_percent: u64,
}

/// The batches of one session.
#[derive(Clone, Debug)]
pub struct SessionPlan {
    /// Its name.
    pub name: String,
    /// In the order in which they are submitted.
    pub batches: Vec<BatchPlan>,
    /// How many of them may be under way together.
    pub ahead: usize,
}

/// The calls of one batch.
#[derive(Clone, Debug, Default)]
pub struct BatchPlan {
    /// Its key.
    pub key: String,
    /// In order.
    pub calls: Vec<CallPlan>,
    /// Its last call is left out at first and added once the others are answered.
    pub grows: bool,
    /// What its calls do to each other.
    pub siblings: Siblings,
}

/// One call.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The model's id of it, unique in the folder.
    pub id: String,
    /// Which tool.
    pub kind: Kind,
    /// What the ledger does with it; `after`: the ledger is only asked by an attempt that nothing happens to.
    pub order: String,
    /// What the tool does once it has been to the ledger.
    pub then: Then,
    /// What the tool says when the ledger refused or hung up.
    pub says: Says,
    /// Whether the result is too long for an answer, and so kept as an artifact.
    pub long: bool,
    /// What a stepped tool does before the step that is its effect.
    pub inside: Inside,
}

/// What a stepped tool does by name, in this order, before the step that is its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// A step.
    pub step: bool,
    /// A sleep.
    pub nap: bool,
    /// A step that must not be repeated.
    pub once: bool,
    /// It waits for an answer of the client's.
    pub answer: bool,
}

/// What a tool does once it has been to the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// It returns.
    #[default]
    Return,
    /// It never does.
    Hang,
    /// It returns when it is told to stop.
    Obey,
    /// It waits until the client lets it go on.
    Wait,
    /// It panics.
    Panic,
    /// It kills its worker, the first time.
    Die,
    /// It kills its worker each time.
    DieAlways,
    /// It never gets to the ledger.
    HangFirst,
    /// It never returns, behind its steps.
    HangLater,
    /// It kills its worker behind its steps, the first time.
    DieLater,
}

/// What a tool says of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Says {
    /// Nothing.
    #[default]
    Plain,
    /// That it may be tried again.
    Safe,
    /// That it may be tried again after so many milliseconds.
    SafeAfter(u64),
    /// That nothing happened, where that is so; else that it may be tried again.
    Never,
}

/// A cancel that the client asks for.
#[derive(Clone, Debug)]
pub struct CancelPlan {
    /// In which session.
    pub session: String,
    /// In which batch; all of them if none is named.
    pub batch: Option<String>,
    /// Which call; all of them if none is named.
    pub call: Option<String>,
    /// When.
    pub when: When,
}

/// When a cancel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the call starts; then those that [wait](Then::Wait) go on.
    Queued,
    /// When the tool has been to the ledger.
    Running,
    /// By every second worker, up to so many microseconds after it began to submit.
    Within(u64),
}

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
        Plan { sessions, cancels, resolved_percent: 50 }
    }

    /// The plan in which every kind of write happens and nothing is left to chance.
    pub fn every_write() -> Plan {
        let ok = |id: &str, kind| CallPlan::new(id, kind);
        let long = |id: &str, kind| CallPlan { long: true, ..ok(id, kind) };
        let then = |id: &str, kind, then| CallPlan { then, ..ok(id, kind) };
        let batch =
            |key: &str, calls, grows| BatchPlan { key: key.into(), calls, grows, ..BatchPlan::default() };
        let first = vec![
            ok("c1", Kind::ONCE),
            ok("c2", Kind::KEYED),
            long("c3", Kind::READ),
            ok("c4", Kind::MISSING),
        ];
        let second =
            vec![ok("c5", Kind::READ), ok("c6", Kind::ONCE), ok("c7", Kind::ONCE), long("c8", Kind::KEYED)];
        let third = vec![
            // It is tried again; it is cancelled and asked after; it takes too long and is resolved by the client.
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c9", Kind::KEYED) },
            then("c10", Kind::ONCE.asks(), Then::Hang),
            then("c11", Kind::ONCE.brief(), Then::Hang),
            then("c12", Kind::READ, Then::Hang),
        ];
        let session = |name: &str, batches, ahead| SessionPlan { name: name.into(), batches, ahead };
        let fourth = vec![
            CallPlan { inside: Inside::ALL, ..ok("c13", Kind::STEPPED) },
            CallPlan { order: "reject:1".into(), says: Says::Safe, ..ok("c14", Kind::STEPPED) },
            CallPlan { inside: Inside { step: true, ..Inside::default() }, ..ok("c15", Kind::STEPPED) },
        ];
        let sessions = vec![
            session("s3", vec![batch("b4", fourth, false)], 1),
            session("s1", vec![batch("b1", first, false), batch("b2", second, true)], 2),
            session("s2", vec![batch("b3", third, false)], 1),
        ];
        let cancel = |call: &str| CancelPlan {
            session: "s2".into(),
            batch: Some("b3".into()),
            call: Some(call.into()),
            when: When::Running,
        };
        Plan { sessions, cancels: vec![cancel("c10"), cancel("c12")], resolved_percent: 100 }
    }

    /// Batches whose calls decide about each other while some of them run. Each is decided, whoever dies.
    pub fn siblings() -> Plan {
        let ok = |id: &str, kind: Kind| CallPlan::new(id, kind.apart());
        let hangs = |id: &str, kind| CallPlan { then: Then::Hang, ..ok(id, kind) };
        let refused = |id: &str, kind| CallPlan { order: "reject".into(), ..ok(id, kind) };
        let batch = |key: &str, siblings, calls| BatchPlan { key: key.into(), calls, grows: false, siblings };
        let race = vec![hangs("c1", Kind::ONCE), hangs("c2", Kind::KEYED), ok("c3", Kind::KEYED)];
        let quorum =
            vec![hangs("c4", Kind::READ), ok("c5", Kind::KEYED), ok("c6", Kind::KEYED), ok("c7", Kind::ONCE)];
        let fail_fast =
            vec![hangs("c8", Kind::ONCE.asks()), hangs("c9", Kind::KEYED), refused("c10", Kind::KEYED)];
        let batches = vec![
            batch("b1", Siblings::Race, race),
            BatchPlan { grows: true, ..batch("b2", Siblings::Quorum(2), quorum) },
            batch("b3", Siblings::FailFast, fail_fast),
        ];
        let sessions = vec![SessionPlan { name: "s1".into(), batches, ahead: 1 }];
        Plan { sessions, cancels: Vec::new(), resolved_percent: 0 }
    }

    /// The session of its stepped calls alone.
    pub fn stepped(mut self) -> Plan {
        self.sessions.truncate(1);
        self.cancels.clear();
        self
    }

    /// Its second session alone, with no batch that grows.
    pub fn whole(mut self) -> Plan {
        self.sessions.truncate(2);
        self.sessions.remove(0);
        self.cancels.clear();
        for batch in self.sessions.iter_mut().flat_map(|session| &mut session.batches) {
            batch.grows = false;
        }
        self
    }

    /// Its last session alone: what is tried again, stopped, asked after, cancelled and resolved.
    pub fn asked(mut self) -> Plan {
        self.sessions.drain(..self.sessions.len().saturating_sub(1));
        self
    }

    /// Every call, with the session and the batch it belongs to.
    pub fn calls(&self) -> impl Iterator<Item = (&SessionPlan, &BatchPlan, &CallPlan)> {
        self.sessions.iter().flat_map(|session| {
            let batches = session.batches.iter();
            batches.flat_map(move |batch| batch.calls.iter().map(move |call| (session, batch, call)))
        })
    }

    /// Whether a tool of it kills its worker.
    pub fn dies(&self) -> bool {
        self.calls().any(|(_, _, call)| matches!(call.then, Then::Die | Then::DieAlways | Then::DieLater))
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
    let grows = count > 1 && seed.percent(15);
    let most = count as u32 - u32::from(grows);
    let quorum = Siblings::Quorum(seed.between(1, u64::from(most)) as u32);
    let siblings = seed.one_of(&[Siblings::Race, quorum, quorum, Siblings::FailFast]);
    let siblings = if seed.percent(40) { siblings } else { Siblings::Independent };
    let rivals = siblings != Siblings::Independent;
    let calls = (0..count).map(|_| if rivals { rival(seed, calls) } else { call(seed, calls) }).collect();
    BatchPlan { key: format!("b{no}"), calls, grows, siblings }
}

/// A call of a batch whose calls decide about each other: most run together, and many are not done at once.
fn rival(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    let mut rival = call(seed, calls);
    if seed.percent(75) {
        rival.kind = rival.kind.apart();
    }
    if seed.percent(35) && rival.kind.class != Class::Missing {
        rival.kind = rival.kind.brief();
        rival.then = seed.one_of(&[Then::Hang, Then::Obey]);
    } else if seed.percent(40) {
        let wait = seed.between(1, 12);
        rival.order = format!("{}:{wait}", seed.one_of(&["delay", "late"]));
    }
    rival
}

fn call(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    use Kind as K;
    *calls += 1;
    let kinds = [
        [K::ONCE, K::ONCE, K::ONCE, K::ONCE.asks(), K::KEYED, K::KEYED, K::KEYED],
        [K::READ, K::READ, K::READ, K::STEPPED, K::STEPPED, K::STEPPED, K::STEPPED],
    ]
    .concat();
    let mut kind = if seed.percent(7) { Kind::MISSING } else { seed.one_of(&kinds) };
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
    if seed.percent(10) && kind.class != Class::Missing {
        kind = kind.brief();
        then = seed.one_of(&[Then::Hang, Then::Return, Then::Obey]);
    }
    let long = seed.percent(8);
    let inside = match kind.class {
        Class::Stepped => Inside {
            step: seed.percent(70),
            nap: seed.percent(40),
            once: seed.percent(50),
            answer: seed.percent(35),
        },
        Class::Once | Class::Keyed | Class::Read | Class::Missing => Inside::default(),
    };
    CallPlan { id: format!("c{calls}"), kind, order, then, says, long, inside }
}

/// In two of three sessions a call, a batch or all of it is cancelled.
fn cancel(session: &SessionPlan, seed: &mut Chance) -> Option<CancelPlan> {
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

impl BatchPlan {
    /// The batch as it is submitted, with its first `count` calls.
    pub fn request(&self, count: usize) -> BatchRequest {
        let calls = self.calls.iter().take(count).map(|call| CallRequest {
            id: Some(call.id.clone()),
            tool: call.kind.tool(),
            args: Args::Json(call.args()),
            ..CallRequest::default()
        });
        let (key, siblings) = (Some(self.key.clone()), self.siblings);
        BatchRequest { key, calls: calls.collect(), siblings, ..BatchRequest::default() }
    }

    /// How many calls it has when it is first submitted.
    pub fn first(&self) -> usize {
        self.calls.len() - usize::from(self.grows)
    }
}

impl CallPlan {
    /// One that goes well.
    pub fn new(id: &str, kind: Kind) -> CallPlan {
        let (then, says) = Default::default();
        let inside = Inside::default();
        CallPlan { id: id.into(), kind, order: "ok".into(), then, says, long: false, inside }
    }

    /// Its arguments.
    pub fn args(&self) -> Value {
        let CallPlan { id, order, then, says, long, .. } = self;
        let inside = self.inside.text();
        json!({"call": id, "order": order, "then": then.name(), "says": says.text(), "long": long, "inside": inside})
    }

    /// Whether a failure of it is tried again, if `refused` (and else the ledger hung up).
    pub fn is_retried(&self, refused: bool) -> bool {
        match (self.says, self.kind.class) {
            (Says::Plain, _) => false,
            (Says::Never, Class::Once) => refused,
            (Says::Safe | Says::SafeAfter(_), Class::Once) => false,
            (
                Says::Safe | Says::SafeAfter(_) | Says::Never,
                Class::Keyed | Class::Read | Class::Stepped | Class::Missing,
            ) => true,
        }
    }
}

impl Then {
    const ALL: [(Then, &'static str); 10] = [
        (Then::Return, "return"),
        (Then::Hang, "hang"),
        (Then::Obey, "obey"),
        (Then::Wait, "wait"),
        (Then::Panic, "panic"),
        (Then::Die, "die"),
        (Then::DieAlways, "die always"),
        (Then::HangFirst, "hang first"),
        (Then::HangLater, "hang later"),
        (Then::DieLater, "die later"),
    ];

    /// As it stands in the arguments.
    pub fn name(self) -> &'static str {
        Then::ALL.iter().find(|(then, _)| *then == self).map_or("return", |(_, name)| name)
    }

    /// From the arguments.
    pub fn parse(name: &str) -> Then {
        Then::ALL.iter().find(|(_, known)| *known == name).map_or(Then::Return, |(then, _)| *then)
    }
}

impl Inside {
    /// All there is.
    pub const ALL: Inside = Inside { step: true, nap: true, once: true, answer: true };
    /// Nothing.
    const NOTHING: Inside = Inside { step: false, nap: false, once: false, answer: false };

    /// As it stands in the arguments.
    pub fn text(self) -> String {
        let Inside { step, nap, once, answer } = self;
        let words = [(step, "step"), (nap, "nap"), (once, "once"), (answer, "answer")];
        let words: Vec<&str> = words.iter().filter(|(does, _)| *does).map(|(_, word)| *word).collect();
        words.join(" ")
    }

    /// From the arguments.
    pub fn parse(text: &str) -> Inside {
        text.split(' ').fold(Inside::NOTHING, |inside, word| match word {
            "step" => Inside { step: true, ..inside },
            "nap" => Inside { nap: true, ..inside },
            "once" => Inside { once: true, ..inside },
            "answer" => Inside { answer: true, ..inside },
            _ => inside,
        })
    }
}

impl Says {
    /// As it stands in the arguments.
    pub fn text(self) -> String {
        match self {
            Says::Plain => "plain".to_owned(),
            Says::Safe => "safe".to_owned(),
            Says::SafeAfter(ms) => format!("safe:{ms}"),
            Says::Never => "never".to_owned(),
        }
    }

    /// From the arguments.
    pub fn parse(text: &str) -> Says {
        match text {
            "safe" => Says::Safe,
            "never" => Says::Never,
            other => match other.strip_prefix("safe:").and_then(|ms| ms.parse().ok()) {
                Some(ms) => Says::SafeAfter(ms),
                None => Says::Plain,
            },
        }
    }
}

/// What tells one payload from another (FNV-1a over its JSON).
pub fn hash(args: &Value) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    args.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}
