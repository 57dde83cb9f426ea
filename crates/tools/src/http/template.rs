//! The request of an HTTP tool, with places for arguments and secrets.
//!
//! `{x}` is a place if `x` is a property of the input schema, `{secret:NAME}` a place for a secret; all other text is literal. In the
//! URL both are percent-encoded, so that an argument cannot leave its segment or its parameter; nothing may stand before the path. A header
//! cannot be ended by what stands in it. In a JSON body a text that is only `{x}` becomes the argument with its type. A parameter of
//! the query, a header and a field of the body with a place for a missing argument are left out.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use windlass_http::Method;

/// Everything that has a meaning in a URL, or is no ASCII.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The beginning of a place for a secret.
const SECRET: &str = "secret:";

/// A text with places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTemplate(Vec<RequestPiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequestPiece {
    Text(String),
    Argument(String),
    Secret(String),
}

/// A body with places.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyTemplate {
    /// Text.
    Text(TextTemplate),
    /// JSON, in whose texts places may stand.
    Json(Value),
}

/// A request with places.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestTemplate {
    method: Method,
    /// Scheme and host, in which there are no places.
    origin: String,
    path: TextTemplate,
    /// The parameters of the query.
    query: Vec<TextTemplate>,
    headers: Vec<(String, TextTemplate)>,
    body: Option<BodyTemplate>,
    properties: BTreeSet<String>,
}

/// The parts of a request as they are written.
#[derive(Clone, Debug)]
pub struct WrittenRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body: a text, or a value in whose texts places may stand.
    pub body: Option<Value>,
}

/// A request without places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why a request cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// An argument does not fit where it stands.
    #[error("the argument {name:?} cannot be sent: {what}")]
    Argument {
        /// Its name.
        name: String,
        /// The problem, and what to do.
        what: &'static str,
    },
    /// A secret does not fit where it stands.
    #[error("the secret {name:?} cannot be sent: {what}")]
    Secret {
        /// Its name.
        name: String,
        /// The problem.
        what: &'static str,
    },
}

/// Gives the value of a secret by its name.
pub type SecretLookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl TextTemplate {
    /// Takes a text apart; `properties` are the names of the arguments.
    pub fn new(text: &str, properties: &BTreeSet<String>) -> TextTemplate {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find('{') {
            let (before, from_brace) = rest.split_at(at);
            literal.push_str(before);
            let named = from_brace[1..].split_once('}').and_then(|(name, after)| {
                let secret = name.strip_prefix(SECRET).map(|name| RequestPiece::Secret(name.to_string()));
                let argument = || properties.contains(name).then(|| RequestPiece::Argument(name.to_string()));
                Some((secret.or_else(argument)?, after))
            });
            match named {
                Some((place, after)) => {
                    pieces.push(RequestPiece::Text(std::mem::take(&mut literal)));
                    pieces.push(place);
                    rest = after;
                }
                None => {
                    literal.push('{');
                    rest = &from_brace[1..];
                }
            }
        }
        literal.push_str(rest);
        pieces.push(RequestPiece::Text(literal));
        pieces.retain(|piece| *piece != RequestPiece::Text(String::new()));
        TextTemplate(pieces)
    }

    /// The names of the arguments in it.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            RequestPiece::Argument(name) => Some(name.as_str()),
            RequestPiece::Text(_) | RequestPiece::Secret(_) => None,
        })
    }

    fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            RequestPiece::Secret(name) => Some(name.as_str()),
            RequestPiece::Text(_) | RequestPiece::Argument(_) => None,
        })
    }

    /// The text with its places.
    fn declared(&self) -> Value {
        let piece = |piece: &RequestPiece| match piece {
            RequestPiece::Text(text) => Value::from(text.as_str()),
            RequestPiece::Argument(name) => json!({ "argument": name }),
            RequestPiece::Secret(name) => json!({ "secret": name }),
        };
        self.0.iter().map(piece).collect()
    }

    /// The only place, if it is nothing else.
    fn only_argument(&self) -> Option<&str> {
        match self.0.as_slice() {
            [RequestPiece::Argument(name)] => Some(name),
            _ => None,
        }
    }

    /// The text, or `None` if an argument in it is missing.
    fn fill(
        &self,
        args: &Value,
        secrets: &SecretLookup<'_>,
        add: impl Fn(&mut String, &str, &RequestPiece) -> Result<(), &'static str>,
    ) -> Result<Option<String>, FillError> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                RequestPiece::Text(text) => filled.push_str(text),
                RequestPiece::Argument(name) => {
                    let Some(value) = args.get(name).filter(|value| !value.is_null()) else {
                        return Ok(None);
                    };
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                    add(&mut filled, &text, piece)
                        .map_err(|what| FillError::Argument { name: name.clone(), what })?;
                }
                RequestPiece::Secret(name) => {
                    let secret = |what| FillError::Secret { name: name.clone(), what };
                    let text = secrets(name).ok_or_else(|| secret("it is not at hand"))?;
                    add(&mut filled, &text, piece).map_err(secret)?;
                }
            }
        }
        Ok(Some(filled))
    }
}

