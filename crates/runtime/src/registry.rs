//! The tools there are: compiled once, found by name or stable id through the layers, listed in one order.

use crate::provider::{Provided, Provider, Summary};
use crate::scope::{self, Entry, Layer, Overlay};
use crate::tool::{Place, Tool, ToolError};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;
use windlass_core::attempt::{Deadlines, Rules};
use windlass_core::limits::Limits;
use windlass_core::schema::{self, Role, Schema};
use windlass_core::tool::{BadName, Digest, EffectClass, ToolSpec, check_name};

/// A tool that was accepted, with everything a call needs of it compiled.
pub struct Registered {
    /// The author's description.
    pub spec: ToolSpec,
    /// The class in force.
    pub class: EffectClass,
    /// What calls are pinned to.
    pub contract: Digest,
    /// How attempts of its calls are made, unless a call shortens that.
    pub rules: Rules,
    /// Whether it can be asked if an attempt took effect.
    pub reconciles: bool,
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) input: Option<Schema>,
    pub(crate) output: Option<Schema>,
    /// Shared with what takes its place.
    pub(crate) paused: Arc<AtomicBool>,
    /// The rules as they are recorded: not at all where they are the usual ones.
    recorded: Option<Arc<Rules>>,
}

impl Registered {
    /// Whether its calls are not to start now, see [`Runtime::pause`](crate::Runtime::pause).
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// The rules of a call that asks for these deadlines, as they are recorded.
    pub(crate) fn rules_for(&self, asked: Option<&Deadlines>) -> Option<Arc<Rules>> {
        let Some(asked) = asked else { return self.recorded.clone() };
        let rules = self.rules.shortened(asked);
        if rules == self.rules { self.recorded.clone() } else { recorded(rules, self.class) }
    }
}

/// A journal that says nothing of rules means the usual ones.
fn recorded(rules: Rules, class: EffectClass) -> Option<Arc<Rules>> {
    (rules != Rules::unsaid(class)).then(|| Arc::new(rules))
}

/// Why a tool was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// The name has the wrong form.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The name, or the id, is another tool's.
    #[error(
        "the tool {name:?} cannot be told from {taken:?}, which is registered; rename it, or replace the other"
    )]
    Taken {
        /// The new one.
        name: String,
        /// The one that is there.
        taken: String,
    },
    /// It comes from a provider, so it is not replaced but withdrawn with it, or shadowed.
    #[error("the tool {name:?} comes from a provider; withdraw that, or shadow the tool in an overlay")]
    Provided {
        /// The tool.
        name: String,
    },
    /// This provider was not provided, or was withdrawn.
    #[error("this provider is not one of the runtime's; provide it first")]
    NoSuchProvider,
    /// A schema is refused.
    #[error(transparent)]
    Schema(#[from] schema::Refused),
    /// Two flags contradict each other.
    #[error(
        "the tool {name:?} is both quick and cpu_bound; a tool that computes is not quick, drop one of the flags"
    )]
    Flags {
        /// The tool.
        name: String,
    },
    /// A number of its rules makes no sense.
    #[error("the tool {name:?} says {place} = {value}; {hint}")]
    Rules {
        /// The tool.
        name: String,
        /// Which number, such as `retry.attempts`.
        place: &'static str,
        /// What it says.
        value: u64,
        /// What would make sense.
        hint: &'static str,
    },
}

/// There is no registered or provided tool of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {name:?}{}", nearest.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
pub struct NoSuchTool {
    /// What was asked for.
    pub name: String,
    /// What was probably meant.
    pub nearest: Option<String>,
}

/// A tool as it is listed: what a model is told of it, and the whole once it is loaded.
#[derive(Clone)]
pub struct Listed {
    /// Name, title and description.
    pub summary: Summary,
    /// The whole; `None` while its provider was not asked for it.
    pub tool: Option<Arc<Registered>>,
}

/// What a call's tool is.
pub(crate) enum Found {
    Tool(Arc<Registered>),
    /// None that the caller may use.
    Missing {
        nearest: Option<String>,
    },
    /// Its provider does not give it now.
    Unavailable(ToolError),
}

