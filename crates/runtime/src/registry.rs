//! The tools there are: compiled once, found by name or stable id through the layers, listed in one order.

mod accept;
mod kinds;

pub(crate) use accept::{Host, Unclaimed, Unkeyed, compile, zero_of};
pub use accept::{RegisterError, Registered};
pub(crate) use kinds::{Kinds, Unfit};

use crate::provider::{Provided, Provider, Summary};
use crate::scope::{self, Entry, Layer, Line, Overlay};
use crate::tasks::tools;
use crate::tool::{Place, Tool, ToolError};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use windlass_core::tool::{ToolSpec, check_name};

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
    host: Arc<Host>,
    tools: RwLock<Tools>,
    /// The model's own way to tasks, below all others: there wherever a tool can become one.
    own: OnceLock<Layer>,
    /// Counts what changes the answer of a look-up, or whether a tool may start.
    generation: AtomicU64,
    /// Told of every change.
    watcher: OnceLock<Watcher>,
}

/// Whoever is told that look-ups may have other answers.
type Watcher = Box<dyn Fn() + Send + Sync>;

/// A tool, and the one in whose place it is.
type Replaced = (Arc<Registered>, Option<Arc<Registered>>);

#[derive(Default)]
struct Tools {
    base: Layer,
    providers: Vec<Arc<dyn Provider>>,
    /// By the session's name, in the order in which they were attached.
    overlays: HashMap<String, Vec<Attached>>,
    overlays_ever: u64,
    /// Of the child sessions that are owned, by name, and numbered as overlays are.
    lines: HashMap<String, (u64, Arc<Line>)>,
}

struct Attached {
    no: u64,
    overlay: Arc<Overlay>,
}

impl Registry {
    pub(crate) fn new(host: Arc<Host>) -> Registry {
        let own = OnceLock::new();
        Registry {
            host,
            tools: RwLock::default(),
            own,
            generation: AtomicU64::new(1),
            watcher: OnceLock::new(),
        }
    }

    pub(crate) fn register(&self, tool: Arc<dyn Tool>) -> Result<Arc<Registered>, RegisterError> {
        let registered = Arc::new(compile(tool, &self.host)?);
        let entry = Entry::Tool(registered.clone());
        let mut tools = self.write();
        tools.base.check_free(&entry, None)?;
        tools.base.insert(entry);
        self.told(tools);
        Ok(registered)
    }

    /// The new tool, and the one it replaces.
    pub(crate) fn replace(&self, tool: Arc<dyn Tool>) -> Result<Replaced, RegisterError> {
        let mut registered = compile(tool, &self.host)?;
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
        let registered = Arc::new(registered);
        let entry = Entry::Tool(registered.clone());
        tools.base.check_free(&entry, Some(&name))?;
        tools.base.remove(&name);
        tools.base.insert(entry);
        self.told(tools);
        Ok((registered, old))
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

    /// The same without waiting: what a provider was never asked for is not there.
    pub(crate) fn known(&self, place: &Place, asked: &str) -> Option<Arc<Registered>> {
        let found = |layers: &[&Layer]| scope::find(layers, asked).cloned();
        match self.layered(&place.session, place.overlay(), found)? {
            Entry::Tool(tool) => Some(tool),
            Entry::Provided(provided) => provided.loaded().cloned(),
        }
    }

    async fn load(&self, provided: &Provided) -> Found {
        match provided.load(&self.host).await {
            Ok(Some(tool)) => Found::Tool(tool),
            Ok(None) => Found::Missing { nearest: None },
            Err(error) => Found::Unavailable(error),
        }
    }

    /// The registered and provided ones, by name.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let tools = self.read();
        let listed = |layers: &[&Layer]| scope::visible(layers).into_values().map(Listed::of).collect();
        if tools.base.has_background() { listed(&[&tools.base, self.own()]) } else { listed(&[&tools.base]) }
    }

    /// What a session's calls may use, by name.
    pub(crate) fn list_of(&self, session: &str) -> Vec<Listed> {
        self.layered(session, None, |layers| scope::visible(layers).into_values().map(Listed::of).collect())
    }

