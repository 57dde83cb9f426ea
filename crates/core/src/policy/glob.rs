//! Globs over texts: `*` stands for any characters, `?` for one, `\` makes the next character an ordinary one.
//!
//! `/` is a character like any other, so `/etc/*` matches everything below `/etc/`. The time is linear in the text: literal
//! pieces are searched by the standard library, pieces with `?` by a bit for each of their characters.

/// A compiled glob.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Glob {
    written: String,
    first: GlobPiece,
    /// The pieces after each `*`, in order; none if there is no `*`.
    rest: Vec<GlobPiece>,
}

/// Characters between two `*`; `None` stands for any one character.
#[derive(Clone, Debug, PartialEq)]
struct GlobPiece {
    chars: Vec<Option<char>>,
    search: PieceSearch,
}

/// How a piece is found in the middle of a text.
#[derive(Clone, Debug, PartialEq)]
enum PieceSearch {
    /// No `?` is in it.
    Literal(String),
    /// For each of its characters the bits of the places at which the character fits, sorted; and those at which any does.
    Bits { of: Vec<(char, Vec<u64>)>, any: Vec<u64> },
}

impl Glob {
    pub(super) fn new(written: &str) -> Glob {
        let mut pieces = vec![Vec::new()];
        let mut chars = written.chars();
        while let Some(char) = chars.next() {
            let matched = match char {
                '*' => {
                    pieces.push(Vec::new());
                    continue;
                }
                '?' => None,
                // A backslash at the end stands for itself.
                '\\' => Some(chars.next().unwrap_or('\\')),
                char => Some(char),
            };
            if let Some(piece) = pieces.last_mut() {
                piece.push(matched);
            }
        }
        let mut pieces = pieces.into_iter().map(GlobPiece::new);
        let first = pieces.next().unwrap_or_else(|| GlobPiece::new(Vec::new()));
        Glob { written: written.to_string(), first, rest: pieces.collect() }
    }

    pub(super) fn written(&self) -> &str {
        &self.written
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(mut left) = self.first.strip_from_start(text) else { return false };
        let Some((last, middle)) = self.rest.split_last() else { return left.is_empty() };
        // Each piece at its first place leaves the most for those after it.
        for piece in middle {
            let Some(after) = piece.strip_first(left) else { return false };
            left = after;
        }
        last.is_at_end(left)
    }
}

impl GlobPiece {
    fn new(chars: Vec<Option<char>>) -> GlobPiece {
        let literal: Option<String> = chars.iter().copied().collect();
        let search = match literal {
            Some(literal) => PieceSearch::Literal(literal),
            None => PieceSearch::bits(&chars),
        };
        GlobPiece { chars, search }
    }

    /// The text after this piece, if the text begins with it.
    fn strip_from_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut left = text.chars();
        for wanted in &self.chars {
            let char = left.next()?;
            if wanted.is_some_and(|wanted| wanted != char) {
                return None;
            }
        }
        Some(left.as_str())
    }

    fn is_at_end(&self, text: &str) -> bool {
        let mut left = text.chars().rev();
        self.chars.iter().rev().all(|wanted| left.next().is_some_and(|char| wanted.is_none_or(|w| w == char)))
    }

    /// The text after the first place of this piece.
    fn strip_first<'a>(&self, text: &'a str) -> Option<&'a str> {
        match &self.search {
            // Most texts lack even its first byte, and to see that costs a fraction of setting up a search.
            PieceSearch::Literal(literal) => match literal.as_bytes().first() {
                Some(first) if !text.as_bytes().contains(first) => None,
                _ => text.split_once(literal.as_str()).map(|(_, after)| after),
            },
            PieceSearch::Bits { of, any } => self.strip_by_bits(text, of, any),
        }
    }

    /// Bit `i` of the state says that the last `i + 1` characters of the text match the first `i + 1` of the piece.
    fn strip_by_bits<'a>(&self, text: &'a str, of: &[(char, Vec<u64>)], any: &[u64]) -> Option<&'a str> {
        let last = self.chars.len() - 1;
        let mut state = vec![0_u64; any.len()];
        let mut left = text.chars();
        while let Some(char) = left.next() {
            let fits = of.binary_search_by_key(&char, |(char, _)| *char).map_or(any, |at| &of[at].1);
            let mut carry = 1;
            for (word, fits) in state.iter_mut().zip(fits) {
                let shifted = (*word << 1) | carry;
                carry = *word >> 63;
                *word = shifted & fits;
            }
            if (state[last / 64] >> (last % 64)) & 1 == 1 {
                return Some(left.as_str());
            }
        }
        None
    }
}

