//! `subscriptions/listen`: a client hears of changed tools and of its tasks, on the stream of one request.

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
    id: Value,
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
        true => Some(McpToolList::of(gateway.runtime(), &visitor.session).await?.digest()),
        false => None,
    };
    let tasks = ids.into_iter().map(|id| (id, Value::Null)).collect();
    let (conversation, voice, listener) = Conversation::begin();
    let running = gateway.running(&visitor, headers, &request.id, &conversation);
    let listening = ListeningClient { gateway: gateway.clone(), visitor, peer, id: request.id, tools, tasks };
    tokio::spawn(async move {
        listening.run(voice, listener).await;
        drop(running);
    });
    Ok(Exchange::Stream(conversation))
}

impl ListeningClient {
    async fn run(mut self, voice: ConversationVoice, mut listener: FateListener) {
        let mut accepted = json!({"toolsListChanged": self.tools.is_some()});
        if !self.tasks.is_empty() {
            accepted["taskIds"] = json!(self.tasks.keys().collect::<Vec<_>>());
        }
        let acknowledged = json!({"notifications": accepted});
        let mut is_heard =
            voice.tell(self.notification("notifications/subscriptions/acknowledged", acknowledged)).await;
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
        if is_heard && self.visitor.bridge.is_none() {
            let ended = signed(self.peer.era, json!({}));
            voice.answer(message::answer(&self.id, ended), &mut listener).await;
        }
    }

    /// The notifications of all that has changed.
    async fn news(&mut self) -> Vec<Value> {
        let mut news = Vec::new();
        let list = McpToolList::of(self.gateway.runtime(), &self.visitor.session).await;
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
        params["_meta"][META_SUBSCRIPTION] = self.id.clone();
        notification(method, params)
    }
}
