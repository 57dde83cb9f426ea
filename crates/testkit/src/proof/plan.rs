//! What a worker submits, from one seed: sessions of batches of calls with mixed classes, and what the ledger is
//! told to do with each.

use crate::chance::Chance;
use serde_json::{Value, json};
use windlass::{Args, BatchRequest, CallRequest};

/// Everything that is submitted to one data folder.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In no order among themselves.
    pub sessions: Vec<SessionPlan>,
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
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// Its key.
    pub key: String,
    /// In order.
    pub calls: Vec<CallPlan>,
    /// Its last call is left out at first and added once the others are answered.
    pub grows: bool,
}

/// One call.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The model's id of it, unique in the folder.
    pub id: String,
    /// Which tool.
    pub kind: Kind,
    /// What the ledger does with it.
    pub order: String,
    /// Whether the result is too long for an answer, and so kept as an artifact.
    pub long: bool,
}

/// Which tool a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `once_effect`
    Once,
    /// `keyed_effect`
    Keyed,
    /// `read_effect`
    Read,
    /// A tool that does not exist: refused without an attempt.
    Missing,
}

impl Kind {
    /// Those that do something.
    pub const EFFECTS: [Kind; 3] = [Kind::Once, Kind::Keyed, Kind::Read];

    /// The tool's name.
    pub fn tool(self) -> &'static str {
        match self {
            Kind::Once => "once_effect",
            Kind::Keyed => "keyed_effect",
            Kind::Read => "read_effect",
            Kind::Missing => "missing_effect",
        }
    }

    /// Its class, as the ledger knows it.
    pub fn class(self) -> &'static str {
        match self {
            Kind::Once => "once",
            Kind::Keyed => "keyed",
            Kind::Read => "read",
            Kind::Missing => "none",
        }
    }
}

impl Plan {
    /// The plan of a seed: small enough to be over in a moment, and no two alike.
    pub fn of(seed: u64) -> Plan {
        let mut seed = Chance::new(seed).branch(1);
        let mut calls = 0;
        let sessions = 1..=seed.between(1, 3);
        Plan { sessions: sessions.map(|no| session(no, &mut seed, &mut calls)).collect() }
    }

    /// The plan in which every kind of write happens and nothing is left to chance.
    pub fn every_write() -> Plan {
        let call = |id: &str, kind, long| CallPlan { id: id.into(), kind, order: "ok".into(), long };
        let batch = |key: &str, calls, grows| BatchPlan { key: key.into(), calls, grows };
        let first = vec![
            call("c1", Kind::Once, false),
            call("c2", Kind::Keyed, false),
            call("c3", Kind::Read, true),
            call("c4", Kind::Missing, false),
        ];
        let second = vec![
            call("c5", Kind::Read, false),
            call("c6", Kind::Once, false),
            call("c7", Kind::Once, false),
            call("c8", Kind::Keyed, true),
        ];
        let batches = vec![batch("b1", first, false), batch("b2", second, true)];
        Plan { sessions: vec![SessionPlan { name: "s1".into(), batches, ahead: 2 }] }
    }

    /// The same with no batch that grows.
    pub fn whole(mut self) -> Plan {
        for batch in self.sessions.iter_mut().flat_map(|session| &mut session.batches) {
            batch.grows = false;
        }
        self
    }

    /// Every call, with the session and the batch it belongs to.
    pub fn calls(&self) -> impl Iterator<Item = (&SessionPlan, &BatchPlan, &CallPlan)> {
        self.sessions.iter().flat_map(|session| {
            let batches = session.batches.iter();
            batches.flat_map(move |batch| batch.calls.iter().map(move |call| (session, batch, call)))
        })
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
    BatchPlan {
        key: format!("b{no}"),
        calls: (0..count).map(|_| call(seed, calls)).collect(),
        grows: count > 1 && seed.percent(15),
    }
}

fn call(seed: &mut Chance, calls: &mut u64) -> CallPlan {
    use Kind::{Keyed, Missing, Once, Read};
    *calls += 1;
    let kind = seed.one_of(&[Once, Once, Once, Once, Keyed, Keyed, Keyed, Read, Read, Read, Read, Missing]);
    let wait = seed.between(1, 12);
    let order = match seed.between(0, 19) {
        0 => "reject".to_owned(),
        1 => "drop".to_owned(),
        2 => "twice".to_owned(),
        3 => format!("delay:{wait}"),
        4 => format!("late:{wait}"),
        _ => "ok".to_owned(),
    };
    CallPlan { id: format!("c{calls}"), kind, order, long: seed.percent(8) }
}

impl BatchPlan {
    /// The batch as it is submitted, with its first `count` calls.
    pub fn request(&self, count: usize) -> BatchRequest {
        let calls = self.calls.iter().take(count).map(|call| CallRequest {
            id: Some(call.id.clone()),
            tool: call.kind.tool().to_owned(),
            args: Args::Json(call.args()),
            ..CallRequest::default()
        });
        BatchRequest { key: Some(self.key.clone()), calls: calls.collect(), ..BatchRequest::default() }
    }
}

impl CallPlan {
    /// Its arguments.
    pub fn args(&self) -> Value {
        json!({"call": self.id, "order": self.order, "long": self.long})
    }
}

/// What tells one payload from another (FNV-1a over its JSON).
pub fn hash(args: &Value) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    args.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}
