//! The client: one request, its redirects, one bounded response.

use crate::address::{AddressGuard, AddressRange};
use crate::error::HttpError;
use crate::resolve::{GuardedResolver, NoAddress};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION};
use reqwest::{Method, StatusCode, Url, redirect};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The rules of a client.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Addresses that may be connected to although they are not public, such as `127.0.0.1`.
    pub allowed: Vec<AddressRange>,
    /// Whether `http://` is requested too: nothing on the way is secret then.
    pub plain_http: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a request may take with its redirects and the whole response, unless the request says less.
    pub timeout: Duration,
    /// The maximum number of redirects that are followed.
    pub redirects_max: usize,
    /// The maximum size of a response's body.
    pub body_bytes_max: u64,
    /// The name by which servers know the client.
    pub user_agent: String,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            allowed: Vec::new(),
            plain_http: false,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(600),
            redirects_max: 5,
            body_bytes_max: 32 << 20,
            user_agent: concat!("windlass/", env!("CARGO_PKG_VERSION")).to_string(),
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// The headers. A redirect to another origin gets none of them but `content-type`.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How long it may take, if less than the client's time.
    pub timeout: Option<Duration>,
    /// Whether a redirect to another origin is an error: its body is for one server alone.
    pub same_origin: bool,
}

/// A request without a whole response, and whether its server may have got it.
#[derive(Debug)]
pub struct FailedRequest {
    /// The error.
    pub error: HttpError,
    /// Whether the request, or the one before a redirect, may have been sent. `false`: it certainly was not.
    pub was_sent: bool,
}

impl HttpRequest {
    /// Reads a page.
    pub fn get(url: impl Into<String>) -> HttpRequest {
        HttpRequest {
            method: Method::GET,
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            timeout: None,
            same_origin: false,
        }
    }

    /// Posts JSON.
    pub fn post_json(url: impl Into<String>, body: impl Into<Vec<u8>>) -> HttpRequest {
        let headers = vec![("content-type".to_string(), "application/json".to_string())];
        HttpRequest { method: Method::POST, headers, body: body.into(), ..HttpRequest::get(url) }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> HttpRequest {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// One whole response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The URL that answered, behind all redirects.
    pub url: String,
    /// The headers that are text, by their names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The first header of the name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        headers.next().map(|(_, value)| value.as_str())
    }
}

/// Sees the pieces of a body, with the head of their response.
pub type BodyWatch<'a> = &'a mut (dyn FnMut(&HttpResponse, &[u8]) -> WatchedPiece + Send);

/// The use of a piece of a body that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedPiece {
    /// The response has it.
    Kept,
    /// The response has it not: whoever saw it has taken what it needs. It counts towards the size of the body all the same.
    Taken,
    /// As `Taken`, and no more is wanted.
    Last,
}

/// The client. Clones share their connections.
#[derive(Clone, Debug)]
pub struct HttpClient {
    client: reqwest::Client,
    guard: Arc<AddressGuard>,
    config: Arc<HttpConfig>,
}

impl HttpClient {
    /// A client under these rules.
    pub fn new(config: HttpConfig) -> Result<HttpClient, HttpError> {
        let guard = Arc::new(AddressGuard { allowed: config.allowed.clone() });
        // Once per process; whoever was first has chosen a provider that serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .dns_resolver(Arc::new(GuardedResolver { guard: guard.clone() }))
            // Each is checked and followed here.
            .redirect(redirect::Policy::none())
            // A proxy of the environment would see every request, and connect to what the guard refuses.
            .no_proxy()
            .referer(false)
            .connect_timeout(config.connect_timeout)
            .user_agent(&config.user_agent)
            .build()
            .map_err(|error| HttpError::Client { cause: error.into() })?;
        Ok(HttpClient { client, guard, config: Arc::new(config) })
    }

