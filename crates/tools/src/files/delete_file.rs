//! `delete_file`: removes a file, or a folder with all that is in it if that is said.

use super::write_file;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::error::FileError;
use windlass::sessions::SessionFiles;
use windlass::{Cx, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that removes files.
pub(super) struct DeleteFile;

impl Tool for DeleteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "delete_file".into(),
            title: "Delete a file".into(),
            description: "Deletes a file or an empty folder of the session; with recursive, a folder with everything in it. A \
                missing one is exists: false, and no error."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": super::path_schema("The file or folder, from the session's folder."),
                    "recursive": { "type": "boolean", "default": false, "description": "Whether a folder is deleted with everything in it." },
                    "expected_hash": { "type": "string", "description": "Deletes the file only if its content has this hash." },
                },
                "required": ["path"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": { "path": { "type": "string" }, "exists": { "type": "boolean" }, "deleted": { "type": "boolean" }, "kind": { "type": "string" } },
                "required": ["path", "exists", "deleted"],
            })),
            claims: Some(vec!["write file:/{path}".into()]),
            ..super::changing()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let DeleteArgs { path, recursive, expected_hash } = crate::small::parse(args)?;
            let path = super::file_path(&path)?;
            let expected = write_file::expectation(expected_hash.as_deref())?;
            let files = super::files_of(cx)?;
            // Recorded first: whoever deletes again after a crash knows what there was.
            let kind: Option<String> = cx
                .step("look", &path, |path| async {
                    let stat = files.stat(path).map_err(|error| super::told(error, &files))?;
                    Ok(stat.map(|stat| stat.kind.as_str().to_string()))
                })
                .await?;
            let Some(kind) = kind else {
                return Ok(json!({ "path": path, "exists": false, "deleted": false }).into());
            };
            cx.step("delete", &path, |path| async {
                match recursive && kind == "folder" {
                    true => files.remove_tree(path).map(drop).map_err(|error| super::told(error, &files)),
                    false => remove(&files, path, expected),
                }
            })
            .await?;
            Ok(json!({ "path": path, "exists": true, "deleted": true, "kind": kind }).into())
        })
    }
}

fn remove(
    files: &SessionFiles,
    path: &str,
    expected: windlass::sessions::FileExpectation,
) -> Result<(), ToolError> {
    match files.remove_if(path, expected) {
        Ok(_) => Ok(()),
        Err(FileError::NotEmpty { path }) => {
            let entries = files.list_page(&path, None, 0).map(|page| page.total).unwrap_or_default();
            let message = format!(
                "the folder {} is not empty (entries: {entries}); say recursive: true to delete it with everything in it",
                super::shown(&path)
            );
            Err(super::coded("not_empty", message))
        }
        Err(error) => Err(write_file::stale(error, files)),
    }
}

#[derive(Deserialize)]
struct DeleteArgs {
    path: String,
    #[serde(default)]
    recursive: bool,
    expected_hash: Option<String>,
}
