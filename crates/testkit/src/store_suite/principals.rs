//! Principals of sessions, and the remains of removed ones.

use super::{changes, held, message, next, one, open};
use std::sync::Arc;
use windlass_core::ids::{Fence, SessionNo};
use windlass_store::{
    Hold, Posted, RecordPage, Refused, Removal, Removed, Row, Sequence, SessionChange, SessionPage, Space,
    Store, gone_value,
};

async fn open_of(store: &Arc<dyn Store>, name: &str, principal: &str) -> SessionNo {
    let session = SessionNo(next(store, Sequence::Session).await);
    let hold = Hold::Open { name: name.to_owned(), principal: Some(principal.to_owned()) };
    let value = name.as_bytes().into();
    let rows = vec![Row::Put { space: Space::About, key: "k".to_owned(), value }];
    one(store, SessionChange { session, hold, guards: vec![], rows }).await.unwrap();
    session
}

async fn names(
    store: &Arc<dyn Store>,
    principal: Option<&str>,
    after: Option<&str>,
    limit: u64,
) -> Vec<String> {
    let rows = store.sessions_by_name(SessionPage { principal, after, limit }).await.unwrap();
    rows.into_iter().map(|row| row.name).collect()
}

/// The principal is written with the session's row, stays when the session is taken, and lists it.
pub async fn a_session_belongs_to_the_principal_that_opened_it(store: &Arc<dyn Store>) {
    let session = open_of(store, "m", "alice").await;
    open(store, "nobodys").await;
    for (name, principal) in [("b", "bob"), ("z", "alice"), ("B", "alice"), ("a", "alice"), ("ab", "al")] {
        open_of(store, name, principal).await;
    }
    let take = SessionChange { hold: Hold::Take { from: Fence(1), to: Fence(2) }, ..held(session, vec![]) };
    one(store, take).await.unwrap();
    for row in [store.session("m").await.unwrap(), store.session_by_no(session).await.unwrap()] {
        assert_eq!(row.unwrap().principal.as_deref(), Some("alice"));
    }
    assert_eq!(store.session("nobodys").await.unwrap().unwrap().principal, None);
    let listed = store.sessions(None, 100).await.unwrap();
    assert_eq!(listed.iter().filter(|row| row.principal.as_deref() == Some("alice")).count(), 4);

    assert_eq!(names(store, Some("alice"), None, 100).await, ["B", "a", "m", "z"]);
    assert_eq!(names(store, Some("alice"), Some("a"), 1).await, ["m"]);
    assert_eq!(names(store, Some("alice"), Some("aa"), 100).await, ["m", "z"]);
    assert_eq!(names(store, Some("carol"), None, 100).await, [""; 0]);
    assert_eq!(names(store, None, None, 100).await, ["B", "a", "ab", "b", "m", "nobodys", "z"]);
    assert_eq!(names(store, None, Some("b"), 2).await, ["m", "nobodys"]);
}

/// A removed session takes what is said about it along, is listed by nobody, and gets no message any more.
pub async fn a_removed_session_hears_nothing_and_is_listed_nowhere(store: &Arc<dyn Store>) {
    let session = open_of(store, "s", "alice").await;
    let other = open_of(store, "t", "alice").await;
    assert_eq!(store.post(message(session, "m", "x")).await.unwrap(), Posted::New);
    let piece = Removal { session, fence: Fence(1), most: 100 };
    while store.remove(piece).await.unwrap() == Ok(Removed::Piece) {}
    assert_eq!(store.post(message(session, "n", "x")).await.unwrap(), Posted::NoSession);
    assert_eq!(store.post(message(session, "m", "x")).await.unwrap(), Posted::NoSession);
    assert_eq!(store.inbound(session, 10).await.unwrap(), []);
    assert_eq!(names(store, Some("alice"), None, 10).await, ["t"]);
    let about = async |session| {
        let page = RecordPage { shelf: Space::About.of(session), prefix: "", after: None, limit: 9 };
        store.records(page).await.unwrap().len()
    };
    assert_eq!((about(session).await, about(other).await), (0, 1));
}

/// The name of a removed session is kept as a hash that says nothing in clear, and is not opened again.
pub async fn a_gone_name_is_not_opened_again(store: &Arc<dyn Store>) {
    let (secret, name) = (store.secret(), "a-name");
    let value = gone_value(secret, name, Some("alice"));
    assert_ne!(value, gone_value(secret, name, Some("bob")));
    assert_ne!(value, gone_value(secret, name, None));
    assert_ne!(gone_value(secret, name, None), gone_value(secret, name, Some("")));
    let session = open_of(store, name, "alice").await;
    let begun = Row::Put { space: Space::Removing, key: "begun".to_owned(), value: [].into() };
    one(store, held(session, vec![begun])).await.unwrap();
    let marked = async || store.sessions_with(Space::Removing, None, 9).await.unwrap().len();
    let opening = |no| SessionChange {
        session: no,
        hold: Hold::Open { name: name.to_owned(), principal: Some("bob".to_owned()) },
        guards: vec![],
        rows: vec![],
    };
    let no = SessionNo(next(store, Sequence::Session).await);
    let mut left = Removed::Piece;
    while left == Removed::Piece {
        // Until it is gone, and in the same moment no longer, the session is there with the mark of its removal.
        assert_eq!((one(store, opening(no)).await, marked().await), (Err(Refused::Exists), 1));
        assert_eq!(store.gone(name).await.unwrap(), None);
        left = store.remove(Removal { session, fence: Fence(1), most: 1 }).await.unwrap().unwrap();
    }
    assert_eq!((one(store, opening(no)).await, marked().await), (Err(Refused::Gone), 0));
    assert_eq!(store.session(name).await.unwrap(), None);
    assert_eq!(store.gone(name).await.unwrap(), Some(value.to_vec()));
    assert_eq!(store.gone("another").await.unwrap(), None);
    // Its neighbours in a commit do not notice.
    let other = SessionChange { hold: Hold::Open { name: "b".to_owned(), principal: None }, ..opening(no) };
    let answers = store.commit(changes([opening(no), other])).await.unwrap();
    assert_eq!((answers[0], answers[1].is_ok()), (Err(Refused::Gone), true));
}
