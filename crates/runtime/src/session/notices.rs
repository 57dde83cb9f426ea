//! Records written in the change they are about: that a call is a task, and notices for its session.

use crate::api::progress::Progress;
use crate::session::inner::Inner;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::call::Call;
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_store::{Row, Space};

/// The kind of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NoticeKind {
    /// A task has ended.
    TaskEnded,
    /// A call has ended whose caller was answered before.
    CallEnded,
    /// A task has sent a message.
    TaskMessage,
    /// A task asks a person a question.
    TaskAsks,
    /// A task waits for an external answer, or for a connection.
    TaskWaits,
    /// An event of a kind that wakes the agent.
    Event,
    /// A notice that the host or a tool posted.
    Posted,
}

/// How a notice wants to reach the agent: for hosts and wires, which act on it. The inbox treats all alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Urgency {
    /// At once, even if the agent is at work.
    Interrupt,
    /// As soon as the agent has nothing else to do.
    #[default]
    WhenIdle,
    /// When the agent looks by itself.
    Silent,
}

/// A stored notice. Its content is in the journal of its call.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeptNotice {
    pub(crate) kind: NoticeKind,
    /// The call, as one number; `None`: it is about no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<u64>,
    /// Title and text, where they are not in a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own: Option<NoticeWords>,
    #[serde(default, skip_serializing_if = "is_usual")]
    pub(crate) urgency: Urgency,
    /// Its priority, if it is about no call.
    #[serde(default, skip_serializing_if = "is_middle")]
    pub(crate) priority: i8,
    /// The name of the operation it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) created_us: i64,
    /// The calls of older notices that this one replaces, as numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) folded: Vec<u64>,
    /// The end of its lease, in microseconds by the wall clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) leased_us: Option<i64>,
    /// The length of the lease, and when it was taken by a clock that never jumps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<NoticeLease>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) deliveries: u32,
}

/// The lease of a notice.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct NoticeLease {
    pub(crate) length_us: u64,
    /// The process that lent it, and its own clock then.
    pub(crate) life: u64,
    pub(crate) at_us: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_usual(urgency: &Urgency) -> bool {
    *urgency == Urgency::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_middle(priority: &i8) -> bool {
    *priority == 0
}

/// The title and the text of a notice.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct NoticeWords {
    pub(crate) title: String,
    pub(crate) text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl KeptNotice {
    pub(crate) fn new(kind: NoticeKind, call: CallId, at: Timestamp) -> KeptNotice {
        KeptNotice {
            kind,
            call: Some(call.packed()),
            own: None,
            urgency: Urgency::default(),
            priority: 0,
            name: None,
            created_us: at.0,
            folded: Vec::new(),
            leased_us: None,
            lease: None,
            deliveries: 0,
        }
    }

    /// A notice that is about no call.
    pub(crate) fn posted(words: NoticeWords, urgency: Urgency, priority: i8, at: Timestamp) -> KeptNotice {
        let nobody = CallId::unpacked(0);
        let (call, own) = (None, Some(words));
        KeptNotice { call, own, urgency, priority, ..KeptNotice::new(NoticeKind::Posted, nobody, at) }
    }

    /// The number of calls it is about.
    pub(crate) fn calls(&self) -> u64 {
        self.folded.len().max(1) as u64
    }

    /// Whether it is leased. The process that lent it uses the clock that never jumps; a later owner waits
    /// until the recorded time, and never longer than the lease.
    pub(crate) fn is_leased(&self, rt: Option<&Inner>, now: Timestamp) -> bool {
        let Some(until) = self.leased_us else { return false };
        match (self.lease, rt) {
            (Some(lease), Some(rt)) if lease.life == rt.life => {
                rt.clock.elapsed_us().saturating_sub(lease.at_us) < lease.length_us
            }
            (Some(NoticeLease { length_us, .. }), Some(rt)) => {
                let taken_at = Timestamp(until.saturating_sub_unsigned(length_us));
                now.0 < until && rt.wheel.age_us(taken_at) < length_us
            }
            (_, _) => now.0 < until,
        }
    }

    pub(crate) fn row(&self, key: &str) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Notice, key: key.to_string(), value }
    }
}

