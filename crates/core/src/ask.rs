//! Messages from outside to a call, as the owner of its session finds them in `inbound`.

use crate::call::{ApprovalAnswer, ApprovalAnswered};
use crate::entry::ExtraFields;
use crate::grant::GrantId;
use crate::ids::{BatchNo, CallId, Ordinal};
use crate::operation::Completion;
use crate::outcome::JsonText;
use crate::tool::Digest;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// A message to a session's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Stop open calls.
    Cancel {
        /// Which calls.
        scope: Scope,
        /// The reason, if one was given.
        reason: Option<String>,
    },
    /// The outcome of an unknown call is known.
    Resolve {
        /// The call.
        call: CallId,
        /// Its result, as JSON, if it took effect; `None` if it did not.
        landed: Option<JsonText>,
    },
    /// A call may continue with the changed tool.
    Accept {
        /// The call.
        call: CallId,
    },
    /// An external answer to a call's wait.
    Complete {
        /// The call.
        call: CallId,
        /// The name of its wait.
        name: Arc<str>,
        /// The answer.
        completion: Completion,
    },
    /// The session was connected to a provider, or the connection was declined.
    Connect {
        /// The provider.
        provider: Arc<str>,
        /// Whether it is connected.
        connected: bool,
    },
    /// A signal for a call.
    Signal {
        /// The call.
        call: CallId,
        /// The signal's name.
        name: Arc<str>,
        /// Its payload, as JSON.
        payload: JsonText,
        /// Its idempotency key.
        key: String,
    },
    /// A person approves or denies a call.
    Decide(Box<Decide>),
    /// A change of the session's grants.
    Grant(Box<GrantDemand>),
}

/// A change of the grants of a session, as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantDemand {
    /// A grant is issued to the session.
    Issue {
        /// Its id.
        id: GrantId,
        /// Its record, as JSON.
        record: JsonText,
    },
    /// A copy takes its uses out of a grant of the session.
    Share {
        /// The grant.
        id: GrantId,
        /// The id of the copy.
        copy: GrantId,
        /// The record of the copy, as JSON.
        record: JsonText,
    },
    /// A grant of the session is revoked, also one that has not arrived yet.
    Revoke {
        /// Its id.
        id: GrantId,
    },
}

/// A person's answer to an approval, as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decide {
    /// The call.
    pub call: CallId,
    /// The answer, with the number of the approval.
    pub answered: ApprovalAnswered,
    /// The record by which answers of this kind are remembered from now on, as JSON.
    pub remember: Option<JsonText>,
}

/// The reach of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One call.
    Call(CallId),
    /// The calls of a batch.
    Batch(BatchNo),
    /// The calls of the session.
    Session,
}

/// Bytes that are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be read: {what}; a newer Windlass may have written it")]
pub struct UnreadableAsk {
    what: String,
}

/// Keys and numbers here are released: add, never change.
#[derive(Default, Encode, Decode)]
#[cbor(map)]
struct AskFields {
    /// 0: cancel, 1: resolve, 2: accept, 3: complete, 4: connect, 5: signal, 6: decide, 7: issue a grant, 8: share one, 9: revoke
    /// one.
    #[n(0)]
    kind: u8,
    #[n(1)]
    batch: Option<u64>,
    #[n(2)]
    ordinal: Option<u16>,
    #[n(3)]
    reason: Option<String>,
    #[n(4)]
    landed: Option<String>,
    #[n(5)]
    name: Option<String>,
    #[n(6)]
    ok: Option<String>,
    #[n(7)]
    code: Option<String>,
    #[n(8)]
    message: Option<String>,
    #[n(9)]
    connected: Option<bool>,
    #[n(10)]
    key: Option<String>,
    #[n(18)]
    extras: Option<ExtraFields>,
    #[n(19)]
    timed_out: Option<bool>,
    /// Of an answer to an approval, as all that follow: its number, the digest of what is approved, the edited arguments, the
    /// principal that answered, the remembered record and its id.
    #[n(20)]
    number: Option<u32>,
    #[cbor(n(21), with = "minicbor::bytes")]
    digest: Option<Vec<u8>>,
    #[n(22)]
    args: Option<String>,
    #[n(23)]
    by: Option<String>,
    #[n(24)]
    remember: Option<String>,
    #[n(25)]
    remembered: Option<String>,
    /// Of a message about a grant, as all that follow: its id, the id of a copy, and a record.
    #[cbor(n(26), with = "minicbor::bytes")]
    grant: Option<Vec<u8>>,
    #[cbor(n(27), with = "minicbor::bytes")]
    copy: Option<Vec<u8>>,
    #[n(28)]
    record: Option<String>,
}

