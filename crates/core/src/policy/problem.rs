//! Mistakes in a policy, each with its place and what to write instead.

/// A mistake in a policy, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {mistake}")]
pub struct PolicyProblem {
    /// The place, such as `rules[3].when.args[0].pointer`; `policy` for the whole.
    pub place: String,
    /// The mistake.
    pub mistake: PolicyMistake,
}

/// A mistake in a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyMistake {
    /// A value of another type.
    #[error("this must be {expected}")]
    Type {
        /// The expected type, with an example.
        expected: &'static str,
    },
    /// A key that does not exist.
    #[error("there is no key {key:?} here; {}", which_key(*.nearest, .known))]
    UnknownKey {
        /// The key, shortened.
        key: String,
        /// The most similar key.
        nearest: Option<&'static str>,
        /// Every key that exists here.
        known: &'static [&'static str],
    },
    /// A key that must be there.
    #[error("the key {key:?} is missing; {advice}")]
    Missing {
        /// The key.
        key: &'static str,
        /// An example.
        advice: &'static str,
    },
    /// A word that is none of a fixed set.
    #[error("{text:?} is not known here; write one of {known}")]
    Word {
        /// The word, shortened.
        text: String,
        /// Every word that is known.
        known: String,
    },
    /// Nothing in a list or table that must name something.
    #[error("this is empty, so it says nothing; name something in it, or leave it out")]
    Empty,
    /// Too many rules, conditions or values.
    #[error("there are {count} {things}, and may be {max} (limit {limit}); {advice}")]
    TooMany {
        /// The number.
        count: u64,
        /// The things counted.
        things: &'static str,
        /// The limit's value.
        max: u64,
        /// The limit's name.
        limit: &'static str,
        /// Advice on how to get below it.
        advice: &'static str,
    },
    /// A text that is too long.
    #[error("the text has {bytes} bytes, and may have {max} (limit policy_text_bytes_max); shorten it")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// The limit `policy_text_bytes_max`.
        max: u64,
    },
    /// A name of a rule that cannot be shown on one line.
    #[error("the name of a rule is one line of visible characters; write one such as \"no pushes to main\"")]
    Name,
    /// A name that two rules have.
    #[error(
        "the rule rules[{first}] has the name {name:?} too; rename one of them, since records name rules by it"
    )]
    SameName {
        /// The index of the first rule.
        first: usize,
        /// The name.
        name: String,
    },
    /// A place of an argument that is not a JSON pointer.
    #[error(
        "{pointer:?} is not a JSON pointer to an argument; write \"/field\" for an argument, \"/a/b\" for a field in it, and \"~1\" and \
         \"~0\" for \"/\" and \"~\" in a name"
    )]
    Pointer {
        /// The text, shortened.
        pointer: String,
    },
    /// Not exactly one comparison in a condition on an argument.
    #[error("a condition on an argument has exactly one of equals, one_of, prefix, glob and range, and this has {count}; {}",
        if *count == 0 { "add one, such as prefix = \"/tmp/\"" } else { "write one condition for each: all of them must match" })]
    Comparisons {
        /// The number of comparisons.
        count: usize,
    },
    /// A range that contains nothing.
    #[error("min is above max, so no number matches; exchange them")]
    EmptyRange,
    /// A time out of bounds.
    #[error("this is {value} ms, and may be 1 to {max} (limit policy_ask_ms_max)")]
    Time {
        /// The stated time.
        value: u64,
        /// The limit `policy_ask_ms_max`.
        max: u64,
    },
    /// A key that only an `ask` rule can have.
    #[error("only a rule with ruling = \"ask\" waits for an answer; remove this key, or change the ruling")]
    OnlyForAsk,
    /// Approval by two people that the passing of time would replace.
    #[error(
        "a rule with four_eyes cannot allow a call that nobody answered for; remove on_expiry or write on_expiry = \"deny\""
    )]
    FourEyesExpire,
}

fn which_key(nearest: Option<&'static str>, known: &[&'static str]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => format!("the keys are {}", known.join(", ")),
    }
}

/// A text of the policy as a problem shows it.
pub(super) fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
