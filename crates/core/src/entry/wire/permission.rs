//! Stored form of the facts about permission.

use super::attempt::{ParkedFields, read_parked};
use super::fields::Fields;
use super::{FieldProblem, digest, wrong};
use crate::call::{ApprovalAnswer, ApprovalAnswered, ApprovalAsked, Fact, JudgedCall, Withheld};
use crate::ids::AttemptNo;
use minicbor::{Decode, Encode};
use std::sync::Arc;

#[derive(Decode)]
#[cbor(map)]
struct JudgedFields {
    #[n(0)]
    allowed: bool,
    #[n(1)]
    policy: u64,
    #[n(2)]
    by: Vec<String>,
    #[n(3)]
    reason: Option<String>,
}

/// Appends the fields of a judgement: [`JudgedFields`]. Every call that a rule allows writes them.
pub(super) fn write_judged(judged: &JudgedCall, bytes: &mut Vec<u8>) {
    let fields = Fields::begin(bytes).truth(0, judged.allowed).number(1, judged.policy).texts(2, &judged.by);
    fields.maybe(3, judged.reason.as_deref()).end();
}

pub(super) fn read_judged(fields: &[u8]) -> Result<Fact, FieldProblem> {
    let JudgedFields { allowed, policy, by, reason } = minicbor::decode(fields)?;
    let judged = JudgedCall { allowed, policy, by: read(by), reason: reason.map(Into::into) };
    Ok(Fact::Judged(Arc::new(judged)))
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct AskedFields {
    #[n(0)]
    number: u32,
    #[cbor(n(1), with = "minicbor::bytes")]
    digest: Vec<u8>,
    #[n(2)]
    policy: u64,
    #[n(3)]
    by: Vec<String>,
    #[n(4)]
    reason: Option<String>,
    #[n(5)]
    parked: ParkedFields,
    /// Absent means no, as in the fields below.
    #[n(6)]
    four_eyes: Option<bool>,
    #[n(7)]
    untrusted: Option<bool>,
    #[n(8)]
    allows_on_expiry: Option<bool>,
    #[cbor(n(9), with = "minicbor::bytes")]
    frame: Vec<u8>,
    #[n(10)]
    sources: Vec<String>,
}

impl From<&ApprovalAsked> for AskedFields {
    fn from(asked: &ApprovalAsked) -> AskedFields {
        AskedFields {
            number: asked.number,
            digest: asked.digest.0.to_vec(),
            policy: asked.policy,
            by: written(&asked.by),
            reason: asked.reason.as_deref().map(str::to_string),
            parked: (&asked.parked).into(),
            four_eyes: asked.four_eyes.then_some(true),
            untrusted: asked.untrusted.then_some(true),
            allows_on_expiry: asked.allows_on_expiry.then_some(true),
            frame: asked.frame.0.to_vec(),
            sources: written(&asked.sources),
        }
    }
}

pub(super) fn read_asked(fields: &[u8]) -> Result<Fact, FieldProblem> {
    let fields: AskedFields = minicbor::decode(fields)?;
    Ok(Fact::ApprovalAsked(Box::new(ApprovalAsked {
        number: fields.number,
        digest: digest(&fields.digest)?,
        policy: fields.policy,
        by: read(fields.by),
        reason: fields.reason.map(Into::into),
        parked: read_parked(&fields.parked)?,
        four_eyes: fields.four_eyes.unwrap_or(false),
        untrusted: fields.untrusted.unwrap_or(false),
        allows_on_expiry: fields.allows_on_expiry.unwrap_or(false),
        frame: digest(&fields.frame)?,
        sources: read(fields.sources),
    })))
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct ApprovalAnsweredFields {
    #[n(0)]
    number: u32,
    /// 0: denied, 1: approved.
    #[n(1)]
    answer: u8,
    #[cbor(n(2), with = "minicbor::bytes")]
    digest: Option<Vec<u8>>,
    #[n(3)]
    args: Option<String>,
    #[n(4)]
    reason: Option<String>,
    #[n(5)]
    by: Option<String>,
    #[n(6)]
    remembered: Option<String>,
}

impl From<&ApprovalAnswered> for ApprovalAnsweredFields {
    fn from(answered: &ApprovalAnswered) -> ApprovalAnsweredFields {
        let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_string);
        let (number, by, remembered) = (answered.number, owned(&answered.by), owned(&answered.remembered));
        match &answered.answer {
            ApprovalAnswer::Approved { digest, args } => ApprovalAnsweredFields {
                number,
                answer: 1,
                digest: Some(digest.0.to_vec()),
                args: owned(args),
                reason: None,
                by,
                remembered,
            },
            ApprovalAnswer::Denied { reason } => ApprovalAnsweredFields {
                number,
                answer: 0,
                digest: None,
                args: None,
                reason: owned(reason),
                by,
                remembered,
            },
        }
    }
}

pub(super) fn read_answered(fields: &[u8]) -> Result<Fact, FieldProblem> {
    let fields: ApprovalAnsweredFields = minicbor::decode(fields)?;
    let answer = match (fields.answer, fields.digest) {
        (0, _) => ApprovalAnswer::Denied { reason: fields.reason.map(Into::into) },
        (1, Some(approved)) => {
            ApprovalAnswer::Approved { digest: digest(&approved)?, args: fields.args.map(Into::into) }
        }
        (other, _) => return Err(wrong(&format!("{other} is no answer to an approval"))),
    };
    Ok(Fact::ApprovalAnswered(Box::new(ApprovalAnswered {
        number: fields.number,
        answer,
        by: fields.by.map(Into::into),
        remembered: fields.remembered.map(Into::into),
    })))
}

#[derive(Encode, Decode)]
#[cbor(map)]
pub(super) struct WithheldFields {
    #[n(0)]
    attempt: u32,
}

impl From<Withheld> for WithheldFields {
    fn from(withheld: Withheld) -> WithheldFields {
        WithheldFields { attempt: withheld.attempt.0 }
    }
}

pub(super) fn read_withheld(fields: &[u8]) -> Result<Fact, FieldProblem> {
    let fields: WithheldFields = minicbor::decode(fields)?;
    Ok(Fact::Withheld(Withheld { attempt: AttemptNo(fields.attempt) }))
}

fn written(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn read(names: Vec<String>) -> Vec<Arc<str>> {
    names.into_iter().map(Into::into).collect()
}
