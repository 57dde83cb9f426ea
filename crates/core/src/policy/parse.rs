//! From JSON to compiled rules: every key is known, every text is bounded, every problem names its place.

use super::condition::{
    ArgumentCondition, ArgumentTest, CallCondition, Globs, Pointer, Scalar, ToolCondition,
};
use super::glob::Glob;
use super::problem::{PolicyMistake, PolicyProblem, shortened};
use super::{PolicyRule, Ruling, number};
use crate::limits::CallLimits;
use crate::tool::{Digest, EffectClass, Hints, ToolSource};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use windlass_args::canonical;
use windlass_args::names::nearest_name;

const POLICY_KEYS: &[&str] = &["rules"];
const RULE_KEYS: &[&str] = &["name", "ruling", "when", "reason", "four_eyes", "expires_ms", "on_expiry"];
const WHEN_KEYS: &[&str] =
    &["tool", "source", "server", "class", "hints", "principal", "labels", "turn", "exposed", "args"];
const ARGUMENT_KEYS: &[&str] = &["pointer", "equals", "one_of", "prefix", "glob", "range"];
const RANGE_KEYS: &[&str] = &["min", "max"];

type PolicyResult<T> = Result<T, PolicyProblem>;

/// The rules of `{"rules": […]}`.
pub(super) fn rules(value: &Value, limits: &CallLimits) -> PolicyResult<Vec<PolicyRule>> {
    let whole = PolicyPlace { value, path: String::new(), limits };
    let policy = whole.object("a table with the list \"rules\"")?;
    whole.check_keys(policy, POLICY_KEYS)?;
    let Some(rules) = whole.key(policy, "rules") else { return Ok(Vec::new()) };
    let items = rules.list("a list of rules")?;
    let advice = "combine rules by listing several tools or values in one";
    rules.check_count(items.len(), RULES, advice)?;
    let parsed: Vec<PolicyRule> =
        (0..).zip(items).map(|(index, item)| rule(&rules.item(index, item))).collect::<PolicyResult<_>>()?;
    let mut seen = BTreeMap::new();
    for (index, rule) in parsed.iter().enumerate() {
        if let Some(first) = seen.insert(&rule.name, index) {
            let place = format!("rules[{index}].name");
            return Err(PolicyProblem {
                place,
                mistake: PolicyMistake::SameName { first, name: rule.name.to_string() },
            });
        }
    }
    Ok(parsed)
}

fn rule(rule: &PolicyPlace<'_>) -> PolicyResult<PolicyRule> {
    let map = rule.object("a table such as { name = \"…\", ruling = \"ask\", when = { tool = \"…\" } }")?;
    rule.check_keys(map, RULE_KEYS)?;
    let name = rule.needed(map, "name", "records and answers name a rule by it")?.name()?;
    let ruling = rule
        .needed(map, "ruling", "write \"allow\", \"ask\" or \"deny\"")?
        .word(Ruling::ALL, Ruling::parse)?;
    for key in ["four_eyes", "expires_ms", "on_expiry"] {
        match rule.key(map, key) {
            Some(place) if ruling != Ruling::Ask => return place.fail(PolicyMistake::OnlyForAsk),
            _ => {}
        }
    }
    let four_eyes = rule.key(map, "four_eyes").map(|place| place.bool()).transpose()?.unwrap_or(false);
    let on_expiry = rule.key(map, "on_expiry");
    let ends = &[Ruling::Allow, Ruling::Deny];
    let ruling_at_end = on_expiry.as_ref().map(|place| place.word(ends, Ruling::parse)).transpose()?;
    match on_expiry {
        Some(place) if four_eyes && ruling_at_end == Some(Ruling::Allow) => {
            return place.fail(PolicyMistake::FourEyesExpire);
        }
        _ => {}
    }
    let (on_tool, on_call) = match rule.key(map, "when") {
        Some(when) => conditions(&when)?,
        None => (Vec::new(), Vec::new()),
    };
    Ok(PolicyRule {
        name: name.into(),
        ruling,
        reason: rule.key(map, "reason").map(|place| place.text().map(str::to_string)).transpose()?,
        four_eyes,
        expires_ms: rule.key(map, "expires_ms").map(|place| place.time()).transpose()?,
        on_expiry: ruling_at_end,
        digest: Digest(*blake3::hash(canonical::text(rule.value).as_bytes()).as_bytes()),
        on_tool,
        on_call,
        written: rule.value.clone(),
    })
}

