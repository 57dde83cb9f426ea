//! Prompts and resources of servers for clients of the door: one list of those of all servers, and requests that are passed on to the server
//! that they are for.
//!
//! These are no calls. A person's client looks at what a server has: nothing is recorded, and nothing goes on behind the answer. So all of it is
//! bounded in time, size and number, and a server that cannot be reached or hangs costs the others nothing.

use super::changes::ResourceWatch;
use super::connection::{McpConnection, McpRequestError};
use super::offers::{OfferKind, ServerOffers, URI_BYTES_MAX};
use super::output::text_bytes;
use super::server::ServerLink;
use super::template;
use super::wire::{QUESTIONS_WAITING_MAX, SentRequest};
use crate::list::shown_name;
use crate::peer::Era;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windlass_tools::declared::McpForwards;

/// How long a client waits for the list of one server; after that it gets what is known.
const LIST_WAIT: Duration = Duration::from_secs(2);
/// How long the list of a server is good that does not tell of changes.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// How long a list is good in any case, unless the server tells of changes.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// The pause between two lists of a server that tells of changes without end.
const LISTS_AGAIN_AFTER: Duration = Duration::from_millis(300);
/// The pause after the first list that failed; doubled by each further one.
const BACKOFF_BASE: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// About as many bytes as the entries of one server may have together; more of them are left out.
const OFFERS_BYTES_MAX: usize = 8 << 20;

/// The servers whose prompts or resources are forwarded. Cheap to clone; keeps no server alive.
#[derive(Clone, Default)]
pub struct Forwarding(Arc<ForwardingParts>);

#[derive(Default)]
struct ForwardingParts {
    links: Vec<Weak<ServerLink>>,
    forwards: McpForwards,
    /// The last words of the log about entries that two servers have.
    told: Mutex<BTreeMap<&'static str, String>>,
}

/// The prompts and resources of a server as they were last listed.
#[derive(Default)]
pub(super) struct ListedOffers {
    offers: Arc<ServerOffers>,
    /// When the listing began that goes on.
    begun_at: Option<Instant>,
    /// When the last one ended; none: there was none.
    ended_at: Option<Instant>,
    /// How often each kind of entries was another than before.
    versions: [u64; 3],
    /// The number of changes that the server had told of when it began.
    seen: u64,
    /// Whether the server tells of changes.
    tells_changes: bool,
    failures: u32,
    /// The last words of the log about entries that were left out.
    told: String,
}

impl ListedOffers {
    fn is_due(&self, changes: u64, patience: ListPatience) -> bool {
        let Some(ended_at) = self.ended_at else { return true };
        let age = ended_at.elapsed();
        if let Some(doubled) = self.failures.checked_sub(1) {
            return age > BACKOFF_BASE.saturating_mul(1 << doubled.min(10)).min(BACKOFF_MAX);
        }
        let good_for = match (self.tells_changes, patience) {
            (false, ListPatience::Asked) => FRESH_FOR,
            (true, _) | (false, ListPatience::Looks) => KEPT_FOR,
        };
        age > good_for || (self.seen != changes && age > LISTS_AGAIN_AFTER)
    }
}

/// How long a list is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListPatience {
    /// A client that waits for it.
    Asked,
    /// A listener, which looks again and again and waits for nothing.
    Looks,
}

/// A request of a client that is passed on.
pub(crate) struct ForwardedRequest {
    pub(crate) method: &'static str,
    pub(crate) params: Map<String, Value>,
    /// The prompt or the address that it is about.
    pub(crate) name: Option<String>,
    /// The capabilities of the client, in the newer era.
    pub(crate) capabilities: Value,
}

/// A request that has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("the MCP server {server} is not available: {why}")]
    Unavailable { server: String, why: &'static str },
    /// The server answered with an error.
    #[error("the MCP server {server} refused the request")]
    Refused { server: String, error: Value },
    #[error("the answer of the MCP server {server} has more than {bytes_max} bytes")]
    TooLong { server: String, bytes_max: u64 },
}

