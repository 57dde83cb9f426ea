//! Layers of tools: the base, and overlays that add, shadow or hide for one session or one batch.

use crate::provider::Provided;
use crate::registry::{Host, RegisterError, Registered, compile};
use crate::runtime::Inner;
use crate::tool::Tool;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};
use windlass_core::tool::{folded_name, nearest_name};

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

    /// Adds a tool, checked as at registration; whatever lies below and cannot be told from it is shadowed.
    pub fn add(&mut self, tool: impl Tool) -> Result<(), RegisterError> {
        self.add_shared(Arc::new(tool))
    }

    /// Adds a tool that is shared.
    pub fn add_shared(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let entry = Entry::Tool(Arc::new(compile(tool, &self.host)?));
        self.layer.check_free(&entry, None)?;
        self.layer.insert(entry);
        Ok(())
    }

    /// Hides whatever lies below under this name; of the overlay's own tools, the one of this name is dropped.
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

/// Keeps an overlay attached; dropping it removes the overlay, in whatever order they were attached.
#[must_use = "the overlay is removed when this is dropped"]
pub struct OverlayGuard {
    pub(crate) rt: Weak<Inner>,
    pub(crate) session: String,
    pub(crate) no: u64,
}

impl Drop for OverlayGuard {
    fn drop(&mut self) {
        if let Some(rt) = self.rt.upgrade() {
            rt.registry.detach(&self.session, self.no);
        }
    }
}

/// Through what the tools of a child session are seen: from itself to the session that is nobody's child.
pub(crate) struct Line(pub(crate) Vec<Link>);

/// One session of a line.
pub(crate) struct Link {
    pub(crate) session: Arc<str>,
    /// What of the session above it is seen; none: everything.
    pub(crate) only: Option<Layer>,
}

impl Line {
    /// Its sessions by name, each with what is seen through it.
    pub(crate) fn links(&self) -> impl Iterator<Item = (&str, Option<&Layer>)> {
        self.0.iter().map(|link| (&*link.session, link.only.as_ref()))
    }
}

/// Keeps the tools of a child session narrow while it is owned.
pub(crate) struct Narrowing {
    pub(crate) rt: Weak<Inner>,
    pub(crate) session: Arc<str>,
    pub(crate) no: u64,
}

impl Drop for Narrowing {
    fn drop(&mut self) {
        if let Some(rt) = self.rt.upgrade() {
            rt.registry.widen(&self.session, self.no);
        }
    }
}

/// A tool in a layer: there, or to be had from its provider.
#[derive(Clone)]
pub(crate) enum Entry {
    Tool(Arc<Registered>),
    Provided(Arc<Provided>),
}

impl Entry {
    pub(crate) fn name(&self) -> &str {
        match self {
            Entry::Tool(tool) => &tool.spec.name,
            Entry::Provided(provided) => &provided.summary.name,
        }
    }

    /// Under what nobody else may be in the same layer: the folded name, and the stable id. That of a tool which is
    /// not loaded is not known yet, so a provided tool is asked for by its name.
    fn forms(&self) -> [String; 2] {
        let id = match self {
            Entry::Tool(tool) => tool.spec.stable_id(),
            Entry::Provided(provided) => &provided.summary.name,
        };
        [folded_name(self.name()), id_form(id)]
    }

    /// Whether its calls can become tasks. Of one that is not loaded that is not known yet.
    fn is_background(&self) -> bool {
        matches!(self, Entry::Tool(tool) if tool.spec.flags.background)
    }
}

/// Tools that can be told apart.
#[derive(Default)]
pub(crate) struct Layer {
    pub(crate) by_name: BTreeMap<String, Entry>,
    /// The forms in which names must differ, and stable ids; each leads to a name.
    taken: BTreeMap<String, String>,
    /// Folded names that are not shown of the layers below.
    hidden: BTreeSet<String>,
    /// Folded names of all that is shown of the layers below; none: everything.
    only: Option<BTreeSet<String>>,
    /// How many of them can become tasks.
    background: usize,
}

impl Layer {
    /// A layer without tools through which only these of the layers below are seen.
    pub(crate) fn only<'a>(names: impl Iterator<Item = &'a str>) -> Layer {
        Layer { only: Some(names.map(folded_name).collect()), ..Layer::default() }
    }

    /// The tool of this name, or of this stable id.
    pub(crate) fn get(&self, asked: &str) -> Option<&Entry> {
        let by_id = || self.by_name.get(self.taken.get(&id_form(asked))?);
        self.by_name.get(asked).or_else(by_id)
    }

    /// Whether calls of one of its tools can become tasks.
    pub(crate) fn has_background(&self) -> bool {
        self.background > 0
    }

    /// Refuses a tool that cannot be told from one that is there, unless that is the one it replaces.
    pub(crate) fn check_free(&self, entry: &Entry, replaced: Option<&str>) -> Result<(), RegisterError> {
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

    pub(crate) fn insert(&mut self, entry: Entry) {
        let name = entry.name().to_string();
        for form in entry.forms() {
            self.taken.insert(form, name.clone());
        }
        self.background += usize::from(entry.is_background());
        self.by_name.insert(name, entry);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Entry> {
        let old = self.by_name.remove(name)?;
        self.background -= usize::from(old.is_background());
        for form in old.forms() {
            self.taken.remove(&form);
        }
        Some(old)
    }

    /// Whether a tool of a layer below is hidden, or cannot be told from one of this layer.
    fn covers(&self, entry: &Entry) -> bool {
        let forms = entry.forms();
        if self.only.as_ref().is_some_and(|only| !only.contains(&forms[0])) {
            return true;
        }
        self.hidden.contains(&forms[0]) || forms.iter().any(|form| self.taken.contains_key(form))
    }
}

/// The tool that is meant, through the layers; the strongest comes first.
pub(crate) fn find<'a>(layers: &[&'a Layer], asked: &str) -> Option<&'a Entry> {
    layers.iter().enumerate().find_map(|(place, layer)| {
        layer.get(asked).filter(|entry| !layers[..place].iter().any(|above| above.covers(entry)))
    })
}

/// What can be seen through the layers, by name.
pub(crate) fn visible<'a>(layers: &[&'a Layer]) -> BTreeMap<&'a str, &'a Entry> {
    let mut seen = BTreeMap::new();
    for (place, layer) in layers.iter().enumerate() {
        let shown = |entry: &&Entry| !layers[..place].iter().any(|above| above.covers(entry));
        seen.extend(layer.by_name.values().filter(shown).map(|entry| (entry.name(), entry)));
    }
    seen
}

/// The name that was probably meant, of those that can be seen.
pub(crate) fn nearest(layers: &[&Layer], asked: &str) -> Option<String> {
    nearest_name(asked, visible(layers).into_keys()).map(str::to_string)
}

/// Ids live beside names: the separator cannot stand in a name.
fn id_form(id: &str) -> String {
    format!("id:{id}")
}
