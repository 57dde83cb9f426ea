//! Parts of an external answer, as they are posted: the same shape in which answers show them.

use crate::problem::{Problem, ProblemCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::ids::Handle;
use windlass::outcome::{KeptBytes, Part};

/// A part of an external answer. Artifacts are uploaded first.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[schemars(rename = "PartRequest")]
pub enum PartBody {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A JSON value.
    Json {
        /// The value.
        value: Value,
    },
    /// An image: its bytes, or an artifact that has them.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<String>,
        /// The id of the artifact that has the bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        artifact: Option<String>,
    },
    /// An artifact.
    File {
        /// Its id.
        artifact: String,
        /// Such as `text/plain`.
        media_type: String,
        /// Its name.
        name: String,
    },
}

impl PartBody {
    /// The part, with the sizes of artifacts still unknown: the runtime looks them up.
    fn read(self) -> Result<Part, String> {
        Ok(match self {
            PartBody::Text { text } => Part::Text(text),
            PartBody::Json { value } => Part::Json(value.to_string().into()),
            PartBody::Image { media_type, data: Some(data), artifact: None } => {
                let data = BASE64.decode(data).map_err(|error| format!("`data` is no base64: {error}"))?;
                Part::Image { media_type, data: data.into() }
            }
            PartBody::Image { media_type, data: None, artifact: Some(artifact) } => {
                Part::KeptImage { kept: kept(&artifact)?, media_type }
            }
            PartBody::Image { .. } => return Err("give `data` or `artifact`, and not both".to_string()),
            PartBody::File { artifact, media_type, name } => {
                Part::File { kept: kept(&artifact)?, media_type, name }
            }
        })
    }
}

pub(super) fn kept(artifact: &str) -> Result<KeptBytes, String> {
    let artifact = Handle::parse(artifact).ok_or_else(|| format!("{artifact:?} is no id of an artifact"))?;
    Ok(KeptBytes { artifact, bytes: 0 })
}

/// All parts, or which one is wrong.
pub(super) fn read(parts: Vec<PartBody>) -> Result<Vec<Part>, Problem> {
    let read = parts.into_iter().enumerate().map(|(place, part)| {
        part.read().map_err(|what| Problem::new(ProblemCode::BadBody, format!("parts[{place}]: {what}")))
    });
    read.collect()
}
