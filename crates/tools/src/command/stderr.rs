//! Standard error: the last lines, for the message of a failure.

use std::collections::VecDeque;

/// The last lines of a log, up to a number of bytes. Lines of progress (`{"progress": …}`) are told elsewhere
/// and push nothing out.
#[derive(Clone, Debug)]
pub struct Tail {
    lines: VecDeque<u8>,
    /// The line that is being written; of a long one only the end.
    line: VecDeque<u8>,
    line_is_whole: bool,
    bytes_max: usize,
    dropped: bool,
}

impl Tail {
    /// Nothing yet; at most `bytes_max` will be kept.
    pub fn new(bytes_max: usize) -> Tail {
        Tail { lines: VecDeque::new(), line: VecDeque::new(), line_is_whole: true, bytes_max, dropped: false }
    }

    /// Takes the next piece, wherever it was cut.
    pub fn push(&mut self, piece: &[u8]) {
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

    /// The lines that were kept; says so if some before them were not.
    pub fn text(mut self) -> String {
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

    /// The most it keeps.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let whole = std::mem::replace(&mut self.line_is_whole, true);
        let line: Vec<u8> = line.into();
        if whole && is_progress(&line) {
            return;
        }
        self.lines.extend(line);
        self.dropped |= keep_last(&mut self.lines, self.bytes_max) | !whole;
    }
}

/// Drops from the front what is more than `max`; says whether anything was.
fn keep_last(bytes: &mut VecDeque<u8>, max: usize) -> bool {
    let over = bytes.len().saturating_sub(max);
    bytes.drain(..over);
    over > 0
}

fn is_progress(line: &[u8]) -> bool {
    line.starts_with(b"{")
        && serde_json::from_slice::<serde_json::Value>(line)
            .is_ok_and(|value| value.get("progress").is_some())
}
