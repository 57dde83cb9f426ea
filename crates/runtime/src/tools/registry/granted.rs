//! Tools of calls by grant, which their sessions need not have.

use super::{Registered, Registry, ToolLookup};
use crate::tools::place::BatchPlace;
use crate::tools::scope::{Layer, LayerEntry};
use std::sync::Arc;
use windlass_core::call::Opened;

impl Registry {
    /// The tools of this name or stable id in all layers of a batch and its session, the strongest first, whatever hides them. The
    /// layers of child sessions' filters have no tools.
    pub(crate) fn unhidden(&self, place: &BatchPlace, asked: &str) -> Vec<LayerEntry> {
        let found = |layers: &[&Layer]| layers.iter().filter_map(|layer| layer.get(asked).cloned()).collect();
        self.layered(&place.session, place.overlay(), found)
    }

    /// A tool of a layer, loaded if it was not.
    pub(crate) async fn loaded(&self, entry: LayerEntry) -> ToolLookup {
        match entry {
            LayerEntry::Tool(tool) => ToolLookup::Tool(tool),
            LayerEntry::Provided(provided) => match provided.loaded() {
                Some(tool) => ToolLookup::Tool(tool.clone()),
                None => Box::pin(self.load(&provided)).await,
            },
        }
    }

    /// Finds the tool of a recorded call without waiting, also one that its session does not have and its grant is for.
    pub(crate) fn known_for(&self, place: &BatchPlace, opened: &Opened) -> Option<Arc<Registered>> {
        if opened.grant.is_none() {
            return self.known(place, &opened.tool);
        }
        self.unhidden(place, &opened.tool).into_iter().find_map(|entry| match entry {
            LayerEntry::Tool(tool) => Some(tool),
            LayerEntry::Provided(provided) => provided.loaded().cloned(),
        })
    }
}
