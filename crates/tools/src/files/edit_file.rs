//! `edit_file`: replaces parts of a file that are named by their text.

use super::diff;
use super::edit::{TextEdit, apply};
use super::seen::SeenContents;
use super::write_file;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::outcome::Part;
use windlass::sessions::{ContentHash, FileExpectation, SessionFiles};
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that edits files.
pub(super) struct EditFile {
    pub(super) seen: Arc<SeenContents>,
}

impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        let edit = json!({
            "type": "object",
            "properties": {
                "old_text": { "type": "string", "description": "The text to replace, exactly as it is in the file." },
                "new_text": { "type": "string", "description": "The text it becomes." },
            },
            "required": ["old_text", "new_text"],
            "additionalProperties": false,
        });
        ToolSpec {
            name: "edit_file".into(),
            title: "Edit a file".into(),
            description: "Replaces text in a file of the session: one old_text with new_text, or several edits at once. Each \
                old_text must be in the file exactly once (without line numbers; add lines around it if it is there more \
                often). expected_hash is the hash that read_file, write_file or edit_file told last: a file that was changed \
                since is not edited. All edits are made or none; line endings are kept. The answer is a diff and the new hash."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": super::path_schema("The file, from the session's folder: src/main.rs."),
                    "expected_hash": { "type": "string", "description": "The hash of the content that the edits are for." },
                    "old_text": { "type": "string", "description": "The text to replace, exactly as it is in the file." },
                    "new_text": { "type": "string", "description": "The text it becomes." },
                    "edits": { "type": "array", "minItems": 1, "maxItems": EDITS_MAX, "items": edit, "description": "Several replacements, instead of old_text and new_text." },
                },
                "required": ["path", "expected_hash"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "hash": { "type": "string" },
                    "bytes": { "type": "integer" },
                    "lines": { "type": "array", "items": { "type": "integer" } },
                },
                "required": ["path", "hash", "bytes", "lines"],
            })),
            claims: Some(vec!["write file:/{path}".into()]),
            ..super::changing()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: EditFileArgs = crate::small::parse(args)?;
            let path = super::file_path(&args.path)?;
            let FileExpectation::Content(expected) = write_file::expectation(Some(&args.expected_hash))?
            else {
                return Err(super::invalid("a file that is absent cannot be edited; use write_file".into()));
            };
            let edits = args.edits()?;
            let files = super::files_of(cx)?;
            let place = EditPlace { cx, files: &files, path: &path, expected, edits: &edits };
            let mut content = None;
            // Recorded first: after a crash this says which content the file has if the edit was made.
            let plan: EditPlan = cx
                .step("plan", &path, |_| async {
                    let (plan, new) = self.plan(&place)?;
                    content = Some(new);
                    Ok(plan)
                })
                .await?;
            let Some(new) = ContentHash::parse(&plan.hash) else {
                return Err(ToolError::internal("the plan of an edit has no hash"));
            };
            let written = cx.step("write", &plan.hash, |_| async {
                let content = match content {
                    Some(content) => content,
                    // An earlier attempt may have written it.
                    None if files.hash(&path).is_ok_and(|found| found == new) => return Ok(()),
                    None => self.plan(&place)?.1,
                };
                write_file::write(&files, &path, content.as_bytes(), FileExpectation::Content(expected), new)
            });
            written.await?;
            let value = json!({ "path": path, "hash": plan.hash, "bytes": plan.bytes, "lines": plan.lines });
            Ok(Output { value, parts: vec![Part::Text(plan.diff)], ..Output::default() })
        })
    }
}

/// More edits are another file.
const EDITS_MAX: usize = 100;
/// The part of an answer that a diff takes at most.
const DIFF_BYTES_MAX: usize = 16 << 10;

#[derive(Deserialize)]
struct EditFileArgs {
    path: String,
    expected_hash: String,
    old_text: Option<String>,
    new_text: Option<String>,
    edits: Option<Vec<TextEdit>>,
}

