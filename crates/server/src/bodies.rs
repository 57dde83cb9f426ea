//! Memory of request bodies: all bodies in flight share one budget, and slow senders cannot keep others from it.
//!
//! A body takes memory twice: its bytes while they arrive, and its values once parsed. Small bodies pay as bytes
//! arrive, large ones for their announced size, from separate parts of the budget: so slow bodies of any announced size
//! never keep a small one waiting. A stream is small until it has grown.

use crate::problem::{Problem, ProblemCode};
use crate::shares::{NoneLeft, Portion, SharedUnits};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use windlass::Limits;

/// Memory is counted in pieces of this size. Anything smaller is free: it costs less than its connection.
const PIECE_BYTES: u64 = 4 << 10;
/// Bodies up to this size are small.
const SMALL_BYTES_MAX: u64 = 1 << 20;
/// The fraction of the budget for requests that need no token.
const OPEN_PART: u64 = 4;
/// The fraction of a budget for small bodies, and for parsed values; the rest is for large bodies.
const SMALL_PART: u64 = 4;
const VALUES_PART: u64 = 4;
/// The largest fraction of each part for one user.
const SHARE_PART: u64 = 2;

/// The budget of all bodies in flight.
pub struct Bodies {
    callers: Budget,
    open: Budget,
    wait: Duration,
}

struct Budget {
    small: SharedUnits,
    large: SharedUnits,
    values: SharedUnits,
}

/// The sender of a body.
#[derive(Clone, Debug)]
pub(crate) enum Sender {
    /// A principal.
    Caller(Arc<str>),
    /// The holder of this completion key.
    Key(Arc<str>),
}

/// A request's part of the budget, until the request is answered or waits for anything but its body.
#[derive(Clone, Default)]
pub(crate) struct RequestRoom(Arc<Mutex<Vec<Portion>>>);

impl RequestRoom {
    fn hold(&self, portion: Portion) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(portion);
    }

    /// Returns all of it.
    pub(crate) fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The memory of one body while it arrives.
pub(crate) struct IncomingBody<'a> {
    bodies: &'a Bodies,
    sender: Sender,
    /// `None` if it was paid for when announced.
    paid: Option<u64>,
    portions: Vec<Portion>,
}

impl Budget {
    fn new(bytes: u64) -> Budget {
        let part = |bytes: u64| SharedUnits::new(bytes / PIECE_BYTES, bytes / PIECE_BYTES / SHARE_PART);
        let (small, values) = (bytes / SMALL_PART, bytes / VALUES_PART);
        Budget { small: part(small), large: part(bytes - small - values), values: part(values) }
    }
}

impl Bodies {
    pub fn new(limits: &Limits) -> Bodies {
        let open = limits.bodies_bytes_max / OPEN_PART;
        Bodies {
            callers: Budget::new(limits.bodies_bytes_max - open),
            open: Budget::new(open),
            wait: Duration::from_millis(limits.body_wait_ms),
        }
    }

    fn budget<'a>(&'a self, sender: &'a Sender) -> (&'a Budget, &'a Arc<str>) {
        match sender {
            Sender::Caller(principal) => (&self.callers, principal),
            Sender::Key(key) => (&self.open, key),
        }
    }

    /// Reserves memory for a body that announces this size.
    pub(crate) async fn announced(&self, sender: Sender, bytes: u64) -> Result<IncomingBody<'_>, Problem> {
        let mut incoming = IncomingBody { bodies: self, sender, paid: Some(0), portions: Vec::new() };
        if bytes > SMALL_BYTES_MAX {
            let (budget, user) = self.budget(&incoming.sender);
            let portion = budget.large.take(user, bytes.div_ceil(PIECE_BYTES), self.wait).await;
            incoming.portions.push(portion.map_err(no_room)?);
            incoming.paid = None;
        }
        Ok(incoming)
    }

    /// Reserves memory for the values of a body, held by its request.
    pub(crate) async fn values(
        &self,
        sender: &Sender,
        bytes: u64,
        room: &RequestRoom,
    ) -> Result<(), Problem> {
        if bytes <= PIECE_BYTES {
            return Ok(());
        }
        let (budget, user) = self.budget(sender);
        let portion = budget.values.take(user, bytes.div_ceil(PIECE_BYTES), self.wait).await;
        room.hold(portion.map_err(no_room)?);
        Ok(())
    }
}

