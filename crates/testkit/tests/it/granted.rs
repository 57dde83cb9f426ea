//! Grants where several workers have one store: once a revocation is acknowledged, by whichever worker, no worker starts anything by it.

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use windlass::grants::{GrantTerms, GrantToken};
use windlass::sessions::SessionOpening;
use windlass::{
    BatchRequest, CallRequest, Config, EffectClass, Limits, Output, Runtime, ToolError, ToolSpec, tool_fn,
};
use windlass_store::{MemoryStore, Store};

/// How often a grant is issued, used by one worker and revoked by the other.
const ROUNDS: u64 = 8;
/// Longer than any of it takes.
const IN_TIME: Duration = Duration::from_secs(120);

/// Facts that both workers share.
#[derive(Default)]
struct Seen {
    is_revoked: AtomicBool,
    ran: AtomicU64,
}

fn worker(store: Arc<dyn Store>, seen: &Arc<Seen>) -> Runtime {
    // The same call again and again is what it is for.
    let limits =
        Limits { knock_ms: 20, loop_batches_max: u64::MAX, loop_cycles_max: u64::MAX, ..Limits::default() };
    let runtime = Runtime::new(Config { shared: true, limits, ..Config::on(store) });
    let seen = seen.clone();
    let spec = ToolSpec {
        name: "pay".into(),
        class: Some(EffectClass::Once),
        claims: Some(Vec::new()),
        ..ToolSpec::default()
    };
    let pay = tool_fn(spec, move |_, _| {
        seen.ran.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, ToolError>(Output::from(json!("paid"))) }
    });
    runtime.register(pay).unwrap();
    runtime
}

async fn call(runtime: &Runtime, session: &str, token: &GrantToken) -> String {
    let call = CallRequest { tool: "pay".into(), grant: Some(token.clone()), ..CallRequest::default() };
    let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
    let answer = runtime.submit(session, batch).await.unwrap().settled().await.unwrap();
    answer.calls[0].state().to_owned()
}

/// One worker calls by the grant without a pause, the other revokes it.
async fn round(owner: &Runtime, other: &Runtime, seen: &Arc<Seen>, number: u64) {
    let session = format!("s{number}");
    owner.open_session(&session, SessionOpening::default()).await.unwrap();
    seen.is_revoked.store(false, Ordering::SeqCst);
    let terms = GrantTerms { tool: "pay".into(), ..GrantTerms::default() };
    let issued = owner.grants().issue(&session, terms, "ann").await.unwrap();
    assert_eq!(call(owner, &session, &issued.token).await, "succeeded");
    let calls = async {
        loop {
            // A call that is made after the acknowledgement is denied.
            let was_revoked = seen.is_revoked.load(Ordering::SeqCst);
            match call(owner, &session, &issued.token).await.as_str() {
                "denied" => return,
                state => assert!(state == "succeeded" && !was_revoked, "{state}"),
            }
        }
    };
    let revoked = async {
        assert!(other.grants().revoke(&issued.grant.id).await.unwrap());
        seen.is_revoked.store(true, Ordering::SeqCst);
    };
    tokio::join!(calls, revoked);
    let ran = seen.ran.load(Ordering::SeqCst);
    assert_eq!(call(owner, &session, &issued.token).await, "denied");
    assert_eq!(seen.ran.load(Ordering::SeqCst), ran);
}

async fn no_worker_starts_anything(stores: [Arc<dyn Store>; 2]) {
    let seen = Arc::new(Seen::default());
    let [one, two] = stores.map(|store| worker(store, &seen));
    let rounds = async {
        for number in 0..ROUNDS {
            // Whoever opens the session owns it.
            match number % 2 {
                0 => round(&one, &two, &seen, number).await,
                _ => round(&two, &one, &seen, number).await,
            }
        }
    };
    tokio::time::timeout(IN_TIME, rounds).await.unwrap();
    assert!(seen.ran.load(Ordering::SeqCst) >= ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_worker_starts_anything_by_a_revoked_grant() {
    let shared = MemoryStore::new().unwrap();
    no_worker_starts_anything([Arc::new(shared.clone()), Arc::new(shared)]).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_worker_on_postgresql_starts_anything_by_a_revoked_grant() {
    use windlass_store::PostgresStore;
    use windlass_store::postgres::PostgresOptions;
    use windlass_testkit::postgres::Cluster;
    let Some(cluster) = Cluster::of_process(env!("CARGO_TARGET_TMPDIR")) else { return };
    let url = cluster.database();
    let open = async || Arc::new(PostgresStore::open(PostgresOptions::new(&url)).await.unwrap());
    no_worker_starts_anything([open().await, open().await]).await;
}
