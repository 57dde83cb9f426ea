//! A sentence for people per phase of a call: "Dividing 1 by 3", "Divided 1 by 3".
//!
//! The sentence is the tool's own if its author wrote one, else that of a message file (`narration/en.txt` and its
//! siblings, by the tool's name), else a general one from the title and the arguments. It is always one line: values
//! are shortened, secrets are masked, URLs are reduced to host and path, and control characters are escaped.

mod narrator;

pub use narrator::{NarratedCall, Narrator};

use crate::redact::{MASK, RedactedArgs};
use crate::visible::push_line;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use windlass_args::named;
use windlass_args::template::{TemplatePiece, pieces};

/// A language for sentences. There are messages in English and German; a tool may bring sentences in any
/// other, and English is the fallback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Locale {
    /// English.
    #[default]
    English,
    /// German.
    German,
    /// A language without messages of its own.
    Other(LanguageTag),
}

/// The language part of a locale tag, in lower case: `pt` of `pt-BR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LanguageTag([u8; LanguageTag::BYTES_MAX]);

impl LanguageTag {
    /// Tags of languages have two to eight letters (RFC 5646).
    const BYTES_MAX: usize = 8;

    fn of(language: &str) -> Option<LanguageTag> {
        let is_tag = (2..=Self::BYTES_MAX).contains(&language.len())
            && language.bytes().all(|letter| letter.is_ascii_alphabetic());
        if !is_tag {
            return None;
        }
        let mut tag = [0; Self::BYTES_MAX];
        for (place, letter) in tag.iter_mut().zip(language.bytes()) {
            *place = letter.to_ascii_lowercase();
        }
        Some(LanguageTag(tag))
    }

    fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        // Only letters were put in.
        str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}

impl std::fmt::Display for Locale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Locale {
    /// The languages that have messages.
    pub const ALL: &'static [Locale] = &[Locale::English, Locale::German];

    /// The locale of a tag such as `de-AT`. Every tag is accepted; one that names no language means English.
    pub fn of(tag: &str) -> Locale {
        let language = tag.trim().split(['-', '_', '.', '@']).next().unwrap_or_default();
        match LanguageTag::of(language) {
            Some(tag) if tag.as_str() == Locale::English.as_str() => Locale::English,
            Some(tag) if tag.as_str() == Locale::German.as_str() => Locale::German,
            Some(tag) => Locale::Other(tag),
            None => Locale::English,
        }
    }

    /// The language, as a tag.
    pub fn as_str(&self) -> &str {
        match self {
            Locale::English => "en",
            Locale::German => "de",
            Locale::Other(tag) => tag.as_str(),
        }
    }

    fn messages(self) -> &'static str {
        match self {
            Locale::English | Locale::Other(_) => include_str!("narration/en.txt"),
            Locale::German => include_str!("narration/de.txt"),
        }
    }

    /// The message of this name.
    fn message(self, name: &str) -> Option<&'static str> {
        static ENGLISH: LazyLock<LocaleMessages> = LazyLock::new(|| read(Locale::English));
        static GERMAN: LazyLock<LocaleMessages> = LazyLock::new(|| read(Locale::German));
        let messages = match self {
            Locale::English | Locale::Other(_) => &ENGLISH,
            Locale::German => &GERMAN,
        };
        messages.get(name).copied()
    }
}

/// The messages of a language, by name.
type LocaleMessages = BTreeMap<&'static str, &'static str>;

fn read(locale: Locale) -> LocaleMessages {
    let lines = locale.messages().lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).collect()
}

named! {
    /// The phase of a call, for people.
    Phase {
        /// An attempt began.
        Started = "started",
        /// It waits.
        Waiting = "waiting",
        /// An attempt reports progress.
        Progress = "progress",
        /// It succeeded.
        Completed = "completed",
        /// It ended in any other way.
        Failed = "failed",
    }
}

/// The sentences of one tool in one language, as its author writes them: `{path}` stands for the argument of
/// that name, `{$title}`, `{$args}`, `{$reason}`, `{$progress}` and `{$message}` for Windlass's values. A
/// sentence that names a missing argument is not used for that call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narration {
    /// The language.
    pub locale: Locale,
    /// The phases with a sentence.
    pub sentences: Vec<(Phase, String)>,
}

