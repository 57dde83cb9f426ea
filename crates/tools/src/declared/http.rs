//! The `http` table of a tool: one request.

use super::place::{ConfigError, DeclarationSource};
use super::{keys, tool::json};
use crate::http::{RequestTemplate, WrittenRequest};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};
use windlass::Limits;
use windlass_http::{HttpClient, HttpConfig, Method};

/// The request of a tool, checked.
pub(super) struct DeclaredRequest {
    pub(super) request: RequestTemplate,
    pub(super) client: HttpClient,
}

/// The table as written; its keys are checked before.
#[derive(Deserialize)]
struct HttpTable {
    #[serde(default)]
    method: Option<Spanned<String>>,
    url: Option<Spanned<String>>,
    #[serde(default)]
    headers: BTreeMap<String, Spanned<String>>,
    body: Option<Spanned<toml::Value>>,
    #[serde(default)]
    internal: bool,
}

/// The methods that a tool may use.
const METHODS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Headers that the request itself decides.
const RESERVED: [&str; 6] =
    ["connection", "content-length", "host", "idempotency-key", "traceparent", "transfer-encoding"];

/// Addresses of a tool that may reach everything.
const EVERYWHERE: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Parses the table of a tool's request.
pub(super) fn read(
    source: &DeclarationSource<'_>,
    value: Spanned<DeValue<'_>>,
    input: Option<&Value>,
    properties: &BTreeSet<String>,
    limits: &Limits,
) -> Result<DeclaredRequest, ConfigError> {
    let span = value.span();
    keys::check_http(source, source.table(&value, "http")?)?;
    let table =
        HttpTable::deserialize(ValueDeserializer::from(value)).map_err(|error| source.rejected(error))?;
    let Some(url) = table.url else {
        return Err(source.value_error(span, "`http` has no `url`; write url = \"https://…\""));
    };
    let method = method(source, table.method)?;
    let (method_is_read, url_span) = (matches!(method, Method::GET | Method::HEAD), url.span());
    let refused = |message: String| source.value_error(url_span.clone(), message);
    if !table.internal && !url.get_ref().starts_with("https://") {
        return Err(refused(
            "the url does not begin with https://; only a request with internal = true may use http://"
                .into(),
        ));
    }
    let body = table.body.map(|body| {
        let span = body.span();
        if method_is_read {
            return Err(
                source.value_error(span, "GET and HEAD have no body; remove it, or choose another method")
            );
        }
        json(body.into_inner()).map_err(|what| source.value_error(span, format!("a body cannot hold {what}")))
    });
    let mut headers = Vec::new();
    for (name, value) in table.headers {
        check_header(source, &name, &value)?;
        headers.push((name, value.into_inner()));
    }
    let written = WrittenRequest { method, url: url.into_inner(), headers, body: body.transpose()? };
    let request = RequestTemplate::new(&written, properties).map_err(refused)?;
    let required = input.and_then(|input| input.get("required")).and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|known| known == name));
    if let Some(name) = request.path_arguments().find(|name| !is_required(name)) {
        return Err(refused(format!(
            "`{{{name}}}` stands in the path of the url, so {name:?} must be among the required properties of `input`"
        )));
    }
    let client = client(table.internal, limits).map_err(|error| refused(windlass::error::chain(&error)))?;
    Ok(DeclaredRequest { request, client })
}

pub(super) fn client(internal: bool, limits: &Limits) -> Result<HttpClient, windlass_http::HttpError> {
    HttpClient::new(HttpConfig { body_bytes_max: limits.http_bytes_max, ..client_config(internal) })
}

/// The rules of a client: `internal` lets it connect to addresses that are not public, and without TLS.
pub(super) fn client_config(internal: bool) -> HttpConfig {
    let allowed = EVERYWHERE.iter().filter_map(|range| range.parse().ok()).filter(|_| internal).collect();
    HttpConfig { allowed, plain_http: internal, ..HttpConfig::default() }
}

fn method(source: &DeclarationSource<'_>, given: Option<Spanned<String>>) -> Result<Method, ConfigError> {
    let Some(given) = given else { return Ok(Method::GET) };
    let known = METHODS.into_iter().find(|method| method.as_str() == given.get_ref());
    known.ok_or_else(|| {
        let message =
            format!("unknown method {:?}; write GET, HEAD, POST, PUT, PATCH or DELETE", given.get_ref());
        source.value_error(given.span(), message)
    })
}

pub(super) fn check_header(
    source: &DeclarationSource<'_>,
    name: &str,
    value: &Spanned<String>,
) -> Result<(), ConfigError> {
    let is_token = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let problem = if !is_token {
        format!("{name:?} cannot be the name of a header; rename it")
    } else if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        format!("the header `{name}` is not yours to set: Windlass sends it; remove it")
    } else if value.get_ref().chars().any(char::is_control) {
        format!("the header `{name}` has a control character in it, which no header can carry")
    } else {
        return Ok(());
    };
    Err(source.value_error(value.span(), problem))
}