fn conditions(when: &PolicyPlace<'_>) -> PolicyResult<(Vec<ToolCondition>, Vec<CallCondition>)> {
    let map = when.object("a table of conditions such as { tool = \"git_*\", class = \"once\" }")?;
    when.check_keys(map, WHEN_KEYS)?;
    let (mut on_tool, mut on_call) = (Vec::new(), Vec::new());
    if let Some(tool) = when.key(map, "tool") {
        on_tool.push(ToolCondition::Tool(tool.globs()?));
    }
    if let Some(source) = when.key(map, "source") {
        on_tool.push(ToolCondition::Source(source.words(ToolSource::ALL, ToolSource::parse)?));
    }
    if let Some(server) = when.key(map, "server") {
        on_tool.push(ToolCondition::Server(server.globs()?));
    }
    if let Some(class) = when.key(map, "class") {
        on_tool.push(ToolCondition::Class(class.words(EffectClass::ALL, EffectClass::parse)?));
    }
    if let Some(hints) = when.key(map, "hints") {
        on_tool.extend(hint_conditions(&hints)?);
    }
    if let Some(principal) = when.key(map, "principal") {
        on_call.push(CallCondition::Principal(principal.globs()?));
    }
    if let Some(labels) = when.key(map, "labels") {
        on_call.extend(label_conditions(&labels)?);
    }
    if let Some(turn) = when.key(map, "turn") {
        on_call.push(CallCondition::Turn(turn.globs()?));
    }
    if let Some(exposed) = when.key(map, "exposed") {
        on_call.push(CallCondition::Exposed(exposed.bool()?));
    }
    if let Some(args) = when.key(map, "args") {
        on_call.extend(arguments(&args)?.into_iter().map(CallCondition::Argument));
    }
    when.check_count(
        on_tool.len() + on_call.len(),
        CONDITIONS,
        "split the rule, or list several values in one condition",
    )?;
    Ok((on_tool, on_call))
}

fn hint_conditions(hints: &PolicyPlace<'_>) -> PolicyResult<Vec<ToolCondition>> {
    const HINTS: &[&str] = &[
        "read_only",
        "destructive",
        "idempotent",
        "open_world",
        "requires_secrets",
        "long_running",
        "reads_private",
        "ingests_untrusted",
        "sends_out",
    ];
    debug_assert!(Hints::default().table().iter().map(|(name, _)| name).eq(HINTS), "every hint is listed");
    let map = hints.filled_object("a table such as { destructive = true }")?;
    hints.check_keys(map, HINTS)?;
    let condition = |hint: &&'static str| {
        let wanted = hints.key(map, hint)?.bool();
        Some(wanted.map(|wanted| ToolCondition::Hint { hint, wanted }))
    };
    HINTS.iter().filter_map(condition).collect()
}

fn label_conditions(labels: &PolicyPlace<'_>) -> PolicyResult<Vec<CallCondition>> {
    let map = labels.filled_object("a table such as { env = \"prod\" }")?;
    labels.check_count(map.len(), CONDITIONS, "split the rule")?;
    let condition = |(label, value): (&String, &Value)| {
        let place = labels.inner(&format!(".{}", shortened(label)), value);
        place.check_length(label)?;
        Ok(CallCondition::Label { label: label.clone(), globs: place.globs()? })
    };
    // Sorted, since the order of a JSON object depends on a feature of its crate.
    map.iter().collect::<BTreeMap<_, _>>().into_iter().map(condition).collect()
}

/// The conditions of a list `args` by itself.
pub(super) fn argument_list(value: &Value, limits: &CallLimits) -> PolicyResult<Vec<ArgumentCondition>> {
    arguments(&PolicyPlace { value, path: ".args".to_string(), limits })
}

fn arguments(args: &PolicyPlace<'_>) -> PolicyResult<Vec<ArgumentCondition>> {
    let items =
        args.filled_list("a list such as [{ pointer = \"/path\", prefix = \"/tmp/\" }]", CONDITIONS)?;
    items.iter().enumerate().map(|(index, item)| argument(&args.item(index, item), index)).collect()
}

