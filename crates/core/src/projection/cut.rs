//! Text shown by its head and its tail, cut between lines where that costs little, and never inside a character.

use super::{Ends, ReadOn, TextRoom, grouped};
use std::borrow::Cow;

/// The line between head and tail, and the line breaks around it.
const MARK_BYTES_MAX: usize = 64;
const MARK_LINES: usize = 2;

/// Cuts a text that is in memory.
pub(super) fn text(text: &str, room: TextRoom) -> (String, ReadOn) {
    let (head_room, tail_room) = halves(room);
    let head = &text[..head_end(text, head_room)];
    let rest = &text[head.len()..];
    let tail = &rest[tail_start(rest, tail_room)..];
    joined(head, tail, Lengths { head: head.len(), tail: tail.len(), total: text.len() as u64 })
}

/// Cuts a text of which only the ends are in memory.
pub(super) fn ends(ends: Ends<'_>, room: TextRoom) -> (String, ReadOn) {
    let (head_room, tail_room) = halves(room);
    // Never read more than can be shown, whatever was given.
    let head_bytes = &ends.head[..ends.head.len().min(room.bytes)];
    let head_bytes = &head_bytes[..whole_characters(head_bytes)];
    let lossy = String::from_utf8_lossy(head_bytes);
    let head = &lossy[..head_end(&lossy, head_room)];
    let head_length = source_length(head_bytes, head.len());

    let behind_head = usize::try_from(ends.total - head_length as u64).unwrap_or(usize::MAX);
    let tail_length = ends.tail.len().min(room.bytes).min(behind_head);
    let tail_bytes = &ends.tail[ends.tail.len() - tail_length..];
    // The first bytes may belong to a character that began before them.
    let begin = tail_bytes.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    let tail_bytes = &tail_bytes[begin..];
    let lossy: Cow<'_, str> = String::from_utf8_lossy(tail_bytes);
    let cut = tail_start(&lossy, tail_room);
    let tail_length = tail_bytes.len() - source_length(tail_bytes, cut);
    joined(head, &lossy[cut..], Lengths { head: head_length, tail: tail_length, total: ends.total })
}

/// The shown lengths of the original.
struct Lengths {
    head: usize,
    tail: usize,
    total: u64,
}

fn joined(head: &str, tail: &str, lengths: Lengths) -> (String, ReadOn) {
    let shown = (lengths.head + lengths.tail) as u64;
    let mut text = String::with_capacity(head.len() + tail.len() + MARK_BYTES_MAX);
    text.push_str(head);
    if !head.is_empty() && !head.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("… ");
    text.push_str(&grouped(lengths.total.saturating_sub(shown)));
    text.push_str(" bytes left out …\n");
    text.push_str(tail);
    (text, ReadOn { shown, total: lengths.total, next_offset: lengths.head as u64, is_json: false })
}

fn halves(room: TextRoom) -> (TextRoom, TextRoom) {
    let bytes = room.bytes.saturating_sub(MARK_BYTES_MAX);
    let lines = room.lines.saturating_sub(MARK_LINES);
    let head = TextRoom { bytes: bytes - bytes / 2, lines: lines - lines / 2 };
    (head, TextRoom { bytes: bytes / 2, lines: lines / 2 })
}

/// Where the head ends.
fn head_end(text: &str, room: TextRoom) -> usize {
    if room.lines == 0 {
        return 0;
    }
    let most = text.floor_char_boundary(room.bytes);
    let newlines = text[..most].match_indices('\n');
    if let Some((nth, _)) = newlines.clone().nth(room.lines - 1) {
        return nth + 1;
    }
    if most == text.len() {
        return most;
    }
    match text[..most].rfind('\n') {
        // Whole lines, unless that gives up more than half.
        Some(newline) if newline + 1 >= most / 2 => newline + 1,
        _ => most,
    }
}

/// Where the tail starts.
fn tail_start(text: &str, room: TextRoom) -> usize {
    if room.lines == 0 {
        return text.len();
    }
    let least = text.ceil_char_boundary(text.len().saturating_sub(room.bytes));
    // A newline at the very end closes the last line and begins none.
    let body = text.strip_suffix('\n').unwrap_or(text);
    let from = least.min(body.len());
    if let Some((nth, _)) = body[from..].rmatch_indices('\n').nth(room.lines - 1) {
        return from + nth + 1;
    }
    if least == 0 {
        return 0;
    }
    match text[least..].find('\n') {
        Some(newline) if newline < (text.len() - least) / 2 => least + newline + 1,
        _ => least,
    }
}

/// The number of bytes without an incomplete character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(4) {
        let first = bytes[bytes.len() - back];
        let needs = match first {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => 1,
        };
        return if needs > back { bytes.len() - back } else { bytes.len() };
    }
    bytes.len()
}

/// The number of source bytes for the first `shown` bytes of their lossy text.
fn source_length(bytes: &[u8], shown: usize) -> usize {
    let (mut text, mut source) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        if text + chunk.valid().len() >= shown {
            return source + (shown - text);
        }
        text += chunk.valid().len();
        source += chunk.valid().len();
        if !chunk.invalid().is_empty() {
            text += char::REPLACEMENT_CHARACTER.len_utf8();
            source += chunk.invalid().len();
        }
    }
    source
}
