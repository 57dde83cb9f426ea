//! `grep_files`: lines that match a regular expression, as ripgrep finds them.

use super::grep::{FileSearch, FoundMatches};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write;
use windlass::error::FileError;
use windlass::outcome::Part;
use windlass::tool::Claims;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that searches files.
pub(super) struct GrepFiles;

impl Tool for GrepFiles {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep_files".into(),
            title: "Search in files".into(),
            description: "Finds lines that match a regular expression in the files of the session, as path:line:text. Hidden files \
                and those that .gitignore names are left out unless all is true; binary files always are. Long results come \
                in pages: give the next_offset of a page as offset to read on."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "pattern": { "type": "string", "minLength": 1, "maxLength": 4_096, "description": "A regular expression (Rust syntax), matched line by line." },
                    "path": { "type": "string", "maxLength": 1_024, "description": "The folder or file to search, from the session's folder, which is the default." },
                    "glob": { "type": "string", "maxLength": 1_024, "description": "Only files like this: *.rs, or src/**/*.ts; !*.lock leaves out." },
                    "ignore_case": { "type": "boolean", "default": false, "description": "Whether upper and lower case are the same." },
                    "context": { "type": "integer", "minimum": 0, "maximum": 10, "default": 0, "description": "Lines shown before and after each match." },
                    "all": { "type": "boolean", "default": false, "description": "Whether hidden and ignored files are searched too." },
                    "offset": { "type": "integer", "minimum": 0, "default": 0, "description": "How many matches to pass over, to read on." },
                },
                "required": ["pattern"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "matches": { "type": "integer" },
                    "files": { "type": "integer" },
                    "searched": { "type": "integer" },
                    "next_offset": { "type": "integer" },
                    "note": { "type": "string" },
                },
                "required": ["matches", "files", "searched"],
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
            let args: GrepArgs = crate::small::parse(args)?;
            let path = super::normal(&args.path)?;
            let limits = cx.limits();
            let bounded = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
            let is_stopping = || cx.is_stopping();
            let search = FileSearch {
                pattern: &args.pattern,
                glob: args.glob.as_deref(),
                ignore_case: args.ignore_case,
                all: args.all,
                context: args.context.min(10),
                offset: bounded(args.offset),
                matches_max: bounded(limits.grep_matches_max),
                files_max: bounded(limits.grep_files_max),
                levels_max: bounded(limits.file_levels_max),
                path_bytes_max: bounded(limits.file_path_bytes_max),
                is_stopping: &is_stopping,
            };
            let found = find(&search, &path, cx)?;
            if cx.is_stopping() {
                return Err(ToolError::stopped());
            }
            Ok(shown(found, &path, &search, cx))
        })
    }
}

#[derive(Deserialize)]
struct GrepArgs {
    pattern: String,
    #[serde(default)]
    path: String,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    offset: u64,
}

fn find(search: &FileSearch<'_>, path: &str, cx: &Cx) -> Result<FoundMatches, ToolError> {
    let files = super::files_of(cx)?;
    let matcher = search.matcher().map_err(super::invalid)?;
    match files.folder(path) {
        Ok(folder) => search.folder(&folder, &matcher).map_err(super::invalid),
        Err(FileError::NotFound { .. }) if path.is_empty() => Ok(FoundMatches::default()),
        // It may be a file.
        Err(FileError::Path { .. }) if !path.is_empty() => {
            let (file, _) = files.open(path).map_err(|error| super::told(error, &files))?;
            Ok(search.file(path, &file, &matcher))
        }
        Err(error) => Err(super::told(error, &files)),
    }
}

/// The bytes of an answer around the lines.
const FRAME_BYTES: usize = 512;

/// As many of the matches as fit.
fn shown(found: FoundMatches, path: &str, search: &FileSearch<'_>, cx: &Cx) -> Output {
    let room = (cx.answer_bytes_max() as usize).saturating_sub(FRAME_BYTES);
    let lines_max = (cx.answer_lines_max() as usize).saturating_sub(2);
    let (mut text, mut lines, mut matches, mut files, mut is_full) = (String::new(), 0, 0, 0, false);
    'files: for file in &found.files {
        let is_searched = path.is_empty() || file.path == path;
        let name = if is_searched { file.path.clone() } else { format!("{path}/{}", file.path) };
        files += 1;
        for line in &file.lines {
            let mark = if line.is_match { ':' } else { '-' };
            let next = name.len() + line.text.len() + 24;
            if text.len() + next > room || lines >= lines_max {
                is_full = true;
                break 'files;
            }
            // A String takes everything.
            let _ = writeln!(text, "{name}{mark}{}{mark}{}", line.number, line.text);
            lines += 1;
            matches += usize::from(line.is_match);
        }
    }
    let mut facts = json!({ "matches": matches, "files": files, "searched": found.searched });
    if found.more || is_full {
        facts["next_offset"] = (search.offset + matches).into();
    }
    let mut notes = Vec::new();
    if found.too_many_files {
        notes.push("there are more files than are searched: name a folder or a glob".to_string());
    }
    if found.unreadable > 0 {
        notes.push(format!("{} files could not be read, or have lines too long to search", found.unreadable));
    }
    if matches == 0 && !search.all {
        notes.push("hidden and ignored files were left out; all: true searches them".to_string());
    }
    if !notes.is_empty() {
        facts["note"] = notes.join("; ").into();
    }
    let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
    Output { value: facts, parts, ..Output::default() }
}
