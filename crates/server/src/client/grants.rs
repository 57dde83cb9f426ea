//! Requests about grants.

use super::{ANSWER_WAIT, Client, ClientError, encoded};
use crate::wire::grants::{AttenuateBody, GrantBody, GrantQuery, GrantView, NewGrantView};
use crate::wire::shown::PageView;
use axum::body::Bytes;
use hyper::Method;
use serde_json::Value;

impl Client {
    /// A page of grants.
    pub async fn grants(&self, list: &GrantQuery) -> Result<PageView<GrantView>, ClientError> {
        let mut query = format!("limit={}", list.limit.unwrap_or(crate::wire::LIMIT));
        for (name, value) in [("session", &list.session), ("after", &list.after)] {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        self.get(format!("/v1/grants?{query}")).await
    }

    /// Issues a grant.
    pub async fn issue_grant(&self, wanted: &GrantBody) -> Result<NewGrantView, ClientError> {
        self.post("/v1/grants".to_string(), wanted, ANSWER_WAIT).await
    }

    /// Makes a narrower copy of a grant.
    pub async fn attenuate_grant(
        &self,
        id: &str,
        wanted: &AttenuateBody,
    ) -> Result<NewGrantView, ClientError> {
        self.post(format!("/v1/grants/{}/attenuate", encoded(id)), wanted, ANSWER_WAIT).await
    }

    /// Revokes a grant and all its copies.
    pub async fn revoke_grant(&self, id: &str) -> Result<Value, ClientError> {
        let path = format!("/v1/grants/{}", encoded(id));
        self.ask(self.request(Method::DELETE, path, Bytes::new()), ANSWER_WAIT).await
    }
}
