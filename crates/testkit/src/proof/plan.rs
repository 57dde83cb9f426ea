//! Plans of a worker: sessions of batches of calls with mixed classes, what the ledger, the tool and the
//! client do with each, and what the client cancels. `fixed` has plans without chance, `random` those of
//! seeds, `tasks` those of seeds whose calls continue without their callers, `asked` those of seeds whose calls wait for people,
//! `granted` those of seeds whose calls are made by grants.

mod asked;
mod fixed;
mod granted;
mod random;
mod tasks;

pub use asked::{PlannedAnswer, changed_rule, declared_rules};
pub use granted::{CallGrant, GrantPlan};

use super::kind::{CallKind, Class};
use serde_json::{Value, json};
use windlass::batch::Siblings;
use windlass::grants::GrantToken;
use windlass::tasks::{NewTask, Wake};
use windlass::{Args, BatchRequest, CallRequest};

/// Everything that is submitted to one data folder.
#[derive(Clone, Debug, Default)]
pub struct ProofPlan {
    /// In no order among themselves.
    pub sessions: Vec<SessionPlan>,
    /// The client's cancel requests.
    pub cancels: Vec<CancelPlan>,
    /// How many of a hundred calls that end as unknown are resolved by each worker's client.
    pub resolved_percent: u64,
    /// The client's scheduled calls.
    pub schedules: Vec<SchedulePlan>,
    /// How many sessions each worker opens and [deletes](super::deletion).
    pub deletions: u64,
    /// How many sessions there are in which calls [start and await tasks](super::context).
    pub contexts: u64,
    /// The client's grants.
    pub grants: Vec<GrantPlan>,
}

/// A call that is to be started at a time.
#[derive(Clone, Debug)]
pub struct SchedulePlan {
    /// In which session.
    pub session: String,
    /// The id of the schedule.
    pub id: String,
    /// How long after it was first asked for.
    pub after_ms: u64,
    /// The call.
    pub call: CallPlan,
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
    /// Its sibling rule.
    pub siblings: Siblings,
    /// Its calls are pushed one after the other.
    pub streamed: bool,
    /// Its client does not wait for it, and comes back when its calls are over: so it leaves memory while they wait.
    pub walks_away: bool,
    /// When its client is answered first.
    pub asks: FirstReply,
    /// Nobody is to be told of what was answered before it had ended.
    pub silent: bool,
}

/// When the client of a batch is answered first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstReply {
    /// When its calls are over, or go on without it.
    #[default]
    AtTheEnd,
    /// As soon as they are taken: the answer is provisional, and it waits on.
    Early,
    /// It says that it waits for nothing.
    Unattended,
}

/// One call.
#[derive(Clone, Debug)]
pub struct CallPlan {
    /// The model's id of it, unique in the folder.
    pub id: String,
    /// Which tool.
    pub kind: CallKind,
    /// The order to the ledger; `after`: the ledger is only asked by an attempt that nothing happens to.
    pub order: String,
    /// The tool's behaviour after its visit to the ledger.
    pub then: Then,
    /// The tool's reply when the ledger refused or hung up.
    pub says: Says,
    /// Whether the result is too long for an answer, and so kept as an artifact.
    pub long: bool,
    /// A stepped tool's operations before the step that is its effect.
    pub inside: InsidePlan,
    /// The connection its tool needs.
    pub connects: Connects,
    /// Its tool's nested calls before its own effect.
    pub nested: Nested,
    /// It is a task from its beginning, and so is told of it.
    pub task: Option<Wake>,
    /// How people answer the question about it.
    pub answer: PlannedAnswer,
    /// The grant it is made by.
    pub grant: Option<CallGrant>,
}

/// The connection that the tool of a call needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connects {
    /// Nothing.
    #[default]
    Nothing,
    /// Something of its own, and the client connects it.
    Made,
    /// Something of its own, and the client declines.
    Declined,
}

/// A tool's nested calls, before its own effect.
#[derive(Clone, Debug, Default)]
pub struct Nested {
    /// One after the other, each under its id.
    pub calls: Vec<CallPlan>,
    /// Together: the first that succeeds wins.
    pub race: Vec<CallPlan>,
}

/// A stepped tool's named operations, in this order, before the step that is its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InsidePlan {
    /// A step.
    pub step: bool,
    /// A sleep.
    pub nap: bool,
    /// A step that must not be repeated.
    pub once: bool,
    /// It waits for an answer of the client's.
    pub answer: bool,
    /// It asks the client a question.
    pub question: bool,
    /// It receives signals of the client's.
    pub signal: bool,
}

/// A tool's behaviour after its visit to the ledger.
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

/// A tool's reply about a failure.
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
    pub when: CancelTime,
}

/// When a cancel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelTime {
    /// Before the call starts; then those that [wait](Then::Wait) go on.
    Queued,
    /// When the tool has been to the ledger.
    Running,
    /// By every second worker, up to so many microseconds after it began to submit.
    Within(u64),
}

impl ProofPlan {
    /// Every call, with the session and the batch it belongs to.
    pub fn calls(&self) -> impl Iterator<Item = (&SessionPlan, &BatchPlan, &CallPlan)> {
        self.sessions.iter().flat_map(|session| {
            let batches = session.batches.iter();
            batches.flat_map(move |batch| batch.calls.iter().map(move |call| (session, batch, call)))
        })
    }

