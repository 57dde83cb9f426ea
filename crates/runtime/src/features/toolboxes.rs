//! Toolboxes: tools that processes in any language run. A process puts a manifest, takes attempts, and reports what they do.
//!
//! The attempt is an ordinary one whose tool waits for the process. Its start is recorded with the hash of a token that only the
//! process gets; whoever has the token goes on with the attempt when the session has another owner.

mod desk;
mod kept;
mod manifest;
mod reports;
mod seat;
mod talk;
mod tool;

pub use manifest::{ManifestDeadlines, ManifestRetry, ToolManifest};
pub use talk::{
    AttemptNews, AttemptReport, AttemptStanding, OperationAnswer, OperationRefusal, StepRecord, TakeRequest,
    TakenAttempt, ToolboxEnd, ToolboxOperation,
};

use crate::api::answer::as_wall_time;
use crate::api::error::{SessionError, chain};
use crate::session::held::due_us;
use crate::session::inner::{Inner, Runtime};
use crate::session::wheel::WakeTime;
use crate::tools::registry::RegisterError;
use crate::tools::request::check_session_name;
use crate::tools::tool::Tool;
use crate::tools::toolbox::ToolboxLink;
use desk::{Desk, LookTimes, OpenToolbox, ShownToolbox};
use kept::{KeptToolbox, StoredToolbox};
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tool::ToolboxTool;
use windlass_core::plan::Cap;
use windlass_core::time::Timestamp;

/// A toolbox.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Toolbox {
    /// Its name.
    pub name: String,
    /// The principal that it belongs to: the one that put it first.
    pub principal: String,
    /// The digest of its manifest. A process takes work with the manifest that it put.
    pub manifest: String,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Whether a process serves it. Calls of its tools wait as `no_worker` while none does.
    pub served: bool,
    /// The processes that serve it, and were heard of within `toolbox_silence_ms`.
    pub workers: Vec<ToolboxWorker>,
    /// The attempts that processes have.
    pub running: u64,
    /// The attempts that the next process takes.
    pub waiting: u64,
    /// When it was first put.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub created: Timestamp,
    /// When its manifest last changed.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub changed: Timestamp,
}

/// A process that serves a toolbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ToolboxWorker {
    /// Its name.
    pub worker: String,
    /// How many attempts it has at most.
    pub slots: u32,
    /// How many it has.
    pub running: u64,
    /// How long ago it was last heard of, in milliseconds.
    pub heard_ms: u64,
}

