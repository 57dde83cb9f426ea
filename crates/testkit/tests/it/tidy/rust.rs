//! Takes Rust text apart into code, strings and comments, so that a rule about one is not fooled by another.

/// One line of a file. Code keeps the quotes of its strings, not what is in them.
#[derive(Debug, Default, PartialEq)]
pub struct Line {
    pub code: String,
    pub strings: String,
    pub comment: String,
}

enum In {
    Code,
    LineComment,
    BlockComment {
        depth: usize,
    },
    /// `hashes` is `None` where backslashes escape.
    String {
        hashes: Option<usize>,
    },
}

/// The lines of `text`.
pub fn lines(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let (mut at, mut state) = (0, In::Code);
    while at < chars.len() {
        if chars[at] == '\n' {
            if matches!(state, In::LineComment) {
                state = In::Code;
            }
            lines.push(Line::default());
            at += 1;
            continue;
        }
        let line = lines.last_mut().expect("there is always a line");
        let rest = &chars[at..];
        let taken = match &mut state {
            In::Code => {
                let (next, taken) = code(&chars, at, line);
                if let Some(next) = next {
                    state = next;
                }
                taken
            }
            In::LineComment => {
                line.comment.push(chars[at]);
                1
            }
            In::BlockComment { depth } => {
                let taken = block_comment(rest, depth, line);
                if *depth == 0 {
                    state = In::Code;
                }
                taken
            }
            In::String { hashes } => match string_end(rest, *hashes) {
                Some(taken) => {
                    line.code.push('"');
                    state = In::Code;
                    taken
                }
                // The escaped character may be the end of the line, which is not ours to take.
                None if hashes.is_none() && rest.len() > 1 && rest[0] == '\\' && rest[1] != '\n' => {
                    line.strings.extend(&rest[..2]);
                    2
                }
                None => {
                    line.strings.push(rest[0]);
                    1
                }
            },
        };
        at += taken;
    }
    lines
}

/// One piece of code: what it leads into, and how many characters it took.
fn code(chars: &[char], at: usize, line: &mut Line) -> (Option<In>, usize) {
    let rest = &chars[at..];
    if rest.starts_with(&['/', '/']) {
        return (Some(In::LineComment), 2);
    }
    if rest.starts_with(&['/', '*']) {
        return (Some(In::BlockComment { depth: 1 }), 2);
    }
    let starts_word = at == 0 || !is_word(chars[at - 1]) || (at >= 1 && matches!(chars[at - 1], 'b' | 'c'));
    if rest[0] == 'r' && starts_word {
        let hashes = rest[1..].iter().take_while(|&&c| c == '#').count();
        if rest.get(1 + hashes) == Some(&'"') {
            line.code.push('"');
            return (Some(In::String { hashes: Some(hashes) }), hashes + 2);
        }
    }
    if rest[0] == '"' {
        line.code.push('"');
        return (Some(In::String { hashes: None }), 1);
    }
    let taken = match rest {
        ['\'', '\\', _, tail @ ..] => 3 + tail.iter().take_while(|&&c| c != '\'').count() + 1,
        ['\'', _, '\'', ..] => 3,
        _ => {
            line.code.push(rest[0]);
            1
        }
    };
    (None, taken.min(rest.len()))
}

fn block_comment(rest: &[char], depth: &mut usize, line: &mut Line) -> usize {
    match rest {
        ['/', '*', ..] => {
            *depth += 1;
            2
        }
        ['*', '/', ..] => {
            *depth -= 1;
            2
        }
        _ => {
            line.comment.push(rest[0]);
            1
        }
    }
}

fn string_end(rest: &[char], hashes: Option<usize>) -> Option<usize> {
    let hashes = hashes.unwrap_or(0);
    let closed = rest[0] == '"' && rest[1..].iter().take_while(|&&c| c == '#').count() >= hashes;
    closed.then_some(1 + hashes)
}

/// Whether `c` can be part of a name.
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in `code` as a word of its own.
pub fn word_at<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn code_strings_and_comments_are_told_apart() {
    let check = |text: &str, expected: &[(&str, &str, &str)]| {
        let found = lines(text);
        let found: Vec<_> =
            found.iter().map(|l| (l.code.as_str(), l.strings.as_str(), l.comment.as_str())).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("a(\"b\"); // c", &[("a(\"\"); ", "b", " c")]);
    check(r##"r#"x"y"# z"##, &[("\"\" z", "x\"y", "")]);
    check(r#""a\"b" c"#, &[("\"\" c", r#"a\"b"#, "")]);
    check("'\"' 'a 'b: b'\\'' x", &[(" 'a 'b: b x", "", "")]);
    check("a /* b /* c */ d */ e", &[("a  e", "", " b  c  d ")]);
    check("\"a\nb\" c", &[("\"", "a", ""), ("\" c", "b", "")]);
    check("\"a\\\nb\" c", &[("\"", "a\\", ""), ("\" c", "b", "")]);
    check("br\"x\\\" y", &[("b\"\" y", "x\\", "")]);
    check("for_r\"x\"", &[("for_r\"\"", "x", "")]);
}
