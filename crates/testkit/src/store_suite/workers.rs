//! Guarantees for several workers on one store: each case has two handles of it, as two processes have.

use super::{begin, held, journal, message, next, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, EntryNo, Fence, SessionNo};
use windlass_store::{
    Hold, Inbound, Posted, Receipt, RecordChange, RecordGuard, RecordPage, Refused, Row, Sequence,
    SessionChange, Space, Store, StoreSpace,
};

/// Of several takers of a session through either handle, one wins, and the changes that the others sent after their takings are refused.
pub async fn of_two_handles_one_takes_a_session(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    for round in 0..8 {
        let session = open(store, &format!("s{round}")).await;
        let batch = begin(store, session, "k").await;
        let racers: Vec<_> = (0..6)
            .map(|racer| {
                let handle = Arc::clone(if racer % 2 == 0 { store } else { other });
                let (id, mine) = (format!("worker {racer}"), Fence(1).after(racer));
                let rows = vec![own(&id)];
                let take =
                    SessionChange { hold: Hold::Take { from: Fence(1), to: mine }, ..held(session, rows) };
                let behind =
                    SessionChange { hold: Hold::Held(mine), ..held(session, vec![journal(batch, 1, 1)]) };
                let (taken, written) = (handle.commit(vec![take.into()]), handle.commit(vec![behind.into()]));
                tokio::spawn(async move {
                    let (taken, written) = (taken.await.unwrap().remove(0), written.await.unwrap().remove(0));
                    assert_eq!(taken.is_ok(), written.is_ok(), "{taken:?} and {written:?}");
                    taken.is_ok().then_some((id, mine))
                })
            })
            .collect();
        let mut won = Vec::new();
        for racer in racers {
            won.extend(racer.await.unwrap());
        }
        let [(id, fence)] = &won[..] else { panic!("one wins, and not {won:?}") };
        for handle in [store, other] {
            assert_eq!(handle.session_by_no(session).await.unwrap().unwrap().fence, *fence);
            assert_eq!(owner(handle, session).await.as_deref(), Some(id.as_str()));
            assert_eq!(handle.journal(batch).await.unwrap().len(), 2);
        }
    }
}

/// Changes that a former owner sends, several at a time and before it knows of its loss, are all refused, whether or not the taker
/// has written anything; and the taker continues as if they had not been sent.
pub async fn changes_of_a_former_owner_are_refused(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    for (round, taken_rows) in (0..6).zip([0, 1, 2].into_iter().cycle()) {
        let session = open(store, &format!("s{round}")).await;
        let batch = begin(store, session, "k").await;
        let mut row = 0;
        let mut entries = |count: u32| {
            (0..count)
                .map(|_| {
                    row += 1;
                    journal(batch, row, 1)
                })
                .collect::<Vec<_>>()
        };
        for _ in 0..3 {
            one(store, held(session, entries(1))).await.unwrap();
        }
        let mine = Fence(1).after(round);
        let by = |hold, rows| SessionChange { hold, ..held(session, rows) };
        let taken = by(Hold::Take { from: Fence(1), to: mine }, entries(taken_rows));
        assert_eq!(one(other, taken).await, Ok(Receipt { first: EntryNo(5), generation: 0 }));
        let before = snapshot(other, session).await;
        let late = [vec![journal(batch, 90, 1)], vec![journal(batch, 91, 2)], vec![Row::Close(batch)]];
        let pair = || Row::Put { space: Space::Pair, key: "p".to_owned(), value: [1].into() };
        let late = late.into_iter().chain([vec![], vec![pair()], vec![journal(batch, 92, 1), pair()]]);
        let sent: Vec<_> = late.map(|rows| store.commit(vec![held(session, rows).into()])).collect();
        for answer in sent {
            assert_eq!(answer.await.unwrap(), [Err(Refused::Fenced { now: mine })]);
        }
        assert_eq!(snapshot(other, session).await, before);
        let first = EntryNo(5 + u64::from(taken_rows));
        let next = one(other, by(Hold::Held(mine), entries(1))).await;
        assert_eq!(next, Ok(Receipt { first, generation: 0 }));
    }
}

