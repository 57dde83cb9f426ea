//! Many tasks behind the limit of those that run.

use super::background;
use crate::rig::{batch, call, n};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use windlass::store::Durability;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::tasks::NewTask;
use windlass::{CallRequest, Config, Cx, EffectClass, Limits, Runtime, tool_fn};
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_core::ids::{BatchNo, EntryNo, Ordinal};

const TASKS: usize = 10_000;
/// In each batch.
const TOGETHER: usize = 10;
/// The maximum memory growth while they drain, over when all of them were queued.
const GROWS_KB_MAX: u64 = 24 << 10;

/// How many tasks began, how many ran together at most, and what the process held meanwhile.
#[derive(Default)]
struct Seen {
    began: usize,
    running: usize,
    most: usize,
    held_kb: u64,
}

/// The memory of this process. Each test has a process of its own.
fn held_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    held.and_then(|held| held.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn ten_thousand_tasks_drain_in_order_and_memory_stays_flat() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        calls_queued_max: 2 * TASKS as u64,
        session_calls_queued_max: 2 * TASKS as u64,
        ..Limits::default()
    };
    let running_max = limits.session_tasks_running_max as usize;
    let options =
        Options { folder: folder.path().into(), durability: Durability::Relaxed, limits: limits.store() };
    let runtime = Runtime::new(Config { limits, ..Config::new(SqliteStore::open(options).unwrap()) });
    let (seen, gate) = (Arc::new(Mutex::new(Seen::default())), Arc::new(Semaphore::new(0)));
    let (all, opens) = (seen.clone(), gate.clone());
    let work = move |args: serde_json::Value, _: &Cx| {
        let (all, gate) = (all.clone(), gate.clone());
        async move {
            {
                let mut seen = all.lock().unwrap();
                seen.began += 1;
                seen.running += 1;
                seen.most = seen.most.max(seen.running);
                if seen.began.is_multiple_of(100) {
                    seen.held_kb = seen.held_kb.max(held_kb());
                }
            }
            let _open = gate.acquire().await.unwrap();
            all.lock().unwrap().running -= 1;
            Ok(args.into())
        }
    };
    runtime.register(tool_fn(background("work", EffectClass::Keyed), work)).unwrap();
    for number in 0..TASKS / TOGETHER {
        let task = |place: usize| CallRequest {
            task: Some(NewTask::default()),
            ..call(&format!("c{place}"), "work", n((number * TOGETHER + place) as u64))
        };
        let calls = (0..TOGETHER).map(task).collect();
        let answer =
            runtime.submit("s", batch(&format!("b{number}"), calls)).await.unwrap().settled().await.unwrap();
        assert!(answer.calls.iter().all(|call| call.is_task()), "nobody waits for them");
    }
    assert_eq!(runtime.open_calls() as usize, TASKS);
    let queued_kb = held_kb();
    opens.add_permits(1_000);
    runtime.idle().await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!((seen.began, seen.most), (TASKS, running_max));
    assert!(started(&runtime).await.is_sorted(), "each was started before those behind it");
    let grown_kb = seen.held_kb.saturating_sub(queued_kb);
    assert!(
        seen.held_kb > 0 && grown_kb < GROWS_KB_MAX,
        "{queued_kb} kB when all were queued, {grown_kb} kB more"
    );
    println!("{queued_kb} kB when all were queued, at most {} kB while they drained", seen.held_kb);
    assert_eq!(runtime.kept(), 0);
    told_once(&runtime).await;
}

/// Each start, in the order of the journal.
async fn started(runtime: &Runtime) -> Vec<(BatchNo, Ordinal)> {
    let store = runtime.store();
    let session = store.session("s").await.unwrap().unwrap();
    let (mut started, mut after) = (Vec::new(), EntryNo(0));
    loop {
        let rows = store.journal_after(session.no, after, 1_000).await.unwrap();
        let Some(last) = rows.last() else { return started };
        after = EntryNo(last.first.0 + u64::from(last.count) - 1);
        for row in &rows {
            let entries = entry::unpack(&row.data).unwrap().into_iter();
            started.extend(entries.filter_map(|entry| match entry.event {
                EntryEvent::Call { ordinal, fact: Fact::Started(_) } => Some((row.batch, ordinal)),
                EntryEvent::Call { .. }
                | EntryEvent::Batch(_)
                | EntryEvent::Closed(_)
                | EntryEvent::Answered(_)
                | EntryEvent::ClockMoved(_) => None,
            }));
        }
    }
}

/// Of each of them the session is told, once.
async fn told_once(runtime: &Runtime) {
    let (inbox, mut told, mut after) = (runtime.inbox("s"), Vec::new(), None::<String>);
    loop {
        let page = inbox.list(after.as_deref(), u64::MAX).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        told.extend(page.into_iter().flat_map(|notice| match notice.calls.is_empty() {
            true => notice.call.into_iter().collect(),
            false => notice.calls,
        }));
    }
    told.sort();
    told.dedup();
    assert_eq!(told.len(), TASKS);
}