    /// What the calls of a child session may use, by name.
    pub(crate) fn list_along(&self, line: &Line) -> Vec<Listed> {
        let tools = self.read();
        let layers = self.layers(&tools, line.links(), None);
        scope::visible(&layers).into_values().map(Listed::of).collect()
    }

    /// The nearest name to each of these that calls of this batch have no tool of.
    pub(crate) fn missing(&self, place: &Place, names: &[String]) -> Vec<NoSuchTool> {
        self.layered(&place.session, place.overlay(), |layers| {
            let visible = scope::visible(layers);
            let gone = names.iter().filter(|name| !visible.contains_key(name.as_str()));
            gone.map(|name| NoSuchTool { name: name.clone(), nearest: scope::nearest(layers, name) })
                .collect()
        })
    }

    /// Lets `look` see the layers of a session and a batch, the strongest first.
    fn layered<T>(&self, session: &str, overlay: Option<&Overlay>, look: impl FnOnce(&[&Layer]) -> T) -> T {
        let tools = self.read();
        if overlay.is_none() && tools.overlays.is_empty() && tools.lines.is_empty() {
            return match tools.base.has_background() {
                true => look(&[&tools.base, self.own()]),
                false => look(&[&tools.base]),
            };
        }
        match tools.lines.get(session) {
            Some((_, line)) => look(&self.layers(&tools, line.links(), overlay)),
            None => look(&self.layers(&tools, std::iter::once((session, None)), overlay)),
        }
    }

