//! The transport of webhooks: the outgoing client, behind its guard of addresses.

use std::sync::OnceLock;
use std::time::Duration;
use windlass::error::chain;
use windlass::webhooks::{WebhookFuture, WebhookPost, WebhookReply, WebhookTransport};
use windlass_http::{HttpClient, HttpConfig, HttpRequest, Method};

/// Delivers messages to webhooks over HTTP. Only public addresses are connected to, over TLS, unless a webhook is internal; redirects are
/// not followed, and the bodies of answers are not read.
///
/// ```
/// use std::sync::Arc;
/// use windlass::{Config, Runtime, store::memory::MemoryStore};
/// use windlass_server::webhooks::WebhookClient;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let webhooks = Some(Arc::new(WebhookClient::default()) as _);
/// let runtime = Runtime::new(Config { webhooks, ..Config::new(MemoryStore::new()?) });
/// # drop(runtime);
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct WebhookClient {
    // Made at the first use: most processes that have a transport have no webhook.
    public: OnceLock<Result<HttpClient, String>>,
    internal: OnceLock<Result<HttpClient, String>>,
}

impl WebhookClient {
    fn client(&self, internal: bool) -> Result<HttpClient, String> {
        let made = |config| HttpClient::new(config).map_err(|error| chain(&error));
        let config = HttpConfig { redirects_max: 0, ..HttpConfig::default() };
        if !internal {
            return self.public.get_or_init(|| made(config)).clone();
        }
        let everywhere = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|range| range.parse().ok()).collect();
        self.internal
            .get_or_init(|| made(HttpConfig { allowed: everywhere, plain_http: true, ..config }))
            .clone()
    }
}

impl WebhookTransport for WebhookClient {
    fn check(&self, url: &str, internal: bool) -> Result<(), String> {
        self.client(internal)?.check(url).map_err(|error| chain(&error))
    }

    fn post(&self, post: WebhookPost) -> WebhookFuture {
        let WebhookPost { url, internal, headers, body, within } = post;
        let client = self.client(internal);
        let timeout = Some(within);
        let request = HttpRequest { method: Method::POST, url, headers, body, timeout, same_origin: false };
        Box::pin(async move {
            let answered = client?.send_unread(request).await.map_err(|error| chain(&error))?;
            let seconds = answered.header("retry-after").and_then(|after| after.trim().parse().ok());
            Ok(WebhookReply { status: answered.status, retry_after: seconds.map(Duration::from_secs) })
        })
    }
}
