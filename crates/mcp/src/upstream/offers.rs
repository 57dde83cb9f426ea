//! Prompts, resources and templates of resources, as a server lists them beside its tools.
//!
//! No person accepts them: they are for clients that ask for them, and where they come from is said by their entry. What would break the list
//! of a client is left out and named.

use super::definition;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_tools::declared::McpForwards;

/// The longest name of a prompt.
const NAME_CHARS_MAX: usize = 128;
/// The longest address of a resource, and the longest template of one.
pub(super) const URI_BYTES_MAX: usize = 4_096;
/// Addresses that are ours: no server has resources there.
const OWN_SCHEME: &str = "windlass:";

/// A kind of entries that a server lists beside its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferKind {
    Prompts,
    Resources,
    Templates,
}

impl OfferKind {
    /// The kinds that an entry forwards.
    pub(super) fn forwarded(forwards: McpForwards) -> impl Iterator<Item = OfferKind> {
        let kinds = [OfferKind::Prompts, OfferKind::Resources, OfferKind::Templates];
        kinds.into_iter().filter(move |kind| match kind {
            OfferKind::Prompts => forwards.prompts,
            OfferKind::Resources | OfferKind::Templates => forwards.resources,
        })
    }

    /// The method that lists them.
    pub(super) fn method(self) -> &'static str {
        match self {
            OfferKind::Prompts => "prompts/list",
            OfferKind::Resources => "resources/list",
            OfferKind::Templates => "resources/templates/list",
        }
    }

    /// The field of a list that has them.
    pub(crate) fn field(self) -> &'static str {
        match self {
            OfferKind::Prompts => "prompts",
            OfferKind::Resources => "resources",
            OfferKind::Templates => "resourceTemplates",
        }
    }

    /// The capability of servers that have them.
    pub(super) fn capability(self) -> &'static str {
        match self {
            OfferKind::Prompts => "prompts",
            OfferKind::Resources | OfferKind::Templates => "resources",
        }
    }

    /// The field of an entry by which it is asked for.
    pub(crate) fn key(self) -> &'static str {
        match self {
            OfferKind::Prompts => "name",
            OfferKind::Resources => "uri",
            OfferKind::Templates => "uriTemplate",
        }
    }
}

/// The entries of a server, as it gave them, by the names or addresses that it gave them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerOffers {
    prompts: BTreeMap<String, Value>,
    resources: BTreeMap<String, Value>,
    templates: BTreeMap<String, Value>,
    /// Those that are left out, with the reason.
    pub(super) bad: Vec<(String, String)>,
    /// How many there were too many.
    pub(super) left_out: usize,
}

impl ServerOffers {
    pub(super) fn of(&self, kind: OfferKind) -> &BTreeMap<String, Value> {
        match kind {
            OfferKind::Prompts => &self.prompts,
            OfferKind::Resources => &self.resources,
            OfferKind::Templates => &self.templates,
        }
    }

    fn of_mut(&mut self, kind: OfferKind) -> &mut BTreeMap<String, Value> {
        match kind {
            OfferKind::Prompts => &mut self.prompts,
            OfferKind::Resources => &mut self.resources,
            OfferKind::Templates => &mut self.templates,
        }
    }

    /// Adds an entry. One that cannot be passed on hides no other.
    pub(super) fn add(&mut self, kind: OfferKind, entry: Value, bytes_max: usize) {
        let key = entry[kind.key()].as_str().unwrap_or_default().to_string();
        let twice = || self.of(kind).contains_key(&key).then(|| "there is another one like it".to_string());
        match problem(kind, &entry, &key, bytes_max).or_else(twice) {
            Some(problem) => self.bad.push((definition::escaped(&key), problem)),
            None => drop(self.of_mut(kind).insert(key, entry)),
        }
    }
}

