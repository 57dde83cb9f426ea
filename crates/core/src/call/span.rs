//! Where the time of a call went, as spans for a timeline: queueing, attempts, waits between attempts, other waits, and the calls
//! that it made.

use super::fact::{Fact, Parked, Reason, Result as Attempted};
use crate::ids::AttemptNo;
use crate::operation::Did;
use crate::time::Timestamp;
use crate::wait::Wait;
use windlass_args::named;

/// A part of a call's time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// The kind.
    pub kind: SpanKind,
    /// Its begin.
    pub from: Timestamp,
    /// Its end; `None` while it lasts.
    pub to: Option<Timestamp>,
    /// The attempt, of spans that are one.
    pub attempt: Option<AttemptNo>,
    /// How the attempt ended, if it has.
    pub end: Option<SpanEnd>,
    /// The reason of the wait, of spans that are one.
    pub why: Option<Wait>,
    /// The name under which calls were made, of spans that are such calls.
    pub name: Option<String>,
}

named! {
    /// The kinds of spans.
    SpanKind {
        /// It waited for its turn, or to be prepared.
        Queue = "queue",
        /// An attempt ran.
        Attempt = "attempt",
        /// It waited for its next attempt.
        Retry = "retry",
        /// It waited for something else.
        Wait = "wait",
        /// Calls that its tool made. They overlap with the attempt.
        Inside = "inside",
    }
}

named! {
    /// How an attempt ended, or was interrupted.
    SpanEnd {
        /// It returned a result.
        Ok = "ok",
        /// It returned a failure.
        Failed = "failed",
        /// It was stopped.
        Stopped = "stopped",
        /// Its owner died.
        Lost = "lost",
        /// It was cut off from outside.
        Aborted = "aborted",
        /// It was put aside until something that it waits for is over.
        Suspended = "suspended",
        /// It needs a connection that its session does not have.
        Unconnected = "unconnected",
        /// It was started on record, and not run.
        Withheld = "withheld",
    }
}

/// An attempt that runs though its start is not recorded yet: that of a `read` call is written with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveAttempt {
    /// Its number.
    pub attempt: AttemptNo,
    /// When it began.
    pub at: Timestamp,
}

/// The time that calls took which another one made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsideTime {
    /// When they were asked for.
    pub from: Timestamp,
    /// When the last of them ended; `None` if one is open.
    pub to: Option<Timestamp>,
}

/// The spans of a call, in the order in which they began, from the facts of its journal.
///
/// Attempts are as long as they ran by the clock that never jumps, so that their lengths add up to the recorded time of running.
/// `inside` finds the time of calls that were made under a name in a generation; `running` is the attempt that the journal does not know yet.
pub fn spans<'a>(
    facts: impl IntoIterator<Item = (Timestamp, &'a Fact)>,
    running: Option<LiveAttempt>,
    inside: &dyn Fn(&str, u32) -> Option<InsideTime>,
) -> Vec<TimeSpan> {
    let mut line = Timeline { spans: Vec::new(), open: None };
    for (at, fact) in facts {
        line.add(at, fact, inside);
    }
    if let Some(running) = running
        && line.open_kind() != Some(SpanKind::Attempt)
    {
        line.start(running.at, running.attempt);
    }
    line.spans
}

struct Timeline {
    spans: Vec<TimeSpan>,
    /// The place of the span that lasts. Spans of calls inside are never it.
    open: Option<usize>,
}

