//! Exports spans of calls to a nearby OpenTelemetry collector: OTLP as JSON over HTTP.
//!
//! Calls never wait for it: spans have a queue of their own, and spans that the collector does not take are
//! dropped and counted as `windlass_spans_lost_total`.

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use windlass::Runtime;
use windlass::trace::{AttemptSpan, CallSpan, TraceParent, TraceSpan};
use windlass_core::time::Timestamp;

/// The capacity of the queue.
const SPANS_MAX: usize = 8_192;
/// The maximum number of spans in one request.
const REQUEST_SPANS: usize = 512;
/// The minimum time between requests: spans that end together are sent together.
const SEND_EVERY: Duration = Duration::from_millis(500);
/// A collector that takes longer has stopped.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long shutdown waits for the last spans.
const END_WAIT: Duration = Duration::from_secs(2);

/// Sends spans until it is ended.
pub struct Exporter {
    end: oneshot::Sender<()>,
    sending: JoinHandle<()>,
}

/// A failure to start the exporter.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The address is invalid.
    #[error("{endpoint:?} is not the address of a collector; use one like \"http://127.0.0.1:4318\"")]
    Address {
        /// The address as given.
        endpoint: String,
    },
    /// Another exporter has the spans.
    #[error("another exporter already has the spans of this runtime")]
    Taken,
}

/// The address of the collector.
#[derive(Clone)]
struct Collector {
    authority: String,
    path: String,
}

impl Exporter {
    /// Sends the spans of all calls that end from now on; with arguments and results only if `contents`.
    pub fn start(runtime: &Runtime, endpoint: &str, contents: bool) -> Result<Exporter, ExportError> {
        let collector = collector(endpoint)?;
        let spans = runtime.spans(SPANS_MAX, contents).ok_or(ExportError::Taken)?;
        let (end, ending) = oneshot::channel();
        Ok(Exporter { end, sending: tokio::spawn(send_all(collector, spans, ending)) })
    }

    /// Sends pending spans, if the collector takes them in time.
    pub async fn end(self) {
        let _ = self.end.send(());
        let _ = tokio::time::timeout(END_WAIT, self.sending).await;
    }
}

fn collector(endpoint: &str) -> Result<Collector, ExportError> {
    let wrong = || ExportError::Address { endpoint: endpoint.to_string() };
    let uri: Uri = endpoint.parse().map_err(|_| wrong())?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(wrong)?;
    let port = authority.port_u16().unwrap_or(80);
    let path = match uri.path() {
        "" | "/" => "/v1/traces",
        path => path,
    };
    Ok(Collector { authority: format!("{}:{port}", authority.host()), path: path.to_string() })
}

async fn send_all(
    collector: Collector,
    mut spans: mpsc::Receiver<TraceSpan>,
    mut ending: oneshot::Receiver<()>,
) {
    let mut is_ending = false;
    loop {
        let mut taken = Vec::new();
        if is_ending {
            while let Ok(span) = spans.try_recv() {
                taken.push(span);
            }
        } else {
            tokio::select! {
                count = spans.recv_many(&mut taken, REQUEST_SPANS) => is_ending = count == 0,
                _ = &mut ending => {
                    is_ending = true;
                    continue;
                }
            }
        }
        for part in taken.chunks(REQUEST_SPANS) {
            if let Err(error) = send(&collector, part).await {
                tracing::warn!(%error, collector = ?collector.authority, spans = part.len(), "spans were not taken");
            }
        }
        if is_ending {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(SEND_EVERY) => {}
            _ = &mut ending => is_ending = true,
        }
    }
}

type ExportFailure = Box<dyn std::error::Error + Send + Sync>;

async fn send(collector: &Collector, spans: &[TraceSpan]) -> Result<(), ExportFailure> {
    let body = serde_json::to_vec(&request(spans))?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(&collector.path)
        .header("host", &collector.authority)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let answered = async {
        let stream = TcpStream::connect(&collector.authority).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status();
        // Read to the end, so that the collector is not cut off.
        let _ = http_body_util::Limited::new(response.into_body(), 64 << 10).collect().await;
        Ok::<_, ExportFailure>(status)
    };
    let status = tokio::time::timeout(ANSWER_WAIT, answered).await??;
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}").into()) }
}

