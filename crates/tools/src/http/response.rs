//! The meaning of a response, or of none.

use crate::command::BoundedOutput;
use std::time::SystemTime;
use windlass::error::{FailureClass, Retry, chain};
use windlass::outcome::Part;
use windlass::{Cx, Output, ToolError, ToolSpec};
use windlass_http::{FailedRequest, HttpError, HttpResponse};

/// The beginning of a refusal's body that the model reads.
const SAID_BYTES_MAX: usize = 4 << 10;

/// The result of a response, or the failure that its status means.
pub(super) async fn output(response: HttpResponse, spec: &ToolSpec, cx: &Cx) -> Result<Output, ToolError> {
    match response.status {
        200..=299 => {}
        _ => return Err(refused(&response, cx)),
    }
    let image = response.header("content-type").map(essence).filter(|kind| Part::is_image(kind));
    let image = image.map(str::to_string);
    let mut held = BoundedOutput::new(cx.limits().result_json_bytes_max as usize);
    let too_long = held.take(&response.body).map(std::borrow::Cow::into_owned);
    let media_type = image.clone().unwrap_or_else(|| held.media_type().to_string());
    let (value, bytes) = match (image, too_long) {
        (Some(_), _) => (serde_json::Value::Null, Some(response.body)),
        (None, Some(bytes)) => (serde_json::Value::Null, Some(bytes)),
        (None, None) if response.body.is_empty() => (serde_json::Value::Null, None),
        (None, None) => held.into_result(cx.limits()),
    };
    let Some(bytes) = bytes else { return Ok(value.into()) };
    // Its effect stands, even if its result cannot be stored.
    let stored = async {
        let mut kept = cx.keep();
        kept.write(&bytes).await?;
        kept.finish(&media_type).await
    };
    let kept = stored.await.map_err(|error| cut_off(error.into()))?;
    if media_type == crate::command::TEXT || spec.output_schema.is_some() {
        return Ok(Output { kept: Some(kept), ..Output::default() });
    }
    let part = match Part::is_image(&media_type) {
        true => Part::KeptImage { kept, media_type },
        false => Part::File { kept, media_type, name: "response".into() },
    };
    Ok(Output { parts: vec![part], ..Output::default() })
}

/// The media type without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// A status that is no success.
fn refused(response: &HttpResponse, cx: &Cx) -> ToolError {
    let status = response.status;
    let said = said(response, cx);
    let tool_code = Some(format!("status {status}"));
    match status {
        408 | 429 | 500..=599 => {
            let message = format!("The server is not available (status {status}).{said}");
            let error = ToolError { class: FailureClass::Unavailable, tool_code, ..ToolError::new(message) };
            match retry_after_ms(response) {
                Some(after_ms) => error.safe_to_retry_after(after_ms),
                None => error.safe_to_retry(),
            }
        }
        _ => {
            let message = format!("The server refused the request (status {status}).{said}");
            ToolError { tool_code, ..ToolError::new(message) }
        }
    }
}

/// The words of the server, if they are text.
fn said(response: &HttpResponse, cx: &Cx) -> String {
    // Before it is cut: a part of a secret would not be recognised.
    let body = cx.scrubber().scrub(&response.body).into_owned();
    match std::str::from_utf8(&body).map(str::trim) {
        Ok("") | Err(_) => String::new(),
        Ok(text) if text.len() > SAID_BYTES_MAX => {
            format!(" It said:\n{}…", &text[..text.floor_char_boundary(SAID_BYTES_MAX)])
        }
        Ok(text) => format!(" It said:\n{text}"),
    }
}

/// How long to wait by the server's own word, in milliseconds: seconds, or a date by the server's own clock.
fn retry_after_ms(response: &HttpResponse) -> Option<u64> {
    let given = response.header("retry-after")?.trim();
    if let Ok(seconds) = given.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let now = response.header("date").and_then(date).unwrap_or_else(SystemTime::now);
    let wait = date(given)?.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}

/// No whole response. A request that was certainly not sent had no effect; of any other nobody knows.
pub(super) fn failed(request: &FailedRequest) -> ToolError {
    let FailedRequest { error, was_sent } = request;
    let detail = Some(chain(error));
    if matches!(error, HttpError::Connect { .. }) && !was_sent {
        let message = "The server could not be reached. Nothing happened.";
        let class = FailureClass::Unavailable;
        return ToolError { class, detail, ..ToolError::new(message) }.did_not_happen();
    }
    if !was_sent {
        // A mistake in the declaration: the same again the next time.
        return ToolError { did_not_happen: true, retry: Retry::Never, ..ToolError::internal(chain(error)) };
    }
    let (class, message) = if matches!(error, HttpError::Timeout { .. }) {
        (FailureClass::Timeout, "The server did not answer in time.".to_string())
    } else if let HttpError::TooLarge { max } = error {
        (
            FailureClass::Execution,
            format!("The server answered with more than the {max} bytes that are taken."),
        )
    } else {
        (FailureClass::Unavailable, "The exchange with the server broke off.".to_string())
    };
    cut_off(ToolError { class, detail, ..ToolError::new(message) })
}

/// The error of a request that was sent, and whose effect is not known.
fn cut_off(error: ToolError) -> ToolError {
    ToolError { retry: Retry::Safe { after_ms: None }, aborted: true, ..error }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Duration;

    /// Stands in everything that no model may see.
    pub(crate) const HIDDEN: &str = "hidden.internal";

    /// One of each. Clippy (`wildcard_enum_match_arm`) refuses a new variant until it is listed here.
    pub(crate) fn errors() -> Vec<HttpError> {
        let cause = || -> Box<dyn std::error::Error + Send + Sync> { HIDDEN.into() };
        let host = || HIDDEN.to_string();
        let all = vec![
            HttpError::Url { url: host(), what: HIDDEN },
            HttpError::Header { name: host() },
            HttpError::Address { host: host() },
            HttpError::Redirects { max: 5 },
            HttpError::TooLarge { max: 8 },
            HttpError::Timeout { within: Duration::from_secs(1) },
            HttpError::Connect { host: host(), cause: cause() },
            HttpError::Broken { host: host(), cause: cause() },
            HttpError::Client { cause: cause() },
        ];
        for error in &all {
            match error {
                HttpError::Url { .. }
                | HttpError::Header { .. }
                | HttpError::Address { .. }
                | HttpError::Redirects { .. }
                | HttpError::TooLarge { .. }
                | HttpError::Timeout { .. }
                | HttpError::Connect { .. }
                | HttpError::Broken { .. }
                | HttpError::Client { .. } => {}
                other => panic!("{other:?} is not listed"),
            }
        }
        all
    }

    #[test]
    fn no_address_is_told_to_the_model() {
        for was_sent in [false, true] {
            for error in errors() {
                let told = failed(&FailedRequest { error, was_sent });
                // What is internal is replaced by one sentence; everything else is read as it is.
                let is_hidden = told.class == FailureClass::Internal || !told.message.contains(HIDDEN);
                assert!(is_hidden, "{told:?}");
                assert_eq!(told.did_not_happen, !was_sent, "{told:?}");
                assert_eq!(told.aborted, was_sent, "{told:?}");
            }
        }
    }
}
