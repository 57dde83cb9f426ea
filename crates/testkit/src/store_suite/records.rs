//! Records: small rows by key, of a session or of the whole store.

use super::{begin, changes, held, journal, one, open, snapshot};
use std::sync::Arc;
use windlass_core::ids::{Fence, SessionNo};
use windlass_store::{
    Guard, Hold, RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, RecordChange, RecordGuard, RecordPage,
    Refused, Row, SessionChange, Space, Store, StoreSpace,
};

/// A record is replaced and removed, goes with its change or not at all, and has no generation twice.
pub async fn a_record_is_what_was_put_last(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let batch = begin(store, session, "k").await;
    assert_eq!(read(store, session, "a").await, None);
    let receipt = one(store, held(session, vec![put("a", "1"), journal(batch, 1, 1)])).await.unwrap();
    assert_eq!((receipt.first.0, read(store, session, "a").await), (2, of("1", receipt.generation)));
    assert_eq!(one(store, held(session, vec![journal(batch, 2, 1)])).await.unwrap().generation, 0);
    // The same key of another session is another record, and what lies beside it stays.
    let others = one(store, held(other, vec![put("a", "x"), put("", "y")])).await.unwrap().generation;
    assert_eq!(read(store, other, "a").await, of("x", others - 1));
    assert_eq!(read(store, other, "").await, of("y", others));
    assert_eq!(read(store, session, "a").await, of("1", receipt.generation));
    // Twice in one change, and in two changes of one commit: the last one counts.
    let sent = vec![
        held(session, vec![put("a", "2"), put("a", "3"), put("b", "4"), remove("b")]),
        held(session, vec![remove("a"), put("a", "5"), remove("never there")]),
    ];
    let answers = store.commit(changes(sent)).await.unwrap();
    let last = answers[1].unwrap().generation;
    assert!(last > answers[0].unwrap().generation);
    assert_eq!(read(store, session, "a").await, of("5", last));
    assert_eq!(read(store, session, "b").await, None);
    // What was removed and is put again is not what it was.
    one(store, held(session, vec![remove("a")])).await.unwrap();
    assert_eq!(read(store, session, "a").await, None);
    let again = one(store, held(session, vec![put("a", "5")])).await.unwrap().generation;
    assert!(again > last);
    let stale =
        SessionChange { hold: Hold::Held(Fence(9)), ..held(session, vec![put("a", "6"), remove("a")]) };
    assert_eq!(one(store, stale).await, Err(Refused::Fenced { now: Fence(1) }));
    let half_way = held(session, vec![put("a", "6"), put("c", "6"), journal(batch, 0, 1)]);
    assert_eq!(one(store, half_way).await, Err(Refused::Exists));
    assert_eq!(read(store, session, "a").await, of("5", again));
    assert_eq!(read(store, session, "c").await, None);
}

/// A write after a read is refused if the record was written in between, with everything else in the change.
pub async fn a_guard_on_a_record_refuses_the_whole_change(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let batch = begin(store, session, "k").await;
    let guarded =
        |is, rows| SessionChange { guards: vec![generation(Space::Pair, "a", is)], ..held(session, rows) };
    let first = one(store, guarded(0, vec![put("a", "1")])).await.unwrap().generation;
    let before = snapshot(store, session).await;
    for is in [0, first + 1, u64::from(u32::MAX)] {
        let change = guarded(is, vec![put("a", "2"), put("b", "2"), journal(batch, 1, 1), remove("a")]);
        assert_eq!(one(store, change).await, Err(Refused::Changed { now: first }));
    }
    assert_eq!(snapshot(store, session).await, before);
    assert_eq!(read(store, session, "a").await, of("1", first));
    assert_eq!(read(store, session, "b").await, None);
    // Of those who read the same, in one commit, the first wins, and neighbours do not notice.
    let sent = vec![
        guarded(first, vec![put("a", "2")]),
        guarded(first, vec![put("a", "3")]),
        held(session, vec![put("b", "4")]),
        guarded(first, vec![remove("a")]),
    ];
    let answers = store.commit(changes(sent)).await.unwrap();
    let second = answers[0].unwrap().generation;
    assert_eq!((answers[1], answers[3]), (changed(second), changed(second)));
    assert_eq!(read(store, session, "a").await, of("2", second));
    assert_eq!(read(store, session, "b").await, of("4", answers[2].unwrap().generation));
    one(store, guarded(second, vec![remove("a")])).await.unwrap();
    assert_eq!(one(store, guarded(second, vec![put("a", "5")])).await, changed(0));
    one(store, guarded(0, vec![journal(batch, 1, 1)])).await.unwrap();
}

