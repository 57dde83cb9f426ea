//! Conditions of a rule: those about the tool, compared once for each tool, and those about the call.

use super::glob::Glob;
use super::number;
use super::{CallFacts, Finding, Ruling, ToolFacts};
use crate::tool::{EffectClass, ToolSource};
use serde_json::{Number, Value};
use std::cmp::Ordering;

/// A condition about the tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ToolCondition {
    /// Its name or stable id is one of these.
    Tool(Globs),
    /// Its origin is one of these.
    Source(Vec<ToolSource>),
    /// The MCP server or toolbox it comes from is one of these. A tool from elsewhere certainly differs.
    Server(Globs),
    /// Its effect class is one of these.
    Class(Vec<EffectClass>),
    /// One of its hints.
    Hint { hint: &'static str, wanted: bool },
}

/// A condition about the call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallCondition {
    /// The requesting principal is one of these.
    Principal(Globs),
    /// A label of the session is one of these.
    Label { label: String, globs: Globs },
    /// The turn of the batch is one of these.
    Turn(Globs),
    /// The session has read private data and untrusted content, or it has not read both.
    Exposed(bool),
    /// An argument.
    Argument(ArgumentCondition),
}

/// A condition about an argument; `place` counts those of the rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ArgumentCondition {
    pub(super) place: usize,
    pub(super) pointer: Pointer,
    pub(super) test: ArgumentTest,
}

/// Globs of which one must match.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Globs(pub(super) Vec<Glob>);

/// A JSON pointer to an argument, read once, so that following it allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pointer {
    written: String,
    steps: Vec<String>,
}

/// The comparison of an argument with the values of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ArgumentTest {
    /// It is a text that begins so.
    Prefix(String),
    /// It is a text that matches.
    Glob(Glob),
    /// It is one of these; `equals` has one.
    OneOf(Vec<Scalar>),
    /// It is a number within these bounds, both included.
    Range { min: Option<Number>, max: Option<Number> },
}

/// A value that arguments are compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Text(String),
    Number(Number),
    Bool(bool),
}

impl ToolCondition {
    pub(super) fn finding(&self, tool: &ToolFacts<'_>) -> Finding {
        match self {
            ToolCondition::Tool(globs) => Finding::of(globs.matches(tool.name) || globs.matches(tool.id)),
            ToolCondition::Source(sources) => Finding::of(sources.contains(&tool.source)),
            ToolCondition::Server(globs) => {
                Finding::of(tool.server.is_some_and(|server| globs.matches(server)))
            }
            ToolCondition::Class(classes) => Finding::of(classes.contains(&tool.class)),
            ToolCondition::Hint { hint, wanted } => {
                let stated = tool.hints.table().into_iter().find(|(name, _)| name == hint);
                match stated.and_then(|(_, stated)| stated) {
                    Some(stated) => Finding::of(stated == *wanted),
                    None => Finding::Absent,
                }
            }
        }
    }

    pub(super) fn place(&self) -> String {
        match self {
            ToolCondition::Tool(_) => "tool".to_string(),
            ToolCondition::Source(_) => "source".to_string(),
            ToolCondition::Server(_) => "server".to_string(),
            ToolCondition::Class(_) => "class".to_string(),
            ToolCondition::Hint { hint, .. } => format!("hints.{hint}"),
        }
    }
}

impl CallCondition {
    pub(super) fn finding(&self, call: &CallFacts<'_>, ruling: Ruling) -> Finding {
        let of_text = |globs: &Globs, text: Option<&str>| match text {
            Some(text) => Finding::of(globs.matches(text)),
            None => Finding::Absent,
        };
        match self {
            CallCondition::Principal(globs) => of_text(globs, call.principal),
            CallCondition::Label { label, globs } => {
                of_text(globs, call.labels.get(label).map(String::as_str))
            }
            CallCondition::Turn(globs) => of_text(globs, call.turn),
            CallCondition::Exposed(wanted) => Finding::of(call.exposure.is_both() == *wanted),
            CallCondition::Argument(condition) => condition.finding(call.args, ruling),
        }
    }

    pub(super) fn place(&self) -> String {
        match self {
            CallCondition::Principal(_) => "principal".to_string(),
            CallCondition::Label { label, .. } => format!("labels.{label}"),
            CallCondition::Turn(_) => "turn".to_string(),
            CallCondition::Exposed(_) => "exposed".to_string(),
            CallCondition::Argument(condition) => format!("args[{}]", condition.place),
        }
    }
}

impl ArgumentCondition {
    pub(super) fn finding(&self, args: &Value, ruling: Ruling) -> Finding {
        match self.pointer.find(args) {
            None => Finding::Absent,
            Some(Value::Array(items)) => self.test.of_array(items, ruling),
            Some(value) => self.test.of_value(value),
        }
    }
}

impl Pointer {
    /// By RFC 6901; `None` if the text is not such a pointer. The empty one is refused too: it points at all arguments, an
    /// object, which no condition compares.
    pub(super) fn new(written: &str) -> Option<Pointer> {
        let is_escaped = written.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        let steps = written.strip_prefix('/').filter(|_| is_escaped)?.split('/');
        let steps = steps.map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        Some(Pointer { written: written.to_string(), steps })
    }

