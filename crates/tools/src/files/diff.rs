//! The difference between two contents, as a unified diff that fits into an answer.

use similar::TextDiff;
use std::time::Duration;

/// Longer searches for the shortest diff give way to a longer one.
const SEARCH_MAX: Duration = Duration::from_millis(300);
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;
/// The maximum length of a shown line.
const LINE_CHARS_MAX: usize = 400;

/// The lines that differ, with some around them: at most so many bytes, with the number of lines left out.
pub(super) fn unified(path: &str, old: &str, new: &str, bytes_max: usize) -> String {
    let diff = TextDiff::configure().timeout(SEARCH_MAX).diff_lines(old, new);
    let (before, after) = (format!("a/{path}"), format!("b/{path}"));
    let whole = diff.unified_diff().context_radius(CONTEXT_LINES).header(&before, &after).to_string();
    let mut shown = String::new();
    let mut lines = whole.lines();
    for line in lines.by_ref() {
        let line = line.trim_end_matches('\r');
        let cut = line.char_indices().nth(LINE_CHARS_MAX).map(|(at, _)| at);
        let part = &line[..cut.unwrap_or(line.len())];
        if shown.len() + part.len() + 64 > bytes_max {
            let left = lines.count() + 1;
            shown.push_str(&format!("… {left} more lines of the diff\n"));
            return shown;
        }
        shown.push_str(part);
        shown.push_str(if cut.is_some() { "…\n" } else { "\n" });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_the_file_and_fits() {
        let (old, new) = ("a\nb\nc\n", "a\nB\nc\n");
        assert_eq!(unified("x", old, new, 1_000), "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        let many: String = (0..500).map(|n| format!("{n}\n")).collect();
        let shown = unified("x", "", &many, 400);
        assert!(shown.len() <= 400 && shown.contains("more lines of the diff"), "{shown}");
        assert!(unified("x", "", &"y".repeat(1_000_000), 2_000).len() < 1_000);
    }
}
