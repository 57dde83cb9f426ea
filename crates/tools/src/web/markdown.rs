//! A page as Markdown or as plain text: headings, paragraphs, lists, links, code and tables; without menus, scripts and forms.

use super::html::{HtmlPiece, HtmlPieces, TagName, attribute};
use super::writer::MarkdownWriter;
use url::Url;

/// A page as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageText {
    /// The title, if it has one.
    pub(super) title: String,
    pub(super) text: String,
}

/// How much of a page is marked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageForm {
    Markdown,
    Text,
}

/// Elements that are no part of what a page says.
const LEFT_OUT: [&str; 15] = [
    "aside", "audio", "button", "canvas", "dialog", "footer", "iframe", "nav", "noscript", "object",
    "script", "select", "style", "svg", "template",
];
/// Elements that begin and end a line or a paragraph.
const PARAGRAPHS: [&str; 16] = [
    "address",
    "article",
    "body",
    "center",
    "dd",
    "details",
    "div",
    "dl",
    "fieldset",
    "figcaption",
    "figure",
    "header",
    "main",
    "p",
    "section",
    "summary",
];
const TITLE_CHARS_MAX: usize = 200;

/// Converts a page. Links are made absolute by its URL.
pub(super) fn convert(page: &str, url: Option<&Url>, form: PageForm) -> PageText {
    let mut converter = PageConverter::new(form, url);
    for piece in HtmlPieces::new(page) {
        match piece {
            HtmlPiece::Text(text) => converter.text(text),
            HtmlPiece::Open(name, attributes) => converter.open(name, attributes),
            HtmlPiece::Close(name) => converter.close(name),
        }
    }
    converter.finish()
}

struct PageConverter<'u> {
    form: PageForm,
    url: Option<&'u Url>,
    writer: MarkdownWriter,
    title: String,
    in_title: bool,
    /// The element that is being left out, and how often it is open.
    left_out: Option<(TagName, usize)>,
    /// Where the link that is open leads.
    link: Option<String>,
    /// The number of cells in the first row of a table so far.
    cells: usize,
    is_first_row: bool,
    /// The parts that the page calls its content: where each begins and ends, by whether it is `main`.
    content: Vec<(bool, usize, Option<usize>)>,
}

/// Parts that are remembered; a page has one or a few.
const CONTENT_MAX: usize = 1_000;

