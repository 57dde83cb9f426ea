//! The fields of each kind of entry. Keys and numbers here are released: add, never change.

mod attempt;
mod batch;
mod fields;
mod operation;
mod outcome;
mod permission;

pub(super) use batch::{
    BATCH_ANSWERED, BATCH_CLOCK_MOVED, BATCH_CLOSED, BATCH_OPENED, read_batch, write_answered, write_batch,
    write_clock_moved, write_closed,
};
pub(crate) use outcome::ExtraFields;

use crate::call::{
    Ended, Fact, Kind, LostAttempt, Model, Opened, PreparedCall, Result as Attempted, Returned, Same, SameAs,
    SetAside, Spent, Started,
};
use crate::grant::GrantId;
use crate::ids::{AttemptNo, BatchNo, CallId, Mark, Ordinal};
use crate::outcome::{ModelAnswer, Success, Value};
use crate::tool::{Digest, EffectClass, Origin};
use attempt::{BudgetFields, DeadlineFields, DetachedFields, MadeFields, RuleFields};
use fields::Fields;
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Encode};
use outcome::{
    FailureFields, KeptFields, OutcomeFields, PartFields, SideFields, read_parts, read_side, write_parts,
    write_side,
};
use std::num::NonZeroU64;
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};

pub(super) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Opened => 2,
        Kind::Prepared => 3,
        Kind::Started => 4,
        Kind::Lost => 5,
        Kind::Returned => 6,
        Kind::Ended => 7,
        Kind::Stopped => 8,
        Kind::Reconciled => 9,
        Kind::Parked => 10,
        Kind::CancelAsked => 11,
        Kind::Accepted => 12,
        Kind::Resolved => 13,
        Kind::SameAs => 14,
        Kind::First => 15,
        Kind::SetAside => 16,
        Kind::Aborted => 17,
        Kind::StepStarted => 30,
        Kind::StepEnded => 31,
        Kind::SleepBegan => 32,
        Kind::SleepEnded => 33,
        Kind::KeyTaken => 34,
        Kind::WaitBegan => 35,
        Kind::Completed => 36,
        Kind::TimedOut => 37,
        Kind::Called => 38,
        Kind::Suspended => 40,
        Kind::Resumed => 41,
        Kind::Asked => 42,
        Kind::Unconnected => 43,
        Kind::Connected => 44,
        Kind::PairsRead => 50,
        Kind::PairWritten => 51,
        Kind::Emitted => 52,
        Kind::SignalAwaited => 53,
        Kind::Signalled => 54,
        Kind::Attached => 55,
        Kind::Spawned => 56,
        Kind::Said => 57,
        Kind::ChildOpened => 58,
        Kind::Awaited => 59,
        Kind::EventPlanned => 60,
        Kind::Handed => 61,
        Kind::Detached => 65,
        Kind::StartRefused => 69,
        Kind::CopyFound => 70,
        Kind::Judged => 80,
        Kind::ApprovalAsked => 81,
        Kind::ApprovalAnswered => 82,
        Kind::Withheld => 83,
    }
}

/// Why fields cannot be read.
pub(crate) enum FieldProblem {
    /// The kind is not known.
    Kind,
    /// They are damaged.
    Fields(String),
}

impl From<minicbor::decode::Error> for FieldProblem {
    fn from(error: minicbor::decode::Error) -> FieldProblem {
        FieldProblem::Fields(error.to_string())
    }
}

#[derive(Decode)]
#[cbor(map)]
struct OpenedFields<'a> {
    #[b(0)]
    id: &'a str,
    #[b(1)]
    tool: &'a str,
    #[b(2)]
    given: &'a str,
    #[b(3)]
    provider: Option<&'a str>,
    #[n(4)]
    deadlines: Option<DeadlineFields>,
    /// Absent means 0.
    #[n(5)]
    priority: Option<i8>,
    #[n(6)]
    inline_ms: Option<u64>,
    #[n(7)]
    task: Option<DetachedFields>,
    #[n(8)]
    answer: Option<BudgetFields>,
    #[cbor(b(9), with = "minicbor::bytes")]
    grant: Option<&'a [u8]>,
}

