//! Messages for the owner of a session.

use super::{begin, held, journal, message, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::EntryNo;
use windlass_store::{Inbound, Posted, Receipt, Refused, Row, Store};

/// A repetition is recognised; another body under the key is not stored.
pub async fn a_message_is_kept_once(store: &Arc<dyn Store>) {
    let (a, b) = (open(store, "a").await, open(store, "b").await);
    let post = async |message: Inbound| store.post(message).await.unwrap();
    assert_eq!(post(message(a, "k", "one")).await, Posted::New);
    assert_eq!(post(message(a, "k", "one")).await, Posted::Again);
    assert_eq!(post(message(a, "k", "two")).await, Posted::Differs);
    assert_eq!(post(message(b, "k", "two")).await, Posted::New);
    assert_eq!(post(message(a, "a", "")).await, Posted::New);
    assert_eq!(store.inbound(a, 10).await.unwrap(), [message(a, "k", "one"), message(a, "a", "")]);
    assert_eq!(store.inbound(a, 1).await.unwrap(), [message(a, "k", "one")]);
    assert_eq!(store.inbound(b, 10).await.unwrap(), [message(b, "k", "two")]);
}

/// An adopted message waits no more, and is known for good.
pub async fn a_message_is_adopted_once(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let adopt = |key: &str| Row::Adopt { key: key.to_owned() };
    for key in ["1", "2", ""] {
        store.post(message(session, key, "")).await.unwrap();
    }
    let both = held(session, vec![journal(batch, 1, 1), adopt("1"), adopt("")]);
    assert_eq!(one(store, both).await, Ok(Receipt { first: EntryNo(2), generation: 0 }));
    let before = snapshot(store, session).await;
    for rows in [
        vec![journal(batch, 2, 1), adopt("1")],
        vec![adopt("2"), adopt("never sent")],
        vec![journal(batch, 2, 1), adopt("2"), adopt("2")],
    ] {
        assert_eq!(one(store, held(session, rows)).await, Err(Refused::Adopted));
    }
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(store.inbound(session, 10).await.unwrap(), [message(session, "2", "")]);
    assert_eq!(store.post(message(session, "1", "")).await.unwrap(), Posted::Again);
    assert_eq!(store.post(message(session, "1", "other")).await.unwrap(), Posted::Differs);
    assert_eq!(store.inbound(session, 10).await.unwrap().len(), 1);
}
