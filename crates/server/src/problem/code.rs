//! The closed list of codes that a problem can carry. The status of an answer, the schema of the API, the exit code of a command and
//! the table in `docs/server.md` are made from it.
//!
//! These are not the codes of failed calls (`windlass::error::Code`): a failure is the recorded end of a call, its code is
//! part of the journal and is read by models, and it has no status; a problem answers a request of which nothing is recorded. Where a
//! request is refused for the reason that a call would fail for, both lists have the same word.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use windlass_core::code::Code;

/// Declares each code once: its text, its status and its meaning.
macro_rules! problem_codes {
    ($($name:ident = $text:literal, $status:literal, $meaning:literal;)+) => {
        /// The kind of a [`Problem`](crate::Problem), as one of a closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $(#[doc = $meaning] $name,)+
            /// A code that a newer server sent. No problem of this server has it.
            Unlisted,
        }

        impl ProblemCode {
            /// Every code that this server can send.
            pub const ALL: &'static [ProblemCode] = &[$(ProblemCode::$name),+];

            /// The code as it stands in an answer.
            pub fn as_str(self) -> &'static str {
                match self { $(ProblemCode::$name => $text,)+ ProblemCode::Unlisted => "unlisted" }
            }

            /// The HTTP status of a problem with this code.
            pub fn status(self) -> u16 {
                match self { $(ProblemCode::$name => $status,)+ ProblemCode::Unlisted => 500 }
            }

            /// The meaning of the code and the advice, for the docs.
            pub fn meaning(self) -> &'static str {
                match self { $(ProblemCode::$name => $meaning,)+ ProblemCode::Unlisted => "a code of a newer server" }
            }

            /// Reads what [`as_str`](Self::as_str) wrote.
            pub fn parse(text: &str) -> Option<ProblemCode> {
                match text { $($text => Some(ProblemCode::$name),)+ _ => None }
            }
        }
    };
}

