//! Edits of a text: exact and unique matches against the original, line endings kept.

use std::ops::Range;

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextEdit {
    pub(super) old_text: String,
    pub(super) new_text: String,
}

/// The text after its edits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EditedText {
    pub(super) text: String,
    /// The lines of the original at which the edits were made, in the order of the edits.
    pub(super) lines: Vec<u64>,
}

/// Why a text was not edited, with what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EditProblem {
    /// A word for programs.
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// Places of further matches that are told.
const PLACES_MAX: usize = 10;

/// Applies all edits, or none.
pub(super) fn apply(text: &str, edits: &[TextEdit]) -> Result<EditedText, EditProblem> {
    let plain = PlainLines::of(text);
    let mut places: Vec<(Range<usize>, &TextEdit, usize)> = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        places.push((find(&plain, edit, index, edits.len())?, edit, index));
    }
    let lines = places.iter().map(|(range, ..)| line_of(&plain.text, range.start)).collect();
    places.sort_by_key(|(range, ..)| range.start);
    for pair in places.windows(2) {
        let [(first, _, one), (second, _, other)] = pair else { continue };
        if second.start < first.end {
            let (one, other) = (one.min(other) + 1, one.max(other) + 1);
            let line = line_of(&plain.text, second.start);
            return Err(EditProblem {
                code: "overlap",
                message: format!("edits {one} and {other} overlap at line {line}; make one edit of them"),
            });
        }
    }
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for (range, edit, _) in places {
        let (start, end) = (plain.original(range.start), plain.original(range.end));
        edited.push_str(&text[at..start]);
        edited.push_str(&plain.with_endings(&edit.new_text, &text[start..end]));
        at = end;
    }
    edited.push_str(&text[at..]);
    if edited == text {
        return Err(EditProblem {
            code: "no_change",
            message:
                "new_text is the same as old_text, so nothing would change; give the text it should become"
                    .into(),
        });
    }
    Ok(EditedText { text: edited, lines })
}

/// The place of an edit in the text, if there is exactly one.
fn find(
    plain: &PlainLines,
    edit: &TextEdit,
    index: usize,
    count: usize,
) -> Result<Range<usize>, EditProblem> {
    let old = edit.old_text.replace("\r\n", "\n");
    let which = if count > 1 { format!("old_text of edit {}", index + 1) } else { "old_text".to_string() };
    if old.is_empty() {
        let message = format!("{which} is empty; give the text to replace, or use write_file for a new file");
        return Err(EditProblem { code: "no_match", message });
    }
    let mut places = matches(&plain.text, &old);
    match (places.next(), places.next()) {
        (Some(only), None) => Ok(only..only + old.len()),
        (None, _) => {
            let message = match similar_place(&plain.text, &old) {
                Some(line) => format!(
                    "{which} is not in the file; the text at line {line} differs from it only in white space: copy it exactly, \
                     without line numbers"
                ),
                None => format!(
                    "{which} is not in the file; read the file again and copy the text exactly, without line numbers"
                ),
            };
            Err(EditProblem { code: "no_match", message })
        }
        (Some(first), Some(second)) => {
            let found = 2 + places.count();
            let all =
                matches(&plain.text, &old).take(PLACES_MAX).map(|at| line_of(&plain.text, at).to_string());
            let all = all.collect::<Vec<_>>().join(", ");
            let more = if found > PLACES_MAX { ", …" } else { "" };
            debug_assert!(first < second);
            let message = format!(
                "{which} is in the file {found} times, at lines {all}{more}; add lines around it until it is found once"
            );
            Err(EditProblem { code: "ambiguous", message })
        }
    }
}

/// Where `old` begins, overlapping matches too.
fn matches<'a>(text: &'a str, old: &'a str) -> impl Iterator<Item = usize> + 'a {
    let step = old.chars().next().map_or(1, char::len_utf8);
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = from + text.get(from..)?.find(old)?;
        from = at + step;
        Some(at)
    })
}

/// The line at which the same words stand with other white space, if there is one such line.
fn similar_place(text: &str, old: &str) -> Option<u64> {
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<_>>();
    let wanted: Vec<Vec<String>> = old.lines().map(words).filter(|line| !line.is_empty()).collect();
    let lines: Vec<(usize, Vec<String>)> =
        text.lines().map(words).enumerate().filter(|(_, line)| !line.is_empty()).collect();
    if wanted.is_empty() {
        return None;
    }
    let same = |window: &&[(usize, Vec<String>)]| {
        window.iter().zip(&wanted).all(|((_, line), wanted)| line == wanted)
    };
    lines.windows(wanted.len()).find(same).and_then(|window| window.first()).map(|(line, _)| *line as u64 + 1)
}