/// The notice of the end of a task, or of a call whose caller was answered before; written with that end.
pub(crate) fn ended(id: CallId, call: &Call, at: Timestamp) -> Row {
    let kind = if call.task.is_some() { NoticeKind::TaskEnded } else { NoticeKind::CallEnded };
    // A call ends once, so no other notice has this key.
    KeptNotice::new(kind, id, at).row(&key(id, call.opened.priority, at, "end"))
}

/// The notice of a task's named operation; written with it.
pub(crate) fn task_does(id: CallId, priority: i8, kind: NoticeKind, name: &str, at: Timestamp) -> Row {
    let kept = KeptNotice { name: Some(name.to_string()), ..KeptNotice::new(kind, id, at) };
    // A name is used once in a call. It can be long.
    let name = &blake3::hash(name.as_bytes()).to_hex()[..16];
    kept.row(&key(id, priority, at, name))
}

/// The notice of an event that wakes the agent; written with it.
pub(crate) fn of_event(call: Option<CallId>, event: &str, number: u64, text: String, at: Timestamp) -> Row {
    let words = NoticeWords { title: event.to_string(), text };
    let place = call.unwrap_or(CallId::unpacked(0));
    let kept = KeptNotice {
        call: call.map(CallId::packed),
        own: Some(words),
        ..KeptNotice::new(NoticeKind::Event, place, at)
    };
    kept.row(&key(place, 0, at, &format!("event{number}")))
}

/// The key: in the order of delivery.
pub(crate) fn key(id: CallId, priority: i8, at: Timestamp, what: &str) -> String {
    let rank = 127 - i16::from(priority);
    format!("{rank:03}-{:016x}-{:012x}-{what}", at.0, id.packed())
}

/// The last progress and status of a task, in the row that lists it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TaskWords {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// When the task last showed that it is alive.
    #[serde(default)]
    pub(crate) at_us: i64,
}

impl TaskWords {
    /// The row of a task that has said something.
    pub(crate) fn row(&self, call: CallId) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Task, key: task_key(call), value }
    }

    /// Reads the value of a row; that of a task that has said nothing is empty.
    pub(crate) fn read(value: &[u8]) -> TaskWords {
        serde_json::from_slice(value).unwrap_or_default()
    }
}

/// The row that lists a task in its session; written with the change that makes it one.
pub(crate) fn task_row(call: CallId) -> Row {
    Row::Put { space: Space::Task, key: task_key(call), value: Arc::default() }
}

/// Removes that row: the call is no task after all.
pub(crate) fn no_task_row(call: CallId) -> Row {
    Row::Remove { space: Space::Task, key: task_key(call) }
}

/// The key: newest first.
pub(crate) fn task_key(call: CallId) -> String {
    format!("{:016x}", u64::MAX - call.packed())
}

pub(crate) fn call_of(key: &str) -> Option<CallId> {
    u64::from_str_radix(key, 16).ok().map(|number| CallId::unpacked(u64::MAX - number))
}

/// The row by which a call that ended as unknown is found by people.
pub(crate) fn unknown_row(call: CallId) -> Row {
    Row::Put { space: Space::Unknown, key: unknown_key(call), value: Arc::from([]) }
}

/// The row that removes it, once it is known how the call ended.
pub(crate) fn known_row(call: CallId) -> Row {
    Row::Remove { space: Space::Unknown, key: unknown_key(call) }
}

fn unknown_key(call: CallId) -> String {
    format!("{:016x}", call.packed())
}

/// The call of such a row.
pub(crate) fn unknown_call(key: &str) -> Option<CallId> {
    u64::from_str_radix(key, 16).ok().map(CallId::unpacked)
}
