//! What is known of a tool without running it.

use crate::attempt::{Deadlines, RetryRule};
use crate::dedupe::Dedupe;
use crate::failure::named;
use crate::narration::Narration;
use serde_json::Value;
use std::collections::BTreeMap;

named! {
    /// What may happen to a call of this tool after a crash: the promise its author makes.
    EffectClass {
        /// Changes nothing outside: may run again.
        Read = "read",
        /// The other side deduplicates by our idempotency key: may run again under the same key.
        Keyed = "keyed",
        /// The body is glue, and all effects are recorded steps: the body may run again, and what its steps did is not
        /// done again.
        Stepped = "stepped",
        /// Must not be repeated: never runs again by itself.
        Once = "once",
    }
}

/// What people and policy are told of a tool; unset means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing. Makes the class `read` unless one is given.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// Doing it twice is doing it once. Makes the class `keyed` unless one is given.
    pub idempotent: Option<bool>,
    /// It reaches beyond this machine.
    pub open_world: Option<bool>,
    /// It needs secrets.
    pub requires_secrets: Option<bool>,
    /// It usually takes long.
    pub long_running: Option<bool>,
    /// What it reads is private.
    pub reads_private: Option<bool>,
    /// What it reads may be written by strangers.
    pub ingests_untrusted: Option<bool>,
    /// It can send something out.
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

/// What changes how a tool is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It computes or blocks: it runs off the async threads.
    pub cpu_bound: bool,
    /// It never blocks: it may be polled in the caller's own task.
    pub quick: bool,
    /// Its full output is always kept as an artifact.
    pub persist_output: bool,
    /// It is meant to be asked again and again: the loop guard does not count its calls.
    pub polls: bool,
    /// Its calls may go on without a caller. It must say what they claim.
    pub background: bool,
    /// Its calls are only ever tasks: nobody calls it directly. It has the flag `background` too.
    pub background_only: bool,
    /// It is called by the outside world alone: never from another tool, and never as a task.
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
    /// A service of the host that a tool cannot do without.
    Need {
        /// The files of the session.
        Files = "files",
    }
}

/// A tool as its author describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSpec {
    /// What the model calls it: 1–64 of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// Stays the same when the name changes; empty means the name.
    pub id: String,
    /// What people call it; empty means the name.
    pub title: String,
    /// For the model: what it does and when to use it.
    pub description: String,
    /// JSON Schema 2020-12 of the arguments; none means any object.
    pub input_schema: Option<Value>,
    /// JSON Schema 2020-12 of the result.
    pub output_schema: Option<Value>,
    /// The effect class; none means what the hints imply, else `once`.
    pub class: Option<EffectClass>,
    /// What is told.
    pub hints: Hints,
    /// What acts.
    pub flags: Flags,
    /// How long its calls may take; what is not said is the default.
    pub deadlines: Deadlines,
    /// How long an attempt may go on after it was told to stop, in milliseconds; none means the default.
    pub grace_ms: Option<u64>,
    /// How long a caller waits for a call of it once it runs, in milliseconds, if it may go on in the background; none means
    /// the default.
    pub inline_ms: Option<u64>,
    /// How often it may be tried; what is not said is the default.
    pub retry: RetryRule,
    /// What a call reads and writes, as in `write file:/{path}` where `{path}` stands for an argument; an empty list
    /// collides with nothing; none means that class `read` reads the session and every other class writes it.
    pub claims: Option<Vec<String>>,
    /// Which of its calls are the same: one runs, the others get its answer; none means that each runs.
    pub dedupe: Option<Dedupe>,
    /// How many of its calls run at once; none means as many as there is room for.
    pub running_max: Option<u32>,
    /// How many of its calls start in how many milliseconds.
    pub rate: Option<(u32, u64)>,
    /// The groups of tools whose limits its calls share.
    pub groups: Vec<String>,
    /// What people are told of its calls; what is not said is made from its name, its title and the arguments.
    pub narration: Vec<Narration>,
    /// The kinds of events it tells of, each with the JSON Schema of its payload; `{}` takes anything.
    pub emits: BTreeMap<String, Value>,
    /// The signals its calls take, each with the JSON Schema of its payload; `{}` takes anything.
    pub signals: BTreeMap<String, Value>,
    /// The services of the host it cannot do without: where one is missing it is refused, instead of failing later.
    pub needs: Vec<Need>,
    /// The author's version of what the tool does; a change makes it another contract.
    pub version: String,
}

