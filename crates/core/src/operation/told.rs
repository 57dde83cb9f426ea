//! Outgoing operations of a tool: events, messages to its session, tasks that it started, sessions that it
//! opened; and their replay.

use super::mismatch::{Mismatch, other_input};
use super::{EventNumber, Kind, Operations, RecordedOperation};
use crate::ids::CallId;
use crate::outcome::JsonText;
use std::sync::Arc;

/// A call that an event started through a trigger: once, since an event is emitted once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triggered {
    /// The trigger's id.
    pub trigger: Arc<str>,
    /// The call that was started.
    pub call: CallId,
}

impl Operations {
    /// The event that was emitted under this name, and the calls that it started; another one is a mismatch.
    pub fn emitted(
        &self,
        name: &str,
        kind: &str,
        now: &str,
    ) -> Result<Option<(EventNumber, &[Triggered])>, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(RecordedOperation::Event { event, payload, triggered, numbered }) => {
                same_event((event, payload), (kind, now)).map(|()| Some((*numbered, &**triggered)))
            }
            Some(other) => Err(other.other()),
        }
    }

    /// Whether this event is planned under this name; another one is a mismatch.
    pub fn has_planned(&self, name: &str, kind: &str, now: &str) -> Result<bool, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(false),
            Some(RecordedOperation::PlannedEvent { event, payload }) => {
                same_event((event, payload), (kind, now)).map(|()| true)
            }
            Some(other) => Err(other.other()),
        }
    }

    /// Whether an event is planned.
    pub fn has_planned_event(&self) -> bool {
        self.has_planned_event
    }

    /// The events that are emitted if the call succeeds: name, kind and payload of each.
    pub fn planned(&self) -> impl Iterator<Item = (&str, &Arc<str>, &JsonText)> {
        self.by_name.iter().filter_map(|(name, recorded)| {
            if let RecordedOperation::PlannedEvent { event, payload } = recorded {
                Some((&**name, event, payload))
            } else {
                None
            }
        })
    }

    /// The calls started by emitted events, in the order of their names.
    pub fn triggered(&self) -> impl Iterator<Item = &Triggered> {
        let events = self.by_name.values().filter_map(|recorded| {
            if let RecordedOperation::Event { triggered, .. } = recorded { Some(triggered) } else { None }
        });
        events.flat_map(|triggered| triggered.iter())
    }

    /// Whether this task was started under this name; another one is a mismatch.
    pub fn has_spawned(&self, name: &str, now: &str) -> Result<bool, Mismatch> {
        self.has_told(name, Kind::Spawned, now)
    }

    /// Whether a task was started that ends with the call.
    pub fn has_attached_task(&self) -> bool {
        self.has_attached_task
    }

    /// The names of the tasks that end with the call.
    pub fn attached_tasks(&self) -> impl Iterator<Item = &str> {
        self.told_as(Kind::Spawned).filter(|(_, asked)| is_attached(asked)).map(|(name, _)| name)
    }

    /// Whether this child session was opened under this name; another one is a mismatch.
    pub fn has_opened(&self, name: &str, now: &str) -> Result<bool, Mismatch> {
        self.has_told(name, Kind::Child, now)
    }

    /// Whether a child session was opened.
    pub fn has_child(&self) -> bool {
        self.has_child
    }

    /// The child sessions that were opened, by the names of the operations.
    pub fn children(&self) -> impl Iterator<Item = (&str, &JsonText)> {
        self.told_as(Kind::Child)
    }

    /// Whether this message was sent under this name; another one is a mismatch.
    pub fn has_said(&self, name: &str, now: &str) -> Result<bool, Mismatch> {
        self.has_told(name, Kind::Said, now)
    }

    /// The sent messages, by name.
    pub fn said(&self) -> impl Iterator<Item = (&str, &JsonText)> {
        self.told_as(Kind::Said)
    }

    fn told_as(&self, wanted: Kind) -> impl Iterator<Item = (&str, &JsonText)> {
        let told = self.by_name.iter().filter_map(|(name, recorded)| {
            if let RecordedOperation::Told { kind, what } = recorded {
                Some((*kind, &**name, what))
            } else {
                None
            }
        });
        told.filter(move |(kind, ..)| *kind == wanted).map(|(_, name, what)| (name, what))
    }

    fn has_told(&self, name: &str, wanted: Kind, now: &str) -> Result<bool, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(false),
            Some(RecordedOperation::Told { kind, what }) if *kind == wanted && **what == *now => Ok(true),
            Some(RecordedOperation::Told { kind, what }) if *kind == wanted => Err(other_input(what, now)),
            Some(other) => Err(other.other()),
        }
    }
}

/// Whether the request to start a task says that the task ends with its call.
pub(super) fn is_attached(asked: &str) -> bool {
    let asked: serde_json::Value = serde_json::from_str(asked).unwrap_or_default();
    asked["attached"] == true
}

fn same_event(recorded: (&str, &str), given: (&str, &str)) -> Result<(), Mismatch> {
    if recorded == given {
        return Ok(());
    }
    let told = |(kind, payload): (&str, &str)| {
        format!("{{\"kind\":{},\"payload\":{payload}}}", serde_json::Value::from(kind))
    };
    Err(other_input(&told(recorded), &told(given)))
}
