//! Lines of a text, read in bounded memory however long the text and its lines are.

use std::io::{BufRead, Read, Result, Seek, SeekFrom};

/// The space for lines in an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineRoom {
    pub(super) bytes: usize,
    pub(super) lines: usize,
    /// How many bytes may be passed over.
    pub(super) scanned: u64,
}

/// The place to begin at.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineStart {
    /// The number of the reader's first line: 1, or negative if it is counted from the end.
    pub(super) first: i64,
    /// How many lines to pass over.
    pub(super) skip: u64,
    /// How many characters of the first shown line to pass over.
    pub(super) column: u64,
}

/// Lines that fit into an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LinePage {
    /// Each with its number.
    pub(super) text: String,
    pub(super) shown: u64,
    /// The number of the first line, if there is one.
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    /// The line to read on with; `None`: the text is over.
    pub(super) next: Option<NextLine>,
    /// Whether some bytes were no text.
    pub(super) lossy: bool,
    /// Whether so much was passed over that the place was not reached.
    pub(super) gave_up: bool,
}

/// The place at which the next page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextLine {
    pub(super) line: i64,
    /// The character, if it is inside a line.
    pub(super) column: Option<u64>,
}

/// A longer line is cut, unless it is the only one.
const LINE_CHARS_MAX: usize = 2_000;
/// The number of a line, and a tab.
const NUMBER_BYTES: usize = 7;
/// The words about a line that is cut.
const CUT_BYTES: usize = 96;

/// Reads a page of lines.
pub(super) fn page(reader: &mut impl BufRead, start: LineStart, room: LineRoom) -> Result<LinePage> {
    let mut scanned = 0;
    let mut page = LinePage::default();
    for _ in 0..start.skip {
        let passed = pass_line(reader, &mut scanned, room.scanned)?;
        page.gave_up = scanned > room.scanned;
        if !passed || page.gave_up {
            return Ok(page);
        }
    }
    let mut number = start.first + i64::try_from(start.skip).unwrap_or(i64::MAX);
    let mut column = start.column;
    loop {
        if reader.fill_buf()?.is_empty() {
            return Ok(page);
        }
        let left = room.bytes.saturating_sub(page.text.len());
        let is_first = page.shown == 0;
        if page.shown as usize >= room.lines || (!is_first && left < NUMBER_BYTES + CUT_BYTES) {
            page.next = Some(NextLine { line: number, column: None });
            return Ok(page);
        }
        let most = left.saturating_sub(NUMBER_BYTES + CUT_BYTES).max(8);
        let most = if is_first && column > 0 { most } else { most.min(LINE_CHARS_MAX * 4) };
        let line = take_line(reader, column, most, &mut scanned)?;
        let text = String::from_utf8_lossy(&line.kept);
        page.lossy |= matches!(text, std::borrow::Cow::Owned(_));
        let shown =
            text.chars().take(if column > 0 { usize::MAX } else { LINE_CHARS_MAX }).collect::<String>();
        let shown =
            if line.is_whole && shown.len() == text.len() { shown.trim_end_matches('\r') } else { &shown };
        let is_cut = !line.is_whole || shown.trim_end_matches('\r').len() < text.trim_end_matches('\r').len();
        // A line that would be cut only for want of space begins the next page.
        if is_cut && !is_first && shown.chars().count() < LINE_CHARS_MAX {
            page.next = Some(NextLine { line: number, column: None });
            return Ok(page);
        }
        page.text.push_str(&format!("{number:>6}\t{shown}"));
        let next_column = column + shown.chars().count() as u64;
        if is_cut {
            page.text
                .push_str(&format!("… (line {number} is longer: offset {number}, column {next_column})"));
        }
        page.text.push('\n');
        page.from.get_or_insert(number);
        (page.to, page.shown) = (Some(number), page.shown + 1);
        if !line.is_ended {
            // Its end is far away: reading on begins inside it.
            page.next = Some(NextLine { line: number, column: Some(next_column) });
            page.gave_up = scanned > room.scanned;
            return Ok(page);
        }
        (number, column) = (number + 1, 0);
    }
}

