//! One line per event, and on a terminal a bar per running call below them.

use crate::show;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;
use windlass::Progress;

/// More bars than this would push the lines off the screen.
const BARS_MAX: usize = 12;
/// How wide the sentence is, so that what stands behind it is aligned.
const SENTENCE_CHARS: usize = 48;

/// Where events are shown.
pub struct Lines {
    json: bool,
    colours: bool,
    /// On a terminal, the bars of running calls by handle.
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
}

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Begins,
    Waits,
    Well,
    Badly,
    Aside,
}

impl Look {
    /// The sign at the beginning of the line, and its colour.
    fn sign(self) -> (&'static str, &'static str) {
        match self {
            Look::Begins => ("▶", "36"),
            Look::Waits => ("◷", "33"),
            Look::Well => ("✓", "32"),
            Look::Badly => ("✗", "31"),
            Look::Aside => ("·", "2"),
        }
    }
}

impl Lines {
    /// As JSON lines, or for people.
    pub fn new(json: bool) -> Lines {
        let terminal = std::io::stdout().is_terminal() && !json;
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|wish| wish.is_empty());
        let target = ProgressDrawTarget::stdout_with_hz(10);
        let bars = terminal.then(|| (MultiProgress::with_draw_target(target), BTreeMap::new()));
        Lines { json, colours, bars }
    }

    /// Tells an event.
    pub fn tell(&mut self, kind: &str, event: &Value) -> anyhow::Result<()> {
        if self.json {
            return show::text(&event.to_string());
        }
        if kind != "progress"
            && let Some(line) = self.line(kind, event)
        {
            self.print(&line)?;
        }
        self.move_bar(kind, event);
        Ok(())
    }

    /// Says something of our own.
    pub fn note(&self, text: &str) {
        match &self.bars {
            // Beside the bars, which would be drawn over it.
            Some((bars, _)) => drop(bars.println(format!("windlass: {text}"))),
            None => eprintln!("windlass: {text}"),
        }
    }

    /// No call runs any more, as far as is known.
    pub fn clear(&mut self) {
        if let Some((_, bars)) = &mut self.bars {
            std::mem::take(bars).values().for_each(ProgressBar::finish_and_clear);
        }
    }

    fn print(&self, line: &str) -> anyhow::Result<()> {
        match &self.bars {
            Some((bars, running)) if !running.is_empty() => Ok(bars.println(line)?),
            Some(_) | None => show::text(line),
        }
    }

    /// `12:03:04.567 ✓ Read AGENTS.md    c1 01j8a6zc  3 ms`
    fn line(&self, kind: &str, event: &Value) -> Option<String> {
        let (look, sentence) = sentence(kind, event)?;
        // A day and its zone are the same on every line; --json has them.
        let time = text(event, "at").get(11..23).unwrap_or_default();
        let (sign, colour) = look.sign();
        let inside = if event["parent"].is_string() { "└ " } else { "" };
        let sentence = format!("{inside}{sentence}");
        let padding = " ".repeat(SENTENCE_CHARS.saturating_sub(sentence.chars().count()));
        let mut behind =
            format!("{} {}", show::line(text(event, "id")), show::short_handle(text(event, "call")));
        if kind == "ended" {
            behind.push_str(&format!("  {} ms", event["ran_ms"]));
        }
        let (dim, plain) = ("2", &sentence);
        let sentence = if look == Look::Aside { self.painted(dim, plain) } else { plain.clone() };
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

    /// A call that runs has a bar, until its attempt is over.
    fn move_bar(&mut self, kind: &str, event: &Value) {
        let Some((multi, bars)) = &mut self.bars else { return };
        let call = text(event, "call");
        match kind {
            "started" | "resumed" | "progress" => {
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

const SPINNER: &str = "  {spinner} {msg}  {elapsed}";
const BAR: &str = "  {bar:20} {percent:>3} %  {msg}  {elapsed}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn say(bar: &ProgressBar, event: &Value) {
    let progress = serde_json::from_value::<Progress>(event["progress"].clone()).ok();
    if let Some(share) = progress.as_ref().and_then(Progress::share) {
        bar.set_style(style(BAR));
        // A share lies between 0 and 1.
        bar.set_position((share * 100.0).round() as u64);
    }
    let said = event["narration"].as_str().or(event["status"].as_str());
    if let Some(said) = said {
        bar.set_message(show::line(said));
    }
}

/// What people are told of an event; most that have no sentence of their own are not worth a line.
fn sentence(kind: &str, event: &Value) -> Option<(Look, String)> {
    let name = || show::line(text(event, "name"));
    let tool = || show::line(text(event, "tool"));
    if let Some(told) = event["narration"].as_str() {
        let look = match (kind, text(event, "state")) {
            ("started", _) => Look::Begins,
            ("ended" | "resolved", "succeeded") => Look::Well,
            ("ended" | "resolved", _) => Look::Badly,
            _ => Look::Waits,
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
    Some((Look::Aside, told))
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}
