//! `read_file`: a file as the model reads it best: text with line numbers, images as images, the rest as facts.

use super::lines::{self, LinePage, LineRoom, LineStart};
use super::seen::SeenContents;
use super::sniff::{self, ContentKind};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;
use windlass::outcome::Part;
use windlass::sessions::ContentHash;
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};

/// A tool that reads files.
pub(super) struct ReadFile {
    pub(super) seen: Arc<SeenContents>,
}

impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".into(),
            title: "Read a file".into(),
            description: "Reads a file of the session: text with line numbers, images as images, other files as size and type. \
                Long files come in pages: give the next_offset of a page as offset to read on. Files ending in .log are \
                read from their end, and a page of a CSV file repeats its header. The hash is what edit_file and \
                write_file expect. Read several files at once by calling it several times."
                .into(),
            input_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": super::path_schema("The file, from the session's folder: src/main.rs."),
                    "offset": {
                        "type": "integer",
                        "description": "The line to begin with: 1 is the first, -1 the last, -100 the hundredth from the end.",
                    },
                    "limit": { "type": "integer", "minimum": 1, "description": "The most lines; never more than fit in one answer." },
                    "column": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "For a very long line: how many characters of the first line to pass over.",
                    },
                },
                "required": ["path"],
                "additionalProperties": false,
            })),
            output_schema: Some(json!({
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "kind": { "enum": ["text", "image", "binary"] },
                    "bytes": { "type": "integer" },
                    "hash": { "type": "string" },
                    "total_lines": { "type": "integer" },
                    "from": { "type": "integer" },
                    "to": { "type": "integer" },
                    "next_offset": { "type": "integer" },
                    "next_column": { "type": "integer" },
                    "media_type": { "type": "string" },
                    "lossy": { "type": "boolean" },
                    "note": { "type": "string" },
                },
                "required": ["path", "kind", "bytes"],
            })),
            claims: Some(vec!["read file:/{path}".into()]),
            ..super::reading()
        }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            let args: ReadFileArgs = crate::small::parse(args)?;
            let path = super::file_path(&args.path)?;
            let files = super::files_of(cx)?;
            let (mut file, bytes) = files.open(&path).map_err(|error| super::told(error, &files))?;
            let mut head = Vec::new();
            (&mut file).take(sniff::HEAD_BYTES as u64).read_to_end(&mut head)?;
            file.seek(SeekFrom::Start(0))?;
            let whole = WholeFile { path: &path, bytes, hashed_max: cx.limits().file_hashed_bytes_max };
            match sniff::kind(&head) {
                ContentKind::Text => self.text(cx, &args, whole, file),
                ContentKind::Image(media_type) if bytes <= cx.limits().wire_images_bytes_max / 2 => {
                    image(cx, whole, file, media_type).await
                }
                ContentKind::Image(media_type) | ContentKind::Binary(media_type) => {
                    let mut facts = whole.facts("binary", None, None);
                    facts.insert("media_type".into(), media_type.into());
                    let note = match media_type.starts_with("text/") {
                        true => "text in another encoding than UTF-8, which is not shown; convert it first",
                        false => "not text, so its content is not shown",
                    };
                    facts.insert("note".into(), note.into());
                    if let Some(content) = whole.content(&mut file)? {
                        facts.insert("hash".into(), ContentHash::of(&content).to_string().into());
                    }
                    Ok(Value::Object(facts).into())
                }
            }
        })
    }
}

#[derive(Deserialize)]
struct ReadFileArgs {
    path: String,
    offset: Option<i64>,
    limit: Option<u64>,
    #[serde(default)]
    column: u64,
}

/// A file that is being read.
#[derive(Clone, Copy)]
struct WholeFile<'a> {
    path: &'a str,
    bytes: u64,
    hashed_max: u64,
}

