//! The tools of toolboxes: put together, replaced together, removed together.

use super::{Registered, Registry, compile};
use crate::tools::registry::RegisterError;
use crate::tools::scope::{Layer, LayerEntry};
use crate::tools::tool::Tool;
use crate::tools::toolbox::ToolboxLink;
use std::sync::Arc;

/// The tools of a toolbox, and those it had before.
pub(crate) struct PutTools {
    pub(crate) now: Vec<Arc<Registered>>,
    pub(crate) before: Vec<Arc<Registered>>,
}

impl Registry {
    /// Checks the tools of a toolbox as [`put_box`](Self::put_box) does, and changes nothing.
    pub(crate) fn check_box(&self, toolbox: &str, tools: &[Arc<dyn Tool>]) -> Result<(), RegisterError> {
        let compiled = self.compiled(tools, None)?;
        let mut layer = self.tools.write();
        let PutTools { now, before } = swap(&mut layer.base, toolbox, compiled)?;
        now.iter().for_each(|tool| drop(layer.base.remove(&tool.spec.name)));
        before.into_iter().for_each(|tool| layer.base.insert(LayerEntry::Tool(tool)));
        Ok(())
    }

    /// Registers the tools of a toolbox in place of those it had: all of them, or none.
    pub(crate) fn put_box(
        &self,
        link: &Arc<ToolboxLink>,
        tools: &[Arc<dyn Tool>],
    ) -> Result<PutTools, RegisterError> {
        let compiled = self.compiled(tools, Some(link))?;
        let mut layer = self.tools.write();
        let put = swap(&mut layer.base, &link.toolbox, compiled)?;
        self.publish(layer);
        Ok(put)
    }

    fn compiled(
        &self,
        tools: &[Arc<dyn Tool>],
        link: Option<&Arc<ToolboxLink>>,
    ) -> Result<Vec<Registered>, RegisterError> {
        let linked = |tool: &Arc<dyn Tool>| {
            let mut registered = compile(tool.clone(), &self.host)?;
            registered.link = link.cloned();
            Ok(registered)
        };
        tools.iter().map(linked).collect()
    }

    /// Removes the tools of a toolbox, and returns them.
    pub(crate) fn remove_box(&self, toolbox: &str) -> Vec<Arc<Registered>> {
        let mut layer = self.tools.write();
        let before = take_box(&mut layer.base, toolbox);
        self.publish(layer);
        before
    }

    /// A toolbox is served again: calls that wait for its tools look again.
    pub(crate) fn box_is_back(&self) {
        self.publish(self.tools.write());
    }
}

/// Puts tools in place of those of a toolbox. If one is refused, the layer is as it was.
fn swap(layer: &mut Layer, toolbox: &str, tools: Vec<Registered>) -> Result<PutTools, RegisterError> {
    let before = take_box(layer, toolbox);
    let mut now: Vec<Arc<Registered>> = Vec::new();
    for mut tool in tools {
        if let Some(old) = before.iter().find(|old| old.spec.name == tool.spec.name) {
            tool.paused = old.paused.clone();
        }
        let tool = Arc::new(tool);
        let entry = LayerEntry::Tool(tool.clone());
        if let Err(refused) = layer.check_free(&entry, None) {
            now.iter().for_each(|tool| drop(layer.remove(&tool.spec.name)));
            before.into_iter().for_each(|tool| layer.insert(LayerEntry::Tool(tool)));
            return Err(refused);
        }
        layer.insert(entry);
        now.push(tool);
    }
    Ok(PutTools { now, before })
}

/// Takes the tools of a toolbox out of a layer.
fn take_box(layer: &mut Layer, toolbox: &str) -> Vec<Arc<Registered>> {
    let own = layer.by_name.values().filter_map(|entry| match entry {
        LayerEntry::Tool(tool) => tool.link.as_ref().filter(|link| &*link.toolbox == toolbox).map(|_| tool),
        LayerEntry::Provided(_) => None,
    });
    let own: Vec<Arc<Registered>> = own.cloned().collect();
    own.iter().for_each(|tool| drop(layer.remove(&tool.spec.name)));
    own
}
