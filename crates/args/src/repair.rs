//! Arguments that do not fit, made to fit where only one thing can have been meant. Nothing else is guessed.
//!
//! The repairs, and nothing besides (`docs/repair.md` shows each):
//!
//! - the text: JSON in a code fence, commas before closing brackets, the arguments as a JSON string, and for tools of
//!   class `read` an object that was cut off;
//! - the value: a string that is exactly the number or boolean that is wanted, one value where an array is wanted, null
//!   for an optional property, a property name that differs in case or separators only.
//!
//! A repair is made only where the schema is certainly violated, and all of them are kept only if the whole value then
//! fits. What cannot be decided is left alone, and the model is told of its own mistake, never of ours. The result
//! depends on nothing but the arguments, the schema, the class and the limits.

mod places;
mod text;
mod types;
mod walk;

use crate::arguments::Arguments;
use crate::code::ArgumentCode;
use crate::json::{self, Size};
use crate::limits::ArgLimits;
use crate::named;
use crate::schema::{Invalid, Schema};
use serde_json::Value;
use std::fmt;

/// The contract of arguments.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentContract<'a> {
    /// The input schema of the tool; none means any object.
    pub schema: Option<&'a Schema>,
    /// Whether the complete part of a text that was cut off is taken: only for tools of class `read`.
    pub takes_cut_off: bool,
    /// The limits in force.
    pub limits: &'a ArgLimits,
}

/// Arguments that fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The value that runs.
    pub value: Value,
    /// Its size.
    pub size: Size,
    /// The repairs, in the order in which they were made; empty if the value fitted as it was.
    pub repairs: Vec<Repair>,
}

/// Why arguments were not taken. Written for the model, in at most `problems_max` lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// They are no JSON that can be taken.
    #[error(transparent)]
    Json(#[from] json::JsonProblem),
    /// They do not fit the schema.
    #[error(transparent)]
    Schema(#[from] Invalid),
}

impl Unfit {
    /// The code of the failure.
    pub fn code(&self) -> ArgumentCode {
        match self {
            Unfit::Json(problem) => problem.code,
            Unfit::Schema(invalid) => invalid.code(),
        }
    }
}

named! {
    /// The kind of a repair.
    RepairKind {
        /// The text stood in a code fence.
        Fence = "fence",
        /// There were commas before closing brackets or behind the end.
        TrailingComma = "trailing_comma",
        /// The text ended too early; what was complete is used.
        CutOff = "cut_off",
        /// The arguments were a string that holds JSON.
        JsonString = "json_string",
        /// A property had another spelling.
        Name = "name",
        /// An optional property was null.
        Null = "null",
        /// A string was exactly the number that is wanted.
        Number = "number",
        /// A string was exactly the boolean that is wanted.
        Boolean = "boolean",
        /// One value stood where an array is wanted.
        Array = "array",
    }
}

/// One thing that was changed. Recorded with the call; its `Display` is one line for people and models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// The kind of the repair.
    pub kind: RepairKind,
    /// Where, as a JSON pointer into the value that runs. For [`RepairKind::Null`] and [`RepairKind::CutOff`], where
    /// the value would be that was left out or came last. Empty means the whole.
    pub at: String,
    /// For [`RepairKind::Name`], the name as it was given.
    pub was: Option<String>,
}

impl Repair {
    fn whole(kind: RepairKind) -> Repair {
        Repair { kind, at: String::new(), was: None }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = if self.at.is_empty() { "the arguments".into() } else { json::shown(&self.at) };
        match self.kind {
            RepairKind::Fence => write!(f, "{at}: taken out of a code fence"),
            RepairKind::TrailingComma => write!(f, "{at}: trailing commas were dropped"),
            RepairKind::CutOff => write!(f, "{at}: the text ended here; only what was complete was used"),
            RepairKind::JsonString => write!(f, "{at}: read from the JSON in a string"),
            RepairKind::Name => {
                let was = json::shown(self.was.as_deref().unwrap_or_default());
                write!(f, "{at}: given as \"{was}\"")
            }
            RepairKind::Null => write!(f, "{at}: null was left out"),
            RepairKind::Number => write!(f, "{at}: the string was read as a number"),
            RepairKind::Boolean => write!(f, "{at}: the string was read as true or false"),
            RepairKind::Array => write!(f, "{at}: the value was put into an array"),
        }
    }
}

/// Parses and checks arguments, and repairs them if they do not fit.
///
/// Arguments that fit are parsed, measured and validated once, and nothing more. What cannot be repaired is told as it
/// was found, as if there were no repair; only then is it put into words, which takes far longer than a repair.
pub fn fit(args: &Arguments, wanted: &ArgumentContract<'_>) -> Result<Fit, Unfit> {
    let parsed = args
        .parse(wanted.limits)
        .and_then(|value| json::measure(&value, wanted.limits).map(|size| (value, size)));
    let (value, size) = match parsed {
        Ok((value, size)) if fits(&value, size, wanted) => {
            return Ok(Fit { value, size, repairs: Vec::new() });
        }
        Ok(unfit) => unfit,
        Err(problem) => return repaired(args, wanted).ok_or(Unfit::Json(problem)),
    };
    if let Some(fit) = repaired(args, wanted) {
        return Ok(fit);
    }
    check(&value, size, wanted)?;
    Ok(Fit { value, size, repairs: Vec::new() })
}

/// Whether a value fits as it is, without saying why not.
#[inline]
pub fn fits(value: &Value, size: Size, wanted: &ArgumentContract<'_>) -> bool {
    match wanted.schema {
        Some(schema) => schema.fits(value, size),
        None => value.is_object(),
    }
}

/// Checks a value as it is, and says why it does not fit.
pub fn check(value: &Value, size: Size, wanted: &ArgumentContract<'_>) -> Result<(), Unfit> {
    match wanted.schema {
        Some(schema) => Ok(schema.validate(value, size)?),
        None if value.is_object() => Ok(()),
        None => Err(Invalid::no_object(value).into()),
    }
}

/// Makes arguments fit that do not, or returns none if that cannot be done without guessing. Never changes arguments
/// that fit: of those it returns none, too.
#[cold]
pub fn repaired(args: &Arguments, wanted: &ArgumentContract<'_>) -> Option<Fit> {
    let mut repairs = Vec::new();
    let mut value = text::read(args, wanted, &mut repairs)?;
    if let Some(size) = fitting(&value, wanted) {
        return (!repairs.is_empty()).then_some(Fit { value, size, repairs });
    }
    if let Some(inner) = text::from_string(&value, wanted, &mut repairs) {
        value = inner;
        if let Some(size) = fitting(&value, wanted) {
            return Some(Fit { value, size, repairs });
        }
    }
    walk::repair(&mut value, wanted, &mut repairs)?;
    let size = fitting(&value, wanted)?;
    (!repairs.is_empty()).then_some(Fit { value, size, repairs })
}

/// The size of a value that fits.
fn fitting(value: &Value, wanted: &ArgumentContract<'_>) -> Option<Size> {
    let size = json::measure(value, wanted.limits).ok()?;
    fits(value, size, wanted).then_some(size)
}
