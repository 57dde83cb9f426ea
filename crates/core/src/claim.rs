//! Claims of calls: reads and writes of names with `/` levels, where a name covers all names below it.
//!
//! `write file:/src/a.rs` has the levels `file:`, `src` and `a.rs`; it collides with `read file:/src` and not
//! with `read file:/doc`. A claim without a name is on the session, which covers every name but those whose
//! first level begins with `global:`; these hold across sessions.

mod template;

pub use template::{BadArgs, ClaimTemplate};

use crate::limits::CallLimits;
use crate::tool::EffectClass;
use std::fmt;
use std::sync::Arc;

/// Whether a call only reads what it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Reads: shared with other readers.
    Read,
    /// Writes: exclusive.
    Write,
}

/// The name of a resource; its levels are separated by `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Option<Box<str>>);

/// A right that a call needs until it is over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    /// Read or write.
    pub mode: Mode,
    /// The resource.
    pub name: Name,
}

/// All claims of one call: none covers another, in one order however they were declared.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(ClaimList);

/// Claims by default are shared by all calls and cost nothing.
#[derive(Clone)]
enum ClaimList {
    Fixed(&'static [Claim]),
    Own(Arc<[Claim]>),
}

/// Why a text is not a claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadClaim {
    /// It does not begin with a mode.
    #[error(
        "a claim begins with `read` or `write` and names a resource, as in `write file:/src/a.rs`; {text:?} does not"
    )]
    NoMode {
        /// The text.
        text: String,
    },
    /// Two `/` beside each other, or one at an end.
    #[error(
        "the claim name {name:?} has an empty level: put one `/` between levels and none at the ends; to claim all of `file:`, name `file:`"
    )]
    EmptyLevel {
        /// The name.
        name: String,
    },
    /// A level that means another place than it names.
    #[error(
        "the claim name {name:?} has a level `.` or `..`: name the place itself, so that two ways to it are one name"
    )]
    Dots {
        /// The name.
        name: String,
    },
    /// A character that cannot be shown.
    #[error(
        "the claim name {name:?} has a control character: names are shown to people, so use printable text"
    )]
    Control {
        /// The name.
        name: String,
    },
    /// More than a waiting call may have.
    #[error(
        "a call may have {what} up to {max}; this one has {found}: claim something larger, such as a folder instead of its files"
    )]
    TooMuch {
        /// The kind of excess.
        what: &'static str,
        /// The found amount.
        found: u64,
        /// The maximum.
        max: u64,
    },
}

/// The prefix of the first level of names that hold across sessions.
const GLOBAL: &str = "global:";

impl Name {
    /// All names of the session but the global ones.
    pub const SESSION: Name = Name(None);

    /// Parses a name, and refuses one that could be a second name for something.
    pub fn parse(text: &str, limits: &CallLimits) -> Result<Name, BadClaim> {
        let name = || text.to_string();
        let within = |what, found: usize, max| match found as u64 {
            found if found > max => Err(BadClaim::TooMuch { what, found, max }),
            _ => Ok(()),
        };
        within("bytes in a claim name", text.len(), limits.claim_name_bytes_max)?;
        if text.chars().any(char::is_control) {
            return Err(BadClaim::Control { name: name() });
        }
        let mut levels = 0;
        for level in text.split('/') {
            levels += 1;
            match level {
                "" => return Err(BadClaim::EmptyLevel { name: name() }),
                "." | ".." => return Err(BadClaim::Dots { name: name() }),
                _ => {}
            }
        }
        within("levels in a claim name", levels, limits.claim_levels_max)?;
        Ok(Name(Some(text.into())))
    }

    /// Whether it holds across sessions.
    pub fn is_global(&self) -> bool {
        self.0.as_ref().is_some_and(|text| text.starts_with(GLOBAL))
    }

    /// Its levels from the top; the session has none.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|text| text.split('/'))
    }

    /// Whether `other` is this name or lies below it.
    pub fn covers(&self, other: &Name) -> bool {
        match (&self.0, &other.0) {
            (None, _) => !other.is_global(),
            (Some(_), None) => false,
            (Some(upper), Some(lower)) => {
                lower.strip_prefix(&**upper).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("the session"))
    }
}

impl Claim {
    /// Parses `read NAME` or `write NAME`; the word alone claims the session.
    pub fn parse(text: &str, limits: &CallLimits) -> Result<Claim, BadClaim> {
        let (mode, name) = split(text)?;
        let name = name.map_or(Ok(Name::SESSION), |name| Name::parse(name, limits))?;
        Ok(Claim { mode, name })
    }

