//! Reads that wait at the same time.

use super::{begin, held, journal, lookup, message, one, open};
use std::fmt::Debug;
use std::sync::Arc;
use windlass_core::ids::{BatchNo, SessionNo};
use windlass_store::{Answer, RecordPage, Row, Space, Store, StoreError};

/// Sessions of the case; there are as many subjects without an answer.
const SESSIONS: u64 = 15;
/// How often every question is asked at once.
const TIMES: usize = 8;

/// Questions that wait at the same time, the same ones several times among them and some about nothing, are each answered as alone.
pub async fn what_is_asked_at_once_is_answered_as_alone(store: &Arc<dyn Store>) {
    let (mut sessions, mut batches) = (Vec::new(), Vec::new());
    for number in 0..SESSIONS {
        let session = open(store, &format!("s{number}")).await;
        let batch = begin(store, session, "k").await;
        // Each has another number of everything.
        let rows = (1..=number % 4).map(|row| journal(batch, row as u32, 1));
        let pairs = (0..number % 5).map(|pair| pair_row(&format!("p{pair}"), &format!("{number}.{pair}")));
        one(store, held(session, rows.chain(pairs).collect())).await.unwrap();
        for key in 0..number % 3 {
            store.post(message(session, &format!("m{key}"), &format!("{number}"))).await.unwrap();
        }
        for second in 0..number % 2 {
            begin(store, session, &format!("second {second}")).await;
        }
        sessions.push(session);
        batches.push(batch);
    }
    sessions.extend((0..SESSIONS).map(|number| SessionNo(1 << 40 | number)));
    batches.extend((0..SESSIONS).map(|number| BatchNo(1 << 40 | number)));
    let names: Vec<String> = (0..2 * SESSIONS).map(|number| format!("s{number}")).collect();

    as_alone(&sessions, |no| store.session_by_no(*no)).await;
    as_alone(&names, |name| store.session(name)).await;
    as_alone(&batches, |no| store.batch_by_no(*no)).await;
    as_alone(&sessions, |no| store.batch(lookup(*no, "k"))).await;
    as_alone(&sessions, |no| store.open_batches(Some(*no))).await;
    as_alone(&batches, |no| store.journal(*no)).await;
    as_alone(&sessions, |no| store.inbound(*no, 1)).await;
    as_alone(&sessions, |no| store.inbound(*no, 10)).await;
    as_alone(&sessions, |no| store.record(Space::Pair.of(*no), "p1")).await;
    as_alone(&sessions, |no| store.count_records(Space::Pair.of(*no))).await;
    let after = [None, Some("p0"), Some("p2")];
    let pages: Vec<_> = sessions.iter().zip(after.iter().cycle()).collect();
    as_alone(&pages, |(no, after)| {
        let shelf = Space::Pair.of(**no);
        store.records(RecordPage { shelf, prefix: "p", after: **after, limit: 1 + no.0 % 3 })
    })
    .await;
}

/// Asks each question alone, then all of them at once and several times over.
async fn as_alone<K, T: Debug + PartialEq + Unpin>(keys: &[K], ask: impl Fn(&K) -> Answer<T>) {
    let mut alone: Vec<Result<T, StoreError>> = Vec::new();
    for key in keys {
        alone.push(ask(key).await);
    }
    let asked: Vec<Answer<T>> = (0..TIMES).flat_map(|_| keys.iter().map(&ask)).collect();
    for (answer, alone) in asked.into_iter().zip(alone.iter().cycle()) {
        assert_eq!(&answer.await.unwrap(), alone.as_ref().unwrap());
    }
}

fn pair_row(key: &str, value: &str) -> Row {
    Row::Put { space: Space::Pair, key: key.to_owned(), value: value.as_bytes().into() }
}
