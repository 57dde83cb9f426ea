//! Deletion leaves nothing, for nobody: every write of the API races the deletion of its session, and afterwards the name is tried
//! by another principal.

use crate::matrix::{Objects, Rig, Route, body};
use crate::tcp::Answer;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass::store::{Sequence, Space, Store, StoreSpace};
use windlass_core::ids::SessionNo;

/// So many races there are of writes that need nothing but a session, and of writes that need something that is in one. A longer
/// run sets [`RACES`].
const OPENING_RACES: usize = 420;
const OTHER_RACES: usize = 100;
const RACES: &str = "WINDLASS_TEST_DELETION_RACES";

/// The spaces whose records are a session's own.
const SPACES: [Space; 21] = [
    Space::Loose,
    Space::Removing,
    Space::Child,
    Space::Pair,
    Space::Content,
    Space::Blob,
    Space::Notice,
    Space::Log,
    Space::Task,
    Space::Schedule,
    Space::Armed,
    Space::Trigger,
    Space::Owner,
    Space::About,
    Space::Revealed,
    Space::Outgoing,
    Space::Awaited,
    Space::Fulfilled,
    Space::Event,
    Space::Acknowledged,
    Space::Delivered,
];

/// The writes of the description: those that open a session, and those that need something that is in one.
fn writes() -> (Vec<Route>, Vec<Route>) {
    let is_write = |route: &Route| {
        let is_deletion = route.method == "DELETE" && route.path.ends_with("{session}");
        route.method != "GET"
            && (route.is_of_a_session() || route.path.contains("/completions/"))
            && !is_deletion
    };
    Route::all().into_iter().filter(is_write).partition(Route::opens)
}