impl Forwarding {
    pub(super) fn of(links: &[Arc<ServerLink>]) -> Forwarding {
        let forwarding = links.iter().filter(|link| link.server.forwards.any());
        let mut forwards = McpForwards::default();
        let mut kept = Vec::new();
        for link in forwarding {
            forwards.prompts |= link.server.forwards.prompts;
            forwards.resources |= link.server.forwards.resources;
            kept.push(Arc::downgrade(link));
        }
        Forwarding(Arc::new(ForwardingParts { links: kept, forwards, told: Mutex::default() }))
    }

    /// The kinds that the entries of all servers forward.
    pub(crate) fn forwards(&self) -> McpForwards {
        self.0.forwards
    }

    /// The servers that forward this kind of entries, in the order of their names.
    fn links(&self, kind: OfferKind) -> Vec<Arc<ServerLink>> {
        let links = self.0.links.iter().filter_map(Weak::upgrade);
        links
            .filter(|link| OfferKind::forwarded(link.server.forwards).any(|forwarded| forwarded == kind))
            .collect()
    }

    /// The entries of all servers, by the names or addresses that clients see. Of two that are alike the first server's is there.
    pub(crate) async fn list(&self, kind: OfferKind, patience: ListPatience) -> BTreeMap<String, Value> {
        let (mut merged, mut left_out) = (BTreeMap::new(), Vec::new());
        for (link, offers) in self.offers(kind, patience).await {
            for (key, entry) in offers.of(kind) {
                let shown = shown_key(&link, kind, key);
                if merged.contains_key(&shown) {
                    left_out.push(format!("{shown} of {}", link.server.name));
                    continue;
                }
                let mut entry = entry.clone();
                entry[kind.key()] = shown.clone().into();
                merged.insert(shown, entry);
            }
        }
        self.tell_left_out(kind, &left_out);
        merged
    }

    /// A number for each server, which is another one once its entries of this kind are others.
    pub(crate) fn versions(&self, kind: OfferKind) -> Vec<u64> {
        let version = |link: Arc<ServerLink>| {
            link.list_if_due(ListPatience::Looks);
            link.offers.borrow().versions[kind as usize]
        };
        self.links(kind).into_iter().map(version).collect()
    }

    /// Says once which entries are hidden by those of another server.
    fn tell_left_out(&self, kind: OfferKind, left_out: &[String]) {
        const SHOWN: usize = 10;
        let summary = left_out.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(kind.field()).or_default();
        if *told != summary {
            if !summary.is_empty() {
                let (kind, count) = (kind.field(), left_out.len());
                tracing::warn!(
                    kind,
                    count,
                    "other servers have entries like these, which are left out: {summary}"
                );
            }
            *told = summary;
        }
    }

    /// The entries of each server, as far as they are known in time.
    async fn offers(
        &self,
        kind: OfferKind,
        patience: ListPatience,
    ) -> Vec<(Arc<ServerLink>, Arc<ServerOffers>)> {
        let links = self.links(kind);
        // All are asked at once.
        links.iter().for_each(|link| link.list_if_due(patience));
        let mut known = Vec::with_capacity(links.len());
        for link in links {
            let offers = link.listed_offers(patience).await;
            known.push((link, offers));
        }
        known
    }

    /// The server that has the prompt of this name, and its name there.
    pub(crate) async fn prompt(&self, shown: &str) -> Option<(ForwardingServer, String)> {
        let kind = OfferKind::Prompts;
        self.offers(kind, ListPatience::Asked).await.into_iter().find_map(|(link, offers)| {
            let name = offers.of(kind).keys().find(|name| shown_key(&link, kind, name) == shown)?.clone();
            Some((ForwardingServer(link), name))
        })
    }

