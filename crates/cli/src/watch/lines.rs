//! One line per event, and on a terminal a bar per running call below them.

use crate::show;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use windlass::tool::Progress;

/// More bars than this would push the lines off the screen.
const BARS_MAX: usize = 12;
/// The width of the sentence, so that the columns after it are aligned.
const SENTENCE_CHARS: usize = 48;

/// Two start times of an attempt count as one if they differ by less: one is taken at the start, one when the start is recorded.
const SAME_START_MS: i64 = 1_000;
/// How many running attempts are remembered.
const RUNNING_MAX: usize = 4_096;

/// How long a line waits for others that may have happened before it.
pub const HOLD: Duration = Duration::from_millis(100);
/// The maximum number of pending lines.
const PENDING_MAX: usize = 1_024;

/// A line waiting to be printed.
struct PendingLine {
    at: String,
    line: String,
}

/// The display of events.
pub struct EventLines {
    json: bool,
    colours: bool,
    /// Attempts shown while they ran, by handle, with their start times: their starts are recorded later and
    /// not shown again.
    running: BTreeMap<String, (u64, Option<i64>)>,
    /// The time of the last event shown.
    last_at: String,
    /// Lines waiting for others that may have happened earlier.
    pending: Vec<PendingLine>,
    /// The time at which the first pending line arrived.
    pending_since: Option<Instant>,
    /// On a terminal, the bars of running calls by handle.
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

/// The style of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineStyle {
    Begins,
    Waits,
    Well,
    Badly,
    Aside,
}

impl LineStyle {
    /// The symbol at the beginning of the line, and its colour.
    fn sign(self) -> (&'static str, &'static str) {
        match self {
            LineStyle::Begins => ("▶", "36"),
            LineStyle::Waits => ("◷", "33"),
            LineStyle::Well => ("✓", "32"),
            LineStyle::Badly => ("✗", "31"),
            LineStyle::Aside => ("·", "2"),
        }
    }
}

impl EventLines {
    /// Makes a display: JSON lines, or text for people.
    pub fn new(json: bool) -> EventLines {
        let terminal = std::io::stdout().is_terminal() && !json;
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
        let target = ProgressDrawTarget::stdout_with_hz(10);
        let bars = terminal.then(|| (MultiProgress::with_draw_target(target), BTreeMap::new()));
        EventLines {
            json,
            colours,
            running: BTreeMap::new(),
            last_at: String::new(),
            pending: Vec::new(),
            pending_since: None,
            bars,
        }
    }

    /// Shows an event.
    pub fn tell(&mut self, kind: &str, event: &Value) -> anyhow::Result<()> {
        if self.json {
            return show::print_live(&event.to_string());
        }
        if kind != "progress"
            && !self.is_told(kind, event)
            && let Some(line) = self.line(kind, event)
        {
            self.pending_since.get_or_insert_with(Instant::now);
            self.pending.push(PendingLine { at: text(event, "at").to_string(), line });
        }
        self.move_bar(kind, event);
        Ok(())
    }

    /// Whether lines are pending.
    pub fn is_holding(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the first pending line has waited long enough.
    pub fn is_due(&self) -> bool {
        let waited = self.pending_since.is_some_and(|since| since.elapsed() >= HOLD);
        waited || self.pending.len() >= PENDING_MAX
    }

    /// Prints pending lines in the order of their times: an event recorded late may have happened before one
    /// that is already recorded, and a running attempt started before its request was recorded.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.pending_since = None;
        let mut lines = std::mem::take(&mut self.pending);
        lines.sort_by(|a, b| a.at.cmp(&b.at));
        for PendingLine { at, line } in lines {
            self.print(&line)?;
            self.last_at = at.max(std::mem::take(&mut self.last_at));
        }
        Ok(())
    }

    /// Whether an attempt's start was shown before, or was recorded so late that other events were shown in
    /// the meantime: a `read` call is recorded with its result, which says how long it ran.
    fn is_told(&mut self, kind: &str, event: &Value) -> bool {
        let (call, began) = (text(event, "call"), began(event));
        // An attempt that was lost with its owner starts again under its number.
        let is_same = self.running.get(call).is_some_and(|(attempt, at)| match (at, began.1) {
            (Some(before), Some(at)) => *attempt == began.0 && (before - at).abs() < SAME_START_MS,
            (None, _) | (_, None) => *attempt == began.0,
        });
        match kind {
            "running" if !is_same => {
                if self.running.len() < RUNNING_MAX {
                    self.running.insert(call.to_string(), began);
                }
                false
            }
            "running" => true,
            "started" => is_same || text(event, "at") < self.last_at.as_str(),
            "ended" => {
                self.running.remove(call);
                false
            }
            _ => false,
        }
    }

    /// Prints a message of our own.
    pub fn note(&self, text: &str) {
        match &self.bars {
            // Printed through the bars, which would overwrite it.
            Some((bars, _)) => drop(bars.println(format!("windlass: {text}"))),
            None => crate::logs::tell!("{text}"),
        }
    }

