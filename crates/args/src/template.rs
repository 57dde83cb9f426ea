//! Texts in which `{x}` stands for a property of the arguments: what claims and dedupe keys are declared with.

/// A piece of such a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it is.
    Text(String),
    /// The value of the property of this name.
    Property(String),
}

impl TemplatePart {
    /// A sample value, to check the rest.
    pub fn sample(&self) -> &str {
        match self {
            TemplatePart::Text(text) => text,
            TemplatePart::Property(_) => "x",
        }
    }
}

/// The properties that pieces take from the arguments.
pub fn properties<'a>(parts: impl Iterator<Item = &'a TemplatePart>) -> impl Iterator<Item = &'a str> {
    parts.filter_map(|part| match part {
        TemplatePart::Text(_) => None,
        TemplatePart::Property(name) => Some(name.as_str()),
    })
}

/// A piece of a text that is only read; literal text may come in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePiece<'a> {
    /// As it is.
    Text(&'a str),
    /// The value of the property of this name.
    Property(&'a str),
}

/// A text taken apart. What stands in braces and could not be a property's name is literal text.
pub fn pieces(text: &str) -> impl Iterator<Item = TemplatePiece<'_>> {
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
            return Some(TemplatePiece::Property(name));
        }
        // A brace that begins no property is text, as what follows it.
        let from = usize::from(braced.is_some());
        let until = rest[from..].find('{').map_or(rest.len(), |at| from + at);
        let (literal, after) = rest.split_at(until);
        rest = after;
        Some(TemplatePiece::Text(literal))
    })
}

/// The owned parts: each piece of literal text is one.
pub fn parts(text: &str) -> Vec<TemplatePart> {
    let mut parts = Vec::new();
    for piece in pieces(text) {
        match (piece, parts.last_mut()) {
            (TemplatePiece::Text(more), Some(TemplatePart::Text(text))) => text.push_str(more),
            (TemplatePiece::Text(text), _) => parts.push(TemplatePart::Text(text.to_string())),
            (TemplatePiece::Property(name), _) => parts.push(TemplatePart::Property(name.to_string())),
        }
    }
    parts
}

fn is_property(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}
