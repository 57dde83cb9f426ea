//! A worker in a process of its own, which can be stopped. It reads lines and says lines of JSON:
//!
//! - `who`: says its id, as `{"who": …}`.
//! - `submit SESSION CLASS`: submits a batch whose tool hangs here, and says what became of it.
//! - `go SESSION`: the tool that hangs there acts, and returns.

use super::{batch, limits};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use windlass::error::chain;
use windlass::{Args, BatchRequest, Config, Cx, EffectClass, Limits, Runtime, ToolSpec, tool_fn};
use windlass_store::PostgresStore;
use windlass_store::postgres::PostgresOptions;

/// The classes there are, by name.
pub const CLASSES: [(&str, EffectClass); 3] =
    [("read", EffectClass::Read), ("keyed", EffectClass::Keyed), ("once", EffectClass::Once)];

/// Runs until its standard input ends.
pub fn main(args: Vec<String>) -> Result<()> {
    let [url, lease_ms] = &args[..] else { bail!("usage: windlass-lease URL LEASE_MS") };
    let driving = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let options = PostgresOptions { limits: limits().store(), ..PostgresOptions::new(url) };
    let store = Arc::new(driving.block_on(PostgresStore::open(options))?);
    let _inside = driving.enter();
    // What it thinks of its own lease is not what the store has been told.
    let limits = Limits { lease_ms: lease_ms.parse().context("LEASE_MS is a number")?, ..limits() };
    let config = Config { limits, shared: true, ..Config::on(store) };
    let (runtime, gates) = (Runtime::new(config), Gates::default());
    for (name, class) in CLASSES {
        register(&runtime, name, class, &gates)?;
    }
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["who"] => say(json!({ "who": runtime.worker() })),
            ["submit", session, class] => {
                gates.hang(session);
                driving.spawn(submit(runtime.clone(), session.to_string(), class.to_string()));
            }
            ["go", session] => gates.open(session),
            _ => bail!("{line:?} cannot be done"),
        }
    }
    Ok(())
}

/// The sessions whose tool hangs here.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<String, Arc<Notify>>>>);

impl Gates {
    fn hang(&self, session: &str) {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(session.to_string()).or_default();
    }

    fn open(&self, session: &str) {
        if let Some(gate) = self.of(session) {
            gate.notify_one();
        }
    }

    fn of(&self, session: &str) -> Option<Arc<Notify>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }
}

/// Says that an attempt is over, however it ends.
struct ProcessAttemptExit(String);

impl Drop for ProcessAttemptExit {
    fn drop(&mut self) {
        say(json!({ "over": self.0 }));
    }
}

fn register(runtime: &Runtime, name: &str, class: EffectClass, gates: &Gates) -> Result<()> {
    let gates = gates.clone();
    let spec = ToolSpec { name: name.into(), class: Some(class), ..ToolSpec::default() };
    runtime.register(tool_fn(spec, move |args: Value, cx: &Cx| {
        let session = args["session"].as_str().unwrap_or_default().to_string();
        let (gate, cx) = (gates.of(&session), cx.clone());
        async move {
            let acts = || say(json!({ "acted": session, "key": cx.idempotency_key() }));
            let Some(gate) = gate else {
                acts();
                return Ok(json!("again").into());
            };
            let _leaving = ProcessAttemptExit(session.clone());
            say(json!({ "begun": session }));
            tokio::select! {
                () = gate.notified() => {
                    acts();
                    Ok(json!("first").into())
                }
                () = cx.stopping() => {
                    say(json!({ "told": session }));
                    std::future::pending().await
                }
            }
        }
    }))?;
    Ok(())
}

async fn submit(runtime: Runtime, session: String, class: String) {
    let mut asked: BatchRequest = batch();
    for call in &mut asked.calls {
        call.tool.clone_from(&class);
        call.args = Args::Json(json!({ "session": session }));
    }
    let settled = async {
        let submitted = runtime.submit(&session, asked).await?;
        submitted.admitted().await?;
        say(json!({ "admitted": session }));
        submitted.settled().await
    };
    match settled.await {
        Ok(answer) => say(json!({ "settled": session, "state": answer.calls[0].state() })),
        Err(error) => say(json!({ "lost": session, "why": chain(&error) })),
    }
}

fn say(line: Value) {
    let mut out = std::io::stdout().lock();
    // Whoever listened is gone, and so is the reason to go on.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
