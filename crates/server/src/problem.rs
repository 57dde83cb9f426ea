//! Problems, as RFC 9457 defines them: `application/problem+json` with a `code` of a closed list.

mod code;

pub use code::ProblemCode;

use crate::workers::NotHere;
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use windlass::BatchError;
use windlass::batch::fresh_key;
use windlass::error::{
    AskError, ChildError, GrantError, Lost, SessionError, ToolboxError, WebhookError, chain,
};
use windlass::store::{Refused, StoreError};
use windlass_args::json;
use windlass_core::code::Code;
use windlass_core::failure::Failure;

/// A request that was not answered, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize, Serialize, JsonSchema)]
#[error("{detail}")]
pub struct Problem {
    /// `about:blank`: the status says what kind it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the status.
    pub title: String,
    /// The status.
    pub status: u16,
    /// The mistake, its place, and what to do.
    pub detail: String,
    /// The kind of the problem.
    pub code: ProblemCode,
    /// When to come back, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem of this code, which decides its status. One that is `internal` or `unreadable` shows a fixed sentence with a
    /// reference, under which the log has `detail`: causes are for operators.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Problem {
        let status = code.status();
        let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        Problem {
            kind: "about:blank".to_string(),
            title: title.unwrap_or_default().to_string(),
            status,
            detail: shown(code, detail.into()),
            code,
            retry_after_ms: None,
        }
    }

    /// Another worker owns the session, and cannot be asked now.
    pub(crate) fn elsewhere() -> Problem {
        let told = "another worker has the session, and did not answer; send the request again, with its key if it has one: a worker \
                    that is gone is replaced when its lease runs out";
        Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::SessionElsewhere, told) }
    }

    /// Another worker has the session by now, and the request may have been carried out.
    pub(crate) fn moved() -> Problem {
        Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::SessionMoved, MOVED) }
    }

    /// The store cannot write now. Why is said to operators: everybody may ask whether the server is ready.
    pub(crate) fn store_unavailable() -> Problem {
        let told = "the store cannot write now, so nothing is taken; what runs goes on, and the server will too once the \
                    store can write; its log says why";
        Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::StoreUnavailable, told) }
    }
}

/// The text for a request that met the change of its session's owner.
const MOVED: &str = "another worker took the session over while the request was under way, and goes on with what was recorded; send \
                     the request again, with its key if it has one";

/// The text that the caller reads. Of a failure inside it says only where the log has it.
fn shown(code: ProblemCode, detail: String) -> String {
    if !code.is_hidden() {
        return detail;
    }
    let what = match code == ProblemCode::Unreadable {
        true => "The records of this session are damaged, and other sessions are not affected",
        false => "An internal error occurred",
    };
    let reference: String = fresh_key().unwrap_or_default().chars().take(REFERENCE_CHARS).collect();
    tracing::error!(reference, detail, "a request failed inside");
    format!("{what}; the operator finds it under reference {reference}. What was acknowledged is safe.")
}

/// As much of a random key as tells errors apart.
const REFERENCE_CHARS: usize = 16;

impl Problem {
    /// The call that a schedule or a trigger is to make would be refused, with the code that the call would have.
    pub fn refused(failure: &Failure) -> Problem {
        Problem::new(failure.code.into(), failure.message.clone())
    }
}

/// The code of an error of the library, which decides the status of an answer and the exit code of a command.
impl From<&AskError> for ProblemCode {
    fn from(error: &AskError) -> ProblemCode {
        match error {
            AskError::NotFound { .. } | AskError::NoKey | AskError::NoQuestion => ProblemCode::NotFound,
            AskError::NoApproval => ProblemCode::NotFound,
            AskError::StaleDigest { .. } => ProblemCode::StaleDigest,
            AskError::FourEyes { .. } => ProblemCode::FourEyes,
            AskError::Unfit { .. } => ProblemCode::Unfit,
            AskError::Conflict | AskError::Answered | AskError::KeyUsed => ProblemCode::Conflict,
            AskError::NoSignal { .. } => ProblemCode::NoSuchSignal,
            AskError::TooManySignals { .. } => ProblemCode::TooManySignals,
            AskError::Over { .. } => ProblemCode::Over,
            AskError::Invalid { .. } => ProblemCode::InvalidArgs,
            AskError::LongReason { .. } => ProblemCode::BadBody,
            AskError::FilesLeft { .. } => ProblemCode::Internal,
            AskError::Shape { .. } | AskError::Session(SessionError::Shape { .. }) => ProblemCode::BadQuery,
            AskError::Session(error) => error.into(),
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        }
    }
}

