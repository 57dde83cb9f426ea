//! The future every store method returns.

use crate::error::StoreError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// A store's answer: available at once (memory, a cached page), or later (a commit, a network), without a
/// boxed future where none is needed.
#[must_use = "a store's answer says whether it was done"]
pub struct Answer<T>(AnswerKind<T>);

enum AnswerKind<T> {
    Ready(Option<Result<T, StoreError>>),
    Reply(oneshot::Receiver<Result<T, StoreError>>),
    Led(LedReply<T>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

/// A writer whose callers may write in its place.
pub(crate) trait Leadable: Send + Sync {
    /// Writes what waits in the calling thread, or has the writer do it.
    fn lead(&self);

    /// Has the writer write what waits.
    fn attend(&self);
}

/// The reply to a write that nobody has begun: whoever waits for it may write it.
struct LedReply<T> {
    reply: oneshot::Receiver<Result<T, StoreError>>,
    /// `None` once somebody writes it.
    writer: Option<Arc<dyn Leadable>>,
}

impl<T> LedReply<T> {
    /// Writes it here, or has it written.
    fn lead(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.lead();
        }
    }
}

impl<T> Drop for LedReply<T> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.attend();
        }
    }
}

impl<T> Answer<T> {
    /// An answer that is already known.
    pub fn ready(answer: Result<T, StoreError>) -> Answer<T> {
        Answer(AnswerKind::Ready(Some(answer)))
    }

    /// The reply of a store thread. If the thread is gone, so is the store.
    pub fn reply(receiver: oneshot::Receiver<Result<T, StoreError>>) -> Answer<T> {
        Answer(AnswerKind::Reply(receiver))
    }

    /// The reply to a write that its caller may write itself.
    pub(crate) fn led(
        reply: oneshot::Receiver<Result<T, StoreError>>,
        writer: Arc<dyn Leadable>,
    ) -> Answer<T> {
        Answer(AnswerKind::Led(LedReply { reply, writer: Some(writer) }))
    }

    /// The answer, if it is known by now.
    pub fn known(mut self) -> Result<Result<T, StoreError>, Answer<T>> {
        let receiver = match &mut self.0 {
            AnswerKind::Ready(answer) => return Ok(answer.take().unwrap_or(Err(StoreError::Closed))),
            AnswerKind::Reply(receiver) => receiver,
            AnswerKind::Led(led) => {
                led.lead();
                &mut led.reply
            }
            AnswerKind::Boxed(_) => return Err(self),
        };
        match receiver.try_recv() {
            Ok(reply) => Ok(reply),
            Err(TryRecvError::Empty) => Err(self),
            Err(TryRecvError::Closed) => Ok(Err(StoreError::Closed)),
        }
    }

    /// Any other future.
    pub fn boxed(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Answer<T> {
        Answer(AnswerKind::Boxed(Box::pin(future)))
    }
}

impl<T: Unpin> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            AnswerKind::Ready(answer) => Poll::Ready(answer.take().unwrap_or(Err(StoreError::Closed))),
            AnswerKind::Reply(receiver) => received(receiver, cx),
            AnswerKind::Led(led) => {
                led.lead();
                received(&mut led.reply, cx)
            }
            AnswerKind::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}

/// A reply, if it has come.
fn received<T>(
    receiver: &mut oneshot::Receiver<Result<T, StoreError>>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, StoreError>> {
    Pin::new(receiver).poll(cx).map(|reply| reply.unwrap_or(Err(StoreError::Closed)))
}
