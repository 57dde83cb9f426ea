//! Paused tools: by name, whether they are there or not.

use super::{NoSuchTool, Registry, ToolTables};
use crate::tools::scope::{self, LayerEntry};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

impl Registry {
    /// Whether there is a registered or provided tool of this name, or one that is paused and gone.
    pub(crate) fn check_pausable(&self, name: &str) -> Result<(), NoSuchTool> {
        let tools = self.tools.read();
        if tools.base.get(name).is_some() || tools.paused.contains(name) {
            return Ok(());
        }
        let nearest = scope::nearest(&[&tools.base], name);
        Err(NoSuchTool { name: name.to_string(), nearest })
    }

    /// Pauses the registered or provided tools of these names, now and later, and no others, unless a later change is known.
    pub(crate) fn pause_all(&self, number: u64, names: &BTreeSet<String>) {
        let mut tools = self.tools.write();
        if number <= tools.pauses {
            return;
        }
        tools.pauses = number;
        for name in &std::mem::replace(&mut tools.paused, names.clone()) {
            tools.set_paused(name, false);
        }
        self.publish(tools);
    }
}

impl ToolTables {
    /// Pauses the tools that are there by now.
    pub(super) fn pause_known(&self) {
        for name in &self.paused {
            self.set_paused(name, true);
        }
    }

    fn set_paused(&self, name: &str, paused: bool) {
        match self.base.get(name) {
            Some(LayerEntry::Tool(tool)) => tool.paused.store(paused, Ordering::Relaxed),
            Some(LayerEntry::Provided(provided)) => provided.paused.store(paused, Ordering::Relaxed),
            None => {}
        }
    }
}
