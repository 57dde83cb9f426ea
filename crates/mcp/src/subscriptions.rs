//! The resources whose changes clients of the older era hear of, by their sessions of the protocol. In the newer one a request listens to them.
//!
//! They are kept in memory and bounded: a session that many others came after hears nothing any more, and one at a new owner must subscribe again.

use crate::forward;
use crate::gateway::{Gateway, Headers};
use crate::message::{RpcError, RpcRequest};
use crate::resources;
use crate::upstream::ResourceWatch;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 256;
/// Resources that one client hears of.
pub(crate) const RESOURCES_MAX: usize = 64;

/// The subscriptions of all sessions, the oldest session first.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<VecDeque<SubscribedSession>>);

struct SubscribedSession {
    id: String,
    watches: BTreeMap<String, ResourceWatch>,
}

impl Subscriptions {
    /// `resources/subscribe` and `resources/unsubscribe`.
    pub(crate) async fn change(
        &self,
        gateway: &Gateway,
        headers: &Headers,
        request: &RpcRequest,
    ) -> Result<Value, RpcError> {
        let uri = forward::address(request)?;
        let session = headers.session_id.as_deref();
        let session = session
            .ok_or_else(|| RpcError::params("a subscription needs the Mcp-Session-Id of `initialize`"))?;
        if request.method == "resources/unsubscribe" {
            if let Some(known) = self.lock().iter_mut().find(|known| known.id == session) {
                known.watches.remove(uri);
            }
            return Ok(json!({}));
        }
        let watch = watch(gateway, uri).await?;
        let mut sessions = self.lock();
        let at = match sessions.iter().position(|known| known.id == session) {
            Some(at) => at,
            None => {
                if sessions.len() >= SESSIONS_MAX {
                    sessions.pop_front();
                }
                sessions.push_back(SubscribedSession { id: session.to_string(), watches: BTreeMap::new() });
                sessions.len() - 1
            }
        };
        let watches = &mut sessions[at].watches;
        if watches.len() >= RESOURCES_MAX && !watches.contains_key(uri) {
            return Err(too_many());
        }
        watches.entry(uri.to_string()).or_insert(watch);
        Ok(json!({}))
    }

    /// The addresses of the resources of a session that have changed since this was last asked.
    pub(crate) fn changed(&self, session: &str) -> Vec<String> {
        let mut sessions = self.lock();
        let known = sessions.iter_mut().find(|known| known.id == session);
        let watches = known.into_iter().flat_map(|known| known.watches.values_mut());
        watches.filter_map(|watch| watch.has_changed().then(|| watch.uri.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<SubscribedSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches a resource of whichever server has it.
pub(crate) async fn watch(gateway: &Gateway, uri: &str) -> Result<ResourceWatch, RpcError> {
    let server = match resources::is_own(uri) {
        true => None,
        false => gateway.forwarding().resource(uri).await,
    };
    let server = server.ok_or_else(|| resources::unknown(uri))?;
    server.watch(uri).ok_or_else(too_many)
}

fn too_many() -> RpcError {
    RpcError::params("too many resources are subscribed to; unsubscribe from others first")
}
