//! Requests about everything that waits for a person.

use super::{ANSWER_WAIT, Client, ClientError, encoded, paged, query};
use crate::wire::approvals::{DecisionBody, DecisionReceipt, WaitingQuery};
use crate::wire::{AnswerBody, CompletionReceipt, Paging, QuestionQuery};
use axum::body::Bytes;
use hyper::Method;
use serde_json::Value;
use windlass::inspect::WaitingKind;

impl Client {
    /// A page of what waits for a person.
    pub async fn waiting(&self, list: &WaitingQuery) -> Result<Value, ClientError> {
        let WaitingQuery { session, kind, limit, after } = list;
        let fields = [
            ("session", session.clone()),
            ("kind", kind.map(|kind| WaitingKind::from(kind).to_string())),
            ("limit", limit.map(|limit| limit.to_string())),
            ("after", after.clone()),
        ];
        self.get(format!("/v1/waiting?{}", query(fields))).await
    }

    /// Approves or denies a call.
    pub async fn decide(&self, id: &str, decision: &DecisionBody) -> Result<DecisionReceipt, ClientError> {
        self.post(format!("/v1/approvals/{}", encoded(id)), decision, ANSWER_WAIT).await
    }

    /// A page of the approvals that a session gives again by itself.
    pub async fn remembered(&self, session: &str, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/sessions/{}/remembered?{}", encoded(session), paged(paging))).await
    }

    /// Forgets one of them.
    pub async fn forget_remembered(&self, session: &str, id: &str) -> Result<Value, ClientError> {
        let path = format!("/v1/sessions/{}/remembered/{}", encoded(session), encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }

    /// A page of open questions.
    pub async fn questions(&self, list: &QuestionQuery) -> Result<Value, ClientError> {
        let QuestionQuery { session, limit, after } = list;
        let fields = [
            ("session", session.clone()),
            ("limit", limit.map(|limit| limit.to_string())),
            ("after", after.clone()),
        ];
        self.get(format!("/v1/questions?{}", query(fields))).await
    }

    /// Answers a question.
    pub async fn answer(&self, id: &str, answer: Value) -> Result<CompletionReceipt, ClientError> {
        self.post(format!("/v1/questions/{}", encoded(id)), &AnswerBody { answer }, ANSWER_WAIT).await
    }
}
