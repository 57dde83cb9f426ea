//! Output: aligned tables for people, JSON for programs.

use crate::door::At;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::io::{IsTerminal, Write};
use windlass::CallAnswer;
use windlass_core::time::Timestamp;
use windlass_core::visible;

/// Cells are cut at this length; `--json` has the whole text.
const CELL_CHARS_MAX: usize = 120;
/// Sentences of a journal are longer than cells.
const STORY_CHARS_MAX: usize = 1_000;

/// The columns whose text may wrap.
const PROSE: [&str; 8] =
    ["ANSWER", "DESCRIPTION", "FOUND", "JOURNAL", "QUESTION", "RECORDED", "STORY", "WHY"];

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}

/// Prints rows under headings.
pub fn table(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> anyhow::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(headings);
    for row in rows {
        let cells = row.into_iter().zip(headings);
        table.add_row(cells.map(|(cell, heading)| {
            shorten(&cell, if *heading == "STORY" { STORY_CHARS_MAX } else { CELL_CHARS_MAX })
        }));
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    // On a narrow terminal only prose wraps: a handle in two pieces can be neither read nor copied.
    for (column, heading) in table.column_iter_mut().zip(headings) {
        if !PROSE.contains(heading) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    print(&lines.join("\n"))
}

/// The calls of a batch.
pub fn calls(answer: &Value) -> &[Value] {
    answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Prints how calls ended.
pub fn answers(calls: &[Value]) -> anyhow::Result<()> {
    let rows = calls.iter().map(|call| {
        let text = |field: &str| call[field].as_str().unwrap_or_default().to_string();
        vec![
            text("id"),
            text("tool"),
            text("state"),
            call["ran_ms"].as_u64().map_or(String::new(), |ms| format!("{ms} ms")),
            short_handle(&text("call")),
            model_text(call),
        ]
    });
    table(&["ID", "TOOL", "STATE", "RAN", "CALL", "ANSWER"], rows)
}

/// The text parts of the model's view, concatenated.
pub fn model_text(call: &Value) -> String {
    let parts = call["model"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| match part["type"].as_str() {
        Some("text") => part["text"].as_str().map(str::to_string),
        Some("json") => Some(part["value"].to_string()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// This much of a handle is almost always unique within a folder.
const HANDLE_CHARS: usize = 8;

/// The part of a handle that people need to type.
pub fn short_handle(handle: &str) -> String {
    handle.chars().take(HANDLE_CHARS).collect()
}

/// Reports internal failures to operators; the model does not see them.
pub fn inside(calls: &[CallAnswer]) {
    for call in calls.iter().filter(|call| !call.is_recorded()) {
        if let Some(detail) = call.failure().and_then(|failure| failure.detail.as_ref()) {
            crate::logs::tell!(
                "call {} ({}) failed inside: {}",
                call.handle(),
                line(call.id()),
                line(detail)
            );
        }
    }
}

/// Reports how the tasks ended that the command has waited for.
pub fn tasks(calls: &[CallAnswer]) {
    for call in calls.iter().filter(|call| call.is_task()) {
        let text = call.model_text();
        let id = line(call.id());
        crate::logs::tell!("the task {} ({id}) {}: {}", call.handle(), call.state(), line(&text));
    }
}

/// Reports which calls need a person's decision, with commands to paste.
pub fn unknown(calls: &[Value], at: &At) {
    let options = at.options();
    for call in calls.iter().filter(|call| is_unknown(call)) {
        let text = |field: &str| call[field].as_str().unwrap_or_default();
        let (handle, id, tool) = (text("call"), line(text("id")), line(text("tool")));
        crate::logs::tell!(
            "nobody knows whether {id} ({tool}) took effect, and it will not run again. Check what it was about to do:\n  \
             windlass calls {handle} --journal{options}\n\
             and report what you found: that it did not happen, or that it did, with its result as JSON:\n  \
             windlass resolve {handle} --did-not-happen{options}\n  \
             windlass resolve {handle} --landed 'null'{options}"
        );
    }
}

/// Whether it is unknown if a call took effect.
fn is_unknown(call: &Value) -> bool {
    call["state"] == "unknown" || call["outcome"]["effect"] == "unknown"
}

/// Whether the answer was recorded before this command began; calls that an earlier owner left open end now.
pub fn ended_before(call: &CallAnswer, began: Timestamp) -> bool {
    call.call().end().is_some_and(|end| end.at < began)
}

/// The message for a request that waits for the session's next owner.
pub fn left_for_next(session: &str) -> String {
    format!("recorded; it takes effect when a process next drives session {session}, e.g. `windlass run`")
}

/// Reports that a request about this call was left for the next owner.
pub fn left(call: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let mut shown = call.clone();
        shown["left_for_next_owner"] = true.into();
        return json(&shown);
    }
    print(&left_for_next(call["session"].as_str().unwrap_or_default()))
}

/// Reports that an answer was recorded, by the owner or for the session's next one.
pub fn completed(left_for: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    match left_for {
        _ if as_json => {
            json(&serde_json::json!({"completed": true, "left_for_next_owner": left_for.is_some()}))
        }
        Some(session) => print(&left_for_next(session)),
        None => print("answered; the call continues"),
    }
}

/// Reports that an approval was answered, by the owner or for the session's next one.
pub fn decided(left_for: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    match left_for {
        _ if as_json => {
            json(&serde_json::json!({"decided": true, "left_for_next_owner": left_for.is_some()}))
        }
        Some(session) => print(&left_for_next(session)),
        None => Ok(()),
    }
}

/// Prints one entry of what waits for a person: what it is, its whole text, and how to answer.
pub fn waiting(item: &Value) -> anyhow::Result<()> {
    let text = |field: &str| item[field].as_str().unwrap_or_default();
    let until = item["until"].as_str().map(|until| format!(", until {until}")).unwrap_or_default();
    print(&format!("{} in session {}{until}", text("kind"), line(text("session"))))?;
    for shown in text("text").lines() {
        print(&format!("  {}", visible::line(shown)))?;
    }
    // A prefix is enough, and can be typed.
    let handles = ["id", "call"].map(text).into_iter().filter(|handle| !handle.is_empty());
    let command = handles
        .fold(text("command").to_string(), |command, handle| command.replace(handle, &short_handle(handle)));
    print(&format!("  {}", line(&command)))
}

/// The reader of standard output is gone, as after `| head`.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output is gone")]
pub struct ReaderGone;

/// Prints a line. A reader that has gone away is no error: the command's work does not depend on it.
fn print(text: &str) -> anyhow::Result<()> {
    match print_live(text) {
        Err(error) if error.is::<ReaderGone>() => Ok(()),
        printed => printed,
    }
}

/// Prints a line of a command that only prints; fails when the reader is gone.
pub fn print_live(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => Ok(other?),
    }
}

/// One line of bounded length, with control characters escaped: a tool's text must not move the cursor.
fn shorten(text: &str, chars_max: usize) -> String {
    visible::shortened(&text.replace('\n', LINE_END), chars_max)
}

/// A text on one line.
pub fn line(text: &str) -> String {
    visible::line(&text.replace('\n', LINE_END))
}

/// Replaces a line break.
const LINE_END: &str = "⏎";

/// Prints a text of a tool or a model: unchanged for programs, with control characters escaped on a terminal. Line breaks and tabs stay.
pub fn answer_text(text: &str) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() {
        return print(text);
    }
    let line = |line: &str| line.split('\t').map(visible::line).collect::<Vec<_>>().join("\t");
    print(&text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

/// Quotes a text as one shell word.
pub fn word(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_string();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Prints lines that are already laid out.
pub fn text(text: &str) -> anyhow::Result<()> {
    print(text)
}

/// Prints an empty line between two tables.
pub fn blank() -> anyhow::Result<()> {
    print("")
}
