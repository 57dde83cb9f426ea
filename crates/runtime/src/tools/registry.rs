//! The registry of tools: compiled once, found by name or stable id through the layers, listed in one order.

mod accept;
mod boxed;
mod digest;
mod granted;
mod kinds;
mod paused;

pub(crate) use accept::{Host, Unclaimed, Unkeyed, compile, zero_of};
pub use accept::{RegisterError, Registered};
pub(crate) use kinds::{KindMismatch, Kinds};

use crate::api::locks::{LockRank, OrderedRwLock, WriteGuard};
use crate::api::output::ToolError;
use crate::tools::place::BatchPlace;
use crate::tools::provider::{Provided, Provider, Summary};
use crate::tools::scope::{self, Layer, LayerEntry, Overlay, ScopeLine, ScopeLink};
use crate::tools::tool::Tool;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use windlass_core::tool::{ToolSpec, check_name};

/// There is no registered or provided tool of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no tool {name:?}{}", nearest.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
pub struct NoSuchTool {
    /// The requested name.
    pub name: String,
    /// The most similar name.
    pub nearest: Option<String>,
}

/// A listed tool: its summary, and its compiled form once it is loaded.
#[derive(Clone)]
pub struct Listed {
    /// Name, title and description.
    pub summary: Summary,
    /// The compiled tool; `None` until its provider has loaded it.
    pub tool: Option<Arc<Registered>>,
}

/// The result of looking up a call's tool.
pub(crate) enum ToolLookup {
    Tool(Arc<Registered>),
    /// No tool that the caller may use.
    Missing {
        nearest: Option<String>,
    },
    /// Its provider cannot load it now.
    Unavailable(ToolError),
}

/// The registry of tools.
pub(crate) struct Registry {
    host: Arc<Host>,
    tools: OrderedRwLock<ToolTables, { LockRank::Registry as u8 }>,
    /// The built-in task tools, below all others: available wherever a tool can become a task.
    own: OnceLock<Layer>,
    own_tools: OwnTools,
    /// The tools by which a model finds and calls others, below all layers: found by name, and listed by the catalog alone.
    catalog: OnceLock<Layer>,
    catalog_tools: OwnTools,
    /// Counts changes that affect look-ups, or whether a tool may start.
    generation: AtomicU64,
    /// Notified of every change.
    watcher: OnceLock<Watcher>,
}

/// Makes the built-in tools.
pub(crate) type OwnTools = fn() -> Vec<Arc<dyn Tool>>;

/// A callback for changes of look-ups.
type Watcher = Box<dyn Fn() + Send + Sync>;

/// A tool, and the one it replaced.
type Replaced = (Arc<Registered>, Option<Arc<Registered>>);

#[derive(Default)]
struct ToolTables {
    base: Layer,
    providers: Vec<Arc<dyn Provider>>,
    /// The names of paused tools, whether they are there or not.
    paused: BTreeSet<String>,
    /// The number of the last change of those.
    pauses: u64,
    /// By the session's name, in the order in which they were attached.
    overlays: HashMap<String, Vec<AttachedProvider>>,
    overlays_ever: u64,
    /// The child sessions that are owned, by name, numbered like overlays.
    lines: HashMap<String, (u64, Arc<ScopeLine>)>,
}

struct AttachedProvider {
    no: u64,
    overlay: Arc<Overlay>,
}

impl Registry {
    pub(crate) fn new(host: Arc<Host>, own_tools: OwnTools) -> Registry {
        let own = OnceLock::new();
        Registry {
            host,
            tools: OrderedRwLock::default(),
            own,
            own_tools,
            catalog: OnceLock::new(),
            catalog_tools: Vec::new,
            generation: AtomicU64::new(1),
            watcher: OnceLock::new(),
        }
    }

    /// The registry with tools by which a model finds others.
    pub(crate) fn with_catalog(self, catalog_tools: OwnTools) -> Registry {
        Registry { catalog_tools, ..self }
    }

