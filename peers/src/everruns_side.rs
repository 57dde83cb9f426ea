//! A task that is queued, claimed and completed. Workers in this process claim up to 32 at once, and whoever waits for a task is told of its end at once,
//! instead of asking the database for it.

use crate::OneCall;
use anyhow::Result;
use everruns_durable::PostgresWorkflowEventStore;
use everruns_durable::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use uuid::Uuid;

const WORKERS: usize = 4;
const CLAIMED_AT_ONCE: usize = 32;
const KIND: &str = "touch";

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

pub async fn start(url: &str) -> Result<OneCall> {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(10).connect(url).await?;
    PostgresWorkflowEventStore::migrate(&pool).await?;
    let store = PostgresWorkflowEventStore::new(pool);
    let (waiting, queued) = (Waiting::default(), Arc::new(Notify::new()));
    for number in 0..WORKERS {
        let (store, waiting, queued) = (store.clone(), waiting.clone(), queued.clone());
        tokio::spawn(async move { work(&store, &format!("worker-{number}"), &waiting, &queued).await });
    }
    Ok(Arc::new(move |_| {
        let (store, waiting, queued) = (store.clone(), waiting.clone(), queued.clone());
        Box::pin(async move {
            let (ended, end) = oneshot::channel();
            let activity = Uuid::now_v7().to_string();
            waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(activity.clone(), ended);
            let task = TaskDefinition {
                workflow_id: None,
                activity_id: activity,
                activity_type: KIND.to_owned(),
                input: serde_json::json!({"filler": crate::floor::FILLER}),
                options: ActivityOptions::default(),
            };
            store.enqueue_task(task).await?;
            queued.notify_one();
            Ok(end.await?)
        })
    }))
}

async fn work(
    store: &PostgresWorkflowEventStore,
    worker: &str,
    waiting: &Waiting,
    queued: &Notify,
) -> Result<()> {
    let kinds = [KIND.to_owned()];
    store.register_worker(WorkerInfo::new(worker, kinds.clone())).await?;
    loop {
        let claimed = store.claim_task(worker, &kinds, CLAIMED_AT_ONCE).await?;
        if claimed.is_empty() {
            queued.notified().await;
            continue;
        }
        let mut completing = JoinSet::new();
        for task in claimed {
            let (store, worker, waiting) = (store.clone(), worker.to_owned(), waiting.clone());
            completing.spawn(async move {
                store.complete_task(task.id, &worker, task.input.clone()).await?;
                let ended = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&task.activity_id);
                if let Some(ended) = ended {
                    // Whoever asked may be gone at the end of a turn.
                    let _ = ended.send(());
                }
                anyhow::Ok(())
            });
        }
        while let Some(completed) = completing.join_next().await {
            completed??;
        }
    }
}
