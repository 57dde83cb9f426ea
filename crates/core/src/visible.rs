//! Text of tools, models and users on one line of a terminal, a log or a page: escaped, and of bounded length.
//!
//! Characters that move a cursor, break a line or change the text direction are written as escapes, so no text can
//! overwrite other lines or make a name read as another one.

/// Whether a character is written as an escape: it moves the cursor, breaks the line, is invisible, or
/// changes the text direction.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Appends a text on one line. At most `chars_max` characters of it are written, counted as shown; then an ellipsis.
pub fn push_line(shown: &mut String, text: &str, chars_max: usize) {
    // Most texts begin and end with letters that need no second look.
    let plain = text.bytes().take(chars_max).take_while(|byte| (b' '..=b'~').contains(byte)).count();
    let (plain, rest) = text.split_at(plain);
    shown.push_str(plain);
    let mut left = chars_max - plain.len();
    for letter in rest.chars() {
        let width = if is_hidden(letter) { letter.escape_default().count() } else { 1 };
        if width > left {
            shown.push('…');
            return;
        }
        left -= width;
        match is_hidden(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
}

/// A text on one line, however long it is.
pub fn line(text: &str) -> String {
    shortened(text, usize::MAX)
}

/// A text on one line, of at most `chars_max` characters and an ellipsis.
pub fn shortened(text: &str, chars_max: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(chars_max));
    push_line(&mut shown, text, chars_max);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_turns_or_breaks_a_line_is_escaped() {
        assert_eq!(line("a\nb\r\u{1b}[2J"), r"a\nb\r\u{1b}[2J");
        for turning in [
            '\u{61c}',
            '\u{200e}',
            '\u{200f}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{2028}',
            '\u{85}',
            '\u{9b}',
            '\u{7f}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            let shown = line(&format!("invoice{turning}fdp.exe"));
            assert!(!shown.contains(turning) && shown.contains("\\u{"), "{:x}: {shown}", turning as u32);
        }
        assert_eq!(line("Grüße, 世界 👩\u{200d}🔧"), "Grüße, 世界 👩\u{200d}🔧");
    }

    #[test]
    fn a_line_is_as_short_as_it_was_asked_for_also_where_it_is_escaped() {
        for text in
            ["x".repeat(100), "\u{202e}".repeat(100), "ü".repeat(100), format!("{}\n", "x".repeat(47))]
        {
            let shown = shortened(&text, 48);
            assert!(shown.chars().count() <= 49 && shown.ends_with('…'), "{shown}");
        }
        assert_eq!(shortened(&"x".repeat(48), 48), "x".repeat(48));
        assert_eq!(shortened("", 0), "");
        assert_eq!(shortened("a", 0), "…");
    }
}
