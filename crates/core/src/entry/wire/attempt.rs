//! Stored form of the rules of attempts, of stops, waits and resolutions.

use super::outcome::{FailureFields, OutcomeFields, PartFields, SuccessFields, read_parts, write_parts};
use super::{FieldProblem, digest, known, text, wrong};
use crate::attempt::{Deadlines, Rules, TaskDeadlines};
use crate::call::{
    Abort, Accepted, CancelAsked, Cause, Connected, Detached, DetachedBy, Parked, PreparedResult, Reason,
    ReconciledAttempt, Resolved, Resolver, Stopped, Unconnected, Verdict, Wake,
};
use crate::ids::{AttemptNo, CallId};
use crate::outcome::ModelAnswer;
use crate::projection::AnswerBudget;
use crate::time::Timestamp;
use crate::tool::EffectClass;
use minicbor::{Decode, Encode};
use windlass_args::repair::{Repair, RepairKind};

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct DeadlineFields {
    #[n(0)]
    queue_ms: Option<u64>,
    #[n(1)]
    attempt_ms: Option<u64>,
    #[n(2)]
    silence_ms: Option<u64>,
    #[n(3)]
    total_ms: Option<u64>,
}

impl From<&Deadlines> for DeadlineFields {
    fn from(deadlines: &Deadlines) -> DeadlineFields {
        let Deadlines { queue_ms, attempt_ms, silence_ms, total_ms } = *deadlines;
        DeadlineFields { queue_ms, attempt_ms, silence_ms, total_ms }
    }
}

