//! How a call ends, and the parts an answer is made of.

use crate::failure::{Failure, named};
use crate::handle::Handle;
use std::sync::Arc;

/// JSON text as it was recorded: cheap to share, never parsed again on its way out.
pub type JsonText = Arc<str>;

/// How a call ended. Every call gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The tool did its work.
    Succeeded(Success),
    /// It did not.
    Failed(Box<Failure>),
    /// It was not allowed.
    Denied {
        /// Why, for the model.
        reason: String,
    },
    /// It was stopped.
    Cancelled {
        /// What it had done by then.
        effect: Effect,
    },
    /// It is not known whether it took effect.
    Unknown,
}

named! {
    /// What a cancelled call had done: we never state what we do not know.
    Effect {
        /// Nothing.
        None = "none",
        /// All of it.
        Landed = "landed",
        /// Not known.
        Unknown = "unknown",
    }
}

/// What a tool returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// The value, as compact JSON.
    pub value: Value,
    /// What cannot be said in JSON: images, files.
    pub parts: Vec<Part>,
}

/// A value, in the journal or beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Compact JSON.
    Inline(JsonText),
    /// Too long for an answer, and kept as an artifact.
    Kept {
        /// Where.
        kept: Kept,
        /// What the bytes there are.
        form: Form,
    },
}

named! {
    /// What the bytes of a kept value are.
    Form {
        /// Its compact JSON.
        Json = "json",
        /// The string that it is; a tool's output may hold bytes that are no UTF-8.
        Text = "text",
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::Inline("null".into())
    }
}

/// Bytes kept beside the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The name by which they can be read.
    pub artifact: Handle,
    /// How many there are.
    pub bytes: u64,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text for the model.
    Text(String),
    /// JSON for the model.
    Json(JsonText),
    /// An image, sent natively where the wire can.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes of the file.
        data: Arc<[u8]>,
    },
    /// Bytes kept as an artifact.
    File {
        /// Where they are.
        kept: Kept,
        /// Such as `text/plain`.
        media_type: String,
        /// What to call it.
        name: String,
    },
}

/// What the model sees of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The pieces, in order.
    pub parts: Vec<Part>,
    /// Whether wires that can should flag it as an error.
    pub is_error: bool,
}

impl Outcome {
    /// The state of a call that ended so.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Succeeded(_) => "succeeded",
            Outcome::Failed(_) => "failed",
            Outcome::Denied { .. } => "denied",
            Outcome::Cancelled { .. } => "cancelled",
            Outcome::Unknown => "unknown",
        }
    }
}
