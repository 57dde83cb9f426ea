//! The parts of an answer, as texts and images that every wire has.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use windlass_core::outcome::{ModelAnswer, Part};

/// Image types that every provider takes; others are named in text.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A part of an answer that a wire can send.
pub(crate) enum WireContent<'a> {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// Such as `image/png`.
        media_type: &'a str,
        /// The bytes in base64.
        data: String,
    },
}

impl WireContent<'_> {
    /// The image as a data URL.
    pub(crate) fn data_url(media_type: &str, data: &str) -> String {
        format!("data:{media_type};base64,{data}")
    }
}

/// The parts of an answer, in order. Neighbouring texts stay apart.
pub(crate) fn contents(answer: &ModelAnswer) -> impl Iterator<Item = WireContent<'_>> {
    answer.parts.iter().map(|part| match part {
        Part::Text(text) => WireContent::Text(text.clone()),
        Part::Json(json) => WireContent::Text(json.to_string()),
        Part::Image { media_type, data } if IMAGES.contains(&media_type.as_str()) => {
            WireContent::Image { media_type, data: BASE64.encode(data) }
        }
        Part::Image { media_type, data } => WireContent::Text(format!(
            "[an image of type {media_type}, {} bytes, that cannot be shown]",
            data.len()
        )),
        Part::KeptImage { kept, media_type } => WireContent::Text(format!(
            "[an image of type {media_type}, {} bytes: artifact {}; read_artifact reads it]",
            kept.bytes, kept.artifact
        )),
        Part::File { kept, media_type, name } => WireContent::Text(format!(
            "[file {name:?} ({media_type}, {} bytes): artifact {}; read_artifact reads it]",
            kept.bytes, kept.artifact
        )),
    })
}

/// The answer as one text, for wires and roles that take no images; `on_image` gets the images left out.
pub(crate) fn text_only(answer: &ModelAnswer, mut on_image: impl FnMut(&str, String) -> String) -> String {
    let texts = contents(answer).map(|content| match content {
        WireContent::Text(text) => text,
        WireContent::Image { media_type, data } => on_image(media_type, data),
    });
    texts.collect::<Vec<_>>().join("\n")
}