/// The event to narrate.
#[derive(Clone, Copy, Debug)]
pub enum Narrative<'a> {
    /// An attempt began.
    Started,
    /// It waits, for one of [`Reason`](crate::call::Reason) or for a call that it duplicates.
    Waiting(&'a str),
    /// Its progress.
    Progress(&'a str),
    /// It succeeded.
    Completed,
    /// It failed, with the reason.
    Failed(&'a str),
    /// It was cancelled.
    Cancelled,
    /// It was denied, with the reason.
    Denied(&'a str),
    /// It is not known whether it took effect.
    Unknown,
}

impl Narrative<'_> {
    /// Its phase.
    pub fn phase(self) -> Phase {
        match self {
            Narrative::Started => Phase::Started,
            Narrative::Waiting(_) => Phase::Waiting,
            Narrative::Progress(_) => Phase::Progress,
            Narrative::Completed => Phase::Completed,
            Narrative::Failed(_) | Narrative::Cancelled | Narrative::Denied(_) | Narrative::Unknown => {
                Phase::Failed
            }
        }
    }

    /// The general message.
    fn message(self) -> &'static str {
        match self {
            Narrative::Cancelled => "cancelled",
            Narrative::Denied(_) => "denied",
            Narrative::Unknown => "unknown",
            Narrative::Started
            | Narrative::Waiting(_)
            | Narrative::Progress(_)
            | Narrative::Completed
            | Narrative::Failed(_) => self.phase().as_str(),
        }
    }

    /// Whether a tool has sentences of its own for it: other ends are ours to narrate.
    fn is_the_tools(self) -> bool {
        match self {
            Narrative::Started
            | Narrative::Waiting(_)
            | Narrative::Progress(_)
            | Narrative::Completed
            | Narrative::Failed(_) => true,
            Narrative::Cancelled | Narrative::Denied(_) | Narrative::Unknown => false,
        }
    }
}

/// The narrated call.
#[derive(Clone, Copy, Debug)]
pub struct Speaker<'a> {
    /// The tool's name, as requested.
    pub tool: &'a str,
    /// The tool's title; empty if it is not known.
    pub title: &'a str,
    /// The author's sentences.
    pub narrations: &'a [Narration],
    /// The author's function, asked first.
    pub narrator: Option<&'a Narrator>,
    /// The arguments, with their secrets masked.
    pub args: &'a RedactedArgs,
}

/// The sentence.
pub fn narrate(speaker: Speaker<'_>, told: Narrative<'_>, locale: Locale) -> String {
    let call = || NarratedCall { tool: speaker.tool, args: speaker.args.value(), told, locale };
    let made = speaker.narrator.filter(|_| told.is_the_tools()).and_then(|made| made.sentence(&call()));
    if let Some(sentence) = made {
        return sentence;
    }
    let own = |locale: Locale| {
        let own = speaker.narrations.iter().filter(move |narration| narration.locale == locale);
        let mut own = own.flat_map(|narration| &narration.sentences);
        own.find(|(phase, _)| *phase == told.phase()).map(|(_, sentence)| sentence.as_str())
    };
    // A tool without a sentence in a language without messages is narrated with its author's English one, too.
    let falls_back = matches!(locale, Locale::Other(_));
    let own = own(locale).or_else(|| falls_back.then(|| own(Locale::English)).flatten());
    // A built-in's own; `.plain` is for calls without the argument that the first one names.
    let by_name = |what: &str| {
        let message = |variant: &str| locale.message(&format!("{}.{what}{variant}", speaker.tool));
        let filled = |sentence| fill(sentence, speaker, told, locale);
        message("").and_then(filled).or_else(|| message(".plain").and_then(filled))
    };
    let special = || match own {
        Some(sentence) => fill(sentence, speaker, told, locale),
        None => by_name(told.phase().as_str()),
    };
    let general = || {
        let title = by_name("title");
        let title = title.as_deref().unwrap_or(speaker.title);
        fill(locale.message(told.message())?, Speaker { title, ..speaker }, told, locale)
    };
    let special = told.is_the_tools().then(special).flatten();
    special.or_else(general).unwrap_or_else(|| speaker.tool.to_string())
}

