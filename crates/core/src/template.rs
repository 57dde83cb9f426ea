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

/// A text taken apart. What stands in braces and could not be a property's name is literal text.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find('{') {
        let (before, braced) = rest.split_at(at);
        literal.push_str(before);
        let named = braced[1..].split_once('}').filter(|(name, _)| is_property(name));
        match named {
            Some((name, after)) => {
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                }
                parts.push(Part::Property(name.to_string()));
                rest = after;
            }
            None => {
                literal.push('{');
                rest = &braced[1..];
            }
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Text(literal));
    }
    parts
}

fn is_property(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}
