//! The file tools, one file each: they work in the session's folder and cannot leave it.

mod delete_file;
mod diff;
mod edit;
mod edit_file;
mod grep;
mod grep_files;
mod lines;
mod list_directory;
mod read_file;
mod seen;
mod sniff;
mod stat_file;
mod write_file;

use seen::SeenContents;
use std::sync::Arc;
use windlass::catalog::Deferral;
use windlass::error::{FailureClass, FileError};
use windlass::sessions::{FileKind, SessionFiles};
use windlass::tool::{Claims, Hints, Need, ToolSource, nearest_name};
use windlass::{Cx, EffectClass, Flags, Limits, Tool, ToolError, ToolSpec};

/// The file tools, in the order of their names.
pub(crate) fn tools() -> Vec<Arc<dyn Tool>> {
    let seen = Arc::new(SeenContents::default());
    vec![
        Arc::new(delete_file::DeleteFile),
        Arc::new(edit_file::EditFile { seen: seen.clone() }),
        Arc::new(grep_files::GrepFiles),
        Arc::new(list_directory::ListDirectory),
        Arc::new(read_file::ReadFile { seen: seen.clone() }),
        Arc::new(stat_file::StatFile),
        Arc::new(write_file::WriteFile { seen }),
    ]
}

/// The part of a specification that file tools that only read have in common.
fn reading() -> ToolSpec {
    ToolSpec {
        class: Some(EffectClass::Read),
        hints: Hints {
            read_only: Some(true),
            open_world: Some(false),
            reads_private: Some(true),
            ..Hints::default()
        },
        ..on_files()
    }
}

/// The part of a specification that file tools that change something have in common. Their effects are recorded steps: after a crash
/// they find out what they had done.
fn changing() -> ToolSpec {
    ToolSpec {
        class: Some(EffectClass::Stepped),
        hints: Hints {
            read_only: Some(false),
            destructive: Some(true),
            open_world: Some(false),
            ..Hints::default()
        },
        ..on_files()
    }
}

fn on_files() -> ToolSpec {
    ToolSpec {
        // They wait for the disk.
        flags: Flags { cpu_bound: true, ..Flags::default() },
        deferral: Deferral::Never,
        needs: vec![Need::Files],
        category: "files".into(),
        source: ToolSource::BuiltIn,
        ..ToolSpec::default()
    }
}

/// The claim to read below an optional path.
fn read_claims(path: Option<&str>) -> Option<Result<Claims, ToolError>> {
    let name = match normal(path.unwrap_or_default()) {
        Ok(path) if path.is_empty() => "read file:".to_string(),
        Ok(path) => format!("read file:/{path}"),
        Err(error) => return Some(Err(error)),
    };
    let claims = Claims::parse([name.as_str()], &Limits::default().call());
    Some(claims.map_err(|error| invalid(format!("the path cannot be used: {error}"))))
}

/// The one way to write a path: without `.`, empty parts and a `/` at its end. `""` is the session's folder.
fn normal(path: &str) -> Result<String, ToolError> {
    if path.starts_with('/') {
        return Err(invalid(format!(
            "{} begins with /; paths begin at the session's folder, such as src/main.rs",
            shown(path)
        )));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(invalid(format!(
            "{} has a part `..`; name the place from the session's folder, and nothing outside it",
            shown(path)
        )));
    }
    Ok(parts.join("/"))
}

/// The path of a file, which the session's own folder is not.
fn file_path(path: &str) -> Result<String, ToolError> {
    match normal(path)? {
        path if path.is_empty() => Err(invalid(
            "the path is the session's folder itself; name a file in it, such as src/main.rs".into(),
        )),
        path => Ok(path),
    }
}

/// A path in a message.
fn shown(path: &str) -> String {
    let short: String = path.chars().take(200).collect();
    format!("{short:?}")
}

fn invalid(message: String) -> ToolError {
    ToolError { class: FailureClass::InvalidRequest, ..ToolError::new(message) }
}

/// A failure with a code by which programs tell it from others. It is not retried: the same call would fail again.
fn coded(code: &str, message: String) -> ToolError {
    ToolError { tool_code: Some(code.to_string()), ..ToolError::new(message) }
}

/// A failure of the files as the model reads it.
fn told(error: FileError, files: &SessionFiles) -> ToolError {
    if let FileError::NotFound { path } = &error {
        let hint = match nearest(path, files) {
            Some(near) => format!("did you mean {near}?"),
            None => "list_directory shows what there is".to_string(),
        };
        return coded("not_found", format!("there is no file {}; {hint}", shown(path)));
    }
    if let FileError::Path { path, .. } = &error
        && let Some(told) = other_kind(path, files)
    {
        return told;
    }
    if let FileError::Io { path, source } = &error
        && is_known(source)
    {
        return coded("io", format!("{}: {source}; nothing was changed", shown(path)));
    }
    error.into()
}

/// The failure of a path at which there is something, but not what was looked for.
fn other_kind(path: &str, files: &SessionFiles) -> Option<ToolError> {
    let shown = shown(path);
    Some(match files.stat(path).ok()??.kind {
        FileKind::Folder => {
            coded("is_folder", format!("{shown} is a folder; list_directory shows what is in it"))
        }
        FileKind::File => {
            coded("no_folder", format!("{shown} is a file and not a folder; read_file shows it"))
        }
        FileKind::Other => coded(
            "no_file",
            format!("{shown} is a link or a device, which is not followed; name the file itself"),
        ),
    })
}

/// Whether an error of the disk says something that a model can act on.
fn is_known(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
    )
}

/// A path like this one that exists, if only its name is misspelt.
fn nearest(path: &str, files: &SessionFiles) -> Option<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let page = files.list_page(folder, None, NEAREST_ENTRIES_MAX).ok()?;
    let near = nearest_name(name, page.entries.iter().map(|entry| entry.name.as_str()))?;
    Some(if folder.is_empty() { near.to_string() } else { format!("{folder}/{near}") })
}

/// Entries among which a misspelt name is looked for.
const NEAREST_ENTRIES_MAX: usize = 1_000;

/// The files of the session of a call.
fn files_of(cx: &Cx) -> Result<SessionFiles, ToolError> {
    Ok(cx.files()?)
}

/// The schema of a path.
fn path_schema(about: &str) -> serde_json::Value {
    serde_json::json!({ "type": "string", "minLength": 1, "maxLength": 1_024, "description": about })
}

/// Whether bytes are text, but for a few.
pub(crate) fn is_mostly_text(bytes: &[u8]) -> bool {
    sniff::kind(bytes) == sniff::ContentKind::Text
}

/// A time as people write it.
fn time(time: std::time::SystemTime) -> Option<String> {
    let seconds = time.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?.as_secs();
    Some(jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_in_one_way() {
        for (given, expected) in [
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            (".", ""),
            ("", ""),
            ("a/./b", "a/b"),
            ("%2e%2e/a", "%2e%2e/a"),
            ("...", "..."),
        ] {
            assert_eq!(normal(given).as_deref(), Ok(expected), "{given}");
        }
        for given in ["/a", "//a", "..", "../a", "a/../b", "a/.."] {
            assert!(normal(given).is_err(), "{given}");
        }
    }
}