impl WholeFile<'_> {
    /// Its content, unless it is too large for that.
    fn content(&self, file: &mut File) -> std::io::Result<Option<Vec<u8>>> {
        if self.bytes > self.hashed_max {
            return Ok(None);
        }
        let mut content = Vec::new();
        // It may grow meanwhile.
        file.take(self.hashed_max + 1).read_to_end(&mut content)?;
        Ok((content.len() as u64 <= self.hashed_max).then_some(content))
    }

    fn facts(&self, kind: &str, hash: Option<ContentHash>, lines: Option<u64>) -> Map<String, Value> {
        let mut facts = Map::new();
        facts.insert("path".into(), self.path.into());
        facts.insert("kind".into(), kind.into());
        facts.insert("bytes".into(), self.bytes.into());
        facts.extend(hash.map(|hash| ("hash".to_string(), hash.to_string().into())));
        facts.extend(lines.map(|lines| ("total_lines".to_string(), lines.into())));
        facts
    }

    fn has_extension(&self, names: &[&str]) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').is_some_and(|(_, end)| names.iter().any(|name| end.eq_ignore_ascii_case(name)))
    }
}

/// The bytes of an answer around the lines: the facts with a path, and a CSV header.
const FRAME_BYTES: usize = 768;
/// The maximum length of a CSV header that is repeated.
const HEADER_BYTES_MAX: usize = 4_096;

impl ReadFile {
    fn text(
        &self,
        cx: &Cx,
        args: &ReadFileArgs,
        whole: WholeFile<'_>,
        mut file: File,
    ) -> Result<Output, ToolError> {
        let frame = FRAME_BYTES + 2 * whole.path.len();
        let lines_max = usize::try_from(cx.answer_lines_max()).unwrap_or(usize::MAX).saturating_sub(3).max(1);
        let limit = usize::try_from(args.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut room = LineRoom {
            bytes: (cx.answer_bytes_max() as usize).saturating_sub(frame).max(256),
            lines: limit.min(lines_max),
            scanned: cx.limits().file_scanned_bytes_max,
        };
        let (mut text, is_log) = (String::new(), whole.has_extension(&["log"]));
        if args.offset.is_some_and(|offset| offset > 1) && whole.has_extension(&["csv", "tsv"]) {
            text = header(&mut file)?;
            room.bytes = room.bytes.saturating_sub(text.len()).max(256);
        }
        let mut facts;
        let page = match whole.content(&mut file)? {
            Some(content) => {
                let hash = ContentHash::of(&content);
                if let Ok(text) = str::from_utf8(&content) {
                    // To say later what has changed.
                    self.seen.note(cx.session(), hash, text);
                }
                let content = content.strip_prefix(BOM).unwrap_or(&content);
                let total = lines::count(content);
                facts = whole.facts("text", Some(hash), Some(total));
                let first = first_line(args, is_log, total, || lines::last_that_fit(content, room));
                let start = LineStart { first: 1, skip: first.saturating_sub(1), column: args.column };
                lines::page(&mut Cursor::new(content), start, room)?
            }
            None => {
                facts = whole.facts("text", None, None);
                let note =
                    "too large to be hashed and counted; lines counted from the end have negative numbers";
                facts.insert("note".into(), note.into());
                large(args, is_log, whole.bytes, &mut file, room)?
            }
        };
        tell(&mut facts, &page, args);
        text.push_str(&page.text);
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text(text)] };
        Ok(Output { value: Value::Object(facts), parts, ..Output::default() })
    }
}

/// The mark at the beginning of some texts.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The first line to show.
fn first_line(args: &ReadFileArgs, is_log: bool, total: u64, fits: impl FnOnce() -> u64) -> u64 {
    match args.offset {
        Some(0) => 1,
        Some(offset) if offset > 0 => offset.unsigned_abs(),
        Some(offset) => (total + 1).saturating_sub(offset.unsigned_abs()).max(1),
        None if is_log => (total + 1).saturating_sub(args.limit.unwrap_or(u64::MAX).min(fits())).max(1),
        None => 1,
    }
}

