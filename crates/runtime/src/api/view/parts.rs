//! Parts of results and answers, as callers see them.

use super::AsWritten;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use windlass_core::outcome::{KeptBytes, Part};

/// Parts of a result, each written as a [`PartView`].
#[derive(Clone, Debug)]
pub struct Parts<'a>(pub(crate) Cow<'a, [Part]>);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(PartView::of))
    }
}

impl JsonSchema for Parts<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Parts".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<PartView<'static>>::json_schema(generator)
    }
}

/// A part of a result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "Part")]
pub enum PartView<'a> {
    /// Text.
    Text {
        /// The text.
        text: &'a str,
    },
    /// A JSON value.
    Json {
        /// The value.
        value: AsWritten<'a>,
    },
    /// An image: its bytes, or the artifact that has them.
    Image {
        /// Such as `image/png`.
        media_type: &'a str,
        /// The bytes in base64; absent if they are kept as an artifact.
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The id of the artifact that has the bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        artifact: Option<String>,
        /// How many bytes the artifact has.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// Bytes that are kept as an artifact.
    File {
        /// The id of the artifact.
        artifact: String,
        /// How many bytes it has.
        bytes: u64,
        /// Such as `text/plain`.
        media_type: &'a str,
        /// Its name.
        name: &'a str,
    },
}

impl<'a> PartView<'a> {
    fn of(part: &'a Part) -> PartView<'a> {
        match part {
            Part::Text(text) => PartView::Text { text },
            Part::Json(value) => PartView::Json { value: AsWritten(value) },
            Part::Image { media_type, data } => {
                PartView::Image { media_type, data: Some(BASE64.encode(data)), artifact: None, bytes: None }
            }
            Part::KeptImage { kept: KeptBytes { artifact, bytes }, media_type } => PartView::Image {
                media_type,
                data: None,
                artifact: Some(artifact.to_string()),
                bytes: Some(*bytes),
            },
            Part::File { kept: KeptBytes { artifact, bytes }, media_type, name } => {
                PartView::File { artifact: artifact.to_string(), bytes: *bytes, media_type, name }
            }
        }
    }
}
