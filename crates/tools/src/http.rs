//! The tool that sends one HTTP request.
//!
//! Method, URL, headers and body are templates ([`RequestTemplate`]) of the arguments and of secrets. The idempotency key of the call is sent
//! as `Idempotency-Key`. A status of the 200s is a result: JSON if it parses, an image as an image, else text. 408, 429 and the
//! 500s mean that the server is unavailable, and its `Retry-After` is honoured; every other status is a failure. Where nobody knows
//! whether the server got the request, the class of the tool decides, as after a crash.

pub(crate) mod response;
mod template;

pub use template::{
    BodyTemplate, FillError, FilledRequest, RequestTemplate, SecretLookup, TextTemplate, WrittenRequest,
};

use response::{failed, output};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::error::FailureClass;
use windlass::secrets::SecretValue;
use windlass::tool::{BoundContent, BoundFuture, PrepareCx};
use windlass::{Cx, Output, Tool, ToolError, ToolFuture, ToolSpec};
use windlass_http::{HttpClient, HttpRequest, Method};

/// The header by which servers deduplicate.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An HTTP endpoint as a tool.
#[derive(Clone, Debug)]
pub struct HttpTool {
    /// Its declaration.
    pub spec: ToolSpec,
    /// Its request.
    pub request: RequestTemplate,
    /// The client that sends it, whose rules say which addresses may be connected to.
    pub client: HttpClient,
}

impl Tool for HttpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move { self.send(&args, cx).await })
    }

    /// The request as it is declared and as it would be sent, with `{secret:NAME}` for each secret.
    fn bound<'a>(&'a self, args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        let named = |name: &str| Some(format!("{{secret:{name}}}"));
        let filled = self.request.fill(args, &named).map_err(|error| unfilled(&error));
        Some(Box::pin(async move {
            let fixed = self.request.declared().into_bytes();
            Ok(BoundContent { fixed, of_args: filled?.canonical().into_bytes(), held: None })
        }))
    }
}

impl HttpTool {
    async fn send(&self, args: &Value, cx: &Cx) -> Result<Output, ToolError> {
        let request = self.filled(args, cx).await?;
        if cx.is_stopping() {
            return Err(ToolError::stopped().did_not_happen());
        }
        let answered = tokio::select! {
            answered = self.client.exchange(request) => answered,
            () = cx.stopping() => return Err(ToolError::stopped()),
        };
        match answered {
            Ok(response) => output(response, &self.spec, cx).await,
            Err(error) => Err(failed(&error)),
        }
    }

    /// The request for these arguments, with its secrets.
    async fn filled(&self, args: &Value, cx: &Cx) -> Result<HttpRequest, ToolError> {
        let mut secrets: BTreeMap<&str, SecretValue> = BTreeMap::new();
        for name in self.request.secrets() {
            secrets.insert(name, cx.secret(name).await?);
        }
        let value = |name: &str| secrets.get(name).map(|secret| secret.expose().to_string());
        let filled = self.request.fill(args, &value).map_err(|error| unfilled(&error))?;
        let FilledRequest { method, url, mut headers, body } = filled;
        headers.push((IDEMPOTENCY_KEY.to_string(), cx.idempotency_key()));
        if let Some(parent) = cx.traceparent() {
            headers.push(("traceparent".to_string(), parent.to_string()));
        }
        let is_read = matches!(method, Method::GET | Method::HEAD);
        let timeout = Some(cx.time_left());
        Ok(HttpRequest { method, url, headers, body, timeout, same_origin: !is_read })
    }
}

/// The request cannot be made: of these arguments, or of a secret as it is stored.
fn unfilled(error: &FillError) -> ToolError {
    match error {
        FillError::Secret { .. } => ToolError::internal(error.to_string()).did_not_happen(),
        FillError::Argument { .. } => {
            let class = FailureClass::InvalidRequest;
            ToolError { class, did_not_happen: true, ..ToolError::new(error.to_string()) }
        }
    }
}
