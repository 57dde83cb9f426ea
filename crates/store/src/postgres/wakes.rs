//! Wakes by LISTEN and NOTIFY, on a connection and a thread of their own. A NOTIFY inside of a group would make all groups of the
//! server commit one after the other; here it comes after the commit, once per target in 10 ms.
//!
//! A pool in transaction mode swallows notifications without a word. So each new connection is tested: somebody else notifies it.

use super::address::DatabaseAddress;
use super::connection::{Backoff, DatabaseFailure, DatabaseLink, answered};
use super::random;
use super::statements as sql;
use crate::{WakeWay, Wakes};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The pause between two notifications.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a test waits for its notification.
const TEST_MAX: Duration = Duration::from_secs(2);

/// The targets that may wait to be notified; more are left to polling.
const WAITING_MAX: usize = 4_096;

/// The connection that wakes, started when it is first used.
pub(super) struct WakeLine {
    board: Arc<WakeBoard>,
    thread: Option<JoinHandle<()>>,
}

/// Shared with the thread.
struct WakeBoard {
    state: Mutex<BoardState>,
    /// There is somebody to be notified.
    changed: Notify,
    ended: Notify,
    way: watch::Sender<WakeWay>,
}

#[derive(Default)]
struct BoardState {
    listeners: HashMap<Arc<str>, watch::Sender<u64>>,
    waiting: BTreeSet<String>,
    /// The payload of the test that is under way, until it comes.
    test: Option<String>,
}

/// The addresses of the line.
#[derive(Clone)]
pub(super) struct WakeAddresses {
    /// Where it listens.
    pub direct: Arc<DatabaseAddress>,
    /// Where others notify from.
    pub shared: Arc<DatabaseAddress>,
}

impl WakeLine {
    pub fn start(addresses: WakeAddresses) -> std::io::Result<WakeLine> {
        let way = watch::Sender::new(WakeWay::Testing);
        let [changed, ended] = [(); 2].map(|()| Notify::new());
        let board = Arc::new(WakeBoard { state: Mutex::default(), changed, ended, way });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::clone(&board);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = shared.ended.notified() => {}
                    () = shared.keep_listening(&addresses) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("windlass-postgres-wake".to_owned()).spawn(run)?;
        Ok(WakeLine { board, thread: Some(thread) })
    }

    /// The wakes of a target.
    pub fn wakes(&self, target: &str) -> Wakes {
        let mut state = self.board.lock();
        state.listeners.retain(|_, listener| listener.receiver_count() > 0);
        let listener = state.listeners.entry(target.into()).or_insert_with(|| watch::Sender::new(0));
        Wakes::of(listener.subscribe())
    }

    /// Wakes a target soon.
    pub fn wake(&self, target: &str) {
        let mut state = self.board.lock();
        if state.waiting.len() < WAITING_MAX && state.waiting.insert(target.to_owned()) {
            self.board.changed.notify_one();
        }
    }

    pub fn way(&self) -> WakeWay {
        *self.board.way.borrow()
    }
}

impl Drop for WakeLine {
    fn drop(&mut self) {
        self.board.ended.notify_one();
        // It stops whatever it does.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

impl WakeBoard {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a notification.
    fn heard(&self, payload: &str) {
        let mut state = self.lock();
        if state.test.as_deref() == Some(payload) {
            state.test = None;
            self.set_way(WakeWay::Notify);
        }
        if let Some(listener) = state.listeners.get(payload) {
            listener.send_modify(|count| *count += 1);
        }
    }

    fn set_way(&self, way: WakeWay) {
        let changed = self.way.send_if_modified(|now| std::mem::replace(now, way) != way);
        if changed {
            tracing::info!(%way, "how workers of this store are woken");
        }
    }

    /// Listens until the line ends, on one connection after the other.
    async fn keep_listening(self: &Arc<WakeBoard>, addresses: &WakeAddresses) {
        let mut backoff = Backoff::new();
        loop {
            match self.listen(addresses, &mut backoff).await {
                Ok(()) => {}
                Err(failure) => tracing::debug!(failure = failure.told(), "workers cannot be woken now"),
            }
            self.set_way(WakeWay::Poll);
            backoff.pause().await;
        }
    }

    /// Listens and notifies on one connection.
    async fn listen(
        self: &Arc<WakeBoard>,
        addresses: &WakeAddresses,
        backoff: &mut Backoff,
    ) -> Result<(), DatabaseFailure> {
        let (direct, board) = (&addresses.direct, Arc::clone(self));
        let link = direct.connect("wake", move |payload| board.heard(payload)).await?;
        answered(direct.reply, link.client.batch_execute("LISTEN windlass_wake")).await?;
        self.test(addresses).await?;
        *backoff = Backoff::new();
        // Whatever was sent while nobody listened is lost: everybody looks once.
        self.lock().listeners.values().for_each(|listener| listener.send_modify(|count| *count += 1));
        while !link.client.is_closed() {
            let targets = std::mem::take(&mut self.lock().waiting);
            if !targets.is_empty() {
                notify(&link, direct.reply, targets.iter().map(String::as_str).collect()).await?;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            // A lost connection is noticed by looking at it.
            let _looked = tokio::time::timeout(direct.reply, self.changed.notified()).await;
        }
        Ok(())
    }

    /// Finds out whether what others notify is heard.
    async fn test(&self, addresses: &WakeAddresses) -> Result<(), DatabaseFailure> {
        let drawn: [u8; 16] = random().map_err(|error| {
            let what = "a test cannot be named".to_owned();
            DatabaseFailure::Setup { what, source: Some(Box::new(error)) }
        })?;
        let name = format!("test {}", u128::from_le_bytes(drawn));
        self.lock().test = Some(name.clone());
        let other = addresses.shared.connect("wake test", |_| {}).await?;
        notify(&other, addresses.shared.reply, vec![&name]).await?;
        let mut way = self.way.subscribe();
        let heard = tokio::time::timeout(TEST_MAX, way.wait_for(|way| *way == WakeWay::Notify)).await;
        if heard.is_err() {
            self.lock().test = None;
            self.set_way(WakeWay::Poll);
        }
        Ok(())
    }
}

async fn notify(link: &DatabaseLink, reply: Duration, targets: Vec<&str>) -> Result<(), DatabaseFailure> {
    answered(reply, link.query(&sql::NOTIFY, &[&targets])).await?;
    Ok(())
}
