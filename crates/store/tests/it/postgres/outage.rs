//! The server goes away, is silent, read-only, full or disturbed: nobody restarts a worker, and nothing is lost or done twice.

use super::{alone, cluster, open, outside};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};
use windlass_store::limits::StoreLimits;
use windlass_store::postgres::{PostgresOptions, SQL_STATES, SqlMeaning};
use windlass_store::{
    Durability, Health, PostgresStore, Receipt, RecordChange, Store, StoreError, StoreSpace,
};
use windlass_testkit::postgres::proxy::{CommitCut, Proxy};
use windlass_testkit::store_suite::{begin, held, journal, one, open as open_session};

/// A longer wait is in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sessions that write one row after the other, until they are told to stop.
struct Load {
    over: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    writers: Vec<JoinHandle<(SessionNo, BatchNo, u64)>>,
}

impl Load {
    async fn start(store: &Arc<dyn Store>, sessions: usize) -> Load {
        let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut writers = Vec::new();
        for name in 0..sessions {
            let session = open_session(store, &format!("load {name}")).await;
            let batch = begin(store, session, &name.to_string()).await;
            let (store, over, done) = (Arc::clone(store), Arc::clone(&over), Arc::clone(&done));
            writers.push(tokio::spawn(async move {
                let mut rows = 0;
                while !over.load(Ordering::SeqCst) {
                    rows += 1;
                    let receipt =
                        one(&store, held(session, vec![journal(batch, rows as u32, 1)])).await.unwrap();
                    assert_eq!(receipt.first, EntryNo(rows + 1));
                    done.fetch_add(1, Ordering::SeqCst);
                }
                (session, batch, rows)
            }));
        }
        Load { over, done, writers }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Waits until more was done; how long that took.
    async fn goes_on(&self) -> Duration {
        let (began, before) = (Instant::now(), self.done());
        while self.done() == before {
            assert!(began.elapsed() < PATIENCE, "nothing is written any more");
            tokio::task::yield_now().await;
        }
        began.elapsed()
    }

    /// Ends it, and checks that every row that was acknowledged is there, once.
    async fn end(self, store: &Arc<dyn Store>) {
        self.over.store(true, Ordering::SeqCst);
        for writer in self.writers {
            let (session, batch, rows) = writer.await.unwrap();
            let kept = store.journal(batch).await.unwrap();
            let kept: Vec<_> = kept.iter().map(|row| u64::from(row.row)).collect();
            assert_eq!(kept, (0..=rows).collect::<Vec<_>>());
            assert_eq!(store.session_by_no(session).await.unwrap().unwrap().head, EntryNo(rows + 1));
        }
    }
}

async fn becomes(store: &Arc<dyn Store>, wanted: impl Fn(&Health) -> bool) -> Health {
    let mut health = store.health();
    let reached = tokio::time::timeout(PATIENCE, health.wait_for(wanted)).await;
    reached.unwrap().unwrap().clone()
}

async fn asked(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// The backends of this database that a store uses.
const BACKENDS: &str =
    "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'windlass%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outages_heal_by_themselves() {
    let Some(cluster) = alone(|_| Ok(String::new())) else { return };
    let store = open(&cluster.database()).await;
    let load = Load::start(&store, 8).await;
    for outage in [Duration::from_secs(2), Duration::from_secs(13)] {
        load.goes_on().await;
        cluster.stop();
        let began = Instant::now();
        let stalled = becomes(&store, |health| *health != Health::Ready).await;
        assert!(matches!(stalled, Health::Stalled { .. }), "{stalled:?}");
        let waiting = tokio::spawn(store.session("load 0"));
        tokio::time::sleep(outage.saturating_sub(began.elapsed())).await; // tidy: the outage itself has this length
        assert_eq!(*store.health().borrow(), stalled, "it is told from the beginning to the end");
        cluster.start();
        let healed = load.goes_on().await;
        assert!(healed < Duration::from_secs(5), "the first write came {healed:?} after the server");
        becomes(&store, |health| *health == Health::Ready).await;
        assert!(waiting.await.unwrap().unwrap().is_some(), "reads wait too");
    }
    for _restart in 0..3 {
        load.goes_on().await;
        cluster.stop();
        cluster.start();
    }
    load.goes_on().await;
    load.end(&store).await;
}

/// Each state of the table is raised by the server when a row is inserted, a few times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sql_state_means_what_the_table_says() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&url).await;
    let raising = "CREATE SEQUENCE public.tries;
        CREATE TABLE public.raised (state text);
        INSERT INTO public.raised VALUES ('00000');
        CREATE FUNCTION public.raising() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE wanted text := (SELECT state FROM public.raised);
        BEGIN
            IF nextval('public.tries') <= 2 THEN RAISE 'as asked' USING ERRCODE = wanted; END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER raising BEFORE INSERT ON windlass.journal FOR EACH ROW EXECUTE FUNCTION public.raising()";
    outside.batch_execute(raising).await.unwrap();
    for (row, listed) in SQL_STATES.iter().enumerate() {
        let state = format!("{:0<5}", listed.state);
        let ask =
            format!("UPDATE public.raised SET state = '{state}'; SELECT setval('public.tries', 1, false)");
        outside.batch_execute(&ask).await.unwrap();
        assert_ne!(listed.meaning, SqlMeaning::Final, "{state}");
        let connected =
            format!("SELECT max(pid)::bigint {BACKENDS} AND application_name LIKE 'windlass write%'");
        let before = asked(&outside, &connected).await;
        let receipt = one(&store, held(session, vec![journal(batch, row as u32 + 1, 1)])).await;
        assert_eq!(receipt, Ok(Receipt { first: EntryNo(row as u64 + 2), generation: 0 }), "{state}");
        let after = asked(&outside, &connected).await;
        assert_eq!(before != after, listed.meaning == SqlMeaning::Lost, "{state}: whether it connects anew");
        assert!(asked(&outside, "SELECT last_value FROM public.tries").await >= 3, "{state} was not raised");
    }
    let damage = "UPDATE public.raised SET state = 'XX001'; SELECT setval('public.tries', 1, false)";
    outside.batch_execute(damage).await.unwrap();
    let answer = store.commit(vec![held(session, vec![journal(batch, 1_000, 1)]).into()]).await;
    assert!(matches!(answer, Err(StoreError::Io { doing: "write", .. })), "{answer:?}");
    assert!(matches!(&*store.health().borrow(), Health::Closed { .. }));
}

