//! `subscriptions/listen`: a client hears of changed lists and resources and of its tasks, on the stream of one request. A client of the older
//! era hears of lists and resources on a stream that belongs to no request.

use crate::conversation::{Conversation, ConversationVoice, Fate, FateListener};
use crate::gateway::{Exchange, Gateway, Headers, Visitor};
use crate::hello::signed;
use crate::list::McpToolList;
use crate::message::{self, RpcError, RpcRequest, notification};
use crate::peer::Peer;
use crate::subscriptions::{self, RESOURCES_MAX};
use crate::task;
use crate::upstream::{OfferKind, ResourceWatch};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often is looked for changes: they must be told within a second.
const LOOKS_EVERY: Duration = Duration::from_millis(500);
/// Tasks that one request listens to.
const TASKS_MAX: usize = 64;
/// The field of `_meta` that says which request a notification belongs to.
const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// A client that listens.
struct ListeningClient {
    gateway: Gateway,
    visitor: Visitor,
    peer: Peer,
    /// The request that asked for it; none on the stream that belongs to no request.
    request: Option<Value>,
    /// The digest of the list that the client was last told of, if it wants to hear of changes.
    tools: Option<String>,
    /// The versions of the lists of prompts that it was last told of.
    prompts: Option<Vec<u64>>,
    /// Those of the lists of resources.
    resources: Option<Vec<u64>>,
    /// The resources whose changes it wants to hear of.
    watches: Vec<ResourceWatch>,
    /// The session of the protocol, in the older era.
    session_id: Option<String>,
    /// The tasks it listens to, as it was last told.
    tasks: BTreeMap<String, Value>,
}

/// Begins to listen.
pub(crate) async fn begin(
    gateway: &Gateway,
    visitor: Visitor,
    headers: &Headers,
    peer: Peer,
    request: RpcRequest,
) -> Result<Exchange, RpcError> {
    let wanted = request.params.get("notifications").cloned().unwrap_or_default();
    let ids: Vec<String> = match &wanted["taskIds"] {
        Value::Null => Vec::new(),
        Value::Array(ids) if ids.len() <= TASKS_MAX && ids.iter().all(Value::is_string) => {
            ids.iter().filter_map(|id| id.as_str().map(str::to_string)).collect()
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            let told = format!("`notifications.taskIds` must be at most {TASKS_MAX} ids of tasks");
            return Err(RpcError::params(told));
        }
    };
    if !ids.is_empty() {
        peer.must_take_tasks()?;
    }
    for id in &ids {
        task::find(gateway.runtime(), &visitor, id).await?;
    }
    let tools = match wanted["toolsListChanged"] == true {
        true => Some(McpToolList::at(gateway.runtime(), &visitor).await?.digest()),
        false => None,
    };
    let prompts = match wanted["promptsListChanged"] == true {
        true => prompts_versions(gateway),
        false => None,
    };
    let resources = match wanted["resourcesListChanged"] == true {
        true => resources_versions(gateway),
        false => None,
    };
    let watches = watches(gateway, &wanted["resourceSubscriptions"]).await?;
    let tasks = ids.into_iter().map(|id| (id, Value::Null)).collect();
    let (conversation, voice, listener) = Conversation::begin();
    let running = gateway.running(&visitor, headers, &request.id, &conversation);
    let request = Some(request.id);
    let (gateway, session_id) = (gateway.clone(), None);
    let listening = ListeningClient {
        gateway,
        visitor,
        peer,
        request,
        tools,
        prompts,
        resources,
        watches,
        session_id,
        tasks,
    };
    tokio::spawn(async move {
        listening.run(voice, listener).await;
        drop(running);
    });
    Ok(Exchange::Stream(conversation))
}

/// Begins the stream of messages that belong to no request, in the older era.
pub(crate) async fn begin_own(
    gateway: &Gateway,
    visitor: Visitor,
    headers: &Headers,
) -> Result<Conversation, RpcError> {
    let tools = Some(McpToolList::at(gateway.runtime(), &visitor).await?.digest());
    let nonce = windlass::batch::fresh_key().map_err(|error| RpcError::internal(&error))?;
    let (conversation, voice, listener) = Conversation::begin();
    // No request has such an id.
    let running = gateway.running(&visitor, headers, &json!({"stream": nonce}), &conversation);
    let peer = Peer::legacy(None);
    let listening = ListeningClient {
        gateway: gateway.clone(),
        visitor,
        peer,
        request: None,
        tools,
        prompts: prompts_versions(gateway),
        resources: resources_versions(gateway),
        watches: Vec::new(),
        session_id: headers.session_id.clone(),
        tasks: BTreeMap::new(),
    };
    tokio::spawn(async move {
        listening.run(voice, listener).await;
        drop(running);
    });
    Ok(conversation)
}

/// The versions of the lists of prompts; none where none are forwarded.
fn prompts_versions(gateway: &Gateway) -> Option<Vec<u64>> {
    let forwarding = gateway.forwarding();
    forwarding.forwards().prompts.then(|| forwarding.versions(OfferKind::Prompts))
}

