//! Ownership of sessions, and the changes of former owners.

use super::{begin, bytes, changes, held, journal, lookup, message, next, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, SessionNo};
use windlass_store::{Hold, Receipt, Refused, Row, Sequence, SessionChange, Store};

/// Neither name nor number can be opened twice.
pub async fn a_session_is_opened_once(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let row = store.session("s").await.unwrap().unwrap();
    assert_eq!((row.no, row.fence, row.head), (session, Fence(1), EntryNo(0)));
    assert_eq!(store.session_by_no(session).await.unwrap(), Some(row));
    let open_as = |no, name: &str| SessionChange {
        session: no,
        hold: Hold::Open { name: name.to_owned(), principal: None },
        guards: vec![],
        rows: vec![],
    };
    let other = SessionNo(next(store, Sequence::Session).await);
    assert_eq!(one(store, open_as(other, "s")).await, Err(Refused::Exists));
    assert_eq!(one(store, open_as(session, "t")).await, Err(Refused::Exists));
    assert_eq!(store.session("t").await.unwrap(), None);
    assert_eq!(store.session_by_no(other).await.unwrap(), None);
    assert!(one(store, open_as(other, "t")).await.is_ok());
}

/// Once a session was taken, its old owner writes nothing, and nobody writes to a session that is not there.
pub async fn a_stale_owner_changes_nothing(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    store.post(message(session, "m", "hello")).await.unwrap();
    let take = SessionChange {
        hold: Hold::Take { from: Fence(1), to: Fence(2) },
        ..held(session, vec![journal(batch, 1, 1)])
    };
    assert_eq!(one(store, take).await, Ok(Receipt { first: EntryNo(2), generation: 0 }));
    let before = snapshot(store, session).await;
    let blob = BlobNo(next(store, Sequence::Blob).await);
    let stale_rows = [
        vec![],
        vec![journal(batch, 2, 1)],
        vec![Row::Close(batch)],
        vec![Row::Adopt { key: "m".to_owned() }],
        vec![Row::Chunk { blob, seq: 0, data: bytes("x") }],
        vec![Row::Batch { no: BatchNo(next(store, Sequence::Batch).await), lookup: lookup(session, "n") }],
    ];
    for rows in stale_rows {
        assert_eq!(one(store, held(session, rows)).await, Err(Refused::Fenced { now: Fence(2) }));
    }
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(store.blob(blob, 0, 1).await.unwrap(), None);
    let owner = SessionChange { hold: Hold::Held(Fence(2)), ..held(session, vec![journal(batch, 2, 1)]) };
    assert_eq!(one(store, owner).await, Ok(Receipt { first: EntryNo(3), generation: 0 }));

    let nowhere = SessionNo(next(store, Sequence::Session).await);
    for hold in [Hold::Held(Fence(1)), Hold::Held(Fence(0)), Hold::Take { from: Fence(0), to: Fence(1) }] {
        let change = SessionChange { hold, ..held(nowhere, vec![]) };
        assert_eq!(one(store, change).await, Err(Refused::Fenced { now: Fence(0) }));
    }
}

/// Two who read the same fence cannot both take the session, in one commit or in two.
pub async fn of_two_who_take_one_wins(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let take = |from, to| SessionChange { hold: Hold::Take { from, to }, ..held(session, vec![]) };
    let (one_of, other) = (Fence(1).after(7), Fence(1).after(8));
    let answers = store.commit(changes([take(Fence(1), one_of), take(Fence(1), other)])).await.unwrap();
    assert_eq!(
        answers,
        [Ok(Receipt { first: EntryNo(2), generation: 0 }), Err(Refused::Fenced { now: one_of })]
    );
    for not_larger in [one_of, Fence(1)] {
        let refused = one(store, take(one_of, not_larger)).await;
        assert_eq!(refused, Err(Refused::Fenced { now: one_of }));
    }
    // Each sends a change behind its taking, before it knows whether it has won.
    let racers: Vec<_> = (0..8)
        .map(|racer| {
            let (store, mine) = (Arc::clone(store), one_of.after(racer));
            let behind =
                SessionChange { hold: Hold::Held(mine), ..held(session, vec![journal(batch, 1, 1)]) };
            let (taken, written) =
                (store.commit(vec![take(one_of, mine).into()]), store.commit(vec![behind.into()]));
            tokio::spawn(async move { (taken.await.unwrap().remove(0), written.await.unwrap().remove(0)) })
        })
        .collect();
    let mut won = 0;
    for racer in racers {
        match racer.await.unwrap() {
            (Ok(_), Ok(_)) => won += 1,
            (taken, written) => assert!(taken.is_err() && written.is_err(), "{taken:?} and {written:?}"),
        }
    }
    assert_eq!(won, 1);
    assert!(store.session("s").await.unwrap().unwrap().fence > one_of);
}