    pub(crate) fn register(&self, tool: Arc<dyn Tool>) -> Result<Arc<Registered>, RegisterError> {
        let registered = Arc::new(compile(tool, &self.host)?);
        let entry = LayerEntry::Tool(registered.clone());
        let mut tools = self.tools.write();
        tools.base.check_free(&entry, None)?;
        tools.base.insert(entry);
        self.publish(tools);
        Ok(registered)
    }

    /// The new tool, and the one it replaces.
    pub(crate) fn replace(&self, tool: Arc<dyn Tool>) -> Result<Replaced, RegisterError> {
        let mut registered = compile(tool, &self.host)?;
        let name = registered.spec.name.clone();
        let mut tools = self.tools.write();
        let old = match tools.base.by_name.get(&name) {
            Some(LayerEntry::Provided(_)) => return Err(RegisterError::Provided { name }),
            Some(LayerEntry::Tool(old)) => Some(old.clone()),
            None => None,
        };
        if let Some(old) = &old {
            registered.paused = old.paused.clone();
        }
        let registered = Arc::new(registered);
        let entry = LayerEntry::Tool(registered.clone());
        tools.base.check_free(&entry, Some(&name))?;
        tools.base.remove(&name);
        tools.base.insert(entry);
        self.publish(tools);
        Ok((registered, old))
    }

    pub(crate) fn unregister(&self, name: &str) -> Option<Arc<Registered>> {
        let mut tools = self.tools.write();
        let Some(LayerEntry::Tool(tool)) = tools.base.by_name.get(name).cloned() else { return None };
        tools.base.remove(name);
        self.publish(tools);
        Some(tool)
    }

    /// Finds the tool of a call in this batch: by name or stable id, through the layers of its batch and its
    /// session. Waits only for a provider whose tool is used for the first time.
    pub(crate) async fn look_up(&self, place: &BatchPlace, asked: &str) -> ToolLookup {
        let found = self.layered(&place.session, place.overlay(), |layers| {
            scope::find(layers, asked).cloned().ok_or_else(|| scope::nearest(layers, asked))
        });
        match found {
            Ok(LayerEntry::Tool(tool)) => ToolLookup::Tool(tool),
            Ok(LayerEntry::Provided(provided)) => match provided.loaded() {
                Some(tool) => ToolLookup::Tool(tool.clone()),
                None => Box::pin(self.load(&provided)).await,
            },
            Err(nearest) => ToolLookup::Missing { nearest },
        }
    }

    /// Finds a tool without waiting: a tool that its provider has not loaded is missing.
    pub(crate) fn known(&self, place: &BatchPlace, asked: &str) -> Option<Arc<Registered>> {
        let found = |layers: &[&Layer]| scope::find(layers, asked).cloned();
        match self.layered(&place.session, place.overlay(), found)? {
            LayerEntry::Tool(tool) => Some(tool),
            LayerEntry::Provided(provided) => provided.loaded().cloned(),
        }
    }

    async fn load(&self, provided: &Provided) -> ToolLookup {
        match provided.load(&self.host).await {
            Ok(Some(tool)) => ToolLookup::Tool(tool),
            Ok(None) => ToolLookup::Missing { nearest: None },
            Err(error) => ToolLookup::Unavailable(error),
        }
    }

    /// The registered and provided ones, by name.
    pub(crate) fn list(&self) -> Vec<Listed> {
        let tools = self.tools.read();
        let listed = |layers: &[&Layer]| scope::visible(layers).into_values().map(Listed::of).collect();
        if tools.base.has_background() { listed(&[&tools.base, self.own()]) } else { listed(&[&tools.base]) }
    }

    /// The tools that a session's calls may use, by name.
    pub(crate) fn list_of(&self, session: &str) -> Vec<Listed> {
        self.layered(session, None, listed)
    }

    /// The tools that the calls of a batch may use, by name.
    pub(crate) fn list_in(&self, place: &BatchPlace) -> Vec<Listed> {
        self.layered(&place.session, place.overlay(), listed)
    }

