//! Changes that a server tells of, for whoever looks: it may do so at any time, and as often as it likes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A change that a server tells of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerChange {
    Tools,
    /// Of its prompts, resources or templates.
    Offers,
    /// The resource at this address.
    Resource(String),
}

impl ServerChange {
    pub(super) fn of(method: &str, params: &Value) -> Option<ServerChange> {
        match method {
            "notifications/tools/list_changed" => Some(ServerChange::Tools),
            "notifications/prompts/list_changed" | "notifications/resources/list_changed" => {
                Some(ServerChange::Offers)
            }
            "notifications/resources/updated" => {
                params["uri"].as_str().map(|uri| ServerChange::Resource(uri.to_string()))
            }
            _ => None,
        }
    }
}

/// The changes of a server, and the resources whose changes somebody wants to hear of. They outlive a connection.
#[derive(Default)]
pub(super) struct ServerChanges {
    pub(super) tools: Notify,
    /// How often it has said that something else that it lists changed.
    offers: AtomicU64,
    watched: Mutex<BTreeMap<String, WatchedResource>>,
    /// Other resources are watched than before.
    pub(super) rewatched: Notify,
}

#[derive(Default)]
struct WatchedResource {
    watches: usize,
    updates: u64,
}

impl ServerChanges {
    pub(super) fn take(&self, change: ServerChange) {
        match change {
            ServerChange::Tools => self.tools.notify_one(),
            ServerChange::Offers => drop(self.offers.fetch_add(1, Ordering::Relaxed)),
            // Of one that nobody watches nothing is kept.
            ServerChange::Resource(uri) => {
                if let Some(resource) = self.watched().get_mut(&uri) {
                    resource.updates += 1;
                }
            }
        }
    }

    pub(super) fn offers(&self) -> u64 {
        self.offers.load(Ordering::Relaxed)
    }

    /// Watches a resource as long as the watch is kept; `None` if too many are watched.
    pub(super) fn watch(self: &Arc<Self>, uri: &str, watched_max: usize) -> Option<ResourceWatch> {
        let mut watched = self.watched();
        if watched.len() >= watched_max && !watched.contains_key(uri) {
            return None;
        }
        let resource = watched.entry(uri.to_string()).or_default();
        resource.watches += 1;
        let (is_new, seen) = (resource.watches == 1, resource.updates);
        drop(watched);
        if is_new {
            self.rewatched.notify_one();
        }
        Some(ResourceWatch { changes: self.clone(), uri: uri.to_string(), seen })
    }

    /// The addresses that are watched.
    pub(super) fn watched_uris(&self) -> Vec<String> {
        self.watched().keys().cloned().collect()
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, WatchedResource>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who wants to hear of changes of a resource.
pub(crate) struct ResourceWatch {
    changes: Arc<ServerChanges>,
    pub(crate) uri: String,
    seen: u64,
}

impl ResourceWatch {
    /// Whether it has changed since this was last asked.
    pub(crate) fn has_changed(&mut self) -> bool {
        let now = self.changes.watched().get(&self.uri).map_or(self.seen, |resource| resource.updates);
        std::mem::replace(&mut self.seen, now) != now
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        let mut watched = self.changes.watched();
        let Some(resource) = watched.get_mut(&self.uri) else { return };
        resource.watches -= 1;
        if resource.watches == 0 {
            watched.remove(&self.uri);
            drop(watched);
            self.changes.rewatched.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resource_is_watched_as_long_as_somebody_wants_to_hear_of_it() {
        let changes = Arc::new(ServerChanges::default());
        let mut one = changes.watch("a://1", 1).expect("there is room");
        let mut other = changes.watch("a://1", 1).expect("it is the same");
        assert!(changes.watch("a://2", 1).is_none(), "there is no room for another");
        let told = |uri: &str| ServerChange::of("notifications/resources/updated", &json!({"uri": uri}));
        for uri in ["a://1", "a://1", "a://2"] {
            changes.take(told(uri).expect("a change"));
        }
        assert!(one.has_changed() && !one.has_changed() && other.has_changed());
        drop(one);
        assert_eq!(changes.watched_uris(), ["a://1"]);
        drop(other);
        assert!(changes.watched_uris().is_empty());
        assert_eq!(told("").map(|change| changes.take(change)), Some(()));
        assert_eq!(ServerChange::of("notifications/resources/updated", &json!({"uri": 7})), None);
    }
}
