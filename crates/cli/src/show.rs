//! How things are printed: aligned tables for people, JSON for programs.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::io::Write;
use windlass::CallAnswer;
use windlass::core::time::Timestamp;

/// A text in a table is cut here; `--json` shows it whole.
const CELL_CHARS_MAX: usize = 120;
/// A sentence of a journal says all it has to say.
const STORY_CHARS_MAX: usize = 1_000;

/// The columns whose text may be broken into lines.
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
    // On a narrow terminal only prose is broken: a handle in two pieces can be neither read nor copied.
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

/// The text parts of what the model is told, one after the other.
pub fn model_text(call: &Value) -> String {
    let parts = call["model"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| match part["type"].as_str() {
        Some("text") => part["text"].as_str().map(str::to_string),
        Some("json") => Some(part["value"].to_string()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// So much of a handle tells a call from all others of a folder, as good as always.
const HANDLE_CHARS: usize = 8;

/// As much of a handle as people need to type.
pub fn short_handle(handle: &str) -> String {
    handle.chars().take(HANDLE_CHARS).collect()
}

/// Tells operators what the model is not told: what failed inside.
pub fn inside(calls: &[CallAnswer]) {
    for call in calls.iter().filter(|call| !call.is_recorded()) {
        if let Some(detail) = call.failure().and_then(|failure| failure.detail.as_ref()) {
            eprintln!("windlass: call {} ({}) failed inside: {}", call.handle(), call.id(), line(detail));
        }
    }
}

/// Tells how tasks ended that a command has stayed for.
pub fn tasks(calls: &[CallAnswer]) {
    for call in calls.iter().filter(|call| call.is_task()) {
        let text = call.model_text();
        eprintln!("windlass: the task {} ({}) {}: {}", call.handle(), call.id(), call.state(), line(&text));
    }
}

/// Tells operators which calls need a person.
pub fn unknown(calls: &[Value]) {
    for call in calls.iter().filter(|call| is_unknown(call)) {
        let text = |field: &str| call[field].as_str().unwrap_or_default();
        let (handle, id, tool) = (text("call"), text("id"), text("tool"));
        eprintln!(
            "windlass: nobody knows whether {id} ({tool}) took effect, and it is not run again; look: windlass calls \
             {handle} --journal, and say what you found: windlass resolve {handle}"
        );
    }
}

/// Whether nobody knows if a call took effect.
fn is_unknown(call: &Value) -> bool {
    call["state"] == "unknown" || call["outcome"]["effect"] == "unknown"
}

/// Whether the answer was there before this command began: calls that an earlier owner left open end now.
pub fn ended_before(call: &CallAnswer, began: Timestamp) -> bool {
    call.call().end().is_some_and(|end| end.at < began)
}

/// Where nobody drives a session, what is asked of its calls waits for the next one who does.
pub fn left_for_next(session: &str) -> String {
    format!("recorded; it takes effect when a process next drives session {session}, e.g. `windlass run`")
}

/// Says that a request about this call was left for the next owner.
pub fn left(call: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let mut shown = call.clone();
        shown["left_for_next_owner"] = true.into();
        return json(&shown);
    }
    print(&left_for_next(call["session"].as_str().unwrap_or_default()))
}

/// Says that an answer was taken, by the owner or for the next one of this session.
pub fn completed(left_for: Option<&str>, as_json: bool) -> anyhow::Result<()> {
    match left_for {
        _ if as_json => {
            json(&serde_json::json!({"completed": true, "left_for_next_owner": left_for.is_some()}))
        }
        Some(session) => print(&left_for_next(session)),
        None => print("answered; the call goes on"),
    }
}

/// Prints a line; a reader that has gone away is no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// One line of bounded length, with controls made visible: what a tool wrote must not move the cursor.
fn shorten(text: &str, chars_max: usize) -> String {
    let mut shown: String = text.chars().take(chars_max).map(visible).collect();
    if text.chars().nth(chars_max).is_some() {
        shown.push('…');
    }
    shown
}

/// A text on one line, whatever is in it.
pub fn line(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn visible(letter: char) -> char {
    match letter {
        '\n' => '⏎',
        letter if letter.is_control() => '·',
        letter => letter,
    }
}

/// Prints lines that are laid out already.
pub fn text(text: &str) -> anyhow::Result<()> {
    print(text)
}

/// Prints an empty line between two tables.
pub fn blank() -> anyhow::Result<()> {
    print("")
}