/// An administrator cancels statements and ends connections, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_are_cancelled_are_done_again() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let load = Load::start(&store, 8).await;
    let outside = outside(&url).await;
    for (disturb, times) in [("pg_cancel_backend(pid)", 300), ("pg_terminate_backend(pid)", 60)] {
        let mut disturbed = 0;
        while disturbed < times {
            disturbed +=
                asked(&outside, &format!("SELECT count({disturb}) {BACKENDS} AND state <> 'idle'")).await;
            store.session("load 0").await.unwrap();
        }
        load.goes_on().await;
    }
    load.end(&store).await;
}

/// Connections on which nothing comes any more, and which do not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_found_within_a_third_of_the_lease() {
    let Some(cluster) = cluster() else { return };
    let database = cluster.database();
    let proxy = Proxy::start(cluster, CommitCut::AfterReply).await;
    let lease = Duration::from_secs(6);
    let limits = StoreLimits { lease_ms: lease.as_millis() as u64, ..StoreLimits::default() };
    let options = PostgresOptions { limits, ..PostgresOptions::new(proxy.url(&database)) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
    let load = Load::start(&store, 8).await;
    load.goes_on().await;
    proxy.blackhole();
    let (began, reading) = (Instant::now(), store.session("load 0"));
    // What was under way still arrives; then nothing does.
    let mut before = load.done();
    while began.elapsed() < lease / 6 {
        before = load.done();
        tokio::task::yield_now().await;
    }
    while load.done() <= before + 8 {
        assert!(began.elapsed() < PATIENCE, "nothing is written any more");
        tokio::task::yield_now().await;
    }
    let found = began.elapsed();
    assert!(found < lease / 2, "it was found after {found:?}");
    assert!(reading.await.unwrap().is_some());
    load.end(&store).await;
}

/// The server stays, and takes no writes: it was demoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_read_only_is_left() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let load = Load::start(&store, 4).await;
    let outside = outside(&format!("{url} options='-c default_transaction_read_only=off'")).await;
    let name: String = outside.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
    let set = async |value: &str| {
        let demote = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        outside.batch_execute(&demote).await.unwrap();
        outside.query(&format!("SELECT pg_terminate_backend(pid) {BACKENDS}"), &[]).await.unwrap();
    };
    load.goes_on().await;
    set("on").await;
    let stalled = becomes(&store, |health| *health != Health::Ready).await;
    let Health::Stalled { because } = stalled else { panic!("{stalled:?}") };
    assert!(because.contains("does not allow writes"), "{because}");
    let before = load.done();
    set("off").await;
    let healed = load.goes_on().await;
    assert!(healed < Duration::from_secs(5) && load.done() > before, "it took {healed:?}");
    load.end(&store).await;
}

