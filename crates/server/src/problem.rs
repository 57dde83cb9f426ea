//! What went wrong, as RFC 9457 has it: `application/problem+json` with a `code` of a closed list.

use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::core::json;
use windlass::store::StoreError;
use windlass::{AskError, BatchError, ChildError, Lost, chain};

/// A request that was not answered, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize, Serialize, JsonSchema)]
#[error("{detail}")]
pub struct Problem {
    /// `about:blank`: the status says what kind it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the status is called.
    pub title: String,
    /// The status.
    pub status: u16,
    /// What is wrong, where, and what to do.
    pub detail: String,
    /// Which of ours; listed in `docs/server.md`.
    pub code: String,
    /// When to come back, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// Every code a problem can have, with its status. `docs/server.md` has a line for each.
pub const CODES: [(&str, u16); 40] = [
    ("bad_path", 400),
    ("bad_query", 400),
    ("bad_body", 400),
    ("bad_batch", 400),
    ("invalid_json", 400),
    ("duplicate_key", 400),
    ("too_deep", 400),
    ("inexact_number", 400),
    ("no_token", 401),
    ("wrong_token", 401),
    ("missing_scope", 403),
    ("host_not_allowed", 403),
    ("origin_not_allowed", 403),
    ("not_found", 404),
    ("method_not_allowed", 405),
    ("unfit", 409),
    ("conflict", 409),
    ("session_closed", 409),
    ("over", 410),
    ("too_large", 413),
    ("no_such_range", 416),
    ("invalid_args", 422),
    ("empty_batch", 422),
    ("invalid_session", 422),
    ("too_many_children", 422),
    ("invalid_token", 422),
    ("too_many_tokens", 422),
    ("invalid_pair", 422),
    ("too_many_pairs", 422),
    ("invalid_file", 422),
    ("invalid_schedule", 422),
    ("too_many_schedules", 422),
    ("invalid_trigger", 422),
    ("too_many_triggers", 422),
    ("too_many_requests", 429),
    ("no_such_signal", 422),
    ("too_many_signals", 429),
    ("overloaded", 503),
    ("draining", 503),
    ("internal", 500),
];

impl Problem {
    /// A problem of this code, which decides its status.
    pub fn new(code: &str, detail: impl Into<String>) -> Problem {
        let status = CODES.iter().find(|(known, _)| *known == code).map_or(500, |(_, status)| *status);
        let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        Problem {
            kind: "about:blank".to_string(),
            title: title.unwrap_or_default().to_string(),
            status,
            detail: detail.into(),
            code: code.to_string(),
            retry_after_ms: None,
        }
    }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Problem {
        let told = error.to_string();
        match error {
            AskError::NotFound { .. } | AskError::NoKey | AskError::NoQuestion => {
                Problem::new("not_found", told)
            }
            AskError::Unfit { .. } => Problem::new("unfit", told),
            AskError::Conflict | AskError::Answered | AskError::KeyUsed => Problem::new("conflict", told),
            AskError::NoSignal { .. } => Problem::new("no_such_signal", told),
            AskError::TooManySignals { .. } => Problem::new("too_many_signals", told),
            AskError::Over { .. } => Problem::new("over", told),
            AskError::Invalid { .. } => Problem::new("invalid_args", told),
            AskError::Batch(BatchError::Shape { .. }) => Problem::new("bad_query", told),
            AskError::Batch(error) => Problem::from(error),
        }
    }
}

/// Why a batch was not taken.
impl From<BatchError> for Problem {
    fn from(error: BatchError) -> Problem {
        let told = error.to_string();
        match error {
            BatchError::Shape { .. } => Problem::new("bad_batch", told),
            BatchError::Closed { .. } => Problem::new("over", told),
            BatchError::SessionClosed { .. } => Problem::new("session_closed", told),
            BatchError::Overloaded { retry_after_ms, .. } => {
                Problem { retry_after_ms: Some(retry_after_ms), ..Problem::new("overloaded", told) }
            }
            BatchError::Owned { .. } | BatchError::Lost(Lost::Removed) => Problem::new("conflict", told),
            error @ (BatchError::Unreadable { .. } | BatchError::Lost(_)) => {
                Problem::new("internal", chain(&error))
            }
        }
    }
}

/// Why a child session was not opened.
impl From<ChildError> for Problem {
    fn from(error: ChildError) -> Problem {
        let told = error.to_string();
        match error {
            ChildError::Conflict { .. } => Problem::new("conflict", told),
            ChildError::Closed { .. } => Problem::new("session_closed", told),
            ChildError::NoSuchTool { .. } | ChildError::TooManyTools { .. } => {
                Problem::new("invalid_session", told)
            }
            ChildError::TooMany { .. } | ChildError::TooDeep { .. } => {
                Problem::new("too_many_children", told)
            }
            ChildError::Batch(BatchError::Shape { .. }) => Problem::new("invalid_session", told),
            ChildError::Batch(error) => Problem::from(error),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        Problem::from(BatchError::from(error))
    }
}

impl From<json::Problem> for Problem {
    fn from(problem: json::Problem) -> Problem {
        Problem::new(problem.code.as_str(), problem.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response();
        if let Some(after) = self.retry_after_ms {
            response.headers_mut().insert(RETRY_AFTER, after.div_ceil(1_000).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_explained() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (code, status) in CODES {
            assert!(
                page.contains(&format!("| `{code}` | {status} |")),
                "docs/server.md has no line for {code}"
            );
        }
    }

    #[test]
    fn what_the_json_reader_says_has_a_code_here() {
        let refuse = |text: &str| {
            let problem = json::parse(text, &windlass::core::limits::Limits::default()).unwrap_err();
            Problem::from(problem).status
        };
        for text in ["{", r#"{"a": 1, "a": 2}"#, &"[".repeat(70), "1e400"] {
            assert_eq!(refuse(text), 400, "{text}");
        }
        assert_eq!(refuse(&format!("\"{}\"", "x".repeat(2 << 20))), 413);
    }

    #[test]
    fn an_overload_says_when_to_come_back() {
        let overloaded = BatchError::Overloaded { open: 2, max: 1, retry_after_ms: 1_500 };
        let response = Problem::from(AskError::from(overloaded)).into_response();
        assert_eq!((response.status().as_u16(), &response.headers()[RETRY_AFTER]), (503, &2.into()));
    }
}
