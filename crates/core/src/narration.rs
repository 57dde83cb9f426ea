//! A sentence for people per phase of a call: "Dividing 1 by 3", "Divided 1 by 3".
//!
//! The sentence is the tool's own if its author wrote one, else that of a message file (`narration/en.txt` and its
//! siblings, by the tool's name), else a general one from the title and the arguments. It is always one line: values are
//! shortened, addresses of web pages are told by host and path, and controls are made visible.

use crate::failure::named;
use crate::template::{Piece, pieces};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::LazyLock;

named! {
    /// A language in which calls are told.
    Locale {
        /// English.
        English = "en",
        /// German.
        German = "de",
    }
}

impl Locale {
    /// The locale that a tag such as `de-AT` asks for; English if there are no messages in that language.
    pub fn of(tag: &str) -> Locale {
        let language = tag.split(['-', '_']).next().unwrap_or_default();
        let known = Locale::ALL.iter().find(|locale| locale.as_str().eq_ignore_ascii_case(language));
        known.copied().unwrap_or(Locale::English)
    }

    fn messages(self) -> &'static str {
        match self {
            Locale::English => include_str!("narration/en.txt"),
            Locale::German => include_str!("narration/de.txt"),
        }
    }

    /// The message of this name.
    fn message(self, name: &str) -> Option<&'static str> {
        static ENGLISH: LazyLock<Messages> = LazyLock::new(|| read(Locale::English));
        static GERMAN: LazyLock<Messages> = LazyLock::new(|| read(Locale::German));
        let messages = match self {
            Locale::English => &ENGLISH,
            Locale::German => &GERMAN,
        };
        messages.get(name).copied()
    }
}

/// The messages of a language, by name.
type Messages = BTreeMap<&'static str, &'static str>;

fn read(locale: Locale) -> Messages {
    let lines = locale.messages().lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).collect()
}

named! {
    /// Where a call stands, as it is told to people.
    Phase {
        /// An attempt began.
        Started = "started",
        /// It waits.
        Waiting = "waiting",
        /// An attempt says how far it is.
        Progress = "progress",
        /// It is over, as it should be.
        Completed = "completed",
        /// It is over, and not as it should be.
        Failed = "failed",
    }
}

/// The sentences of one tool in one language, as its author writes them: `{path}` stands for the argument of that name,
/// `{$title}`, `{$args}`, `{$reason}`, `{$progress}` and `{$message}` for what Windlass knows. A sentence that names an
/// argument which a call does not have is not used for that call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narration {
    /// The language.
    pub locale: Locale,
    /// Each phase that has a sentence.
    pub sentences: Vec<(Phase, String)>,
}

/// What is told.
#[derive(Clone, Copy, Debug)]
pub enum Told<'a> {
    /// An attempt began.
    Started,
    /// It waits, for one of [`Reason`](crate::call::Reason) or for a call that is the same.
    Waiting(&'a str),
    /// How far it is.
    Progress(&'a str),
    /// It succeeded.
    Completed,
    /// It failed, and why.
    Failed(&'a str),
    /// It was cancelled.
    Cancelled,
    /// It was not allowed, and why.
    Denied(&'a str),
    /// It is not known whether it took effect.
    Unknown,
}

impl Told<'_> {
    /// The phase to which this belongs.
    pub fn phase(self) -> Phase {
        match self {
            Told::Started => Phase::Started,
            Told::Waiting(_) => Phase::Waiting,
            Told::Progress(_) => Phase::Progress,
            Told::Completed => Phase::Completed,
            Told::Failed(_) | Told::Cancelled | Told::Denied(_) | Told::Unknown => Phase::Failed,
        }
    }

    /// The general message.
    fn message(self) -> &'static str {
        match self {
            Told::Cancelled => "cancelled",
            Told::Denied(_) => "denied",
            Told::Unknown => "unknown",
            Told::Started | Told::Waiting(_) | Told::Progress(_) | Told::Completed | Told::Failed(_) => {
                self.phase().as_str()
            }
        }
    }

    /// Whether a tool has sentences of its own for it: what happened to a call is ours to tell.
    fn is_the_tools(self) -> bool {
        match self {
            Told::Started | Told::Waiting(_) | Told::Progress(_) | Told::Completed | Told::Failed(_) => true,
            Told::Cancelled | Told::Denied(_) | Told::Unknown => false,
        }
    }
}

/// The call that is told of.
#[derive(Clone, Copy, Debug)]
pub struct Speaker<'a> {
    /// The tool's name, as it was asked for.
    pub tool: &'a str,
    /// What people call the tool; empty if that is not known.
    pub title: &'a str,
    /// What its author wrote.
    pub narrations: &'a [Narration],
    /// The arguments.
    pub args: &'a Value,
}

