//! The declaration of a tool.

use crate::attempt::{Deadlines, RetryRule};
use crate::dedupe::Dedupe;
use crate::narration::{Narration, Narrator};
use crate::projection::AnswerBudget;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_args::named;

named! {
    /// The effect class: the author's promise about what may happen to a call after a crash.
    EffectClass {
        /// Changes nothing outside: may run again.
        Read = "read",
        /// The other side deduplicates by our idempotency key: may run again under the same key.
        Keyed = "keyed",
        /// The body is glue, and all effects are recorded steps: the body may run again without repeating its
        /// steps.
        Stepped = "stepped",
        /// Must not be repeated: never runs again by itself.
        Once = "once",
    }
}

named! {
    /// Whether the model sees the whole tool at once, or by name until it searches.
    Deferral {
        /// At once, in a session with few tools.
        Auto = "auto",
        /// At once, always.
        Never = "never",
        /// After it was searched for.
        Always = "always",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro that names the values derives no default")]
impl Default for Deferral {
    fn default() -> Deferral {
        Deferral::Auto
    }
}

/// Descriptive hints for people and policy; unset means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing. Makes the class `read` unless one is given.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Repeating it has no further effect. Makes the class `keyed` unless one is given.
    pub idempotent: Option<bool>,
    /// It reaches beyond this machine.
    pub open_world: Option<bool>,
    /// It needs secrets.
    pub requires_secrets: Option<bool>,
    /// It usually takes long.
    pub long_running: Option<bool>,
    /// It reads private data.
    pub reads_private: Option<bool>,
    /// It may read data written by strangers.
    pub ingests_untrusted: Option<bool>,
    /// It can send data out.
    pub sends_out: Option<bool>,
}

impl Hints {
    /// Each hint with its name, for people and digests.
    pub fn table(&self) -> [(&'static str, Option<bool>); 9] {
        [
            ("read_only", self.read_only),
            ("destructive", self.destructive),
            ("idempotent", self.idempotent),
            ("open_world", self.open_world),
            ("requires_secrets", self.requires_secrets),
            ("long_running", self.long_running),
            ("reads_private", self.reads_private),
            ("ingests_untrusted", self.ingests_untrusted),
            ("sends_out", self.sends_out),
        ]
    }
}

/// Flags that change how a tool is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It computes or blocks: it runs off the async threads.
    pub cpu_bound: bool,
    /// It never blocks: it may be polled in the caller's own task.
    pub quick: bool,
    /// Its full output is always stored as an artifact.
    pub persist_output: bool,
    /// It is meant to be polled: the loop guard does not count its calls.
    pub polls: bool,
    /// Its calls may continue without a caller. It must declare their claims.
    pub background: bool,
    /// Its calls are only ever tasks: nobody calls it directly. It has the flag `background` too.
    pub background_only: bool,
    /// It is called only from outside: never from another tool, and never as a task.
    pub stays_direct: bool,
}

impl Flags {
    /// Each flag with its name, for people and digests.
    pub fn table(&self) -> [(&'static str, bool); 7] {
        [
            ("cpu_bound", self.cpu_bound),
            ("quick", self.quick),
            ("persist_output", self.persist_output),
            ("polls", self.polls),
            ("background", self.background),
            ("background_only", self.background_only),
            ("stays_direct", self.stays_direct),
        ]
    }
}

named! {
    /// A service of the host that a tool requires.
    Need {
        /// The files of the session.
        Files = "files",
    }
}

named! {
    /// The origin of a tool.
    ToolSource {
        /// The host registered it.
        Registered = "registered",
        /// It comes with Windlass.
        BuiltIn = "built_in",
        /// A file declares it.
        Declared = "declared",
        /// A provider offers it.
        Provided = "provided",
        /// A session was opened with it, and its callers run it.
        Client = "client",
        /// A remote toolbox offers it.
        Toolbox = "toolbox",
        /// An MCP server offers it.
        Mcp = "mcp",
    }
}

named! {
    /// Whether a tool wants a person to be asked before its calls run.
    ApprovalRule {
        /// Only where the policy asks.
        Never = "never",
        /// About every call.
        Ask = "ask",
        /// As the tool says for the arguments of each call.
        ByArgs = "by_args",
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is declared with its names")]
impl Default for ApprovalRule {
    fn default() -> ApprovalRule {
        ApprovalRule::Never
    }
}

/// The origin of a call's result: the source of its tool, and the hints that say what content it may bring. One byte, since
/// every call has one; 0 for a registered tool that says nothing. The bits are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(pub u8);

impl Origin {
    /// The origin of a tool's results.
    pub fn of(source: ToolSource, hints: &Hints) -> Origin {
        let source = match source {
            ToolSource::Registered => 0,
            ToolSource::BuiltIn => 1,
            ToolSource::Declared => 2,
            ToolSource::Provided => 3,
            ToolSource::Client => 4,
            ToolSource::Toolbox => 5,
            ToolSource::Mcp => 6,
        };
        let hint = |hint: Option<bool>| match hint {
            None => 0,
            Some(true) => 1,
            Some(false) => 2,
        };
        Origin(source | hint(hints.reads_private) << 4 | hint(hints.ingests_untrusted) << 6)
    }

    /// The source of the tool; `None` if a newer Windlass wrote it.
    pub fn source(self) -> Option<ToolSource> {
        ToolSource::ALL
            .iter()
            .copied()
            .find(|source| Origin::of(*source, &Hints::default()).0 == self.0 & 0xf)
    }

    /// Whether the result may hold private data: a tool that does not say so may.
    pub fn is_private(self) -> bool {
        self.0 >> 4 & 3 != 2
    }

    /// Whether strangers may have written some of it: so may those of a tool that does not say.
    pub fn is_untrusted(self) -> bool {
        self.0 >> 6 != 2
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is declared with its names")]
impl Default for ToolSource {
    fn default() -> ToolSource {
        ToolSource::Registered
    }
}

/// The declaration of a tool by its author.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSpec {
    /// Its name for the model: 1–64 of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// A stable id, kept when the name changes; empty means the name.
    pub id: String,
    /// Its title for people; empty means the name.
    pub title: String,
    /// For the model: its purpose and when to use it.
    pub description: String,
    /// JSON Schema 2020-12 of the arguments; `None` means any object.
    pub input_schema: Option<Value>,
    /// JSON Schema 2020-12 of the result.
    pub output_schema: Option<Value>,
    /// The effect class; `None` means the one the hints imply, else `once`.
    pub class: Option<EffectClass>,
    /// Descriptive hints.
    pub hints: Hints,
    /// Flags.
    pub flags: Flags,
    /// The deadlines of its calls; absent fields have the default.
    pub deadlines: Deadlines,
    /// How long an attempt may continue after it was asked to stop, in milliseconds; `None` means the default.
    pub grace_ms: Option<u64>,
    /// How long a caller waits for a call of it once it runs, in milliseconds, if it may continue in the
    /// background; `None` means the default.
    pub inline_ms: Option<u64>,
    /// How long the model's view of a call of it may be; absent fields have the default.
    pub answer: AnswerBudget,
    /// How often it may be tried; absent fields have the default.
    pub retry: RetryRule,
    /// The claims of a call, as in `write file:/{path}` where `{path}` stands for an argument; an empty list collides
    /// with nothing; `None` means that class `read` reads the session and every other class writes it.
    pub claims: Option<Vec<String>>,
    /// The dedupe key: one of the calls with the same key runs, the others get its answer; `None` means that each runs.
    pub dedupe: Option<Dedupe>,
    /// The maximum number of its calls running at once; `None` means as many as there is room for.
    pub running_max: Option<u32>,
    /// The maximum number of starts in a number of milliseconds.
    pub rate: Option<(u32, u64)>,
    /// The groups of tools whose limits its calls share.
    pub groups: Vec<String>,
    /// The sentences for people about its calls; missing ones are made from its name, its title and the arguments.
    pub narration: Vec<Narration>,
    /// The kinds of events it emits, each with the JSON Schema of its payload; `{}` takes anything.
    pub emits: BTreeMap<String, Value>,
    /// The kinds of events that wake the agent: each with the text of the notice, in which `{x}` stands for a property of the
    /// payload. They are among those it emits.
    pub wakes: BTreeMap<String, String>,
    /// The signals its calls take, each with the JSON Schema of its payload; `{}` takes anything.
    pub signals: BTreeMap<String, Value>,
    /// Whether the model sees it at once in a session with many tools.
    pub deferral: Deferral,
    /// Whether a person is asked before its calls run, whatever the policy says.
    pub approval: ApprovalRule,
    /// The services of the host it requires: where one is missing the tool is refused, instead of failing later.
    pub needs: Vec<Need>,
    /// The names of the secrets that its calls use, with `Cx::secret`. A call may use no others.
    pub secrets: Vec<String>,
    /// The author's version of the tool's behaviour; a change makes it another contract.
    pub version: String,
    /// The category under which lists show it; empty means none.
    pub category: String,
    /// Words by which programs and people find it.
    pub tags: Vec<String>,
    /// Its origin, as lists show it.
    pub source: ToolSource,
    /// The MCP server or toolbox it comes from; empty means neither.
    pub server: String,
    /// Makes the sentences for people; those of `narration` are used where it has none.
    pub narrator: Option<Narrator>,
}

impl ToolSpec {
    /// The effective class.
    pub fn effect_class(&self) -> EffectClass {
        match self.class {
            Some(class) => class,
            None if self.hints.read_only == Some(true) => EffectClass::Read,
            None if self.hints.idempotent == Some(true) => EffectClass::Keyed,
            None => EffectClass::Once,
        }
    }

    /// The effective stable id.
    pub fn stable_id(&self) -> &str {
        if self.id.is_empty() { &self.name } else { &self.id }
    }

    /// The effective title.
    pub fn display_title(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }

    /// The digest that a call is pinned to: id, input schema, class, version.
    pub fn contract_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("contract");
        hasher.field(self.stable_id().as_bytes());
        hasher.json(self.input_schema.as_ref());
        hasher.field(self.effect_class().as_str().as_bytes());
        hasher.field(self.version.as_bytes());
        hasher.digest()
    }

    /// The digest of everything else that is shown of the tool.
    pub fn display_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("display");
        for text in [&self.name, self.display_title(), &self.description] {
            hasher.field(text.as_bytes());
        }
        hasher.json(self.output_schema.as_ref());
        for (name, hint) in self.hints.table() {
            hasher.field(format!("{name}={hint:?}").as_bytes());
        }
        for (name, flag) in self.flags.table() {
            hasher.field(format!("{name}={flag}").as_bytes());
        }
        let rules = format!("{:?} {:?} {:?} {:?}", self.deadlines, self.grace_ms, self.inline_ms, self.retry);
        hasher.field(rules.as_bytes());
        let room = format!("{:?} {:?} {:?} {:?}", self.claims, self.running_max, self.rate, self.groups);
        hasher.field(room.as_bytes());
        if !self.answer.is_empty() {
            hasher.field(format!("{:?}", self.answer).as_bytes());
        }
        if let Some(dedupe) = &self.dedupe {
            hasher.field(format!("{dedupe:?}").as_bytes());
        }
        if !self.narration.is_empty() {
            hasher.field(format!("{:?}", self.narration).as_bytes());
        }
        for (what, declared) in [("emits", &self.emits), ("signals", &self.signals)] {
            for (name, schema) in declared {
                hasher.field(format!("{what} {name}").as_bytes());
                hasher.json(Some(schema));
            }
        }
        for (kind, text) in &self.wakes {
            hasher.field(format!("wakes {kind} {text}").as_bytes());
        }
        if self.approval != ApprovalRule::Never {
            hasher.field(format!("approval {}", self.approval).as_bytes());
        }
        if self.deferral != Deferral::Auto {
            hasher.field(format!("deferral {}", self.deferral).as_bytes());
        }
        for need in &self.needs {
            hasher.field(format!("needs {need}").as_bytes());
        }
        for secret in &self.secrets {
            hasher.field(format!("secret {secret}").as_bytes());
        }
        if !self.server.is_empty() {
            hasher.field(format!("server {}", self.server).as_bytes());
        }
        if !self.category.is_empty() || !self.tags.is_empty() {
            hasher.field(format!("{:?} {:?}", self.category, self.tags).as_bytes());
        }
        hasher.digest()
    }
}

/// An invalid name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool name is 1 to 64 of a-z, A-Z, 0-9, _ and -; {name:?} is not: rename the tool")]
pub struct BadName {
    /// The name.
    pub name: String,
}

/// Checks the form of a tool name.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if fits { Ok(()) } else { Err(BadName { name: name.to_string() }) }
}

/// A digest of part of a tool's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Digest {
    /// All of it, in hexadecimal digits.
    pub fn whole(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses the output of [`whole`](Self::whole).
    pub fn parse(text: &str) -> Option<Digest> {
        if text.len() != 64 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (place, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
        }
        Some(Digest(bytes))
    }
}

/// Hashes fields with their lengths, so that no two lists of fields look alike.
struct FieldHasher(blake3::Hasher);

impl FieldHasher {
    fn new(domain: &str) -> FieldHasher {
        let mut hasher = FieldHasher(blake3::Hasher::new());
        hasher.field(domain.as_bytes());
        hasher
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn json(&mut self, value: Option<&Value>) {
        let text = value.map(windlass_args::canonical::text).unwrap_or_default();
        self.field(text.as_bytes());
    }

    fn digest(self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_class_follows_the_hints_unless_given() {
        let of = |class, read_only, idempotent| {
            let hints = Hints { read_only, idempotent, ..Hints::default() };
            ToolSpec { class, hints, ..ToolSpec::default() }.effect_class()
        };
        assert_eq!(of(None, None, None), EffectClass::Once);
        assert_eq!(of(None, Some(true), Some(true)), EffectClass::Read);
        assert_eq!(of(None, None, Some(true)), EffectClass::Keyed);
        assert_eq!(of(None, Some(false), Some(false)), EffectClass::Once);
        assert_eq!(of(Some(EffectClass::Once), Some(true), None), EffectClass::Once);
    }

    #[test]
    fn names() {
        for good in ["a", "read_file", "Read-2", &"x".repeat(64)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "ä", "a.b", &"x".repeat(65)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_field_is_in_one_of_the_digests() {
        let base = ToolSpec { name: "a".into(), ..ToolSpec::default() };
        let digests = |spec: &ToolSpec| (spec.contract_digest(), spec.display_digest());
        let (contract, display) = digests(&base);
        let changed = |change: &dyn Fn(&mut ToolSpec)| {
            let mut spec = base.clone();
            change(&mut spec);
            let (c, d) = digests(&spec);
            (c != contract, d != display)
        };
        assert_eq!(changed(&|s| s.id = "b".into()), (true, false));
        assert_eq!(changed(&|s| s.input_schema = Some(json!({}))), (true, false));
        assert_eq!(changed(&|s| s.class = Some(EffectClass::Read)), (true, false));
        assert_eq!(changed(&|s| s.version = "2".into()), (true, false));
        assert_eq!(changed(&|s| s.description = "d".into()), (false, true));
        assert_eq!(changed(&|s| s.output_schema = Some(json!({}))), (false, true));
        assert_eq!(changed(&|s| s.flags.quick = true), (false, true));
        assert_eq!(changed(&|s| s.deadlines.queue_ms = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.grace_ms = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.inline_ms = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.answer.bytes_max = Some(600)), (false, true));
        assert_eq!(changed(&|s| s.retry.attempts = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.hints.sends_out = Some(true)), (false, true));
        assert_eq!(changed(&|s| s.claims = Some(vec![])), (false, true));
        assert_eq!(changed(&|s| s.dedupe = Some(Dedupe::default())), (false, true));
        assert_eq!(changed(&|s| s.running_max = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.rate = Some((1, 1))), (false, true));
        let narration = Narration { locale: crate::narration::Locale::English, sentences: Vec::new() };
        assert_eq!(changed(&|s| s.narration = vec![narration.clone()]), (false, true));
        assert_eq!(changed(&|s| s.groups = vec!["g".into()]), (false, true));
        assert_eq!(changed(&|s| s.approval = ApprovalRule::Ask), (false, true));
        assert_eq!(changed(&|s| s.needs = vec![Need::Files]), (false, true));
        assert_eq!(changed(&|s| s.server = "m".into()), (false, true));
        assert_eq!(changed(&|s| s.emits = [("e".into(), json!({}))].into()), (false, true));
        assert_eq!(changed(&|s| s.wakes = [("e".into(), "Look.".into())].into()), (false, true));
        assert_eq!(changed(&|s| s.signals = [("e".into(), json!({}))].into()), (false, true));
    }
}
