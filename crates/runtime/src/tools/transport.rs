//! The way of messages to webhooks, given by the host: the library itself requests nothing.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// Delivers signed messages to the URLs of [webhooks](crate::Runtime::webhooks). Given to a runtime as
/// [`Config::webhooks`](crate::Config); `windlass-server` has one whose addresses are checked.
///
/// ```
/// use windlass::webhooks::{WebhookFuture, WebhookPost, WebhookReply, WebhookTransport};
///
/// /// Accepts everything, and delivers nothing.
/// struct Nowhere;
///
/// impl WebhookTransport for Nowhere {
///     fn check(&self, url: &str, _internal: bool) -> Result<(), String> {
///         if url.starts_with("https://") { Ok(()) } else { Err("only https is delivered to".to_string()) }
///     }
///
///     fn post(&self, _post: WebhookPost) -> WebhookFuture {
///         Box::pin(async { Ok(WebhookReply { status: 204, retry_after: None }) })
///     }
/// }
/// ```
pub trait WebhookTransport: Send + Sync + 'static {
    /// Refuses a URL that is never delivered to, with the reason. Names are looked up when they are delivered to.
    fn check(&self, url: &str, internal: bool) -> Result<(), String>;

    /// Posts a message once, without following redirects. An error is a delivery without an answer: for operators, without secrets.
    fn post(&self, post: WebhookPost) -> WebhookFuture;
}

/// A delivery on its way.
pub type WebhookFuture = Pin<Box<dyn Future<Output = Result<WebhookReply, String>> + Send>>;

/// One delivery to a webhook.
#[derive(Clone, Debug)]
pub struct WebhookPost {
    /// The URL.
    pub url: String,
    /// Whether an admin allows addresses that are not public, and `http://`.
    pub internal: bool,
    /// The headers, with the signature.
    pub headers: Vec<(String, String)>,
    /// The body, which the signature covers byte for byte.
    pub body: Vec<u8>,
    /// How long the receiver may take.
    pub within: Duration,
}

/// The answer of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookReply {
    /// The HTTP status: 2xx is delivered, 410 disables the webhook, everything else is tried again.
    pub status: u16,
    /// How long the receiver asks to be left alone.
    pub retry_after: Option<Duration>,
}