/// The sentence.
pub fn narrate(speaker: Speaker<'_>, told: Told<'_>, locale: Locale) -> String {
    let own = speaker.narrations.iter().filter(|narration| narration.locale == locale);
    let own = own.flat_map(|narration| &narration.sentences).find(|(phase, _)| *phase == told.phase());
    let own = own.map(|(_, sentence)| sentence.as_str());
    let by_name = || locale.message(&format!("{}.{}", speaker.tool, told.phase()));
    let special = told.is_the_tools().then(|| own.or_else(by_name)).flatten();
    let filled = special.and_then(|sentence| fill(sentence, speaker, told, locale));
    let general = || fill(locale.message(told.message())?, speaker, told, locale);
    filled.or_else(general).unwrap_or_else(|| speaker.tool.to_string())
}

/// A sentence with everything in it; `None` if the call has not what it names.
fn fill(sentence: &str, speaker: Speaker<'_>, told: Told<'_>, locale: Locale) -> Option<String> {
    let mut text = String::with_capacity(SENTENCE_BYTES);
    for piece in pieces(sentence) {
        match piece {
            Piece::Text(piece) => push_line(&mut text, piece, usize::MAX),
            Piece::Property(name) => match name.strip_prefix('$') {
                Some(ours) => push_known(&mut text, ours, (speaker, told, locale))?,
                None => push_shown(&mut text, speaker.args.get(name)?)?,
            },
        }
    }
    Some(text)
}

/// About how long a sentence is.
const SENTENCE_BYTES: usize = 128;

/// What a sentence takes from the call: names of arguments, and with `$` what Windlass knows.
pub fn names(sentence: &str) -> impl Iterator<Item = &str> {
    pieces(sentence).filter_map(|piece| match piece {
        Piece::Property(name) => Some(name),
        Piece::Text(_) => None,
    })
}

/// What Windlass knows of a call, as [`Narration`] names it.
pub const KNOWN: [&str; 5] = ["args", "message", "progress", "reason", "title"];

/// Appends what Windlass knows; `None` if it does not know that of what is told.
fn push_known(
    text: &mut String,
    name: &str,
    (speaker, told, locale): (Speaker<'_>, Told<'_>, Locale),
) -> Option<()> {
    match (name, told) {
        ("title", _) if !speaker.title.is_empty() => push_line(text, speaker.title, VALUE_CHARS_MAX),
        ("title", _) => push_line(text, speaker.tool, VALUE_CHARS_MAX),
        ("args", _) => push_arguments(text, speaker.args),
        ("reason", Told::Waiting(reason)) => match locale.message(&format!("reason.{reason}")) {
            Some(message) => text.push_str(message),
            None => push_line(text, reason, VALUE_CHARS_MAX),
        },
        ("progress", Told::Progress(said)) => push_line(text, said, MESSAGE_CHARS_MAX),
        ("message", Told::Failed(said) | Told::Denied(said)) => push_line(text, said, MESSAGE_CHARS_MAX),
        _ => return None,
    }
    Some(())
}