#[derive(Decode)]
#[cbor(map)]
struct PreparedFields<'a> {
    #[cbor(b(0), with = "minicbor::bytes")]
    contract: &'a [u8],
    #[b(1)]
    class: &'a str,
    #[n(2)]
    rules: Option<RuleFields>,
    #[n(3)]
    reconciles: Option<bool>,
    #[n(4)]
    made: Option<MadeFields>,
    #[n(5)]
    same: Option<SameFields>,
    #[n(6)]
    answer: Option<BudgetFields>,
    /// Absent means 0.
    #[n(7)]
    origin: Option<u8>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SameFields {
    #[cbor(n(0), with = "minicbor::bytes")]
    mark: [u8; 16],
    #[n(1)]
    for_ms: Option<u64>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SameAsFields {
    #[n(0)]
    batch: u64,
    #[n(1)]
    ordinal: u16,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct NoFields {}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SetAsideFields<'a> {
    #[b(0)]
    why: &'a str,
}

#[derive(Decode)]
#[cbor(map)]
struct StartedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    redrive: bool,
    // Key 2 was a jump of the wall clock before the attempt: an entry of its batch records it now.
    /// The version of the policy; absent if there is none.
    #[n(3)]
    policy: Option<NonZeroU64>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct LostFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    innocent: Option<bool>,
}

#[derive(Decode)]
#[cbor(map)]
struct ReturnedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    failure: Option<FailureFields>,
    #[n(3)]
    kept: Option<KeptFields>,
    #[n(4)]
    parts: Option<Vec<PartFields>>,
    #[n(5)]
    side: Option<SideFields>,
}

#[derive(Decode)]
#[cbor(map)]
struct EndedFields {
    #[n(0)]
    outcome: Option<OutcomeFields>,
    /// 0: the value's text, 1: the string it is, 2: its own.
    #[n(1)]
    model: u8,
    #[n(2)]
    model_parts: Option<Vec<PartFields>>,
    #[n(3)]
    is_error: Option<bool>,
    #[n(4)]
    queued_us: u64,
    #[n(5)]
    waited_us: u64,
    #[n(6)]
    ran_us: u64,
}

/// Appends the fields of a call's first entry: [`OpenedFields`].
pub(super) fn write_opened(opened: &Opened, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).text(0, &opened.id).text(1, &opened.tool);
    let fields = fields.text(2, opened.args.given.as_str()).maybe(3, opened.provider.as_deref());
    let fields = fields.maybe(4, opened.deadlines.as_deref().map(DeadlineFields::from));
    fields
        .maybe(5, (opened.priority != 0).then_some(opened.priority))
        .maybe(6, opened.inline_ms)
        .maybe(7, opened.task.as_deref().map(DetachedFields::from))
        .maybe(8, opened.answer.as_deref().map(BudgetFields::from))
        .maybe(9, opened.grant.as_deref().map(|grant| <&ByteSlice>::from(&grant.0[..])))
        .end();
}

/// Appends the fields of a preparation: [`PreparedFields`].
fn write_prepared(prepared: &PreparedCall, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).bytes(0, &prepared.contract.0).text(1, prepared.class.as_str());
    let fields = fields.maybe(2, prepared.rules.as_deref().map(RuleFields::from));
    let fields = fields.maybe(3, prepared.reconciles.then_some(true));
    let fields = fields.maybe(4, prepared.made.as_deref().map(MadeFields::from));
    let same = prepared.same.as_deref().map(|same| SameFields { mark: same.mark.0, for_ms: same.for_ms });
    let fields = fields.maybe(5, same).maybe(6, prepared.answer.as_deref().map(BudgetFields::from));
    fields.maybe(7, (prepared.origin.0 != 0).then_some(prepared.origin.0)).end();
}

/// Appends the fields of a start: [`StartedFields`].
fn write_started(started: &Started, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).number(0, u64::from(started.attempt.0));
    let fields = fields.truth(1, started.redrive);
    match started.policy {
        Some(policy) => fields.number(3, policy.get()),
        None => fields,
    }
    .end();
}

/// Appends the fields of a result: [`ReturnedFields`].
fn write_returned(returned: &Returned, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).number(0, u64::from(returned.attempt.0)).number(1, returned.ran_us);
    match &returned.result {
        Attempted::Failed(failure) => fields.maybe(2, Some(FailureFields::from(&**failure))),
        // Most results are a value alone.
        Attempted::Ok(Success { value: Value::Inline(_), parts, side: None }) if parts.is_empty() => fields,
        Attempted::Ok(Success { value, parts, side }) => fields
            .maybe(3, Option::<KeptFields>::from(value))
            .maybe(4, write_parts(parts))
            .maybe(5, write_side(side.as_deref())),
    }
    .end();
}