/// The versions of the lists of resources and of their templates.
fn resources_versions(gateway: &Gateway) -> Option<Vec<u64>> {
    let forwarding = gateway.forwarding();
    let of = |kind: OfferKind| forwarding.versions(kind);
    let versions = || [of(OfferKind::Resources), of(OfferKind::Templates)].concat();
    forwarding.forwards().resources.then(versions)
}

/// Watches these resources. One that is unknown is left out, as what is acknowledged shows.
async fn watches(gateway: &Gateway, wanted: &Value) -> Result<Vec<ResourceWatch>, RpcError> {
    let uris = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    if uris.len() > RESOURCES_MAX {
        let told = format!("`notifications.resourceSubscriptions` has at most {RESOURCES_MAX} addresses");
        return Err(RpcError::params(told));
    }
    let mut watches = Vec::new();
    for uri in uris.iter().filter_map(Value::as_str) {
        watches.extend(subscriptions::watch(gateway, uri).await.ok());
    }
    Ok(watches)
}

impl ListeningClient {
    async fn run(mut self, voice: ConversationVoice, mut listener: FateListener) {
        let mut is_heard = self.acknowledge(&voice).await;
        let mut ticks = tokio::time::interval(LOOKS_EVERY);
        while is_heard {
            tokio::select! {
                biased;
                fate = listener.fate() => {
                    debug_assert_ne!(fate, Fate::Delivered, "there was no answer yet");
                    return;
                }
                () = self.gateway.closes() => break,
                _ = ticks.tick() => {}
            }
            for message in self.news().await {
                is_heard = is_heard && voice.tell(message).await;
            }
        }
        // A bridge listens again at the next owner.
        if let (Some(id), true) = (&self.request, is_heard && self.visitor.bridge.is_none()) {
            let ended = signed(self.peer.era, json!({}));
            voice.answer(message::answer(id, ended), &mut listener).await;
        }
    }

    /// Tells what is listened to, where a request asked for it; `false` if nobody hears it.
    async fn acknowledge(&self, voice: &ConversationVoice) -> bool {
        if self.request.is_none() {
            return true;
        }
        let mut accepted = json!({"toolsListChanged": self.tools.is_some()});
        if self.prompts.is_some() {
            accepted["promptsListChanged"] = true.into();
        }
        if self.resources.is_some() {
            accepted["resourcesListChanged"] = true.into();
        }
        if !self.watches.is_empty() {
            accepted["resourceSubscriptions"] = self.watches.iter().map(|watch| watch.uri.as_str()).collect();
        }
        if !self.tasks.is_empty() {
            accepted["taskIds"] = json!(self.tasks.keys().collect::<Vec<_>>());
        }
        let acknowledged = json!({"notifications": accepted});
        voice.tell(self.notification("notifications/subscriptions/acknowledged", acknowledged)).await
    }

    /// The notifications of all that has changed.
    async fn news(&mut self) -> Vec<Value> {
        let mut news = Vec::new();
        let list = McpToolList::at(self.gateway.runtime(), &self.visitor).await;
        if let (Some(told), Ok(list)) = (&mut self.tools, list)
            && *told != list.digest()
        {
            *told = list.digest();
            news.push(("notifications/tools/list_changed", json!({})));
        }
        self.offers_news(&mut news);
        let mut changed = Vec::new();
        for (id, told) in &self.tasks {
            // One that cannot be read now is looked at again.
            if let Ok(now) = task::shown(&self.gateway, &self.visitor, &self.peer, id).await
                && now != *told
            {
                changed.push((id.clone(), now));
            }
        }
        for (id, now) in changed {
            self.tasks.insert(id, now.clone());
            news.push(("notifications/tasks", now));
        }
        news.into_iter().map(|(method, params)| self.notification(method, params)).collect()
    }

    /// Adds the notifications of what servers have beside their tools.
    fn offers_news(&mut self, news: &mut Vec<(&'static str, Value)>) {
        if self.prompts.is_some() {
            let now = prompts_versions(&self.gateway);
            if std::mem::replace(&mut self.prompts, now.clone()) != now {
                news.push(("notifications/prompts/list_changed", json!({})));
            }
        }
        if self.resources.is_some() {
            let now = resources_versions(&self.gateway);
            if std::mem::replace(&mut self.resources, now.clone()) != now {
                news.push(("notifications/resources/list_changed", json!({})));
            }
        }
        let changed =
            self.watches.iter_mut().filter_map(|watch| watch.has_changed().then(|| watch.uri.clone()));
        let mut changed: Vec<String> = changed.collect();
        if let Some(session) = &self.session_id {
            changed.extend(self.gateway.subscriptions().changed(session));
        }
        news.extend(changed.into_iter().map(|uri| ("notifications/resources/updated", json!({"uri": uri}))));
    }

    fn notification(&self, method: &str, mut params: Value) -> Value {
        if let Some(id) = &self.request {
            params["_meta"][META_SUBSCRIPTION] = id.clone();
        }
        notification(method, params)
    }
}
