//! A response body that is made piece by piece, when there is space for the next.

use axum::body::Bytes;
use hyper::body::Frame;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The next piece of a stream, and the rest of the stream, if there is one; `None` at its end.
pub(crate) type StreamPiece<S> = Option<(Bytes, Option<S>)>;

/// A body of the pieces of a stream `S`. Each piece reuses the memory of the last.
pub(crate) struct PulledBody<S, F, N> {
    then: F,
    next: Pin<Box<N>>,
    over: bool,
    stream: PhantomData<fn(S)>,
}

impl<S, N, F: Fn(S) -> N> PulledBody<S, F, N> {
    /// The body of a stream; `then` makes its next piece.
    pub(crate) fn new(stream: S, then: F) -> PulledBody<S, F, N> {
        let next = Box::pin(then(stream));
        PulledBody { then, next, over: false, stream: PhantomData }
    }
}

impl<S, N: Future<Output = StreamPiece<S>> + Send, F: Fn(S) -> N + Unpin> hyper::body::Body
    for PulledBody<S, F, N>
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let Poll::Ready(piece) = self.next.as_mut().poll(cx) else { return Poll::Pending };
        let (piece, rest) = piece.unzip();
        match rest.flatten() {
            Some(stream) => {
                let next = (self.then)(stream);
                self.next.set(next);
            }
            None => self.over = true,
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }
}
