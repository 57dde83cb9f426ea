//! Standard error: the last lines, for the message of a failure.

use serde::Deserialize;
use serde_json::Value;
use std::collections::VecDeque;
use windlass::secrets::SecretScrubber;
use windlass::tool::Progress;

/// An event that a command emits.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandEvent {
    /// Its kind, as the tool declares it.
    pub kind: String,
    /// Its payload.
    #[serde(default)]
    pub payload: Value,
}

/// The last lines of a log, up to a number of bytes. Lines of progress (`{"progress": …}`) are separated and
/// displace nothing; so are events (`{"event": …}`), if the tool has some.
#[derive(Clone, Debug)]
pub struct Tail {
    lines: VecDeque<u8>,
    /// The current line; only the end of a long one.
    line: VecDeque<u8>,
    line_is_whole: bool,
    bytes_max: usize,
    dropped: bool,
    progress: Option<Progress>,
    /// The emitted events; `None` if the tool has none.
    events: Option<Vec<CommandEvent>>,
    /// Replaces secrets before anything is cut: a part of one would not be recognised.
    secrets: SecretScrubber,
}

impl Tail {
    /// An empty tail; at most `bytes_max` will be kept.
    pub fn new(bytes_max: usize) -> Tail {
        let (lines, line) = (VecDeque::new(), VecDeque::new());
        let secrets = SecretScrubber::default();
        Tail {
            lines,
            line,
            line_is_whole: true,
            bytes_max,
            dropped: false,
            progress: None,
            events: None,
            secrets,
        }
    }

    /// A tail in which no secret appears.
    pub fn without(self, secrets: SecretScrubber) -> Tail {
        Tail { secrets, ..self }
    }

    /// A tail for a tool that emits events.
    pub fn with_events(self) -> Tail {
        Tail { events: Some(Vec::new()), ..self }
    }

    /// Takes the next piece, wherever it was cut.
    pub fn push(&mut self, piece: &[u8]) {
        match self.secrets.push(piece) {
            Some(scrubbed) => self.take(&scrubbed),
            None => self.take(piece),
        }
    }

    fn take(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend(part);
            if keep_last(&mut self.line, self.bytes_max) {
                self.line_is_whole = false;
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    /// The kept lines, with a note if earlier ones were dropped.
    pub fn text(mut self) -> String {
        let rest = self.secrets.finish();
        self.take(&rest);
        self.end_line();
        let dropped = self.dropped;
        let bytes: Vec<u8> = self.lines.into();
        let mut text = String::from_utf8_lossy(&bytes).into_owned();
        if dropped {
            // The first line kept is probably cut; without it the rest reads well.
            let cut = text.find('\n').map_or(0, |at| at + 1);
            text = format!("[…]\n{}", if cut < text.len() { &text[cut..] } else { &text });
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The last reported progress, if it is new since the last call.
    pub fn take_progress(&mut self) -> Option<Progress> {
        self.progress.take()
    }

    /// The events emitted since the last call.
    pub fn take_events(&mut self) -> Vec<CommandEvent> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Its capacity.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let whole = std::mem::replace(&mut self.line_is_whole, true);
        let line: Vec<u8> = line.into();
        if whole && let Some(progress) = progress(&line) {
            self.progress = progress.or(self.progress.take());
            return;
        }
        if whole && let Some((events, event)) = self.events.as_mut().zip(event(&line)) {
            events.push(event);
            return;
        }
        self.lines.extend(line);
        self.dropped |= keep_last(&mut self.lines, self.bytes_max) | !whole;
    }
}

/// Drops the excess over `max` from the front; returns whether there was any.
fn keep_last(bytes: &mut VecDeque<u8>, max: usize) -> bool {
    let over = bytes.len().saturating_sub(max);
    bytes.drain(..over);
    over > 0
}

/// A line of progress: `{"progress": 0.4}`, or `{"progress": {"current": 3, "total": 10, "unit": …, "label":
/// …}}`. One with other content is still a line of progress, without effect.
fn progress(line: &[u8]) -> Option<Option<Progress>> {
    if !line.starts_with(b"{") {
        return None;
    }
    let value = serde_json::from_slice::<Value>(line).ok()?;
    let said = value.get("progress")?;
    Some(match said.as_f64() {
        Some(share) => {
            Some(Progress { current: Some(share * 100.0), total: Some(100.0), ..Progress::default() })
        }
        None => Progress::deserialize(said).ok(),
    })
}

/// A line with an event: `{"event": {"kind": "sold", "payload": …}}`. Any other is a line of the log.
fn event(line: &[u8]) -> Option<CommandEvent> {
    if !line.starts_with(b"{") {
        return None;
    }
    let value = serde_json::from_slice::<Value>(line).ok()?;
    CommandEvent::deserialize(value.get("event")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_progress_are_told_apart() {
        let mut tail = Tail::new(1_000);
        tail.push(b"one\n{\"progress\": 0.25}\n{\"progress\": {\"current\": 3, \"to");
        let said = |tail: &mut Tail| tail.take_progress().map(|progress| progress.to_string());
        assert_eq!(said(&mut tail).as_deref(), Some("25 %, 25 of 100"));
        assert_eq!(said(&mut tail), None, "it is told once");
        tail.push(b"tal\": 4, \"unit\": \"files\"}}\n{\"progress\": \"nearly\"}\n{\"other\": 1}\ntwo\n");
        assert_eq!(
            said(&mut tail).as_deref(),
            Some("75 %, 3 of 4 files"),
            "what says nothing changes nothing"
        );
        assert_eq!(tail.text(), "one\n{\"other\": 1}\ntwo");
    }

    #[test]
    fn events_are_told_apart_where_the_tool_has_some() {
        let log = b"one\n{\"event\": {\"kind\": \"sold\", \"payload\": 7}}\n{\"event\": \"sold\"}\n{\"event\": {\"kind\": \"x\"}}\n";
        let mut tail = Tail::new(1_000).with_events();
        tail.push(log);
        let told: Vec<(String, Value)> =
            tail.take_events().into_iter().map(|event| (event.kind, event.payload)).collect();
        assert_eq!(told, [("sold".to_string(), 7.into()), ("x".to_string(), Value::Null)]);
        assert_eq!(tail.take_events(), []);
        assert_eq!(tail.text(), "one\n{\"event\": \"sold\"}", "what is none is a line of the log");
        let mut plain = Tail::new(1_000);
        plain.push(log);
        assert_eq!((plain.take_events(), plain.text().lines().count()), (Vec::new(), 4));
    }
}