/// The tools there are.
pub(crate) struct Registry {
    limits: Arc<Limits>,
    tools: RwLock<Tools>,
    /// Counts what changes the answer of a look-up, or whether a tool may start.
    generation: AtomicU64,
    changed: Notify,
}

#[derive(Default)]
struct Tools {
    base: Layer,
    providers: Vec<Arc<dyn Provider>>,
    /// By the session's name, in the order in which they were attached.
    overlays: HashMap<String, Vec<Attached>>,
    overlays_ever: u64,
}

struct Attached {
    no: u64,
    overlay: Arc<Overlay>,
}

impl Registry {
    pub(crate) fn new(limits: Arc<Limits>) -> Registry {
        Registry { limits, tools: RwLock::default(), generation: AtomicU64::new(0), changed: Notify::new() }
    }

    pub(crate) fn register(&self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let entry = Entry::Tool(Arc::new(compile(tool, &self.limits)?));
        let mut tools = self.write();
        tools.base.check_free(&entry, None)?;
        tools.base.insert(entry);
        self.told(tools);
        Ok(())
    }

    pub(crate) fn replace(&self, tool: Arc<dyn Tool>) -> Result<Option<Arc<Registered>>, RegisterError> {
        let mut registered = compile(tool, &self.limits)?;
        let name = registered.spec.name.clone();
        let mut tools = self.write();
        let old = match tools.base.by_name.get(&name) {
            Some(Entry::Provided(_)) => return Err(RegisterError::Provided { name }),
            Some(Entry::Tool(old)) => Some(old.clone()),
            None => None,
        };
        if let Some(old) = &old {
            registered.paused = old.paused.clone();
        }
        let entry = Entry::Tool(Arc::new(registered));
        tools.base.check_free(&entry, Some(&name))?;
        tools.base.remove(&name);
        tools.base.insert(entry);
        self.told(tools);
        Ok(old)
    }

    pub(crate) fn unregister(&self, name: &str) -> Option<Arc<Registered>> {
        let mut tools = self.write();
        let Some(Entry::Tool(tool)) = tools.base.by_name.get(name).cloned() else { return None };
        tools.base.remove(name);
        self.told(tools);
        Some(tool)
    }

    /// The tool that is meant by a call of this batch: its name or stable id, through the layers of its batch and
    /// its session. Waits only for a provider whose tool is used for the first time.
    pub(crate) async fn look_up(&self, place: &Place, asked: &str) -> Found {
        let found = self.layered(&place.session, place.overlay(), |layers| {
            scope::find(layers, asked).cloned().ok_or_else(|| scope::nearest(layers, asked))
        });
        match found {
            Ok(Entry::Tool(tool)) => Found::Tool(tool),
            Ok(Entry::Provided(provided)) => match provided.loaded() {
                Some(tool) => Found::Tool(tool.clone()),
                None => Box::pin(self.load(&provided)).await,
            },
            Err(nearest) => Found::Missing { nearest },
        }
    }

    async fn load(&self, provided: &Provided) -> Found {
        match provided.load(&self.limits).await {
            Ok(Some(tool)) => Found::Tool(tool),
            Ok(None) => Found::Missing { nearest: None },
            Err(error) => Found::Unavailable(error),
        }
    }

    /// The registered and provided ones, by name.
    pub(crate) fn list(&self) -> Vec<Listed> {
        self.read().base.by_name.values().map(Listed::of).collect()
    }

    /// What a session's calls may use, by name.
    pub(crate) fn list_of(&self, session: &str) -> Vec<Listed> {
        self.layered(session, None, |layers| scope::visible(layers).into_values().map(Listed::of).collect())
    }

    /// Lets `look` see the layers of a session and a batch, the strongest first.
    fn layered<T>(&self, session: &str, overlay: Option<&Overlay>, look: impl FnOnce(&[&Layer]) -> T) -> T {
        let tools = self.read();
        if overlay.is_none() && tools.overlays.is_empty() {
            return look(&[&tools.base]);
        }
        let attached = tools.overlays.get(session).into_iter().flatten().rev();
        let overlays = overlay.into_iter().chain(attached.map(|attached| &*attached.overlay));
        let layers: Vec<&Layer> = overlays.map(|overlay| &overlay.layer).chain([&tools.base]).collect();
        look(&layers)
    }