fn line_of(text: &str, at: usize) -> u64 {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

/// A text with `\n` as its only line ending, and the way back to the original.
struct PlainLines {
    text: String,
    /// Where a `\r` was left out, as bytes of the plain text.
    gaps: Vec<usize>,
    /// Whether most lines end in `\r\n`.
    mostly_crlf: bool,
}

impl PlainLines {
    fn of(text: &str) -> PlainLines {
        let mut plain =
            PlainLines { text: String::with_capacity(text.len()), gaps: Vec::new(), mostly_crlf: false };
        let mut rest = text;
        while let Some(at) = rest.find("\r\n") {
            plain.text.push_str(&rest[..at]);
            plain.gaps.push(plain.text.len());
            plain.text.push('\n');
            rest = &rest[at + 2..];
        }
        plain.text.push_str(rest);
        let ends = plain.text.bytes().filter(|byte| *byte == b'\n').count();
        plain.mostly_crlf = plain.gaps.len() * 2 > ends;
        plain
    }

    /// The place in the original.
    fn original(&self, at: usize) -> usize {
        at + self.gaps.partition_point(|gap| *gap < at)
    }

    /// The new text with the line endings of the text it replaces, or else of most lines.
    fn with_endings(&self, new: &str, replaced: &str) -> String {
        let new = new.replace("\r\n", "\n");
        let is_crlf = match replaced.find('\n') {
            Some(at) => replaced[..at].ends_with('\r'),
            None => self.mostly_crlf,
        };
        if is_crlf { new.replace('\n', "\r\n") } else { new }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, edits: &[(&str, &str)]) -> Result<String, String> {
        let edits: Vec<TextEdit> = edits
            .iter()
            .map(|(old, new)| TextEdit { old_text: (*old).into(), new_text: (*new).into() })
            .collect();
        apply(text, &edits)
            .map(|edited| edited.text)
            .map_err(|problem| format!("{}: {}", problem.code, problem.message))
    }

    #[test]
    fn edits_are_made_against_the_original() {
        assert_eq!(edited("a b c", &[("b", "x")]).as_deref(), Ok("a x c"));
        assert_eq!(edited("a b c", &[("c", "b"), ("a", "c")]).as_deref(), Ok("c b b"));
        assert_eq!(edited("one\ntwo\n", &[("one\n", "")]).as_deref(), Ok("two\n"));
        assert_eq!(edited("grün", &[("ü", "ue")]).as_deref(), Ok("gruen"));
    }

    #[test]
    fn line_endings_and_marks_are_kept() {
        assert_eq!(edited("a\r\nb\r\nc\r\n", &[("a\nb", "x\ny\nz")]).as_deref(), Ok("x\r\ny\r\nz\r\nc\r\n"));
        assert_eq!(edited("a\r\nb\nc\n", &[("b\nc", "x\ny")]).as_deref(), Ok("a\r\nx\ny\n"));
        assert_eq!(edited("a\r\nb\nc\n", &[("a\nb", "x\ny")]).as_deref(), Ok("x\r\ny\nc\n"));
        assert_eq!(edited("\u{feff}a\r\n", &[("a", "b\nc")]).as_deref(), Ok("\u{feff}b\r\nc\r\n"));
        assert_eq!(edited("a\nb\n", &[("a", "x\r\ny")]).as_deref(), Ok("x\ny\nb\n"));
    }

    #[test]
    fn problems_say_where_and_what_to_do() {
        let text = "fn a() {\n    go();\n}\nfn b() {\n    go();\n}\n";
        insta::assert_snapshot!(
            [
                edited(text, &[("go();", "run();")]),
                edited(text, &[("stop();", "run();")]),
                edited(text, &[("fn a() {\n\tgo();", "x")]),
                edited(text, &[("", "x")]),
                edited(text, &[("fn a", "fn a")]),
                edited(text, &[("fn a() {", "x"), ("a() {\n", "y")]),
                edited("aaa", &[("aa", "b")]),
                edited(text, &[("fn b", "x"), ("nothing", "y")]),
            ]
            .map(|result| result.unwrap_err())
            .join("\n")
        );
    }
}
