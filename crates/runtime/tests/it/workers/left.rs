//! Sessions of workers that left in good order, and who takes them.

use super::{LEASE, Member, journal, one, owner, workers};
use windlass::store::memory::MemoryStore;
use windlass::store::{Store, StoreSpace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_leaves_in_good_order_need_not_be_waited_for() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    a.sleeps();
    b.sleeps();
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    crate::rig::waits_for(&a.runtime, "sleep").await;
    drop(waiting);
    let (id, other) = (a.id().await, b.id().await);
    drop(a);
    // Whether the other one has looked before or not.
    while owner(&shared, "s").await.as_ref() != Some(&other) {
        b.step(&shared).await;
    }
    let row = shared.session("s").await.unwrap().unwrap();
    let batch = shared.open_batches(Some(row.no)).await.unwrap()[0].no;
    let facts = journal(&shared, "s").await;
    assert!(facts.iter().all(|row| row.batch == batch));
    // It is taken before it is read.
    while b.runtime.open_calls() == 0 {
        tokio::task::yield_now().await;
    }
    // Nothing is left of the one that left.
    while workers(&shared).await.contains(&id) {
        b.step(&shared).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_loses_its_lease_while_it_resumes_goes_on_under_the_next() {
    let shared = MemoryStore::new().unwrap();
    let (a, b) = (Member::new(&shared), Member::new(&shared));
    a.sleeps();
    b.sleeps();
    let waiting = a.runtime.submit("s", one()).await.unwrap();
    crate::rig::waits_for(&a.runtime, "sleep").await;
    let id = b.id().await;
    // Its writes are taken and not answered, as those of a database that goes away then.
    b.store.keep_silent(true);
    let left = a.id().await;
    drop((a, waiting));
    let shelf = StoreSpace::Worker.shelf();
    while shared.record(shelf, &left).await.unwrap().is_some_and(|record| record.value != b"left") {
        tokio::task::yield_now().await;
    }
    let resuming = tokio::spawn({
        let runtime = b.runtime.clone();
        async move { runtime.resume().await }
    });
    while owner(&shared, "s").await.as_ref() != Some(&id) {
        tokio::task::yield_now().await;
    }
    b.clock.advance(LEASE);
    while b.runtime.worker().is_some() {
        tokio::task::yield_now().await;
    }
    b.store.keep_silent(false);
    resuming.await.unwrap().expect("it is a worker still");
    assert_ne!(b.id().await, id);
    while owner(&shared, "s").await.as_ref() != b.runtime.worker().as_ref() {
        b.step(&shared).await;
    }
    while b.runtime.open_calls() == 0 {
        tokio::task::yield_now().await;
    }
}
