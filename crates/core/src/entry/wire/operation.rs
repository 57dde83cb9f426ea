//! Stored form of a tool's named operations, and of attempts that were put aside.

use super::attempt::{ParkedFields, read_parked};
use super::outcome::{ExtraFields, FailureFields, KeptFields};
use super::{FieldProblem, encode, known, text, wrong};
use crate::call::{Kind, Resumed, Suspended, Then};
use crate::ids::{AttemptNo, CallId};
use crate::operation::{
    Completion, Did, EventNumber, Handover, Operation, Question, StepResult, Triggered, Until,
};
use crate::time::Timestamp;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// One shape for all operations; a step's or an external value, or a question, follows the fields.
#[derive(Default, Encode, Decode)]
#[cbor(map)]
struct OperationFields<'a> {
    #[b(0)]
    name: &'a str,
    #[b(1)]
    input: Option<&'a str>,
    #[n(2)]
    failure: Option<FailureFields>,
    #[n(3)]
    wake_at: Option<i64>,
    #[n(4)]
    length_us: Option<u64>,
    #[b(5)]
    code: Option<&'a str>,
    #[b(6)]
    message: Option<&'a str>,
    #[n(7)]
    cancelled: Option<bool>,
    #[b(8)]
    schema: Option<&'a str>,
    #[n(9)]
    generation: Option<u32>,
    /// Whether a pair was not written; absent: it was.
    #[n(10)]
    refused: Option<bool>,
    /// The kind of an event.
    #[b(11)]
    event: Option<&'a str>,
    /// The artifact that was attached.
    #[n(12)]
    kept: Option<KeptFields>,
    /// The calls that an event started; absent: none.
    #[b(13)]
    triggered: Option<Vec<TriggeredFields<'a>>>,
    /// The number of an event in its session; absent: it has none.
    #[n(14)]
    number: Option<u64>,
    /// Whether an event was emitted before, under its key; absent: it was not.
    #[n(15)]
    again: Option<bool>,
    /// Parts and raw output of an answer; absent: it has none.
    #[n(18)]
    extras: Option<ExtraFields>,
    /// Whether the answer says that it took too long; absent: not.
    #[n(19)]
    timed_out: Option<bool>,
    /// The toolbox that has the attempt.
    #[b(20)]
    toolbox: Option<&'a str>,
    /// The attempt that it has.
    #[n(21)]
    attempt: Option<u32>,
    /// The hash of its token.
    #[b(22)]
    token: Option<&'a str>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct TriggeredFields<'a> {
    #[b(0)]
    trigger: &'a str,
    /// The call as one number.
    #[n(1)]
    call: u64,
}

pub(super) fn write(operation: &Operation, bytes: &mut Vec<u8>) {
    let named = OperationFields { name: &operation.name, ..OperationFields::default() };
    let until = |until: &Until| (Some(until.wake_at.0), Some(until.length_us));
    let fields = match &operation.did {
        Did::StepStarted { input } => OperationFields { input: Some(input), ..named },
        Did::StepEnded { input, result } => {
            let failure = match result {
                StepResult::Ok(_) => None,
                StepResult::Failed(failure) => Some((&**failure).into()),
            };
            OperationFields { input: Some(input), failure, ..named }
        }
        Did::PairsRead { asked, .. } => OperationFields { input: Some(asked), ..named },
        Did::PairWritten { asked, written } => {
            OperationFields { input: Some(asked), refused: (!written).then_some(true), ..named }
        }
        Did::Attached { content, kept } => {
            OperationFields { input: Some(content), kept: Some((*kept).into()), ..named }
        }
        Did::Emitted { event, triggered, numbered, .. } => {
            let started = triggered.iter();
            let started =
                started.map(|one| TriggeredFields { trigger: &one.trigger, call: one.call.packed() });
            let triggered = (!triggered.is_empty()).then(|| started.collect());
            let number = (numbered.number > 0).then_some(numbered.number);
            let again = numbered.is_again.then_some(true);
            OperationFields { event: Some(event), triggered, number, again, ..named }
        }
        Did::EventPlanned { event, .. } => OperationFields { event: Some(event), ..named },
        Did::Awaited { until: began, .. } => {
            let (wake_at, length_us) = until(began);
            OperationFields { wake_at, length_us, ..named }
        }
        Did::SleepBegan(began) | Did::WaitBegan(began) | Did::SignalAwaited(began) => {
            let (wake_at, length_us) = until(began);
            OperationFields { wake_at, length_us, ..named }
        }
        Did::Completed(Completion::Error { code, message, extras }) => {
            let extras = extras.as_deref().map(ExtraFields::from);
            OperationFields { code: Some(code), message: Some(message), extras, ..named }
        }
        Did::Completed(Completion::Ok { extras, .. }) => {
            OperationFields { extras: extras.as_deref().map(ExtraFields::from), ..named }
        }
        Did::Completed(Completion::TimedOut) => OperationFields { timed_out: Some(true), ..named },
        Did::Called { generation } => OperationFields { generation: Some(*generation), ..named },
        Did::Asked(question) => {
            let (wake_at, length_us) = until(&question.until);
            OperationFields { wake_at, length_us, schema: question.schema.as_deref(), ..named }
        }
        Did::Completed(Completion::Cancelled) => OperationFields { cancelled: Some(true), ..named },
        Did::Handed(Handover { attempt, toolbox, token }) => {
            OperationFields { toolbox: Some(toolbox), attempt: Some(attempt.0), token: Some(token), ..named }
        }
        Did::SleepEnded | Did::KeyTaken | Did::TimedOut => named,
        Did::Signalled { .. } | Did::Spawned { .. } | Did::ChildOpened { .. } | Did::Said { .. } => named,
    };
    encode(&fields, bytes);
}

