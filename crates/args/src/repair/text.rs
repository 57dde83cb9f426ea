//! Text that is nearly JSON: a fence around it, commas too many, an end too early.

use super::types::Types;
use super::{ArgumentContract, Repair, RepairKind};
use crate::arguments::{Arguments, Given};
use crate::code::ArgumentCode;
use crate::json;
use serde_json::Value;

/// Reads the arguments; notes what had to be passed over.
pub(super) fn read(
    args: &Arguments,
    wanted: &ArgumentContract<'_>,
    repairs: &mut Vec<Repair>,
) -> Option<Value> {
    match args.parse(wanted.limits) {
        Ok(value) => Some(value),
        // Everything else that is wrong with a text is wrong with what was meant, too.
        Err(problem) if problem.code == ArgumentCode::InvalidJson => {
            let may_be_cut = args.given == Given::Text && wanted.takes_cut_off;
            nearly(args.text.trim_ascii(), may_be_cut, wanted, repairs)
        }
        Err(_) => None,
    }
}

/// The arguments that a string holds, if a string is not what is wanted. A string that holds no object and no array
/// holds no arguments.
pub(super) fn from_string(
    value: &Value,
    wanted: &ArgumentContract<'_>,
    repairs: &mut Vec<Repair>,
) -> Option<Value> {
    let Value::String(text) = value else { return None };
    let root = wanted.schema.map_or(Types::OBJECT, |schema| Types::at_root(schema, wanted.limits));
    if root.overlaps(Types::STRING) {
        return None;
    }
    let text = text.trim_ascii();
    let mut inner_repairs = Vec::new();
    let inner = match json::parse(text, wanted.limits) {
        Ok(inner) => Some(inner),
        // A string that ends was not cut off: whoever wrote it meant it to end there.
        Err(problem) if problem.code == ArgumentCode::InvalidJson => {
            nearly(text, false, wanted, &mut inner_repairs)
        }
        Err(_) => None,
    };
    let inner = inner.filter(|inner| inner.is_object() || inner.is_array())?;
    repairs.push(Repair::whole(RepairKind::JsonString));
    repairs.append(&mut inner_repairs);
    Some(inner)
}

fn nearly(
    text: &str,
    may_be_cut: bool,
    wanted: &ArgumentContract<'_>,
    repairs: &mut Vec<Repair>,
) -> Option<Value> {
    let (text, fenced) = match unfenced(text) {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let nearly = json::parse_nearly(text, wanted.limits)?;
    // A text whose fence was closed was not cut off.
    if nearly.cut_at.is_some() && (fenced || !may_be_cut) {
        return None;
    }
    if fenced {
        repairs.push(Repair::whole(RepairKind::Fence));
    }
    if nearly.trailing_comma {
        repairs.push(Repair::whole(RepairKind::TrailingComma));
    }
    if let Some(at) = nearly.cut_at {
        repairs.push(Repair { kind: RepairKind::CutOff, at, was: None });
    }
    Some(nearly.value)
}

/// The text between the marks of a code fence, without the word after the first one.
fn unfenced(text: &str) -> Option<&str> {
    let behind = text.trim_start_matches('`');
    let marks = text.len() - behind.len();
    let inner = behind.trim_end_matches('`');
    if marks < 3 || behind.len() - inner.len() != marks {
        return None;
    }
    let word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '+' | '.');
    Some(inner.trim_start_matches(word).trim_ascii())
}
