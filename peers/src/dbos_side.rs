//! A workflow with one step.

use crate::OneCall;
use anyhow::Result;
use dbos::{Config, DBOS};
use std::sync::Arc;

async fn touch(filler: String) -> dbos::Result<String> {
    dbos::step("touch", || async { Ok(filler.clone()) }).await
}

pub async fn start(url: &str) -> Result<OneCall> {
    let dbos = DBOS::new(Config { app_version: Some("1".to_owned()), ..Config::new("peers", url) });
    let workflow = Arc::new(dbos.register_workflow("touch", touch)?);
    dbos.launch().await?;
    let dbos = Arc::new(dbos);
    Ok(Arc::new(move |_| {
        let (workflow, dbos) = (workflow.clone(), dbos.clone());
        Box::pin(async move {
            workflow.run(crate::floor::FILLER.to_owned()).await?;
            drop(dbos);
            Ok(())
        })
    }))
}
