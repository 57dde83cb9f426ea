//! Two workers on one store. One stands still past its lease while its tool runs, and goes on: every later write of it is refused, its
//! tool was told to stop, and its call has one outcome, which is true of what the tool did.
//!
//! Here both are in one process, and the one that stands still has a store that does. Real time passes, since a lease is the
//! subject: where the machine was so busy that a worker lost its lease too early, the trial is void and made again.

#[cfg(feature = "postgres")]
pub mod process;
#[cfg(feature = "postgres")]
pub mod stopped;

use crate::chance::Chance;
use crate::fault_store::{FaultPlan, FaultReach, FaultStore};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use windlass::{
    Args, BatchRequest, CallRequest, Config, Cx, EffectClass, Flags, Limits, Runtime, Submitted, ToolError,
    ToolSpec, tool_fn,
};
use windlass_core::batch::Batch;
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_store::{JournalRow, Space, Store};

/// Short enough for a thousand trials, and long enough for a busy machine.
pub fn limits() -> Limits {
    Limits { heartbeat_ms: 40, lease_ms: 200, knock_ms: 50, grace_ms: 20, ..Limits::default() }
}

/// A longer wait is in vain.
const PATIENCE: Duration = Duration::from_secs(60);

/// Events of the trials; none of them may be zero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    pub trials: u64,
    /// The machine was too slow, and the trial says nothing.
    pub void: u64,
    pub taken_over: u64,
    /// Writes that were under way when the worker stood still, and refused when it went on.
    pub refused: u64,
    /// Tools that were stopped, and those of them that heard of it: one that is not driven within its grace does not.
    pub stopped: u64,
    pub told_to_stop: u64,
    /// Tools that acted although their worker stood still.
    pub acted_late: u64,
    /// Calls that were run again, and calls that ended as unknown.
    pub run_again: u64,
    pub unknown: u64,
}

impl Happened {
    pub fn add(&mut self, other: Happened) {
        self.trials += other.trials;
        self.void += other.void;
        self.taken_over += other.taken_over;
        self.refused += other.refused;
        self.stopped += other.stopped;
        self.told_to_stop += other.told_to_stop;
        self.acted_late += other.acted_late;
        self.run_again += other.run_again;
        self.unknown += other.unknown;
    }
}

/// The behaviour of the stopped worker's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// It acts, and stops when it is told to.
    Obeys,
    /// It acts, and never returns.
    Ignores,
    /// It acts and returns while its worker stands still: its end is on its way.
    Late,
}

/// The subject of a trial.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTrial {
    pub class: EffectClass,
    pub behaviour: Behaviour,
    /// Whether the tool runs where calls are driven, rather than on a thread of its own.
    pub quick: bool,
}

impl LeaseTrial {
    pub fn chosen(chance: &mut Chance) -> LeaseTrial {
        LeaseTrial {
            class: chance.one_of(&[EffectClass::Read, EffectClass::Keyed, EffectClass::Once]),
            behaviour: chance.one_of(&[
                Behaviour::Obeys,
                Behaviour::Ignores,
                Behaviour::Late,
                Behaviour::Late,
            ]),
            quick: chance.percent(50),
        }
    }

    pub fn spec(&self) -> ToolSpec {
        let flags = Flags { quick: self.quick, ..Flags::default() };
        ToolSpec { name: "act".into(), class: Some(self.class), flags, ..ToolSpec::default() }
    }
}

/// The one batch of a trial.
pub fn batch() -> BatchRequest {
    let call = CallRequest {
        id: Some("c".into()),
        tool: "act".into(),
        args: Args::Json(serde_json::json!({})),
        ..CallRequest::default()
    };
    BatchRequest { key: Some("b".into()), calls: vec![call], ..BatchRequest::default() }
}

/// The actors, with their keys.
type ActionLog = Arc<Mutex<Vec<(&'static str, String)>>>;

/// The reply of the stopped worker's tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoppedToolWords {
    Begun,
    Acted,
    ToldToStop,
    /// It returned, or was given up.
    Over,
}

/// Says that an attempt is over, however it ends.
struct AttemptExit(mpsc::UnboundedSender<StoppedToolWords>);

impl Drop for AttemptExit {
    fn drop(&mut self) {
        let _ = self.0.send(StoppedToolWords::Over);
    }
}

/// One of the two.
struct Side {
    store: FaultStore,
    runtime: Runtime,
}

