//! JSON Schema 2020-12: compiled once, behind guards that no schema can pass and still do harm; and validation that
//! tells a model what to change.

mod explain;
mod guard;
mod plain;

pub(crate) use guard::References;

use crate::code::ArgumentCode;
use crate::json::{JsonProblem, Size, shown};
use crate::limits::ArgLimits;
use guard::Explained;
use jsonschema::{Draft, PatternOptions, Validator};
use plain::PlainSchema;
use serde_json::Value;
use std::fmt;

/// A schema that passed the guards, compiled. Share it: it is never changed.
#[derive(Debug)]
pub struct Schema {
    role: SchemaRole,
    source: Value,
    validator: Validator,
    /// The fast check, if the schema is plain enough.
    plain: Option<PlainSchema>,
    bounds: guard::SchemaCost,
    problems_max: usize,
}

/// The role of a schema; decides how its problems are worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaRole {
    /// The arguments of a tool.
    Input,
    /// The result of a tool.
    Output,
    /// The answer to a question of a tool.
    Answer,
    /// The payload of an event or a signal.
    Payload,
}

impl SchemaRole {
    /// The code of a validation problem.
    pub fn code(self) -> ArgumentCode {
        match self {
            SchemaRole::Input | SchemaRole::Answer | SchemaRole::Payload => ArgumentCode::InvalidArgs,
            SchemaRole::Output => ArgumentCode::InvalidOutput,
        }
    }

    /// The whole value, in a sentence.
    fn subject(self) -> &'static str {
        match self {
            SchemaRole::Input => "the arguments",
            SchemaRole::Output => "the result",
            SchemaRole::Answer => "the answer",
            SchemaRole::Payload => "the payload",
        }
    }
}

/// A compiled pattern takes at most this much memory, so that `(a{999}){999}` is refused instead of built.
const PATTERN_BYTES_MAX: usize = 256 << 10;

impl Schema {
    /// Compiles the schema of `tool` that describes its arguments or its result.
    ///
    /// The guards run first and do not recurse: the compiler only ever meets a schema of bounded depth, size and
    /// expansion that refers to nothing outside itself.
    pub fn compile(
        schema: &Value,
        role: SchemaRole,
        tool: &str,
        limits: &ArgLimits,
    ) -> Result<Schema, SchemaRefusal> {
        let refused =
            |(pointer, what): (String, String)| SchemaRefusal { role, tool: tool.to_string(), pointer, what };
        let bounds = guard::check(schema, limits).map_err(refused)?;
        jsonschema::draft202012::meta::validate(schema)
            .map_err(|error| refused((error.instance_path().to_string(), explain::as_schema(&error))))?;
        let validator = jsonschema::options()
            .with_draft(Draft::Draft202012)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .offline()
            .build(schema)
            .map_err(|error| refused((error.instance_path().to_string(), explain::as_schema(&error))))?;
        Ok(Schema {
            role,
            source: schema.clone(),
            validator,
            plain: PlainSchema::of(schema),
            bounds,
            problems_max: usize::try_from(limits.problems_max).unwrap_or(usize::MAX).max(1),
        })
    }

    /// Checks `value`, whose size was measured before.
    #[inline]
    pub fn validate(&self, value: &Value, size: Size) -> Result<(), Invalid> {
        if size.nodes.saturating_mul(self.bounds.nodes) > self.bounds.work_max {
            return Err(self.too_much_work(size));
        }
        if self.is_valid(value) { Ok(()) } else { Err(self.explain(value, size)) }
    }

    /// Whether `value` fits, without saying why not.
    pub fn fits(&self, value: &Value, size: Size) -> bool {
        size.nodes.saturating_mul(self.bounds.nodes) <= self.bounds.work_max && self.is_valid(value)
    }

    fn is_valid(&self, value: &Value) -> bool {
        self.plain.as_ref().is_some_and(|plain| plain.fits(value)) || self.validator.is_valid(value)
    }

    /// The schema as it was written.
    pub(crate) fn source(&self) -> &Value {
        &self.source
    }

    /// The unfolded size of the schema: its subschemas with every reference followed, and the entries of their lists.
    pub fn nodes(&self) -> u64 {
        self.bounds.nodes
    }

    #[cold]
    fn explain(&self, value: &Value, size: Size) -> Invalid {
        let (mut problems, untold) = match self.bounds.explained(value, size) {
            Explained::Whole => explain::problems(self, value),
            Explained::First => (explain::first_problem(self, value), 0),
            Explained::Not => (Vec::new(), 0),
        };
        if problems.is_empty() {
            let what = "does not fit the schema, and is too large or too deeply nested to say where; send a smaller part";
            problems.push(self.whole(what.to_string(), self.role.code()));
        }
        let total = problems.len() + untold;
        if total > self.problems_max {
            // The line that counts the rest takes the place of one.
            problems.truncate(self.problems_max - 1);
        }
        let more = total - problems.len();
        Invalid { role: self.role, problems, more }
    }

    #[cold]
    fn too_much_work(&self, size: Size) -> Invalid {
        let what = format!(
            "{} values are too many to check against a schema of {} nodes; send at most {} at once",
            size.nodes,
            self.bounds.nodes,
            self.bounds.work_max / self.bounds.nodes
        );
        Invalid { role: self.role, problems: vec![self.whole(what, ArgumentCode::TooLarge)], more: 0 }
    }

    fn whole(&self, what: String, code: ArgumentCode) -> JsonProblem {
        JsonProblem { code, pointer: String::new(), position: None, what }
    }
}

/// Why a schema was not taken: for whoever registers the tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SchemaRefusal {
    /// Which of the tool's schemas.
    pub role: SchemaRole,
    /// The tool.
    pub tool: String,
    /// Where in the schema, as a JSON pointer.
    pub pointer: String,
    /// The mistake and what to do.
    pub what: String,
}

impl fmt::Display for SchemaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let which = match self.role {
            SchemaRole::Input => "input",
            SchemaRole::Output => "output",
            SchemaRole::Answer => "answer",
            SchemaRole::Payload => "payload",
        };
        write!(f, "the {which} schema of tool {} is refused", self.tool)?;
        if !self.pointer.is_empty() {
            write!(f, " at {}", shown(&self.pointer))?;
        }
        write!(f, ": {}", self.what)
    }
}

/// The problems of a value: at most `problems_max` lines for the model, always in the same order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// The role of the checked value.
    pub role: SchemaRole,
    /// The first problems.
    pub problems: Vec<JsonProblem>,
    /// How many more there are.
    pub more: usize,
}

impl Invalid {
    /// Of arguments that are no object, for a tool that takes any object.
    pub(crate) fn no_object(value: &Value) -> Invalid {
        let what = explain::no_object(value);
        let problem =
            JsonProblem { code: ArgumentCode::InvalidArgs, pointer: String::new(), position: None, what };
        Invalid { role: SchemaRole::Input, problems: vec![problem], more: 0 }
    }

    /// The code of the failure.
    pub fn code(&self) -> ArgumentCode {
        self.problems.first().map_or(self.role.code(), |problem| problem.code)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.problems.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            match problem.pointer.as_str() {
                "" => f.write_str(self.role.subject())?,
                pointer => f.write_str(&shown(pointer))?,
            }
            write!(f, ": {}", problem.what)?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more problems"),
        }
    }
}