problem_codes! {
    BadPath = "bad_path", 400, "a name in the path is not valid text";
    BadQuery = "bad_query", 400, "an unknown query parameter, or an invalid value";
    BadBody = "bad_body", 400, "not an object, an unknown field, not exactly one of the choices, or it did not arrive in time";
    BadBatch = "bad_batch", 400, "the batch is refused as a whole: too many calls, an invalid id or key, inputs that are not an object, provider data that cannot be read back";
    BadResponse = "bad_response", 400, "the body is not a response of the provider that `?wire=` names, or the stream of one ended too early";
    InvalidJson = "invalid_json", 400, "the body is not JSON";
    DuplicateKey = "duplicate_key", 400, "an object in the body has the same key twice";
    TooDeep = "too_deep", 400, "the body is nested too deeply";
    InexactNumber = "inexact_number", 400, "a number in the body would have to be rounded";
    NoToken = "no_token", 401, "send `Authorization: Bearer TOKEN`";
    WrongToken = "wrong_token", 401, "the token does not exist, has expired or was revoked";
    MissingScope = "missing_scope", 403, "the token lacks the scope that this needs";
    FourEyes = "four_eyes", 403, "the rule that asks wants the approval of another person than the caller";
    HostNotAllowed = "host_not_allowed", 403, "the `Host` of the request is not a name of this server";
    OriginNotAllowed = "origin_not_allowed", 403, "pages of this origin may not use the server";
    NotFound = "not_found", 404, "no such path, tool, call, session, batch, key, question, artifact, file or token; the same answer for one of another principal and for a forged one";
    MethodNotAllowed = "method_not_allowed", 405, "the path does not support this method";
    Unfit = "unfit", 409, "the state of the call does not allow this";
    Conflict = "conflict", 409, "the call was resolved, the wait answered or the session created before, with other values; another signal has this key";
    StaleDigest = "stale_digest", 409, "what would run is not what the approver was shown; look at the approval again";
    SessionClosed = "session_closed", 409, "the session is a [child](children.md) of a call that has ended, and takes nothing new";
    Over = "over", 410, "too late: the deadline has passed, the call has ended, or the batch is closed";
    Expired = "expired", 410, "the record of the call or batch was removed by [retention](retention.md); it was answered before, and is not run again";
    Gone = "gone", 410, "the session was deleted, or is being deleted; its name is not reused, so choose another";
    TooLarge = "too_large", 413, "the body is larger than `result_json_bytes_max`, one with calls than `batch_bytes_max`, a file than `file_bytes_max`, or it would take more than `json_memory_bytes_max`";
    NoSuchRange = "no_such_range", 416, "the artifact has no bytes in the range; `Content-Range` has its size";
    InvalidArgs = "invalid_args", 422, "the value cannot be kept as a result or does not match the question or the signal, an error lacks a code or message or has one that is too long, or the arguments do not match the tool of a schedule or a trigger";
    NoSuchTool = "no_such_tool", 422, "a schedule, a trigger or a check of the policy names a tool that the session does not have";
    NotBackground = "not_background", 422, "a schedule or a trigger names a tool without the flag `background`";
    ProviderFailed = "provider_failed", 422, "the tool of a schedule, a trigger or a check of the policy comes from a provider that cannot load it now";
    EmptyBatch = "empty_batch", 422, "the batch has no calls";
    NoResponseId = "no_response_id", 422, "the response has no id, so a repeated post could not be recognised; give a `turn` or a `key`";
    InvalidSession = "invalid_session", 422, "an invalid session name, a title or labels that are too long, or a child with tools that its parent does not have";
    TooManyChildren = "too_many_children", 422, "the parent has reached its limit of children, or the child would be nested too deeply";
    InvalidToken = "invalid_token", 422, "the token cannot be created with these values";
    TooManyTokens = "too_many_tokens", 422, "there are `tokens_max`; revoke one";
    ManifestChanged = "manifest_changed", 409, "the toolbox has another manifest by now; put yours again, or end the process if a newer one serves the toolbox";
    InvalidToolbox = "invalid_toolbox", 422, "the manifest is refused: a tool in it is invalid, or its name is too similar to that of another tool";
    TooManyToolboxes = "too_many_toolboxes", 422, "there are `toolboxes_max`; remove one";
    InvalidWebhook = "invalid_webhook", 422, "the webhook cannot be created with these values, or this process delivers no messages";
    TooManyWebhooks = "too_many_webhooks", 422, "there are `webhooks_max`; remove one";
    NoSuchSignal = "no_such_signal", 422, "the call's tool declares no signal of this name";
    InvalidPair = "invalid_pair", 422, "the key or the value of a pair is invalid";
    TooManyPairs = "too_many_pairs", 422, "the session has `pairs_max`; delete some";
    InvalidSecret = "invalid_secret", 422, "the name or the value of a secret is refused; the text says why";
    TooManySecrets = "too_many_secrets", 422, "there are `secrets_max`; remove some";
    NoSecretKey = "no_secret_key", 422, "the server has no key to encrypt secrets with, or cannot use it";
    InvalidSchedule = "invalid_schedule", 422, "a schedule has an invalid time, zone, title or size; the text says what would be right";
    TooManySchedules = "too_many_schedules", 422, "the session has reached its limit of schedules, or of enabled ones";
    InvalidTrigger = "invalid_trigger", 422, "a trigger has an invalid event kind, filter or event argument; the text says what would be right";
    TooManyTriggers = "too_many_triggers", 422, "the session has reached its limit of triggers";
    InvalidGrant = "invalid_grant", 422, "the terms of a grant are invalid, or a copy would be wider than its grant; the text says what would be right";
    TooManyGrants = "too_many_grants", 422, "the session has `grants_max` grants, or the grant `grant_copies_max` copies; the text says what to do";
    InvalidPolicy = "invalid_policy", 422, "a rule of the policy is invalid, or the policy is too large; the text names the place and what to write instead";
    InvalidFile = "invalid_file", 422, "the path is not valid for a session's file, it leads over a link, a folder has too many entries, or the host keeps no files";
    TooManyRequests = "too_many_requests", 429, "the token was used too often; `Retry-After` says when to come back";
    TooManySignals = "too_many_signals", 429, "the call has reached its limit of signals that it has not received; come back when it has";
    SessionElsewhere = "session_elsewhere", 503, "another worker owns the session and cannot be asked now; `Retry-After` says when to come back";
    SessionMoved = "session_moved", 503, "another worker took the session over while the request was under way, which may have been carried out; send it again after `Retry-After`, with its key if it has one";
    Overloaded = "overloaded", 503, "too many open calls, too many connections of this principal, or too many large bodies being read; `Retry-After` says when to come back";
    Draining = "draining", 503, "the server is stopping; its successor takes the batch";
    Unacknowledged = "unacknowledged", 503, "the change (of the policy, a grant, a token or a paused tool) is stored, but a worker has not confirmed that it uses it; send it again to wait for that";
    StoreUnavailable = "store_unavailable", 503, "the disk is full or fails, or the data folder was moved away; nothing new is accepted, running calls continue, and the server recovers once it can write (`Retry-After` says when to ask again)";
    Unreadable = "unreadable", 500, "a journal or a record of the session is damaged; other sessions are not affected. Restore the data folder from a backup. The [log](#the-log) has the place of the damage under the reference in the answer";
    Internal = "internal", 500, "the store is lost, or something else failed inside; everything acknowledged is safe. The cause is not shown: the [log](#the-log) has it under the reference in the answer";
}

