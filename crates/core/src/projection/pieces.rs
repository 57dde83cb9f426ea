//! The parts of an answer in the order the tool gave them. Only text is cut: short texts stay whole, so that captions stay with
//! their images, and long ones share the rest of the space.

use super::{ReadOn, TextRoom, cut, grouped, shrink};
use crate::limits::CallLimits;
use crate::outcome::{KeptBytes, Part};

/// A text of an answer.
#[derive(Clone, Copy)]
pub(super) struct TextPiece<'a> {
    pub(super) text: &'a str,
    /// Whether it is JSON, and stays so if it is shortened.
    pub(super) is_json: bool,
}

/// The lead text and the parts, in order. `kept` is the whole text, stored because it does not fit.
pub(super) fn in_order(
    lead: Option<TextPiece<'_>>,
    parts: &[Part],
    kept: Option<KeptBytes>,
    limits: &CallLimits,
) -> Vec<Part> {
    let mut room = TextRoom::of(limits);
    let mut files = FileLines::of(parts, TextRoom { bytes: room.bytes / 4, lines: room.lines / 4 });
    room.bytes -= files.bytes;
    room.lines -= files.count;
    let texts = parts.iter().filter_map(piece);
    let texts: Vec<TextPiece<'_>> = lead.into_iter().chain(texts).collect();
    let mut shown = ShownTexts::of(&texts, room, limits);
    let mut answer = Vec::with_capacity(parts.len() + 2);
    if let Some(lead) = lead {
        shown.push_next(&mut answer, || Part::Text(lead.text.to_string()));
    }
    for part in parts {
        match part {
            Part::Text(_) | Part::Json(_) => shown.push_next(&mut answer, || part.clone()),
            Part::Image { .. } | Part::KeptImage { .. } => answer.push(part.clone()),
            Part::File { kept, media_type, .. } if Part::is_image(media_type) => {
                answer.push(Part::KeptImage { kept: *kept, media_type: media_type.clone() });
            }
            Part::File { .. } => files.push_next(&mut answer),
        }
    }
    answer.extend(shown.read_on.map(|read_on| read_on.part(kept)));
    answer
}

fn piece(part: &Part) -> Option<TextPiece<'_>> {
    part.text().map(|text| TextPiece { text, is_json: matches!(part, Part::Json(_)) })
}

/// The texts as they are shown.
struct ShownTexts {
    /// For each text, its shortened form; `None` if it is shown whole.
    texts: std::vec::IntoIter<Option<String>>,
    read_on: Option<ReadOn>,
}

