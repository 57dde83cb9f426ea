//! Requests about toolboxes.

use super::{ANSWER_WAIT, Client, ClientError, encoded, paged};
use crate::wire::Paging;
use axum::body::Bytes;
use hyper::Method;
use serde_json::Value;

impl Client {
    /// A page of toolboxes.
    pub async fn toolboxes(&self, paging: &Paging) -> Result<Value, ClientError> {
        self.get(format!("/v1/toolboxes?{}", paged(paging))).await
    }

    /// Removes a toolbox.
    pub async fn remove_toolbox(&self, name: &str) -> Result<Value, ClientError> {
        let path = format!("/v1/toolboxes/{}", encoded(name));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }
}