impl From<&BatchError> for ProblemCode {
    fn from(error: &BatchError) -> ProblemCode {
        match error {
            BatchError::Shape { .. } => ProblemCode::BadBatch,
            BatchError::Closed { .. } => ProblemCode::Over,
            BatchError::Overloaded { .. } => ProblemCode::Overloaded,
            BatchError::Stalled { .. } => ProblemCode::StoreUnavailable,
            BatchError::Session(SessionError::Shape { .. }) => ProblemCode::BadBatch,
            BatchError::Session(error) => error.into(),
            _ => ProblemCode::Internal,
        }
    }
}

impl From<&SessionError> for ProblemCode {
    fn from(error: &SessionError) -> ProblemCode {
        match error {
            // Names of sessions stand in the path.
            SessionError::Shape { .. } => ProblemCode::BadPath,
            SessionError::NotFound { .. } => ProblemCode::NotFound,
            SessionError::Closed { .. } => ProblemCode::SessionClosed,
            SessionError::Owned { .. } => ProblemCode::SessionElsewhere,
            SessionError::Expired { .. } => ProblemCode::Expired,
            SessionError::Gone { .. } => ProblemCode::Gone,
            SessionError::Unreadable { .. } => ProblemCode::Unreadable,
            SessionError::Lost(lost) => lost.into(),
            _ => ProblemCode::Internal,
        }
    }
}

impl From<&Lost> for ProblemCode {
    fn from(lost: &Lost) -> ProblemCode {
        match lost {
            Lost::Removed | Lost::Refused(Refused::Gone) => ProblemCode::Gone,
            // Somebody else has opened it first: nothing of this request was recorded.
            Lost::Refused(Refused::Exists) => ProblemCode::SessionElsewhere,
            Lost::Refused(Refused::Fenced { .. }) | Lost::Lease => ProblemCode::SessionMoved,
            Lost::Store(_) | Lost::Refused(_) | Lost::Broken(_) => ProblemCode::Internal,
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        }
    }
}

/// The text of an error for a problem of this code: causes are for the log.
fn told(code: ProblemCode, error: &dyn std::error::Error) -> String {
    if code == ProblemCode::SessionMoved {
        return MOVED.to_string();
    }
    if code.is_hidden() { chain(error) } else { error.to_string() }
}

impl From<AskError> for Problem {
    fn from(error: AskError) -> Problem {
        let code = ProblemCode::from(&error);
        Problem::new(code, told(code, &error))
    }
}