    /// No call runs any more, as far as is known: removes the bars.
    pub fn clear(&mut self) {
        if let Some((_, bars)) = &mut self.bars {
            std::mem::take(bars).values().for_each(ProgressBar::finish_and_clear);
        }
    }

    fn print(&self, line: &str) -> anyhow::Result<()> {
        match &self.bars {
            Some((bars, running)) if !running.is_empty() => Ok(bars.println(line)?),
            Some(_) | None => show::print_live(line),
        }
    }

    /// `12:03:04.567 ✓ Read AGENTS.md    c1 01j8a6zc  3 ms`
    fn line(&self, kind: &str, event: &Value) -> Option<String> {
        let (look, sentence) = sentence(kind, event)?;
        // The day and the zone are the same on every line; --json has them.
        let time = text(event, "at").get(11..23).unwrap_or_default();
        let (sign, colour) = look.sign();
        let inside = if event["parent"].is_string() { "└ " } else { "" };
        let sentence = format!("{inside}{sentence}");
        let padding = " ".repeat(SENTENCE_CHARS.saturating_sub(sentence.chars().count()));
        let mut behind =
            format!("{} {}", show::line(text(event, "id")), show::short_handle(text(event, "call")));
        if kind == "ended" {
            behind.extend(event["ran_ms"].as_u64().map(|ms| format!("  {ms} ms")));
        }
        let (dim, plain) = ("2", &sentence);
        let sentence = if look == LineStyle::Aside { self.painted(dim, plain) } else { plain.clone() };
        Some(format!(
            "{} {} {sentence}{padding}  {}",
            self.painted(dim, time),
            self.painted(colour, sign),
            self.painted(dim, &behind)
        ))
    }

    fn painted(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// Updates the bar of a running call; it is removed at the end of the attempt.
    fn move_bar(&mut self, kind: &str, event: &Value) {
        let Some((multi, bars)) = &mut self.bars else { return };
        let call = text(event, "call");
        match kind {
            "started" | "running" | "resumed" | "progress" => {
                if !bars.contains_key(call) {
                    if bars.len() >= BARS_MAX {
                        return;
                    }
                    let bar = multi.add(ProgressBar::new(100).with_style(style(SPINNER)));
                    bar.set_message(format!("{} is running", show::line(text(event, "tool"))));
                    bar.enable_steady_tick(Duration::from_millis(100));
                    bars.insert(call.to_string(), bar);
                }
                if let Some(bar) = bars.get(call) {
                    say(bar, event);
                }
            }
            "returned" | "stopped" | "lost" | "suspended" | "unconnected" | "ended" => {
                if let Some(bar) = bars.remove(call) {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }
}

/// The number of an attempt, and its start as a millisecond of the day.
fn began(event: &Value) -> (u64, Option<i64>) {
    let part = |range: std::ops::Range<usize>| text(event, "at").get(range)?.parse::<i64>().ok();
    let ms = || Some(((part(11..13)? * 60 + part(14..16)?) * 60 + part(17..19)?) * 1_000 + part(20..23)?);
    (event["attempt"].as_u64().unwrap_or(0), ms())
}

const SPINNER: &str = "  {spinner} {msg}  {elapsed}";
const BAR: &str = "  {bar:20} {percent:>3} %  {msg}  {elapsed}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn say(bar: &ProgressBar, event: &Value) {
    let progress = serde_json::from_value::<Progress>(event["progress"].clone()).ok();
    if let Some(share) = progress.as_ref().and_then(Progress::share) {
        bar.set_style(style(BAR));
        // A share is between 0 and 1.
        bar.set_position((share * 100.0).round() as u64);
    }
    let said = event["narration"].as_str().or(event["status"].as_str());
    if let Some(said) = said {
        bar.set_message(show::line(said));
    }
}

/// The sentence for an event; most events without a sentence of their own are not worth a line.
fn sentence(kind: &str, event: &Value) -> Option<(LineStyle, String)> {
    let name = || show::line(text(event, "name"));
    let tool = || show::line(text(event, "tool"));
    if let Some(told) = event["narration"].as_str() {
        let look = match (kind, text(event, "state")) {
            ("started" | "running", _) => LineStyle::Begins,
            ("ended" | "resolved", "succeeded") => LineStyle::Well,
            ("ended" | "resolved", _) => LineStyle::Badly,
            _ => LineStyle::Waits,
        };
        return Some((look, show::line(told)));
    }
    let told = match kind {
        "step_ended" if event["failure"].is_object() => format!("{}: step {} failed", tool(), name()),
        "step_ended" => format!("{}: step {} is done", tool(), name()),
        "asked" => format!("{} asks: {}", tool(), show::line(text(event, "question"))),
        "completed" => format!("{}: {} was answered", tool(), name()),
        "cancel_asked" => format!("{} was asked to stop", tool()),
        "stopped" => format!("{} was stopped", tool()),
        "lost" => format!("{} lost its owner", tool()),
        "connected" => format!(
            "{} goes on: it was {}connected",
            tool(),
            if event["connected"] == true { "" } else { "not " }
        ),
        _ => return None,
    };
    Some((LineStyle::Aside, told))
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}