    /// The tools that the calls of a batch may use, by name.
    pub(crate) fn list_for(&self, place: &BatchPlace) -> Vec<Listed> {
        let listed = |layers: &[&Layer]| scope::visible(layers).into_values().map(Listed::of).collect();
        self.layered(&place.session, place.overlay(), listed)
    }

    /// The tools that the calls of a child session may use, by name.
    pub(crate) fn list_along(&self, line: &ScopeLine) -> Vec<Listed> {
        let tools = self.tools.read();
        let layers = self.layers(&tools, &line.0, None);
        listed(&layers)
    }

    /// The tools that the calls of a session may use, by name, if it is owned and has tools or filters of its own.
    pub(crate) fn list_owned(&self, session: &str) -> Option<Vec<Listed>> {
        let tools = self.tools.read();
        let (_, line) = tools.lines.get(session)?;
        Some(listed(&self.layers(&tools, &line.0, None)))
    }

    /// The host's services, for which tools are compiled.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// For each of these names without a tool in this batch, the most similar name.
    pub(crate) fn missing(&self, place: &BatchPlace, names: &[String]) -> Vec<NoSuchTool> {
        self.layered(&place.session, place.overlay(), |layers| {
            let visible = scope::visible(layers);
            let gone = names.iter().filter(|name| !visible.contains_key(name.as_str()));
            gone.map(|name| NoSuchTool { name: name.clone(), nearest: scope::nearest(layers, name) })
                .collect()
        })
    }

    /// Passes the layers of a session and a batch to `look`, the strongest first; the last is the catalog's.
    fn layered<T>(&self, session: &str, overlay: Option<&Overlay>, look: impl FnOnce(&[&Layer]) -> T) -> T {
        let tools = self.tools.read();
        if overlay.is_none() && tools.overlays.is_empty() && tools.lines.is_empty() {
            return match tools.base.has_background() {
                true => look(&[&tools.base, self.own(), self.catalog()]),
                false => look(&[&tools.base, self.catalog()]),
            };
        }
        match tools.lines.get(session) {
            Some((_, line)) => look(&self.layers(&tools, &line.0, overlay)),
            None => {
                let link = ScopeLink::whole(session.into(), None);
                look(&self.layers(&tools, std::slice::from_ref(&link), overlay))
            }
        }
    }