/// How many races there are of each kind.
fn races(usual: usize) -> usize {
    let wanted: Option<usize> = std::env::var(RACES).ok().and_then(|text| text.parse().ok());
    wanted.map_or(usual, |wanted| wanted * usual / (OPENING_RACES + OTHER_RACES))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_raced_by_deletion_leaves_nothing() {
    let rig = Rig::new().await;
    let (opening, other) = writes();
    assert!(opening.len() >= 6 && other.len() >= 16, "{} and {} writes", opening.len(), other.len());
    let (mut before, mut after) = (0, 0);
    for (race, route) in opening.iter().cycle().take(races(OPENING_RACES)).enumerate() {
        let objects = Objects::in_session(format!("race-{race}"));
        // Half of them have something to lose.
        let first = format!("/v1/sessions/{}/kv/first", objects.session);
        if race % 2 == 0 {
            rig.served.ask_as(Some(&rig.alice), "PUT", &first, json!({"value": "hers"})).await.expect(200);
        } else {
            let wanted = json!({"id": objects.session, "title": "hers", "limits": {"calls_running_max": 2}});
            rig.served.ask_as(Some(&rig.alice), "POST", "/v1/sessions", wanted).await.expect(201);
        }
        let written = run(&rig, route, &objects).await;
        before += written.iter().filter(|status| **status < 300).count();
        after += written.iter().filter(|status| **status == 410).count();
    }
    for (race, route) in other.iter().cycle().take(races(OTHER_RACES)).enumerate() {
        let objects = Objects::new(&rig, format!("other-{race}")).await;
        run(&rig, route, &objects).await;
    }
    assert!(
        before > 20 && after > 20,
        "the races were none: {before} came before the deletion, {after} after it"
    );
    nothing_is_left(&**rig.served.api.runtime().store()).await;
    let files = rig.served.folder.path().join("files");
    let left: Vec<_> = std::fs::read_dir(&files).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Races a write against the deletion of its session, then looks that nothing is left under the name for anybody. The statuses of
/// the writes.
async fn run(rig: &Rig, route: &Route, objects: &Objects) -> Vec<u16> {
    let session = format!("/v1/sessions/{}", objects.session);
    let path = objects.fill(&route.path);
    let write = |token: Option<&str>| {
        let token = token.map(str::to_string);
        let (path, body) = (path.clone(), body(&route.method, &route.path));
        async move { rig.served.ask_as(token.as_deref(), &route.method, &path, body).await }
    };
    let alice = Some(&*rig.alice);
    let delete = rig.served.ask_as(alice, "DELETE", &session, Value::Null);
    let (one, deleted, two, theirs, three) =
        tokio::join!(write(alice), delete, write(alice), write(Some(&rig.bob)), write(alice));
    let place = format!("{} {path}", route.method);
    assert_eq!(deleted.status, 200, "{place}: {}", deleted.body);
    let is_by_key = route.scope.is_none();
    assert!(is_by_key || theirs.status == 404, "{place}: bob got {} {}", theirs.status, theirs.body);
    let raced = [one, two, three];
    for answer in &raced {
        assert!(matches!(answer.status, 200 | 201 | 404 | 409 | 410 | 422), "{place}: {}", answer.body);
    }
    check_name(rig, &session, write(alice).await, &place).await;
    raced.iter().map(|answer| answer.status).collect()
}

/// The name is gone for its former principal and admins, and not there for another one, also if that one wants to use it.
async fn check_name(rig: &Rig, session: &str, again: Answer, place: &str) {
    let ask = async |token: &str, method: &str, path: &str, body: Value| {
        rig.served.ask_as(Some(token), method, &format!("{session}{path}"), body).await.told()
    };
    assert!(matches!(again.status, 404 | 410), "{place} after the deletion: {} {}", again.status, again.body);
    let pair = || json!({"value": "his"});
    for (token, told) in [
        (&rig.alice, (410, "gone".to_string())),
        (&rig.served.token, (410, "gone".to_string())),
        (&rig.bob, (404, "not_found".to_string())),
    ] {
        assert_eq!(ask(token, "GET", "", Value::Null).await, told, "{place}");
        assert_eq!(ask(token, "GET", "/kv/first", Value::Null).await, told, "{place}");
        assert_eq!(ask(token, "PUT", "/kv/first", pair()).await, told, "{place}");
        assert_eq!(ask(token, "PUT", "/files/x", pair()).await, told, "{place}");
    }
}

/// The store has nothing of any session but hashes of their names.
async fn nothing_is_left(store: &dyn Store) {
    assert_eq!(store.sessions(None, 9).await.expect("read"), []);
    assert_eq!(store.open_batches(None).await.expect("read"), []);
    for space in [StoreSpace::Setting, StoreSpace::Knock] {
        assert_eq!(store.count_records(space.shelf()).await.expect("read"), 0, "{space:?}");
    }
    let next = store.reserve(Sequence::Session, 1).await.expect("a number");
    for session in (1..next).map(SessionNo) {
        assert_eq!(store.inbound(session, 9).await.expect("read"), []);
        assert_eq!(store.history(session, None, 9).await.expect("read"), []);
        for space in SPACES {
            assert_eq!(store.count_records(space.of(session)).await.expect("read"), 0, "{space:?}");
        }
    }
}

/// Two principals and a deletion fight for one name: it is one principal's, and afterwards nobody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_name_that_is_fought_for_is_one_principals() {
    let rig = Arc::new(Rig::new().await);
    for race in 0..60 {
        let session = format!("/v1/sessions/fought-{race}");
        let pair = format!("{session}/kv/k");
        let put = |token: &str, whose: &str| {
            let (rig, token, pair, value) =
                (rig.clone(), token.to_string(), pair.clone(), json!({"value": whose}));
            async move { rig.served.ask_as(Some(&token), "PUT", &pair, value).await.status }
        };
        let delete = |token: &str| {
            let (rig, token, session) = (rig.clone(), token.to_string(), session.clone());
            async move { rig.served.ask_as(Some(&token), "DELETE", &session, Value::Null).await.status }
        };
        let (alice, bob) = (&rig.alice, &rig.bob);
        let raced =
            tokio::join!(put(alice, "hers"), put(bob, "his"), delete(alice), delete(bob), put(bob, "his"));
        let statuses = [raced.0, raced.1, raced.2, raced.3, raced.4];
        assert!(statuses.iter().all(|status| matches!(status, 200 | 404 | 410)), "{statuses:?}");
        let of_both = raced.0 == 200 && (raced.1 == 200 || raced.4 == 200);
        assert!(!of_both, "both had it: {statuses:?}");
        let seen = async |token: &str| rig.served.ask_as(Some(token), "GET", &pair, Value::Null).await;
        let (hers, his) = (seen(alice).await, seen(bob).await);
        for (answer, foreign) in [(&hers, "his"), (&his, "hers")] {
            assert!(!answer.body.contains(&format!("{foreign:?}")), "{statuses:?}: {}", answer.body);
        }
        assert!(hers.status == 404 || his.status == 404, "{statuses:?}: {} and {}", hers.body, his.body);
    }
}
