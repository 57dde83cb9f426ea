//! Marks, which say which call is the first of its dedupe key.

use super::{begin, changes, held, journal, one, open};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, CallId, Fence, Mark, Ordinal};
use windlass_store::{BATCHES_MAX, Hold, Refused, Row, SessionChange, Store};

/// A mark can be moved, and goes with its change or not at all.
pub async fn a_mark_is_where_it_was_last_set(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let call = |ordinal| CallId { batch, ordinal: Ordinal(ordinal) };
    let mark = |mark, ordinal| Row::Mark { mark: Mark([mark; 16]), call: call(ordinal) };
    let marked = async |mark| store.marked(Mark([mark; 16])).await.unwrap();
    assert_eq!(marked(1).await, None);
    one(store, held(session, vec![mark(1, 0), journal(batch, 1, 1), mark(2, u16::MAX)])).await.unwrap();
    assert_eq!((marked(1).await, marked(2).await), (Some(call(0)), Some(call(u16::MAX))));
    // Twice in one change, and in two changes of one commit: the last one counts.
    let moved = vec![held(session, vec![mark(1, 3), mark(1, 4)]), held(session, vec![mark(1, 5)])];
    assert!(store.commit(changes(moved)).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(marked(1).await, Some(call(5)));
    // With what is refused nothing moves.
    let stale = SessionChange { hold: Hold::Held(Fence(9)), ..held(session, vec![mark(1, 6)]) };
    assert_eq!(one(store, stale).await, Err(Refused::Fenced { now: Fence(1) }));
    let half_way = held(session, vec![mark(1, 6), mark(3, 6), journal(batch, 0, 1)]);
    assert_eq!(one(store, half_way).await, Err(Refused::Exists));
    let far = CallId { batch: BatchNo(BATCHES_MAX), ordinal: Ordinal(0) };
    let too_large = held(session, vec![Row::Mark { mark: Mark([1; 16]), call: far }]);
    assert_eq!(one(store, too_large).await, Err(Refused::TooLarge));
    assert_eq!((marked(1).await, marked(3).await), (Some(call(5)), None));
}
