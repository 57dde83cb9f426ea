//! A filter that takes nothing reads a bounded part of the store for a page, and names the place where the next one goes on.

use crate::rig::{Count, batch, call, echo, n, run, spec};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass::inspect::{self, CallFilter, RecordedCall};
use windlass::store::Store;
use windlass::store::memory::MemoryStore;
use windlass::tasks::{NewTask, TaskFilter};
use windlass::{CallRequest, Config, EffectClass, Flags, Runtime, ToolSpec};

fn runtime(tool: ToolSpec) -> Runtime {
    let runtime = Runtime::new(Config::new(MemoryStore::new().unwrap()));
    runtime.register(echo(tool, &Count::default())).unwrap();
    runtime
}

/// How many calls each page of a list looked at that shows none.
async fn pages(store: &Arc<dyn Store>, session: &str) -> Vec<usize> {
    let row = store.session(session).await.unwrap().unwrap();
    let examined = AtomicUsize::new(0);
    let keep = |_: &RecordedCall| {
        examined.fetch_add(1, Ordering::Relaxed);
        false
    };
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let wanted = CallFilter { after, limit: 100, open_only: false, keep: &keep };
        let page = inspect::page(store, std::slice::from_ref(&row), &wanted).await.unwrap();
        assert!(page.calls.is_empty());
        pages.push(examined.swap(0, Ordering::Relaxed));
        after = page.next;
        if after.is_none() {
            return pages;
        }
    }
}

#[tokio::test]
async fn a_list_of_calls_ends_its_page_after_so_many_calls_and_goes_on_behind_them() {
    let runtime = runtime(spec("t", EffectClass::Read));
    for place in 0..41 {
        let calls = (0..256).map(|of| call(&of.to_string(), "t", n(of))).collect();
        run(&runtime, "s", batch(&place.to_string(), calls)).await;
    }
    let pages = pages(runtime.store(), "s").await;
    assert_eq!(pages.iter().sum::<usize>(), 41 * 256, "each is looked at once");
    assert!(pages.len() == 2 && pages[0] < 11_000, "{pages:?}");
}

#[tokio::test]
async fn a_list_of_calls_ends_its_page_after_so_many_batches() {
    let runtime = runtime(spec("t", EffectClass::Read));
    for place in 0..2_001_u64 {
        run(&runtime, "s", batch(&place.to_string(), vec![call("c", "t", n(place))])).await;
    }
    assert_eq!(pages(runtime.store(), "s").await, [2_000, 1]);
}

#[tokio::test]
async fn a_list_of_tasks_ends_its_page_after_so_many_tasks() {
    let flags = Flags { background: true, ..Flags::default() };
    let runtime = runtime(ToolSpec { flags, claims: Some(Vec::new()), ..spec("t", EffectClass::Keyed) });
    let started =
        |of: u64| CallRequest { task: Some(NewTask::default()), ..call(&of.to_string(), "t", n(of)) };
    for place in 0..6 {
        run(&runtime, "s", batch(&place.to_string(), (0..100).map(started).collect())).await;
    }
    runtime.idle().await;
    let tasks = runtime.tasks("s");
    let failed = TaskFilter { state: Some("failed"), kind: None };
    let first = tasks.list_where(failed, None, 50).await.unwrap();
    assert!(first.tasks.is_empty() && first.next.is_some(), "{:?}", first.next);
    let rest = tasks.list_where(TaskFilter::default(), first.next.as_deref(), 200).await.unwrap();
    assert_eq!((rest.tasks.len(), rest.next), (100, None), "500 were looked at, and the others follow");
    let last = tasks.list_where(failed, first.next.as_deref(), 50).await.unwrap();
    assert!(last.tasks.is_empty() && last.next.is_none());
}