/// A line that was read.
struct TakenLine {
    kept: Vec<u8>,
    /// Whether all of it was kept, from its column on.
    is_whole: bool,
    /// Whether the reader stands behind it.
    is_ended: bool,
}

/// How much of a long line is passed over on the way to the next one.
const LONG_LINE_BYTES_MAX: u64 = 64 << 20;

/// Reads a line without its `\n`, keeps at most so many bytes from the column on, and passes over the rest.
fn take_line(reader: &mut impl BufRead, column: u64, most: usize, scanned: &mut u64) -> Result<TakenLine> {
    let (mut kept, mut is_whole) = (Vec::new(), true);
    let (mut passed, mut letters, mut is_begun) = (0_u64, 0_u64, column == 0);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(TakenLine { kept: whole_letters(kept, is_whole), is_whole, is_ended: true });
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let line = &buffer[..end.unwrap_or(buffer.len())];
        let mut from = 0;
        while !is_begun && from < line.len() {
            // Bytes that continue a letter belong to the one before.
            if line[from] & 0xc0 != 0x80 {
                is_begun = letters == column;
                letters += 1;
            }
            from += usize::from(!is_begun);
        }
        let rest = &line[from..];
        let room = most.saturating_sub(kept.len()).min(rest.len());
        kept.extend_from_slice(&rest[..room]);
        is_whole &= room == rest.len();
        let consumed = end.map_or(line.len(), |end| end + 1);
        reader.consume(consumed);
        passed += consumed as u64;
        *scanned += consumed as u64;
        if end.is_some() {
            return Ok(TakenLine { kept: whole_letters(kept, is_whole), is_whole, is_ended: true });
        }
        if passed > LONG_LINE_BYTES_MAX {
            return Ok(TakenLine { kept: whole_letters(kept, false), is_whole: false, is_ended: false });
        }
    }
}

/// The bytes without the beginning of a letter at a cut.
fn whole_letters(mut kept: Vec<u8>, is_whole: bool) -> Vec<u8> {
    if !is_whole {
        let begun = kept.iter().rev().take(4).position(|byte| byte & 0xc0 != 0x80);
        if let Some(back) = begun {
            let at = kept.len() - 1 - back;
            let len = match kept[at] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xff => 4,
                _ => 1,
            };
            if at + len > kept.len() {
                kept.truncate(at);
            }
        }
    }
    kept
}