/// A record that is there can be replaced when there is no room for another.
pub async fn a_space_has_room_for_so_many(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    one(store, held(other, vec![put("x", ""), put("y", ""), put("z", "")])).await.unwrap();
    let insert = |key: &str| {
        let room = Guard::Room { space: Space::Pair, key: key.to_owned(), max: 2 };
        SessionChange { guards: vec![room], ..held(session, vec![put(key, "1")]) }
    };
    let sent = ["a", "b", "c", "a", "d"].map(insert);
    let answers = store.commit(changes(sent)).await.unwrap();
    let refused: Vec<_> = answers.iter().map(|answer| answer.err()).collect();
    assert_eq!(refused, [None, None, Some(Refused::Full), None, Some(Refused::Full)]);
    assert_eq!(read(store, session, "c").await, None);
    let count = async |session| store.count_records(Space::Pair.of(session)).await.unwrap();
    assert_eq!((count(session).await, count(other).await, count(SessionNo(99)).await), (2, 3, 0));
    one(store, held(session, vec![remove("a"), remove("a")])).await.unwrap();
    let answers = store.commit(changes(["c", "d"].map(insert))).await.unwrap();
    assert_eq!((answers[0].is_ok(), answers[1].err()), (true, Some(Refused::Full)));
    let none = Guard::Room { space: Space::Pair, key: "n".to_owned(), max: 0 };
    let none = SessionChange { guards: vec![none], ..held(session, vec![]) };
    assert_eq!(one(store, none).await, Err(Refused::Full));
}