/// Fills a sentence; `None` if the call lacks a value it names.
fn fill(sentence: &str, speaker: Speaker<'_>, told: Narrative<'_>, locale: Locale) -> Option<String> {
    let mut text = String::with_capacity(SENTENCE_BYTES);
    for piece in pieces(sentence) {
        match piece {
            TemplatePiece::Text(piece) => push_line(&mut text, piece, usize::MAX),
            TemplatePiece::Property(name) => match name.strip_prefix('$') {
                Some(ours) => push_known(&mut text, ours, speaker, told, locale)?,
                None => push_shown(&mut text, speaker.args.value().get(name)?)?,
            },
        }
    }
    Some(text)
}

/// The approximate length of a sentence.
const SENTENCE_BYTES: usize = 128;

/// The values a sentence takes: names of arguments, and with `$` Windlass's values.
pub fn names(sentence: &str) -> impl Iterator<Item = &str> {
    pieces(sentence).filter_map(|piece| match piece {
        TemplatePiece::Property(name) => Some(name),
        TemplatePiece::Text(_) => None,
    })
}

/// Windlass's values, as [`Narration`] names them.
pub const KNOWN: [&str; 5] = ["args", "message", "progress", "reason", "title"];

/// Appends one of Windlass's values; `None` if the event has none.
fn push_known(
    text: &mut String,
    name: &str,
    speaker: Speaker<'_>,
    told: Narrative<'_>,
    locale: Locale,
) -> Option<()> {
    match (name, told) {
        ("title", _) if !speaker.title.is_empty() => push_line(text, speaker.title, TITLE_CHARS_MAX),
        ("title", _) => push_line(text, speaker.tool, VALUE_CHARS_MAX),
        ("args", _) => push_arguments(text, speaker.args.value()),
        ("reason", Narrative::Waiting(reason)) => match locale.message(&format!("reason.{reason}")) {
            Some(message) => text.push_str(message),
            None => push_line(text, reason, VALUE_CHARS_MAX),
        },
        ("progress", Narrative::Progress(said)) => {
            push_line(text, &speaker.args.scrub(said), MESSAGE_CHARS_MAX)
        }
        ("message", Narrative::Failed(said) | Narrative::Denied(said)) => {
            push_line(text, &speaker.args.scrub(said), MESSAGE_CHARS_MAX);
        }
        _ => return None,
    }
    Some(())
}

/// Appends the first arguments that are short enough, in brackets.
fn push_arguments(text: &mut String, args: &Value) {
    let (began, mut told) = (text.len(), 0);
    text.push_str(" (");
    let values = args.as_object().into_iter().flat_map(|args| args.values());
    for value in values.filter(|value| value.as_str() != Some(MASK)) {
        let before = text.len();
        text.push_str(if told > 0 { ", " } else { "" });
        match push_shown(text, value) {
            Some(()) => told += 1,
            None => text.truncate(before),
        }
        if told == ARGUMENTS_MAX {
            break;
        }
    }
    match told {
        0 => text.truncate(began),
        _ => text.push(')'),
    }
}

/// Appends a value in a word; `None` for values with too many parts, or none.
fn push_shown(text: &mut String, value: &Value) -> Option<()> {
    match value {
        Value::String(value) => push_line(text, &told_addresses(value), VALUE_CHARS_MAX),
        Value::Number(number) => push_line(text, &number.to_string(), VALUE_CHARS_MAX),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Array(items) => {
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            push_line(text, &told_addresses(&words?.join(" ")), VALUE_CHARS_MAX);
        }
        Value::Null | Value::Object(_) => return None,
    }
    Some(())
}

/// A text for display, with each URL reduced to host and path: the rest is long, and may be private.
fn told_addresses(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains("://") {
        return text.into();
    }
    let mut told = String::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        match address(word) {
            Some(address) => told.push_str(&address),
            None => told.push_str(word),
        }
        told.push_str(&piece[word.len()..]);
        if told.chars().nth(VALUE_CHARS_MAX).is_some() {
            break;
        }
    }
    told.into()
}

