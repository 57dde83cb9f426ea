//! The kinds of tools that a worker has.

use super::tools::{EVENT, SIGNAL};
use serde_json::json;
use windlass::{Deadlines, EffectClass, Flags, RetryRule, ToolSpec};

/// Which tool a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What may happen to it after a crash.
    pub class: Class,
    /// Who can tell whether it took effect.
    pub asks: Asks,
    /// How long its attempts may take.
    pub pace: Pace,
    /// Whether it claims nothing, so that it runs beside all others.
    pub apart: bool,
    /// Whether its calls may go on without a caller. Then they claim nothing either.
    pub background: bool,
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
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
    /// Of a tool that the client runs; as `keyed`.
    Client,
    /// Of a tool that does not exist: refused without an attempt.
    Missing,
}

/// Who can tell whether a call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
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

impl Kind {
    /// `once_effect`
    pub const ONCE: Kind = Kind::new(Class::Once);
    /// `keyed_effect`
    pub const KEYED: Kind = Kind::new(Class::Keyed);
    /// `read_effect`
    pub const READ: Kind = Kind::new(Class::Read);
    /// `stepped_effect`
    pub const STEPPED: Kind = Kind::new(Class::Stepped);
    /// `client_effect`, beside all others.
    pub const CLIENT: Kind = Kind::new(Class::Client).apart();
    /// Not there.
    pub const MISSING: Kind = Kind::new(Class::Missing);

    /// Of this class, with all the time it needs, and nobody to ask.
    pub const fn new(class: Class) -> Kind {
        Kind { class, asks: Asks::Nobody, pace: Pace::Usual, apart: false, background: false }
    }

    /// The same, and the ledger can be asked.
    pub const fn asks(self) -> Kind {
        Kind { asks: Asks::Ledger, ..self }
    }

    /// Whether its attempts may only take a moment.
    pub fn is_brief(self) -> bool {
        self.pace == Pace::Brief
    }

    /// The same with little time.
    pub const fn brief(self) -> Kind {
        Kind { pace: Pace::Brief, ..self }
    }

    /// The same, beside all others.
    pub const fn apart(self) -> Kind {
        Kind { apart: true, ..self }
    }

    /// The same, beside all others and without a caller once that has waited for a moment.
    pub const fn background(self) -> Kind {
        Kind { background: true, ..self.apart() }
    }

    /// Whether its tool is there and has code of its own.
    pub fn has_code(self) -> bool {
        !matches!(self.class, Class::Missing | Class::Client)
    }

    /// Those that exist and have code.
    pub fn all() -> impl Iterator<Item = Kind> {
        let classes = [Class::Once, Class::Keyed, Class::Read, Class::Stepped].into_iter();
        classes.flat_map(|class| {
            let asks = [Asks::Nobody, Asks::Ledger, Asks::InVain].into_iter();
            let paces = [Pace::Usual, Pace::Brief, Pace::Patient];
            let all = asks.flat_map(move |asks| paces.map(|pace| Kind { asks, pace, ..Kind::new(class) }));
            all.flat_map(|kind| [kind, kind.apart(), kind.background()])
        })
    }

    /// The tool's name.
    pub fn tool(self) -> String {
        let asks = match self.asks {
            Asks::Nobody => "",
            Asks::Ledger => "_asks",
            Asks::InVain => "_asks_in_vain",
        };
        let pace = match self.pace {
            Pace::Usual => "",
            Pace::Brief => "_brief",
            Pace::Patient => "_patient",
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
            Class::Once | Class::Missing => EffectClass::Once,
            Class::Keyed | Class::Client => EffectClass::Keyed,
            Class::Read => EffectClass::Read,
            Class::Stepped => EffectClass::Stepped,
        };
        let (attempt_ms, grace_ms) = match (self.pace, self.asks) {
            (Pace::Usual, _) => (None, GRACE_MS),
            (Pace::Brief, Asks::Nobody) => (Some(BRIEF_MS), GRACE_MS),
            (Pace::Brief, Asks::Ledger | Asks::InVain) => (Some(BRIEF_ASKS_MS), GRACE_MS),
            (Pace::Patient, _) => (None, PATIENT_GRACE_MS),
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
            Class::Client => "client",
            Class::Missing => "missing",
        }
    }

    /// How often it is tried at most.
    pub fn tries(self) -> u32 {
        match self {
            Class::Once | Class::Missing => 2,
            Class::Keyed | Class::Read | Class::Stepped | Class::Client => 3,
        }
    }
}
