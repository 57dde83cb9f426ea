//! The words of doc comments: each paragraph begins with its subject.

use super::rust::{Line, lines};
use super::{Problems, files, text};
use std::collections::BTreeSet;

/// Beginnings that make the reader search for the subject.
const BEGINNINGS: [&str; 5] = ["What ", "Whoever ", "Who ", "Whose ", "The same "];

/// Reasons of limits that still begin so: they are reworded where the limits move to their crates. Found by their text, so that
/// moving one to another file changes nothing here.
const EXCEPTIONS: [&str; 0] = [];

/// The first line of each paragraph of the doc comments in a file, with its number.
fn paragraphs(lines: &[Line]) -> impl Iterator<Item = (usize, &str)> {
    let said = |line: &Line| match line.code.trim().is_empty() && line.comment.starts_with(['/', '!']) {
        true => !line.comment[1..].trim().is_empty(),
        false => false,
    };
    lines.iter().enumerate().filter_map(move |(at, line)| {
        let begins = said(line) && !(at > 0 && said(&lines[at - 1]));
        begins.then(|| (at + 1, line.comment[1..].trim()))
    })
}

/// Adds every paragraph that begins with one of [`BEGINNINGS`]. Returns the exceptions that were met.
fn subjects<'e>(
    path: &str,
    text: &str,
    exceptions: &[&'e str],
    problems: &mut Problems,
) -> BTreeSet<&'e str> {
    let mut met = BTreeSet::new();
    for (line, begun) in paragraphs(&lines(text)) {
        let Some(beginning) = BEGINNINGS.iter().find(|beginning| begun.starts_with(**beginning)) else {
            continue;
        };
        match exceptions.iter().find(|exception| begun.starts_with(**exception)) {
            Some(exception) => _ = met.insert(*exception),
            None => problems.add(
                format!("{path}:{line}"),
                format!("a doc comment begins with {beginning:?}: begin with the subject, or an active verb"),
            ),
        }
    }
    met
}

#[test]
fn doc_comments_begin_with_their_subject() {
    let (mut problems, mut met) = (Problems::default(), BTreeSet::new());
    for path in files().iter().filter(|path| path.starts_with("crates/") && path.ends_with(".rs")) {
        let text = text(path).unwrap_or_else(|| panic!("{path} is not UTF-8"));
        met.extend(subjects(path, &text, &EXCEPTIONS, &mut problems));
    }
    for gone in EXCEPTIONS.iter().filter(|exception| !met.contains(**exception)) {
        problems.add(
            "tidy/words.rs",
            format!("no doc comment begins with {gone:?} any more: take it off the list"),
        );
    }
    problems.none();
}

#[test]
fn beginnings_are_seen() {
    let sample = "//! What a file is.\n//!\n//! It is. What follows.\n//!\n//! Whose it is.\n\n/// The same one.\n/// Who knows.\nfn a() {}\n\
                  // What a comment may say.\n/// Whatever.\n/// What stays.\nlet a = \"\n/// Who is a text.\n\";\n";
    let mut problems = Problems::default();
    let met = subjects("a.rs", sample, &["What stays", "What a f"], &mut problems);
    problems.are(&[
        "a.rs:5: a doc comment begins with \"Whose \"",
        "a.rs:7: a doc comment begins with \"The same \"",
    ]);
    assert_eq!(met, BTreeSet::from(["What a f"]));
}