/// Appends the first arguments that can be told in a word, in brackets.
fn push_arguments(text: &mut String, args: &Value) {
    let (began, mut told) = (text.len(), 0);
    text.push_str(" (");
    for value in args.as_object().into_iter().flat_map(|args| args.values()) {
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

/// Appends a value in a word; `None` for what has too many parts, or none.
fn push_shown(text: &mut String, value: &Value) -> Option<()> {
    match value {
        Value::String(value) => push_line(text, &address(value), VALUE_CHARS_MAX),
        Value::Number(number) => push_line(text, &number.to_string(), VALUE_CHARS_MAX),
        Value::Bool(yes) => text.push_str(if *yes { "true" } else { "false" }),
        Value::Array(items) => {
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            push_line(text, &words?.join(" "), VALUE_CHARS_MAX);
        }
        Value::Null | Value::Object(_) => return None,
    }
    Some(())
}

/// Of the address of a web page host and path: the rest is long, and may hold what is nobody's business.
fn address(text: &str) -> std::borrow::Cow<'_, str> {
    let Some(rest) = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme)) else {
        return text.into();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{host}{}", path.trim_end_matches('/')).into()
}

/// So much of a value is told.
const VALUE_CHARS_MAX: usize = 48;
/// So much of what went wrong, or of how far something is.
const MESSAGE_CHARS_MAX: usize = 160;
/// So many arguments are told where nobody said which matter.
const ARGUMENTS_MAX: usize = 3;

/// Appends one line of bounded length, with controls made visible.
fn push_line(shown: &mut String, text: &str, chars_max: usize) {
    // Most texts begin with letters that need no second look, and end with them.
    let plain = text.bytes().take(chars_max).take_while(|byte| (b' '..=b'~').contains(byte)).count();
    let (plain, rest) = text.split_at(plain);
    shown.push_str(plain);
    for (place, letter) in rest.chars().enumerate() {
        if plain.len() + place == chars_max {
            shown.push('…');
            break;
        }
        match is_hidden(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
}

/// Letters that move the cursor, break the line, or turn the direction of what follows.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || ('\u{202a}'..='\u{202e}').contains(&letter)
        || ('\u{2066}'..='\u{2069}').contains(&letter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tell(tool: &str, args: &Value, told: Told<'_>, locale: Locale) -> String {
        narrate(Speaker { tool, title: "", narrations: &[], args }, told, locale)
    }

    #[test]
    fn each_phase_has_its_sentence_in_each_language() {
        let (shares, mail) =
            (json!({"a": 1, "b": 3}), json!({"to": "ann@example.com", "tries": 3, "body": {}}));
        let told = [
            Told::Started,
            Told::Waiting("input"),
            Told::Progress("30 %, 3 of 10 files"),
            Told::Completed,
            Told::Failed("there is no such file"),
            Told::Cancelled,
            Told::Denied("not at night"),
            Told::Unknown,
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
            narrate(
                Speaker { tool: "deploy", title: "Deploy", narrations: &narrations, args },
                Told::Started,
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
        let told = tell("echo", &hostile, Told::Started, Locale::English);
        assert!(told.starts_with(r"Repeating a\nb\u{1b}[2J\u{202e}xxx") && told.ends_with("x…"), "{told}");
        let failed = tell("echo", &hostile, Told::Failed(&"y\r\n".repeat(1_000)), Locale::German);
        assert!(!failed.contains(char::is_control) && failed.chars().count() < 800, "{failed}");
    }

    #[test]
    fn of_an_address_host_and_path_are_told() {
        for (url, shown) in [
            ("https://ann:secret@example.com/a/b?token=secret#c", "example.com/a/b"),
            ("http://example.com/", "example.com"),
            ("https://example.com?token=secret", "example.com"),
            ("ftp://example.com/a", "ftp://example.com/a"),
        ] {
            assert_eq!(
                tell("echo", &json!({"message": url}), Told::Started, Locale::English),
                format!("Repeating {shown}")
            );
        }
    }

    #[test]
    fn a_tag_is_understood_or_it_is_english() {
        for (tag, locale) in [("de", Locale::German), ("DE_at", Locale::German), ("de-CH", Locale::German)] {
            assert_eq!(Locale::of(tag), locale);
        }
        for tag in ["", "fr", "den", "en-GB"] {
            assert_eq!(Locale::of(tag), Locale::English);
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