/// A page of a file that is too large to be counted.
fn large(
    args: &ReadFileArgs,
    is_log: bool,
    size: u64,
    file: &mut File,
    room: LineRoom,
) -> Result<LinePage, ToolError> {
    let wanted = match args.offset {
        Some(offset) if offset < 0 => offset.unsigned_abs(),
        None if is_log => {
            // As much as one page shows.
            let mut end = Vec::new();
            file.seek(SeekFrom::Start(size.saturating_sub(room.bytes as u64)))?;
            file.take(room.bytes as u64).read_to_end(&mut end)?;
            args.limit.unwrap_or(u64::MAX).min(lines::last_that_fit(&end, room))
        }
        offset => {
            file.seek(SeekFrom::Start(0))?;
            let skip = offset.unwrap_or(1).unsigned_abs().saturating_sub(1);
            let start = LineStart { first: 1, skip, column: args.column };
            return Ok(lines::page(&mut BufReader::with_capacity(256 << 10, file), start, room)?);
        }
    };
    let Some(found) = lines::from_end(file, size, wanted, END_BYTES_MAX)? else {
        return Err(super::coded(
            "too_far",
            format!(
                "line {wanted} from the end is more than {END_BYTES_MAX} bytes away from it; begin nearer to the end"
            ),
        ));
    };
    file.seek(SeekFrom::Start(found.at))?;
    let start =
        LineStart { first: -i64::try_from(found.lines).unwrap_or(i64::MAX), skip: 0, column: args.column };
    // What is written meanwhile is not shown: the numbers are those of the lines that were there.
    let there = file.take(size - found.at);
    let mut page = lines::page(&mut BufReader::new(there), start, room)?;
    page.next = page.next.filter(|next| next.line < 0);
    Ok(page)
}

/// How far from its end a large file is read backwards.
const END_BYTES_MAX: u64 = 64 << 20;

/// The first line of a table, as a line of the answer.
fn header(file: &mut File) -> std::io::Result<String> {
    let mut head = Vec::new();
    file.take(HEADER_BYTES_MAX as u64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    let head = head.strip_prefix(BOM).unwrap_or(&head);
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(format!("{:>6}\t{}\n", 1, String::from_utf8_lossy(line).trim_end_matches('\r')))
}

/// Adds the facts about a page.
fn tell(facts: &mut Map<String, Value>, page: &LinePage, args: &ReadFileArgs) {
    facts.extend(page.from.map(|from| ("from".to_string(), from.into())));
    facts.extend(page.to.map(|to| ("to".to_string(), to.into())));
    if page.lossy {
        facts.insert("lossy".into(), true.into());
    }
    if let Some(next) = page.next {
        facts.insert("next_offset".into(), next.line.into());
        facts.extend(next.column.map(|column| ("next_column".to_string(), column.into())));
    }
    let from = page.from.unwrap_or_default();
    let note = if page.gave_up {
        "so far into the file no lines are counted; read from the end with a negative offset, or use grep_files".to_string()
    } else if page.shown == 0 && args.offset.is_some() {
        match facts.get("total_lines") {
            Some(total) => format!("there is no such line: the file has {total}"),
            None => "there is no such line".to_string(),
        }
    } else if page.shown == 0 {
        "the file is empty".to_string()
    } else if args.offset.is_none() && from.abs() > 1 {
        let earlier = if from < 0 { from - page.shown as i64 } else { (from - page.shown as i64).max(1) };
        format!("the end of the log is shown; for earlier lines use offset {earlier}")
    } else {
        return;
    };
    facts.insert("note".into(), note.into());
}

/// An image, kept as an artifact.
async fn image(cx: &Cx, whole: WholeFile<'_>, mut file: File, media_type: &str) -> Result<Output, ToolError> {
    let mut kept = cx.keep();
    let mut hash = None;
    if let Some(content) = whole.content(&mut file)? {
        hash = Some(ContentHash::of(&content));
        kept.write(&content).await?;
    } else {
        file.seek(SeekFrom::Start(0))?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => break,
                read => kept.write(&piece[..read]).await?,
            }
        }
    }
    let kept = kept.finish(media_type).await?;
    let mut facts = whole.facts("image", hash, None);
    facts.insert("media_type".into(), media_type.into());
    let parts = vec![Part::KeptImage { kept, media_type: media_type.to_string() }];
    Ok(Output { value: Value::Object(facts), parts, ..Output::default() })
}
