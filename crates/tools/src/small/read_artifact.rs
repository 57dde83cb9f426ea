//! `read_artifact`: continues reading where an answer was cut.

mod places;

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::catalog::Deferral;
use windlass::ids::Handle;
use windlass::tool::Hints;
use windlass::tool::ToolSource;
use windlass::{Cx, EffectClass, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that reads an artifact, piece by piece.
pub(super) struct ReadArtifact;

impl Tool for ReadArtifact {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            deferral: Deferral::Never,
            name: "read_artifact".into(),
            title: "Read an artifact".into(),
            description: "Reads a piece of an artifact: output that was too long to show whole. Give the id that the \
                answer named; to read on, give the next_offset of the piece before. Instead of an offset, line begins \
                at a line, search finds lines that contain a text, and pointer reads one value of a JSON artifact. \
                Bytes that are not UTF-8 text are shown as \u{fffd}, and lossy is true."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "artifact": { "type": "string", "description": "The id of the artifact." },
                    "offset": {
                        "type": "integer",
                        "minimum": 0,
                        "default": 0,
                        "description": "The byte to start at.",
                    },
                    "limit": {
                        "type": "integer",
                        "minimum": LETTER_BYTES_MAX,
                        "description": "The most bytes to read, at least 6; never more than fit in one answer.",
                    },
                    "line": { "type": "integer", "minimum": 1, "description": "The line to begin at, instead of an offset." },
                    "search": {
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1_000,
                        "description": "A text: the lines from the offset on that contain it are shown, each with its place.",
                    },
                    "pointer": {
                        "type": "string",
                        "description": "A JSON pointer, such as /items/0/name: that value is read; offset and limit are bytes of it.",
                    },
                },
                "required": ["artifact"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "text": { "type": "string" },
                    "offset": { "type": "integer" },
                    "next_offset": { "type": ["integer", "null"] },
                    "lossy": { "type": "boolean" },
                },
                "required": ["text", "offset", "next_offset", "lossy"],
            })),
            class: Some(EffectClass::Read),
            hints: Hints {
                read_only: Some(true),
                destructive: Some(false),
                open_world: Some(false),
                sends_out: Some(false),
                ..Hints::default()
            },
            // An artifact does not change, whatever runs beside.
            claims: Some(Vec::new()),
            source: ToolSource::BuiltIn,
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: ReadArtifactArgs = super::parse(args)?;
            let artifact = args.artifact.as_str();
            let Some(handle) = Handle::parse(artifact) else {
                let message =
                    format!("{artifact:?} is no id of an artifact; take it from the answer that named it");
                return Err(ToolError::new(message));
            };
            let room = (cx.answer_bytes_max() as usize).saturating_sub(FRAME_BYTES).max(LETTER_BYTES_MAX);
            let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
            let window = Window { offset: args.offset, limit: limit.clamp(LETTER_BYTES_MAX, room), room };
            let ways = [args.line.is_some(), args.search.is_some(), args.pointer.is_some()];
            if ways.iter().filter(|way| **way).count() > 1 || args.line.is_some() && args.offset > 0 {
                return Err(ToolError::new(
                    "give one of offset, line, search and pointer; search and pointer may have an offset",
                ));
            }
            if let Some(pointer) = &args.pointer {
                let text = places::pointed(cx, handle, pointer).await?;
                return Ok(piece(text.as_bytes(), window).into());
            }
            if let Some(text) = &args.search {
                return Ok(places::search(cx, handle, window.offset, text, room).await?.into());
            }
            let window = match args.line {
                Some(line) => Window { offset: places::line(cx, handle, line).await?, ..window },
                None => window,
            };
            // One more than is shown, to know whether there is more.
            let bytes = cx.read_artifact(handle, window.offset, window.limit as u64 + 1).await?;
            Ok(page(&bytes, window).into())
        })
    }
}

