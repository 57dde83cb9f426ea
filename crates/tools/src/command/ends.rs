//! The beginning and the end of an output that is too large to be held.

use std::collections::VecDeque;

/// The beginning that is held.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// The end that is held: what a command says last matters most.
const TAIL_BYTES_MAX: usize = 24 << 10;

/// The ends of an output.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputEnds {
    pub(crate) head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl OutputEnds {
    /// Takes the next piece of the output.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        let room = HEAD_BYTES_MAX.saturating_sub(self.head.len()).min(piece.len());
        let (head, rest) = piece.split_at(room);
        self.head.extend_from_slice(head);
        self.tail.extend(&rest[rest.len().saturating_sub(TAIL_BYTES_MAX)..]);
        let over = self.tail.len().saturating_sub(TAIL_BYTES_MAX);
        self.tail.drain(..over);
        self.total += piece.len() as u64;
    }

    /// Both ends as text, in whole lines where there are some, and how much lies between.
    pub(crate) fn text(mut self) -> String {
        let tail = &*self.tail.make_contiguous();
        let between = self.total - (self.head.len() + tail.len()) as u64;
        if between == 0 {
            return String::from_utf8_lossy(&[&self.head, tail].concat()).into_owned();
        }
        let head_end = self.head.iter().rposition(|byte| *byte == b'\n').map_or(self.head.len(), |at| at + 1);
        let tail_start = tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (head, tail) = (&self.head[..head_end], &tail[tail_start..]);
        let left_out = self.total - (head.len() + tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let line = if head.ends_with('\n') { "" } else { "\n" };
        format!("{head}{line}[… {left_out} bytes are left out here …]\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(bytes: &[u8], piece: usize) -> OutputEnds {
        let mut ends = OutputEnds::default();
        bytes.chunks(piece).for_each(|piece| ends.take(piece));
        ends
    }

    #[test]
    fn what_lies_between_is_counted_and_lines_stay_whole() {
        let lines: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        for piece in [1, 7, 64 << 10, 10 << 20] {
            let text = ends(lines.as_bytes(), piece).text();
            assert!(text.starts_with("line 0\n") && text.ends_with("line 99999\n"));
            let (head, rest) = text.split_once("[… ").unwrap();
            let (count, tail) = rest.split_once(" bytes are left out here …]\n").unwrap();
            assert_eq!(head.len() + tail.len() + count.parse::<usize>().unwrap(), lines.len());
            assert!(head.ends_with('\n') && tail.starts_with("line "), "{piece}");
            assert!(text.len() <= HEAD_BYTES_MAX + TAIL_BYTES_MAX + 100);
        }
    }

    #[test]
    fn a_short_output_is_whole() {
        let text = "ä".repeat(HEAD_BYTES_MAX);
        assert_eq!(ends(text.as_bytes(), 1_001).text(), text);
        assert_eq!(OutputEnds::default().text(), "");
    }
}