impl AskFields {
    fn of(kind: u8, call: CallId) -> AskFields {
        AskFields { kind, batch: Some(call.batch.0), ordinal: Some(call.ordinal.0), ..AskFields::default() }
    }

    fn deciding(decide: &Decide) -> AskFields {
        let Decide { call, answered, remember } = decide;
        let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_string);
        let fields = AskFields {
            number: Some(answered.number),
            by: owned(&answered.by),
            remember: owned(remember),
            remembered: owned(&answered.remembered),
            ..AskFields::of(6, *call)
        };
        match &answered.answer {
            ApprovalAnswer::Approved { digest, args } => {
                AskFields { digest: Some(digest.0.to_vec()), args: owned(args), ..fields }
            }
            ApprovalAnswer::Denied { reason } => AskFields { reason: owned(reason), ..fields },
        }
    }

    fn granting(demand: &GrantDemand) -> AskFields {
        let bytes = |id: &GrantId| Some(id.0.to_vec());
        let of = |kind: u8, id: &GrantId| AskFields { kind, grant: bytes(id), ..AskFields::default() };
        match demand {
            GrantDemand::Issue { id, record } => AskFields { record: Some(record.to_string()), ..of(7, id) },
            GrantDemand::Share { id, copy, record } => {
                AskFields { copy: bytes(copy), record: Some(record.to_string()), ..of(8, id) }
            }
            GrantDemand::Revoke { id } => of(9, id),
        }
    }

    fn grant_demand(&mut self) -> Result<GrantDemand, UnreadableAsk> {
        let damaged = || UnreadableAsk { what: "a message about a grant is damaged".to_string() };
        let id = |bytes: Option<Vec<u8>>| {
            bytes.and_then(|bytes| bytes.try_into().ok()).map(GrantId).ok_or_else(damaged)
        };
        let (grant, record) = (id(self.grant.take())?, self.record.take().map(Into::into));
        Ok(match self.kind {
            7 => GrantDemand::Issue { id: grant, record: record.ok_or_else(damaged)? },
            8 => {
                let (copy, record) = (id(self.copy.take())?, record.ok_or_else(damaged)?);
                GrantDemand::Share { id: grant, copy, record }
            }
            _ => GrantDemand::Revoke { id: grant },
        })
    }

    /// An answer with a digest approves; one without denies.
    fn decide(&mut self, call: CallId, number: u32) -> Result<Decide, UnreadableAsk> {
        let answer = match self.digest.take() {
            Some(digest) => {
                let damaged = |_| UnreadableAsk { what: "the digest of an approval is damaged".to_string() };
                let digest = Digest(digest.try_into().map_err(damaged)?);
                ApprovalAnswer::Approved { digest, args: self.args.take().map(Into::into) }
            }
            None => ApprovalAnswer::Denied { reason: self.reason.take().map(Into::into) },
        };
        let (by, remembered) = (self.by.take().map(Into::into), self.remembered.take().map(Into::into));
        let answered = ApprovalAnswered { number, answer, by, remembered };
        Ok(Decide { call, answered, remember: self.remember.take().map(Into::into) })
    }

    /// An answer is a value, a code with a message, or a timeout; none of them means that it was cancelled.
    fn completion(&mut self) -> Result<Completion, UnreadableAsk> {
        let damaged = |_| UnreadableAsk { what: "the parts of an answer are damaged".to_string() };
        let extras = self.extras.take().map(|extras| extras.read().map(Box::new)).transpose();
        let extras = extras.map_err(damaged)?;
        Ok(match (self.ok.take(), self.code.take(), self.message.take()) {
            (Some(ok), _, _) => Completion::Ok { value: ok.into(), extras },
            (None, Some(code), Some(message)) => Completion::Error { code, message, extras },
            (None, _, _) if self.timed_out == Some(true) => Completion::TimedOut,
            (None, _, _) => Completion::Cancelled,
        })
    }
}