impl IncomingBody<'_> {
    /// Accounts for the total number of bytes received.
    pub(crate) async fn came(&mut self, bytes: u64) -> Result<(), Problem> {
        let Some(paid) = self.paid else { return Ok(()) };
        let pieces = bytes / PIECE_BYTES;
        if pieces <= paid {
            return Ok(());
        }
        let (budget, user) = self.bodies.budget(&self.sender);
        let part = if bytes > SMALL_BYTES_MAX { &budget.large } else { &budget.small };
        let portion = part.take(user, pieces - paid, self.bodies.wait).await;
        self.portions.push(portion.map_err(no_room)?);
        self.paid = Some(pieces);
        Ok(())
    }
}

fn no_room(NoneLeft: NoneLeft) -> Problem {
    let told = "too many large bodies are being read; try again in a second";
    Problem { retry_after_ms: Some(1_000), ..Problem::new(ProblemCode::Overloaded, told) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn bodies() -> Bodies {
        Bodies::new(&Limits { bodies_bytes_max: 64 * MIB, body_wait_ms: 0, ..Limits::default() })
    }

    /// Takes this many bytes repeatedly, each time for another user, until there is no space. Returns the total.
    async fn fill<T>(bytes: u64, mut take: impl AsyncFnMut(Arc<str>) -> Result<T, Problem>) -> (u64, Vec<T>) {
        let mut held = Vec::new();
        loop {
            match take(format!("user {}", held.len()).into()).await {
                Ok(taken) => held.push(taken),
                Err(problem) => {
                    assert_eq!((problem.code, problem.status), (ProblemCode::Overloaded, 503));
                    return (held.len() as u64 * bytes, held);
                }
            }
            assert!(held.len() < 1_000, "there is no end of it");
        }
    }

    #[tokio::test]
    async fn all_that_bodies_take_in_flight_stays_within_one_budget() {
        let bodies = bodies();
        // The first round has returned everything, so the second gets as much.
        for _ in 0..2 {
            let large = fill(2 * MIB, async |user| bodies.announced(Sender::Caller(user), 2 * MIB).await);
            let large = large.await;
            let small = fill(MIB, async |user| {
                let mut incoming = bodies.announced(Sender::Caller(user), MIB).await?;
                incoming.came(MIB).await.map(|()| incoming)
            });
            let small = small.await;
            let values = fill(MIB, async |user| {
                let room = RequestRoom::default();
                bodies.values(&Sender::Caller(user), MIB, &room).await.map(|()| room)
            });
            let values = values.await;
            let taken = large.0 + small.0 + values.0;
            // A quarter is for callers without a token.
            assert!((40 * MIB..=48 * MIB).contains(&taken), "{taken} bytes");
        }
    }

    #[tokio::test]
    async fn a_stream_of_one_caller_may_grow_as_large_as_a_batch() {
        let limits = Limits { body_wait_ms: 0, ..Limits::default() };
        let bodies = Bodies::new(&limits);
        let mut stream = bodies.announced(Sender::Caller("a".into()), 0).await.expect("room");
        for bytes in (0..=limits.batch_bytes_max).step_by(64 << 10) {
            stream.came(bytes).await.unwrap_or_else(|problem| panic!("{bytes} bytes: {problem:?}"));
        }
    }

    #[tokio::test]
    async fn who_has_only_a_key_takes_nothing_from_those_with_a_token() {
        let bodies = bodies();
        let caller = || Sender::Caller("a".into());
        let _large = fill(2 * MIB, async |user| bodies.announced(Sender::Key(user), 2 * MIB).await).await;
        bodies.announced(caller(), 2 * MIB).await.expect("room for a large one");
        let _values = fill(MIB, async |user| {
            let room = RequestRoom::default();
            bodies.values(&Sender::Key(user), MIB, &room).await.map(|()| room)
        })
        .await;
        bodies.values(&caller(), MIB, &RequestRoom::default()).await.expect("room for its values");
    }
}
