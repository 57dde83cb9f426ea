//! `stat_file`: the facts about a file or folder.

use super::lines;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::sessions::{ContentHash, FileKind};
use windlass::{Cx, Tool, ToolFuture, ToolSpec};

/// A tool that looks at a path.
pub(super) struct StatFile;

impl Tool for StatFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "stat_file".into(),
            title: "Look at a file".into(),
            description: "Tells whether a file or folder of the session exists, its size, when it was changed, and, unless it is \
                large, its hash and number of lines. A missing one is exists: false."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": { "path": super::path_schema("The file or folder, from the session's folder.") },
                "required": ["path"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "exists": { "type": "boolean" },
                    "kind": { "enum": ["file", "folder", "other"] },
                    "bytes": { "type": "integer" },
                    "modified": { "type": "string" },
                    "executable": { "type": "boolean" },
                    "hash": { "type": "string" },
                    "lines": { "type": "integer" },
                },
                "required": ["path", "exists"],
            })),
            claims: Some(vec!["read file:/{path}".into()]),
            ..super::reading()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let StatArgs { path } = crate::small::parse(args)?;
            let path = super::normal(&path)?;
            if path.is_empty() {
                return Ok(json!({ "path": ".", "exists": true, "kind": "folder" }).into());
            }
            let files = super::files_of(cx)?;
            let told = |error| super::told(error, &files);
            let Some(stat) = files.stat(&path).map_err(told)? else {
                return Ok(json!({ "path": path, "exists": false }).into());
            };
            let mut facts = json!({ "path": path, "exists": true, "kind": stat.kind.as_str() });
            if let Some(modified) = super::time(stat.modified) {
                facts["modified"] = modified.into();
            }
            if stat.kind == FileKind::File {
                facts["bytes"] = stat.bytes.into();
                facts["executable"] = stat.is_executable.into();
                let max = cx.limits().file_hashed_bytes_max;
                if stat.bytes <= max {
                    let content = files.read_at(&path, 0, max).map_err(told)?;
                    facts["hash"] = ContentHash::of(&content).to_string().into();
                    if !content.contains(&0) {
                        facts["lines"] = lines::count(&content).into();
                    }
                }
            }
            Ok(facts.into())
        })
    }
}

#[derive(Deserialize)]
struct StatArgs {
    path: String,
}
