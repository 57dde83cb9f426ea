//! Journals of every release replay: a data folder that each version has left behind, with calls of every class and
//! end, is read by this one and answers as it did then.

use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use windlass::inspect::{SpanEnd, SpanKind, TimeSpan, timeline};
use windlass_core::handle::HandleKind;
use windlass_store::sqlite::Options;
use windlass_store::{SqliteStore, Store};
use windlass_testkit::fault_store::{Fault, FaultPlan, FaultReach, FaultStore, Method};
use windlass_testkit::scenario::{self, BatchReplyKind, ClientRounds, RunCounts};

const FILE: &str = "windlass.db";
const EXPECTED: &str = "expected.json";

pub(crate) fn folders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Makes the folder of this version, if it is missing and this is asked for.
async fn make_if_missing() {
    let folder = folders().join(env!("CARGO_PKG_VERSION"));
    if folder.exists() {
        return;
    }
    assert!(
        std::env::var_os("UPDATE").is_some_and(|update| update == "1"),
        "there is no golden journal of version {}: run this with UPDATE=1 and commit it. Those of releases never \
         change; that of a version that is not released yet may be removed and made again",
        env!("CARGO_PKG_VERSION")
    );
    let data = TempDir::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(data.path())).unwrap());
    let owner = scenario::runtime(store.clone(), &RunCounts::default()).unwrap();
    scenario::run(&owner, scenario::golden_work(), |_| {}).await;
    drop(owner);
    // One call is left open and taken over: it is unknown. Another is left open for good.
    for session in ["unknown", "open"] {
        let plan = FaultPlan::Nth(Method::Commit, 2, Fault::FailBefore);
        let faulty = FaultStore::new(store.clone(), plan, FaultReach::Store);
        let owner = scenario::runtime(Arc::new(faulty.clone()), &RunCounts::default()).unwrap();
        scenario::run(&owner, scenario::open_work(session), |_| {}).await;
        faulty.close();
        if session == "unknown" {
            let owner = scenario::runtime(store.clone(), &RunCounts::default()).unwrap();
            let told = scenario::run(&owner, scenario::open_work(session), |_| {}).await;
            assert!(matches!(told[0].reply, BatchReplyKind::Answered(_)), "{told:?}");
        }
    }
    let expected = calls(&store).await;
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(data.path().join(FILE), folder.join(FILE)).unwrap();
    std::fs::write(folder.join(EXPECTED), format!("{:#}\n", json!(expected))).unwrap();
}

/// Every call: what callers are told, and its story entry by entry.
pub(crate) async fn calls(store: &Arc<dyn Store>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for session in store.sessions(None, u64::MAX).await.unwrap() {
        for call in windlass::inspect::calls(store, &session, usize::MAX).await.unwrap() {
            let name = format!("{}/{}/{}", call.session, call.batch_key, call.answer.id());
            let (_, story) = windlass::inspect::call(store, call.answer.handle()).await.unwrap().unwrap();
            let story: Vec<String> =
                story.iter().map(|line| format!("{} {}: {}", line.entry, line.kind, line.text)).collect();
            found.insert(name, json!({"answer": call.answer, "story": story}));
        }
    }
    found
}

#[tokio::test]
async fn journals_of_every_release_replay() {
    make_if_missing().await;
    let mut versions = 0;
    for folder in std::fs::read_dir(folders()).unwrap() {
        let folder = folder.unwrap().path();
        replay(&folder).await;
        versions += 1;
    }
    assert!(versions > 0);
}

/// The spans of every recorded call add up to the times that were recorded with its end.
#[tokio::test]
async fn spans_of_every_release_agree_with_the_recorded_times() {
    let mut compared = 0;
    for folder in std::fs::read_dir(folders()).unwrap() {
        let data = TempDir::new().unwrap();
        std::fs::copy(folder.unwrap().path().join(FILE), data.path().join(FILE)).unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(data.path())).unwrap());
        for session in store.sessions(None, u64::MAX).await.unwrap() {
            for call in windlass::inspect::calls(&store, &session, usize::MAX).await.unwrap() {
                let id = windlass::ids::CallId::unpacked(
                    call.answer.handle().open(store.secret(), HandleKind::Call).unwrap(),
                );
                let found = timeline(&store, &session, id.batch, Some(id.ordinal), &HashMap::new()).await;
                let spans = found.unwrap().spans.remove(&id).unwrap();
                assert!(!spans.is_empty(), "{} has no spans", call.answer.id());
                let Some(end) = call.answer.call().end() else { continue };
                let ran: u64 = spans.iter().filter(|span| is_measured(span)).map(length).sum();
                assert_eq!(ran, end.spent.ran_us, "{} ran {spans:?}", call.answer.id());
                if let Some(first) = spans.iter().find(|span| span.kind == SpanKind::Attempt) {
                    assert_eq!(first.from.since(call.opened_at), end.spent.queued_us, "{spans:?}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 10, "{compared} calls were compared");
}

/// Nobody measured an attempt that was lost.
fn is_measured(span: &TimeSpan) -> bool {
    span.kind == SpanKind::Attempt && span.end != Some(SpanEnd::Lost)
}

fn length(span: &TimeSpan) -> u64 {
    span.to.map_or(0, |to| to.since(span.from))
}

async fn replay(folder: &Path) {
    let data = TempDir::new().unwrap();
    std::fs::copy(folder.join(FILE), data.path().join(FILE)).unwrap();
    let expected: BTreeMap<String, Value> =
        serde_json::from_slice(&std::fs::read(folder.join(EXPECTED)).unwrap()).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(Options::new(data.path())).unwrap());
    let found = calls(&store).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{}", folder.display());
    for (name, call) in &expected {
        assert_eq!(&found[name], call, "{name} of {}", folder.display());
    }
    // Submitted again, what is recorded is answered and not run; what was left open comes to its end.
    let runs = RunCounts::default();
    let owner = scenario::runtime(store, &runs).unwrap();
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    let work: Vec<ClientRounds> =
        [scenario::golden_work(), scenario::open_work("unknown"), scenario::open_work("open")].concat();
    for batch in work.iter().flatten().flatten() {
        let told = scenario::submit(owner.clone(), batch.clone()).await;
        let BatchReplyKind::Answered(answers) = told.reply else { panic!("{}: {:?}", batch.key, told.reply) };
        for answer in answers {
            let name = format!("{}/{}/{}", batch.session, batch.key, answer.id);
            let then = &expected[&name]["answer"];
            assert_eq!(then["call"], answer.handle, "{name}");
            if batch.session != "open" {
                assert_eq!(then["state"], answer.state, "{name}");
            }
            *states.entry(answer.state).or_default() += 1;
        }
    }
    assert_eq!(runs.all(), BTreeMap::new(), "something recorded ran again");
    println!("{}: {} calls replayed, {states:?}", folder.display(), expected.len());
    assert!(["succeeded", "failed", "unknown"].iter().all(|state| states.contains_key(*state)), "{states:?}");
}
