//! `list_directory`: the entries of a folder.

use serde::Deserialize;
use serde_json::{Value, json};
use windlass::error::FileError;
use windlass::sessions::FileKind;
use windlass::tool::Claims;
use windlass::{Cx, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that lists folders.
pub(super) struct ListDirectory;

impl Tool for ListDirectory {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_directory".into(),
            title: "List a folder".into(),
            description: "Lists the files and folders in a folder of the session, by name; a folder's name ends in /. Long lists \
                come in pages: give the next_after of a page as after to read on. A missing folder is exists: false."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string", "maxLength": 1_024, "description": "The folder, from the session's folder, which is the default." },
                    "after": { "type": "string", "description": "Entries after this name, to read on." },
                },
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "exists": { "type": "boolean" },
                    "total": { "type": "integer" },
                    "entries": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": { "name": { "type": "string" }, "bytes": { "type": "integer" }, "kind": { "type": "string" } },
                            "required": ["name"],
                        },
                    },
                    "next_after": { "type": "string" },
                },
                "required": ["path", "exists"],
            })),
            claims: Some(vec!["read file:".into()]),
            ..super::reading()
        }
    }

    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        super::read_claims(args["path"].as_str())
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let ListArgs { path, after } = crate::small::parse(args)?;
            let path = super::normal(&path)?;
            let files = super::files_of(cx)?;
            let max = usize::try_from(cx.limits().directory_entries_max).unwrap_or(usize::MAX);
            let shown = if path.is_empty() { "." } else { &path };
            let page = match files.list_page(
                &path,
                after.as_deref().map(|after| after.trim_end_matches('/')),
                max,
            ) {
                Ok(page) => page,
                Err(FileError::NotFound { .. }) => {
                    return Ok(json!({ "path": shown, "exists": false }).into());
                }
                Err(error) => return Err(super::told(error, &files)),
            };
            let entries: Vec<Value> = page
                .entries
                .iter()
                .map(|entry| match entry.kind {
                    FileKind::File => json!({ "name": entry.name, "bytes": entry.bytes }),
                    FileKind::Folder => json!({ "name": format!("{}/", entry.name) }),
                    FileKind::Other => json!({ "name": entry.name, "kind": "link or device" }),
                })
                .collect();
            let mut told = json!({ "path": shown, "exists": true, "total": page.total, "entries": entries });
            if let Some(last) = page.entries.last().filter(|_| page.more) {
                told["next_after"] = last.name.as_str().into();
            }
            Ok(told.into())
        })
    }
}

#[derive(Deserialize)]
struct ListArgs {
    #[serde(default)]
    path: String,
    after: Option<String>,
}
