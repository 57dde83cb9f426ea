//! Why an operation does not match a body's request.

use super::Kind;
use std::fmt;
use windlass_args::canonical;

/// The maximum number of differences in a divergence.
const DIFFERENCES_MAX: usize = 8;

/// Why an operation does not match the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Another kind of operation has its name.
    OtherKind {
        /// The recorded kind.
        recorded: Kind,
    },
    /// The input differs.
    OtherInput {
        /// The JSON pointers that differ, the first few.
        pointers: Vec<String>,
        /// The recorded and the given value, for the first of them.
        first: Option<(String, String)>,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::OtherKind { recorded } => write!(f, "a {recorded} is recorded under this name"),
            Mismatch::OtherInput { pointers, first } => {
                let places: Vec<&str> =
                    pointers.iter().map(|place| if place.is_empty() { "the whole" } else { place }).collect();
                write!(f, "its input differs from the recorded one at {}", places.join(", "))?;
                match first {
                    Some((recorded, given)) => write!(f, ": recorded is {recorded}, given is {given}"),
                    None => Ok(()),
                }
            }
        }
    }
}

pub(super) fn other_input(recorded: &str, given: &str) -> Mismatch {
    let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    let (Some(ours), Some(theirs)) = (parse(recorded), parse(given)) else {
        return Mismatch::OtherInput { pointers: vec![String::new()], first: None };
    };
    let pointers = canonical::differences(&ours, &theirs, DIFFERENCES_MAX);
    let first = pointers.first().map(|pointer| (shown(&ours, pointer), shown(&theirs, pointer)));
    Mismatch::OtherInput { pointers, first }
}

/// The value at a place, shortened for people.
fn shown(value: &serde_json::Value, pointer: &str) -> String {
    /// Enough to recognise a value.
    const SHOWN_CHARS: usize = 64;
    let text = value.pointer(pointer).map_or_else(|| "nothing".to_string(), serde_json::Value::to_string);
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
