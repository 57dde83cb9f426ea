//! The outcomes of calls, and the parts of an answer.

use crate::failure::Failure;
use crate::handle::Handle;
use std::sync::Arc;
use windlass_args::named;

/// JSON text as recorded: cheap to share, never parsed again on its way out.
pub type JsonText = Arc<str>;

/// The outcome of a call. Every call gets exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The tool succeeded.
    Succeeded(Success),
    /// It failed.
    Failed(Box<Failure>),
    /// It was denied.
    Denied {
        /// The reason, for the model.
        reason: String,
    },
    /// It was cancelled.
    Cancelled {
        /// Its effect by then.
        effect: Effect,
    },
    /// It is not known whether it took effect.
    Unknown,
}

named! {
    /// The effect of a cancelled call, as far as it is known.
    Effect {
        /// Nothing.
        None = "none",
        /// All of it.
        Landed = "landed",
        /// Not known.
        Unknown = "unknown",
    }
}

/// A tool's result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Success {
    /// The value, as compact JSON.
    pub value: Value,
    /// Parts that JSON cannot express, in the order in which the model gets them.
    pub parts: Vec<Part>,
    /// The side output; most results have none.
    pub side: Option<Box<SideOutput>>,
}

/// Every call copies its result once, and most have a value alone.
impl Clone for Success {
    #[inline]
    fn clone(&self) -> Success {
        let parts = if self.parts.is_empty() { Vec::new() } else { self.parts.clone() };
        Success { value: self.value.clone(), parts, side: self.side.clone() }
    }
}

/// Output of a tool that is not for the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideOutput {
    /// The stored raw output from which the tool made its result.
    pub raw: Option<KeptBytes>,
    /// The tool's word to the host, as JSON. Windlass records it, shows it, and never acts on it.
    pub control: Option<JsonText>,
}

/// A value, in the journal or beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Compact JSON.
    Inline(JsonText),
    /// Too long for an answer, and stored as an artifact.
    Kept {
        /// The stored bytes.
        kept: KeptBytes,
        /// Their form.
        form: Form,
    },
}

named! {
    /// The form of a stored value.
    Form {
        /// Its compact JSON.
        Json = "json",
        /// The string itself; a tool's output may hold bytes that are not UTF-8.
        Text = "text",
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::Inline("null".into())
    }
}

/// Bytes stored beside the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBytes {
    /// Their name.
    pub artifact: Handle,
    /// Their number.
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
    /// An image stored as an artifact, sent natively where the wire can.
    KeptImage {
        /// The stored bytes.
        kept: KeptBytes,
        /// Such as `image/png`.
        media_type: String,
    },
    /// Bytes stored as an artifact.
    File {
        /// The stored bytes.
        kept: KeptBytes,
        /// Such as `text/plain`.
        media_type: String,
        /// Its file name.
        name: String,
    },
}

impl Part {
    /// Whether models take images of this media type.
    pub fn is_image(media_type: &str) -> bool {
        matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
    }

    /// The stored bytes that the part names, if it names any.
    pub fn kept(&self) -> Option<KeptBytes> {
        match self {
            Part::KeptImage { kept, .. } | Part::File { kept, .. } => Some(*kept),
            Part::Text(_) | Part::Json(_) | Part::Image { .. } => None,
        }
    }

    /// The text of the part, if it has any.
    pub fn text(&self) -> Option<&str> {
        match self {
            Part::Text(text) => Some(text),
            Part::Json(json) => Some(json),
            Part::Image { .. } | Part::KeptImage { .. } | Part::File { .. } => None,
        }
    }
}

/// The model's view of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelAnswer {
    /// The pieces, in order.
    pub parts: Vec<Part>,
    /// Whether wires that can should flag it as an error.
    pub is_error: bool,
}

impl Outcome {
    /// The state of a call with this outcome.
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
