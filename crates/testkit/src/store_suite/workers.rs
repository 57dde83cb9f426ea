//! Guarantees for several workers on one store: each case has two handles of it, as two processes have.

use super::{begin, held, journal, message, next, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, EntryNo, Fence, SessionNo};
use windlass_store::{
    Change, Guard, Hold, Inbound, Posted, Receipt, RecordPage, Refused, Row, STORE, Sequence, Space, Store,
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
                let take = Change { hold: Hold::Take { from: Fence(1), to: mine }, ..held(session, rows) };
                let behind = Change { hold: Hold::Held(mine), ..held(session, vec![journal(batch, 1, 1)]) };
                let (taken, written) = (handle.commit(vec![take]), handle.commit(vec![behind]));
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

/// A taking that was decided on what a worker's record was is refused, with all that is in it, if the record was put since.
pub async fn a_taking_is_refused_once_its_owner_is_heard_of(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    one(store, held(session, vec![own("a")])).await.unwrap();
    let first = one(store, beat("a", is("a", 0))).await.unwrap().generation;
    let second = one(store, beat("a", is("a", first))).await.unwrap().generation;
    assert!(second > first);
    let take = |generation| Change {
        hold: Hold::Take { from: Fence(1), to: Fence(1).after(7) },
        guards: vec![is("a", generation)],
        ..held(session, vec![own("b"), journal(batch, 1, 1)])
    };
    let before = snapshot(other, session).await;
    assert_eq!(one(other, take(first)).await, Err(Refused::Changed { now: second }));
    assert_eq!(one(other, take(0)).await, Err(Refused::Changed { now: second }));
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(owner(store, session).await.as_deref(), Some("a"));
    one(store, held(session, vec![journal(batch, 1, 1)])).await.unwrap();
    let take = Change { rows: vec![own("b"), journal(batch, 2, 1)], ..take(second) };
    let receipt = one(other, take).await.unwrap();
    assert_eq!(receipt.first, EntryNo(3));
    assert_eq!(owner(store, session).await.as_deref(), Some("b"));
    let stale = held(session, vec![own("a"), journal(batch, 3, 1)]);
    assert_eq!(one(store, stale).await, Err(Refused::Fenced { now: Fence(1).after(7) }));
    assert_eq!(owner(other, session).await.as_deref(), Some("b"));
}

/// Of many who are heard of and many who take at the same time, through both handles, no taking stands that came behind a heartbeat.
pub async fn heartbeats_and_takings_meet_in_one_order(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    for round in 0..8_u32 {
        let id = format!("worker {round}");
        let session = open(store, &id).await;
        let first = one(store, beat(&id, is(&id, 0))).await.unwrap().generation;
        let take = Change {
            hold: Hold::Take { from: Fence(1), to: Fence(1).after(round) },
            guards: vec![is(&id, first)],
            ..held(session, vec![own("taker")])
        };
        // Told by what it does to the same record whether it came first: the taker buries the worker.
        let rows = take.rows.iter().cloned().chain([Row::Remove { space: Space::Worker, key: id.clone() }]);
        let take = Change { rows: rows.collect(), ..take };
        let (beaten, taken) = (store.commit(vec![beat(&id, alive(&id))]), other.commit(vec![take]));
        let (beaten, taken) = (beaten.await.unwrap().remove(0), taken.await.unwrap().remove(0));
        match (&beaten, &taken) {
            (Ok(Receipt { generation, .. }), Err(Refused::Changed { now })) => assert_eq!(now, generation),
            (Err(Refused::Full), Ok(_)) => assert_eq!(owner(store, session).await.as_deref(), Some("taker")),
            told => panic!("one of them came first, and the other knows it: {told:?}"),
        }
    }
}

/// A worker whose record was removed is not heard of again under its id.
pub async fn a_heartbeat_is_refused_once_its_record_is_gone(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let first = one(store, beat("a", is("a", 0))).await.unwrap().generation;
    one(other, beat("b", is("b", 0))).await.unwrap();
    let second = one(store, beat("a", alive("a"))).await.unwrap().generation;
    let bury = |generation| {
        let rows = vec![Row::Remove { space: Space::Worker, key: "a".to_owned() }];
        Change { session: STORE, hold: Hold::Store, guards: vec![is("a", generation)], rows }
    };
    assert_eq!(one(other, bury(first)).await, Err(Refused::Changed { now: second }));
    one(other, bury(second)).await.unwrap();
    assert_eq!(one(store, beat("a", alive("a"))).await, Err(Refused::Full));
    assert_eq!(one(other, bury(second)).await, Err(Refused::Changed { now: 0 }));
    assert_eq!(workers(store).await, ["b"]);
}

/// A change acknowledged through one handle is visible through the other: records, messages, sessions, entries.
pub async fn what_one_handle_wrote_the_other_reads(store: &Arc<dyn Store>, other: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(other, session, "k").await;
    let knock = |key: &str| Row::Put { space: Space::Knock, key: key.to_owned(), value: Arc::from([]) };
    let of_store = |rows| Change { session: STORE, hold: Hold::Store, guards: vec![], rows };
    one(other, of_store(vec![knock("a/1"), knock("a/2"), knock("b/1")])).await.unwrap();
    let knocks = async |handle: &Arc<dyn Store>| {
        let page = RecordPage { session: STORE, space: Space::Knock, prefix: "a/", after: None, limit: 10 };
        let found = handle.records(page).await.unwrap();
        found.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(knocks(store).await, ["a/1", "a/2"]);
    one(store, of_store(vec![Row::Remove { space: Space::Knock, key: "a/1".to_owned() }])).await.unwrap();
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
    let take = Change { hold: Hold::Take { from, to: mine }, ..held(session, vec![own(&who.to_string())]) };
    if one(store, take).await.is_err() {
        return 0;
    }
    let first = store.journal(batch).await.unwrap().len() as u32;
    let write = |row| Change { hold: Hold::Held(mine), ..held(session, vec![journal(batch, row, 1)]) };
    let answers = [store.commit(vec![write(first)]), store.commit(vec![write(first + 1)])];
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
    let record = store.record(session, Space::Owner, "worker").await.unwrap()?;
    Some(String::from_utf8(record.value).unwrap())
}

async fn workers(store: &Arc<dyn Store>) -> Vec<String> {
    let page = RecordPage { session: STORE, space: Space::Worker, prefix: "", after: None, limit: 10 };
    store.records(page).await.unwrap().into_iter().map(|record| record.key).collect()
}

/// A worker is heard of.
fn beat(id: &str, guard: Guard) -> Change {
    let rows = vec![Row::Put { space: Space::Worker, key: id.to_owned(), value: Arc::from([]) }];
    Change { session: STORE, hold: Hold::Store, guards: vec![guard], rows }
}

/// Its record has this generation.
fn is(id: &str, is: u64) -> Guard {
    Guard::Generation { space: Space::Worker, key: id.to_owned(), is }
}

/// Its record is there, whatever its generation.
fn alive(id: &str) -> Guard {
    Guard::Room { space: Space::Worker, key: id.to_owned(), max: 0 }
}