/// Appends the fields of an end: [`EndedFields`].
fn write_ended(ended: &Ended, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).maybe(0, ended.outcome.as_ref().map(OutcomeFields::from));
    let fields = match &ended.model {
        Model::ValueText => fields.number(1, 0),
        Model::ValueString => fields.number(1, 1),
        Model::Own(answer) => {
            fields.number(1, 2).maybe(2, write_parts(&answer.parts)).truth(3, answer.is_error)
        }
    };
    let Spent { queued_us, waited_us, ran_us } = ended.spent;
    fields.number(4, queued_us).number(5, waited_us).number(6, ran_us).end();
}

/// Appends the fields of a fact.
pub(super) fn write_fact(fact: &Fact, bytes: &mut Vec<u8>) {
    match fact {
        Fact::Opened(opened) => write_opened(opened, bytes),
        Fact::Prepared(prepared) => write_prepared(prepared, bytes),
        Fact::Started(started) => write_started(started, bytes),
        Fact::Lost(lost) => {
            let innocent = (!lost.blamed).then_some(true);
            encode(&LostFields { attempt: lost.attempt.0, innocent }, bytes);
        }
        Fact::Returned(returned) => write_returned(returned, bytes),
        Fact::Ended(ended) => write_ended(ended, bytes),
        Fact::Stopped(stopped) => encode(&attempt::StoppedFields::from(stopped), bytes),
        Fact::Reconciled(reconciled) => encode(&attempt::ReconciledFields::from(reconciled), bytes),
        Fact::Parked(parked) => encode(&attempt::ParkedFields::from(parked), bytes),
        Fact::CancelAsked(asked) => encode(&attempt::CancelAskedFields::from(asked), bytes),
        Fact::Accepted(accepted) => encode(&attempt::AcceptedFields::from(accepted), bytes),
        Fact::Resolved(resolved) => encode(&attempt::ResolvedFields::from(&**resolved), bytes),
        Fact::SameAs(SameAs { first }) => {
            encode(&SameAsFields { batch: first.batch.0, ordinal: first.ordinal.0 }, bytes);
        }
        Fact::First => encode(&NoFields {}, bytes),
        Fact::CopyFound => encode(&NoFields {}, bytes),
        Fact::Operation(operation) => operation::write(operation, bytes),
        Fact::Suspended(suspended) => encode(&operation::SuspendedFields::from(&**suspended), bytes),
        Fact::Resumed(resumed) => encode(&operation::ResumedFields::from(resumed), bytes),
        Fact::Unconnected(said) => encode(&attempt::UnconnectedFields::from(&**said), bytes),
        Fact::Connected(connected) => encode(&attempt::ConnectedFields::from(*connected), bytes),
        Fact::Detached(detached) => encode(&attempt::DetachedFields::from(&**detached), bytes),
        Fact::SetAside(SetAside { why }) => encode(&SetAsideFields { why }, bytes),
        Fact::Aborted(abort) => encode(&attempt::AbortFields::from(&**abort), bytes),
        Fact::StartRefused => encode(&NoFields {}, bytes),
        Fact::Judged(judged) => permission::write_judged(judged, bytes),
        Fact::ApprovalAsked(asked) => encode(&permission::AskedFields::from(&**asked), bytes),
        Fact::ApprovalAnswered(answered) => {
            encode(&permission::ApprovalAnsweredFields::from(&**answered), bytes)
        }
        Fact::Withheld(withheld) => encode(&permission::WithheldFields::from(*withheld), bytes),
    }
}

fn encode<T: Encode<()>>(fields: &T, bytes: &mut Vec<u8>) {
    if let Err(error) = minicbor::encode(fields, bytes) {
        unreachable!("memory takes every byte, and none of the fields refuses to be written: {error}");
    }
}

/// The bytes after the fields: arguments, and the value a tool returned.
pub(super) fn payload(fact: &Fact) -> &[u8] {
    match fact {
        Fact::Opened(opened) => opened.args.text.as_bytes(),
        Fact::Returned(returned) => match &returned.result {
            Attempted::Ok(Success { value: Value::Inline(text), .. }) => text.as_bytes(),
            Attempted::Ok(_) | Attempted::Failed(_) => &[],
        },
        Fact::Stopped(stopped) => stopped.output.as_deref().unwrap_or_default().as_bytes(),
        Fact::Operation(operation) => operation::payload(operation),
        Fact::Prepared(_)
        | Fact::Suspended(_)
        | Fact::Resumed(_)
        | Fact::Unconnected(_)
        | Fact::Connected(_)
        | Fact::Detached(_)
        | Fact::SetAside(_)
        | Fact::Aborted(_)
        | Fact::StartRefused
        | Fact::Started(_)
        | Fact::Lost(_)
        | Fact::Ended(_)
        | Fact::Reconciled(_)
        | Fact::Parked(_)
        | Fact::CancelAsked(_)
        | Fact::Accepted(_)
        | Fact::Resolved(_)
        | Fact::SameAs(_)
        | Fact::First
        | Fact::Judged(_)
        | Fact::ApprovalAsked(_)
        | Fact::ApprovalAnswered(_)
        | Fact::Withheld(_)
        | Fact::CopyFound => &[],
    }
}

