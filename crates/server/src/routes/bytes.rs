//! Responses of bytes, read as they are sent: a slow reader costs one piece.

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use hyper::StatusCode;
use hyper::body::{Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use std::io::Error;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes, piece by piece.
pub struct Pieces<R, F> {
    /// Reads this many bytes from an offset.
    read: R,
    piece: u64,
    left: Range<u64>,
    reading: Option<Pin<Box<F>>>,
}

impl<R, F> Pieces<R, F>
where
    R: Fn(u64, u64) -> F + Send + Unpin + 'static,
    F: Future<Output = Result<Vec<u8>, Error>> + Send + 'static,
{
    pub fn new(wanted: Range<u64>, piece: u64, read: R) -> Pieces<R, F> {
        Pieces { read, piece, left: wanted, reading: None }
    }
}

impl<R, F> hyper::body::Body for Pieces<R, F>
where
    R: Fn(u64, u64) -> F + Send + Unpin + 'static,
    F: Future<Output = Result<Vec<u8>, Error>> + Send + 'static,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.left.is_empty() {
            return Poll::Ready(None);
        }
        let len = this.piece.min(this.left.end - this.left.start);
        let reading = this.reading.get_or_insert_with(|| Box::pin((this.read)(this.left.start, len)));
        let read = ready!(reading.as_mut().poll(cx));
        this.reading = None;
        Poll::Ready(Some(match read {
            // A client that knows the length must not take fewer bytes for all of them.
            Ok(bytes) if bytes.is_empty() => Err(Error::other("the bytes ended too early")),
            Ok(bytes) => {
                this.left.start += bytes.len() as u64;
                Ok(Frame::data(bytes.into()))
            }
            Err(error) => Err(error),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.end.saturating_sub(self.left.start))
    }
}

/// A response of this media type. The bytes come from tools, so a browser must neither guess their type nor run them as ours.
pub fn served<R, F>(status: StatusCode, media_type: &str, pieces: Pieces<R, F>) -> Response
where
    R: Fn(u64, u64) -> F + Send + Unpin + 'static,
    F: Future<Output = Result<Vec<u8>, Error>> + Send + 'static,
{
    let media_type =
        HeaderValue::try_from(media_type).unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let head = [
        (CONTENT_TYPE, media_type),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox")),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    (status, head, Body::new(pieces)).into_response()
}