    /// The layers of each session of a line, limited to the parts visible from below.
    fn layers<'a>(
        &'a self,
        tools: &'a ToolTables,
        line: &'a [ScopeLink],
        mut overlay: Option<&'a Overlay>,
    ) -> Vec<&'a Layer> {
        let mut layers: Vec<&Layer> = Vec::new();
        for link in line {
            // Above everything else: it restricts the session and its batches.
            layers.extend(&link.only);
            layers.extend(overlay.take().map(|overlay| &overlay.layer));
            let attached = tools.overlays.get(&*link.session).into_iter().flatten().rev();
            layers.extend(attached.map(|attached| &attached.overlay.layer));
            // Below what the host attaches: that came later.
            layers.extend(&link.own);
        }
        layers.push(&tools.base);
        if layers.iter().any(|layer| layer.has_background()) {
            layers.push(self.own());
        }
        layers.push(self.catalog());
        layers
    }

    /// Gives a session the tools along its line while it is owned, and returns a number for that.
    pub(crate) fn narrow(&self, session: &str, line: Arc<ScopeLine>) -> u64 {
        let mut tools = self.tools.write();
        let no = tools.overlays_ever;
        tools.overlays_ever += 1;
        // No notification: none of its calls has looked for a tool yet.
        tools.lines.insert(session.to_string(), (no, line));
        no
    }

    /// The child session is no longer owned, unless it was taken again.
    pub(crate) fn widen(&self, session: &str, no: u64) {
        let mut tools = self.tools.write();
        if tools.lines.get(session).is_some_and(|(kept, _)| *kept == no) {
            tools.lines.remove(session);
        }
    }

    fn own(&self) -> &Layer {
        self.own.get_or_init(|| self.built_in(self.own_tools))
    }

    fn catalog(&self) -> &Layer {
        self.catalog.get_or_init(|| self.built_in(self.catalog_tools))
    }

    fn built_in(&self, tools: OwnTools) -> Layer {
        let mut layer = Layer::default();
        // Built-in tools are fixed at compile time, and so is their validity.
        let compiled = tools().into_iter().filter_map(|tool| compile(tool, &self.host).ok());
        compiled.for_each(|tool| layer.insert(LayerEntry::Tool(Arc::new(tool))));
        layer
    }

    /// Attaches an overlay to a session, above existing ones, and returns its number.
    pub(crate) fn attach(&self, session: &str, overlay: Arc<Overlay>) -> u64 {
        let mut tools = self.tools.write();
        let no = tools.overlays_ever;
        tools.overlays_ever += 1;
        tools.overlays.entry(session.to_string()).or_default().push(AttachedProvider { no, overlay });
        self.publish(tools);
        no
    }

    pub(crate) fn detach(&self, session: &str, no: u64) {
        let mut tools = self.tools.write();
        if let Some(attached) = tools.overlays.get_mut(session) {
            attached.retain(|attached| attached.no != no);
            if attached.is_empty() {
                tools.overlays.remove(session);
            }
        }
        self.publish(tools);
    }

    /// Sets the overlay of a batch, unless it has one.
    pub(crate) fn lend(&self, place: &BatchPlace, overlay: Option<Arc<Overlay>>) {
        if overlay.is_some_and(|overlay| place.lend(overlay)) {
            self.publish(self.tools.write());
        }
    }

    pub(crate) fn provide(&self, provider: Arc<dyn Provider>) -> Result<(), RegisterError> {
        let listed = list(&provider)?;
        let mut tools = self.tools.write();
        tools.insert_all(listed)?;
        tools.providers.push(provider);
        self.publish(tools);
        Ok(())
    }

    /// Asks a provider again for its tools, and forgets loaded ones.
    pub(crate) fn refresh(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        let listed = list(provider)?;
        let mut tools = self.tools.write();
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
            old.into_iter().for_each(|old| tools.base.insert(LayerEntry::Provided(old)));
        }
        self.publish(tools);
        refreshed
    }

    /// Removes a provider and its tools.
    pub(crate) fn withdraw(&self, provider: &Arc<dyn Provider>) -> Result<(), RegisterError> {
        let mut tools = self.tools.write();
        let before = tools.providers.len();
        tools.providers.retain(|known| !is_same(known, provider));
        if tools.providers.len() == before {
            return Err(RegisterError::NoSuchProvider);
        }
        tools.remove_all(provider);
        self.publish(tools);
        Ok(())
    }

    /// A number that changes whenever a look-up or a start may have another result.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Sets the callback for changes; there can be one.
    pub(crate) fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watcher));
    }

    /// Publishes a change: counted before any reader sees it, notified after the lock is released.
    fn publish(&self, tools: WriteGuard<'_, ToolTables>) {
        tools.pause_known();
        self.generation.fetch_add(1, Ordering::SeqCst);
        drop(tools);
        if let Some(watcher) = self.watcher.get() {
            watcher();
        }
    }
}

impl ToolTables {
    /// Adds tools of a provider: all of them, or none.
    fn insert_all(&mut self, listed: Vec<Provided>) -> Result<(), RegisterError> {
        let mut inserted = Vec::with_capacity(listed.len());
        for provided in listed {
            let entry = LayerEntry::Provided(Arc::new(provided));
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
            LayerEntry::Provided(provided) if is_same(&provided.provider, provider) => Some(provided.clone()),
            LayerEntry::Provided(_) | LayerEntry::Tool(_) => None,
        });
        let own: Vec<Arc<Provided>> = own.collect();
        own.iter().for_each(|provided| drop(self.base.remove(&provided.summary.name)));
        own
    }
}