    fn find<'a>(&self, args: &'a Value) -> Option<&'a Value> {
        self.steps.iter().try_fold(args, |value, step| match value {
            Value::Object(map) => map.get(step),
            Value::Array(items) => items.get(index(step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

/// A place in an array: digits, without a zero before them.
fn index(step: &str) -> Option<usize> {
    let is_plain = step == "0" || !step.starts_with(['0', '+']);
    step.parse().ok().filter(|_| is_plain)
}

impl ArgumentTest {
    /// `allow` needs every element, `ask` and `deny` any; an empty array matches nothing.
    fn of_array(&self, items: &[Value], ruling: Ruling) -> Finding {
        let mut findings = items.iter().map(|item| self.of_value(item));
        if items.is_empty() {
            return Finding::Differs;
        }
        if ruling == Ruling::Allow {
            findings.find(|finding| *finding != Finding::Matches).unwrap_or(Finding::Matches)
        } else {
            findings.find(|finding| finding.holds(ruling)).unwrap_or(Finding::Differs)
        }
    }

    fn of_value(&self, value: &Value) -> Finding {
        match (self, value) {
            (ArgumentTest::Prefix(prefix), Value::String(text)) => Finding::of(text.starts_with(prefix)),
            (ArgumentTest::Glob(glob), Value::String(text)) => Finding::of(glob.matches(text)),
            (ArgumentTest::Range { min, max }, Value::Number(number)) => {
                within(number, min.as_ref(), max.as_ref())
            }
            (ArgumentTest::OneOf(wanted), value) => one_of(value, wanted),
            (ArgumentTest::Prefix(_) | ArgumentTest::Glob(_) | ArgumentTest::Range { .. }, _) => {
                Finding::Mistyped
            }
        }
    }
}

fn within(number: &Number, min: Option<&Number>, max: Option<&Number>) -> Finding {
    let order = |bound: Option<&Number>, inside: Ordering| match bound {
        None => Some(inside),
        Some(bound) => number::compare(number, bound),
    };
    match (order(min, Ordering::Greater), order(max, Ordering::Less)) {
        (Some(from_min), Some(from_max)) => Finding::of(from_min.is_ge() && from_max.is_le()),
        _ => Finding::Mistyped,
    }
}

/// A value with the type of none of the wanted ones is wrongly typed.
fn one_of(value: &Value, wanted: &[Scalar]) -> Finding {
    let compared = wanted.iter().filter_map(|wanted| match (wanted, value) {
        (Scalar::Text(wanted), Value::String(text)) => Some(wanted == text),
        (Scalar::Bool(wanted), Value::Bool(bool)) => Some(wanted == bool),
        (Scalar::Number(wanted), Value::Number(number)) => {
            number::compare(wanted, number).map(Ordering::is_eq)
        }
        _ => None,
    });
    let mut finding = Finding::Mistyped;
    for is_equal in compared {
        if is_equal {
            return Finding::Matches;
        }
        finding = Finding::Differs;
    }
    finding
}

impl Globs {
    fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(text))
    }
}

impl std::fmt::Display for Globs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        alternatives(f, self.0.iter().map(|glob| format!("{:?}", glob.written())))
    }
}

impl std::fmt::Display for ToolCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ToolCondition::Tool(globs) => write!(f, "the tool is {globs}"),
            ToolCondition::Source(sources) => {
                f.write_str("the tool's source is ")?;
                alternatives(f, sources)
            }
            ToolCondition::Server(globs) => write!(f, "the tool's server is {globs}"),
            ToolCondition::Class(classes) => {
                f.write_str("the tool's class is ")?;
                alternatives(f, classes)
            }
            ToolCondition::Hint { hint, wanted } => write!(f, "the tool's hint {hint} is {wanted}"),
        }
    }
}

impl std::fmt::Display for CallCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallCondition::Principal(globs) => write!(f, "the principal is {globs}"),
            CallCondition::Label { label, globs } => write!(f, "the session's label {label:?} is {globs}"),
            CallCondition::Turn(globs) => write!(f, "the turn is {globs}"),
            CallCondition::Exposed(true) => {
                f.write_str("the session has read private data and untrusted content")
            }
            CallCondition::Exposed(false) => {
                f.write_str("the session has not read both private data and untrusted content")
            }
            CallCondition::Argument(condition) => write!(f, "{condition}"),
        }
    }
}

impl std::fmt::Display for ArgumentCondition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the argument {:?} {}", self.pointer.written, self.test)
    }
}

impl std::fmt::Display for ArgumentTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArgumentTest::Prefix(prefix) => write!(f, "begins with {prefix:?}"),
            ArgumentTest::Glob(glob) => write!(f, "matches {:?}", glob.written()),
            ArgumentTest::OneOf(wanted) => {
                f.write_str("is ")?;
                alternatives(f, wanted)
            }
            ArgumentTest::Range { min: Some(min), max: Some(max) } => write!(f, "is between {min} and {max}"),
            ArgumentTest::Range { min: Some(min), max: None } => write!(f, "is at least {min}"),
            ArgumentTest::Range { min: None, max: Some(max) } => write!(f, "is at most {max}"),
            ArgumentTest::Range { min: None, max: None } => f.write_str("is a number"),
        }
    }
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Text(text) => write!(f, "{text:?}"),
            Scalar::Number(number) => write!(f, "{number}"),
            Scalar::Bool(bool) => write!(f, "{bool}"),
        }
    }
}

/// `a, b or c`.
fn alternatives<T: std::fmt::Display>(
    f: &mut std::fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
) -> std::fmt::Result {
    let items = items.into_iter();
    let count = items.len();
    for (place, item) in items.enumerate() {
        let before = if place == 0 {
            ""
        } else if place + 1 == count {
            " or "
        } else {
            ", "
        };
        write!(f, "{before}{item}")?;
    }
    Ok(())
}