/// A failed operation on toolboxes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolboxError {
    /// There is none of that name, or it belongs to another principal.
    #[error("there is no toolbox {name:?}; put its manifest first")]
    NotFound {
        /// The name.
        name: String,
    },
    /// Its manifest is another by now.
    #[error(
        "the toolbox {name:?} has another manifest by now ({manifest}); put yours again, or end this process if a newer one \
         serves the toolbox"
    )]
    Changed {
        /// The name.
        name: String,
        /// The digest of the manifest that it has.
        manifest: String,
    },
    /// A manifest or a request is invalid.
    #[error("{what}")]
    Invalid {
        /// The mistake, and what to do.
        what: String,
    },
    /// A tool of it is refused.
    #[error(transparent)]
    Refused(#[from] RegisterError),
    /// The attempt has ended, or another process has it.
    #[error("the attempt is over: it has ended, was lost, or another process has it; drop it")]
    AttemptOver,
    /// The attempt is the current one by the record, and its session is not driven here yet.
    #[error("nobody drives the session of the attempt yet; try again")]
    Unheard,
    /// There are too many.
    #[error("there are {max} toolboxes already; remove one that is not used")]
    TooMany {
        /// The limit `toolboxes_max`.
        max: u64,
    },
    /// The store is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The toolboxes of a store. See [`Runtime::toolboxes`].
pub struct Toolboxes(Arc<Inner>);

impl Runtime {
    /// The toolboxes: tools that processes in any language run.
    pub fn toolboxes(&self) -> Toolboxes {
        Toolboxes(self.0.clone())
    }
}

impl Toolboxes {
    /// Puts the manifest of a toolbox, which belongs to the principal that puts it first. Durable when this returns; the same
    /// manifest again changes nothing.
    pub async fn put(
        &self,
        name: &str,
        principal: &str,
        tools: Vec<ToolManifest>,
    ) -> Result<Toolbox, ToolboxError> {
        let rt = &self.0;
        check(rt, name, &tools)?;
        load(rt).await?;
        let desk = desk(rt);
        let _alone = desk.changing.lock().await;
        let (text, digest) = kept::encoded(&tools)?;
        let max = rt.limits.toolbox_manifest_bytes_max;
        if text.len() as u64 > max {
            return Err(ToolboxError::Invalid { what: format!("a manifest has at most {max} bytes") });
        }
        let stored = kept::one(&*rt.store, name).await?;
        if stored.as_ref().is_some_and(|stored| stored.head.principal != principal) {
            return Err(ToolboxError::NotFound { name: name.to_string() });
        }
        let now_us = rt.clock.now().0;
        let generation = stored.as_ref().map_or(0, |stored| stored.generation);
        let created_us = stored.as_ref().map_or(now_us, |stored| stored.head.created_us);
        let is_same = stored.as_ref().is_some_and(|stored| stored.head.manifest == digest.whole());
        let (principal, manifest) = (principal.to_string(), digest.whole());
        let head = KeptToolbox { principal, manifest, pieces: 0, created_us, changed_us: now_us };
        if !is_same || desk.manifest(name).as_ref() != Some(&head.manifest) {
            let specs = made(rt, name, &tools, &head)?;
            rt.registry.check_box(name, &specs.tools)?;
            if generation == 0 && kept::all(&*rt.store).await?.len() as u64 >= rt.limits.toolboxes_max {
                return Err(ToolboxError::TooMany { max: rt.limits.toolboxes_max });
            }
            if !is_same && !kept::put(&*rt.store, name, &text, head.clone(), generation).await? {
                let what = format!("another process puts the toolbox {name:?} at the same time; try again");
                return Err(ToolboxError::Invalid { what });
            }
            install(rt, name, specs, &head)?;
            kept::clean(&*rt.store, name, Some(&head.manifest)).await?;
        }
        self.shown(name).ok_or_else(|| ToolboxError::NotFound { name: name.to_string() })
    }

    /// All toolboxes, by name.
    pub async fn list(&self) -> Result<Vec<Toolbox>, ToolboxError> {
        load_newest(&self.0).await?;
        Ok(desk(&self.0).names().iter().filter_map(|name| self.shown(name)).collect())
    }

    /// The principal that a toolbox belongs to.
    pub async fn owner(&self, name: &str) -> Result<Option<String>, ToolboxError> {
        load_named(&self.0, name).await?;
        Ok(desk(&self.0).owner(name).map(|owner| owner.to_string()))
    }

    /// Removes a toolbox and its tools. Attempts that its processes have go on. `false`: there was none of the principal.
    pub async fn remove(&self, name: &str, principal: &str) -> Result<bool, ToolboxError> {
        let rt = &self.0;
        load(rt).await?;
        let desk = desk(rt);
        let _alone = desk.changing.lock().await;
        match kept::one(&*rt.store, name).await? {
            Some(StoredToolbox { head, .. }) if head.principal == principal => {}
            Some(_) | None => return Ok(false),
        }
        kept::remove(&*rt.store, name).await?;
        uninstall(rt, name);
        Ok(true)
    }

    /// Gives attempts to a process; waits for the first one if asked to.
    pub async fn take(
        &self,
        name: &str,
        principal: &str,
        asks: TakeRequest,
    ) -> Result<Vec<TakenAttempt>, ToolboxError> {
        let rt = &self.0;
        load_named(rt, name).await?;
        let desk = desk(rt);
        if rt.owners.has_others() && desk.manifest(name).is_some_and(|known| known != asks.manifest) {
            load_newest(rt).await?;
        }
        desk.admits(name, principal)?;
        check_worker(&asks.worker)?;
        let max = rt.limits.toolbox_take_max;
        let asks = TakeRequest { max: asks.max.min(u32::try_from(max).unwrap_or(u32::MAX)), ..asks };
        let (worker, silence_us) = (Arc::from(asks.worker.as_str()), silence_us(rt));
        let alone_us = rt.limits.suspect_alone_ms.saturating_mul(1_000);
        let workers_max = rt.limits.toolbox_workers_max;
        let due_us = self.due_us(asks.wait);
        loop {
            let arrived = desk.arrived(name)?;
            let arrived = arrived.notified();
            gather(rt, &desk, name, asks.max).await?;
            let now_us = rt.clock.elapsed_us();
            let look =
                desk.look(name, &asks, &worker, LookTimes { now_us, silence_us, alone_us, workers_max })?;
            if let Some(running_max) = look.slots {
                rt.turns.set_group(rt, &manifest::group(name), Cap { running_max, rate: None });
            }
            if look.is_back {
                rt.registry.box_is_back();
            }
            if !look.taken.is_empty() || asks.max == 0 || now_us >= due_us {
                // Without the desk's lock: the clocks of a call have locks of their own.
                return Ok(look.taken.iter().filter_map(|seat| seat.offered()).collect());
            }
            tokio::select! {
                () = arrived => {}
                () = rt.wheel.until(due_us) => {}
            }
            if desk.has_left(name, &worker) {
                return Ok(Vec::new());
            }
        }
    }

    fn shown(&self, name: &str) -> Option<Toolbox> {
        let rt = &self.0;
        let shown = desk(rt).shown(name, rt.clock.elapsed_us(), silence_us(rt))?;
        let ShownToolbox { principal, manifest, tools, created, changed, workers, waiting, running, is_away } =
            shown;
        let (name, principal, served) = (name.to_string(), principal.to_string(), !is_away);
        Some(Toolbox {
            name,
            principal,
            manifest,
            tools,
            served,
            workers,
            running,
            waiting,
            created,
            changed,
        })
    }

    /// When a wait of this length is over, as far as it is allowed.
    fn due_us(&self, wait: Duration) -> u64 {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(self.0.limits.toolbox_wait_ms_max);
        due_us(self.0.clock.elapsed_us(), ms)
    }
}

/// How long attempts that are there wait for those that start together with them: two commits of a slow disk, since the first commit of a
/// batch often has few of its starts.
const GATHER_US: u64 = 5_000;

/// Lets attempts that start together be taken together: one request for all of them costs a process much less than one for each.
async fn gather(rt: &Inner, desk: &Desk, name: &str, max: u32) -> Result<(), ToolboxError> {
    let due_us = rt.clock.elapsed_us().saturating_add(GATHER_US);
    let arrived = desk.arrived(name)?;
    loop {
        let next = arrived.notified();
        let (queued, coming) = desk.queued(name);
        if queued == 0 || coming == 0 || queued >= u64::from(max) || rt.clock.elapsed_us() >= due_us {
            return Ok(());
        }
        tokio::select! {
            () = next => {}
            () = rt.wheel.until(due_us) => {}
        }
    }
}

/// The attempts of these tokens' hashes have ended, durably.
pub(crate) fn ended(rt: &Arc<Inner>, hashes: &[Arc<str>]) {
    desk(rt).ended(hashes);
}

fn desk(rt: &Inner) -> Arc<Desk> {
    rt.slots.of::<Desk>()
}

fn silence_us(rt: &Inner) -> u64 {
    rt.limits.toolbox_silence_ms.saturating_mul(1_000)
}

/// Where other workers put toolboxes too, those are looked for again and again.
pub(crate) fn begin(rt: &Arc<Inner>) {
    if rt.owners.has_others() {
        look_later(rt);
    }
}

fn look_later(rt: &Arc<Inner>) {
    let due_us = due_us(rt.clock.elapsed_us(), rt.limits.knock_ms);
    // The alarm is for all sessions.
    rt.wheel.alarm_session(WakeTime { due_us, wall: None }, &Arc::from(""), |rt, _| {
        let rt = rt.clone();
        rt.tasks.clone().spawn(async move {
            let desk = desk(&rt);
            let _alone = desk.changing.lock().await;
            if let Err(error) = adopt(&rt, &desk).await {
                tracing::warn!(error = %chain(&error), "the toolboxes could not be read again; it is tried later");
            }
            look_later(&rt);
        });
    });
}

/// Registers the stored toolboxes, before anything needs their tools.
pub(crate) async fn load(rt: &Arc<Inner>) -> Result<(), SessionError> {
    let desk = desk(rt);
    if desk.is_loaded.load(Ordering::SeqCst) {
        return Ok(());
    }
    let _alone = desk.changing.lock().await;
    if !desk.is_loaded.load(Ordering::SeqCst) {
        adopt(rt, &desk).await?;
        desk.is_loaded.store(true, Ordering::SeqCst);
    }
    Ok(())
}

/// Registers the stored toolboxes, also one that another worker has put since this one looked.
async fn load_named(rt: &Arc<Inner>, name: &str) -> Result<(), SessionError> {
    load(rt).await?;
    if rt.owners.has_others()
        && desk(rt).manifest(name).is_none()
        && kept::one(&*rt.store, name).await?.is_some()
    {
        load_newest(rt).await?;
    }
    Ok(())
}

/// Registers the toolboxes that are stored now, which other workers may have put.
async fn load_newest(rt: &Arc<Inner>) -> Result<(), SessionError> {
    load(rt).await?;
    if rt.owners.has_others() {
        let desk = desk(rt);
        let _alone = desk.changing.lock().await;
        adopt(rt, &desk).await?;
    }
    Ok(())
}

/// Makes memory what is stored.
async fn adopt(rt: &Arc<Inner>, desk: &Desk) -> Result<(), SessionError> {
    let stored = kept::all(&*rt.store).await?;
    for name in desk.names() {
        if !stored.iter().any(|(kept, _)| *kept == name) {
            uninstall(rt, &name);
        }
    }
    for (name, StoredToolbox { head, .. }) in stored {
        if desk.manifest(&name).as_ref() == Some(&head.manifest) {
            continue;
        }
        let tools = kept::manifest(&*rt.store, &name, &head).await?;
        let installed = made(rt, &name, &tools, &head).and_then(|specs| install(rt, &name, specs, &head));
        if let Err(error) = installed {
            tracing::error!(toolbox = name, error = %chain(&error), "a stored toolbox is refused; its calls wait for its tools");
        }
    }
    Ok(())
}

/// The tools of a toolbox, with their link.
struct MadeTools {
    link: Arc<ToolboxLink>,
    tools: Vec<Arc<dyn Tool>>,
}

fn made(
    rt: &Arc<Inner>,
    name: &str,
    tools: &[ToolManifest],
    head: &KeptToolbox,
) -> Result<MadeTools, ToolboxError> {
    let digest = kept::encoded(tools)?.1;
    debug_assert_eq!(digest.whole(), head.manifest);
    let link = Arc::new(ToolboxLink::new(name, &head.principal, digest, rt.limits.toolbox_silence_ms));
    let allowed: Arc<[String]> = rt.toolbox_secrets.get(name).cloned().unwrap_or_default().into();
    let desk = desk(rt);
    let tool = |manifest: &ToolManifest| -> Result<Arc<dyn Tool>, ToolboxError> {
        let (link, desk, allowed) = (link.clone(), desk.clone(), allowed.clone());
        Ok(Arc::new(ToolboxTool { spec: manifest.spec(name)?, link, desk, allowed }))
    };
    let tools = tools.iter().map(tool).collect::<Result<_, _>>()?;
    Ok(MadeTools { link, tools })
}

fn install(rt: &Arc<Inner>, name: &str, made: MadeTools, head: &KeptToolbox) -> Result<(), ToolboxError> {
    let put = rt.registry.put_box(&made.link, &made.tools)?;
    let gone = put.before.iter().filter(|old| !put.now.iter().any(|now| now.spec.name == old.spec.name));
    gone.for_each(|tool| rt.turns.remove_tool(rt, tool));
    put.now.iter().for_each(|tool| rt.turns.set_tool(rt, tool));
    rt.turns.set_group(rt, &manifest::group(name), Cap::default());
    let names = put.now.iter().map(|tool| tool.spec.name.clone()).collect();
    let (created, changed) = (Timestamp(head.created_us), Timestamp(head.changed_us));
    desk(rt).put(name, OpenToolbox::new(made.link, names, created, changed));
    Ok(())
}

fn uninstall(rt: &Arc<Inner>, name: &str) {
    rt.registry.remove_box(name).iter().for_each(|tool| rt.turns.remove_tool(rt, tool));
    rt.turns.set_group(rt, &manifest::group(name), Cap::default());
    desk(rt).remove(name);
}

fn check(rt: &Inner, name: &str, tools: &[ToolManifest]) -> Result<(), ToolboxError> {
    check_session_name(name).map_err(|_| {
        let what = format!("the name of a toolbox is 1 to 64 of [a-zA-Z0-9_.-]; {name:?} is not");
        ToolboxError::Invalid { what }
    })?;
    let max = rt.limits.toolbox_tools_max;
    if tools.len() as u64 > max {
        return Err(ToolboxError::Invalid { what: format!("a toolbox has at most {max} tools") });
    }
    Ok(())
}

fn check_worker(worker: &str) -> Result<(), ToolboxError> {
    check_session_name(worker).map_err(|_| {
        let what =
            format!("`worker` is 1 to 64 of [a-zA-Z0-9_.-], a name of the process alone; {worker:?} is not");
        ToolboxError::Invalid { what }
    })
}