impl ProblemCode {
    /// When a request with this problem should come back, if its code says that.
    pub(crate) fn retry_after_ms(self) -> Option<u64> {
        matches!(self, ProblemCode::SessionElsewhere | ProblemCode::SessionMoved).then_some(1_000)
    }

    /// Whether the cause is for operators only: the caller gets a fixed sentence, and the log has the cause.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(self, ProblemCode::Internal | ProblemCode::Unreadable)
    }
}

/// A request that is refused because the call it asks for would fail has the code of that failure. Failures that no request can have
/// are about the arguments.
impl From<Code> for ProblemCode {
    fn from(code: Code) -> ProblemCode {
        ProblemCode::parse(code.as_str()).unwrap_or(ProblemCode::InvalidArgs)
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ProblemCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ProblemCode {
    /// A client must understand a newer server: the status and the text of a problem say enough.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ProblemCode, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        Ok(ProblemCode::parse(&text).unwrap_or(ProblemCode::Unlisted))
    }
}

impl JsonSchema for ProblemCode {
    fn schema_name() -> Cow<'static, str> {
        "ProblemCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let codes: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
        json_schema!({
            "description": "The kind of a problem; docs/server.md explains each.",
            "type": "string",
            "enum": codes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the codes, as `docs/server.md` has it.
    fn table() -> String {
        let line = |code: &ProblemCode| format!("| `{code}` | {} | {} |\n", code.status(), code.meaning());
        ProblemCode::ALL.iter().map(line).collect()
    }

    #[test]
    fn the_table_in_the_docs_is_the_list_of_codes() {
        const HEAD: &str = "| code | status | meaning |\n|---|---:|---|\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find(HEAD).expect("the table of the codes") + HEAD.len();
        let end = start + page[start..].find("\n\n").expect("the table ends") + 1;
        if std::env::var_os("UPDATE").is_some() {
            let updated = format!("{}{}{}", &page[..start], table(), &page[end..]);
            std::fs::write(path, updated).unwrap();
            return;
        }
        let table = table();
        let (found, expected): (Vec<&str>, Vec<&str>) =
            (page[start..end].lines().collect(), table.lines().collect());
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(differs, None, "docs/server.md is out of date; run this test with UPDATE=1");
        assert_eq!(found.len(), expected.len(), "docs/server.md is out of date; run this test with UPDATE=1");
    }

    #[test]
    fn text_and_back() {
        for code in ProblemCode::ALL {
            assert_eq!(ProblemCode::parse(code.as_str()), Some(*code));
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(serde_json::from_str::<ProblemCode>(&json).unwrap(), *code);
        }
        assert_eq!(
            serde_json::from_str::<ProblemCode>("\"of a newer server\"").unwrap(),
            ProblemCode::Unlisted
        );
    }

    #[test]
    fn a_refused_call_has_the_code_that_it_would_have_failed_with() {
        let both =
            [Code::NoSuchTool, Code::NotBackground, Code::ProviderFailed, Code::InvalidArgs, Code::TooLarge];
        for code in both {
            assert_eq!(ProblemCode::from(code).as_str(), code.as_str());
        }
        assert_eq!(ProblemCode::from(Code::Poison), ProblemCode::InvalidArgs);
    }
}
