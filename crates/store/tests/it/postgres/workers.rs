//! Two who write to one database, each through a handle of its own.

use super::{cluster, open};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, SessionNo};
use windlass_store::{Change, Hold, Receipt, Refused, Row, Sequence, SessionChange, Store};
use windlass_testkit::store_suite::{begin, held, journal, lookup, next, one, open as open_session};

async fn two() -> Option<[Arc<dyn Store>; 2]> {
    Some(two_on(&cluster()?.database()).await)
}

async fn two_on(database: &str) -> [Arc<dyn Store>; 2] {
    // Both find it empty, or one waits for the other to have made it.
    let (a, b) = tokio::join!(open(database), open(database));
    assert_eq!(a.secret().0, b.secret().0);
    [a, b]
}

fn with(hold: Hold, session: SessionNo, rows: Vec<Row>) -> SessionChange {
    SessionChange { hold, ..held(session, rows) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_who_take_one_wins() {
    let Some([a, b]) = two().await else { return };
    let mut won = [0, 0];
    for turn in 0..40 {
        let session = open_session(&a, &turn.to_string()).await;
        let batch = begin(&a, session, "k").await;
        let take = || with(Hold::Take { from: Fence(1), to: Fence(2) }, session, vec![journal(batch, 1, 1)]);
        let race = [&a, &b].map(|store| store.commit(vec![take().into()]));
        let mut winners = Vec::new();
        for (worker, answer) in race.into_iter().enumerate() {
            match answer.await.unwrap()[0] {
                Ok(receipt) => {
                    assert_eq!(receipt, Receipt { first: EntryNo(2), generation: 0 });
                    winners.push(worker);
                }
                refused => assert_eq!(refused, Err(Refused::Fenced { now: Fence(2) })),
            }
        }
        assert_eq!(winners.len(), 1, "in turn {turn}");
        won[winners[0]] += 1;
        assert_eq!(b.session_by_no(session).await.unwrap().unwrap().fence, Fence(2));
    }
    println!("won: {won:?}");
}

/// One name, two who open it under numbers of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_opened_by_one_worker() {
    let Some([a, b]) = two().await else { return };
    for turn in 0..20 {
        let mut race = Vec::new();
        for store in [&a, &b] {
            let session = SessionNo(next(store, Sequence::Session).await);
            let hold = Hold::Open { name: turn.to_string(), principal: None };
            race.push(Change::from(with(hold, session, vec![])));
        }
        let second = race.pop().unwrap();
        let (first, second) = (a.commit(race), b.commit(vec![second]));
        let answers = [first.await.unwrap()[0], second.await.unwrap()[0]];
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        assert!(answers.contains(&Err(Refused::Exists)), "{answers:?}");
    }
}

/// The old owner goes on as if nothing had happened, in every way it could, while the new one writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_stale_writes_change_nothing() {
    const STALE: u32 = 1_000;
    let Some([old, new]) = two().await else { return };
    let session = open_session(&old, "s").await;
    let batch = begin(&old, session, "k").await;
    one(&new, with(Hold::Take { from: Fence(1), to: Fence(2) }, session, vec![])).await.unwrap();
    let blob = BlobNo(next(&old, Sequence::Blob).await);
    let other = BatchNo(next(&old, Sequence::Batch).await);
    let stale = |turn: u32| match turn % 5 {
        0 => vec![journal(batch, 1 + turn, 1)],
        1 => vec![Row::Close(batch)],
        2 => vec![Row::Chunk { blob, seq: turn, data: b"x"[..].into() }],
        3 => vec![Row::Batch { no: other, lookup: lookup(session, "other") }, journal(other, 0, 1)],
        _ => vec![],
    };
    let written = tokio::spawn({
        let new = Arc::clone(&new);
        async move {
            let mine = |row| with(Hold::Held(Fence(2)), session, vec![journal(batch, row, 2)]);
            for row in 1..101 {
                let receipt = one(&new, mine(row)).await.unwrap();
                assert_eq!(receipt.first, EntryNo(2 * u64::from(row)));
            }
        }
    });
    let mut accepted = 0;
    for turns in (0..STALE).collect::<Vec<_>>().chunks(10) {
        let sent: Vec<_> =
            turns.iter().map(|turn| old.commit(vec![held(session, stale(*turn)).into()])).collect();
        for answer in sent {
            match answer.await.unwrap()[0] {
                Ok(_) => accepted += 1,
                refused => assert_eq!(refused, Err(Refused::Fenced { now: Fence(2) })),
            }
        }
    }
    written.await.unwrap();
    assert_eq!(accepted, 0, "of {STALE} stale writes");
    assert_eq!(new.history(session, None, 1_000).await.unwrap().len(), 101);
    assert_eq!(new.blob(blob, 0, 1).await.unwrap(), None);
    assert_eq!(new.batch(lookup(session, "other")).await.unwrap(), None);
    assert!(new.batch(lookup(session, "k")).await.unwrap().unwrap().open);
}