impl RequestTemplate {
    /// Takes a request apart. An error says what is wrong with it.
    pub fn new(written: &WrittenRequest, properties: &BTreeSet<String>) -> Result<RequestTemplate, String> {
        let WrittenRequest { method, url, headers, body } = written;
        let authority = url.find("://").map(|at| at + 3).ok_or("the url has no scheme; write https://…")?;
        let path_at = url[authority..].find(['/', '?', '#']).map_or(url.len(), |at| authority + at);
        let (origin, rest) = url.split_at(path_at);
        let text = |text: &str| TextTemplate::new(text, properties);
        if text(origin).0.len() != 1 || origin.contains(['{', '}', '@']) || origin.len() == authority {
            return Err("scheme and host of the url are fixed: {…} stands in its path or query only, and credentials in a header".into());
        }
        if rest.contains('#') {
            return Err("the url has a fragment (#…), which no server is sent; remove it".into());
        }
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = query.split('&').filter(|parameter| !parameter.is_empty()).map(text).collect();
        let body = body.as_ref().map(|body| match body.as_str() {
            Some(written) => BodyTemplate::Text(text(written)),
            None => BodyTemplate::Json(body.clone()),
        });
        Ok(RequestTemplate {
            method: method.clone(),
            origin: origin.to_string(),
            path: text(path),
            query,
            headers: headers.iter().map(|(name, value)| (name.clone(), header(value, properties))).collect(),
            body,
            properties: properties.clone(),
        })
    }

    /// The names of the arguments in the path: each must be there.
    pub fn path_arguments(&self) -> impl Iterator<Item = &str> {
        self.path.arguments()
    }

