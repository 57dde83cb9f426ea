//! Calls of a batch that one task drives together: a message that ends many of them wakes it once, and their ends are one change.

use super::drive::{DriveOutcome, Driving, Rest, Unfinished, finish, stop};
use crate::api::error::Lost;
use crate::session::held::{DriveContext, Going};
use crate::session::turns::DrivenCall;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Goes on with calls of one batch until each has ended or has to wait.
pub(super) async fn go_on(on: Arc<DriveContext>, rests: Vec<Rest>) {
    let mut group = DriveGroup::default();
    for rest in rests {
        match rest {
            Rest::Driving(driving, who) => group.driving.push(group_drive(driving, who)),
            Rest::Unfinished(unfinished) => group.wait(&on, unfinished),
        }
    }
    while let Some(driven) = std::future::poll_fn(|cx| group.poll(cx)).await {
        let mut going = Going::default();
        for (driven, who) in driven {
            match driven {
                Ok(DriveOutcome::Ended(held)) => going.end(held),
                Ok(DriveOutcome::Parked) => {}
                Err(lost) => stop(&on, who, lost),
            }
            // Its end may decide what becomes of the others.
            if on.batch.asks_of_siblings() {
                group.finish(&on, &mut going).await;
            }
        }
        group.finish(&on, &mut going).await;
    }
}

/// The calls, and those whose ends are not known to be durable.
#[derive(Default)]
struct DriveGroup {
    driving: FuturesUnordered<Pin<Box<dyn Future<Output = Driven> + Send>>>,
    unfinished: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

type Driven = (Result<DriveOutcome, Lost>, DrivenCall);

fn group_drive(driving: Driving, who: DrivenCall) -> Pin<Box<dyn Future<Output = Driven> + Send>> {
    Box::pin(async move { (driving.await, who) })
}

impl DriveGroup {
    /// The calls that have come to an end or a wait by now; `None` once nothing is left.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<Driven>>> {
        while let Poll::Ready(Some(())) = self.unfinished.poll_next_unpin(cx) {}
        let mut driven = Vec::new();
        while let Poll::Ready(Some(one)) = self.driving.poll_next_unpin(cx) {
            driven.push(one);
        }
        if driven.is_empty() && self.driving.is_empty() && self.unfinished.is_empty() {
            return Poll::Ready(None);
        }
        if driven.is_empty() { Poll::Pending } else { Poll::Ready(Some(driven)) }
    }

    async fn finish(&mut self, on: &Arc<DriveContext>, going: &mut Going) {
        if let Some(unfinished) = finish(on, going).await {
            self.wait(on, unfinished);
        }
    }

    fn wait(&mut self, on: &Arc<DriveContext>, unfinished: Unfinished) {
        self.unfinished.push(Box::pin(unfinished.wait(on.clone())));
    }
}