    /// The server of an address, or of a template of addresses: the one that lists it, else the one with a template that fits, else the only one.
    pub(crate) async fn resource(&self, uri: &str) -> Option<ForwardingServer> {
        if uri.len() > URI_BYTES_MAX {
            return None;
        }
        let known = self.offers(OfferKind::Resources, ListPatience::Asked).await;
        let lists = |offers: &ServerOffers| {
            offers.of(OfferKind::Resources).contains_key(uri)
                || offers.of(OfferKind::Templates).contains_key(uri)
        };
        let describes = |offers: &ServerOffers| {
            offers.of(OfferKind::Templates).keys().any(|template| template::fits(template, uri))
        };
        let found = known.iter().find(|(_, offers)| lists(offers));
        let found = found.or_else(|| known.iter().find(|(_, offers)| describes(offers)));
        // Several are not asked one after the other: none learns what another is asked for.
        let found = found.or(match known.as_slice() {
            [only] => Some(only),
            _ => None,
        });
        found.map(|(link, _)| ForwardingServer(link.clone()))
    }
}

/// The name or the address of an entry, as clients see it: addresses are those of the server.
fn shown_key(link: &ServerLink, kind: OfferKind, key: &str) -> String {
    match kind {
        OfferKind::Prompts => shown_name(&link.server.offered_name(key)),
        OfferKind::Resources | OfferKind::Templates => key.to_string(),
    }
}

/// A server that a request is for.
pub(crate) struct ForwardingServer(Arc<ServerLink>);

impl ForwardingServer {
    /// Passes a request on, and waits for its result.
    pub(crate) async fn ask(&self, request: ForwardedRequest) -> Result<Value, ForwardError> {
        let link = &self.0;
        let limits = link.runtime.limits();
        let unavailable = |why| ForwardError::Unavailable { server: link.server.name.clone(), why };
        let Ok(_room) = link.forwards.try_acquire() else {
            return Err(unavailable("it is asked for too much at once; try again later"));
        };
        let until = tokio::time::Instant::now() + Duration::from_millis(limits.mcp_forward_ms);
        let late = |_| unavailable("it did not answer in time");
        let connection = tokio::time::timeout_at(until, link.connection()).await.map_err(late)?;
        // The log has said why.
        let connection = connection.map_err(|_| unavailable("it cannot be reached; try again later"))?;
        let sent = SentRequest {
            name: request.name,
            capabilities: Some(request.capabilities),
            ..SentRequest::new(request.method, request.params)
        };
        // The connection gives up behind us.
        let within = Duration::from_millis(limits.mcp_forward_ms.saturating_mul(2));
        let answered = match tokio::time::timeout_at(until, exchange(&connection, sent, within)).await {
            Ok(answered) => answered,
            Err(elapsed) => {
                // One that answers nothing else either is ended.
                let link = link.clone();
                tokio::spawn(async move { link.look_after(&connection).await });
                return Err(late(elapsed));
            }
        };
        match answered {
            Ok(result) if text_bytes(&result) as u64 > limits.wire_images_bytes_max => {
                let (server, bytes_max) = (link.server.name.clone(), limits.wire_images_bytes_max);
                Err(ForwardError::TooLong { server, bytes_max })
            }
            Ok(result) => Ok(result),
            Err(McpRequestError::Refused(error)) => {
                Err(ForwardError::Refused { server: link.server.name.clone(), error })
            }
            Err(McpRequestError::Lost(lost)) => {
                tracing::warn!(server = link.server.name, why = lost.why, "an MCP server gave no answer");
                Err(unavailable("the connection to it was lost; try again"))
            }
        }
    }

    /// Whether the server completes arguments.
    pub(crate) async fn completes(&self) -> bool {
        let connect = Duration::from_millis(self.0.runtime.limits().mcp_connect_ms);
        let connection = tokio::time::timeout(connect, self.0.connection()).await;
        // One that is not there says so when it is asked.
        !matches!(connection, Ok(Ok(connection)) if !connection.has("completions"))
    }