/// Both want the same sessions, write a few rows with each taking, and lose them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_change_hands_stay_in_order_without_gaps() {
    const TAKINGS: usize = 15;
    let Some(workers) = two().await else { return };
    let mut sessions = Vec::new();
    for name in 0..6 {
        let session = open_session(&workers[0], &name.to_string()).await;
        sessions.push((session, begin(&workers[0], session, "k").await));
    }
    let mut running = Vec::new();
    for (worker, store) in workers.iter().enumerate() {
        for (session, batch) in sessions.clone() {
            let store = Arc::clone(store);
            running.push(tokio::spawn(async move { takings(&store, session, batch, worker).await }));
        }
    }
    let mut applied = 0;
    for worker in running {
        applied += worker.await.unwrap();
    }
    let mut kept = 0;
    for (session, _) in &sessions {
        let history = workers[1].history(*session, None, 10_000).await.unwrap();
        let row = workers[0].session_by_no(*session).await.unwrap().unwrap();
        let entries: u64 = history.iter().map(|row| u64::from(row.count)).sum();
        assert_eq!(row.head, EntryNo(entries), "numbers without gaps");
        kept += history.len() - 1;
        // Of each worker, the rows are in the order in which it sent them.
        for own in [0, 1] {
            let rows = history.iter().rev().skip(1).map(|row| row.row).filter(|row| row % 2 == own);
            assert!(rows.collect::<Vec<_>>().is_sorted());
        }
    }
    assert_eq!(kept, applied, "what was acknowledged is what is there");

    /// Takes the session again and again; how many rows were acknowledged.
    async fn takings(store: &Arc<dyn Store>, session: SessionNo, batch: BatchNo, worker: usize) -> usize {
        let (mut applied, mut row) = (0, 1 + worker as u32);
        for _taking in 0..TAKINGS {
            let from = store.session_by_no(session).await.unwrap().unwrap().fence;
            row += 2;
            let to = from.after(worker as u32);
            let take = with(Hold::Take { from, to }, session, vec![journal(batch, row, 1)]);
            if one(store, take).await.is_err() {
                continue;
            }
            applied += 1;
            let mut sent = Vec::new();
            for count in 2..6 {
                row += 2;
                let mine = Hold::Held(to);
                sent.push(store.commit(vec![with(mine, session, vec![journal(batch, row, count)]).into()]));
            }
            let mut refused = false;
            for answer in sent {
                match answer.await.unwrap()[0] {
                    Ok(_) => {
                        assert!(!refused, "nothing of an owner is applied after something of it was refused");
                        applied += 1;
                    }
                    Err(Refused::Fenced { .. }) => refused = true,
                    other => panic!("{other:?}"),
                }
            }
        }
        applied
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_are_reserved_by_one_worker() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let workers = two_on(&url).await;
    let mut running = Vec::new();
    for turn in 0..400_u64 {
        let store = Arc::clone(&workers[turn as usize % 2]);
        let count = if turn == 200 { 5_000 } else { turn % 37 + 1 };
        running
            .push(tokio::spawn(async move { (store.reserve(Sequence::Batch, count).await.unwrap(), count) }));
    }
    let mut got = Vec::new();
    for asker in running {
        let (from, count) = asker.await.unwrap();
        got.extend(from..from + count);
    }
    let count = got.len();
    got.sort_unstable();
    got.dedup();
    assert_eq!((got.len(), got[0]), (count, 1));
    // Whoever comes later gets none of them, though blocks are left.
    drop(workers);
    let [later, _] = two_on(&url).await;
    assert!(later.reserve(Sequence::Batch, 1).await.unwrap() > got[count - 1]);
}

/// The owner of a session knows that a batch is new without asking, also after it took the session; whoever else reads sees what is
/// there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_known_to_be_new_by_its_owner() {
    let Some([one_worker, other]) = two().await else { return };
    let session = open_session(&one_worker, "s").await;
    let known = begin(&one_worker, session, "known").await;
    let is_new =
        |store: &Arc<dyn Store>, fence, key| store.is_new(session, Fence(fence), lookup(session, key));
    assert!(is_new(&one_worker, 1, "new") && !is_new(&one_worker, 1, "known"));
    assert!(!is_new(&other, 1, "new"), "it knows nothing of the session");
    assert!(!is_new(&one_worker, 2, "new"), "another owner may have added it");
    // Another one takes it, and adds a batch.
    let hold = Hold::Take { from: Fence(1), to: Fence(7) };
    let no = BatchNo(next(&other, Sequence::Batch).await);
    let rows = vec![Row::Batch { no, lookup: lookup(session, "later") }, journal(no, 0, 1)];
    one(&other, SessionChange { hold, ..held(session, rows) }).await.unwrap();
    assert!(is_new(&other, 7, "new") && !is_new(&other, 8, "new"));
    assert!(["known", "later"].iter().all(|key| !is_new(&other, 7, key)), "what others added is known too");
    let found = one_worker.batch(lookup(session, "later")).await.unwrap().unwrap();
    assert_eq!(
        (found.no, one_worker.batch(lookup(session, "known")).await.unwrap().unwrap().no),
        (no, known)
    );
    // Taken back, it is read again.
    let hold = Hold::Take { from: Fence(7), to: Fence(9) };
    one(&one_worker, SessionChange { hold, ..held(session, vec![]) }).await.unwrap();
    assert!(is_new(&one_worker, 9, "new") && !is_new(&one_worker, 1, "new"));
    assert!(["known", "later"].iter().all(|key| !is_new(&one_worker, 9, key)));
}