impl Side {
    fn new(shared: &Arc<dyn Store>) -> Side {
        let store = FaultStore::new(shared.clone(), FaultPlan::Never, FaultReach::Session);
        let config = Config { limits: limits(), shared: true, ..Config::on(Arc::new(store.clone())) };
        Side { store, runtime: Runtime::new(config) }
    }

    /// Looks again whenever this side has written something, which it does as long as it is alive.
    async fn until<T>(&self, what: &str, mut found: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        let waiting = async {
            loop {
                let rung = self.store.rung();
                if let Some(found) = found().await? {
                    return Ok(found);
                }
                rung.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("waited for: {what}"))?
    }

    /// Its id as a worker that is not this one.
    async fn id(&self, but: Option<&str>) -> Result<String> {
        let other = || self.runtime.worker().filter(|id| Some(id.as_str()) != but);
        self.until("a lease", async || Ok(other())).await
    }
}

/// Makes one trial in a session of its own. `None`: it is void.
pub async fn run(shared: &Arc<dyn Store>, session: &str, trial: LeaseTrial) -> Result<Option<Happened>> {
    let (first, second, ledger) = (Side::new(shared), Side::new(shared), ActionLog::default());
    let (go, mut said) = register(&first, &second, trial, &ledger)?;
    let id = first.id(None).await?;
    let Some(waiting) = begin(&first, session, &mut said).await? else { return Ok(None) };
    first.store.freeze(true);
    let no = shared.session(session).await?.context("the session is not there")?.no;
    let owner = || async {
        let owner = shared.record(Space::Owner.of(no), "worker").await?.context("nobody owns it")?;
        Ok::<_, anyhow::Error>(String::from_utf8(owner.value)?)
    };
    if first.runtime.worker().as_ref() != Some(&id) || owner().await? != id {
        first.store.freeze(false);
        return Ok(None);
    }
    let _ = go.send(());
    second
        .until("its session to be taken over and its call to end", async || {
            Ok(shared.open_batches(Some(no)).await?.is_empty().then_some(()))
        })
        .await?;
    ensure!(owner().await? != id, "its call ended, and it still owns the session");
    let story = shared.history(no, None, 1_000).await?;
    let heard = hear(&mut said).await?;
    first.store.freeze(false);
    first.id(Some(&id)).await?;
    let told = tokio::time::timeout(PATIENCE, waiting.settled()).await.context("it was never told")?;
    ensure!(told.is_err(), "a worker that was taken for dead has answered");
    tokio::time::timeout(PATIENCE, first.runtime.idle()).await.context("its calls never came to rest")?;
    ensure!(shared.history(no, None, 1_000).await? == story, "it wrote something when it went on");
    let outcome = answer(&second, session).await?;
    let happened = judge(trial, &story, &outcome, &ledger)?;
    let (refused, taken) = first.store.fenced();
    ensure!(taken == 0, "{taken} writes that were on their way were not refused for their fence");
    let told_to_stop = u64::from(heard);
    let stopped = u64::from(trial.behaviour != Behaviour::Late);
    Ok(Some(Happened { stopped, told_to_stop, refused, ..happened }))
}

/// Both have the tool. What the first one's waits for, and what it says.
fn register(
    first: &Side,
    second: &Side,
    trial: LeaseTrial,
    ledger: &ActionLog,
) -> Result<(mpsc::UnboundedSender<()>, mpsc::UnboundedReceiver<StoppedToolWords>)> {
    let (go, goes) = mpsc::unbounded_channel();
    let (says, said) = mpsc::unbounded_channel();
    let (goes, acts) = (Arc::new(tokio::sync::Mutex::new(goes)), ledger.clone());
    first.runtime.register(tool_fn(trial.spec(), move |_, cx: &Cx| {
        let (goes, says, acts, cx) = (goes.clone(), says.clone(), acts.clone(), cx.clone());
        async move {
            let say = |what| _ = says.send(what);
            let _leaving = AttemptExit(says.clone());
            say(StoppedToolWords::Begun);
            if trial.behaviour == Behaviour::Late {
                goes.lock().await.recv().await;
            }
            act(&acts, "first", trial.class, &cx);
            say(StoppedToolWords::Acted);
            if trial.behaviour == Behaviour::Late {
                return Ok(serde_json::json!("first").into());
            }
            cx.stopping().await;
            say(StoppedToolWords::ToldToStop);
            match trial.behaviour {
                Behaviour::Obeys => Err(ToolError::stopped()),
                Behaviour::Ignores | Behaviour::Late => std::future::pending().await,
            }
        }
    }))?;
    let acts = ledger.clone();
    second.runtime.register(tool_fn(trial.spec(), move |_, cx: &Cx| {
        act(&acts, "second", trial.class, cx);
        async move { Ok(serde_json::json!("second").into()) }
    }))?;
    Ok((go, said))
}

fn act(ledger: &ActionLog, who: &'static str, class: EffectClass, cx: &Cx) {
    if class != EffectClass::Read {
        ledger.lock().unwrap_or_else(PoisonError::into_inner).push((who, cx.idempotency_key()));
    }
}

/// Submits the batch and waits until its tool has begun, and its call is recorded.
async fn begin(
    first: &Side,
    session: &str,
    said: &mut mpsc::UnboundedReceiver<StoppedToolWords>,
) -> Result<Option<Submitted>> {
    // A worker that lost its lease by now is told so; then there is nothing to try.
    let Ok(waiting) = first.runtime.submit(session, batch()).await else { return Ok(None) };
    if waiting.admitted().await.is_err() {
        return Ok(None);
    }
    let begun = tokio::time::timeout(PATIENCE, said.recv()).await.context("the tool never began")?;
    ensure!(begun == Some(StoppedToolWords::Begun), "the tool said {begun:?} first");
    Ok(Some(waiting))
}

/// Waits until the tool has acted and is over. Whether it was told to stop.
async fn hear(said: &mut mpsc::UnboundedReceiver<StoppedToolWords>) -> Result<bool> {
    let mut next =
        async || tokio::time::timeout(PATIENCE, said.recv()).await.context("the tool was never stopped");
    let acted = next().await?;
    ensure!(acted == Some(StoppedToolWords::Acted), "the tool said {acted:?}");
    let told = next().await?;
    if told == Some(StoppedToolWords::Over) {
        return Ok(false);
    }
    ensure!(
        told == Some(StoppedToolWords::ToldToStop) && next().await? == Some(StoppedToolWords::Over),
        "the tool said {told:?}"
    );
    Ok(true)
}

/// The final answer of the call, from whichever worker has it.
async fn answer(second: &Side, session: &str) -> Result<String> {
    let asked = async || match second.runtime.submit(session, batch()).await {
        Ok(submitted) => Ok(submitted.settled().await.ok().map(|answer| answer.calls[0].state().to_string())),
        // It may have lost its lease meanwhile, and got another.
        Err(_) => Ok(None),
    };
    second.until("the answer", asked).await
}

/// Whether there is one outcome, and whether it is true.
fn judge(trial: LeaseTrial, story: &[JournalRow], outcome: &str, ledger: &ActionLog) -> Result<Happened> {
    ensure!(outcome == recorded(story)?, "{outcome} is told, and another outcome is recorded");
    let acts = ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let by = |who: &str| acts.iter().filter(|(by, _)| *by == who).count();
    let keys: BTreeSet<&String> = acts.iter().map(|(_, key)| key).collect();
    match (trial.class, outcome) {
        (EffectClass::Read, "succeeded") => {}
        (EffectClass::Keyed, "succeeded") => {
            ensure!(keys.len() == 1 && by("second") > 0, "{acts:?} under a key that counts once");
        }
        (EffectClass::Once, "unknown") => ensure!(by("first") <= 1 && by("second") == 0, "{acts:?}"),
        (class, outcome) => bail!("a call that may be {class} {outcome}, after {acts:?}"),
    }
    Ok(Happened {
        trials: 1,
        taken_over: 1,
        acted_late: u64::from(trial.behaviour == Behaviour::Late),
        run_again: u64::from(outcome == "succeeded"),
        unknown: u64::from(outcome == "unknown"),
        ..Happened::default()
    })
}

/// The one outcome of the one call of a session, as it is recorded.
fn recorded(story: &[JournalRow]) -> Result<&'static str> {
    let mut entries = Vec::new();
    for row in story.iter().rev() {
        entries.extend(entry::unpack(&row.data)?);
    }
    let ended = |event: &EntryEvent| matches!(event, EntryEvent::Call { fact: Fact::Ended(_), .. });
    let ends = entries.iter().filter(|entry| ended(&entry.event)).count();
    ensure!(ends == 1, "there are {ends} ends");
    let batch = Batch::fold(&entries)?;
    Ok(batch.calls.first().context("there is no call")?.state.name())
}