impl ToolSpec {
    /// The class in force.
    pub fn effect_class(&self) -> EffectClass {
        match self.class {
            Some(class) => class,
            None if self.hints.read_only == Some(true) => EffectClass::Read,
            None if self.hints.idempotent == Some(true) => EffectClass::Keyed,
            None => EffectClass::Once,
        }
    }

    /// The stable id in force.
    pub fn stable_id(&self) -> &str {
        if self.id.is_empty() { &self.name } else { &self.id }
    }

    /// The title in force.
    pub fn display_title(&self) -> &str {
        if self.title.is_empty() { &self.name } else { &self.title }
    }

    /// What a call is pinned to: id, input schema, class, version.
    pub fn contract_digest(&self) -> Digest {
        let mut hasher = FieldHasher::new("contract");
        hasher.field(self.stable_id().as_bytes());
        hasher.json(self.input_schema.as_ref());
        hasher.field(self.effect_class().as_str().as_bytes());
        hasher.field(self.version.as_bytes());
        hasher.digest()
    }

    /// Everything else that is shown of the tool.
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
        for need in &self.needs {
            hasher.field(format!("needs {need}").as_bytes());
        }
        hasher.digest()
    }
}

/// Why a name cannot be a tool's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tool name is 1 to 64 of a-z, A-Z, 0-9, _ and -; {name:?} is not: rename the tool")]
pub struct BadName {
    /// What was given.
    pub name: String,
}

/// Checks the form of a tool name.
pub fn check_name(name: &str) -> Result<(), BadName> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if fits { Ok(()) } else { Err(BadName { name: name.to_string() }) }
}

/// The form in which two names must differ, so that no model confuses them.
pub fn folded_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

/// The one of `known` that was probably meant by `asked`, if any is near enough.
pub fn nearest_name<'a>(asked: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = folded_name(asked);
    known
        .map(|name| (edit_distance(&folded, &folded_name(name)), name))
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3))
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions and replacements between the two; both are short, so the square is small.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().take(128).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, here) in left.chars().take(128).enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (place, there) in right.iter().enumerate() {
            let replaced = corner + usize::from(here != *there);
            corner = row[place + 1];
            row[place + 1] = replaced.min(corner + 1).min(row[place] + 1);
        }
    }
    row[right.len()]
}

/// A digest of part of a tool's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
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
        let text = value.map(crate::canonical::text).unwrap_or_default();
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
        assert_eq!(folded_name("Read-File"), folded_name("read_file"));
    }

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["read_file", "write_file", "echo"];
        let near = |asked| nearest_name(asked, known.into_iter());
        assert_eq!(near("readFile"), Some("read_file"));
        assert_eq!(near("ecko"), Some("echo"));
        assert_eq!(near("launch_rocket"), None);
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
        assert_eq!(changed(&|s| s.retry.attempts = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.hints.sends_out = Some(true)), (false, true));
        assert_eq!(changed(&|s| s.claims = Some(vec![])), (false, true));
        assert_eq!(changed(&|s| s.dedupe = Some(Dedupe::default())), (false, true));
        assert_eq!(changed(&|s| s.running_max = Some(1)), (false, true));
        assert_eq!(changed(&|s| s.rate = Some((1, 1))), (false, true));
        let narration = Narration { locale: crate::narration::Locale::English, sentences: Vec::new() };
        assert_eq!(changed(&|s| s.narration = vec![narration.clone()]), (false, true));
        assert_eq!(changed(&|s| s.groups = vec!["g".into()]), (false, true));
        assert_eq!(changed(&|s| s.needs = vec![Need::Files]), (false, true));
        assert_eq!(changed(&|s| s.emits = [("e".into(), json!({}))].into()), (false, true));
        assert_eq!(changed(&|s| s.signals = [("e".into(), json!({}))].into()), (false, true));
    }
}