/// Host and path of a word that is a URL, or that ends with one, such as `url=https://example.com`.
fn address(word: &str) -> Option<String> {
    let (before, rest) = word.split_once("://")?;
    let scheme =
        before.rsplit(|letter: char| !letter.is_ascii_alphanumeric() && !"+.-".contains(letter)).next()?;
    if scheme.is_empty() {
        return None;
    }
    let before = &before[..before.len() - scheme.len()];
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    Some(format!("{before}{host}{}", path.trim_end_matches('/')))
}

/// The maximum length of a value.
const VALUE_CHARS_MAX: usize = 48;
/// The maximum length of a title, which may have a value in it.
const TITLE_CHARS_MAX: usize = 96;
/// The maximum length of an error or a progress text.
const MESSAGE_CHARS_MAX: usize = 160;
/// The maximum number of arguments, where the author named none.
const ARGUMENTS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::SecretNames;
    use serde_json::json;

    fn tell(tool: &str, args: &Value, told: Narrative<'_>, locale: Locale) -> String {
        let args = &RedactedArgs::of(args.clone(), &SecretNames::default());
        narrate(Speaker { tool, title: "", narrations: &[], narrator: None, args }, told, locale)
    }

    #[test]
    fn each_phase_has_its_sentence_in_each_language() {
        let (shares, mail) =
            (json!({"a": 1, "b": 3}), json!({"to": "ann@example.com", "tries": 3, "body": {}}));
        let told = [
            Narrative::Started,
            Narrative::Waiting("input"),
            Narrative::Progress("30 %, 3 of 10 files"),
            Narrative::Completed,
            Narrative::Failed("there is no such file"),
            Narrative::Cancelled,
            Narrative::Denied("not at night"),
            Narrative::Unknown,
        ];
        let mut lines = Vec::new();
        for &locale in Locale::ALL {
            for (tool, args) in [("divide", &shares), ("send_mail", &mail), ("send_mail", &Value::Null)] {
                lines.extend(told.iter().map(|told| format!("{locale} {}", tell(tool, args, *told, locale))));
            }
        }
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn what_the_author_wrote_comes_first_if_the_call_has_what_it_names() {
        let sentences = vec![(Phase::Started, "Deploying {service} to {region}".to_string())];
        let narrations = [Narration { locale: Locale::English, sentences }];
        let tell = |args: &Value, locale| {
            let args = &RedactedArgs::of(args.clone(), &SecretNames::default());
            narrate(
                Speaker { tool: "deploy", title: "Deploy", narrations: &narrations, narrator: None, args },
                Narrative::Started,
                locale,
            )
        };
        let whole = json!({"service": "shop", "region": "eu"});
        assert_eq!(tell(&whole, Locale::English), "Deploying shop to eu");
        assert_eq!(tell(&json!({"service": "shop"}), Locale::English), "Running Deploy (shop)");
        assert_eq!(tell(&whole, Locale::German), "Deploy läuft (eu, shop)");
    }

    #[test]
    fn a_sentence_is_one_short_line_whatever_the_arguments_are() {
        let hostile = json!({"message": format!("a\nb\u{1b}[2J\u{202e}{}", "x".repeat(100))});
        let told = tell("echo", &hostile, Narrative::Started, Locale::English);
        assert!(told.starts_with(r"Repeating a\nb\u{1b}[2J\u{202e}xxx") && told.ends_with("x…"), "{told}");
        let failed = tell("echo", &hostile, Narrative::Failed(&"y\r\n".repeat(1_000)), Locale::German);
        assert!(!failed.contains(char::is_control) && failed.chars().count() < 800, "{failed}");
    }

    #[test]
    fn of_an_address_host_and_path_are_told() {
        for (url, shown) in [
            ("https://ann:secret@example.com/a/b?token=secret#c", "example.com/a/b"),
            ("http://example.com/", "example.com"),
            ("https://example.com?token=secret", "example.com"),
            ("ftp://ann:secret@example.com/a?b", "example.com/a"),
            ("HTTPS://example.com/a?token=secret", "example.com/a"),
            ("see https://example.com/a?sig=secret, then wait", "see example.com/a then wait"),
            ("://nothing", "://nothing"),
        ] {
            assert_eq!(
                tell("echo", &json!({"message": url}), Narrative::Started, Locale::English),
                format!("Repeating {shown}")
            );
        }
    }

    #[test]
    fn a_tag_is_understood_or_it_is_english() {
        for (tag, locale) in [("de", Locale::German), ("DE_at", Locale::German), ("de-CH", Locale::German)] {
            assert_eq!(Locale::of(tag), locale);
        }
        for tag in ["", "en-GB", "C.UTF-8", "x", "-", "muchtoolong-for-a-tag", "\u{202e}", "123"] {
            assert_eq!(Locale::of(tag), Locale::English, "{tag}");
        }
        assert_eq!(Locale::of("pt-BR"), Locale::of("PT"));
        assert_eq!(Locale::of("pt-BR").to_string(), "pt");
    }

    #[test]
    fn a_tool_may_bring_a_language_that_has_no_messages_and_the_rest_is_english() {
        let of = |locale: &str, phase, sentence: &str| Narration {
            locale: Locale::of(locale),
            sentences: vec![(phase, sentence.to_string())],
        };
        let narrations =
            [of("fr", Phase::Started, "Déploie {service}"), of("en", Phase::Completed, "Deployed {service}")];
        let args = &RedactedArgs::of(json!({"service": "shop"}), &SecretNames::default());
        let speaker =
            Speaker { tool: "deploy", title: "Deploy", narrations: &narrations, narrator: None, args };
        let tell = |told, tag: &str| narrate(speaker, told, Locale::of(tag));
        assert_eq!(tell(Narrative::Started, "fr-CA"), "Déploie shop");
        assert_eq!(tell(Narrative::Completed, "fr"), "Deployed shop");
        assert_eq!(tell(Narrative::Waiting("input"), "fr"), "Deploy waits for a person's answer");
        assert_eq!(tell(Narrative::Started, "it"), "Running Deploy (shop)");
    }

    #[test]
    fn no_sentence_has_a_secret_or_more_of_a_value_than_fits_on_a_line() {
        let body = "Dear Ann, ".repeat(50);
        let args = json!({
            "api_key": "sk-live-123", "body": body, "password": "hunter2", "to": "ann@example.com",
            "url": "https://example.com/login?access_token=sk-live-123",
        });
        let schema = json!({"properties": {"to": {"writeOnly": true}}});
        let args = &RedactedArgs::of(args, &SecretNames::of(Some(&schema)));
        let sentences: Vec<_> = Phase::ALL
            .iter()
            .map(|phase| (*phase, "{password} {api_key} {to} {url} {body} {$args} {$title}".to_string()))
            .collect();
        let narrations = [Narration { locale: Locale::English, sentences }];
        let said = "the password hunter2 is wrong, so is sk-live-123";
        for told in [
            Narrative::Started,
            Narrative::Waiting("input"),
            Narrative::Progress(said),
            Narrative::Completed,
            Narrative::Failed(said),
        ] {
            for (narrations, locale) in
                [(&narrations[..], Locale::English), (&[], Locale::English), (&[], Locale::German)]
            {
                let speaker = Speaker { tool: "log_in", title: "Log in", narrations, narrator: None, args };
                let sentence = narrate(speaker, told, locale);
                for secret in ["sk-live", "hunter2", "ann@", "access_token"] {
                    assert!(!sentence.contains(secret), "{secret} is in {sentence:?}");
                }
                assert!(sentence.matches("Dear Ann").count() <= 2 * 5, "{sentence}");
            }
        }
    }

    #[test]
    fn the_languages_have_the_same_messages_with_the_same_places() {
        let of = |locale: Locale| {
            let lines = locale.messages().lines().filter(|line| !line.starts_with('#'));
            let mut places: Vec<(&str, Vec<&str>)> = lines
                .map(|line| line.split_once(" = ").expect("name = text"))
                .map(|(name, text)| {
                    let mut named: Vec<&str> = names(text).collect();
                    named.sort();
                    (name, named)
                })
                .collect();
            places.sort();
            places
        };
        let english = of(Locale::English);
        for &locale in Locale::ALL {
            assert_eq!(of(locale), english, "{locale}");
        }
        let names: Vec<&str> = english.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "a message is there once");
        for reason in crate::call::Reason::ALL {
            let name = format!("reason.{reason}");
            assert!(names.contains(&name.as_str()), "{reason} is not told");
        }
    }
}