/// A commit that waits for a replica is freed from waiting by a cancel: then the replica may lack it, and it is not acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_no_replica_has_is_not_acknowledged() {
    let Some(cluster) = alone(|_| Ok(String::new())) else { return };
    let url = cluster.database();
    let store = open(&url).await;
    assert_eq!(store.durability(), Durability::Full);
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    let outside = outside(&format!("{url} options='-c synchronous_commit=local'")).await;
    let names = async |names: &str| {
        outside
            .batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"))
            .await
            .unwrap();
        outside.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    };
    names("nobody").await;
    while asked(
        &outside,
        "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting = 'nobody'",
    )
    .await
        == 0
    {}
    let mut sent = store.commit(vec![held(session, vec![journal(batch, 1, 1)]).into()]);
    let mut cancelled = 0;
    let began = Instant::now();
    while cancelled < 10 {
        assert!(began.elapsed() < PATIENCE, "only {cancelled} commits waited for the replica");
        let cancel = format!("SELECT count(pg_cancel_backend(pid)) {BACKENDS} AND wait_event = 'SyncRep'");
        cancelled += asked(&outside, &cancel).await;
        sent = match sent.known() {
            Ok(answer) => panic!("it was acknowledged: {answer:?}"),
            Err(sent) => sent,
        };
    }
    assert_eq!(store.durability(), Durability::Replicated, "it is told what the server promises");
    let rows =
        asked(&outside, &format!("SELECT count(*) FROM windlass.journal WHERE session = {}", session.0))
            .await;
    assert_eq!(rows, 2, "it is on the server alone");
    names("").await;
    assert_eq!(sent.await.unwrap(), [Ok(Receipt { first: EntryNo(2), generation: 0 })]);
    assert_eq!(store.journal(batch).await.unwrap().len(), 2, "once");
    let weaker = PostgresOptions { durability: Durability::Replicated, ..PostgresOptions::new(&url) };
    let refused = PostgresStore::open(weaker).await.map(|_store| ()).unwrap_err();
    assert!(refused.to_string().contains("`full+replica` is asked for"), "{refused}");
}

/// While the server is away the queue fills, and whoever comes then is refused at once: no thread stands still.
#[tokio::test(flavor = "current_thread")]
async fn a_full_queue_refuses_and_blocks_nobody() {
    let Some(cluster) = alone(|_| Ok(String::new())) else { return };
    let limits = StoreLimits { group_changes_max: 4, ..StoreLimits::default() };
    let options = PostgresOptions { limits, writers: 1, ..PostgresOptions::new(cluster.database()) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
    let session = open_session(&store, "s").await;
    let batch = begin(&store, session, "k").await;
    cluster.stop();
    let began = Instant::now();
    let sent: Vec<_> =
        (1..=100).map(|row| store.commit(vec![held(session, vec![journal(batch, row, 1)]).into()])).collect();
    assert!(began.elapsed() < Duration::from_secs(1), "sending took {:?}", began.elapsed());
    cluster.start();
    let (mut written, mut refused) = (0, 0);
    for answer in sent {
        match answer.await {
            Ok(receipts) => {
                assert!(receipts[0].is_ok() && refused == 0, "{receipts:?}");
                written += 1;
            }
            Err(StoreError::Stalled { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!((64..=72).contains(&written), "{written} fitted, {refused} did not");
    one(&store, held(session, vec![journal(batch, 200, 1)])).await.unwrap();
}

/// Nothing that others write holds up a worker's record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_waits_for_nobody() {
    let Some(cluster) = cluster() else { return };
    let url = cluster.database();
    let store = open(&url).await;
    let mut sessions = Vec::new();
    for name in 0..8 {
        sessions.push(open_session(&store, &name.to_string()).await);
    }
    let outside = outside(&url).await;
    outside.batch_execute("BEGIN; LOCK TABLE windlass.versions, windlass.sessions").await.unwrap();
    let stuck: Vec<_> =
        sessions.iter().map(|session| store.commit(vec![held(*session, vec![]).into()])).collect();
    for beat in 0..5 {
        let beat = RecordChange::put(StoreSpace::Worker, "me", [beat]);
        let answer = tokio::time::timeout(Duration::from_secs(2), store.commit(vec![beat.into()])).await;
        answer.expect("it waits behind others").unwrap()[0].as_ref().unwrap();
    }
    outside.batch_execute("ROLLBACK").await.unwrap();
    for answer in stuck {
        assert!(answer.await.unwrap()[0].is_ok());
    }
}