/// Of those who claim a key only the first gets it, in one commit, in several and in one change.
pub async fn a_key_is_claimed_once(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let claim = |key: &str| Row::Claim { space: Space::GrantUse, key: key.to_owned() };
    let batch = begin(store, session, "k").await;
    let sent = vec![
        held(session, vec![claim("g 1"), journal(batch, 1, 1)]),
        held(session, vec![journal(batch, 2, 1), claim("g 1")]),
        held(session, vec![claim("g 2")]),
        held(other, vec![claim("g 1")]),
        held(session, vec![claim("g 3"), claim("g 3")]),
    ];
    let answers = store.commit(changes(sent)).await.unwrap();
    let refused: Vec<_> = answers.iter().map(|answer| answer.err()).collect();
    assert_eq!(refused, [None, Some(Refused::Exists), None, None, Some(Refused::Exists)]);
    assert_eq!(one(store, held(session, vec![claim("g 1")])).await, Err(Refused::Exists));
    let keys = async || {
        let page = RecordPage { shelf: Space::GrantUse.of(session), prefix: "g ", after: None, limit: 9 };
        store.records(page).await.unwrap().into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(keys().await, ["g 1", "g 2"]);
    // Nothing of a refused change is there: its entry goes into the same row again.
    one(store, held(session, vec![journal(batch, 2, 1), claim("g 3")])).await.unwrap();
    // One that was put is taken too; one that was removed is free.
    let put = Row::Put { space: Space::GrantUse, key: "g 4".to_owned(), value: Arc::from(*b"v") };
    assert_eq!(one(store, held(session, vec![put.clone(), claim("g 4")])).await, Err(Refused::Exists));
    let removed = Row::Remove { space: Space::GrantUse, key: "g 1".to_owned() };
    one(store, held(session, vec![removed])).await.unwrap();
    one(store, held(session, vec![claim("g 1"), put])).await.unwrap();
    assert_eq!(keys().await, ["g 1", "g 2", "g 3", "g 4"]);
}

/// In the order of their bytes, after a key, by how they begin, not more than asked for.
pub async fn records_are_read_in_pages_by_key(store: &Arc<dyn Store>) {
    let (session, other) = (open(store, "s").await, open(store, "t").await);
    let keys = ["", "A", "a", "a\0", "a/1", "a/10", "a/2", "ab", "b", "z", "ä"];
    for key in keys.into_iter().rev() {
        one(store, held(session, vec![put(key, key)])).await.unwrap();
    }
    one(store, held(other, vec![put("a/0", "other")])).await.unwrap();
    let listed = async |prefix: &str, after: Option<&str>, limit| {
        let page = RecordPage { shelf: Space::Pair.of(session), prefix, after, limit };
        let found = store.records(page).await.unwrap();
        assert!(found.iter().all(|record| record.value == record.key.as_bytes() && record.generation > 0));
        found.into_iter().map(|record| record.key).collect::<Vec<_>>()
    };
    assert_eq!(listed("", None, 100).await, keys);
    assert_eq!(listed("", Some(""), 2).await, keys[1..3]);
    assert_eq!(listed("", Some("a/10"), 100).await, keys[6..]);
    assert_eq!(listed("", Some("a/1x"), 1).await, keys[6..7]);
    assert_eq!(listed("a", None, 100).await, keys[2..8]);
    assert_eq!(listed("a/", None, 100).await, keys[4..7]);
    assert_eq!(listed("a/", Some("a/1"), 1).await, keys[5..6]);
    assert_eq!(listed("a/", Some("A"), 1).await, keys[4..5]);
    assert_eq!(listed("a/", Some("b"), 100).await, keys[..0]);
    assert_eq!(listed("nothing", None, 100).await, keys[..0]);
    assert_eq!(listed("", None, 0).await, keys[..0]);
    for page in [1, 3, 11] {
        let mut read = Vec::new();
        loop {
            let after = read.last().cloned();
            let more = listed("", after.as_deref(), page).await;
            if more.is_empty() {
                break;
            }
            read.extend(more);
        }
        assert_eq!(read, keys, "in pages of {page}");
    }
}

/// Those with a record in a space, in pages, each once; not those whose record was removed, or lies in another space.
pub async fn sessions_are_found_by_what_they_keep(store: &Arc<dyn Store>) {
    let armed = |key: &str| Row::Put { space: Space::Armed, key: key.to_owned(), value: [].into() };
    let mut expected = Vec::new();
    for no in 0..9 {
        let session = open(store, &format!("s{no}")).await;
        let rows = match no % 3 {
            0 => vec![put("a", "1")],
            1 => vec![armed("x"), armed("y"), put("a", "1")],
            _ => vec![armed("x"), Row::Remove { space: Space::Armed, key: "x".to_owned() }],
        };
        one(store, held(session, rows)).await.unwrap();
        if no % 3 == 1 {
            expected.push((session, format!("s{no}")));
        }
    }
    for limit in [1, 2, 3, 10] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.sessions_with(Space::Armed, after, limit).await.unwrap();
            assert!(page.len() as u64 <= limit);
            let Some(last) = page.last() else { break };
            after = Some(last.no);
            found.extend(page.into_iter().map(|session| (session.no, session.name)));
        }
        assert_eq!(found, expected, "in pages of {limit}");
    }
    assert_eq!(store.sessions_with(Space::Trigger, None, 10).await.unwrap(), []);
}