    /// Whether the holder of this claim may do what `other` claims.
    pub fn covers(&self, other: &Claim) -> bool {
        (self.mode == Mode::Write || other.mode == Mode::Read) && self.name.covers(&other.name)
    }

    /// Whether two calls with these claims must run one after the other.
    pub fn conflicts(&self, other: &Claim) -> bool {
        (self.mode == Mode::Write || other.mode == Mode::Write)
            && (self.name.covers(&other.name) || other.name.covers(&self.name))
    }
}

/// The mode of a claim's text, and the name if there is one.
fn split(text: &str) -> Result<(Mode, Option<&str>), BadClaim> {
    let (word, name) = match text.split_once(' ') {
        Some((word, name)) => (word, Some(name)),
        None => (text, None),
    };
    match word {
        "read" => Ok((Mode::Read, name)),
        "write" => Ok((Mode::Write, name)),
        _ => Err(BadClaim::NoMode { text: text.to_string() }),
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.mode {
            Mode::Read => "read",
            Mode::Write => "write",
        };
        write!(f, "{mode} {}", self.name)
    }
}

impl Claims {
    /// The claims of a call that collides with nothing.
    pub const NONE: Claims = Claims(ClaimList::Fixed(&[]));

    /// The claims of a call that declares none.
    pub fn of(class: EffectClass) -> Claims {
        const READS: &[Claim] = &[Claim { mode: Mode::Read, name: Name::SESSION }];
        const WRITES: &[Claim] = &[Claim { mode: Mode::Write, name: Name::SESSION }];
        match class {
            EffectClass::Read => Claims(ClaimList::Fixed(READS)),
            EffectClass::Keyed | EffectClass::Stepped | EffectClass::Once => Claims(ClaimList::Fixed(WRITES)),
        }
    }

    /// Whether they are the defaults of a class, since the tool declares none.
    pub fn are_default(&self) -> bool {
        matches!(self.0, ClaimList::Fixed(claims) if !claims.is_empty())
    }

    /// These claims, without those that another one covers.
    pub fn new(mut claims: Vec<Claim>, limits: &CallLimits) -> Result<Claims, BadClaim> {
        let found = claims.len() as u64;
        if found > limits.claims_max {
            return Err(BadClaim::TooMuch { what: "claims", found, max: limits.claims_max });
        }
        // The widest first, so that each is compared only with those that may cover it.
        claims.sort_by(|left, right| {
            let width = |claim: &Claim| claim.name.levels().count();
            (width(left), right.mode, &left.name).cmp(&(width(right), left.mode, &right.name))
        });
        let mut kept: Vec<Claim> = Vec::with_capacity(claims.len());
        for claim in claims {
            if !kept.iter().any(|wider| wider.covers(&claim)) {
                kept.push(claim);
            }
        }
        Ok(Claims(ClaimList::Own(kept.into())))
    }

    /// Parses a declared list.
    pub fn parse<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        limits: &CallLimits,
    ) -> Result<Claims, BadClaim> {
        let claims: Result<_, _> = texts.into_iter().map(|text| Claim::parse(text, limits)).collect();
        Claims::new(claims?, limits)
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Claim> {
        self.0.slice().iter()
    }

    /// All of them.
    pub fn slice(&self) -> &[Claim] {
        self.0.slice()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.slice().is_empty()
    }

    /// The first of `inner` that is not covered by these: a nested call must not claim it.
    pub fn uncovered<'a>(&self, inner: &'a Claims) -> Option<&'a Claim> {
        inner.iter().find(|claim| !self.iter().any(|outer| outer.covers(claim)))
    }

    /// Whether calls with these claims must run one after the other.
    pub fn conflict(&self, other: &Claims) -> bool {
        self.iter().any(|mine| other.iter().any(|theirs| mine.conflicts(theirs)))
    }
}

impl ClaimList {
    fn slice(&self) -> &[Claim] {
        match self {
            ClaimList::Fixed(claims) => claims,
            ClaimList::Own(claims) => claims,
        }
    }
}

impl PartialEq for ClaimList {
    fn eq(&self, other: &ClaimList) -> bool {
        self.slice() == other.slice()
    }
}

impl Eq for ClaimList {}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|claim| claim.to_string())).finish()
    }
}
