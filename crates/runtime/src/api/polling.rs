//! Polling futures, and running foreign code: a panic is caught and returned as text.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Runs foreign code; returns the message of its panic.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| text(&*panic))
}

/// Polls a foreign future; returns the message of its panic.
pub(crate) async fn polled<F: Future + Unpin>(mut future: F) -> Result<F::Output, String> {
    std::future::poll_fn(|cx| match caught(|| Pin::new(&mut future).poll(cx)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// The message of a panic.
pub(crate) fn text(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<&str>().map(|text| text.to_string());
    said.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_string())
}

/// Polls a future once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Room in which futures of one type are polled one after the other, until one is left in it: most are over at once, and so need
/// no allocation of their own.
pub(crate) struct FutureRoom<F>(Option<Pin<Box<F>>>);

impl<F> Default for FutureRoom<F> {
    fn default() -> FutureRoom<F> {
        FutureRoom(None)
    }
}

impl<F: Future> FutureRoom<F> {
    /// The future, in the room if that is free.
    pub(crate) fn place(&mut self, future: F) -> Pin<Box<F>> {
        match self.0.take() {
            Some(mut room) => {
                Pin::set(&mut room, future);
                room
            }
            None => Box::pin(future),
        }
    }

    /// The future is over: the next one may have its room.
    pub(crate) fn give_back(&mut self, over: Pin<Box<F>>) {
        self.0 = Some(over);
    }
}