/// They are written one by one, by anybody, without a session, under a guard on the record itself.
pub async fn records_of_the_store_are_nobodys(store: &Arc<dyn Store>) {
    let token = |value: &str| RecordChange::put(StoreSpace::Token, "t", value.as_bytes());
    let read = async || {
        let found = store.record(StoreSpace::Token.shelf(), "t").await.unwrap();
        found.map(|record| (String::from_utf8(record.value).unwrap(), record.generation))
    };
    // Nothing is there yet, not even a session.
    let first = one(store, token("1")).await.unwrap().generation;
    assert_eq!(read().await, of("1", first));
    // What a session keeps under the same key is another record.
    let session = open(store, "s").await;
    one(store, held(session, vec![put("t", "of the session")])).await.unwrap();
    let if_first = RecordGuard::Generation(first);
    let second = one(store, token("2").guarded(if_first)).await.unwrap().generation;
    assert!(second > first);
    assert_eq!(one(store, token("3").guarded(if_first)).await, changed(second));
    assert_eq!(read().await, of("2", second));
    let before = snapshot(store, session).await;
    let gone = RecordChange::remove(StoreSpace::Token, "t");
    assert_eq!(one(store, gone.clone().guarded(if_first)).await, changed(second));
    one(store, gone.clone()).await.unwrap();
    assert_eq!(one(store, gone).await.unwrap().generation, 0, "removing a missing one changes nothing");
    assert_eq!((read().await, snapshot(store, session).await), (None, before));
    let key = "k".repeat(RECORD_KEY_BYTES_MAX + 1);
    assert_eq!(one(store, RecordChange::put(StoreSpace::Token, key, [])).await, Err(Refused::TooLarge));
    // As many as there is room for; one that is there can be replaced.
    let room = |key: &str| RecordChange::put(StoreSpace::Setting, key, []).guarded(RecordGuard::Room(2));
    // One by one: changes of different homes have no order in a commit.
    for (key, refused) in [("a", None), ("b", None), ("c", Some(Refused::Full)), ("a", None)] {
        assert_eq!(one(store, room(key)).await.err(), refused, "{key}");
    }
    assert_eq!(store.count_records(StoreSpace::Setting.shelf()).await.unwrap(), 2);
    // Many at once, each having read what was there: as many are kept as were told so.
    let racers: Vec<_> = (0..16)
        .map(|racer: u32| {
            let change = token(&racer.to_string()).guarded(RecordGuard::Generation(0));
            let store = Arc::clone(store);
            tokio::spawn(async move { one(&store, change).await.is_ok() })
        })
        .collect();
    let mut won = 0;
    for racer in racers {
        won += u32::from(racer.await.unwrap());
    }
    assert_eq!(won, 1);
}

/// The largest that may be, and what is larger.
pub async fn records_that_are_too_large_are_refused(store: &Arc<dyn Store>) {
    let session = open(store, "s").await;
    let (key, value) = ("k".repeat(RECORD_KEY_BYTES_MAX), "v".repeat(RECORD_VALUE_BYTES_MAX));
    let kept = one(store, held(session, vec![put(&key, &value)])).await.unwrap().generation;
    assert_eq!(read(store, session, &key).await, of(&value, kept));
    for row in [put(&format!("{key}k"), ""), put("k", &format!("{value}v"))] {
        assert_eq!(one(store, held(session, vec![put("a", ""), row])).await, Err(Refused::TooLarge));
    }
    assert_eq!(read(store, session, "a").await, None);
}

fn put(key: &str, value: &str) -> Row {
    Row::Put { space: Space::Pair, key: key.to_owned(), value: value.as_bytes().into() }
}

fn remove(key: &str) -> Row {
    Row::Remove { space: Space::Pair, key: key.to_owned() }
}

fn generation(space: Space, key: &str, is: u64) -> Guard {
    Guard::Generation { space, key: key.to_owned(), is }
}

fn changed<T>(now: u64) -> Result<T, Refused> {
    Err(Refused::Changed { now })
}

/// Value and generation of a pair.
async fn read(store: &Arc<dyn Store>, session: SessionNo, key: &str) -> Option<(String, u64)> {
    let record = store.record(Space::Pair.of(session), key).await.unwrap()?;
    assert_eq!(record.key, key);
    Some((String::from_utf8(record.value).unwrap(), record.generation))
}

fn of(value: &str, generation: u64) -> Option<(String, u64)> {
    Some((value.to_owned(), generation))
}
