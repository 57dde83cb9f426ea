//! Outgoing operations of a tool: events, messages to its session, tasks that it started, sessions that it
//! opened; and their replay.

use super::mismatch::{Mismatch, other_input};
use super::{Kind, Operations, RecordedOperation};
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
    /// Whether this event was emitted under this name; another one is a mismatch.
    pub fn has_emitted(&self, name: &str, kind: &str, now: &str) -> Result<bool, Mismatch> {
        match self.by_name.get(name) {
            None => Ok(false),
            Some(RecordedOperation::Event { event, payload, .. })
                if **event == *kind && **payload == *now =>
            {
                Ok(true)
            }
            Some(RecordedOperation::Event { event, payload, .. }) => {
                let told = |kind: &str, payload: &str| {
                    format!("{{\"kind\":{},\"payload\":{payload}}}", serde_json::Value::from(kind))
                };
                Err(other_input(&told(event, payload), &told(kind, now)))
            }
            Some(other) => Err(other.other()),
        }
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