    /// Watches a resource of the server; `None` if too many are watched.
    pub(crate) fn watch(&self, uri: &str) -> Option<ResourceWatch> {
        let max = usize::try_from(self.0.runtime.limits().mcp_subscriptions_max).unwrap_or(usize::MAX);
        self.0.changes.watch(uri, max)
    }
}

/// Sends a request. What an older server asks in the middle of it is answered by nobody: it belongs to no call that a person could look at.
async fn exchange(
    connection: &McpConnection,
    mut request: SentRequest,
    within: Duration,
) -> Result<Value, McpRequestError> {
    let (asks, mut questions) = mpsc::channel(QUESTIONS_WAITING_MAX);
    if connection.era == Era::Legacy {
        request.questions = Some(asks);
    }
    let asked = connection.request(request, within);
    tokio::pin!(asked);
    loop {
        tokio::select! {
            biased;
            answered = &mut asked => return answered,
            Some(question) = questions.recv() => {
                connection.reply(&question.id, &json!({"action": "cancel"})).await;
            }
        }
    }
}

impl ServerLink {
    /// Begins to list what is forwarded, if what is known is too old, and nobody does so already.
    fn list_if_due(self: &Arc<Self>, patience: ListPatience) {
        let changes = self.changes.offers();
        let begins = self.offers.send_if_modified(|listed| {
            let begins = listed.begun_at.is_none() && listed.is_due(changes, patience);
            if begins {
                (listed.begun_at, listed.seen) = (Some(Instant::now()), changes);
            }
            begins
        });
        if begins {
            let link = self.clone();
            tokio::spawn(async move {
                let ended = link.list_offers().await;
                link.offers.send_modify(|listed| listed.end(&link.server.name, ended));
            });
        }
    }

    /// The entries of the server, as far as they are known: a client waits for a list that goes on, but not for long.
    async fn listed_offers(&self, patience: ListPatience) -> Arc<ServerOffers> {
        let mut listed = self.offers.subscribe();
        let begun_at = listed.borrow().begun_at;
        if let (Some(begun_at), ListPatience::Asked) = (begun_at, patience) {
            let until = tokio::time::Instant::from_std(begun_at + LIST_WAIT);
            let _ = tokio::time::timeout_at(until, listed.wait_for(|listed| listed.begun_at.is_none())).await;
        }
        listed.borrow().offers.clone()
    }

    /// Lists what is forwarded. With it: whether the server tells of all changes.
    async fn list_offers(&self) -> Result<(ServerOffers, bool), String> {
        let connection = self.connection().await.map_err(|unreachable| unreachable.why)?;
        let within = connection.limits.connect;
        let listed = tokio::time::timeout(within, all_offers(&connection, self.server.forwards)).await;
        let listed = listed
            .unwrap_or_else(|_| Err(format!("it did not list what it has within {} ms", within.as_millis())));
        if listed.is_err() {
            // One that answers nothing is ended, and started again.
            self.look_after(&connection).await;
        }
        listed
    }
}

impl ListedOffers {
    /// Notes how a listing ended. After one that failed the last one stands.
    fn end(&mut self, server: &str, ended: Result<(ServerOffers, bool), String>) {
        (self.begun_at, self.ended_at) = (None, Some(Instant::now()));
        match ended {
            Ok((offers, tells_changes)) => {
                (self.failures, self.tells_changes) = (0, tells_changes);
                self.tell(server, &offers);
                for kind in [OfferKind::Prompts, OfferKind::Resources, OfferKind::Templates] {
                    self.versions[kind as usize] += u64::from(offers.of(kind) != self.offers.of(kind));
                }
                self.offers = Arc::new(offers);
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                tracing::warn!(server, why, "the MCP server gave no list of its prompts and resources");
            }
        }
    }

