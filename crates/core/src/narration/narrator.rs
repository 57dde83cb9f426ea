//! Sentences made by a tool's own function.

use super::{Locale, Narrative};
use crate::visible::push_line;
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Makes sentences about the calls of a tool: for those that a template cannot say.
///
/// It is told the arguments with their secrets masked, and has no effects of its own. `None`, or a panic: the tool's
/// templates are used, and then ours.
#[derive(Clone)]
pub struct Narrator(Arc<NarratorFn>);

type NarratorFn = dyn Fn(&NarratedCall<'_>) -> Option<String> + Send + Sync;

/// A call as a [`Narrator`] is told of it.
#[derive(Clone, Copy, Debug)]
pub struct NarratedCall<'a> {
    /// The tool's name, as requested.
    pub tool: &'a str,
    /// The arguments, with their secrets masked.
    pub args: &'a Value,
    /// The phase, with its reason, progress or message.
    pub told: Narrative<'a>,
    /// The language.
    pub locale: Locale,
}

impl Narrator {
    /// A narrator from a function of call, phase and locale.
    pub fn new(narrate: impl Fn(&NarratedCall<'_>) -> Option<String> + Send + Sync + 'static) -> Narrator {
        Narrator(Arc::new(narrate))
    }

    pub(super) fn sentence(&self, call: &NarratedCall<'_>) -> Option<String> {
        let said = catch_unwind(AssertUnwindSafe(|| (self.0)(call))).ok().flatten()?;
        let mut line = String::with_capacity(said.len().min(SENTENCE_CHARS_MAX));
        push_line(&mut line, &said, SENTENCE_CHARS_MAX);
        (!line.trim().is_empty()).then_some(line)
    }
}

impl std::fmt::Debug for Narrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Narrator")
    }
}

/// Functions are equal if they are the same one.
impl PartialEq for Narrator {
    fn eq(&self, other: &Narrator) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A sentence of a tool's own function has at most this many characters: it is one line in a list.
const SENTENCE_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::super::{Narration, Phase, Speaker, narrate};
    use super::*;
    use crate::redact::{RedactedArgs, SecretNames};
    use serde_json::json;

    #[test]
    fn a_function_of_call_phase_and_locale_comes_before_templates() {
        let narrator = Narrator::new(|call: &NarratedCall<'_>| {
            let count = call.args["files"].as_array()?.len();
            assert!(count != 3, "a panic is no sentence");
            match (call.locale, call.told) {
                (Locale::German, Narrative::Started) => Some(format!("Liest {count} Dateien")),
                (_, Narrative::Started) => {
                    Some(format!("Reads {count} files\nand {}", call.args["password"]))
                }
                (_, Narrative::Failed(why)) => Some(format!("{} {why}", "x".repeat(1_000))),
                _ => None,
            }
        });
        let narrations = [Narration {
            locale: Locale::English,
            sentences: vec![
                (Phase::Started, "template".to_string()),
                (Phase::Completed, "Done with {$title}".to_string()),
            ],
        }];
        let said = |files: usize, told, locale| {
            let args = json!({ "files": vec![1; files], "password": "hunter2" });
            let args = RedactedArgs::of(args, &SecretNames::default());
            let (narrations, narrator) = (&narrations[..], Some(&narrator));
            narrate(Speaker { tool: "read", title: "Read", narrations, narrator, args: &args }, told, locale)
        };
        assert_eq!(said(2, Narrative::Started, Locale::German), "Liest 2 Dateien");
        let english = said(2, Narrative::Started, Locale::English);
        assert!(english.starts_with("Reads 2 files") && !english.contains('\n'), "{english}");
        assert!(!english.contains("hunter2"), "{english}");
        assert!(said(2, Narrative::Failed("no"), Locale::English).chars().count() <= SENTENCE_CHARS_MAX + 1);
        assert_eq!(said(2, Narrative::Completed, Locale::English), "Done with Read");
        assert_eq!(said(3, Narrative::Started, Locale::English), "template");
        // Ends that are ours to narrate stay ours.
        assert!(said(2, Narrative::Cancelled, Locale::English).to_lowercase().contains("cancelled"));
    }
}
