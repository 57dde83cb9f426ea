//! One delivery: the transport is asked, and answers in time or not at all.

use crate::tools::transport::{WebhookFuture, WebhookPost, WebhookReply, WebhookTransport};
use std::time::Duration;

/// How much longer than it may a delivery is waited for: a transport keeps its times itself.
const TRANSPORT_GRACE: Duration = Duration::from_secs(5);

/// The answer to a delivery, if it comes in time.
pub(super) async fn exchange(
    transport: &dyn WebhookTransport,
    sent: WebhookPost,
) -> Result<WebhookReply, String> {
    let within = sent.within;
    match tokio::time::timeout(within + TRANSPORT_GRACE, answer(transport.post(sent))).await {
        Ok(said) => said,
        Err(_) => Err(format!("there was no answer within {} ms", within.as_millis())),
    }
}

/// The answer to a delivery; a panic of the transport is an error.
pub(super) async fn answer(sending: WebhookFuture) -> Result<WebhookReply, String> {
    match tokio::spawn(sending).await {
        Ok(said) => said,
        Err(_) => Err("the transport of webhooks panicked".to_string()),
    }
}