    /// Says once which entries are left out.
    fn tell(&mut self, server: &str, offers: &ServerOffers) {
        const SHOWN: usize = 10;
        let bad = offers.bad.iter().take(SHOWN).map(|(key, why)| format!("{key} ({why})"));
        let mut summary = bad.collect::<Vec<_>>().join(", ");
        if offers.left_out > 0 {
            summary += &format!(" and {} too many", offers.left_out);
        }
        if self.told != summary {
            if !summary.is_empty() {
                let count = offers.bad.len();
                tracing::warn!(server, count, "entries of the MCP server are left out: {summary}");
            }
            self.told = summary;
        }
    }
}

/// Everything that a server has of what is forwarded, and whether it tells of all changes.
async fn all_offers(
    connection: &McpConnection,
    forwards: McpForwards,
) -> Result<(ServerOffers, bool), String> {
    let (mut offers, mut tells_changes, mut bytes) = (ServerOffers::default(), true, 0_usize);
    let limits = connection.limits;
    for kind in OfferKind::forwarded(forwards).filter(|kind| connection.has(kind.capability())) {
        tells_changes &= connection.tells_changes_of(kind.capability());
        let mut count = 0;
        let take = |entry: Value| {
            count += 1;
            bytes = bytes.saturating_add(text_bytes(&entry));
            let has_room = count <= limits.tools_max && bytes <= OFFERS_BYTES_MAX;
            match has_room {
                true => offers.add(kind, entry, limits.definition_bytes_max),
                false => offers.left_out += 1,
            }
            has_room
        };
        match connection.each_entry(kind.method(), kind.field(), take).await {
            Ok(()) => {}
            // Servers with resources need not have templates.
            Err(_) if kind == OfferKind::Templates && connection.ended().is_none() => {}
            Err(why) => return Err(why),
        }
    }
    Ok((offers, tells_changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(name: &str) -> ServerOffers {
        let mut offers = ServerOffers::default();
        offers.add(OfferKind::Prompts, json!({"name": name}), 1_000);
        offers
    }

    #[test]
    fn a_list_that_fails_leaves_the_last_one_there() {
        let mut listed = ListedOffers::default();
        assert!(listed.is_due(0, ListPatience::Looks), "there was none");
        listed.end("x", Ok((offers("a"), true)));
        let first = listed.versions;
        listed.end("x", Ok((offers("a"), true)));
        assert_eq!(listed.versions, first, "it is the same");
        listed.end("x", Err("it hangs".to_string()));
        assert_eq!((listed.offers.of(OfferKind::Prompts).len(), listed.failures), (1, 1));
        listed.end("x", Ok((offers("b"), true)));
        assert_eq!(listed.versions, [first[0] + 1, first[1], first[2]]);
        assert_eq!(listed.failures, 0);
    }

    #[test]
    fn a_list_is_asked_for_again_when_it_is_old_or_has_changed() {
        // None: in this moment, however busy the machine is.
        let ago = |seconds: Option<u64>| match seconds {
            Some(seconds) => Instant::now().checked_sub(Duration::from_secs(seconds)),
            None => Instant::now().checked_add(BACKOFF_MAX),
        };
        for (seconds, tells_changes, failures, changes, patience, expected) in [
            (Some(1), false, 0, 0, ListPatience::Asked, false),
            (Some(6), false, 0, 0, ListPatience::Asked, true),
            (Some(6), false, 0, 0, ListPatience::Looks, false),
            (Some(6), true, 0, 0, ListPatience::Asked, false),
            (Some(61), true, 0, 0, ListPatience::Asked, true),
            (Some(1), true, 0, 1, ListPatience::Looks, true),
            (None, true, 0, 1, ListPatience::Asked, false),
            (Some(1), true, 2, 1, ListPatience::Asked, true),
            (Some(1), true, 5, 1, ListPatience::Asked, false),
            (Some(31), true, 99, 0, ListPatience::Asked, true),
        ] {
            let listed =
                ListedOffers { ended_at: ago(seconds), tells_changes, failures, ..ListedOffers::default() };
            assert_eq!(
                listed.is_due(changes, patience),
                expected,
                "{seconds:?} {tells_changes} {failures} {patience:?}"
            );
        }
    }
}