    /// What each session of a line has, through what is seen of the one above it.
    fn layers<'a>(
        &'a self,
        tools: &'a Tools,
        line: impl Iterator<Item = (&'a str, Option<&'a Layer>)>,
        mut overlay: Option<&'a Overlay>,
    ) -> Vec<&'a Layer> {
        let mut layers: Vec<&Layer> = Vec::new();
        for (session, only) in line {
            // Above everything else: neither the session nor its batches have what it must not.
            layers.extend(only);
            layers.extend(overlay.take().map(|overlay| &overlay.layer));
            let attached = tools.overlays.get(session).into_iter().flatten().rev();
            layers.extend(attached.map(|attached| &attached.overlay.layer));
        }
        layers.push(&tools.base);
        if layers.iter().any(|layer| layer.has_background()) {
            layers.push(self.own());
        }
        layers
    }

    /// Narrows the tools of a child session, and numbers that.
    pub(crate) fn narrow(&self, session: &str, line: Arc<Line>) -> u64 {
        let mut tools = self.write();
        let no = tools.overlays_ever;
        tools.overlays_ever += 1;
        // Told to nobody: none of its calls has looked for a tool yet.
        tools.lines.insert(session.to_string(), (no, line));
        no
    }

    /// A child session is not owned any more, unless it was taken again.
    pub(crate) fn widen(&self, session: &str, no: u64) {
        let mut tools = self.write();
        if tools.lines.get(session).is_some_and(|(kept, _)| *kept == no) {
            tools.lines.remove(session);
        }
    }

    fn own(&self) -> &Layer {
        self.own.get_or_init(|| {
            let mut own = Layer::default();
            // They are as fixed as this code, and so is whether they fit.
            let compiled = tools::all().into_iter().filter_map(|tool| compile(tool, &self.host).ok());
            compiled.for_each(|tool| own.insert(Entry::Tool(Arc::new(tool))));
            own
        })
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

    /// Tells `watcher` of every change from now on; there can be one.
    pub(crate) fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    /// What is there has changed: counted before anybody else sees it, told when they can.
    fn told(&self, tools: RwLockWriteGuard<'_, Tools>) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        drop(tools);
        if let Some(watcher) = self.watcher.get() {
            watcher();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::LoadFuture;
    use crate::scope::Link;
    use crate::tool::tool_fn;

    fn tool(name: &str) -> Arc<dyn Tool> {
        Arc::new(tool_fn(ToolSpec { name: name.into(), ..ToolSpec::default() }, |args, _| async {
            Ok(args.into())
        }))
    }

    struct Shelf;

    impl Provider for Shelf {
        fn list(&self) -> Vec<Summary> {
            vec![Summary { name: "provided".into(), ..Summary::default() }]
        }

        fn tool<'a>(&'a self, name: &'a str) -> LoadFuture<'a> {
            Box::pin(async move { Ok(Some(tool(name))) })
        }
    }

    fn place() -> Place {
        Place::new("s".into(), "k".into(), None)
    }

    #[test]
    fn whatever_changes_what_a_look_up_finds_or_what_may_start_is_counted() {
        let host = Arc::<Host>::default();
        let (registry, place) = (Registry::new(host.clone()), place());
        let provider: Arc<dyn Provider> = Arc::new(Shelf);
        let overlay = || Arc::new(Overlay::new(host.clone()));
        let changes: [(&str, &dyn Fn() -> bool); 11] = [
            ("register", &|| registry.register(tool("x")).is_ok()),
            ("replace", &|| registry.replace(tool("x")).is_ok()),
            ("pause", &|| registry.set_paused("x", true).is_ok()),
            ("resume", &|| registry.set_paused("x", false).is_ok()),
            ("unregister", &|| registry.unregister("x").is_some()),
            ("attach", &|| registry.attach("s", overlay()) == 0),
            ("detach", &|| {
                registry.detach("s", 0);
                registry.read().overlays.is_empty()
            }),
            ("lend", &|| {
                registry.lend(&place, Some(overlay()));
                place.overlay().is_some()
            }),
            ("provide", &|| registry.provide(provider.clone()).is_ok()),
            ("refresh", &|| registry.refresh(&provider).is_ok()),
            ("withdraw", &|| registry.withdraw(&provider).is_ok()),
        ];
        for (what, change) in changes {
            let before = registry.generation();
            assert!(change(), "{what}");
            assert_ne!(registry.generation(), before, "{what}");
        }
        let before = registry.generation();
        assert!(registry.set_paused("x", true).is_err());
        assert!(registry.register(tool("no spaces")).is_err());
        registry.lend(&place, None);
        assert_eq!(registry.generation(), before, "nothing changed");
    }

    #[test]
    fn a_child_session_that_was_taken_again_stays_narrow() {
        let registry = Registry::new(Arc::default());
        ["x", "y"].into_iter().for_each(|name| _ = registry.register(tool(name)).unwrap());
        let narrowed = |to: [&str; 1]| {
            let links = [("child", Some(Layer::only(to.into_iter()))), ("parent", None)];
            let links = links.into_iter().map(|(session, only)| Link { session: session.into(), only });
            registry.narrow("child", Arc::new(Line(links.collect())))
        };
        let seen = || registry.list_of("child").into_iter().map(|tool| tool.summary.name).collect::<Vec<_>>();
        let (before, again) = (narrowed(["x"]), narrowed(["y"]));
        registry.widen("child", before);
        assert_eq!(seen(), ["y"], "whoever had it before lets go of it late");
        registry.widen("child", again);
        assert_eq!(seen(), ["x", "y"]);
    }

    #[test]
    fn whoever_watches_is_told() {
        let (registry, told) = (Registry::new(Arc::default()), Arc::new(AtomicU64::new(0)));
        let count = told.clone();
        registry.watch(move || _ = count.fetch_add(1, Ordering::SeqCst));
        registry.register(tool("x")).unwrap();
        registry.set_paused("x", true).unwrap();
        assert_eq!(told.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_provided_tool_stays_paused_when_it_is_loaded_and_refreshed() {
        let (registry, place) = (Registry::new(Arc::default()), place());
        let provider: Arc<dyn Provider> = Arc::new(Shelf);
        registry.provide(provider.clone()).unwrap();
        registry.set_paused("provided", true).unwrap();
        for _ in 0..2 {
            let found = registry.look_up(&place, "provided").await;
            assert!(matches!(found, Found::Tool(tool) if tool.is_paused()));
            registry.refresh(&provider).unwrap();
        }
    }
}