pub(super) fn read_fact(kind: u8, fields: &[u8], payload: &[u8]) -> Result<Fact, FieldProblem> {
    let known = Kind::ALL.iter().find(|known| kind_number(**known) == kind).ok_or(FieldProblem::Kind)?;
    Ok(match known {
        Kind::Opened => Fact::Opened(read_opened(minicbor::decode(fields)?, payload)?),
        Kind::Prepared => Fact::Prepared(read_prepared(minicbor::decode(fields)?)?),
        Kind::Started => {
            let fields: StartedFields = minicbor::decode(fields)?;
            let StartedFields { attempt, redrive, policy } = fields;
            Fact::Started(Started { attempt: AttemptNo(attempt), redrive, policy })
        }
        Kind::Lost => {
            let fields: LostFields = minicbor::decode(fields)?;
            let blamed = fields.innocent != Some(true);
            Fact::Lost(LostAttempt { attempt: AttemptNo(fields.attempt), blamed })
        }
        Kind::Returned => Fact::Returned(read_returned(minicbor::decode(fields)?, payload)?),
        Kind::Ended => Fact::Ended(read_ended(minicbor::decode(fields)?)?),
        Kind::Stopped => Fact::Stopped(attempt::read_stopped(&minicbor::decode(fields)?, payload)?),
        Kind::Reconciled => Fact::Reconciled(attempt::read_reconciled(minicbor::decode(fields)?)?),
        Kind::Parked => Fact::Parked(attempt::read_parked(&minicbor::decode(fields)?)?),
        Kind::CancelAsked => Fact::CancelAsked(attempt::read_cancel_asked(minicbor::decode(fields)?)),
        Kind::Accepted => Fact::Accepted(attempt::read_accepted(&minicbor::decode(fields)?)?),
        Kind::Resolved => Fact::Resolved(Box::new(attempt::read_resolved(minicbor::decode(fields)?)?)),
        Kind::SameAs => {
            let SameAsFields { batch, ordinal } = minicbor::decode(fields)?;
            Fact::SameAs(SameAs { first: CallId { batch: BatchNo(batch), ordinal: Ordinal(ordinal) } })
        }
        Kind::First => without_fields(fields, Fact::First)?,
        Kind::CopyFound => without_fields(fields, Fact::CopyFound)?,
        Kind::StepStarted
        | Kind::StepEnded
        | Kind::SleepBegan
        | Kind::SleepEnded
        | Kind::KeyTaken
        | Kind::WaitBegan
        | Kind::Completed
        | Kind::TimedOut
        | Kind::Called
        | Kind::Asked
        | Kind::PairsRead
        | Kind::PairWritten
        | Kind::Emitted
        | Kind::SignalAwaited
        | Kind::Signalled
        | Kind::Spawned
        | Kind::ChildOpened
        | Kind::Said
        | Kind::Awaited
        | Kind::EventPlanned
        | Kind::Handed
        | Kind::Attached => Fact::Operation(Box::new(operation::read(*known, fields, payload)?)),
        Kind::Suspended => Fact::Suspended(Box::new(operation::read_suspended(minicbor::decode(fields)?)?)),
        Kind::Resumed => Fact::Resumed(operation::read_resumed(&minicbor::decode(fields)?)),
        Kind::Unconnected => {
            Fact::Unconnected(Box::new(attempt::read_unconnected(minicbor::decode(fields)?)?))
        }
        Kind::Connected => Fact::Connected(attempt::read_connected(&minicbor::decode(fields)?)),
        Kind::Detached => Fact::Detached(Box::new(attempt::read_detached(minicbor::decode(fields)?)?)),
        Kind::SetAside => {
            let SetAsideFields { why } = minicbor::decode(fields)?;
            Fact::SetAside(SetAside { why: why.into() })
        }
        Kind::Aborted => Fact::Aborted(Box::new(attempt::read_abort(minicbor::decode(fields)?)?)),
        Kind::StartRefused => without_fields(fields, Fact::StartRefused)?,
        Kind::Judged => permission::read_judged(fields)?,
        Kind::ApprovalAsked => permission::read_asked(fields)?,
        Kind::ApprovalAnswered => permission::read_answered(fields)?,
        Kind::Withheld => permission::read_withheld(fields)?,
    })
}

