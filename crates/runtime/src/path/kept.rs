//! Calls that are driven by whoever waits for them.
//!
//! A task of its own is woken by itself, often on another thread, and wakes whoever waits for the call once it has ended. A caller that
//! does nothing but wait can do that work itself, and saves both. It may stop waiting at any time: then the rest goes on in a task.

use crate::api::locks::{LockRank, OrderedMutex};
use std::pin::{Pin, pin};
use std::task::Context;
use tokio::runtime::Handle;

/// The rest of the way of calls.
pub(crate) type DriveRest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The rest of the way of calls, for the first who waits for them; nothing, if they go on by themselves.
#[derive(Default)]
pub(crate) struct KeptDrive(OrderedMutex<Option<RestInHand>, { LockRank::KeptDrive as u8 }>);

impl KeptDrive {
    pub(crate) fn new(tasks: &Handle, rest: DriveRest) -> KeptDrive {
        KeptDrive(OrderedMutex::new(Some(RestInHand { rest: Some(rest), tasks: tasks.clone() })))
    }

    /// Waits for this, and drives the call meanwhile.
    pub(crate) async fn until<T>(&self, awaited: impl Future<Output = T>) -> T {
        let Some(mut rest) = self.0.lock().take() else { return awaited.await };
        let mut awaited = pin!(awaited);
        std::future::poll_fn(|cx| {
            rest.poll(cx);
            awaited.as_mut().poll(cx)
        })
        .await
    }
}

/// The rest of a call's way, in somebody's hands. Once it is dropped it goes on in a task.
struct RestInHand {
    rest: Option<DriveRest>,
    tasks: Handle,
}

impl RestInHand {
    fn poll(&mut self, cx: &mut Context<'_>) {
        // Taken out: what panics is not driven on.
        if let Some(mut rest) = self.rest.take()
            && rest.as_mut().poll(cx).is_pending()
        {
            self.rest = Some(rest);
        }
    }
}

impl Drop for RestInHand {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.tasks.spawn(rest);
        }
    }
}