impl PieceSearch {
    fn bits(chars: &[Option<char>]) -> PieceSearch {
        let words_where = |fits: &dyn Fn(Option<char>) -> bool| {
            let word = |chars: &[Option<char>]| {
                let bit = |(place, wanted): (usize, &Option<char>)| u64::from(fits(*wanted)) << place;
                chars.iter().enumerate().map(bit).fold(0, |word, bit| word | bit)
            };
            chars.chunks(64).map(word).collect::<Vec<u64>>()
        };
        let mut known: Vec<char> = chars.iter().copied().flatten().collect();
        known.sort_unstable();
        known.dedup();
        let of =
            known.into_iter().map(|char| (char, words_where(&|wanted| wanted.is_none_or(|w| w == char))));
        PieceSearch::Bits { of: of.collect(), any: words_where(&|wanted| wanted.is_none()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn globs_match_whole_texts() {
        for (glob, texts, others) in [
            ("", &[""][..], &["a"][..]),
            ("abc", &["abc"], &["ab", "abcd", "ABC", ""]),
            ("*", &["", "a", "a/b\nc"], &[]),
            ("git_*", &["git_", "git_push"], &["git", "xgit_push"]),
            ("*.rs", &[".rs", "a/b.rs"], &["a.rsx"]),
            ("a*b*c", &["abc", "aXbYc", "abbcc"], &["ac", "acb"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("?", &["a", "ä", "/"], &["", "ab"]),
            ("*a?c*", &["abc", "xxaxcyy", "aabcc"], &["ac", "acab"]),
            ("a\\*b", &["a*b"], &["axb", "a\\*b"]),
            ("a\\", &["a\\"], &["a"]),
            ("[ab]{1}", &["[ab]{1}"], &["a"]),
        ] {
            texts.iter().for_each(|text| assert!(Glob::new(glob).matches(text), "{glob:?} {text:?}"));
            others.iter().for_each(|text| assert!(!Glob::new(glob).matches(text), "{glob:?} {text:?}"));
        }
    }

    #[test]
    fn a_long_text_takes_linear_time() {
        let text = "a".repeat(1 << 20);
        let (mut literal, mut bits) = ("*a".repeat(200), format!("*{}", "a?".repeat(300)));
        literal.push_str("*b*");
        bits.push_str("b*");
        assert!(!Glob::new(&literal).matches(&text) && !Glob::new(&bits).matches(&text));
    }

    /// By definition, with a table over all pairs of prefixes.
    fn by_table(glob: &[char], text: &[char]) -> bool {
        let mut row = vec![false; text.len() + 1];
        row[0] = true;
        for wanted in glob {
            let mut next = vec![false; text.len() + 1];
            for place in 0..=text.len() {
                next[place] = match wanted {
                    '*' => row[place] || (place > 0 && next[place - 1]),
                    '?' => place > 0 && row[place - 1],
                    char => place > 0 && row[place - 1] && text[place - 1] == *char,
                };
            }
            row = next;
        }
        row[text.len()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        #[test]
        fn a_glob_matches_as_defined(glob in "[ab?*ä]{0,9}", text in "[abä]{0,12}") {
            let chars = |text: &str| text.chars().collect::<Vec<char>>();
            prop_assert_eq!(Glob::new(&glob).matches(&text), by_table(&chars(&glob), &chars(&text)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_piece_longer_than_a_word_is_found(piece in "[ab?]{60,140}", text in "[ab]{0,20}", rest in "[ab]{0,20}") {
            let inside: String = piece.chars().map(|char| if char == '?' { 'b' } else { char }).collect();
            let glob = Glob::new(&format!("*{piece}*"));
            let whole = format!("{text}{inside}{rest}");
            prop_assert!(glob.matches(&whole));
            prop_assert!(!glob.matches(&inside[1..]));
        }
    }
}