/// A worker is declared dead, by the record that was read, before its sessions are taken: of heartbeat and declaration one is
/// refused, and knows it.
pub async fn heartbeats_and_declarations_meet_in_one_order(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    for round in 0..8_u32 {
        let id = format!("worker {round}");
        let first = one(store, beat(&id, 0)).await.unwrap().generation;
        let second = one(store, beat(&id, first)).await.unwrap().generation;
        assert!(second > first);
        assert_eq!(one(other, dead(&id, first)).await, Err(Refused::Changed { now: second }));
        let (beaten, declared) =
            (store.commit(vec![beat(&id, second).into()]), other.commit(vec![dead(&id, second).into()]));
        let (beaten, declared) = (beaten.await.unwrap().remove(0), declared.await.unwrap().remove(0));
        let value = store.record(StoreSpace::Worker.shelf(), &id).await.unwrap().unwrap().value;
        match (&beaten, &declared) {
            (Ok(Receipt { generation, .. }), Err(Refused::Changed { now })) => {
                assert_eq!((now, &value[..]), (generation, &b""[..]));
            }
            (Err(Refused::Changed { now }), Ok(Receipt { generation, .. })) => {
                assert_eq!((now, &value[..]), (generation, &b"dead"[..]));
                assert!(one(store, beat(&id, second)).await.is_err(), "it stays dead");
            }
            told => panic!("one of them came first, and the other knows it: {told:?}"),
        }
    }
}

/// A worker whose record was removed is not heard of again under its id.
pub async fn a_heartbeat_is_refused_once_its_record_is_gone(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let first = one(store, beat("a", 0)).await.unwrap().generation;
    one(other, beat("b", 0)).await.unwrap();
    let second = one(store, beat("a", first)).await.unwrap().generation;
    let bury = |generation| {
        RecordChange::remove(StoreSpace::Worker, "a").guarded(RecordGuard::Generation(generation))
    };
    assert_eq!(one(other, bury(first)).await, Err(Refused::Changed { now: second }));
    one(other, bury(second)).await.unwrap();
    assert_eq!(one(store, beat("a", second)).await, Err(Refused::Changed { now: 0 }));
    assert_eq!(one(other, bury(second)).await, Err(Refused::Changed { now: 0 }));
    assert_eq!(workers(store).await, ["b"]);
}