fn argument(condition: &PolicyPlace<'_>, place: usize) -> PolicyResult<ArgumentCondition> {
    let map = condition.object("a table such as { pointer = \"/path\", prefix = \"/tmp/\" }")?;
    condition.check_keys(map, ARGUMENT_KEYS)?;
    let at = condition.needed(map, "pointer", "write the place of the argument, such as \"/path\"")?;
    let Some(pointer) = Pointer::new(at.text()?) else {
        return at.fail(PolicyMistake::Pointer { pointer: shortened(at.text()?) });
    };
    let count = map.len() - 1;
    if count != 1 {
        return condition.fail(PolicyMistake::Comparisons { count });
    }
    let of = |key| condition.key(map, key);
    let test = if let Some(prefix) = of("prefix") {
        ArgumentTest::Prefix(prefix.text()?.to_string())
    } else if let Some(glob) = of("glob") {
        ArgumentTest::Glob(Glob::new(glob.text()?))
    } else if let Some(range) = of("range") {
        range_test(&range)?
    } else if let Some(list) = of("one_of") {
        let items = list.filled_list("a list of texts, numbers or truth values", VALUES)?;
        let scalar = |(index, item)| list.item(index, item).scalar();
        ArgumentTest::OneOf(items.iter().enumerate().map(scalar).collect::<PolicyResult<_>>()?)
    } else if let Some(value) = of("equals") {
        ArgumentTest::OneOf(vec![value.scalar()?])
    } else {
        return condition.fail(PolicyMistake::Comparisons { count: 0 });
    };
    Ok(ArgumentCondition { place, pointer, test })
}

fn range_test(range: &PolicyPlace<'_>) -> PolicyResult<ArgumentTest> {
    let map = range.filled_object("a table such as { min = 1, max = 100 }")?;
    range.check_keys(map, RANGE_KEYS)?;
    let bound = |key| range.key(map, key).map(|place| place.number()).transpose();
    let (min, max) = (bound("min")?, bound("max")?);
    match (&min, &max) {
        (Some(min), Some(max)) if number::compare(min, max).is_some_and(|order| order.is_gt()) => {
            range.fail(PolicyMistake::EmptyRange)
        }
        _ => Ok(ArgumentTest::Range { min, max }),
    }
}

/// Things that are counted, with their limit.
#[derive(Clone, Copy)]
struct CountedThings {
    things: &'static str,
    limit: &'static str,
    max: fn(&CallLimits) -> u64,
}

const RULES: CountedThings =
    CountedThings { things: "rules", limit: "policy_rules_max", max: |limits| limits.policy_rules_max };
const CONDITIONS: CountedThings = CountedThings {
    things: "conditions",
    limit: "policy_conditions_max",
    max: |limits| limits.policy_conditions_max,
};
const VALUES: CountedThings =
    CountedThings { things: "values", limit: "policy_values_max", max: |limits| limits.policy_values_max };

/// A value of the policy, with its place.
struct PolicyPlace<'a> {
    value: &'a Value,
    path: String,
    limits: &'a CallLimits,
}

impl<'a> PolicyPlace<'a> {
    fn fail<T>(&self, mistake: PolicyMistake) -> PolicyResult<T> {
        let place = match self.path.strip_prefix('.') {
            Some(path) => path.to_string(),
            None => "policy".to_string(),
        };
        Err(PolicyProblem { place, mistake })
    }