/// A fact without content. Fields may be added to it one day, so the bytes there must be fields.
fn without_fields(fields: &[u8], fact: Fact) -> Result<Fact, FieldProblem> {
    let NoFields {} = minicbor::decode(fields)?;
    Ok(fact)
}

fn read_opened(fields: OpenedFields<'_>, payload: &[u8]) -> Result<Opened, FieldProblem> {
    Ok(Opened {
        id: fields.id.into(),
        tool: fields.tool.into(),
        args: Arguments {
            given: known(Given::parse(fields.given), fields.given)?,
            text: text(payload)?.into(),
        },
        provider: fields.provider.map(Arc::from),
        deadlines: fields.deadlines.map(|fields| Box::new(fields.read())),
        priority: fields.priority.unwrap_or(0),
        inline_ms: fields.inline_ms,
        task: fields.task.map(|fields| attempt::read_detached(fields).map(Box::new)).transpose()?,
        answer: fields.answer.map(|fields| Box::new(fields.read())),
        grant: fields.grant.map(grant).transpose()?,
    })
}

fn grant(bytes: &[u8]) -> Result<Box<GrantId>, FieldProblem> {
    bytes.try_into().map(|id| Box::new(GrantId(id))).map_err(|_| wrong("the id of a grant has 16 bytes"))
}

fn read_prepared(fields: PreparedFields<'_>) -> Result<PreparedCall, FieldProblem> {
    Ok(PreparedCall {
        contract: digest(fields.contract)?,
        class: known(EffectClass::parse(fields.class), fields.class)?,
        rules: fields.rules.map(|fields| Arc::new(fields.read())),
        reconciles: fields.reconciles.unwrap_or(false),
        made: fields.made.map(|fields| fields.read().map(Arc::new)).transpose()?,
        same: fields.same.map(|SameFields { mark, for_ms }| Box::new(Same { mark: Mark(mark), for_ms })),
        answer: fields.answer.map(|fields| Box::new(fields.read())),
        origin: Origin(fields.origin.unwrap_or(0)),
    })
}

fn digest(bytes: &[u8]) -> Result<Digest, FieldProblem> {
    bytes.try_into().map(Digest).map_err(|_| wrong("a contract digest has 32 bytes"))
}

fn read_returned(fields: ReturnedFields, payload: &[u8]) -> Result<Returned, FieldProblem> {
    let result = match fields.failure {
        Some(failure) => Attempted::Failed(Box::new(failure.read()?)),
        None => {
            let value = match fields.kept {
                Some(kept) => kept.read_value()?,
                None => Value::Inline(text(payload)?),
            };
            Attempted::Ok(Success { value, parts: read_parts(fields.parts)?, side: read_side(fields.side)? })
        }
    };
    Ok(Returned { attempt: AttemptNo(fields.attempt), ran_us: fields.ran_us, result })
}

fn read_ended(fields: EndedFields) -> Result<Ended, FieldProblem> {
    let model = match fields.model {
        0 => Model::ValueText,
        1 => Model::ValueString,
        2 => Model::Own(ModelAnswer {
            parts: read_parts(fields.model_parts)?,
            is_error: fields.is_error.unwrap_or(false),
        }),
        other => return Err(wrong(&format!("{other} is no way to keep a model's answer"))),
    };
    let spent = Spent { queued_us: fields.queued_us, waited_us: fields.waited_us, ran_us: fields.ran_us };
    Ok(Ended { outcome: fields.outcome.map(OutcomeFields::read).transpose()?, model, spent })
}

fn text(payload: &[u8]) -> Result<Arc<str>, FieldProblem> {
    std::str::from_utf8(payload).map(Arc::from).map_err(|_| wrong("a payload is not text"))
}

fn known<T>(parsed: Option<T>, text: &str) -> Result<T, FieldProblem> {
    parsed.ok_or_else(|| wrong(&format!("{text:?} is not known here")))
}

fn wrong(what: &str) -> FieldProblem {
    FieldProblem::Fields(what.to_string())
}
