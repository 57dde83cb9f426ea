//! `subscriptions/listen`: a client hears of changed tools and of its tasks, on the stream of one request. A client of the older era
//! hears of changed tools on a stream that belongs to no request.

use crate::conversation::{Conversation, ConversationVoice, Fate, FateListener};
use crate::gateway::{Exchange, Gateway, Headers, Visitor, signed};
use crate::list::McpToolList;
use crate::message::{self, RpcError, RpcRequest, notification};
use crate::peer::Peer;
use crate::task;
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
    let tasks = ids.into_iter().map(|id| (id, Value::Null)).collect();
    let (conversation, voice, listener) = Conversation::begin();
    let running = gateway.running(&visitor, headers, &request.id, &conversation);
    let request = Some(request.id);
    let listening = ListeningClient { gateway: gateway.clone(), visitor, peer, request, tools, tasks };
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
    let (gateway, tasks) = (gateway.clone(), BTreeMap::new());
    let listening = ListeningClient { gateway, visitor, peer, request: None, tools, tasks };
    tokio::spawn(async move {
        listening.run(voice, listener).await;
        drop(running);
    });
    Ok(conversation)
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

    fn notification(&self, method: &str, mut params: Value) -> Value {
        if let Some(id) = &self.request {
            params["_meta"][META_SUBSCRIPTION] = id.clone();
        }
        notification(method, params)
    }
}
