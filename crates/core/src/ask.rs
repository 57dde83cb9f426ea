//! What is asked of a call from outside, as the owner of its session finds it in `inbound`.

use crate::ids::{BatchNo, CallId, Ordinal};
use crate::outcome::JsonText;
use minicbor::{Decode, Encode};

/// Something that is asked of a session's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Stop what is open there.
    Cancel {
        /// Where.
        scope: Scope,
        /// Why, if it was said.
        reason: Option<String>,
    },
    /// It became known how a call ended.
    Resolve {
        /// Which call.
        call: CallId,
        /// Its result, as JSON, if it took effect; `None` if it did not.
        landed: Option<JsonText>,
    },
    /// A call may go on under what its tool has become.
    Accept {
        /// Which call.
        call: CallId,
    },
}

/// What a cancel reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One call.
    Call(CallId),
    /// The calls of a batch.
    Batch(BatchNo),
    /// The calls of the session.
    Session,
}

/// Why bytes are nothing that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is asked cannot be read: {what}; a newer Windlass may have written it")]
pub struct Unreadable {
    what: String,
}

/// Keys and numbers here are released: add, never change.
#[derive(Encode, Decode)]
#[cbor(map)]
struct Fields {
    /// 0: cancel, 1: resolve, 2: accept.
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
}

impl Ask {
    /// What makes it one message: the same is asked once. Cancelling more than one call may be asked again later, when
    /// there are others; `count` tells the times apart.
    pub fn key(&self, count: u64) -> String {
        match self {
            Ask::Cancel { scope: Scope::Call(call), .. } => format!("cancel call {call}"),
            Ask::Cancel { scope: Scope::Batch(batch), .. } => format!("cancel batch {batch} at {count}"),
            Ask::Cancel { scope: Scope::Session, .. } => format!("cancel session at {count}"),
            Ask::Resolve { call, landed } if cfg!(feature = "mutant-resolution-changes") => {
                format!("resolve {call} as {landed:?}")
            }
            Ask::Resolve { call, .. } => format!("resolve {call}"),
            // A tool may change again: then it is asked again.
            Ask::Accept { call } => format!("accept {call} at {count}"),
        }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let of = |call: &CallId| (Some(call.batch.0), Some(call.ordinal.0));
        let (kind, (batch, ordinal), reason, landed) = match self {
            Ask::Cancel { scope, reason } => {
                let place = match scope {
                    Scope::Call(call) => of(call),
                    Scope::Batch(batch) => (Some(batch.0), None),
                    Scope::Session => (None, None),
                };
                (0, place, reason.clone(), None)
            }
            Ask::Resolve { call, landed } => (1, of(call), None, landed.as_deref().map(str::to_string)),
            Ask::Accept { call } => (2, of(call), None, None),
        };
        let mut bytes = Vec::new();
        if let Err(error) = minicbor::encode(Fields { kind, batch, ordinal, reason, landed }, &mut bytes) {
            unreachable!("memory takes every byte, and none of the fields refuses to be written: {error}");
        }
        bytes
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Result<Ask, Unreadable> {
        let fields: Fields =
            minicbor::decode(bytes).map_err(|error| Unreadable { what: error.to_string() })?;
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
            (kind, _, _) => {
                return Err(Unreadable { what: format!("its kind {kind} or its call is missing") });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_back_and_released_bytes_never_change() {
        let call = CallId { batch: BatchNo(7), ordinal: Ordinal(3) };
        let cancel = |scope| Ask::Cancel { scope, reason: Some("r".into()) };
        for (ask, released) in [
            (cancel(Scope::Call(call)), "a40000010702030361"),
            (cancel(Scope::Batch(BatchNo(7))), "a300000107036172"),
            (cancel(Scope::Session), "a20000036172"),
            (Ask::Resolve { call, landed: Some("1".into()) }, "a4000101070203046131"),
            (Ask::Resolve { call, landed: None }, "a3000101070203"),
            (Ask::Accept { call }, "a3000201070203"),
        ] {
            let bytes = ask.encode();
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex.starts_with(released), "{hex}");
            assert_eq!(Ask::decode(&bytes), Ok(ask));
        }
        for bad in [&b""[..], b"\xa1\x00\x09", b"\xa1\x00\x01", b"nonsense"] {
            assert!(Ask::decode(bad).is_err(), "{bad:?}");
        }
    }
}
