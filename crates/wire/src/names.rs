//! Tool names on wires that allow fewer names than Windlass does.

use crate::Wire;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest name that every documented version of the narrow wires accepts.
const NAME_CHARS_MAX: usize = 64;
/// The prefix of a name that may not begin as it does.
const PREFIX: &str = "_w_";
/// How many hexadecimal digits tell apart names that had to be shortened.
const DIGITS: usize = 12;

/// The name under which a tool is offered on a wire. Gemini wants a letter or an underscore first; all other wires take
/// every name that Windlass takes.
pub(crate) fn offered(wire: Wire, tool: &str) -> Cow<'_, str> {
    let first = tool.chars().next();
    let fits = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') && !tool.starts_with(PREFIX);
    if wire != Wire::Gemini || fits {
        return Cow::Borrowed(tool);
    }
    let prefixed = format!("{PREFIX}{tool}");
    if prefixed.len() <= NAME_CHARS_MAX {
        return Cow::Owned(prefixed);
    }
    let hash = blake3::hash(tool.as_bytes()).to_hex();
    let kept: String = prefixed.chars().take(NAME_CHARS_MAX - DIGITS - 1).collect();
    Cow::Owned(format!("{kept}_{}", &hash[..DIGITS]))
}

/// The tools that were offered on a wire, by the names they were offered under.
#[derive(Clone, Debug, Default)]
pub struct ToolNames {
    renamed: BTreeMap<String, String>,
}

impl ToolNames {
    /// The names of these tools on a wire.
    pub fn new<'a>(wire: Wire, tools: impl IntoIterator<Item = &'a str>) -> ToolNames {
        let renamed = tools.into_iter().filter_map(|tool| match offered(wire, tool) {
            Cow::Borrowed(_) => None,
            Cow::Owned(name) => Some((name, tool.to_owned())),
        });
        ToolNames { renamed: renamed.collect() }
    }

    /// The tool that a model means by a name.
    pub fn tool<'a>(&'a self, name: &'a str) -> &'a str {
        self.renamed.get(name).map_or(name, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fits(wire: Wire, name: &str) -> bool {
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        name.len() <= NAME_CHARS_MAX && (first || wire != Wire::Gemini)
    }

    proptest! {
        #[test]
        fn every_name_fits_its_wire_and_leads_back(tools in proptest::collection::btree_set("[a-zA-Z0-9_-]{1,64}|_w_[0-9-]{1,61}|[0-9-]{60,64}", 1..20)) {
            for wire in Wire::ALL {
                let names = ToolNames::new(wire, tools.iter().map(String::as_str));
                for tool in &tools {
                    let name = offered(wire, tool);
                    prop_assert!(fits(wire, &name), "{name}");
                    prop_assert_eq!(names.tool(&name), tool);
                }
            }
        }
    }
}
