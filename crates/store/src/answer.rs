//! The future every store method returns.

use crate::error::StoreError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// A store's answer: available at once (memory, a cached page), or later (a commit, a network), without a
/// boxed future where none is needed.
#[must_use = "a store's answer says whether it was done"]
pub struct Answer<T>(AnswerKind<T>);

enum AnswerKind<T> {
    Ready(Option<Result<T, StoreError>>),
    Reply(oneshot::Receiver<Result<T, StoreError>>),
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
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

    /// The answer, if it is known by now.
    pub fn known(self) -> Result<Result<T, StoreError>, Answer<T>> {
        match self.0 {
            AnswerKind::Ready(answer) => Ok(answer.unwrap_or(Err(StoreError::Closed))),
            AnswerKind::Reply(mut receiver) => match receiver.try_recv() {
                Ok(reply) => Ok(reply),
                Err(TryRecvError::Empty) => Err(Answer::reply(receiver)),
                Err(TryRecvError::Closed) => Ok(Err(StoreError::Closed)),
            },
            AnswerKind::Boxed(_) => Err(self),
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
            AnswerKind::Reply(receiver) => {
                Pin::new(receiver).poll(cx).map(|reply| reply.unwrap_or(Err(StoreError::Closed)))
            }
            AnswerKind::Boxed(future) => future.as_mut().poll(cx),
        }
    }
}