impl From<BatchError> for Problem {
    fn from(error: BatchError) -> Problem {
        let code = ProblemCode::from(&error);
        if code == ProblemCode::StoreUnavailable {
            return Problem::store_unavailable();
        }
        let mut problem = Problem::new(code, told(code, &error));
        if let BatchError::Overloaded { retry_after_ms, .. } = error {
            problem.retry_after_ms = Some(retry_after_ms);
        }
        problem
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Problem {
        let code = ProblemCode::from(&error);
        Problem::new(code, told(code, &error))
    }
}

/// Why a child session was not opened.
impl From<ChildError> for Problem {
    fn from(error: ChildError) -> Problem {
        let code = match &error {
            ChildError::Conflict { .. } => ProblemCode::Conflict,
            ChildError::Closed { .. } => ProblemCode::SessionClosed,
            ChildError::NoSuchTool { .. } | ChildError::TooManyTools { .. } => ProblemCode::InvalidSession,
            ChildError::TooMany { .. } | ChildError::TooDeep { .. } => ProblemCode::TooManyChildren,
            ChildError::Session(SessionError::Shape { .. }) => ProblemCode::InvalidSession,
            ChildError::Session(error) => error.into(),
            _ => ProblemCode::Internal,
        };
        Problem::new(code, told(code, &error))
    }
}

impl From<WebhookError> for Problem {
    fn from(error: WebhookError) -> Problem {
        let code = match &error {
            WebhookError::NotFound { .. } => ProblemCode::NotFound,
            WebhookError::TooMany { .. } => ProblemCode::TooManyWebhooks,
            WebhookError::Invalid { .. }
            | WebhookError::NoTransport
            | WebhookError::Session(SessionError::Shape { .. }) => ProblemCode::InvalidWebhook,
            WebhookError::Session(error) => error.into(),
            WebhookError::Secret(error) => return Problem::from(error.clone()),
            _ => ProblemCode::Internal,
        };
        Problem::new(code, told(code, &error))
    }
}

impl From<GrantError> for Problem {
    fn from(error: GrantError) -> Problem {
        let code = match &error {
            GrantError::NotFound { .. } => ProblemCode::NotFound,
            GrantError::Over { .. } => ProblemCode::Over,
            GrantError::Full { .. } | GrantError::TooManyCopies { .. } => ProblemCode::TooManyGrants,
            GrantError::Terms(_)
            | GrantError::NoChild { .. }
            | GrantError::Differs
            | GrantError::TooLarge { .. } => ProblemCode::InvalidGrant,
            GrantError::Unacknowledged { .. } => ProblemCode::Unacknowledged,
            GrantError::Session(error) => error.into(),
            _ => ProblemCode::Internal,
        };
        Problem::new(code, told(code, &error))
    }
}

/// How soon the next owner of a session drives its calls.
const UNHEARD_MS: u64 = 1_000;

impl From<ToolboxError> for Problem {
    fn from(error: ToolboxError) -> Problem {
        let code = match &error {
            ToolboxError::NotFound { .. } => ProblemCode::NotFound,
            ToolboxError::Changed { .. } => ProblemCode::ManifestChanged,
            ToolboxError::TooMany { .. } => ProblemCode::TooManyToolboxes,
            ToolboxError::AttemptOver => ProblemCode::Over,
            ToolboxError::Unheard => {
                return Problem { retry_after_ms: Some(UNHEARD_MS), ..Problem::store_unavailable() };
            }
            ToolboxError::Invalid { .. } | ToolboxError::Refused(_) => ProblemCode::InvalidToolbox,
            ToolboxError::Session(error) => error.into(),
            _ => ProblemCode::Internal,
        };
        Problem::new(code, told(code, &error))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        Problem::from(SessionError::from(error))
    }
}

impl From<json::JsonProblem> for Problem {
    fn from(problem: json::JsonProblem) -> Problem {
        Problem::new(Code::from(problem.code).into(), problem.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).unwrap_or_default();
        let mut response = (status, [(CONTENT_TYPE, "application/problem+json")], body).into_response();
        if matches!(self.code, ProblemCode::SessionElsewhere | ProblemCode::Draining) {
            response.extensions_mut().insert(NotHere);
        }
        if let Some(after) = self.retry_after_ms.or(self.code.retry_after_ms()) {
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
    use std::sync::Arc;
    use windlass_core::ids::Fence;

    #[test]
    fn what_the_json_reader_says_has_a_code_here() {
        let refuse = |text: &str| {
            let problem = json::parse(text, &windlass::Limits::default().args()).unwrap_err();
            Problem::from(problem).status
        };
        for text in ["{", r#"{"a": 1, "a": 2}"#, &"[".repeat(70), "1e400"] {
            assert_eq!(refuse(text), 400, "{text}");
        }
        assert_eq!(refuse(&format!("\"{}\"", "x".repeat(2 << 20))), 413);
    }

    /// Makes a problem, and returns it with the log of that.
    fn logged(make: impl FnOnce() -> Problem) -> (Problem, String) {
        let log = tempfile::NamedTempFile::new().unwrap();
        let file = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().json().with_writer(file).finish();
        let problem = tracing::subscriber::with_default(subscriber, make);
        (problem, std::fs::read_to_string(log.path()).unwrap())
    }

    #[test]
    fn an_internal_problem_shows_no_cause_and_the_log_has_all_of_them_under_its_reference() {
        let cause = || std::io::Error::other("disk /dev/secret gave EIO");
        let failed = || StoreError::Io { doing: "write", source: Box::new(cause()) };
        let lost = "the store is lost to this runtime; what was acknowledged is safe, open it anew";
        let cases = [
            (logged(|| failed().into()), format!("{lost}: the store could not write: {}", cause())),
            (logged(|| AskError::from(SessionError::from(failed())).into()), cause().to_string()),
            (logged(|| ChildError::from(SessionError::from(failed())).into()), cause().to_string()),
            (
                logged(|| SessionError::Lost(Lost::Refused(Refused::TooLarge)).into()),
                Refused::TooLarge.to_string(),
            ),
            (
                logged(|| Problem::new(ProblemCode::Internal, "/dev/secret is full")),
                "/dev/secret is full".to_string(),
            ),
        ];
        for ((problem, log), expected) in cases {
            assert_eq!((problem.status, problem.code), (500, ProblemCode::Internal));
            assert!(problem.detail.starts_with("An internal error occurred"), "{problem}");
            assert!(!problem.detail.contains("secret"), "{problem}");
            let line: serde_json::Value = serde_json::from_str(&log).unwrap();
            let fields = &line["fields"];
            let reference = fields["reference"].as_str().unwrap();
            assert!(problem.detail.contains(&format!("reference {reference}.")), "{problem} {log}");
            assert!(fields["detail"].as_str().unwrap().ends_with(&expected), "{expected}: {log}");
        }
    }

    #[test]
    fn whoever_meets_a_change_of_owners_may_come_again() {
        let lost = |lost: Lost| Problem::from(BatchError::from(SessionError::Lost(lost)));
        for problem in [lost(Lost::Lease), lost(Lost::Refused(Refused::Fenced { now: Fence(7) }))] {
            assert_eq!((problem.status, problem.code), (503, ProblemCode::SessionMoved));
            let response = problem.into_response();
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            assert!(response.extensions().get::<NotHere>().is_none(), "it may have been carried out");
        }
        // Somebody else was faster to open it, and nothing was done.
        let problem = lost(Lost::Refused(Refused::Exists));
        assert_eq!((problem.status, problem.code), (503, ProblemCode::SessionElsewhere));
        assert!(problem.into_response().extensions().get::<NotHere>().is_some());
    }

    #[test]
    fn damage_malformed_requests_and_missing_sessions_are_told_apart() {
        let damaged = || SessionError::unreadable("entry 7 of /dev/secret");
        let missing = || SessionError::NotFound { session: "s".to_string() };
        let malformed = || windlass::sessions::check_session_name("no name").unwrap_err();
        let seen = |problem: Problem| (problem.status, problem.code.as_str());
        for problem in
            [damaged().into(), AskError::from(damaged()).into(), BatchError::from(damaged()).into()]
        {
            assert_eq!(seen(problem), (500, "unreadable"));
        }
        for problem in
            [missing().into(), AskError::from(missing()).into(), BatchError::from(missing()).into()]
        {
            assert_eq!(seen(problem), (404, "not_found"));
        }
        assert_eq!(seen(malformed().into()), (400, "bad_path"));
        assert_eq!(seen(AskError::from(malformed()).into()), (400, "bad_query"));
        assert_eq!(seen(BatchError::from(malformed()).into()), (400, "bad_batch"));
        let (problem, log) = logged(|| damaged().into());
        assert!(problem.detail.starts_with("The records of this session are damaged"), "{problem}");
        assert!(
            !problem.detail.contains("secret") && log.contains("entry 7 of /dev/secret"),
            "{problem} {log}"
        );
    }

    #[test]
    fn an_overload_says_when_to_come_back() {
        let overloaded = BatchError::Overloaded { of: "wait", open: 2, max: 1, retry_after_ms: 1_500 };
        let response = Problem::from(overloaded).into_response();
        assert_eq!((response.status().as_u16(), &response.headers()[RETRY_AFTER]), (503, &2.into()));
    }
}