/// Why an entry cannot be passed on: some clients refuse a whole list because of one that they cannot read.
fn problem(kind: OfferKind, entry: &Value, key: &str, bytes_max: usize) -> Option<String> {
    let of_key = match kind {
        OfferKind::Prompts if key.is_empty() || key.chars().count() > NAME_CHARS_MAX => {
            Some(format!("its name is not 1 to {NAME_CHARS_MAX} characters"))
        }
        OfferKind::Resources | OfferKind::Templates if !is_address(key) => {
            Some("its address is none, or too long".to_string())
        }
        OfferKind::Resources | OfferKind::Templates if key.starts_with(OWN_SCHEME) => {
            Some(format!("{OWN_SCHEME} addresses are those of Windlass"))
        }
        OfferKind::Prompts | OfferKind::Resources | OfferKind::Templates => None,
    };
    let of_fields = || {
        let fields = entry.as_object().into_iter().flatten();
        let mut odd = fields.filter(|(name, value)| !is_fit(name, value)).map(|(name, _)| name);
        odd.next().map(|name| format!("its `{name}` cannot be read"))
    };
    let nameless = || (!entry["name"].is_string()).then(|| "it has no name".to_string());
    definition::entry_problem(entry, bytes_max).or(of_key).or_else(of_fields).or_else(nameless)
}

/// Whether the field of an entry is what the protocol says; fields that nobody knows are.
fn is_fit(name: &str, value: &Value) -> bool {
    match name {
        "name" | "title" | "description" | "uri" | "uriTemplate" | "mimeType" => value.is_string(),
        "size" => value.is_number(),
        "annotations" | "_meta" => value.is_object(),
        "icons" => value.as_array().is_some_and(|icons| icons.iter().all(|icon| icon["src"].is_string())),
        "arguments" => value.as_array().is_some_and(|arguments| {
            let is_optional_text = |value: &Value| value.is_null() || value.is_string();
            arguments.iter().all(|argument| {
                argument["name"].is_string()
                    && is_optional_text(&argument["description"])
                    && is_optional_text(&argument["title"])
                    && argument.get("required").is_none_or(Value::is_boolean)
            })
        }),
        _ => true,
    }
}

/// Whether a text can be the address of a resource, or a template of such: one for any scheme would be for the addresses of others, too.
fn is_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_visible = !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control());
    is_scheme && is_visible && text.len() <= URI_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_bad_entry_hides_no_other() {
        let mut offers = ServerOffers::default();
        for entry in [
            json!({"name": "a", "x-vendor": {"kept": true}}),
            json!({"name": "a"}),
            json!({"name": ""}),
            json!({"title": "nameless"}),
            json!({"name": "b", "description": 7}),
            json!({"name": "c", "arguments": {"topic": "text"}}),
            json!({"name": "d", "arguments": [{"description": "nameless"}]}),
            json!({"name": "e", "title": "safe\u{202e}"}),
            json!({"name": "f", "description": "x".repeat(2_000)}),
            json!("no object"),
            json!({"name": "g", "arguments": [{"name": "topic", "required": true}]}),
        ] {
            offers.add(OfferKind::Prompts, entry, 1_000);
        }
        assert_eq!(offers.prompts.keys().collect::<Vec<_>>(), ["a", "g"]);
        assert_eq!(offers.prompts["a"]["x-vendor"]["kept"], true, "unknown fields stay");
        assert_eq!(offers.bad.len(), 9);
        let mut offers = ServerOffers::default();
        for uri in
            ["file:///a b", "no address", "1://x", "windlass://artifact/a", "test:", "test://a", "a+b:c"]
        {
            offers.add(OfferKind::Resources, json!({"uri": uri, "name": "x"}), 1_000);
        }
        offers.add(OfferKind::Resources, json!({"uri": "test://nameless"}), 1_000);
        assert_eq!(offers.resources.keys().collect::<Vec<_>>(), ["a+b:c", "test://a"]);
        assert_eq!(offers.bad.len(), 6);
    }
}
