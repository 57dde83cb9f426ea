//! Requests about webhooks.

use super::{ANSWER_WAIT, Client, ClientError, encoded, paged};
use crate::wire::webhooks::{WebhookBody, WebhookEdit};
use crate::wire::{Nothing, Paging};
use axum::body::Bytes;
use hyper::Method;
use serde_json::Value;

impl Client {
    /// A page of webhooks.
    pub async fn webhooks(&self, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/webhooks?{}", paged(paging))).await
    }

    /// Creates a webhook.
    pub async fn make_webhook(&self, wanted: &WebhookBody) -> Result<Value, ClientError> {
        self.post("/v1/webhooks".to_string(), wanted, ANSWER_WAIT).await
    }

    /// Enables or disables a webhook.
    pub async fn edit_webhook(&self, id: &str, edit: &WebhookEdit) -> Result<Value, ClientError> {
        self.send(Method::PATCH, webhook(id), edit, ANSWER_WAIT).await
    }

    /// Removes a webhook.
    pub async fn remove_webhook(&self, id: &str) -> Result<Value, ClientError> {
        self.ask(self.request(Method::DELETE, webhook(id), Bytes::new()), ANSWER_WAIT).await
    }

    /// Sends a test message to a webhook.
    pub async fn test_webhook(&self, id: &str) -> Result<Value, ClientError> {
        self.post(format!("{}/test", webhook(id)), &Nothing {}, ANSWER_WAIT).await
    }
}

fn webhook(id: &str) -> String {
    format!("/v1/webhooks/{}", encoded(id))
}