impl Ask {
    /// The idempotency key of the message. Cancelling more than one call may be requested again later, when
    /// there are others; `count` distinguishes the requests.
    pub fn key(&self, count: u64) -> String {
        match self {
            Ask::Cancel { scope: Scope::Call(call), .. } => format!("cancel call {call}"),
            Ask::Cancel { scope: Scope::Batch(batch), .. } => format!("cancel batch {batch} at {count}"),
            Ask::Cancel { scope: Scope::Session, .. } => format!("cancel session at {count}"),
            Ask::Resolve { call, landed } if crate::mutant::breaks("resolution-changes") => {
                format!("resolve {call} as {landed:?}")
            }
            Ask::Resolve { call, .. } => format!("resolve {call}"),
            // A tool may change again: then it is requested again.
            Ask::Accept { call } => format!("accept {call} at {count}"),
            Ask::Complete { call, name, completion } if crate::mutant::breaks("answer-changes") => {
                format!("complete {call} {name} as {completion:?}")
            }
            Ask::Complete { call, name, .. } => format!("complete {call} {name}"),
            Ask::Signal { call, name, key, .. } => format!("signal {call} {name} {key}"),
            // Whoever approves after another has denied is told so.
            Ask::Decide(decide) if crate::mutant::breaks("approval-changes") => {
                format!("decide {} {} as {:?}", decide.call, decide.answered.number, decide.answered.answer)
            }
            Ask::Decide(decide) => format!("decide {} {}", decide.call, decide.answered.number),
            Ask::Grant(demand) => match &**demand {
                GrantDemand::Issue { id, .. } => format!("issue grant {id}"),
                // A copy that is refused for lack of uses may be asked for again.
                GrantDemand::Share { id, copy, .. } => format!("share grant {id} as {copy} at {count}"),
                GrantDemand::Revoke { id } => format!("revoke grant {id}"),
            },
            // Connections come and go.
            Ask::Connect { provider, connected } => format!("connect {provider} {connected} at {count}"),
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let fields = match self {
            Ask::Cancel { scope, reason } => {
                let (batch, ordinal) = match scope {
                    Scope::Call(call) => (Some(call.batch.0), Some(call.ordinal.0)),
                    Scope::Batch(batch) => (Some(batch.0), None),
                    Scope::Session => (None, None),
                };
                AskFields { kind: 0, batch, ordinal, reason: reason.clone(), ..AskFields::default() }
            }
            Ask::Resolve { call, landed } => {
                AskFields { landed: landed.as_deref().map(str::to_string), ..AskFields::of(1, *call) }
            }
            Ask::Accept { call } => AskFields::of(2, *call),
            Ask::Connect { provider, connected } => {
                let (name, connected) = (Some(provider.to_string()), Some(*connected));
                AskFields { kind: 4, name, connected, ..AskFields::default() }
            }
            Ask::Decide(decide) => AskFields::deciding(decide),
            Ask::Grant(demand) => AskFields::granting(demand),
            Ask::Signal { call, name, payload, key } => AskFields {
                name: Some(name.to_string()),
                ok: Some(payload.to_string()),
                key: Some(key.clone()),
                ..AskFields::of(5, *call)
            },
            Ask::Complete { call, name, completion } => {
                let named = AskFields { name: Some(name.to_string()), ..AskFields::of(3, *call) };
                match completion {
                    Completion::Ok { value, extras } => {
                        let extras = extras.as_deref().map(ExtraFields::from);
                        AskFields { ok: Some(value.to_string()), extras, ..named }
                    }
                    Completion::Error { code, message, extras } => {
                        let extras = extras.as_deref().map(ExtraFields::from);
                        AskFields {
                            code: Some(code.clone()),
                            message: Some(message.clone()),
                            extras,
                            ..named
                        }
                    }
                    Completion::TimedOut => AskFields { timed_out: Some(true), ..named },
                    Completion::Cancelled => named,
                }
            }
        };
        let mut bytes = Vec::new();
        if let Err(error) = minicbor::encode(fields, &mut bytes) {
            unreachable!("memory takes every byte, and none of the fields refuses to be written: {error}");
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Ask, UnreadableAsk> {
        let mut fields: AskFields =
            minicbor::decode(bytes).map_err(|error| UnreadableAsk { what: error.to_string() })?;
        let call = match (fields.batch, fields.ordinal) {
            (Some(batch), Some(ordinal)) => Some(CallId { batch: BatchNo(batch), ordinal: Ordinal(ordinal) }),
            _ => None,
        };
        Ok(match (fields.kind, call, fields.batch) {
            (0, Some(call), _) => Ask::Cancel { scope: Scope::Call(call), reason: fields.reason },
            (0, None, Some(batch)) => {
                Ask::Cancel { scope: Scope::Batch(BatchNo(batch)), reason: fields.reason }
            }
            (0, None, None) => Ask::Cancel { scope: Scope::Session, reason: fields.reason },
            (1, Some(call), _) => Ask::Resolve { call, landed: fields.landed.map(Into::into) },
            (2, Some(call), _) => Ask::Accept { call },
            (3, Some(call), _) if let Some(name) = fields.name.take() => {
                Ask::Complete { call, name: name.into(), completion: fields.completion()? }
            }
            (4, None, None) if let (Some(name), Some(connected)) = (fields.name.take(), fields.connected) => {
                Ask::Connect { provider: name.into(), connected }
            }
            (5, Some(call), _)
                if let (Some(name), Some(payload), Some(key)) =
                    (fields.name.take(), fields.ok.take(), fields.key.take()) =>
            {
                Ask::Signal { call, name: name.into(), payload: payload.into(), key }
            }
            (6, Some(call), _) if let Some(number) = fields.number => {
                Ask::Decide(Box::new(fields.decide(call, number)?))
            }
            (7..=9, None, None) => Ask::Grant(Box::new(fields.grant_demand()?)),
            (kind, _, _) => {
                return Err(UnreadableAsk { what: format!("its kind {kind} or its call is missing") });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::AnswerExtras;
    use crate::outcome::Part;

    fn extras() -> Option<Box<AnswerExtras>> {
        let parts = vec![Part::Text("caption".into()), Part::Json("[1]".into())];
        Some(Box::new(AnswerExtras { parts, raw: Some("{}".into()), control: Some("1".into()) }))
    }

    #[test]
    fn bytes_and_back_and_released_bytes_never_change() {
        let call = CallId { batch: BatchNo(7), ordinal: Ordinal(3) };
        let cancel = |scope| Ask::Cancel { scope, reason: Some("r".into()) };
        let signal = Ask::Signal { call, name: "n".into(), payload: "1".into(), key: "k".into() };
        let complete = |completion| Ask::Complete { call, name: "n".into(), completion };
        let decide = |answer| {
            let answered =
                ApprovalAnswered { number: 2, answer, by: Some("ann".into()), remembered: Some("m".into()) };
            Ask::Decide(Box::new(Decide { call, answered, remember: Some("{}".into()) }))
        };
        let grant = |demand| Ask::Grant(Box::new(demand));
        for (ask, released) in [
            (cancel(Scope::Call(call)), "a40000010702030361"),
            (cancel(Scope::Batch(BatchNo(7))), "a300000107036172"),
            (cancel(Scope::Session), "a20000036172"),
            (Ask::Resolve { call, landed: Some("1".into()) }, "a4000101070203046131"),
            (Ask::Resolve { call, landed: None }, "a3000101070203"),
            (Ask::Accept { call }, "a3000201070203"),
            (complete(Completion::ok("1")), "a5000301070203"),
            (complete(Completion::error("c", "m")), "a6000301070203"),
            (complete(Completion::Cancelled), "a4000301070203"),
            (complete(Completion::TimedOut), "a500030107020305616e13f5"),
            (complete(Completion::Ok { value: "1".into(), extras: extras() }), "a6000301070203"),
            (
                complete(Completion::Error { code: "c".into(), message: "m".into(), extras: extras() }),
                "a7000301070203",
            ),
            (Ask::Connect { provider: "p".into(), connected: true }, "a3000405617009f5"),
            (signal, "a6000501070203"),
            (
                decide(ApprovalAnswer::Denied { reason: Some("r".into()) }),
                "a800060107020303617214021763616e6e1818627b7d1819616d",
            ),
            (
                decide(ApprovalAnswer::Approved { digest: Digest([7; 32]), args: Some("{}".into()) }),
                "a900060107020314021558200707",
            ),
            (
                grant(GrantDemand::Issue { id: GrantId([7; 16]), record: "{}".into() }),
                "a30007181a5007070707070707070707070707070707181c627b7d",
            ),
            (
                grant(GrantDemand::Share {
                    id: GrantId([7; 16]),
                    copy: GrantId([8; 16]),
                    record: "{}".into(),
                }),
                "a40008181a5007070707070707070707070707070707181b500808",
            ),
            (grant(GrantDemand::Revoke { id: GrantId([7; 16]) }), "a20009181a5007070707"),
        ] {
            let bytes = ask.encode();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex.starts_with(released), "{hex}");
            assert_eq!(Ask::decode(&bytes), Ok(ask));
        }
        for bad in [&b""[..], b"\xa1\x00\x0a", b"\xa1\x00\x01", b"\xa1\x00\x09", b"nonsense"] {
            assert!(Ask::decode(bad).is_err(), "{bad:?}");
        }
    }
}
