//! `x-mcp-header`: properties of a tool's arguments that are repeated as headers of the request, so that proxies can go by them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The field of a property's schema that names its header.
const ANNOTATION: &str = "x-mcp-header";
/// Before the name of the header.
pub(crate) const PREFIX: &str = "mcp-param-";
/// Annotated properties of one tool.
const HEADERS_MAX: usize = 32;

/// A property that is repeated as a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// The names of the properties that lead to it.
    path: Vec<String>,
    /// The name of the header, in lower case.
    pub(crate) header: String,
}

impl ParamHeader {
    /// The annotated properties of a schema; an error says why the annotations cannot be used.
    pub(crate) fn of_schema(schema: &Value) -> Result<Vec<ParamHeader>, String> {
        let mut found = Vec::new();
        collect(schema, &mut Vec::new(), &mut found)?;
        Ok(found)
    }

    /// The value of the header in these arguments; none where the property is absent or null.
    pub(crate) fn value(&self, args: &Value) -> Option<String> {
        let value = self.path.iter().try_fold(args, |value, name| value.get(name))?;
        match value {
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        }
    }

    /// Whether a header says the same as the arguments.
    pub(crate) fn agrees(&self, given: Option<&str>, args: &Value) -> bool {
        let given = given.map(decoded);
        match (given, self.value(args)) {
            (None, None) => true,
            (Some(Some(given)), Some(expected)) => {
                let is_number = |text: &str| text.parse::<f64>().ok();
                given == expected
                    || is_number(&given).is_some_and(|number| is_number(&expected) == Some(number))
            }
            (Some(_), _) | (None, Some(_)) => false,
        }
    }
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) -> Result<(), String> {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            let header = header_name(annotation, property).map_err(|why| format!("{name:?}: {why}"))?;
            if found.iter().any(|other| other.header == header) {
                return Err(format!("two properties have the {ANNOTATION} {header:?}"));
            }
            if found.len() >= HEADERS_MAX {
                return Err(format!("more than {HEADERS_MAX} properties have an {ANNOTATION}"));
            }
            found.push(ParamHeader { path: path.clone(), header });
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

/// The name of a property's header, in lower case.
fn header_name(annotation: &Value, property: &Value) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let name = annotation.as_str().filter(|name| !name.is_empty() && name.bytes().all(is_token));
    let name = name.ok_or_else(|| format!("its {ANNOTATION} is no name of a header"))?;
    match property["type"].as_str() {
        Some("string" | "integer" | "boolean") => Ok(name.to_ascii_lowercase()),
        _ => Err(format!("{ANNOTATION} is only for strings, integers and booleans")),
    }
}

/// A header's value, encoded where it has other characters than headers may have, or spaces that would be lost.
pub(crate) fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if is_plain { text.to_string() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

/// A header's value: plain, or `=?base64?…?=` where it has other characters. `None`: it is neither.
pub(crate) fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(property: Value) -> Value {
        json!({"type": "object", "properties": {"a": property}})
    }

    #[test]
    fn annotated_properties_become_headers() {
        let nested = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            "plain": {"type": "string"},
        }});
        let found = ParamHeader::of_schema(&nested).expect("they fit");
        let args = json!({"region": " grüß ", "deep": {"count": 7}, "plain": "x"});
        let headers: Vec<(&str, String)> = found
            .iter()
            .filter_map(|param| Some((param.header.as_str(), encoded(&param.value(&args)?))))
            .collect();
        let region = format!("=?base64?{}?=", STANDARD.encode(" grüß "));
        assert_eq!(headers, [("count", "7".to_string()), ("region", region.clone())]);
        let [count, named] = found.as_slice() else { panic!("two") };
        assert!(count.agrees(Some("7.0"), &args) && count.agrees(Some("7"), &args));
        assert!(named.agrees(Some(&region), &args));
        for wrong in [None, Some("8"), Some("=?base64?!?=")] {
            assert!(!count.agrees(wrong, &args), "{wrong:?}");
        }
        assert!(count.agrees(None, &json!({"deep": {"count": null}})) && count.agrees(None, &json!({})));
        assert!(!count.agrees(Some("7"), &json!({})), "a header without its argument");
    }

    #[test]
    fn annotations_that_cannot_be_headers_are_refused() {
        for name in ["", "a b", "a:b", "ü", "a\n"] {
            assert!(
                ParamHeader::of_schema(&schema(json!({"type": "string", "x-mcp-header": name}))).is_err(),
                "{name:?}"
            );
        }
        for kind in ["object", "array", "null", "number"] {
            assert!(
                ParamHeader::of_schema(&schema(json!({"type": kind, "x-mcp-header": "A"}))).is_err(),
                "{kind}"
            );
        }
        let twice = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "Same"}, "b": {"type": "string", "x-mcp-header": "same"}}});
        assert!(ParamHeader::of_schema(&twice).is_err());
    }

    #[test]
    fn values_survive_the_way_through_a_header() {
        for text in ["", "plain", "two words", " padded", "tab\t", "line\r\nline", "世界", "=?base64?eA==?="]
        {
            assert_eq!(decoded(&encoded(text)).as_deref(), Some(text));
        }
    }
}
