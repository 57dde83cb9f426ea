//! Layers of tools: the base, and overlays that add, shadow or hide for one session or one batch.

use crate::tools::overlay::SessionOverlay;
use crate::tools::provider::Provided;
use crate::tools::registry::{Host, RegisterError, Registered, Registry, compile};
use crate::tools::tool::Tool;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use windlass_args::names::{folded_name, nearest_name};

/// Tools that one session or one batch has besides the registered ones, or instead of them.
///
/// Made by [`Runtime::overlay`](crate::Runtime::overlay); attached to a session by
/// [`Runtime::attach`](crate::Runtime::attach), or to a batch as [`BatchRequest::overlay`](crate::BatchRequest).
///
/// ```
/// # use windlass::{Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// let mut overlay = runtime.overlay();
/// overlay.add(tool_fn(ToolSpec { name: "draft".into(), ..ToolSpec::default() }, |args, _| async { Ok(args.into()) }))?;
/// overlay.hide("send");
/// let guard = runtime.attach("visitor", overlay);
/// assert_eq!(runtime.tools_of("visitor").await?.len(), 1);
/// drop(guard);
/// assert!(runtime.tools_of("visitor").await?.is_empty());
/// # Ok(()) }
/// ```
pub struct Overlay {
    host: Arc<Host>,
    pub(crate) layer: Layer,
}

impl Overlay {
    pub(crate) fn new(host: Arc<Host>) -> Overlay {
        Overlay { host, layer: Layer::default() }
    }

    /// Adds a tool, checked as at registration; similar names in the layers below are shadowed.
    pub fn add(&mut self, tool: impl Tool) -> Result<(), RegisterError> {
        self.add_shared(Arc::new(tool))
    }

    /// Adds a shared tool.
    pub fn add_shared(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let entry = LayerEntry::Tool(Arc::new(compile(tool, &self.host)?));
        self.layer.check_free(&entry, None)?;
        self.layer.insert(entry);
        Ok(())
    }

    /// Hides this name in the layers below; an own tool of this name is dropped.
    pub fn hide(&mut self, name: &str) {
        let folded = folded_name(name);
        if let Some(own) = self.layer.taken.get(&folded).cloned() {
            self.layer.remove(&own);
        }
        self.layer.hidden.insert(folded);
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.layer.by_name.keys();
        f.debug_struct("Overlay").field("tools", &names).field("hidden", &self.layer.hidden).finish()
    }
}

/// Keeps an overlay attached; dropping it removes the overlay, in any order.
#[must_use = "the overlay is removed when this is dropped"]
pub struct OverlayGuard {
    pub(crate) registry: Weak<Registry>,
    pub(crate) session: String,
    pub(crate) no: u64,
}

impl Drop for OverlayGuard {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.detach(&self.session, self.no);
        }
    }
}

/// The ancestry of a child session, from itself to the root: each session limits the tools visible below it.
pub(crate) struct ScopeLine(pub(crate) Vec<ScopeLink>);

/// One session of a line.
pub(crate) struct ScopeLink {
    pub(crate) session: Arc<str>,
    /// The visible part of the parent's tools; `None`: everything.
    pub(crate) only: Option<Layer>,
    /// The tools that it was opened with.
    pub(crate) own: Option<Layer>,
}

impl ScopeLine {
    /// The line of a session that is no child.
    pub(crate) fn root(session: &str) -> ScopeLine {
        ScopeLine(vec![ScopeLink::whole(session.into(), None)])
    }

    /// The line with the tools that its root was opened with.
    pub(crate) fn with(mut self, overlay: &SessionOverlay, registry: &Registry) -> ScopeLine {
        if let Some(root) = self.0.last_mut().filter(|_| !overlay.is_empty()) {
            root.own = Some(overlay.compiled(registry.host()).layer);
        }
        self
    }
}

impl ScopeLink {
    /// A session without a filter.
    pub(crate) fn whole(session: Arc<str>, own: Option<Layer>) -> ScopeLink {
        ScopeLink { session, only: None, own }
    }
}

/// Has the tools that a session was opened with, and the filters around them, in force while the session is owned.
pub(crate) struct Narrowing {
    registry: Weak<Registry>,
    session: Arc<str>,
    no: u64,
}

impl Narrowing {
    /// Gives a session the tools along its line.
    pub(crate) fn begin(registry: &Arc<Registry>, session: &str, line: ScopeLine) -> Narrowing {
        let no = registry.narrow(session, Arc::new(line));
        Narrowing { registry: Arc::downgrade(registry), session: session.into(), no }
    }
}

impl Drop for Narrowing {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.widen(&self.session, self.no);
        }
    }
}

/// A tool in a layer: compiled, or to be loaded from its provider.
#[derive(Clone)]
pub(crate) enum LayerEntry {
    Tool(Arc<Registered>),
    Provided(Arc<Provided>),
}

impl LayerEntry {
    pub(crate) fn name(&self) -> &str {
        match self {
            LayerEntry::Tool(tool) => &tool.spec.name,
            LayerEntry::Provided(provided) => &provided.summary.name,
        }
    }