pub(super) fn payload(operation: &Operation) -> &[u8] {
    match &operation.did {
        Did::StepEnded { result: StepResult::Ok(value), .. }
        | Did::Completed(Completion::Ok { value, .. }) => value.as_bytes(),
        Did::Asked(question) => question.text.as_bytes(),
        Did::PairsRead { found, .. } => found.as_bytes(),
        Did::Emitted { payload, .. } | Did::Signalled { payload } => payload.as_bytes(),
        Did::EventPlanned { payload, .. } | Did::Awaited { what: payload, .. } => payload.as_bytes(),
        Did::Spawned { asked: told } | Did::ChildOpened { asked: told } | Did::Said { message: told } => {
            told.as_bytes()
        }
        Did::PairWritten { .. } | Did::SignalAwaited(_) | Did::Attached { .. } | Did::Handed(_) => &[],
        Did::StepStarted { .. }
        | Did::StepEnded { .. }
        | Did::SleepBegan(_)
        | Did::SleepEnded
        | Did::KeyTaken
        | Did::WaitBegan(_)
        | Did::Completed(_)
        | Did::Called { .. }
        | Did::TimedOut => &[],
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "every other kind is no operation")]
pub(super) fn read(kind: Kind, fields: &[u8], payload: &[u8]) -> Result<Operation, FieldProblem> {
    let fields: OperationFields<'_> = minicbor::decode(fields)?;
    let given = fields.input;
    let input = || given.map(Arc::from).ok_or_else(|| wrong("what was done has no input"));
    let until = || match (fields.wake_at, fields.length_us) {
        (Some(wake_at), Some(length_us)) => Ok(Until { wake_at: Timestamp(wake_at), length_us }),
        _ => Err(wrong("a wait has no end")),
    };
    let name = fields.name.into();
    let did = match kind {
        Kind::StepStarted => Did::StepStarted { input: input()? },
        Kind::StepEnded => {
            let input = input()?;
            let result = match fields.failure {
                Some(failure) => StepResult::Failed(Box::new(failure.read()?)),
                None => StepResult::Ok(text(payload)?),
            };
            Did::StepEnded { input, result }
        }
        Kind::SleepBegan => Did::SleepBegan(until()?),
        Kind::SleepEnded => Did::SleepEnded,
        Kind::KeyTaken => Did::KeyTaken,
        Kind::WaitBegan => Did::WaitBegan(until()?),
        Kind::Completed => Did::Completed(completion(fields, payload)?),
        Kind::TimedOut => Did::TimedOut,
        Kind::Called => Did::Called {
            generation: fields.generation.ok_or_else(|| wrong("a nested call has no generation"))?,
        },
        Kind::PairsRead => Did::PairsRead { asked: input()?, found: text(payload)? },
        Kind::PairWritten => Did::PairWritten { asked: input()?, written: fields.refused != Some(true) },
        Kind::Emitted => {
            let event = fields.event.map(Arc::from).ok_or_else(|| wrong("an event has no kind"))?;
            let triggered = fields
                .triggered
                .unwrap_or_default()
                .into_iter()
                .map(|one| Triggered { trigger: one.trigger.into(), call: CallId::unpacked(one.call) });
            let numbered = EventNumber {
                number: fields.number.unwrap_or_default(),
                is_again: fields.again.unwrap_or_default(),
            };
            Did::Emitted { event, payload: text(payload)?, triggered: triggered.collect(), numbered }
        }
        Kind::EventPlanned => {
            let event = fields.event.map(Arc::from).ok_or_else(|| wrong("an event has no kind"))?;
            Did::EventPlanned { event, payload: text(payload)? }
        }
        Kind::Awaited => Did::Awaited { what: text(payload)?, until: until()? },
        Kind::Attached => {
            let kept = fields.kept.ok_or_else(|| wrong("what was attached is nowhere"))?;
            Did::Attached { content: input()?, kept: kept.read()? }
        }
        Kind::Spawned => Did::Spawned { asked: text(payload)? },
        Kind::ChildOpened => Did::ChildOpened { asked: text(payload)? },
        Kind::Said => Did::Said { message: text(payload)? },
        Kind::Handed => match (fields.attempt, fields.toolbox, fields.token) {
            (Some(attempt), Some(toolbox), Some(token)) => {
                let (attempt, toolbox) = (AttemptNo(attempt), toolbox.into());
                Did::Handed(Handover { attempt, toolbox, token: token.into() })
            }
            _ => return Err(wrong("a handover lacks its attempt, its toolbox or its token")),
        },
        Kind::SignalAwaited => Did::SignalAwaited(until()?),
        Kind::Signalled => Did::Signalled { payload: text(payload)? },
        Kind::Asked => {
            let (text, schema) = (text(payload)?, fields.schema.map(Arc::from));
            Did::Asked(Arc::new(Question { text, schema, until: until()? }))
        }
        _ => return Err(FieldProblem::Kind),
    };
    Ok(Operation { name, did })
}