impl Timeline {
    fn add(&mut self, at: Timestamp, fact: &Fact, inside: &dyn Fn(&str, u32) -> Option<InsideTime>) {
        match fact {
            Fact::Opened(_) => self.begin(at, SpanKind::Queue),
            Fact::Started(started) => self.start(at, started.attempt),
            Fact::Resumed(resumed) => self.start(at, resumed.attempt),
            Fact::Returned(returned) => {
                let end = match returned.result {
                    Attempted::Ok(_) => SpanEnd::Ok,
                    Attempted::Failed(_) => SpanEnd::Failed,
                };
                self.ran(at, returned.ran_us, end);
            }
            Fact::Stopped(stopped) => self.ran(at, stopped.ran_us, SpanEnd::Stopped),
            Fact::Aborted(abort) => self.ran(at, abort.ran_us, SpanEnd::Aborted),
            Fact::Suspended(suspended) => {
                self.ran(at, suspended.ran_us, SpanEnd::Suspended);
                self.wait(at, suspended.parked);
            }
            Fact::Unconnected(said) => {
                self.ran(at, said.ran_us, SpanEnd::Unconnected);
                self.wait(at, said.parked);
            }
            Fact::Lost(_) => self.end_attempt(at, SpanEnd::Lost),
            Fact::Withheld(_) => {
                self.end_attempt(at, SpanEnd::Withheld);
                self.begin(at, SpanKind::Queue);
            }
            Fact::Parked(parked) => self.wait(at, *parked),
            Fact::ApprovalAsked(asked) => self.wait(at, asked.parked),
            Fact::SameAs(_) => self.begin_wait(at, Wait::SameAs),
            Fact::Accepted(_) | Fact::ApprovalAnswered(_) => self.leave_wait(at),
            Fact::Judged(judged) if judged.allowed => self.leave_wait(at),
            Fact::Connected(connected) if connected.connected => self.leave_wait(at),
            Fact::Ended(_) => self.close(at),
            Fact::Operation(operation) => {
                if let Did::Called { generation } = operation.did {
                    self.inside(&operation.name, inside(&operation.name, generation));
                }
            }
            Fact::Prepared(_)
            | Fact::Reconciled(_)
            | Fact::CancelAsked(_)
            | Fact::Resolved(_)
            | Fact::First
            | Fact::Connected(_)
            | Fact::Detached(_)
            | Fact::CopyFound
            | Fact::SetAside(_)
            | Fact::StartRefused
            | Fact::Judged(_) => {}
        }
    }

    /// Closes the open span and begins another.
    fn begin(&mut self, at: Timestamp, kind: SpanKind) {
        self.close(at);
        self.open = Some(self.spans.len());
        self.spans.push(TimeSpan {
            kind,
            from: at,
            to: None,
            attempt: None,
            end: None,
            why: None,
            name: None,
        });
    }

    fn start(&mut self, at: Timestamp, attempt: AttemptNo) {
        self.begin(at, SpanKind::Attempt);
        self.change(|span| span.attempt = Some(attempt));
    }

    fn wait(&mut self, at: Timestamp, parked: Parked) {
        if parked.reason == Reason::Retry {
            self.begin(at, SpanKind::Retry);
        } else {
            self.begin_wait(at, Wait::from(parked.reason));
        }
    }

    fn begin_wait(&mut self, at: Timestamp, why: Wait) {
        self.begin(at, SpanKind::Wait);
        self.change(|span| span.why = Some(why));
    }

    /// A wait is over, and the call is queued again; nothing if it did not wait.
    fn leave_wait(&mut self, at: Timestamp) {
        if self.open_kind() == Some(SpanKind::Wait) {
            self.begin(at, SpanKind::Queue);
        }
    }

    /// The attempt is over, and ran so long; or the wait of a tool that had returned is.
    fn ran(&mut self, at: Timestamp, ran_us: u64, end: SpanEnd) {
        let ran_us = i64::try_from(ran_us).unwrap_or(i64::MAX);
        match self.open_kind() {
            Some(SpanKind::Attempt) => {
                let from = self.open.map_or(at, |open| self.spans[open].from);
                self.end_attempt(Timestamp(from.0.saturating_add(ran_us)), end);
            }
            Some(SpanKind::Queue | SpanKind::Retry | SpanKind::Wait | SpanKind::Inside) | None => {
                self.close(at);
            }
        }
    }

    fn end_attempt(&mut self, at: Timestamp, end: SpanEnd) {
        self.change(|span| span.end = Some(end));
        self.close(at);
    }

    fn inside(&mut self, name: &str, found: Option<InsideTime>) {
        let Some(InsideTime { from, to }) = found else { return };
        let (kind, name) = (SpanKind::Inside, Some(name.to_string()));
        self.spans.push(TimeSpan { kind, from, to, attempt: None, end: None, why: None, name });
    }

    fn close(&mut self, at: Timestamp) {
        // A clock that was set back makes no span end before it began.
        self.change(|span| span.to = Some(at.max(span.from)));
        self.open = None;
    }

    fn change(&mut self, change: impl FnOnce(&mut TimeSpan)) {
        if let Some(span) = self.open.and_then(|open| self.spans.get_mut(open)) {
            change(span);
        }
    }

    fn open_kind(&self) -> Option<SpanKind> {
        self.open.and_then(|open| self.spans.get(open)).map(|span| span.kind)
    }
}
