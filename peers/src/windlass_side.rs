//! A tool call of class `once` in a batch of its own, on a worker with its usual settings.

use crate::OneCall;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass::{Args, BatchRequest, CallRequest, Config, EffectClass, Output, Runtime, ToolSpec, tool_fn};
use windlass_store::PostgresStore;
use windlass_store::postgres::PostgresOptions;

pub async fn start(database: &str) -> Result<OneCall> {
    let store = PostgresStore::open(PostgresOptions::new(database)).await?;
    let runtime = Runtime::new(Config { shared: true, ..Config::new(store) });
    let spec = ToolSpec { name: "touch".to_owned(), class: Some(EffectClass::Once), ..ToolSpec::default() };
    runtime.register(tool_fn(spec, |args, _| async { Ok(Output::from(args)) }))?;
    let next = Arc::new(AtomicU64::new(0));
    Ok(Arc::new(move |session| {
        let (runtime, next) = (runtime.clone(), next.clone());
        Box::pin(async move {
            let args = Args::Text(format!("{{\"filler\": \"{}\"}}", crate::floor::FILLER));
            let call = CallRequest {
                id: Some("c".to_owned()),
                tool: "touch".to_owned(),
                args,
                ..CallRequest::default()
            };
            let key = Some(format!("b{}", next.fetch_add(1, Ordering::Relaxed)));
            let batch = BatchRequest { key, calls: vec![call], ..BatchRequest::default() };
            let answer = runtime.submit(&format!("s{session}"), batch).await?.settled().await?;
            ensure!(answer.calls[0].call().outcome().is_some(), "a call has not ended");
            Ok(())
        })
    }))
}