    /// The forms that must be unique in a layer: the folded name, and the stable id. The id of a tool that is
    /// not loaded is not known yet, so a provided tool is found by its name.
    fn forms(&self) -> [String; 2] {
        let id = match self {
            LayerEntry::Tool(tool) => tool.spec.stable_id(),
            LayerEntry::Provided(provided) => &provided.summary.name,
        };
        [folded_name(self.name()), id_form(id)]
    }

    /// Whether it is known before its use that its calls can become tasks.
    fn is_background(&self) -> bool {
        match self {
            LayerEntry::Tool(tool) => tool.spec.flags.background,
            LayerEntry::Provided(provided) => provided.summary.background,
        }
    }

    /// Whether that is known only after loading.
    fn is_unsaid(&self) -> bool {
        matches!(self, LayerEntry::Provided(provided) if !provided.summary.background)
    }

    /// Whether its provider did not say so, and loading has shown it.
    fn turned_out_background(&self) -> bool {
        let LayerEntry::Provided(provided) = self else { return false };
        !provided.summary.background && provided.loaded().is_some_and(|tool| tool.spec.flags.background)
    }
}

/// A set of distinguishable tools.
#[derive(Default)]
pub(crate) struct Layer {
    pub(crate) by_name: BTreeMap<String, LayerEntry>,
    /// The folded names and stable ids, each with its tool's name.
    taken: BTreeMap<String, String>,
    /// Folded names hidden in the layers below.
    hidden: BTreeSet<String>,
    /// Folded names visible in the layers below; `None`: everything.
    only: Option<BTreeSet<String>>,
    /// The number of tools that can become tasks.
    background: usize,
    /// The number of tools whose providers do not say so.
    unsaid: usize,
}

impl Layer {
    /// A layer without tools that shows only these names of the layers below.
    pub(crate) fn only<'a>(names: impl Iterator<Item = &'a str>) -> Layer {
        Layer { only: Some(names.map(folded_name).collect()), ..Layer::default() }
    }

    /// The tool of this name, or of this stable id.
    pub(crate) fn get(&self, asked: &str) -> Option<&LayerEntry> {
        let by_id = || self.by_name.get(self.taken.get(&id_form(asked))?);
        self.by_name.get(asked).or_else(by_id)
    }

    /// Whether calls of one of its tools can become tasks.
    pub(crate) fn has_background(&self) -> bool {
        self.background > 0
            || (self.unsaid > 0 && self.by_name.values().any(LayerEntry::turned_out_background))
    }

    /// Refuses a tool too similar to an existing one, unless that is the one it replaces.
    pub(crate) fn check_free(&self, entry: &LayerEntry, replaced: Option<&str>) -> Result<(), RegisterError> {
        let forms = entry.forms();
        let stranger = forms
            .iter()
            .filter_map(|form| self.taken.get(form))
            .find(|taken| Some(taken.as_str()) != replaced);
        match stranger {
            Some(taken) => Err(RegisterError::Taken { name: entry.name().to_string(), taken: taken.clone() }),
            None => Ok(()),
        }
    }

    pub(crate) fn insert(&mut self, entry: LayerEntry) {
        let name = entry.name().to_string();
        for form in entry.forms() {
            self.taken.insert(form, name.clone());
        }
        self.background += usize::from(entry.is_background());
        self.unsaid += usize::from(entry.is_unsaid());
        self.by_name.insert(name, entry);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<LayerEntry> {
        let old = self.by_name.remove(name)?;
        self.background -= usize::from(old.is_background());
        self.unsaid -= usize::from(old.is_unsaid());
        for form in old.forms() {
            self.taken.remove(&form);
        }
        Some(old)
    }

    /// Whether this layer hides a tool of a layer below, or has one too similar to it.
    fn covers(&self, entry: &LayerEntry) -> bool {
        let forms = entry.forms();
        if self.only.as_ref().is_some_and(|only| !only.contains(&forms[0])) {
            return true;
        }
        self.hidden.contains(&forms[0]) || forms.iter().any(|form| self.taken.contains_key(form))
    }
}

/// Finds a tool through the layers; the strongest comes first.
pub(crate) fn find<'a>(layers: &[&'a Layer], asked: &str) -> Option<&'a LayerEntry> {
    layers.iter().enumerate().find_map(|(place, layer)| {
        layer.get(asked).filter(|entry| !layers[..place].iter().any(|above| above.covers(entry)))
    })
}

/// The visible tools through the layers, by name.
pub(crate) fn visible<'a>(layers: &[&'a Layer]) -> BTreeMap<&'a str, &'a LayerEntry> {
    let mut seen = BTreeMap::new();
    for (place, layer) in layers.iter().enumerate() {
        let shown = |entry: &&LayerEntry| !layers[..place].iter().any(|above| above.covers(entry));
        seen.extend(layer.by_name.values().filter(shown).map(|entry| (entry.name(), entry)));
    }
    seen
}

/// The most similar visible name.
pub(crate) fn nearest(layers: &[&Layer], asked: &str) -> Option<String> {
    nearest_name(asked, visible(layers).into_keys()).map(str::to_string)
}

/// Ids share a map with names: the separator cannot occur in a name.
fn id_form(id: &str) -> String {
    format!("id:{id}")
}