/// `ExportTraceServiceRequest`, in its JSON mapping.
fn request(spans: &[TraceSpan]) -> Value {
    let spans: Vec<Value> = spans.iter().map(shown).collect();
    let scope = json!({"name": "windlass", "version": env!("CARGO_PKG_VERSION")});
    json!({"resourceSpans": [{
        "resource": {"attributes": [attribute("service.name", "windlass")]},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]})
}

fn shown(span: &TraceSpan) -> Value {
    match span {
        TraceSpan::Call(span) => call(span),
        TraceSpan::Attempt(span) => attempt(span),
    }
}

fn attempt(span: &AttemptSpan) -> Value {
    let mut attributes = vec![
        json!({"key": "windlass.attempt", "value": {"intValue": span.attempt.0.to_string()}}),
        attribute("windlass.attempt.end", span.end),
    ];
    attributes.extend(span.code.map(|code| attribute("error.type", code)));
    json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": span_id(span.span),
        "parentSpanId": span_id(span.parent),
        "name": format!("attempt {}", span.attempt.0),
        "kind": INTERNAL,
        "startTimeUnixNano": nanos(span.started_at),
        "endTimeUnixNano": nanos(span.ended_at),
        "attributes": attributes,
        "status": {"code": if span.code.is_some() { ERROR } else { OK }},
    })
}

fn call(span: &CallSpan) -> Value {
    let mut attributes = vec![
        attribute("gen_ai.operation.name", "execute_tool"),
        attribute("gen_ai.tool.name", &span.tool),
        attribute("gen_ai.tool.call.id", &span.id),
        attribute("gen_ai.conversation.id", &span.session),
        attribute("windlass.call", &span.call.to_string()),
        attribute("windlass.batch", &span.batch),
        attribute("windlass.state", span.state),
        json!({"key": "windlass.attempts", "value": {"intValue": span.attempts.to_string()}}),
    ];
    let error = (span.state != "succeeded").then(|| span.code.unwrap_or(span.state));
    attributes.extend(error.map(|error| attribute("error.type", error)));
    if let Some((args, result)) = &span.contents {
        attributes.push(attribute("gen_ai.tool.call.arguments", args));
        attributes.extend(result.as_deref().map(|result| attribute("gen_ai.tool.call.result", result)));
    }
    let mut shown = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": span_id(span.span),
        "name": format!("execute_tool {}", span.tool),
        "kind": INTERNAL,
        "startTimeUnixNano": nanos(span.opened_at),
        "endTimeUnixNano": nanos(span.ended_at),
        "attributes": attributes,
        "status": {"code": if error.is_some() { ERROR } else { OK }},
    });
    if let Some(parent) = span.parent {
        shown["parentSpanId"] = span_id(parent).into();
    }
    let links = span.link.iter().map(|starter| link(starter, "started_by"));
    let links: Vec<Value> = links.chain(span.tasks.iter().map(|task| link(task, "started"))).collect();
    if !links.is_empty() {
        shown["links"] = links.into();
    }
    shown
}

fn link(to: &TraceParent, relation: &str) -> Value {
    json!({
        "traceId": format!("{:032x}", to.trace),
        "spanId": span_id(to.span),
        "attributes": [attribute("windlass.link", relation)],
    })
}

/// `SPAN_KIND_INTERNAL`
const INTERNAL: u32 = 1;
/// `STATUS_CODE_OK`
const OK: u32 = 1;
/// `STATUS_CODE_ERROR`
const ERROR: u32 = 2;

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn span_id(span: u64) -> String {
    format!("{span:016x}")
}

fn nanos(at: Timestamp) -> String {
    at.0.saturating_mul(1_000).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_before_anything_is_sent() {
        for (endpoint, found) in [
            ("http://127.0.0.1:4318", Some(("127.0.0.1:4318", "/v1/traces"))),
            ("http://collector/custom", Some(("collector:80", "/custom"))),
            ("https://collector:4318", None),
            ("127.0.0.1:4318", None),
            ("", None),
        ] {
            let parsed = collector(endpoint).ok();
            let parsed = parsed.as_ref().map(|parsed| (parsed.authority.as_str(), parsed.path.as_str()));
            assert_eq!(parsed, found, "{endpoint}");
        }
    }
}
