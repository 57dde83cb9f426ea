//! Texts in which `{x}` stands for a property of the arguments: what claims and dedupe keys are declared with.

/// A piece of such a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// As it is.
    Text(String),
    /// What the property of this name is.
    Property(String),
}

impl Part {
    /// What it could be, to see whether the rest is right.
    pub(crate) fn sample(&self) -> &str {
        match self {
            Part::Text(text) => text,
            Part::Property(_) => "x",
        }
    }
}

/// The properties that pieces take from the arguments.
pub(crate) fn properties<'a>(parts: impl Iterator<Item = &'a Part>) -> impl Iterator<Item = &'a str> {
    parts.filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Property(name) => Some(name.as_str()),
    })
}

/// A piece of a text that is only read; literal text may come in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// As it is.
    Text(&'a str),
    /// What the property of this name is.
    Property(&'a str),
}

/// A text taken apart. What stands in braces and could not be a property's name is literal text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let braced = rest.strip_prefix('{');
        if let Some((name, after)) =
            braced.and_then(|braced| braced.split_once('}')).filter(|(name, _)| is_property(name))
        {
            rest = after;
            return Some(Piece::Property(name));
        }
        // A brace that begins no property is text, as what follows it.
        let from = usize::from(braced.is_some());
        let until = rest[from..].find('{').map_or(rest.len(), |at| from + at);
        let (literal, after) = rest.split_at(until);
        rest = after;
        Some(Piece::Text(literal))
    })
}

/// The same to be kept: each piece of literal text is one.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in pieces(text) {
        match (piece, parts.last_mut()) {
            (Piece::Text(more), Some(Part::Text(text))) => text.push_str(more),
            (Piece::Text(text), _) => parts.push(Part::Text(text.to_string())),
            (Piece::Property(name), _) => parts.push(Part::Property(name.to_string())),
        }
    }
    parts
}

fn is_property(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}
