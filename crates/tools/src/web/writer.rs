//! Writes Markdown line by line: white space is collapsed, and lists and quotes are indented.

/// The text so far.
#[derive(Debug, Default)]
pub(super) struct MarkdownWriter {
    out: String,
    /// Line ends that are due before the next word.
    breaks: usize,
    /// Whether a space is due before the next word of the line.
    space: bool,
    /// The beginning of the next line, such as `## `.
    begin: String,
    /// Marks that open before the next word.
    due: Vec<&'static str>,
    /// Marks that are open.
    open: Vec<&'static str>,
    levels: Vec<TextLevel>,
    /// Levels that are too deep to be shown.
    deeper: usize,
    in_code: bool,
}

/// A list or a quote around the text.
#[derive(Debug)]
enum TextLevel {
    /// A list, and the number of its next item if it has numbers.
    List(Option<u64>),
    Quote,
}

/// Deeper lists and quotes are not indented further: each level costs space on every line.
const LEVELS_MAX: usize = 12;

impl MarkdownWriter {
    /// Writes text, with its white space collapsed unless it is code.
    pub(super) fn text(&mut self, text: &str) {
        if self.in_code {
            return self.code(text);
        }
        for (at, word) in text.split(|letter: char| letter.is_ascii_whitespace()).enumerate() {
            self.space |= at > 0;
            if !word.is_empty() {
                self.begin_word();
                self.out.push_str(word);
            }
        }
    }

    /// A space before the next word.
    pub(super) fn space(&mut self) {
        self.space = true;
    }

    /// A mark that stands directly before the next word.
    pub(super) fn open_mark(&mut self, mark: &'static str) {
        if self.due.len() + self.open.len() < MARKS_MAX {
            self.due.push(mark);
        }
    }

    /// Closes a mark behind the last word with this text; returns whether there was a word in it.
    pub(super) fn close_mark(&mut self, mark: &str, end: &str) -> bool {
        if let Some(at) = self.due.iter().rposition(|due| *due == mark) {
            self.due.remove(at);
            return false;
        }
        let Some(at) = self.open.iter().rposition(|open| *open == mark) else { return false };
        self.open.remove(at);
        self.out.push_str(end);
        true
    }

    pub(super) fn line_begins_with(&mut self, begin: &str) {
        self.begin = begin.to_string();
    }

    pub(super) fn end_line(&mut self) {
        self.breaks = self.breaks.max(1);
        self.space = false;
    }

    pub(super) fn end_paragraph(&mut self) {
        // Between a list's mark and its text there is no empty line.
        if self.begin.is_empty() {
            self.breaks = self.breaks.max(2);
        }
        self.space = false;
    }

    pub(super) fn begin_list(&mut self, number: Option<u64>) {
        match self.levels.is_empty() {
            true => self.end_paragraph(),
            false => self.end_line(),
        }
        self.push(TextLevel::List(number));
    }

    pub(super) fn end_list(&mut self) {
        self.begin.clear();
        self.pop(|level| matches!(level, TextLevel::List(_)));
        match self.levels.is_empty() {
            true => self.end_paragraph(),
            false => self.end_line(),
        }
    }

    pub(super) fn item(&mut self) {
        self.end_line();
        self.begin = match self.levels.last_mut() {
            Some(TextLevel::List(Some(number))) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => "- ".to_string(),
        };
    }

    pub(super) fn begin_quote(&mut self) {
        self.end_paragraph();
        self.push(TextLevel::Quote);
    }

    pub(super) fn end_quote(&mut self) {
        self.pop(|level| matches!(level, TextLevel::Quote));
        self.end_paragraph();
    }

    pub(super) fn is_code(&self) -> bool {
        self.in_code
    }

    /// Begins code; with a fence and its language in Markdown.
    pub(super) fn begin_code(&mut self, fence: Option<&str>) {
        self.end_paragraph();
        if let Some(language) = fence {
            self.begin_word();
            self.out.push_str("```");
            self.out.push_str(language);
            self.end_line();
        }
        self.in_code = true;
    }

    pub(super) fn end_code(&mut self, fenced: bool) {
        if !self.in_code {
            return;
        }
        self.in_code = false;
        self.out.truncate(self.out.trim_end().len());
        if fenced {
            self.end_line();
            self.begin_word();
            self.out.push_str("```");
        }
        self.end_paragraph();
    }

    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    fn code(&mut self, text: &str) {
        // A line end directly behind the tag is no part of the code.
        let text = if self.breaks > 0 { text.strip_prefix('\n').unwrap_or(text) } else { text };
        for (at, line) in text.split('\n').enumerate() {
            if at > 0 {
                self.breaks += 1;
            }
            if !line.is_empty() {
                self.begin_word();
                self.out.push_str(line.trim_end_matches('\r'));
            }
        }
    }

    /// Ends lines that are due, and writes what stands before a word.
    fn begin_word(&mut self) {
        let is_begin = self.out.is_empty();
        if self.breaks > 0 || is_begin {
            for _ in 0..if is_begin { 0 } else { self.breaks.min(BREAKS_MAX) } {
                self.out.push('\n');
            }
            for level in
                self.levels.iter().take(self.levels.len().saturating_sub(usize::from(!self.begin.is_empty())))
            {
                self.out.push_str(match level {
                    TextLevel::List(_) => "  ",
                    TextLevel::Quote => "> ",
                });
            }
            (self.breaks, self.space) = (0, false);
        }
        if self.space {
            self.out.push(' ');
            self.space = false;
        }
        self.out.push_str(&std::mem::take(&mut self.begin));
        for mark in self.due.drain(..) {
            self.out.push_str(mark);
            self.open.push(mark);
        }
    }

    fn push(&mut self, level: TextLevel) {
        match self.levels.len() < LEVELS_MAX {
            true => self.levels.push(level),
            false => self.deeper += 1,
        }
    }

    fn pop(&mut self, is_meant: impl Fn(&TextLevel) -> bool) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else if self.levels.last().is_some_and(is_meant) {
            self.levels.pop();
        }
    }
}

/// Empty lines of code that are kept.
const BREAKS_MAX: usize = 4;
/// Marks around one word; more are not written.
const MARKS_MAX: usize = 8;
