//! The entries of a batch itself.

use super::{FieldProblem, encode, known, wrong};
use crate::batch::{ClockMove, ClosedBy, Opening, Parent, ProvisionalAnswer};
use crate::call::Wake;
use crate::entry::EntryEvent;
use crate::ids::{CallId, Ordinal};
use crate::siblings::Siblings;
use minicbor::{Decode, Encode};
use std::sync::Arc;

pub(in crate::entry) const BATCH_OPENED: u8 = 1;
pub(in crate::entry) const BATCH_CLOSED: u8 = 20;
pub(in crate::entry) const BATCH_ANSWERED: u8 = 21;
pub(in crate::entry) const BATCH_CLOCK_MOVED: u8 = 22;

#[derive(Encode, Decode)]
#[cbor(map)]
struct BatchFields<'a> {
    #[b(0)]
    key: &'a str,
    #[b(1)]
    turn: Option<&'a str>,
    #[b(2)]
    inputs: Option<&'a str>,
    /// Absent: independent.
    #[b(20)]
    siblings: Option<&'a str>,
    #[n(21)]
    quorum: Option<u32>,
    #[n(22)]
    streamed: Option<bool>,
    /// The call that makes it, as one number; and its depth.
    #[n(23)]
    parent: Option<u64>,
    #[n(24)]
    depth: Option<u32>,
    /// Absent: on end.
    #[b(25)]
    wake: Option<&'a str>,
    #[b(28)]
    traceparent: Option<&'a str>,
    #[b(29)]
    trace_link: Option<&'a str>,
    #[n(30)]
    task_deadlines: Option<bool>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ClosedFields<'a> {
    #[b(0)]
    by: &'a str,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct AnsweredFields {
    /// Ordinals.
    #[n(0)]
    calls: Vec<u16>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ClockMovedFields {
    #[n(0)]
    by_us: i64,
}

/// Appends the fields of a batch's own entry.
pub(in crate::entry) fn write_batch(opening: &Opening, bytes: &mut Vec<u8>) {
    let Opening { key, turn, inputs, siblings, streamed, parent, wake, .. } = opening;
    let Opening { traceparent, trace_link, task_deadlines, .. } = opening;
    let (siblings, quorum) = match siblings {
        Siblings::Independent => (None, None),
        Siblings::FailFast => (Some("fail_fast"), None),
        Siblings::Race => (Some("race"), None),
        Siblings::Quorum(n) => (Some("quorum"), Some(*n)),
    };
    let (turn, inputs) = (turn.as_deref(), inputs.as_deref());
    let streamed = streamed.then_some(true);
    let (parent, depth) = parent.map(|Parent { call, depth }| (call.packed(), depth)).unzip();
    let wake = (*wake != Wake::OnEnd).then_some(wake.as_str());
    let fields = BatchFields {
        key,
        turn,
        inputs,
        siblings,
        quorum,
        streamed,
        parent,
        depth,
        wake,
        traceparent: traceparent.as_deref(),
        trace_link: trace_link.as_deref(),
        task_deadlines: task_deadlines.then_some(true),
    };
    encode(&fields, bytes);
}

/// Appends the fields of a move of the wall clock.
pub(in crate::entry) fn write_clock_moved(ClockMove { by_us }: ClockMove, bytes: &mut Vec<u8>) {
    encode(&ClockMovedFields { by_us }, bytes);
}

/// Appends the fields of a provisional answer.
pub(in crate::entry) fn write_answered(answer: &ProvisionalAnswer, bytes: &mut Vec<u8>) {
    let calls = answer.calls.iter().map(|ordinal| ordinal.0).collect();
    encode(&AnsweredFields { calls }, bytes);
}

/// Appends the fields of a batch's close.
pub(in crate::entry) fn write_closed(by: ClosedBy, bytes: &mut Vec<u8>) {
    encode(&ClosedFields { by: by.as_str() }, bytes);
}

pub(in crate::entry) fn read_batch(kind: u8, fields: &[u8]) -> Result<EntryEvent, FieldProblem> {
    match kind {
        BATCH_OPENED => read_opening(minicbor::decode(fields)?).map(EntryEvent::Batch),
        BATCH_CLOSED => {
            let ClosedFields { by } = minicbor::decode(fields)?;
            known(ClosedBy::parse(by), by).map(EntryEvent::Closed)
        }
        BATCH_ANSWERED => {
            let AnsweredFields { calls } = minicbor::decode(fields)?;
            let calls = calls.into_iter().map(Ordinal).collect();
            Ok(EntryEvent::Answered(ProvisionalAnswer { calls }))
        }
        BATCH_CLOCK_MOVED => {
            let ClockMovedFields { by_us } = minicbor::decode(fields)?;
            Ok(EntryEvent::ClockMoved(ClockMove { by_us }))
        }
        _ => Err(FieldProblem::Kind),
    }
}

fn read_opening(fields: BatchFields<'_>) -> Result<Opening, FieldProblem> {
    let (turn, inputs) = (fields.turn.map(str::to_string), fields.inputs.map(Arc::from));
    let siblings = match (fields.siblings, fields.quorum) {
        (None, _) => Siblings::Independent,
        (Some("fail_fast"), _) => Siblings::FailFast,
        (Some("race"), _) => Siblings::Race,
        (Some("quorum"), Some(n)) => Siblings::Quorum(n),
        (Some(other), _) => {
            return Err(wrong(&format!("{other:?} is nothing that can be asked of siblings")));
        }
    };
    let streamed = fields.streamed.unwrap_or(false);
    let parent = match (fields.parent, fields.depth) {
        (Some(call), Some(depth)) => Some(Parent { call: CallId::unpacked(call), depth }),
        (None, None) => None,
        _ => return Err(wrong("a batch inside a call has that call and a depth, or neither")),
    };
    let wake = fields.wake.map_or(Ok(Wake::OnEnd), |wake| known(Wake::parse(wake), wake))?;
    Ok(Opening {
        key: fields.key.into(),
        turn,
        inputs,
        siblings,
        streamed,
        parent,
        wake,
        traceparent: fields.traceparent.map(Arc::from),
        trace_link: fields.trace_link.map(Arc::from),
        task_deadlines: fields.task_deadlines.unwrap_or(false),
    })
}