    fn inner(&self, step: &str, value: &'a Value) -> PolicyPlace<'a> {
        PolicyPlace { value, path: format!("{}{step}", self.path), limits: self.limits }
    }

    fn item(&self, index: usize, value: &'a Value) -> PolicyPlace<'a> {
        self.inner(&format!("[{index}]"), value)
    }

    fn key(&self, map: &'a Map<String, Value>, key: &str) -> Option<PolicyPlace<'a>> {
        map.get(key).map(|value| self.inner(&format!(".{key}"), value))
    }

    fn needed(
        &self,
        map: &'a Map<String, Value>,
        key: &'static str,
        advice: &'static str,
    ) -> PolicyResult<PolicyPlace<'a>> {
        match self.key(map, key) {
            Some(place) => Ok(place),
            None => self.fail(PolicyMistake::Missing { key, advice }),
        }
    }

    fn check_keys(&self, map: &Map<String, Value>, known: &'static [&'static str]) -> PolicyResult<()> {
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let nearest = nearest_name(key, known.iter().copied());
                self.fail(PolicyMistake::UnknownKey { key: shortened(key), nearest, known })
            }
        }
    }

    fn check_count(&self, count: usize, counted: CountedThings, advice: &'static str) -> PolicyResult<()> {
        let (count, max) = (count as u64, (counted.max)(self.limits));
        if count <= max {
            return Ok(());
        }
        self.fail(PolicyMistake::TooMany { count, things: counted.things, max, limit: counted.limit, advice })
    }

    fn check_length(&self, text: &str) -> PolicyResult<()> {
        let (bytes, max) = (text.len() as u64, self.limits.policy_text_bytes_max);
        if bytes <= max { Ok(()) } else { self.fail(PolicyMistake::TooLong { bytes, max }) }
    }

    fn object(&self, expected: &'static str) -> PolicyResult<&'a Map<String, Value>> {
        let Value::Object(map) = self.value else { return self.fail(PolicyMistake::Type { expected }) };
        Ok(map)
    }

    fn filled_object(&self, expected: &'static str) -> PolicyResult<&'a Map<String, Value>> {
        let map = self.object(expected)?;
        if map.is_empty() { self.fail(PolicyMistake::Empty) } else { Ok(map) }
    }

    fn list(&self, expected: &'static str) -> PolicyResult<&'a [Value]> {
        let Value::Array(items) = self.value else { return self.fail(PolicyMistake::Type { expected }) };
        Ok(items)
    }

    fn filled_list(&self, expected: &'static str, counted: CountedThings) -> PolicyResult<&'a [Value]> {
        let items = self.list(expected)?;
        if items.is_empty() {
            return self.fail(PolicyMistake::Empty);
        }
        self.check_count(items.len(), counted, "split the rule, or use a glob")?;
        Ok(items)
    }

    fn bool(&self) -> PolicyResult<bool> {
        match self.value.as_bool() {
            Some(bool) => Ok(bool),
            None => self.fail(PolicyMistake::Type { expected: "true or false" }),
        }
    }

    fn text(&self) -> PolicyResult<&'a str> {
        let Value::String(text) = self.value else {
            return self.fail(PolicyMistake::Type { expected: "a text" });
        };
        self.check_length(text)?;
        Ok(text)
    }

    fn name(&self) -> PolicyResult<&'a str> {
        let name = self.text()?;
        let is_one_line = !name.trim().is_empty() && !name.chars().any(char::is_control);
        if is_one_line { Ok(name) } else { self.fail(PolicyMistake::Name) }
    }

    fn number(&self) -> PolicyResult<Number> {
        match self.value.as_number() {
            Some(number) => Ok(number.clone()),
            None => self.fail(PolicyMistake::Type { expected: "a number" }),
        }
    }

    fn time(&self) -> PolicyResult<u64> {
        let Some(value) = self.value.as_u64() else {
            return self.fail(PolicyMistake::Type { expected: "a whole number of milliseconds" });
        };
        let max = self.limits.policy_ask_ms_max;
        if (1..=max).contains(&value) { Ok(value) } else { self.fail(PolicyMistake::Time { value, max }) }
    }

    /// A `null` is refused: every other value would be wrongly typed beside it.
    fn scalar(&self) -> PolicyResult<Scalar> {
        match self.value {
            Value::String(_) => Ok(Scalar::Text(self.text()?.to_string())),
            Value::Number(number) => Ok(Scalar::Number(number.clone())),
            Value::Bool(bool) => Ok(Scalar::Bool(*bool)),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                self.fail(PolicyMistake::Type { expected: "a text, a number, true or false" })
            }
        }
    }

    fn word<T: Copy + PartialEq + std::fmt::Display>(
        &self,
        known: &[T],
        parse: fn(&str) -> Option<T>,
    ) -> PolicyResult<T> {
        let text = self.text()?;
        match parse(text).filter(|word| known.contains(word)) {
            Some(word) => Ok(word),
            None => {
                let known =
                    known.iter().map(|word| format!("{:?}", word.to_string())).collect::<Vec<_>>().join(", ");
                self.fail(PolicyMistake::Word { text: shortened(text), known })
            }
        }
    }

    /// One word, or a list of several.
    fn words<T: Copy + PartialEq + std::fmt::Display>(
        &self,
        known: &[T],
        parse: fn(&str) -> Option<T>,
    ) -> PolicyResult<Vec<T>> {
        self.one_or_more(|place| place.word(known, parse))
    }

    /// One glob, or a list of several.
    fn globs(&self) -> PolicyResult<Globs> {
        self.one_or_more(|place| place.text().map(Glob::new)).map(Globs)
    }

    fn one_or_more<T>(&self, parse: impl Fn(&PolicyPlace<'a>) -> PolicyResult<T>) -> PolicyResult<Vec<T>> {
        if self.value.is_string() {
            return Ok(vec![parse(self)?]);
        }
        let items = self.filled_list("a text, or a list of texts", VALUES)?;
        items.iter().enumerate().map(|(index, item)| parse(&self.item(index, item))).collect()
    }
}
