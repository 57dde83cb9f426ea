//! The kinds of tools that a worker has.

use super::tools::{EVENT, SIGNAL};
use serde_json::json;
use windlass::{Deadlines, EffectClass, Flags, RetryRule, ToolSpec};

/// Which tool a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallKind {
    /// Its effect class.
    pub class: Class,
    /// The witness of its effect.
    pub asks: EffectWitness,
    /// How long its attempts may take.
    pub pace: AttemptPace,
    /// Whether it claims nothing, so that it runs beside all others.
    pub apart: bool,
    /// Whether its calls may go on without a caller. Then they claim nothing either.
    pub background: bool,
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptPace {
    /// As long as usual.
    Usual,
    /// A moment.
    Brief,
    /// As long as usual, and long after it was told to stop.
    Patient,
}

/// The class of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `once`
    Once,
    /// `keyed`
    Keyed,
    /// `read`
    Read,
    /// `stepped`
    Stepped,
    /// Of a tool that has another class with every worker.
    Shifting,
    /// Of a tool that the client runs; as `keyed`.
    Client,
    /// Of a tool that does not exist: refused without an attempt.
    Missing,
}

/// The witness of a call's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectWitness {
    /// Nobody.
    Nobody,
    /// The ledger.
    Ledger,
    /// Somebody who does not know either.
    InVain,
}

/// How long an attempt of a brief tool may take. Who asks somebody has as long for the answer.
const BRIEF_MS: u64 = 25;
const BRIEF_ASKS_MS: u64 = 600;
/// How long an attempt may go on when it is told to stop.
const GRACE_MS: u64 = 10;
const PATIENT_GRACE_MS: u64 = 10_000;
/// Waits between attempts, so that a trial is over in a moment.
const RETRY_BASE_MS: u64 = 4;
/// How long a caller waits for what may go on without it: some are over by then, and some are not.
const INLINE_MS: u64 = 3;
/// How long a call may wait for its turn: longer than any trial. Without a tool it waits as the worker's limits say.
const QUEUE_MS: u64 = 600_000;

impl CallKind {
    /// `once_effect`
    pub const ONCE: CallKind = CallKind::new(Class::Once);
    /// `keyed_effect`
    pub const KEYED: CallKind = CallKind::new(Class::Keyed);
    /// `read_effect`
    pub const READ: CallKind = CallKind::new(Class::Read);
    /// `stepped_effect`
    pub const STEPPED: CallKind = CallKind::new(Class::Stepped);
    /// `shifting_effect`, beside all others.
    pub const SHIFTING: CallKind = CallKind::new(Class::Shifting).apart();
    /// `client_effect`, beside all others.
    pub const CLIENT: CallKind = CallKind::new(Class::Client).apart();
    /// Not there.
    pub const MISSING: CallKind = CallKind::new(Class::Missing);

    /// Of this class, with all the time it needs, and nobody to ask.
    pub const fn new(class: Class) -> CallKind {
        CallKind {
            class,
            asks: EffectWitness::Nobody,
            pace: AttemptPace::Usual,
            apart: false,
            background: false,
        }
    }

    /// This kind, with a ledger that can be asked.
    pub const fn asks(self) -> CallKind {
        CallKind { asks: EffectWitness::Ledger, ..self }
    }

    /// Whether its attempts may only take a moment.
    pub fn is_brief(self) -> bool {
        self.pace == AttemptPace::Brief
    }

    /// This kind, with little time.
    pub const fn brief(self) -> CallKind {
        CallKind { pace: AttemptPace::Brief, ..self }
    }

    /// This kind, without claims.
    pub const fn apart(self) -> CallKind {
        CallKind { apart: true, ..self }
    }

    /// This kind, without claims, and detached once its caller has waited for a moment.
    pub const fn background(self) -> CallKind {
        CallKind { background: true, ..self.apart() }
    }

    /// Whether its tool is there and has code of its own.
    pub fn has_code(self) -> bool {
        !matches!(self.class, Class::Missing | Class::Client)
    }

    /// Those that exist and have code.
    pub fn all() -> impl Iterator<Item = CallKind> {
        let classes = [Class::Once, Class::Keyed, Class::Read, Class::Stepped].into_iter();
        classes.flat_map(|class| {
            let asks = [EffectWitness::Nobody, EffectWitness::Ledger, EffectWitness::InVain].into_iter();
            let paces = [AttemptPace::Usual, AttemptPace::Brief, AttemptPace::Patient];
            let all =
                asks.flat_map(move |asks| paces.map(|pace| CallKind { asks, pace, ..CallKind::new(class) }));
            all.flat_map(|kind| [kind, kind.apart(), kind.background()])
        })
    }

    /// The tool's name.
    pub fn tool(self) -> String {
        let asks = match self.asks {
            EffectWitness::Nobody => "",
            EffectWitness::Ledger => "_asks",
            EffectWitness::InVain => "_asks_in_vain",
        };
        let pace = match self.pace {
            AttemptPace::Usual => "",
            AttemptPace::Brief => "_brief",
            AttemptPace::Patient => "_patient",
        };
        let apart = match (self.apart, self.background) {
            (_, true) => "_background",
            (true, false) => "_apart",
            (false, false) => "",
        };
        format!("{}_effect{asks}{pace}{apart}", self.class.name())
    }

    /// The tool, as it is registered.
    pub fn spec(self) -> ToolSpec {
        let class = match self.class {
            Class::Once | Class::Missing | Class::Shifting => EffectClass::Once,
            Class::Keyed | Class::Client => EffectClass::Keyed,
            Class::Read => EffectClass::Read,
            Class::Stepped => EffectClass::Stepped,
        };
        let (attempt_ms, grace_ms) = match (self.pace, self.asks) {
            (AttemptPace::Usual, _) => (None, GRACE_MS),
            (AttemptPace::Brief, EffectWitness::Nobody) => (Some(BRIEF_MS), GRACE_MS),
            (AttemptPace::Brief, EffectWitness::Ledger | EffectWitness::InVain) => {
                (Some(BRIEF_ASKS_MS), GRACE_MS)
            }
            (AttemptPace::Patient, _) => (None, PATIENT_GRACE_MS),
        };
        let deadlines = Deadlines { queue_ms: Some(QUEUE_MS), attempt_ms, ..Deadlines::default() };
        let (attempts, base_ms) = (Some(self.class.tries()), Some(RETRY_BASE_MS));
        ToolSpec {
            name: self.tool(),
            class: Some(class),
            deadlines,
            grace_ms: Some(grace_ms),
            claims: self.apart.then(Vec::new),
            flags: Flags { background: self.background, ..Flags::default() },
            inline_ms: self.background.then_some(INLINE_MS),
            retry: RetryRule { attempts, base_ms, cap_ms: None },
            emits: [(EVENT.to_owned(), json!({"type": "object", "required": ["call"]}))].into(),
            signals: [(SIGNAL.to_owned(), json!({"type": "integer"}))].into(),
            ..ToolSpec::default()
        }
    }
}

impl Class {
    /// Its name, as the ledger knows it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Once => "once",
            Class::Keyed => "keyed",
            Class::Read => "read",
            Class::Stepped => "stepped",
            Class::Shifting => "shifting",
            Class::Client => "client",
            Class::Missing => "missing",
        }
    }

    /// How often it is tried at most.
    pub fn tries(self) -> u32 {
        match self {
            Class::Once | Class::Missing => 2,
            Class::Keyed | Class::Read | Class::Stepped | Class::Shifting | Class::Client => 3,
        }
    }
}