impl DeadlineFields {
    pub(super) fn read(self) -> Deadlines {
        let DeadlineFields { queue_ms, attempt_ms, silence_ms, total_ms } = self;
        Deadlines { queue_ms, attempt_ms, silence_ms, total_ms }
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct BudgetFields {
    #[n(0)]
    bytes_max: Option<u64>,
    #[n(1)]
    lines_max: Option<u64>,
}

impl From<&AnswerBudget> for BudgetFields {
    fn from(budget: &AnswerBudget) -> BudgetFields {
        let AnswerBudget { bytes_max, lines_max } = *budget;
        BudgetFields { bytes_max, lines_max }
    }
}

impl BudgetFields {
    pub(super) fn read(self) -> AnswerBudget {
        let BudgetFields { bytes_max, lines_max } = self;
        AnswerBudget { bytes_max, lines_max }
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct RuleFields {
    #[n(0)]
    queue_ms: u64,
    #[n(1)]
    attempt_ms: u64,
    #[n(2)]
    silence_ms: u64,
    #[n(3)]
    total_ms: u64,
    #[n(4)]
    grace_ms: u64,
    #[n(5)]
    attempts: u32,
    #[n(6)]
    base_ms: u64,
    #[n(7)]
    cap_ms: u64,
    #[n(8)]
    deaths: u32,
    /// The deadlines of tasks, where they do not follow from the fields above.
    #[n(9)]
    detached: Option<TaskFields>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct TaskFields {
    #[n(0)]
    queue_ms: u64,
    #[n(1)]
    attempt_ms: u64,
    #[n(2)]
    silence_ms: u64,
    #[n(3)]
    total_ms: u64,
}

impl From<TaskDeadlines> for TaskFields {
    fn from(deadlines: TaskDeadlines) -> TaskFields {
        let TaskDeadlines { queue_ms, attempt_ms, silence_ms, total_ms } = deadlines;
        TaskFields { queue_ms, attempt_ms, silence_ms, total_ms }
    }
}

impl TaskFields {
    fn read(self) -> TaskDeadlines {
        let TaskFields { queue_ms, attempt_ms, silence_ms, total_ms } = self;
        TaskDeadlines { queue_ms, attempt_ms, silence_ms, total_ms }
    }
}

impl From<&Rules> for RuleFields {
    fn from(rules: &Rules) -> RuleFields {
        let Rules { queue_ms, attempt_ms, silence_ms, total_ms, grace_ms, attempts, base_ms, cap_ms, .. } =
            *rules;
        let (deaths, detached) = (rules.deaths, rules.detached);
        let detached = (detached != rules.unsaid_detached()).then(|| detached.into());
        RuleFields {
            queue_ms,
            attempt_ms,
            silence_ms,
            total_ms,
            grace_ms,
            attempts,
            base_ms,
            cap_ms,
            deaths,
            detached,
        }
    }
}

impl RuleFields {
    pub(super) fn read(self) -> Rules {
        let RuleFields {
            queue_ms,
            attempt_ms,
            silence_ms,
            total_ms,
            grace_ms,
            attempts,
            base_ms,
            cap_ms,
            deaths,
            detached,
        } = self;
        let rules = Rules {
            queue_ms,
            attempt_ms,
            silence_ms,
            total_ms,
            grace_ms,
            attempts,
            base_ms,
            cap_ms,
            deaths,
            ..Rules::unsaid(EffectClass::Once)
        };
        Rules { detached: detached.map_or_else(|| rules.unsaid_detached(), TaskFields::read), ..rules }
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct MadeFields {
    #[n(0)]
    args: Option<String>,
    #[n(1)]
    payload: Option<String>,
    #[n(2)]
    answer: Option<SuccessFields>,
    #[n(3)]
    repairs: Option<Vec<RepairFields>>,
    #[n(4)]
    answered_by: Option<String>,
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct RepairFields {
    #[n(0)]
    kind: String,
    #[n(1)]
    at: String,
    #[n(2)]
    was: Option<String>,
}

impl From<&Repair> for RepairFields {
    fn from(repair: &Repair) -> RepairFields {
        let Repair { kind, at, was } = repair;
        RepairFields { kind: kind.to_string(), at: at.clone(), was: was.clone() }
    }
}

impl RepairFields {
    fn read(self) -> Result<Repair, FieldProblem> {
        let kind = known(RepairKind::parse(&self.kind), &self.kind)?;
        Ok(Repair { kind, at: self.at, was: self.was })
    }
}

impl From<&PreparedResult> for MadeFields {
    fn from(made: &PreparedResult) -> MadeFields {
        MadeFields {
            args: made.args.as_deref().map(str::to_string),
            payload: made.payload.as_deref().map(str::to_string),
            answer: made.answer.as_ref().map(SuccessFields::from),
            repairs: (!made.repairs.is_empty())
                .then(|| made.repairs.iter().map(RepairFields::from).collect()),
            answered_by: made.answered_by.as_deref().map(str::to_string),
        }
    }
}

impl MadeFields {
    pub(super) fn read(self) -> Result<PreparedResult, FieldProblem> {
        Ok(PreparedResult {
            args: self.args.map(Into::into),
            payload: self.payload.map(Into::into),
            answer: self.answer.map(SuccessFields::read).transpose()?,
            repairs: self
                .repairs
                .unwrap_or_default()
                .into_iter()
                .map(RepairFields::read)
                .collect::<Result<_, _>>()?,
            answered_by: self.answered_by.map(Into::into),
        })
    }
}

/// The output follows the fields.
#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct StoppedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    cause: String,
    #[n(3)]
    may_have_acted: bool,
    #[n(4)]
    stuck: Option<bool>,
    #[n(5)]
    has_output: Option<bool>,
}

impl From<&Stopped> for StoppedFields {
    fn from(stopped: &Stopped) -> StoppedFields {
        StoppedFields {
            attempt: stopped.attempt.0,
            ran_us: stopped.ran_us,
            cause: stopped.cause.to_string(),
            may_have_acted: stopped.may_have_acted,
            stuck: stopped.stuck.then_some(true),
            has_output: stopped.output.is_some().then_some(true),
        }
    }
}

pub(super) fn read_stopped(fields: &StoppedFields, payload: &[u8]) -> Result<Stopped, FieldProblem> {
    Ok(Stopped {
        attempt: AttemptNo(fields.attempt),
        ran_us: fields.ran_us,
        cause: known(Cause::parse(&fields.cause), &fields.cause)?,
        may_have_acted: fields.may_have_acted,
        stuck: fields.stuck.unwrap_or(false),
        output: fields.has_output.map(|_| text(payload)).transpose()?,
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ReconciledFields {
    #[n(0)]
    attempt: u32,
    /// 0: unknown, 1: did not happen, 2: landed, 3: failed.
    #[n(1)]
    verdict: u8,
    #[n(2)]
    landed: Option<SuccessFields>,
    #[n(3)]
    failed: Option<FailureFields>,
}

impl From<&ReconciledAttempt> for ReconciledFields {
    fn from(reconciled: &ReconciledAttempt) -> ReconciledFields {
        let (verdict, landed, failed) = match &reconciled.verdict {
            Verdict::Unknown => (0, None, None),
            Verdict::DidNotHappen => (1, None, None),
            Verdict::Landed(success) => (2, Some(success.into()), None),
            Verdict::Failed(failure) => (3, None, Some(FailureFields::from(&**failure))),
        };
        ReconciledFields { attempt: reconciled.attempt.0, verdict, landed, failed }
    }
}

pub(super) fn read_reconciled(fields: ReconciledFields) -> Result<ReconciledAttempt, FieldProblem> {
    let verdict = match (fields.verdict, fields.landed, fields.failed) {
        (0, ..) => Verdict::Unknown,
        (1, ..) => Verdict::DidNotHappen,
        (2, Some(landed), _) => Verdict::Landed(landed.read()?),
        (3, _, Some(failed)) => Verdict::Failed(Box::new(failed.read()?)),
        (other, ..) => return Err(wrong(&format!("{other} is no verdict"))),
    };
    Ok(ReconciledAttempt { attempt: AttemptNo(fields.attempt), verdict })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ParkedFields {
    #[n(0)]
    reason: String,
    #[n(1)]
    wake_at: i64,
    #[n(2)]
    length_us: u64,
}

impl From<&Parked> for ParkedFields {
    fn from(parked: &Parked) -> ParkedFields {
        let Parked { reason, wake_at, length_us } = *parked;
        ParkedFields { reason: reason.to_string(), wake_at: wake_at.0, length_us }
    }
}

pub(super) fn read_parked(fields: &ParkedFields) -> Result<Parked, FieldProblem> {
    let reason = known(Reason::parse(&fields.reason), &fields.reason)?;
    Ok(Parked { reason, wake_at: Timestamp(fields.wake_at), length_us: fields.length_us })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct UnconnectedFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    parked: ParkedFields,
    #[n(3)]
    provider: String,
    #[n(4)]
    setup_url: Option<String>,
}

impl From<&Unconnected> for UnconnectedFields {
    fn from(said: &Unconnected) -> UnconnectedFields {
        UnconnectedFields {
            attempt: said.attempt.0,
            ran_us: said.ran_us,
            parked: (&said.parked).into(),
            provider: said.provider.to_string(),
            setup_url: said.setup_url.as_deref().map(str::to_string),
        }
    }
}

pub(super) fn read_unconnected(fields: UnconnectedFields) -> Result<Unconnected, FieldProblem> {
    Ok(Unconnected {
        attempt: AttemptNo(fields.attempt),
        ran_us: fields.ran_us,
        parked: read_parked(&fields.parked)?,
        provider: fields.provider.into(),
        setup_url: fields.setup_url.map(Into::into),
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ConnectedFields {
    #[n(0)]
    connected: bool,
}

impl From<Connected> for ConnectedFields {
    fn from(said: Connected) -> ConnectedFields {
        ConnectedFields { connected: said.connected }
    }
}

pub(super) fn read_connected(fields: &ConnectedFields) -> Connected {
    Connected { connected: fields.connected }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct DetachedFields {
    #[n(0)]
    by: String,
    #[n(1)]
    wake: String,
    #[n(2)]
    title: Option<String>,
    /// The call as one number.
    #[n(3)]
    starter: Option<u64>,
    /// Absent means 0.
    #[n(4)]
    depth: Option<u32>,
    #[n(5)]
    budget_ms: Option<u64>,
    /// Absent means none.
    #[n(6)]
    tags: Option<Vec<String>>,
}

impl From<&Detached> for DetachedFields {
    fn from(detached: &Detached) -> DetachedFields {
        DetachedFields {
            by: detached.by.to_string(),
            wake: detached.wake.to_string(),
            title: detached.title.as_deref().map(str::to_string),
            starter: detached.starter.map(CallId::packed),
            depth: (detached.depth > 0).then_some(detached.depth),
            budget_ms: detached.budget_ms,
            tags: (!detached.tags.is_empty()).then(|| detached.tags.clone()),
        }
    }
}

pub(super) fn read_detached(fields: DetachedFields) -> Result<Detached, FieldProblem> {
    Ok(Detached {
        by: known(DetachedBy::parse(&fields.by), &fields.by)?,
        wake: known(Wake::parse(&fields.wake), &fields.wake)?,
        title: fields.title.map(Into::into),
        starter: fields.starter.map(CallId::unpacked),
        depth: fields.depth.unwrap_or(0),
        budget_ms: fields.budget_ms,
        tags: fields.tags.unwrap_or_default(),
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct CancelAskedFields {
    #[n(0)]
    reason: Option<String>,
}

impl From<&CancelAsked> for CancelAskedFields {
    fn from(asked: &CancelAsked) -> CancelAskedFields {
        CancelAskedFields { reason: asked.reason.as_deref().map(str::to_string) }
    }
}

pub(super) fn read_cancel_asked(fields: CancelAskedFields) -> CancelAsked {
    CancelAsked { reason: fields.reason.map(Into::into) }
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct AbortFields {
    #[n(0)]
    attempt: u32,
    #[n(1)]
    ran_us: u64,
    #[n(2)]
    failure: FailureFields,
}

impl From<&Abort> for AbortFields {
    fn from(abort: &Abort) -> AbortFields {
        let Abort { attempt, ran_us, failure } = abort;
        AbortFields { attempt: attempt.0, ran_us: *ran_us, failure: FailureFields::from(failure) }
    }
}

pub(super) fn read_abort(fields: AbortFields) -> Result<Abort, FieldProblem> {
    let AbortFields { attempt, ran_us, failure } = fields;
    Ok(Abort { attempt: AttemptNo(attempt), ran_us, failure: failure.read()? })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct AcceptedFields {
    #[cbor(n(0), with = "minicbor::bytes")]
    contract: Vec<u8>,
    #[n(1)]
    class: String,
    #[n(2)]
    reconciles: Option<bool>,
}

impl From<&Accepted> for AcceptedFields {
    fn from(accepted: &Accepted) -> AcceptedFields {
        AcceptedFields {
            contract: accepted.contract.0.to_vec(),
            class: accepted.class.to_string(),
            reconciles: accepted.reconciles.then_some(true),
        }
    }
}

pub(super) fn read_accepted(fields: &AcceptedFields) -> Result<Accepted, FieldProblem> {
    Ok(Accepted {
        contract: digest(&fields.contract)?,
        class: known(EffectClass::parse(&fields.class), &fields.class)?,
        reconciles: fields.reconciles.unwrap_or(false),
    })
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ResolvedFields {
    #[n(0)]
    outcome: OutcomeFields,
    #[n(1)]
    model_parts: Option<Vec<PartFields>>,
    #[n(2)]
    is_error: bool,
    #[n(3)]
    by: String,
}

impl From<&Resolved> for ResolvedFields {
    fn from(resolved: &Resolved) -> ResolvedFields {
        ResolvedFields {
            outcome: (&resolved.outcome).into(),
            model_parts: write_parts(&resolved.model.parts),
            is_error: resolved.model.is_error,
            by: resolved.by.to_string(),
        }
    }
}

pub(super) fn read_resolved(fields: ResolvedFields) -> Result<Resolved, FieldProblem> {
    let model = ModelAnswer { parts: read_parts(fields.model_parts)?, is_error: fields.is_error };
    let by = known(Resolver::parse(&fields.by), &fields.by)?;
    Ok(Resolved { outcome: fields.outcome.read()?, model, by })
}