/// The answer to a wait.
fn completion(fields: OperationFields<'_>, payload: &[u8]) -> Result<Completion, FieldProblem> {
    let extras = fields.extras.map(|extras| extras.read().map(Box::new)).transpose()?;
    Ok(match (fields.code, fields.message, fields.cancelled) {
        (_, _, Some(true)) => Completion::Cancelled,
        _ if fields.timed_out == Some(true) => Completion::TimedOut,
        (Some(code), Some(message), _) => {
            Completion::Error { code: code.to_string(), message: message.to_string(), extras }
        }
        _ => Completion::Ok { value: text(payload)?, extras },
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct SuspendedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    parked: ParkedFields,
    #[n(3)]
    waits: Vec<String>,
    #[n(4)]
    then: String,
}

impl From<&Suspended> for SuspendedFields {
    fn from(suspended: &Suspended) -> SuspendedFields {
        SuspendedFields {
            attempt: suspended.attempt.0,
            ran_us: suspended.ran_us,
            parked: (&suspended.parked).into(),
            waits: suspended.waits.iter().map(|name| name.to_string()).collect(),
            then: suspended.then.to_string(),
        }
    }
}

pub(super) fn read_suspended(fields: SuspendedFields) -> Result<Suspended, FieldProblem> {
    Ok(Suspended {
        attempt: AttemptNo(fields.attempt),
        ran_us: fields.ran_us,
        parked: read_parked(&fields.parked)?,
        waits: fields.waits.into_iter().map(Arc::from).collect(),
        then: known(Then::parse(&fields.then), &fields.then)?,
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ResumedFields {
    #[n(0)]
    attempt: u32,
}

impl From<&Resumed> for ResumedFields {
    fn from(resumed: &Resumed) -> ResumedFields {
        ResumedFields { attempt: resumed.attempt.0 }
    }
}

pub(super) fn read_resumed(fields: &ResumedFields) -> Resumed {
    Resumed { attempt: AttemptNo(fields.attempt) }
}
