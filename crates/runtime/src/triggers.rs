//! The triggers of a session: calls that are started by events.
//!
//! A trigger is a record of its session, written by its owner alone. Its owner has them all in memory, behind one lock that is
//! held from the look at them until what follows is on its way to the store. So an event and a removal meet one after the
//! other, and each sees what the other left.

mod kept;
mod occur;

pub(crate) use kept::Armed;
pub(crate) use occur::{Event, is_awaited};

use crate::answer;
use crate::background;
use crate::error::BatchError;
use crate::inside::nested;
use crate::runtime::{Inner, Runtime, check_session_name};
use crate::standing;
use kept::Kept;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass_core::call::Wake;
use windlass_core::handle::Handle;
use windlass_core::ids::SessionNo;
use windlass_core::time::Timestamp;
use windlass_core::tool::nearest_name;
use windlass_core::trigger::{Filter, Given, Problem};
use windlass_store::{Guard, Row, Space, Store};

/// The keys of batches that events start begin so, and no others do.
pub(crate) const KEY_PREFIX: &str = "trigger:";

/// The key of the batch that a trigger starts when a call tells of an event under this name. There is one for each event and
/// trigger.
fn key(call: Handle, name: &str, trigger: &str) -> String {
    format!("{KEY_PREFIX}{call}/{}/{trigger}", nested::in_key(name))
}

/// The trigger that has started the batch of this key, if one has.
pub(crate) fn trigger_of(key: &str) -> Option<&str> {
    key.strip_prefix(KEY_PREFIX)?.rsplit_once('/').map(|(_, id)| id)
}

/// A trigger, as somebody asks for it.
#[derive(Clone, Debug, Default)]
pub struct NewTrigger {
    /// Its id, 1–64 of `[a-zA-Z0-9_.-]`; without one it gets one. Asking for the same again under one id changes nothing.
    pub id: Option<String>,
    /// The kind of event, as a tool [declares](windlass_core::tool::ToolSpec::emits) it.
    pub event: String,
    /// Only events whose payload has these values: a JSON pointer into it, and what stands there. All must be equal.
    pub filter: Map<String, Value>,
    /// The tool that is called; it must have the flag `background`.
    pub tool: String,
    /// The arguments of the call.
    pub args: Value,
    /// The argument that is the payload of the event; without it the call is not given the event.
    pub event_as: Option<String>,
    /// What people call the tasks that it starts.
    pub title: Option<String>,
    /// When the session is told of them.
    pub wake: Wake,
    /// Who asks for it.
    pub owner: Option<String>,
}

/// A trigger, as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trigger {
    /// Its id.
    pub id: String,
    /// The kind of event.
    pub event: String,
    /// What its payload must have: a JSON pointer into it, and what stands there.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub filter: Map<String, Value>,
    /// The tool that is called.
    pub tool: String,
    /// With these arguments.
    pub args: Map<String, Value>,
    /// The argument that is the payload of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_as: Option<String>,
    /// What people call the tasks that it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the session is told of them.
    pub wake: String,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it was made.
    #[serde(rename = "created", serialize_with = "answer::as_wall_time")]
    pub created_at: Timestamp,
    /// When an event last started something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The task that it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_task: Option<String>,
    /// How many calls it has started.
    pub count: u64,
}

/// Why something was not done with a trigger.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TriggerError {
    /// It cannot be as it is asked for.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// Another has this id.
    #[error("another trigger has the id {id:?}; remove that one, or give this one an id of its own")]
    Exists {
        /// The id.
        id: String,
    },
    /// There are as many as there may be.
    #[error("the session has {max} triggers and may have no more; remove one first")]
    Full {
        /// The limit `triggers_max`.
        max: u64,
    },
    /// Only whoever owns the session changes its triggers.
    #[error("nobody owns the session, so its triggers cannot be changed; start its owner first")]
    NotOwned,
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl From<Problem> for TriggerError {
    fn from(problem: Problem) -> TriggerError {
        invalid(problem.to_string())
    }
}

/// The triggers of one session. See [`Runtime::triggers`].
pub struct Triggers {
    store: Arc<dyn Store>,
    session: String,
    /// Whoever owns the session, or may.
    rt: Option<Arc<Inner>>,
}

impl Runtime {
    /// The triggers of the session of this name. The first one that is made opens it.
    ///
    /// ```
    /// # use serde_json::json;
    /// # use windlass::{NewTrigger, Runtime, TriggerError};
    /// async fn deliver_what_is_sold(runtime: &Runtime) -> Result<(), TriggerError> {
    ///     let filter = json!({ "/item": "door" }).as_object().cloned().unwrap_or_default();
    ///     let (event, tool) = ("sold".to_string(), "deliver".to_string());
    ///     let event_as = Some("order".to_string());
    ///     let new = NewTrigger { event, filter, tool, event_as, ..NewTrigger::default() };
    ///     runtime.triggers("shop").create(new).await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn triggers(&self, session: &str) -> Triggers {
        Triggers { store: self.0.store.clone(), session: session.to_string(), rt: Some(self.0.clone()) }
    }
}

impl Triggers {
    /// The triggers of a session of a store that nobody drives: they can be looked at.
    pub fn recorded(store: Arc<dyn Store>, session: &str) -> Triggers {
        Triggers { store, session: session.to_string(), rt: None }
    }