    /// Attaches an overlay to a session, above those that are there, and numbers it.
    pub(crate) fn attach(&self, session: &str, overlay: Arc<Overlay>) -> u64 {
        let mut tools = self.write();
        let no = tools.overlays_ever;
        tools.overlays_ever += 1;
        tools.overlays.entry(session.to_string()).or_default().push(Attached { no, overlay });
        self.told(tools);
        no
    }

    pub(crate) fn detach(&self, session: &str, no: u64) {
        let mut tools = self.write();
        if let Some(attached) = tools.overlays.get_mut(session) {
            attached.retain(|attached| attached.no != no);
            if attached.is_empty() {
                tools.overlays.remove(session);
            }
        }
        self.told(tools);
    }

    /// Gives a batch its overlay, unless it has one.
    pub(crate) fn lend(&self, place: &Place, overlay: Option<Arc<Overlay>>) {
        if overlay.is_some_and(|overlay| place.lend(overlay)) {
            self.told(self.write());
        }
    }

    /// Pauses or resumes a registered or provided tool.
    pub(crate) fn set_paused(&self, name: &str, paused: bool) -> Result<(), NoSuchTool> {
        let tools = self.write();
        match tools.base.get(name) {
            Some(Entry::Tool(tool)) => tool.paused.store(paused, Ordering::Relaxed),
            Some(Entry::Provided(provided)) => provided.paused.store(paused, Ordering::Relaxed),
            None => {
                let nearest = scope::nearest(&[&tools.base], name);
                return Err(NoSuchTool { name: name.to_string(), nearest });
            }
        }
        self.told(tools);
        Ok(())
    }

    pub(crate) fn provide(&self, provider: Arc<dyn Provider>) -> Result<(), RegisterError> {
        let listed = list(&provider)?;
        let mut tools = self.write();
        tools.insert_all(listed)?;
        tools.providers.push(provider);
        self.told(tools);
        Ok(())
    }

    /// Asks a provider anew what it has, and forgets what was loaded from it.
    pub(crate) fn refresh(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        let listed = list(provider)?;
        let mut tools = self.write();
        if !tools.providers.iter().any(|known| is_same(known, provider)) {
            return Err(RegisterError::NoSuchProvider);
        }
        let old = tools.remove_all(provider);
        let keep_paused = |mut provided: Provided| {
            if let Some(old) = old.iter().find(|old| old.summary.name == provided.summary.name) {
                provided.paused = old.paused.clone();
            }
            provided
        };
        let refreshed = tools.insert_all(listed.into_iter().map(keep_paused).collect());
        if refreshed.is_err() {
            old.into_iter().for_each(|old| tools.base.insert(Entry::Provided(old)));
        }
        self.told(tools);
        refreshed
    }

    /// Takes a provider and its tools away.
    pub(crate) fn withdraw(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        let mut tools = self.write();
        let before = tools.providers.len();
        tools.providers.retain(|known| !is_same(known, provider));
        if tools.providers.len() == before {
            return Err(RegisterError::NoSuchProvider);
        }
        tools.remove_all(provider);
        self.told(tools);
        Ok(())
    }

    /// A number that another look-up, or another start, may have another answer after.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Waits until the generation is another than `since`.
    pub(crate) async fn changed(&self, since: u64) {
        loop {
            let changed = self.changed.notified();
            if self.generation() != since {
                return;
            }
            changed.await;
        }
    }

    /// What is there has changed: counted before anybody else sees it, told when they can.
    fn told(&self, tools: RwLockWriteGuard<'_, Tools>) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        drop(tools);
        self.changed.notify_waiters();
    }

    fn read(&self) -> RwLockReadGuard<'_, Tools> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tools> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tools {
    /// Adds tools of a provider: all of them, or none.
    fn insert_all(&mut self, listed: Vec<Provided>) -> Result<(), RegisterError> {
        let mut inserted = Vec::with_capacity(listed.len());
        for provided in listed {
            let entry = Entry::Provided(Arc::new(provided));
            if let Err(refused) = self.base.check_free(&entry, None) {
                inserted.iter().for_each(|name: &String| drop(self.base.remove(name)));
                return Err(refused);
            }
            inserted.push(entry.name().to_string());
            self.base.insert(entry);
        }
        Ok(())
    }