    /// The names of the secrets that it needs, each once.
    pub fn secrets(&self) -> Vec<&str> {
        let texts =
            [&self.path].into_iter().chain(&self.query).chain(self.headers.iter().map(|(_, value)| value));
        let mut names: Vec<&str> = texts.flat_map(TextTemplate::secrets).collect();
        match &self.body {
            Some(BodyTemplate::Text(text)) => names.extend(text.secrets()),
            Some(BodyTemplate::Json(value)) => secrets_in(value, &mut names),
            None => {}
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The request with its places, as one text.
    pub(super) fn declared(&self) -> String {
        let texts =
            |texts: &[TextTemplate]| -> Vec<Value> { texts.iter().map(TextTemplate::declared).collect() };
        let headers: Vec<Value> =
            self.headers.iter().map(|(name, value)| json!([name, value.declared()])).collect();
        let body = match &self.body {
            Some(BodyTemplate::Text(text)) => json!({ "text": text.declared() }),
            Some(BodyTemplate::Json(value)) => json!({ "json": value }),
            None => Value::Null,
        };
        json!({
            "method": self.method.as_str(),
            "origin": self.origin,
            "path": self.path.declared(),
            "query": texts(&self.query),
            "headers": headers,
            "body": body,
            "properties": self.properties,
        })
        .to_string()
    }

    /// The request for these arguments.
    pub fn fill(&self, args: &Value, secrets: &SecretLookup<'_>) -> Result<FilledRequest, FillError> {
        let mut headers = Vec::new();
        for (name, value) in &self.headers {
            if let Some(value) = value.fill(args, secrets, in_header)? {
                headers.push((name.clone(), value));
            }
        }
        let body = match &self.body {
            None => Vec::new(),
            Some(BodyTemplate::Text(text)) => {
                text.fill(args, secrets, in_text)?.unwrap_or_default().into_bytes()
            }
            Some(BodyTemplate::Json(value)) => {
                let filled = self.value(value, args, secrets)?.unwrap_or(Value::Null);
                filled.to_string().into_bytes()
            }
        };
        let content_type = match &self.body {
            Some(BodyTemplate::Json(_)) => Some("application/json"),
            Some(BodyTemplate::Text(_)) => Some("text/plain; charset=utf-8"),
            None => None,
        };
        if let Some(content_type) = content_type
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        {
            headers.push(("content-type".to_string(), content_type.to_string()));
        }
        Ok(FilledRequest { method: self.method.clone(), url: self.url(args, secrets)?, headers, body })
    }

    fn url(&self, args: &Value, secrets: &SecretLookup<'_>) -> Result<String, FillError> {
        let missing = |name: &str| FillError::Argument {
            name: name.to_string(),
            what: "it stands in the path of the URL, so it must be given",
        };
        let path = self.path.fill(args, secrets, in_path)?;
        let path = path.ok_or_else(|| missing(self.path.arguments().next().unwrap_or_default()))?;
        if let Some(name) = self.path.arguments().next()
            && path.split('/').any(|segment| matches!(segment, "." | ".."))
        {
            return Err(FillError::Argument {
                name: name.to_string(),
                what: "it would lead to another path; give a name",
            });
        }
        let mut url = format!("{}{path}", self.origin);
        let mut between = '?';
        for parameter in &self.query {
            if let Some(parameter) = parameter.fill(args, secrets, in_query)? {
                url.push(between);
                url.push_str(&parameter);
                between = '&';
            }
        }
        Ok(url)
    }

    /// A value with its places filled, or `None` if an argument in it is missing.
    fn value(
        &self,
        value: &Value,
        args: &Value,
        secrets: &SecretLookup<'_>,
    ) -> Result<Option<Value>, FillError> {
        Ok(match value {
            Value::String(text) => {
                let text = TextTemplate::new(text, &self.properties);
                match text.only_argument() {
                    Some(name) => args.get(name).cloned(),
                    None => text.fill(args, secrets, in_text)?.map(Value::String),
                }
            }
            Value::Array(items) => {
                let mut filled = Vec::new();
                for item in items {
                    filled.extend(self.value(item, args, secrets)?);
                }
                Some(Value::Array(filled))
            }
            Value::Object(fields) => {
                let mut filled = Map::new();
                for (name, field) in fields {
                    if let Some(field) = self.value(field, args, secrets)? {
                        filled.insert(name.clone(), field);
                    }
                }
                Some(Value::Object(filled))
            }
            plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Some(plain.clone()),
        })
    }
}

impl FilledRequest {
    /// The request as one text, the same for the same request.
    pub fn canonical(&self) -> String {
        let mut headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            .collect();
        headers.sort();
        let body = String::from_utf8_lossy(&self.body);
        format!("{} {}\n{}\n\n{body}", self.method, self.url, headers.join("\n"))
    }
}

/// The value of a header: a template, or `secret:NAME` as in an environment.
fn header(value: &str, properties: &BTreeSet<String>) -> TextTemplate {
    match value.strip_prefix(SECRET) {
        Some(name) => TextTemplate(vec![RequestPiece::Secret(name.to_string())]),
        None => TextTemplate::new(value, properties),
    }
}

fn secrets_in<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => {
            let mut rest = text.as_str();
            while let Some(at) = rest.find("{secret:") {
                let from = &rest[at + 1 + SECRET.len()..];
                let Some((name, after)) = from.split_once('}') else { return };
                names.push(name);
                rest = after;
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secrets_in(item, names)),
        Value::Object(fields) => fields.values().for_each(|field| secrets_in(field, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn in_text(filled: &mut String, text: &str, _: &RequestPiece) -> Result<(), &'static str> {
    filled.push_str(text);
    Ok(())
}

fn in_path(filled: &mut String, text: &str, _: &RequestPiece) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it stands in the path of the URL and is empty; give a name");
    }
    filled.extend(utf8_percent_encode(text, ENCODED));
    Ok(())
}

fn in_query(filled: &mut String, text: &str, _: &RequestPiece) -> Result<(), &'static str> {
    filled.extend(utf8_percent_encode(text, ENCODED));
    Ok(())
}

fn in_header(filled: &mut String, text: &str, _: &RequestPiece) -> Result<(), &'static str> {
    if text.chars().any(char::is_control) {
        return Err("it stands in a header and has line breaks or other control characters; leave them out");
    }
    filled.push_str(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(url: &str, headers: &[(&str, &str)], body: Option<Value>) -> Result<RequestTemplate, String> {
        let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let written = WrittenRequest { method: Method::POST, url: url.to_string(), headers, body };
        RequestTemplate::new(&written, &["a", "b", "list"].map(str::to_string).into())
    }

    fn url(url: &str, args: Value) -> Result<String, String> {
        let filled = template(url, &[], None)?.fill(&args, &|name| Some(format!("<{name}>")));
        filled.map(|filled| filled.url).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_stay_in_their_place_of_the_url() {
        for (text, args, expected) in [
            (
                "https://h/x/{a}/y",
                json!({ "a": "1/2?q#f %&é" }),
                "https://h/x/1%2F2%3Fq%23f%20%25%26%C3%A9/y",
            ),
            ("https://h/x?q={a}&r={b}&s=1", json!({ "a": "x&y=z" }), "https://h/x?q=x%26y%3Dz&s=1"),
            ("https://h?q={a}", json!({ "a": [1, "x"] }), "https://h?q=%5B1%2C%22x%22%5D"),
            ("https://h/{c}/{secret:k}", json!({}), "https://h/{c}/%3Ck%3E"),
            ("https://h/v{a}.{b}", json!({ "a": ".", "b": "" , }), "must"),
        ] {
            match url(text, args) {
                Ok(filled) => assert_eq!(filled, expected),
                Err(error) => assert!(expected == "must" && error.contains("is empty"), "{text}: {error}"),
            }
        }
        for (args, word) in [
            (json!({ "a": ".." }), "another path"),
            (json!({}), "must be given"),
            (json!({ "a": "" }), "empty"),
        ] {
            let refused = url("https://h/{a}/x", args).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
        for bad in [
            "https://{a}/x",
            "{a}://h/x",
            "https://h{a}/x",
            "https://u:p@h/x",
            "h/x",
            "https:///x",
            "https://h/x#{a}",
        ] {
            assert!(template(bad, &[], None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_header_cannot_be_ended_by_what_stands_in_it() {
        let template =
            template("https://h", &[("X-A", "v {a}"), ("X-B", "{b}"), ("Auth", "secret:k")], None).unwrap();
        let fill = |args: Value| template.fill(&args, &|_| Some("s3cret".to_string()));
        let headers = fill(json!({ "a": "1" })).unwrap().headers;
        assert_eq!(
            headers,
            [("X-A".to_string(), "v 1".to_string()), ("Auth".to_string(), "s3cret".to_string())]
        );
        for bad in ["x\r\nX-Evil: 1", "x\nY: 1", "x\0"] {
            assert!(matches!(fill(json!({ "a": bad })), Err(FillError::Argument { .. })), "{bad:?}");
        }
        let refused = template.fill(&json!({ "a": "1" }), &|_| Some("a\nb".to_string()));
        assert!(matches!(refused, Err(FillError::Secret { .. })));
    }

    #[test]
    fn values_keep_their_types_in_a_json_body() {
        let body = json!({ "n": "{a}", "text": "is {a} {c}", "gone": "{b}", "list": ["{list}", "{b}", 1], "key": "{secret:k}" });
        let template = template("https://h", &[], Some(body)).unwrap();
        assert_eq!(template.secrets(), ["k"]);
        let args = json!({ "a": 5, "list": [true, { "x": "\"}" }] });
        let filled = template.fill(&args, &|name| Some(format!("<{name}>"))).unwrap();
        let sent: Value = serde_json::from_slice(&filled.body).unwrap();
        assert_eq!(
            sent,
            json!({ "n": 5, "text": "is 5 {c}", "list": [[true, { "x": "\"}" }], 1], "key": "<k>" })
        );
        assert_eq!(filled.headers, [("content-type".to_string(), "application/json".to_string())]);
        assert!(filled.canonical().starts_with("POST https://h\ncontent-type: application/json\n\n{"));
    }
}