/// A piece of a text in memory.
fn piece(text: &[u8], window: Window) -> Value {
    let from = usize::try_from(window.offset).unwrap_or(usize::MAX).min(text.len());
    let to = text.len().min(from.saturating_add(window.limit + 1));
    page(&text[from..to], window)
}

/// The size of the answer without the text.
const FRAME_BYTES: usize = 256;
/// The longest letter in JSON: a control character as `\u0000`. No piece is smaller, so each makes progress.
const LETTER_BYTES_MAX: usize = 6;

#[derive(Deserialize)]
struct ReadArtifactArgs {
    artifact: String,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
    line: Option<u64>,
    search: Option<String>,
    pointer: Option<String>,
}

/// The bytes to show.
#[derive(Clone, Copy)]
struct Window {
    offset: u64,
    /// The maximum of the artifact's bytes.
    limit: usize,
    /// The maximum of the answer's bytes, where a letter may take more than in the artifact.
    room: usize,
}

/// Shows what fits of `bytes`, which begin at the offset and exceed the limit if there is more.
fn page(bytes: &[u8], window: Window) -> Value {
    let Window { offset, limit, room } = window;
    let (mut text, mut lossy) = (String::new(), false);
    let (mut taken, mut used) = (0, 0);
    'pieces: for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let (len, cost) = (letter.len_utf8(), cost(letter));
            if taken + len > limit || used + cost > room {
                break 'pieces;
            }
            (taken, used) = (taken + len, used + cost);
            text.push(letter);
        }
        let broken = chunk.invalid().len();
        if broken == 0 {
            continue;
        }
        let cut_by_us = bytes.len() > limit && taken + broken == bytes.len();
        let cost = cost(char::REPLACEMENT_CHARACTER);
        if cut_by_us || taken + broken > limit || used + cost > room {
            break;
        }
        (taken, used, lossy) = (taken + broken, used + cost, true);
        text.push(char::REPLACEMENT_CHARACTER);
    }
    let next_offset = (taken < bytes.len()).then(|| offset + taken as u64);
    json!({ "text": text, "offset": offset, "next_offset": next_offset, "lossy": lossy })
}

/// The bytes of a letter in JSON.
fn cost(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        letter if letter < ' ' => LETTER_BYTES_MAX,
        letter => letter.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of it in pieces of at most `limit` bytes, as a model would.
    fn pieces(bytes: &[u8], limit: usize, room: usize) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut offset = 0;
        loop {
            let end = bytes.len().min(offset + limit + 1);
            let page = page(&bytes[offset..end], Window { offset: offset as u64, limit, room });
            pieces.push(page["text"].as_str().expect("text").to_string());
            match page["next_offset"].as_u64() {
                Some(next) => offset = next as usize,
                None => return pieces,
            }
        }
    }

    #[test]
    fn pieces_add_up_and_no_letter_is_cut() {
        assert_eq!(pieces(b"abcdefgh", 6, 100), ["abcdef", "gh"]);
        assert_eq!(pieces(b"abcdef", 6, 100), ["abcdef"]);
        assert_eq!(pieces(b"", 6, 100), [""]);
        let text = "grüße aus 東京, \u{1f980}\n";
        for limit in LETTER_BYTES_MAX..20 {
            assert_eq!(pieces(text.as_bytes(), limit, 100).concat(), text, "{limit}");
        }
    }

    #[test]
    fn what_is_no_text_says_so() {
        let page = page(b"a\xff\xfeb", Window { offset: 7, limit: 10, room: 100 });
        assert_eq!(
            page,
            json!({ "text": "a\u{fffd}\u{fffd}b", "offset": 7, "next_offset": null, "lossy": true })
        );
    }

    #[test]
    fn the_answer_never_outgrows_its_room() {
        let page = page(&[1; 100], Window { offset: 0, limit: 99, room: 60 });
        assert_eq!(page["next_offset"], 10);
        assert!(page["text"].to_string().len() <= 60 + 2);
    }
}
