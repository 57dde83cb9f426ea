//! Secrets inside a text that looks like a command, a header or a URL.

use super::MASK;
use super::names::SecretNames;

/// Authentication schemes, named before their credentials.
const SCHEMES: [&str; 3] = ["bearer", "basic", "digest"];
/// A shorter word after such a name is prose: a bearer of bad news.
const PROOF_CHARS_MIN: usize = 8;

/// The name of an option such as `--password`, if the word has nothing else.
pub(super) fn option(word: &str) -> Option<&str> {
    let name = word.strip_prefix('-')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    (name.len() > 1 && name.chars().all(is_name)).then_some(name)
}

/// The quoted texts after a colon in malformed JSON: each may be a secret.
pub(super) fn quoted_values(text: &str) -> impl Iterator<Item = &str> {
    let pieces: Vec<&str> = text.split(['"', '\'']).collect();
    let is_value = |before: &str| before.trim_end().ends_with([':', '[', ',', '\\']);
    let pairs: Vec<(&str, &str)> = pieces.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs
        .into_iter()
        .filter(move |(before, _)| is_value(before))
        .map(|(_, value)| value.trim_end_matches('\\'))
}

/// The role of the next word.
#[derive(Clone, Copy, PartialEq)]
enum NextWord {
    /// A word like any other.
    Plain,
    /// The value of a secret, or the scheme before it.
    Secret,
    /// The credentials after a scheme.
    Proof,
}

/// The text with its secrets masked, which are added to `secrets`; `None` if it has none.
pub(super) fn masked(text: &str, names: &SecretNames, secrets: &mut Vec<String>) -> Option<String> {
    let found = secrets.len();
    let mut masked = String::with_capacity(text.len());
    let mut next = NextWord::Plain;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        let behind = &piece[word.len()..];
        if word.is_empty() {
            masked.push_str(behind);
            continue;
        }
        let is_scheme = SCHEMES.iter().any(|scheme| bare(word).eq_ignore_ascii_case(scheme));
        let is_proof = next == NextWord::Proof && bare(word).chars().count() >= PROOF_CHARS_MIN;
        if is_scheme {
            masked.push_str(word);
            next = if next == NextWord::Secret { NextWord::Secret } else { NextWord::Proof };
        } else if next == NextWord::Secret || is_proof {
            hide(&mut masked, word, secrets);
            next = NextWord::Plain;
        } else {
            next = push_word(&mut masked, word, names, secrets);
        }
        masked.push_str(behind);
    }
    (secrets.len() > found).then_some(masked)
}

/// Appends a word, with its secrets masked.
fn push_word(masked: &mut String, word: &str, names: &SecretNames, secrets: &mut Vec<String>) -> NextWord {
    if let Some((before, rest)) = word.split_once("://") {
        masked.push_str(before);
        masked.push_str("://");
        push_address(masked, rest, names, secrets);
        return NextWord::Plain;
    }
    if let Some(name) = option(bare(word)) {
        masked.push_str(word);
        return if names.has(name) { NextWord::Secret } else { NextWord::Plain };
    }
    let Some(place) = word.find(['=', ':']) else {
        masked.push_str(word);
        return NextWord::Plain;
    };
    let (name, value) = (bare(&word[..place]), &word[place + 1..]);
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(is_name) || !names.has(name) {
        masked.push_str(word);
        return NextWord::Plain;
    }
    masked.push_str(&word[..=place]);
    if bare(value).is_empty() {
        masked.push_str(value);
        return NextWord::Secret;
    }
    hide(masked, value, secrets);
    NextWord::Plain
}

/// Appends a URL without its scheme: its credentials are masked, and so are the parts of its query that are
/// named like secrets.
fn push_address(masked: &mut String, address: &str, names: &SecretNames, secrets: &mut Vec<String>) {
    let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
    let (host, rest) = address.split_at(host_end);
    match host.rsplit_once('@') {
        Some((login, host)) => {
            let proof = login.split_once(':').map_or(login, |(_, proof)| proof);
            hide(masked, proof, secrets);
            masked.push('@');
            masked.push_str(host);
        }
        None => masked.push_str(host),
    }
    for part in rest.split_inclusive(['?', '&', '#', ';']) {
        match part.split_once('=') {
            Some((name, value)) if names.has(name) => {
                let end = value.trim_end_matches(['?', '&', '#', ';']);
                masked.push_str(name);
                masked.push('=');
                hide(masked, end, secrets);
                masked.push_str(&value[end.len()..]);
            }
            _ => masked.push_str(part),
        }
    }
}

fn hide(masked: &mut String, secret: &str, secrets: &mut Vec<String>) {
    secrets.push(bare(secret).to_string());
    masked.push_str(MASK);
}

/// A word without the quotes and commas around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| matches!(letter, '"' | '\'' | ',' | ';' | '(' | ')'))
}