    fn remove_all(&mut self, provider: &Arc<dyn Provider>) -> Vec<Arc<Provided>> {
        let own = self.base.by_name.values().filter_map(|entry| match entry {
            Entry::Provided(provided) if is_same(&provided.provider, provider) => Some(provided.clone()),
            Entry::Provided(_) | Entry::Tool(_) => None,
        });
        let own: Vec<Arc<Provided>> = own.collect();
        own.iter().for_each(|provided| drop(self.base.remove(&provided.summary.name)));
        own
    }
}

impl Listed {
    fn of(entry: &Entry) -> Listed {
        match entry {
            Entry::Tool(tool) => {
                let ToolSpec { name, title, description, .. } = &tool.spec;
                let (name, title, description) = (name.clone(), title.clone(), description.clone());
                Listed { summary: Summary { name, title, description }, tool: Some(tool.clone()) }
            }
            Entry::Provided(provided) => {
                Listed { summary: provided.summary.clone(), tool: provided.loaded().cloned() }
            }
        }
    }
}

/// What a provider has, with names that can be a tool's.
fn list(provider: &Arc<dyn Provider>) -> Result<Vec<Provided>, RegisterError> {
    let provided = |summary: Summary| {
        check_name(&summary.name)?;
        Ok(Provided::new(provider.clone(), summary))
    };
    provider.list().into_iter().map(provided).collect()
}

fn is_same(one: &Arc<dyn Provider>, other: &Arc<dyn Provider>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// Checks a tool and compiles what its calls need.
pub(crate) fn compile(tool: Arc<dyn Tool>, limits: &Limits) -> Result<Registered, RegisterError> {
    let spec = tool.spec();
    check_name(&spec.name)?;
    if spec.flags.quick && spec.flags.cpu_bound {
        return Err(RegisterError::Flags { name: spec.name });
    }
    check_rules(&spec)?;
    let compile = |schema: &Option<serde_json::Value>, role| {
        let compile = |schema| Schema::compile(schema, role, &spec.name, limits);
        schema.as_ref().map(compile).transpose()
    };
    let input = compile(&spec.input_schema, Role::Input)?;
    let output = compile(&spec.output_schema, Role::Output)?;
    let (class, contract) = (spec.effect_class(), spec.contract_digest());
    let rules = Rules::of(&spec, limits);
    let reconciles = tool.reconciler().is_some();
    let (recorded, paused) = (recorded(rules, class), Arc::default());
    Ok(Registered { spec, class, contract, rules, reconciles, tool, input, output, paused, recorded })
}

/// Refuses numbers by which no call could ever run, or that contradict each other.
fn check_rules(spec: &ToolSpec) -> Result<(), RegisterError> {
    let refused =
        |place, value, hint| Err(RegisterError::Rules { name: spec.name.clone(), place, value, hint });
    if spec.retry.attempts == Some(0) {
        return refused("retry.attempts", 0, "a call is tried at least once; 1 means never again");
    }
    if let Some(zero) = zero_of(&spec.deadlines) {
        return refused(zero, 0, "no call could be that quick; leave it out for the default");
    }
    match (spec.retry.base_ms, spec.retry.cap_ms) {
        (Some(base), Some(cap)) if base > cap => {
            refused("retry.base_ms", base, "that is more than its retry.cap_ms, the longest wait of all")
        }
        _ => Ok(()),
    }
}

/// The deadline that leaves no time at all, if there is one.
pub(crate) fn zero_of(deadlines: &Deadlines) -> Option<&'static str> {
    let Deadlines { queue_ms, attempt_ms, silence_ms, total_ms } = *deadlines;
    let named = [
        ("deadlines.queue_ms", queue_ms),
        ("deadlines.attempt_ms", attempt_ms),
        ("deadlines.silence_ms", silence_ms),
        ("deadlines.total_ms", total_ms),
    ];
    named.into_iter().find(|(_, ms)| *ms == Some(0)).map(|(place, _)| place)
}