impl<'u> PageConverter<'u> {
    fn new(form: PageForm, url: Option<&'u Url>) -> PageConverter<'u> {
        PageConverter {
            form,
            url,
            writer: MarkdownWriter::default(),
            title: String::new(),
            in_title: false,
            left_out: None,
            link: None,
            cells: 0,
            is_first_row: false,
            content: Vec::new(),
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_title && self.title.chars().count() < TITLE_CHARS_MAX {
            self.title.push_str(&html_escape::decode_html_entities(text));
        } else if self.left_out.is_none() && !self.in_title {
            self.writer.text(&html_escape::decode_html_entities(text));
        }
    }

    fn open(&mut self, name: TagName, attributes: &str) {
        let tag = name.as_str();
        if let Some((left_out, depth)) = &mut self.left_out {
            *depth += usize::from(*left_out == name && !attributes.ends_with('/'));
            return;
        }
        if LEFT_OUT.contains(&tag) {
            self.left_out = (!attributes.ends_with('/')).then_some((name, 1));
            return;
        }
        match tag {
            "title" => self.in_title = self.title.is_empty(),
            "br" => self.writer.end_line(),
            "hr" => self.rule(),
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.heading(tag),
            "a" => self.begin_link(attributes),
            "img" => self.image(attributes),
            "ul" | "menu" => self.writer.begin_list(None),
            "ol" => self.writer.begin_list(Some(start_of(attributes))),
            "li" | "dt" => self.writer.item(),
            "blockquote" => self.writer.begin_quote(),
            "pre" => self.begin_code(attributes),
            "table" | "tr" | "td" | "th" => self.begin_part_of_table(tag),
            _ if PARAGRAPHS.contains(&tag) => {
                self.writer.end_paragraph();
                if matches!(tag, "main" | "article") && self.content.len() < CONTENT_MAX {
                    self.content.push((tag == "main", self.writer.len(), None));
                }
            }
            _ => {
                if let Some(mark) = mark_of(tag).filter(|_| self.is_marked_up()) {
                    self.writer.open_mark(mark);
                }
            }
        }
    }

    fn close(&mut self, name: TagName) {
        let tag = name.as_str();
        if let Some((left_out, depth)) = &mut self.left_out {
            *depth -= usize::from(*left_out == name);
            if *depth == 0 {
                self.left_out = None;
            }
            return;
        }
        match tag {
            "title" => self.in_title = false,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => self.writer.end_paragraph(),
            "a" => self.end_link(),
            "ul" | "ol" | "menu" => self.writer.end_list(),
            "blockquote" => self.writer.end_quote(),
            "pre" => self.end_code(),
            "table" | "tr" => self.end_part_of_table(tag),
            _ if PARAGRAPHS.contains(&tag) => {
                self.writer.end_paragraph();
                let end = self.writer.len();
                let mut open = self.content.iter_mut().rev().filter(|(_, _, end)| end.is_none());
                if let Some((_, _, unset)) =
                    open.find(|(is_main, ..)| matches!((tag, is_main), ("main", true) | ("article", false)))
                {
                    *unset = Some(end);
                }
            }
            _ => {
                if let Some(mark) = mark_of(tag) {
                    self.writer.close_mark(mark, mark);
                }
            }
        }
    }

    fn is_marked_up(&self) -> bool {
        self.form == PageForm::Markdown && !self.writer.is_code()
    }

    fn heading(&mut self, tag: &str) {
        self.writer.end_paragraph();
        let level = tag.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0'));
        if self.form == PageForm::Markdown {
            self.writer.line_begins_with(&format!("{} ", "#".repeat(level)));
        }
    }

    fn rule(&mut self) {
        self.writer.end_paragraph();
        if self.form == PageForm::Markdown {
            self.writer.text("---");
            self.writer.end_paragraph();
        }
    }

    fn begin_link(&mut self, attributes: &str) {
        self.end_link();
        let target = attribute(attributes, "href").and_then(|href| self.absolute(&href));
        if let Some(target) = target.filter(|_| self.is_marked_up()) {
            self.writer.open_mark(LINK);
            self.link = Some(target);
        }
    }

    fn end_link(&mut self) {
        // A link without words leads a reader nowhere, and is left out.
        if let Some(target) = self.link.take() {
            self.writer.close_mark(LINK, &format!("]({target})"));
        }
    }

    fn image(&mut self, attributes: &str) {
        let words = attribute(attributes, "alt").unwrap_or_default();
        let source = attribute(attributes, "src").and_then(|source| self.absolute(&source));
        if words.trim().is_empty() {
            return;
        }
        match source.filter(|_| self.form == PageForm::Markdown) {
            Some(source) => self.writer.text(&format!("![{}]({source})", words.trim())),
            None => self.writer.text(words.trim()),
        }
    }

    /// The target of a link as an absolute URL; `None` for scripts, inline data and places on the page itself.
    fn absolute(&self, target: &str) -> Option<String> {
        let target = target.trim();
        if target.is_empty() || target.starts_with('#') {
            return None;
        }
        let target = match self.url {
            Some(base) => base.join(target).ok()?,
            None => Url::parse(target).ok()?,
        };
        matches!(target.scheme(), "http" | "https" | "mailto" | "tel").then(|| target.to_string())
    }

    fn begin_code(&mut self, attributes: &str) {
        let language = attribute(attributes, "class").unwrap_or_default();
        let language =
            language.split_whitespace().find_map(|class| class.strip_prefix("language-")).unwrap_or_default();
        self.writer.begin_code(if self.form == PageForm::Markdown { Some(language) } else { None });
    }

    fn end_code(&mut self) {
        self.writer.end_code(self.form == PageForm::Markdown);
    }

    fn begin_part_of_table(&mut self, tag: &str) {
        match tag {
            "table" => {
                self.writer.end_paragraph();
                self.is_first_row = true;
            }
            "tr" => {
                self.writer.end_line();
                self.cells = 0;
            }
            _ => {
                self.cells += 1;
                self.writer.space();
                if self.cells > 1 || self.form == PageForm::Markdown {
                    self.writer.text("| ");
                }
            }
        }
    }

    fn end_part_of_table(&mut self, tag: &str) {
        if tag == "table" {
            return self.writer.end_paragraph();
        }
        if self.cells > 0 && self.form == PageForm::Markdown {
            self.writer.space();
            self.writer.text("|");
            if self.is_first_row {
                self.writer.end_line();
                self.writer.text(&format!("|{}", " --- |".repeat(self.cells.min(CELLS_MAX))));
            }
        }
        self.is_first_row = false;
        self.writer.end_line();
    }

    fn finish(mut self) -> PageText {
        self.end_link();
        let content = self.content_range();
        let text = self.writer.finish();
        let text = match content.and_then(|(from, to)| text.get(from..to.min(text.len()))) {
            Some(content) => content.trim().to_string(),
            None => text.trim().to_string(),
        };
        let title: String = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        PageText { title: title.chars().take(TITLE_CHARS_MAX).collect(), text }
    }

    /// The part that the page calls its content, if that is a good part of it.
    fn content_range(&self) -> Option<(usize, usize)> {
        let whole = self.writer.len();
        let parts = self.content.iter().map(|(is_main, from, to)| (*is_main, *from, to.unwrap_or(whole)));
        let (_, from, to) = parts.max_by_key(|(is_main, from, to)| (*is_main, to.saturating_sub(*from)))?;
        (to.saturating_sub(from) * CONTENT_SHARE >= whole).then_some((from, to))
    }
}

/// The content must have at least one in so many bytes of the text: else a page calls something else its content.
const CONTENT_SHARE: usize = 4;
/// More columns than anybody reads.
const CELLS_MAX: usize = 100;

const LINK: &str = "[";

/// The mark around a word or two.
fn mark_of(tag: &str) -> Option<&'static str> {
    match tag {
        "b" | "strong" => Some("**"),
        "em" | "i" => Some("*"),
        "code" | "kbd" | "samp" | "tt" => Some("`"),
        "del" | "s" | "strike" => Some("~~"),
        _ => None,
    }
}

fn start_of(attributes: &str) -> u64 {
    attribute(attributes, "start").and_then(|start| start.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn markdown(page: &str) -> String {
        convert(page, Url::parse("https://example.com/docs/page").ok().as_ref(), PageForm::Markdown).text
    }

    #[test]
    fn the_parts_of_a_page_become_markdown() {
        for (page, expected) in [
            ("<h1>One</h1><p>Two  \n three<br>four</p>five", "# One\n\nTwo three\nfour\n\nfive"),
            ("<p>a <b>b</b> <em>c</em>, <code>d</code></p>", "a **b** *c*, `d`"),
            ("a<b></b>b <i> </i>c </b>", "ab c"),
            (
                r#"see <a href="../x?a=1&amp;b=2">this <b>page</b></a>."#,
                "see [this **page**](https://example.com/x?a=1&b=2).",
            ),
            (r##"<a href="#top">up</a> <a href="javascript:x()">run</a> <a href="/y"></a>z"##, "up run z"),
            ("<ul><li>a<li><p>b</p><ol start=3><li>c<li>d</ol></ul>e", "- a\n- b\n\n  3. c\n  4. d\n\ne"),
            ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n\n> b\n\nc"),
            (
                "<pre class='language-rust'>\nfn a() {\n    b&lt;\n}\n</pre>x",
                "```rust\nfn a() {\n    b<\n}\n```\n\nx",
            ),
            ("<table><tr><th>A<th>B</tr><tr><td>1<td>2</tr></table>", "| A | B |\n| --- | --- |\n| 1 | 2 |"),
            (
                r#"<img alt="A cat" src="/cat.png"><img src="/pixel.gif">"#,
                "![A cat](https://example.com/cat.png)",
            ),
            ("a<script>b</script><style>c</style><nav>d<nav>e</nav></nav><svg><path/></svg>f", "af"),
            ("caf&eacute; &#8364; &amp;lt; &nonesuch;", "café € &lt; &nonesuch;"),
            ("a<hr>b", "a\n\n---\n\nb"),
        ] {
            assert_eq!(markdown(page), expected, "{page}");
        }
    }

    #[test]
    fn the_content_of_a_page_is_preferred_and_its_title_is_told() {
        let page = "<html><head><title> A\n&amp; B </title></head><body>menu<main><h2>C</h2>long enough to be it</main>end";
        let found = convert(page, None, PageForm::Markdown);
        assert_eq!((found.title.as_str(), found.text.as_str()), ("A & B", "## C\n\nlong enough to be it"));
        let small = format!("{}<article>x</article>", "word ".repeat(20));
        assert!(markdown(&small).starts_with("word"), "a small part is not the content");
    }

    #[test]
    fn plain_text_has_no_marks() {
        let page = "<h1>A</h1><p><b>b</b> <a href='/x'>c</a></p><ul><li>d</ul><pre>e\n f</pre>";
        assert_eq!(convert(page, None, PageForm::Text).text, "A\n\nb c\n\n- d\n\ne\n f");
    }

    #[test]
    fn pages_made_to_be_slow_are_not() {
        let begun = std::time::Instant::now();
        let size = 200_000;
        for piece in [
            "<div>",
            "<b>",
            "<b id=1>x<p>",
            "<ul><li>",
            "<blockquote>x",
            "<a ",
            "a=1 ",
            "<",
            "</",
            "<!--",
            "<table>",
            "<td>x",
            "&",
            "&amp",
            "<a href=x>",
            "<main>",
            "</main>",
            "<pre>",
            "<script>",
            "</script>",
            "\u{a0}",
            "=\"",
            "<svg>",
            "</svg>",
        ] {
            let page = piece.repeat(size / piece.len());
            let open = format!("<a {page}");
            for page in [&page, &open] {
                convert(page, None, PageForm::Markdown);
            }
        }
        // Some 10 MB; what is quadratic takes far longer.
        assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
    }
}