impl Listed {
    fn of(entry: &LayerEntry) -> Listed {
        match entry {
            LayerEntry::Tool(tool) => {
                let ToolSpec { name, title, description, .. } = &tool.spec;
                let (name, title, description) = (name.clone(), title.clone(), description.clone());
                let background = tool.spec.flags.background;
                Listed { summary: Summary { name, title, description, background }, tool: Some(tool.clone()) }
            }
            LayerEntry::Provided(provided) => {
                Listed { summary: provided.summary.clone(), tool: provided.loaded().cloned() }
            }
        }
    }
}

/// The tools of some layers, by name, but for those of the catalog, whose layer is the last.
fn listed(layers: &[&Layer]) -> Vec<Listed> {
    let listed = &layers[..layers.len().saturating_sub(1)];
    scope::visible(listed).into_values().map(Listed::of).collect()
}

/// The tools of a provider, with their names checked.
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
    use crate::tools::provider::LoadFuture;
    use crate::tools::tool::tool_fn;

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

    impl Registry {
        fn look_at(&self, name: &str) -> Arc<Registered> {
            self.known(&place(), name).expect("it is there")
        }
    }

    fn place() -> BatchPlace {
        BatchPlace::new("s".into(), "k".into(), None)
    }

    #[test]
    fn whatever_changes_what_a_look_up_finds_or_what_may_start_is_counted() {
        let host = Arc::<Host>::default();
        let (registry, place) = (Registry::new(host.clone(), Vec::new), place());
        let provider: Arc<dyn Provider> = Arc::new(Shelf);
        let overlay = || Arc::new(Overlay::new(host.clone()));
        let changes: [(&str, &dyn Fn() -> bool); 11] = [
            ("register", &|| registry.register(tool("x")).is_ok()),
            ("replace", &|| registry.replace(tool("x")).is_ok()),
            ("pause", &|| {
                registry.pause_all(1, &["x".to_string()].into());
                registry.look_at("x").is_paused()
            }),
            ("resume", &|| {
                registry.pause_all(2, &BTreeSet::new());
                !registry.look_at("x").is_paused()
            }),
            ("unregister", &|| registry.unregister("x").is_some()),
            ("attach", &|| registry.attach("s", overlay()) == 0),
            ("detach", &|| {
                registry.detach("s", 0);
                registry.tools.read().overlays.is_empty()
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
        assert!(registry.check_pausable("x").is_err());
        registry.pause_all(2, &["x".to_string()].into());
        assert!(registry.register(tool("no spaces")).is_err());
        registry.lend(&place, None);
        assert_eq!(registry.generation(), before, "nothing changed");
    }

    #[test]
    fn a_child_session_that_was_taken_again_stays_narrow() {
        let registry = Registry::new(Arc::default(), Vec::new);
        ["x", "y"].into_iter().for_each(|name| _ = registry.register(tool(name)).unwrap());
        let narrowed = |to: [&str; 1]| {
            let links = [("child", Some(Layer::only(to.into_iter()))), ("parent", None)];
            let links = links.into_iter().map(|(session, only)| ScopeLink {
                session: session.into(),
                only,
                own: None,
            });
            registry.narrow("child", Arc::new(ScopeLine(links.collect())))
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
        let (registry, told) = (Registry::new(Arc::default(), Vec::new), Arc::new(AtomicU64::new(0)));
        let count = told.clone();
        registry.watch(move || _ = count.fetch_add(1, Ordering::SeqCst));
        registry.register(tool("x")).unwrap();
        registry.pause_all(1, &["x".to_string()].into());
        assert_eq!(told.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_provided_tool_stays_paused_when_it_is_loaded_and_refreshed() {
        let (registry, place) = (Registry::new(Arc::default(), Vec::new), place());
        let provider: Arc<dyn Provider> = Arc::new(Shelf);
        registry.provide(provider.clone()).unwrap();
        registry.pause_all(1, &["provided".to_string()].into());
        for _ in 0..2 {
            let found = registry.look_up(&place, "provided").await;
            assert!(matches!(found, ToolLookup::Tool(tool) if tool.is_paused()));
            registry.refresh(&provider).unwrap();
        }
    }
}