    /// Sends the request, follows its redirects, and reads the whole response, whatever its status. Dropping the future ends the
    /// exchange.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.exchange(request).await.map_err(|failed| failed.error)
    }

    /// As [`send`](Self::send), and says whether a failed request may have reached its server.
    pub async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, FailedRequest> {
        self.exchange_watched(request, &mut |_, _| WatchedPiece::Kept).await
    }

    /// As [`exchange`](Self::exchange), and shows the head of the response, first alone and then with each piece of the body as it
    /// arrives. The response has the pieces that are to be kept.
    pub async fn exchange_watched(
        &self,
        request: HttpRequest,
        watch: BodyWatch<'_>,
    ) -> Result<HttpResponse, FailedRequest> {
        let within = self.within(&request);
        let mut was_sent = false;
        let whole = async {
            let (response, url) = self.follow(request, &mut was_sent).await?;
            self.whole(response, &url, watch).await
        };
        let response =
            tokio::time::timeout(within, whole).await.unwrap_or(Err(HttpError::Timeout { within }));
        response.map_err(|error| {
            let is_unsent = !was_sent
                && matches!(
                    error,
                    HttpError::Connect { .. }
                        | HttpError::Address { .. }
                        | HttpError::Url { .. }
                        | HttpError::Header { .. }
                        | HttpError::Client { .. }
                );
            FailedRequest { error, was_sent: !is_unsent }
        })
    }

    /// Sends the request and follows its redirects like [`send`](Self::send), and leaves the body of the response unread: it is empty here,
    /// however long it is.
    pub async fn send_unread(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let within = self.within(&request);
        let head = async {
            let (response, url) = self.follow(request, &mut false).await?;
            Ok(head(&response, &url))
        };
        tokio::time::timeout(within, head).await.unwrap_or(Err(HttpError::Timeout { within }))
    }

    /// Refuses a URL that is never requested. A name is looked up when it is requested.
    pub fn check(&self, url: &str) -> Result<(), HttpError> {
        self.checked(url).map(drop)
    }

    fn within(&self, request: &HttpRequest) -> Duration {
        request.timeout.map_or(self.config.timeout, |asked| asked.min(self.config.timeout))
    }

    /// Sends the request and follows its redirects. `was_sent` is set once a server has answered one of them.
    async fn follow(
        &self,
        request: HttpRequest,
        was_sent: &mut bool,
    ) -> Result<(reqwest::Response, Url), HttpError> {
        let mut headers = header_map(&request.headers)?;
        let HttpRequest { mut method, url, mut body, same_origin, .. } = request;
        let mut url = self.checked(&url)?;
        for _ in 0..=self.config.redirects_max {
            let sent =
                self.client.request(method.clone(), url.clone()).headers(headers.clone()).body(body.clone());
            let response = sent.send().await.map_err(|error| failed(&url, error))?;
            *was_sent = true;
            let status = response.status();
            let Some(next) = redirected(status, response.headers()) else {
                return Ok((response, url));
            };
            let next = url
                .join(&next)
                .map_err(|_| HttpError::Url { url: shown(&url), what: "its redirect is no URL" })?;
            let next = self.checked(next.as_str())?;
            if next.origin() != url.origin() {
                if same_origin {
                    return Err(HttpError::Url { url: shown(&url), what: "it redirects to another server" });
                }
                for_another_origin(&mut headers);
            }
            // As browsers do: the answer to a post is read elsewhere.
            if status == StatusCode::SEE_OTHER
                || (method == Method::POST && matches!(status.as_u16(), 301 | 302))
            {
                (method, body) = (Method::GET, Vec::new());
                headers.remove(CONTENT_TYPE);
            }
            url = next;
        }
        Err(HttpError::Redirects { max: self.config.redirects_max })
    }

    /// The URL, if it may be requested. Names are checked when they are resolved; an address in the URL never is.
    fn checked(&self, text: &str) -> Result<Url, HttpError> {
        let refused =
            |what| HttpError::Url { url: text.split(['?', '#']).next().unwrap_or_default().into(), what };
        let Ok(url) = Url::parse(text) else {
            return Err(refused("it is not a URL; write one like https://example.com/"));
        };
        let refused = |what| HttpError::Url { url: shown(&url), what };
        match url.scheme() {
            "https" => {}
            "http" if self.config.plain_http => {}
            "http" => return Err(refused("it is not encrypted; use https, or allow plain_http")),
            _ => return Err(refused("its scheme is neither https nor http")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("it has credentials in it; leave them out"));
        }
        let host = url.host_str().unwrap_or_default();
        if host.is_empty() {
            return Err(refused("it has no host"));
        }
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if literal.is_ok_and(|address| !self.guard.allows(address)) {
            return Err(HttpError::Address { host: host.to_string() });
        }
        Ok(url)
    }

    async fn whole(
        &self,
        mut response: reqwest::Response,
        url: &Url,
        watch: BodyWatch<'_>,
    ) -> Result<HttpResponse, HttpError> {
        let max = self.config.body_bytes_max;
        if response.content_length().is_some_and(|length| length > max) {
            return Err(HttpError::TooLarge { max });
        }
        let head = head(&response, url);
        let (mut body, mut seen) = (Vec::new(), 0);
        if watch(&head, &[]) == WatchedPiece::Last {
            return Ok(head);
        }
        while let Some(piece) = response.chunk().await.map_err(|error| failed(url, error))? {
            seen += piece.len() as u64;
            if seen > max {
                return Err(HttpError::TooLarge { max });
            }
            match watch(&head, &piece) {
                WatchedPiece::Kept => body.extend_from_slice(&piece),
                WatchedPiece::Taken => {}
                WatchedPiece::Last => break,
            }
        }
        Ok(HttpResponse { body, ..head })
    }
}

/// A response without its body.
fn head(response: &reqwest::Response, url: &Url) -> HttpResponse {
    let text = |(name, value): (&HeaderName, &HeaderValue)| {
        value.to_str().ok().map(|value| (name.as_str().to_string(), value.to_string()))
    };
    let headers = response.headers().iter().filter_map(text).collect();
    HttpResponse { status: response.status().as_u16(), url: url.to_string(), headers, body: Vec::new() }
}

/// Leaves the headers that another origin may see.
fn for_another_origin(headers: &mut HeaderMap) {
    let kept = headers.remove(CONTENT_TYPE);
    headers.clear();
    headers.extend(kept.map(|kept| (CONTENT_TYPE, kept)));
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, HttpError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let bad = || HttpError::Header { name: name.clone() };
        let header = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad())?;
        // Logs of libraries leave it out.
        value.set_sensitive(true);
        map.append(header, value);
    }
    Ok(map)
}

/// The place that a response redirects to.
fn redirected(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let place = headers.get(LOCATION).filter(|_| is_redirect)?;
    Some(String::from_utf8_lossy(place.as_bytes()).into_owned())
}

/// The URL without its query and its credentials.
fn shown(url: &Url) -> String {
    format!("{}://{}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

fn failed(url: &Url, error: reqwest::Error) -> HttpError {
    let host = url.host_str().unwrap_or_default().to_string();
    if refused_by_guard(&error) {
        return HttpError::Address { host };
    }
    let was_sent = !error.is_connect();
    let cause = Box::new(error.without_url());
    if was_sent { HttpError::Broken { host, cause } } else { HttpError::Connect { host, cause } }
}

fn refused_by_guard(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<NoAddress>() {
            return true;
        }
        cause = error.source();
    }
    false
}
