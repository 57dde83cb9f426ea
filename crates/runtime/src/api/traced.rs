//! The trace that a request belongs to, as the W3C trace context writes it.

use std::fmt;
use std::sync::Arc;
use windlass_core::batch::Opening;
use windlass_core::handle::Handle;
use windlass_core::ids::AttemptNo;

/// A W3C `traceparent`: the trace of a request, and the span that made it. Calls of its batch are spans of that trace.
///
/// ```
/// use windlass::trace::TraceParent;
///
/// let parent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
/// assert_eq!(parent.map(|parent| parent.span), Some(0x00f0_67aa_0ba9_02b7));
/// assert_eq!(TraceParent::parse("nonsense"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: u128,
    /// The span inside which the request was made.
    pub span: u64,
    /// The flags; 1 means that the trace is recorded somewhere.
    pub flags: u8,
}

impl TraceParent {
    /// Reads the header. `None`: it is malformed, and as the standard says, a new trace begins.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let mut fields = text.trim().split('-');
        let (version, trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let is_hex = |field: &str, length: usize| {
            field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_whole = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
        // A later version may append fields; this one has four.
        if !is_whole || version == "ff" || (version == "00" && fields.next().is_some()) {
            return None;
        }
        let (trace, span) = (u128::from_str_radix(trace, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (trace != 0 && span != 0).then_some(TraceParent { trace, span, flags })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// The place of a batch in traces; most have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchTrace(Option<Box<TracePlace>>);

#[derive(Clone, Copy, Debug)]
enum TracePlace {
    /// Its calls are spans inside this one.
    Inside(TraceParent),
    /// It is a task with a trace of its own, started inside this span.
    StartedBy(TraceParent),
}

impl BatchTrace {
    pub(crate) fn inside(parent: Option<TraceParent>) -> BatchTrace {
        BatchTrace(parent.map(|parent| Box::new(TracePlace::Inside(parent))))
    }

    pub(crate) fn started_by(starter: Option<TraceParent>) -> BatchTrace {
        BatchTrace(starter.map(|starter| Box::new(TracePlace::StartedBy(starter))))
    }

    /// As it was recorded.
    pub(crate) fn recorded(opening: &Opening) -> BatchTrace {
        let read = |text: &Option<Arc<str>>| text.as_deref().and_then(TraceParent::parse);
        match read(&opening.trace_link) {
            Some(link) => BatchTrace::started_by(Some(link)),
            None => BatchTrace::inside(read(&opening.traceparent)),
        }
    }

    pub(crate) fn parent(&self) -> Option<TraceParent> {
        match self.0.as_deref() {
            Some(TracePlace::Inside(parent)) => Some(*parent),
            Some(TracePlace::StartedBy(_)) | None => None,
        }
    }

    pub(crate) fn link(&self) -> Option<TraceParent> {
        match self.0.as_deref() {
            Some(TracePlace::StartedBy(starter)) => Some(*starter),
            Some(TracePlace::Inside(_)) | None => None,
        }
    }
}

/// The span of a call. Half of a handle is practically random.
pub(crate) fn call_span(call: Handle) -> u64 {
    ((call.0 >> 64) as u64).max(1)
}

/// The span of an attempt: as random as the other half of the call's handle.
pub(crate) fn attempt_span(call: Handle, attempt: AttemptNo) -> u64 {
    (call.0 as u64).wrapping_add(u64::from(attempt.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_headers_are_read() {
        let whole = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::parse(whole).unwrap().to_string(), whole);
        let zeros = "0".repeat(32);
        for bad in [
            String::new(),
            whole.to_uppercase(),
            format!("{whole}-extra"),
            whole.replacen("00-", "ff-", 1),
            format!("00-{zeros}-00f067aa0ba902b7-01"),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_string(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7".to_string(),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
        // A later version may say more.
        assert!(TraceParent::parse(&format!("{}-extra", whole.replacen("00-", "01-", 1))).is_some());
    }
}