/// Passes over a line. `false`: there was none.
fn pass_line(reader: &mut impl BufRead, scanned: &mut u64, max: u64) -> Result<bool> {
    let mut any = false;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() || *scanned > max {
            return Ok(any);
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let consumed = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(consumed);
        *scanned += consumed as u64;
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// The number of lines.
pub(super) fn count(bytes: &[u8]) -> u64 {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    ends + u64::from(bytes.last().is_some_and(|last| *last != b'\n'))
}

/// How many of the last lines fit: at least one.
pub(super) fn last_that_fit(bytes: &[u8], room: LineRoom) -> u64 {
    let (mut used, mut lines) = (0, 0);
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for line in body.rsplit(|byte| *byte == b'\n') {
        used += line.len().min(LINE_CHARS_MAX * 4 + CUT_BYTES) + NUMBER_BYTES + 2;
        if lines > 0 && (used + CUT_BYTES > room.bytes || lines as usize >= room.lines) {
            break;
        }
        lines += 1;
    }
    lines
}

/// A place near the end of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FromEnd {
    /// The byte at which the line begins.
    pub(super) at: u64,
    /// How many lines there are from there on.
    pub(super) lines: u64,
}

/// Finds the beginning of the line that is the `wanted`-th from the end, reading backwards. `None`: it is farther away than `max` bytes.
pub(super) fn from_end(
    file: &mut (impl Read + Seek),
    size: u64,
    wanted: u64,
    max: u64,
) -> Result<Option<FromEnd>> {
    const PIECE_BYTES: u64 = 64 << 10;
    let (mut at, mut lines) = (size, 0);
    let mut piece = Vec::new();
    while at > 0 {
        if size - at > max {
            return Ok(None);
        }
        let len = at.min(PIECE_BYTES);
        file.seek(SeekFrom::Start(at - len))?;
        piece.clear();
        file.take(len).read_to_end(&mut piece)?;
        for (place, byte) in piece.iter().enumerate().rev() {
            let behind = at - len + place as u64 + 1;
            // The last line end ends the last line, and begins none.
            if *byte == b'\n' && behind < size {
                lines += 1;
                if lines == wanted {
                    return Ok(Some(FromEnd { at: behind, lines }));
                }
            }
        }
        at -= len;
    }
    Ok(Some(FromEnd { at: 0, lines: lines + u64::from(size > 0) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    const ROOM: LineRoom = LineRoom { bytes: 1_000, lines: 3, scanned: 1 << 20 };

    fn read(text: &[u8], skip: u64, column: u64, room: LineRoom) -> LinePage {
        // A small buffer, so that lines and letters go across its end.
        let mut reader = BufReader::with_capacity(3, text);
        page(&mut reader, LineStart { first: 1, skip, column }, room).expect("readable")
    }

    #[test]
    fn lines_are_numbered_and_pages_add_up() {
        let text = b"one\ntwo\r\n\ngr\xc3\xbc\xc3\x9fe\nlast";
        let first = read(text, 0, 0, ROOM);
        assert_eq!(first.text, "     1\tone\n     2\ttwo\n     3\t\n");
        assert_eq!(first.next, Some(NextLine { line: 4, column: None }));
        let second = read(text, 3, 0, ROOM);
        assert_eq!((second.text.as_str(), second.next), ("     4\tgrüße\n     5\tlast\n", None));
        assert_eq!(read(text, 9, 0, ROOM), LinePage::default());
        assert_eq!(read(b"", 0, 0, ROOM), LinePage::default());
        assert!(read(b"a\xffb\n", 0, 0, ROOM).lossy);
    }

    #[test]
    fn a_long_line_is_read_in_pieces_that_add_up() {
        let line: String = (0..3_000).map(|n| ['ä', '東', 'x', '🦀'][n % 4]).collect();
        let room = LineRoom { bytes: 2_000, ..ROOM };
        let (mut read_so_far, mut column) = (String::new(), 0);
        loop {
            let page = read(format!("{line}\nnext\n").as_bytes(), 0, column, room);
            let shown = page.text.lines().next().expect("a line").trim_start();
            let shown = shown.strip_prefix("1\t").expect("its number");
            assert!(page.text.len() <= 2_000);
            match shown.split_once("… (line 1 is longer") {
                Some((piece, _)) => read_so_far.push_str(piece),
                None => {
                    read_so_far.push_str(shown);
                    break;
                }
            }
            column = read_so_far.chars().count() as u64;
        }
        assert_eq!(read_so_far, line);
    }

    #[test]
    fn the_end_is_found_from_behind() {
        let text = b"a\nbb\nccc\n";
        let find =
            |wanted| from_end(&mut Cursor::new(text), text.len() as u64, wanted, 1 << 20).expect("readable");
        assert_eq!(find(1), Some(FromEnd { at: 5, lines: 1 }));
        assert_eq!(find(2), Some(FromEnd { at: 2, lines: 2 }));
        assert_eq!(find(9), Some(FromEnd { at: 0, lines: 3 }));
        let long = vec![b'x'; 200_000];
        assert_eq!(from_end(&mut Cursor::new(&long), 200_000, 1, 100_000).expect("readable"), None);
        assert_eq!(
            from_end(&mut Cursor::new(b""), 0, 1, 9).expect("readable"),
            Some(FromEnd { at: 0, lines: 0 })
        );
        assert_eq!((count(b""), count(b"a"), count(b"a\n"), count(b"a\n\n")), (0, 1, 1, 2));
        assert_eq!(last_that_fit(b"a\nb\nc\nd\n", ROOM), 3);
    }
}
