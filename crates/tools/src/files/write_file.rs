//! `write_file`: writes a whole file.

use super::seen::SeenContents;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::error::FileError;
use windlass::sessions::{ContentHash, FileExpectation, FileKind, SessionFiles};
use windlass::{Cx, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that writes files.
pub(super) struct WriteFile {
    pub(super) seen: Arc<SeenContents>,
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".into(),
            title: "Write a file".into(),
            description: "Writes a whole file of the session and creates its folders; an existing file is replaced. To change a \
                part of a file use edit_file. With expected_hash (from read_file) the file is written only if nobody has \
                changed it since."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": super::path_schema("The file, from the session's folder: src/main.rs."),
                    "content": { "type": "string", "description": "The whole new content." },
                    "encoding": {
                        "enum": ["utf-8", "base64"],
                        "default": "utf-8",
                        "description": "How the content is given: as text, or as base64 for bytes that are no text.",
                    },
                    "expected_hash": {
                        "type": "string",
                        "description": "The hash of the content that is to be replaced, or \"absent\" if the file must not exist yet.",
                    },
                },
                "required": ["path", "content"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "result": { "enum": ["created", "overwritten", "unchanged"] },
                    "bytes": { "type": "integer" },
                    "hash": { "type": "string" },
                },
                "required": ["path", "result", "bytes", "hash"],
            })),
            claims: Some(vec!["write file:/{path}".into()]),
            ..super::changing()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: WriteFileArgs = crate::small::parse(args)?;
            let path = super::file_path(&args.path)?;
            let content = content(args.content, args.encoding)?;
            let expected = expectation(args.expected_hash.as_deref())?;
            let files = super::files_of(cx)?;
            let hash = ContentHash::of(&content);
            // Recorded first: whoever writes again after a crash knows what was there before.
            let before: FileBefore =
                cx.step("look", &path, |path| async { before(&files, path, expected, hash) }).await?;
            let written = cx.step("write", hash.to_string(), |_| async {
                if before == FileBefore::Same {
                    return Ok(());
                }
                write(&files, &path, &content, expected, hash)
            });
            written.await?;
            if let Ok(text) = str::from_utf8(&content) {
                self.seen.note(cx.session(), hash, text);
            }
            let result = match before {
                FileBefore::Absent => "created",
                FileBefore::Other => "overwritten",
                FileBefore::Same => "unchanged",
            };
            let bytes = content.len();
            Ok(json!({ "path": path, "result": result, "bytes": bytes, "hash": hash.to_string() }).into())
        })
    }
}

#[derive(Deserialize)]
struct WriteFileArgs {
    path: String,
    content: String,
    #[serde(default)]
    encoding: ContentEncoding,
    expected_hash: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum ContentEncoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// The state of a file before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
enum FileBefore {
    Absent,
    Other,
    /// It has the new content already.
    Same,
}

fn content(content: String, encoding: ContentEncoding) -> Result<Vec<u8>, ToolError> {
    match encoding {
        ContentEncoding::Utf8 => Ok(content.into_bytes()),
        ContentEncoding::Base64 => BASE64_STANDARD.decode(content.trim()).map_err(|error| {
            super::invalid(format!(
                "the content is not base64 ({error}); encode it, or leave encoding out for text"
            ))
        }),
    }
}

/// The expectation that the model names.
pub(super) fn expectation(given: Option<&str>) -> Result<FileExpectation, ToolError> {
    match given {
        None => Ok(FileExpectation::Anything),
        Some("absent") => Ok(FileExpectation::Absent),
        Some(hash) => match ContentHash::parse(hash) {
            Some(hash) => Ok(FileExpectation::Content(hash)),
            None => Err(super::invalid(format!(
                "expected_hash is {hash:?}; give the 32 digits from read_file, write_file or edit_file, or \"absent\" for a new file"
            ))),
        },
    }
}

fn before(
    files: &SessionFiles,
    path: &str,
    expected: FileExpectation,
    new: ContentHash,
) -> Result<FileBefore, ToolError> {
    let told = |error| super::told(error, files);
    let found = match files.stat(path).map_err(told)? {
        None => None,
        Some(stat) if stat.kind == FileKind::Folder => {
            let message = format!("{} is a folder; name a file in it", super::shown(path));
            return Err(super::coded("is_folder", message));
        }
        Some(stat) if stat.kind == FileKind::Other => {
            let message =
                format!("{} is a link or a device, not a file; delete it first", super::shown(path));
            return Err(super::coded("no_file", message));
        }
        Some(_) => Some(files.hash(path).map_err(told)?),
    };
    let is_as_expected = match (expected, found) {
        (FileExpectation::Anything, _) | (FileExpectation::Absent, None) => true,
        (FileExpectation::Content(hash), Some(found)) => hash == found,
        (FileExpectation::Absent, Some(_)) | (FileExpectation::Content(_), None) => false,
    };
    if !is_as_expected {
        return Err(stale(FileError::Changed { path: path.to_string(), expected, found }, files));
    }
    Ok(match found {
        None => FileBefore::Absent,
        Some(found) if found == new => FileBefore::Same,
        Some(_) => FileBefore::Other,
    })
}

/// Writes the file, unless an earlier attempt did.
pub(super) fn write(
    files: &SessionFiles,
    path: &str,
    content: &[u8],
    expected: FileExpectation,
    new: ContentHash,
) -> Result<(), ToolError> {
    match files.write_if(path, content, expected) {
        Ok(_) => Ok(()),
        Err(FileError::Changed { found: Some(found), .. }) if found == new => Ok(()),
        Err(error) => Err(stale(error, files)),
    }
}

/// A failure of a change, which a stale hash has a code for.
pub(super) fn stale(error: FileError, files: &SessionFiles) -> ToolError {
    match matches!(error, FileError::Changed { .. }) {
        true => super::coded("stale", error.to_string()),
        false => super::told(error, files),
    }
}