impl ShownTexts {
    fn of(texts: &[TextPiece<'_>], room: TextRoom, limits: &CallLimits) -> ShownTexts {
        let lines = |piece: &TextPiece<'_>| piece.text.bytes().filter(|&byte| byte == b'\n').count() + 1;
        let joined: usize = texts.iter().map(|piece| piece.text.len() + 1).sum();
        let fits = joined <= room.bytes + 1 && texts.iter().map(lines).sum::<usize>() <= room.lines;
        if fits {
            return ShownTexts { texts: vec![None; texts.len()].into_iter(), read_on: None };
        }
        let bytes = shares(&texts.iter().map(|piece| piece.text.len()).collect::<Vec<_>>(), room.bytes);
        // A text that is cut has a head, a mark and a tail, also if it was one line.
        let needs = |(piece, share): (&TextPiece<'_>, &usize)| match piece.text.len() > *share {
            true => lines(piece).max(ENDS_LINES_MIN),
            false => lines(piece),
        };
        let lines = shares(&texts.iter().zip(&bytes).map(needs).collect::<Vec<_>>(), room.lines);
        let mut told = ReadOn { shown: 0, total: 0, next_offset: 0, is_json: false };
        let mut is_first_cut = true;
        let mut all = Vec::with_capacity(texts.len());
        for ((piece, bytes), lines) in texts.iter().zip(bytes).zip(lines) {
            let start = told.total + u64::from(told.total > 0);
            told.total = start + piece.text.len() as u64;
            let cut = cut_piece(*piece, TextRoom { bytes, lines }, limits);
            let Some((text, read_on)) = cut else {
                told.shown += piece.text.len() as u64;
                all.push(None);
                continue;
            };
            told.shown += read_on.shown;
            if std::mem::take(&mut is_first_cut) {
                told.is_json = read_on.is_json;
                told.next_offset = if read_on.is_json { 0 } else { start + read_on.next_offset };
            }
            all.push(Some(text));
        }
        ShownTexts { texts: all.into_iter(), read_on: (!is_first_cut).then_some(told) }
    }

    /// Adds the next text. One that has no space at all is left out, and the read-on part counts it.
    fn push_next(&mut self, answer: &mut Vec<Part>, whole: impl FnOnce() -> Part) {
        match self.texts.next() {
            Some(None) => answer.push(whole()),
            Some(Some(cut)) if cut.is_empty() => {}
            Some(Some(cut)) => answer.push(Part::Text(cut)),
            None => {}
        }
    }
}

/// The size from which head and tail are worth their mark.
const ENDS_BYTES_MIN: usize = 160;
const ENDS_LINES_MIN: usize = 6;

/// The text cut to its space, or `None` if it is shown whole.
fn cut_piece(piece: TextPiece<'_>, room: TextRoom, limits: &CallLimits) -> Option<(String, ReadOn)> {
    let TextPiece { text, is_json } = piece;
    if room.lines > 0 && room.fits(text) {
        return None;
    }
    let total = text.len() as u64;
    let is_parsed = is_json && room.lines > 0 && total <= limits.args.result_json_bytes_max;
    if let Some(shown) = is_parsed.then(|| shrink::json(text, room.bytes)).flatten()
        && shown.len() <= room.bytes
    {
        let length = shown.len() as u64;
        return Some((shown, ReadOn { shown: length, total, next_offset: 0, is_json: true }));
    }
    if room.bytes >= ENDS_BYTES_MIN && room.lines >= ENDS_LINES_MIN {
        return Some(cut::text(text, room));
    }
    let mark = '…';
    let line = text.split('\n').next().unwrap_or_default();
    let most = room.bytes.saturating_sub(mark.len_utf8());
    if room.lines == 0 || most == 0 {
        return Some((String::new(), ReadOn { shown: 0, total, next_offset: 0, is_json: false }));
    }
    let head = &line[..line.floor_char_boundary(most)];
    let shown = head.len() as u64;
    Some((format!("{head}{mark}"), ReadOn { shown, total, next_offset: shown, is_json: false }))
}

/// Divides a space among texts of these sizes: the small ones get all they need, the large ones equal shares of the rest.
fn shares(sizes: &[usize], total: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&place| sizes[place]);
    let mut given = vec![0; sizes.len()];
    let mut rest = total;
    for (passed, place) in order.into_iter().enumerate() {
        given[place] = sizes[place].min(rest / (sizes.len() - passed));
        rest -= given[place];
    }
    given
}

/// One line for each file that is no image, as far as there is space.
struct FileLines {
    lines: std::vec::IntoIter<String>,
    bytes: usize,
    count: usize,
}

impl FileLines {
    fn of(parts: &[Part], room: TextRoom) -> FileLines {
        const MORE: usize = 48;
        let (mut lines, mut bytes, mut left_out) = (Vec::new(), 0, 0usize);
        for part in parts {
            let Some(line) = file_line(part) else { continue };
            if left_out > 0 || lines.len() + 1 >= room.lines || bytes + line.len() + MORE > room.bytes {
                left_out += 1;
                continue;
            }
            bytes += line.len() + 1;
            lines.push(line);
        }
        if left_out > 0 {
            let line = format!("… and {left_out} more files");
            bytes += line.len() + 1;
            lines.push(line);
        }
        FileLines { bytes, count: lines.len(), lines: lines.into_iter() }
    }

    /// Adds the line of the next file; lines of neighbouring files share a part.
    fn push_next(&mut self, answer: &mut Vec<Part>) {
        let Some(line) = self.lines.next() else { return };
        match answer.last_mut() {
            Some(Part::Text(text)) if text.starts_with(FILE) => {
                text.push('\n');
                text.push_str(&line);
            }
            _ => answer.push(Part::Text(line)),
        }
    }
}

/// How the line of a file begins.
const FILE: &str = "file \"";

fn file_line(part: &Part) -> Option<String> {
    const NAME_CHARS_MAX: usize = 100;
    let Part::File { kept, media_type, name } = part else { return None };
    if Part::is_image(media_type) {
        return None;
    }
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    let media_type: String = media_type.chars().take(NAME_CHARS_MAX).collect();
    Some(format!(
        "file {name:?}: {} bytes of {media_type}; read_artifact reads it as artifact {}",
        grouped(kept.bytes),
        kept.artifact
    ))
}