    /// The kind of every call, also of those inside others and of those that schedules start.
    pub fn kinds(&self) -> impl Iterator<Item = CallKind> {
        let inside = |call: &CallPlan| call.nested.all().map(|(_, call)| call.kind).collect::<Vec<_>>();
        let all = self.calls().flat_map(move |(_, _, call)| std::iter::once(call.kind).chain(inside(call)));
        all.chain(self.schedules.iter().map(|schedule| schedule.call.kind))
    }

    /// Whether a tool of it kills its worker.
    pub fn dies(&self) -> bool {
        self.calls().any(|(_, _, call)| matches!(call.then, Then::Die | Then::DieAlways | Then::DieLater))
    }
}

/// The name under which a tool lets calls race.
pub const RACE: &str = "race";

impl BatchPlan {
    /// The batch as it is submitted, with its first `count` calls.
    pub fn request(&self, count: usize) -> BatchRequest {
        let calls = self.calls.iter().take(count).map(CallPlan::request);
        let (key, siblings) = (Some(self.key.clone()), self.siblings);
        let wake = if self.silent { Wake::Silent } else { Wake::OnEnd };
        BatchRequest { key, calls: calls.collect(), siblings, wake, ..BatchRequest::default() }
    }

    /// How many calls it has when it is first submitted.
    pub fn first(&self) -> usize {
        self.calls.len() - usize::from(self.grows)
    }
}

impl CallPlan {
    /// One that goes well.
    pub fn new(id: &str, kind: CallKind) -> CallPlan {
        let (then, says, inside, connects, nested, task, answer, grant) = Default::default();
        CallPlan {
            id: id.into(),
            kind,
            order: "ok".into(),
            then,
            says,
            long: false,
            inside,
            connects,
            nested,
            task,
            answer,
            grant,
        }
    }

    /// This plan without claims, including its nested calls.
    pub fn apart(mut self) -> CallPlan {
        self.kind = self.kind.apart();
        let inside = self.nested.calls.iter_mut().chain(&mut self.nested.race);
        inside.for_each(|call| call.kind = call.kind.apart());
        self
    }

    /// The call as it is submitted.
    pub fn request(&self) -> CallRequest {
        CallRequest {
            id: Some(self.id.clone()),
            tool: self.kind.tool(),
            args: Args::Json(self.args()),
            task: self.task.map(|wake| NewTask { wake, ..NewTask::default() }),
            grant: self.grant.as_ref().map(|grant| GrantToken::given(grant.token.clone())),
            ..CallRequest::default()
        }
    }

    /// Its arguments.
    pub fn args(&self) -> Value {
        let CallPlan { id, order, then, says, long, .. } = self;
        let inside = self.inside.text();
        let mut args = json!({"call": id, "order": order, "then": then.name(), "says": says.text(), "long": long, "inside": inside});
        if self.connects != Connects::Nothing {
            args["needs"] = json!(self.provider());
        }
        if self.answer != PlannedAnswer::Unruled {
            args["ask"] = json!(self.answer.name());
        }
        let calls = |calls: &[CallPlan]| -> Value {
            calls
                .iter()
                .map(|call| json!({"id": call.id, "tool": call.kind.tool(), "args": call.args()}))
                .collect()
        };
        if !self.nested.is_empty() {
            args["nested"] = calls(&self.nested.calls);
            args["race"] = calls(&self.nested.race);
        }
        args
    }

    /// The provider it needs, if it needs one: no other call does.
    pub fn provider(&self) -> String {
        format!("provider of {}", self.id)
    }

    /// Whether a failure of it is tried again, if `refused` (and else the ledger hung up).
    pub fn is_retried(&self, refused: bool) -> bool {
        match (self.says, self.kind.class) {
            (Says::Plain, _) => false,
            (Says::Never, Class::Once) => refused,
            (Says::Safe | Says::SafeAfter(_), Class::Once) => false,
            (
                Says::Safe | Says::SafeAfter(_) | Says::Never,
                Class::Keyed
                | Class::Read
                | Class::Stepped
                | Class::Shifting
                | Class::Client
                | Class::Missing,
            ) => true,
        }
    }
}

impl Nested {
    /// Whether nothing is called.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.race.is_empty()
    }

    /// All of them, each with the name it is called under.
    pub fn all(&self) -> impl Iterator<Item = (&str, &CallPlan)> {
        let alone = self.calls.iter().map(|call| (call.id.as_str(), call));
        alone.chain(self.race.iter().map(|call| (RACE, call)))
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

impl InsidePlan {
    /// All there is.
    pub const ALL: InsidePlan =
        InsidePlan { step: true, nap: true, once: true, answer: true, question: true, signal: true };

    /// As it stands in the arguments.
    pub fn text(self) -> String {
        let InsidePlan { step, nap, once, answer, question, signal } = self;
        let words = [
            (step, "step"),
            (nap, "nap"),
            (once, "once"),
            (answer, "answer"),
            (question, "question"),
            (signal, "signal"),
        ];
        let words: Vec<&str> = words.iter().filter(|(does, _)| *does).map(|(_, word)| *word).collect();
        words.join(" ")
    }

    /// From the arguments.
    pub fn parse(text: &str) -> InsidePlan {
        text.split(' ').fold(InsidePlan::default(), |inside, word| match word {
            "step" => InsidePlan { step: true, ..inside },
            "nap" => InsidePlan { nap: true, ..inside },
            "once" => InsidePlan { once: true, ..inside },
            "answer" => InsidePlan { answer: true, ..inside },
            "question" => InsidePlan { question: true, ..inside },
            "signal" => InsidePlan { signal: true, ..inside },
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

/// A hash of a payload (FNV-1a over its JSON).
pub fn hash(args: &Value) -> u64 {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    args.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, fold)
}