impl EditFileArgs {
    fn edits(self) -> Result<Vec<TextEdit>, ToolError> {
        match (self.old_text, self.new_text, self.edits) {
            (Some(old_text), Some(new_text), None) => Ok(vec![TextEdit { old_text, new_text }]),
            (None, None, Some(edits)) => Ok(edits),
            _ => Err(super::invalid("give old_text and new_text, or edits, and not both".into())),
        }
    }
}

/// An edit that will be made.
#[derive(Debug, Deserialize, Serialize)]
struct EditPlan {
    /// The hash of the new content.
    hash: String,
    bytes: u64,
    lines: Vec<u64>,
    diff: String,
}

struct EditPlace<'a> {
    cx: &'a Cx,
    files: &'a SessionFiles,
    path: &'a str,
    expected: ContentHash,
    edits: &'a [TextEdit],
}

impl EditFile {
    /// The plan of an edit, and the new content.
    fn plan(&self, place: &EditPlace<'_>) -> Result<(EditPlan, String), ToolError> {
        let EditPlace { cx, path, expected, edits, .. } = *place;
        let text = self.current(place)?;
        let found = ContentHash::of(text.as_bytes());
        if found != expected {
            return Err(self.stale(place, &text, found));
        }
        let edited = apply(&text, edits).map_err(|problem| super::coded(problem.code, problem.message))?;
        let max = cx.limits().file_hashed_bytes_max;
        if edited.text.len() as u64 > max {
            let message = format!("the file would have more than {max} bytes, and could not be edited again");
            return Err(super::coded("too_large", message));
        }
        let room = (cx.answer_bytes_max() as usize / 2).min(DIFF_BYTES_MAX);
        let plan = EditPlan {
            hash: ContentHash::of(edited.text.as_bytes()).to_string(),
            bytes: edited.text.len() as u64,
            lines: edited.lines,
            diff: diff::unified(path, &text, &edited.text, room),
        };
        for text in [&text, &edited.text] {
            self.seen.note(cx.session(), ContentHash::of(text.as_bytes()), text);
        }
        Ok((plan, edited.text))
    }

    fn current(&self, place: &EditPlace<'_>) -> Result<String, ToolError> {
        let EditPlace { cx, files, path, .. } = *place;
        let max = cx.limits().file_hashed_bytes_max;
        let told = |error| super::told(error, files);
        let content = files.read_at(path, 0, max + 1).map_err(told)?;
        if content.len() as u64 > max {
            let message = format!(
                "{} has more than {max} bytes and cannot be edited; replace it with write_file",
                super::shown(path)
            );
            return Err(super::coded("too_large", message));
        }
        String::from_utf8(content).map_err(|_| {
            let message = format!(
                "{} is not UTF-8 text and cannot be edited; replace it with write_file",
                super::shown(path)
            );
            super::coded("no_text", message)
        })
    }

    /// The failure for a file that is not what the edit is for: what has changed, and whether the edit would still be possible.
    fn stale(&self, place: &EditPlace<'_>, text: &str, found: ContentHash) -> ToolError {
        let EditPlace { cx, path, expected, edits, .. } = *place;
        let still = match apply(text, edits) {
            Ok(edited) => {
                let lines: Vec<String> = edited.lines.iter().map(u64::to_string).collect();
                format!("old_text is still there once, at line {}", lines.join(", "))
            }
            Err(problem) => problem.message,
        };
        let mut message = format!(
            "{} was changed: expected_hash is {expected}, and its hash is {found} now; {still}",
            super::shown(path)
        );
        match self.seen.get(cx.session(), expected) {
            Some(old) => {
                message.push_str("; look at the change and edit with the new hash. What has changed:\n");
                message.push_str(&diff::unified(path, &old, text, STALE_DIFF_BYTES_MAX));
            }
            None => message.push_str("; read the file again and edit with the new hash"),
        }
        super::coded("stale", message)
    }
}

/// The maximum length of a diff in a message.
const STALE_DIFF_BYTES_MAX: usize = 3_000;
