//! Ends waiting requests and responses in progress once their token is revoked or expired. Done for every
//! route, in one place: event streams, batches that are waited for, slow bodies, slow downloads.

use crate::api::Api;
use crate::problem::Problem;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as _, Frame, SizeHint};
use hyper::header::CONTENT_TYPE;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The minimum time between two checks of a token, whatever `token_known_ms` is.
const LOOKS_EVERY_MIN: Duration = Duration::from_millis(10);
/// A response up to this size is handed over whole, so there is nothing to end.
pub(crate) const WHOLE_BYTES_MAX: u64 = 64 << 10;

/// The wait for the next check.
type WatchTimer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A check of a token, which waits for the store.
type TokenCheck = Pin<Box<dyn Future<Output = Result<(), Problem>> + Send>>;

/// Checks repeatedly whether a token is still valid.
pub(crate) struct TokenWatch {
    api: Api,
    token: Arc<str>,
    every: Duration,
    /// Created when a request waits: most are answered before.
    timer: Option<WatchTimer>,
    looking: Option<TokenCheck>,
}

impl TokenWatch {
    /// A cached token may be half of `token_known_ms` old, and is checked twice in that time: so a revoked
    /// token is noticed within `token_known_ms`.
    pub(crate) fn new(api: &Api, token: Arc<str>) -> TokenWatch {
        let every = Duration::from_millis(api.runtime().limits().token_known_ms / 2).max(LOOKS_EVERY_MIN);
        TokenWatch { api: api.clone(), token, every, timer: None, looking: None }
    }

    /// Ready when the token is no longer valid, or cannot be checked.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<Problem> {
        loop {
            if let Some(looking) = &mut self.looking {
                match ready!(looking.as_mut().poll(cx)) {
                    Ok(()) => self.looking = None,
                    Err(problem) => return Poll::Ready(problem),
                }
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(self.api.runtime().sleep(self.every)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
            let (api, token) = (self.api.clone(), self.token.clone());
            self.looking = Some(Box::pin(async move { api.tokens().still_good(&token).await }));
        }
    }

    /// Whether a check is running: until it ends nothing more is sent.
    fn is_looking(&self) -> bool {
        self.looking.is_some()
    }
}

/// The response to a request, or the problem of its token. Work already begun runs to its end (`undisturbed`).
pub(crate) async fn answered(
    answering: impl Future<Output = Response>,
    watch: Option<TokenWatch>,
) -> Response {
    let Some(mut watch) = watch else { return answering.await };
    tokio::pin!(answering);
    let answer = std::future::poll_fn(|cx| match answering.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Ok(response)),
        Poll::Pending => watch.poll_over(cx).map(Err),
    });
    match answer.await {
        Ok(response) => sent(response, watch),
        Err(problem) => problem.into_response(),
    }
}

/// A response that ends with its token, if it is not handed over whole.
fn sent(response: Response, watch: TokenWatch) -> Response {
    if response.body().size_hint().upper().is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX) {
        return response;
    }
    let tells = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    response.map(|body| Body::new(WatchedBody { body, watch, tells, over: false }))
}

/// A body that ends with a token.
struct WatchedBody {
    body: Body,
    watch: TokenWatch,
    /// Whether it is an event stream, which gives the reason; all others break off.
    tells: bool,
    over: bool,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(problem) = this.watch.poll_over(cx) {
            this.over = true;
            let last = if this.tells { Ok(last_event(&problem)) } else { Err(axum::Error::new(problem)) };
            return Poll::Ready(Some(last));
        }
        if this.watch.is_looking() {
            return Poll::Pending;
        }
        Pin::new(&mut this.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The last event of a stream.
fn last_event(problem: &Problem) -> Frame<Bytes> {
    let problem = serde_json::to_string(problem).unwrap_or_default();
    Frame::data(format!("event: problem\ndata: {problem}\n\n").into())
}