    /// All of them, by id.
    pub async fn list(&self) -> Result<Vec<Trigger>, TriggerError> {
        let Some(session) = self.number().await? else { return Ok(Vec::new()) };
        let found = kept::all(&*self.store, session).await?;
        Ok(found.iter().map(|(id, kept)| kept.shown(id, self.store.secret())).collect())
    }

    /// Makes one, durably. The same again under the same id is fine; the second value says whether it is new.
    pub async fn create(&self, new: NewTrigger) -> Result<(Trigger, bool), TriggerError> {
        let rt = self.rt.as_ref().ok_or(TriggerError::NotOwned)?;
        check_session_name(&self.session)?;
        let id: Arc<str> = match &new.id {
            Some(id) => {
                standing::check_id("trigger", id).map_err(invalid)?;
                id.as_str().into()
            }
            None => standing::fresh_id()?.into(),
        };
        // Taken first: which tools it has is known of a session that is owned.
        let session = rt.session(&self.session).await?;
        let kept = self.accepted(rt, new).await?;
        let mut armed = session.triggers.lock().await;
        session.check_takes(rt).await?;
        let all = armed.read(&session).await?;
        if let Some((_, there)) = all.iter().find(|(known, _)| *known == id) {
            return match kept.asks_the_same(there) {
                true => Ok((there.shown(&id, self.store.secret()), false)),
                false => Err(TriggerError::Exists { id: id.to_string() }),
            };
        }
        let max = rt.limits.triggers_max;
        if all.len() as u64 >= max {
            return Err(TriggerError::Full { max });
        }
        let guards = vec![Guard::Room { space: Space::Trigger, key: id.to_string(), max }];
        session.lane.send(guards, vec![kept.row(&id)]).durable().await.map_err(BatchError::from)?;
        let shown = kept.shown(&id, self.store.secret());
        all.push((id, kept));
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok((shown, true))
    }

    /// Removes one: no event that is told of from then on starts anything by it. What it has started goes on. `false`: there
    /// was none.
    pub async fn remove(&self, id: &str) -> Result<bool, TriggerError> {
        let rt = self.rt.as_ref().ok_or(TriggerError::NotOwned)?;
        if self.number().await?.is_none() {
            return Ok(false);
        }
        let session = rt.session(&self.session).await?;
        let mut armed = session.triggers.lock().await;
        let all = armed.read(&session).await?;
        let Some(place) = all.iter().position(|(known, _)| **known == *id) else { return Ok(false) };
        let row = Row::Remove { space: Space::Trigger, key: id.to_string() };
        session.lane.commit_rows(vec![row]).await.map_err(BatchError::from)?;
        all.remove(place);
        Ok(true)
    }

    /// A trigger that is asked for, if it can be.
    async fn accepted(&self, rt: &Inner, new: NewTrigger) -> Result<Kept, TriggerError> {
        let NewTrigger { event, filter, tool, args, event_as, title, wake, owner, .. } = new;
        self.check_event(rt, &event)?;
        let filter = Filter::new(filter, &rt.limits)?;
        standing::check_title(title.as_deref(), &rt.limits).map_err(invalid)?;
        let given = self.given(rt, &tool, Given::new(args, event_as)?).await?;
        let kept = Kept {
            event,
            filter,
            tool,
            given,
            title,
            wake: wake.to_string(),
            owner,
            created_us: rt.clock.now().0,
            last: None,
            count: 0,
        };
        kept.check_size().map_err(invalid)?;
        Ok(kept)
    }

    /// Refuses a kind of event that no tool of the session declares: it would never come.
    fn check_event(&self, rt: &Inner, event: &str) -> Result<(), TriggerError> {
        let listed = rt.registry.list_of(&self.session);
        // What a provider has not loaded yet may declare anything.
        let is_known = listed
            .iter()
            .any(|tool| tool.tool.as_ref().is_none_or(|tool| tool.spec.emits.contains_key(event)));
        if is_known {
            return Ok(());
        }
        let tools = listed.iter().filter_map(|listed| listed.tool.as_ref());
        let kinds: Vec<&str> = tools.flat_map(|tool| tool.spec.emits.keys().map(String::as_str)).collect();
        let hint = match nearest_name(event, kinds.into_iter()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => "name one that a tool lists under `emits`".to_string(),
        };
        Err(invalid(format!("no tool tells of the event {event:?}; {hint}")))
    }

    /// What the call is given, if its tool takes that. What stands in for an event only the call itself can check.
    async fn given(&self, rt: &Inner, tool: &str, given: Given) -> Result<Given, TriggerError> {
        let Some(name) = given.event_as() else {
            let args = standing::target(rt, &self.session, (tool, Value::Object(given.args().clone()))).await;
            return Ok(Given::new(args.map_err(invalid)?, None)?);
        };
        let found = background::target_tool(rt, &standing::place(&self.session), tool).await;
        let found = found.map_err(|failure| invalid(failure.message))?;
        let schema = found.spec.input_schema.as_ref();
        let is_closed = schema.is_some_and(|schema| {
            schema["additionalProperties"] == false && schema["properties"].get(name).is_none()
        });
        if is_closed {
            let what = format!(
                "the tool {tool:?} takes no argument {name:?}; give it the event as one that it takes"
            );
            return Err(invalid(what));
        }
        Ok(given)
    }

    async fn number(&self) -> Result<Option<SessionNo>, TriggerError> {
        let row = self.store.session(&self.session).await.map_err(BatchError::from)?;
        Ok(row.map(|row| row.no))
    }
}

fn invalid(what: String) -> TriggerError {
    TriggerError::Invalid { what }
}
