//! The closed list of codes a failure can carry. `docs/codes.md` has a paragraph for each.

use windlass_args::code::ArgumentCode;

/// Declares the codes once: the enum, their text, and the list that the docs are checked against.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        /// The reason of a failure, from a closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// The code in answers and journals.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text),+ }
            }

            /// Parses the output of [`as_str`](Self::as_str).
            pub fn parse(text: &str) -> Option<Code> {
                match text { $($text => Some(Code::$name),)+ _ => None }
            }
        }
    };
}

codes! {
    /// The arguments are not JSON.
    InvalidJson = "invalid_json";
    /// An object in the arguments has the same key twice.
    DuplicateKey = "duplicate_key";
    /// A number in the arguments cannot be held without rounding it.
    InexactNumber = "inexact_number";
    /// The arguments are nested too deeply.
    TooDeep = "too_deep";
    /// The arguments, or what a tool produced, are too large.
    TooLarge = "too_large";
    /// The arguments do not fit the tool's input schema.
    InvalidArgs = "invalid_args";
    /// The tool's result does not fit its own output schema.
    InvalidOutput = "invalid_output";
    /// There is no tool of that name.
    NoSuchTool = "no_such_tool";
    /// An identity was used before with other arguments or another tool.
    Conflict = "conflict";
    /// Two different calls of one batch have the same id.
    CallIdConflict = "call_id_conflict";
    /// A deadline ran out.
    Timeout = "timeout";
    /// It failed, and its next attempt would have come after its total deadline.
    RetryTooLate = "retry_too_late";
    /// A tool said that its result comes later, and has given out no key by which it could come.
    PendingWithoutKey = "pending_without_key";
    /// A secret that the tool needs is not stored, or cannot be used.
    SecretUnavailable = "secret_unavailable";
    /// The tool needs a connection that somebody declined.
    ConnectionDeclined = "connection_declined";
    /// It certainly did not take effect.
    DidNotHappen = "did_not_happen";
    /// It was answered before, and its record has expired.
    Expired = "expired";
    /// The owner died each time it ran.
    Poison = "poison";
    /// Too many attempts of the tool block their threads.
    ToolStuck = "tool_stuck";
    /// A hook refused it.
    Refused = "refused";
    /// A task was to be started of a tool that does not run in the background.
    NotBackground = "not_background";
    /// A tool was called directly that runs in the background only.
    BackgroundOnly = "background_only";
    /// A tool was called from another one that is only called directly.
    StaysDirect = "stays_direct";
    /// A call lies inside too many others.
    NestedTooDeep = "nested_too_deep";
    /// A call inside another claims what that one does not.
    ClaimNotCovered = "claim_not_covered";
    /// A call inside another needs room that is held by calls which wait for it.
    WouldDeadlock = "would_deadlock";
    /// The tool's provider did not give it.
    ProviderFailed = "provider_failed";
    /// Identical calls were made over and over, with identical results.
    Loop = "loop";
    /// The tool said that it could not do its work.
    ToolFailed = "tool_failed";
    /// The tool's code panicked.
    ToolPanicked = "tool_panicked";
    /// Something went wrong inside Windlass.
    Internal = "internal";
}

impl From<ArgumentCode> for Code {
    fn from(code: ArgumentCode) -> Code {
        match code {
            ArgumentCode::InvalidJson => Code::InvalidJson,
            ArgumentCode::DuplicateKey => Code::DuplicateKey,
            ArgumentCode::InexactNumber => Code::InexactNumber,
            ArgumentCode::TooDeep => Code::TooDeep,
            ArgumentCode::TooLarge => Code::TooLarge,
            ArgumentCode::InvalidArgs => Code::InvalidArgs,
            ArgumentCode::InvalidOutput => Code::InvalidOutput,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for &code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
        }
        assert_eq!(Code::parse("nonsense"), None);
    }

    #[test]
    fn codes_of_arguments_keep_their_text() {
        for &code in ArgumentCode::ALL {
            assert_eq!(Code::from(code).as_str(), code.as_str());
        }
    }
}