/// A change acknowledged through one handle is visible through the other: records, messages, sessions, entries.
pub async fn what_one_handle_wrote_the_other_reads(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(other, session, "k").await;
    for key in ["a/1", "a/2", "b/1"] {
        one(other, RecordChange::put(StoreSpace::Knock, key, [])).await.unwrap();
    }
    let knocks = async |handle: &Arc<dyn Store>| {
        let page = RecordPage { shelf: StoreSpace::Knock.shelf(), prefix: "a/", after: None, limit: 10 };
        let found = handle.records(page).await.unwrap();
        found.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(knocks(store).await, ["a/1", "a/2"]);
    one(store, RecordChange::remove(StoreSpace::Knock, "a/1")).await.unwrap();
    assert_eq!(knocks(other).await, ["a/2"]);
    assert_eq!(other.post(message(session, "m", "hello")).await.unwrap(), Posted::New);
    assert_eq!(store.post(message(session, "m", "hello")).await.unwrap(), Posted::Again);
    let waiting: Vec<Inbound> = store.inbound(session, 10).await.unwrap();
    assert_eq!(waiting.iter().map(|message| message.key.as_str()).collect::<Vec<_>>(), ["m"]);
    one(store, held(session, vec![Row::Adopt { key: "m".to_owned() }, journal(batch, 1, 2)])).await.unwrap();
    assert_eq!(other.inbound(session, 10).await.unwrap(), []);
    assert_eq!(other.session("s").await.unwrap().unwrap().head, EntryNo(3));
    assert_eq!(snapshot(other, session).await, snapshot(store, session).await);
    let numbers: Vec<u64> =
        [next(store, Sequence::Batch).await, next(other, Sequence::Batch).await].into_iter().collect();
    assert_ne!(numbers[0], numbers[1], "a number is handed out once, whoever asks");
}

/// Two owners take many sessions from each other while both write: each journal has one order without gaps, and nothing of one who was
/// not the owner then.
pub async fn what_two_owners_write_keeps_its_order(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let mut sessions = Vec::new();
    for no in 0..12 {
        let session = open(store, &format!("s{no}")).await;
        sessions.push((session, begin(store, session, "k").await));
    }
    let owners = [(store, 1_u32), (other, 2)].map(|(handle, who)| {
        let (handle, sessions) = (Arc::clone(handle), sessions.clone());
        tokio::spawn(async move {
            let mut written = 0;
            for turn in 0..10 {
                for (session, batch) in &sessions {
                    written += take_and_write(&handle, *session, *batch, who, turn).await;
                }
            }
            written
        })
    });
    let mut written = 0;
    for owner in owners {
        written += owner.await.unwrap();
    }
    let mut kept = 0;
    for (session, batch) in sessions {
        let rows = other.journal(batch).await.unwrap();
        let mut next = 1;
        for (row, place) in rows.iter().zip(0..) {
            assert_eq!((row.row, row.first, row.session), (place, EntryNo(next), session));
            next += u64::from(row.count);
        }
        assert_eq!(store.history(session, None, 1_000).await.unwrap().len(), rows.len());
        kept += rows.len() - 1;
    }
    assert_eq!(kept, written, "what was acknowledged is there, and nothing else");
}

/// Takes a session, reads what is there, and writes two rows; until somebody else takes it. How many were taken.
async fn take_and_write(
    store: &Arc<dyn Store>,
    session: SessionNo,
    batch: BatchNo,
    who: u32,
    turn: u32,
) -> usize {
    let from = store.session_by_no(session).await.unwrap().unwrap().fence;
    let mine = from.after(who * 100 + turn);
    let take =
        SessionChange { hold: Hold::Take { from, to: mine }, ..held(session, vec![own(&who.to_string())]) };
    if one(store, take).await.is_err() {
        return 0;
    }
    let first = store.journal(batch).await.unwrap().len() as u32;
    let write = |row| SessionChange { hold: Hold::Held(mine), ..held(session, vec![journal(batch, row, 1)]) };
    let answers = [store.commit(vec![write(first).into()]), store.commit(vec![write(first + 1).into()])];
    let mut written = 0;
    for (answer, place) in answers.into_iter().zip(0..) {
        match answer.await.unwrap().remove(0) {
            Ok(_) => {
                assert_eq!(written, place, "what is behind a refused change is refused too");
                written += 1;
            }
            Err(refused) => assert!(matches!(refused, Refused::Fenced { .. }), "{refused:?}"),
        }
    }
    written
}

fn own(id: &str) -> Row {
    Row::Put { space: Space::Owner, key: "worker".to_owned(), value: id.as_bytes().into() }
}

async fn owner(store: &Arc<dyn Store>, session: SessionNo) -> Option<String> {
    let record = store.record(Space::Owner.of(session), "worker").await.unwrap()?;
    Some(String::from_utf8(record.value).unwrap())
}

async fn workers(store: &Arc<dyn Store>) -> Vec<String> {
    let page = RecordPage { shelf: StoreSpace::Worker.shelf(), prefix: "", after: None, limit: 10 };
    store.records(page).await.unwrap().into_iter().map(|record| record.key).collect()
}

/// A worker is heard of, whose record has this generation.
fn beat(id: &str, is: u64) -> RecordChange {
    RecordChange::put(StoreSpace::Worker, id, []).guarded(RecordGuard::Generation(is))
}

/// A worker is declared dead, whose record has this generation.
fn dead(id: &str, is: u64) -> RecordChange {
    RecordChange::put(StoreSpace::Worker, id, *b"dead").guarded(RecordGuard::Generation(is))
}
