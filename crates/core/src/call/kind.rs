//! The kinds of facts, and how they are named to people.

use super::fact::Fact;
use crate::operation::Did;
use windlass_args::named;

named! {
    /// The kind of a fact, as it is named to people.
    Kind {
        /// [`Fact::Opened`]
        Opened = "opened",
        /// [`Fact::Prepared`]
        Prepared = "prepared",
        /// [`Fact::Started`]
        Started = "started",
        /// [`Fact::Lost`]
        Lost = "lost",
        /// [`Fact::Returned`]
        Returned = "returned",
        /// [`Fact::Ended`]
        Ended = "ended",
        /// [`Fact::Stopped`]
        Stopped = "stopped",
        /// [`Fact::Reconciled`]
        Reconciled = "reconciled",
        /// [`Fact::Parked`]
        Parked = "parked",
        /// [`Fact::CancelAsked`]
        CancelAsked = "cancel_asked",
        /// [`Fact::Accepted`]
        Accepted = "accepted",
        /// [`Fact::Resolved`]
        Resolved = "resolved",
        /// [`Fact::SameAs`]
        SameAs = "same_as",
        /// [`Fact::First`]
        First = "first",
        /// [`Did::StepStarted`]
        StepStarted = "step_started",
        /// [`Did::StepEnded`]
        StepEnded = "step_ended",
        /// [`Did::SleepBegan`]
        SleepBegan = "sleep_began",
        /// [`Did::SleepEnded`]
        SleepEnded = "sleep_ended",
        /// [`Did::KeyTaken`]
        KeyTaken = "key_taken",
        /// [`Did::WaitBegan`]
        WaitBegan = "wait_began",
        /// [`Did::Completed`]
        Completed = "completed",
        /// [`Did::TimedOut`]
        TimedOut = "timed_out",
        /// [`Did::Called`]
        Called = "called",
        /// [`Did::Asked`]
        Asked = "asked",
        /// [`Did::PairsRead`]
        PairsRead = "pairs_read",
        /// [`Did::PairWritten`]
        PairWritten = "pair_written",
        /// [`Did::Emitted`]
        Emitted = "emitted",
        /// [`Did::SignalAwaited`]
        SignalAwaited = "signal_awaited",
        /// [`Did::Signalled`]
        Signalled = "signalled",
        /// [`Did::Attached`]
        Attached = "attached",
        /// [`Fact::Suspended`]
        Suspended = "suspended",
        /// [`Fact::Resumed`]
        Resumed = "resumed",
        /// [`Fact::Unconnected`]
        Unconnected = "unconnected",
        /// [`Fact::Connected`]
        Connected = "connected",
        /// [`Did::Spawned`]
        Spawned = "spawned",
        /// [`Did::ChildOpened`]
        ChildOpened = "child_opened",
        /// [`Did::Said`]
        Said = "said",
        /// [`Did::Awaited`]
        Awaited = "awaited",
        /// [`Did::EventPlanned`]
        EventPlanned = "event_planned",
        /// [`Did::Handed`]
        Handed = "handed",
        /// [`Fact::Detached`]
        Detached = "detached",
        /// [`Fact::CopyFound`]
        CopyFound = "copy_found",
        /// [`Fact::SetAside`]
        SetAside = "set_aside",
        /// [`Fact::Aborted`]
        Aborted = "aborted",
        /// [`Fact::StartRefused`]
        StartRefused = "start_refused",
        /// [`Fact::Judged`]
        Judged = "judged",
        /// [`Fact::ApprovalAsked`]
        ApprovalAsked = "approval_asked",
        /// [`Fact::ApprovalAnswered`]
        ApprovalAnswered = "approval_answered",
        /// [`Fact::Withheld`]
        Withheld = "withheld",
    }
}

impl Fact {
    /// Its kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Fact::Opened(_) => Kind::Opened,
            Fact::Prepared(_) => Kind::Prepared,
            Fact::Started(_) => Kind::Started,
            Fact::Lost(_) => Kind::Lost,
            Fact::Returned(_) => Kind::Returned,
            Fact::Ended(_) => Kind::Ended,
            Fact::Stopped(_) => Kind::Stopped,
            Fact::Reconciled(_) => Kind::Reconciled,
            Fact::Parked(_) => Kind::Parked,
            Fact::CancelAsked(_) => Kind::CancelAsked,
            Fact::Accepted(_) => Kind::Accepted,
            Fact::Resolved(_) => Kind::Resolved,
            Fact::SameAs(_) => Kind::SameAs,
            Fact::First => Kind::First,
            Fact::Operation(operation) => match operation.did {
                Did::StepStarted { .. } => Kind::StepStarted,
                Did::StepEnded { .. } => Kind::StepEnded,
                Did::SleepBegan(_) => Kind::SleepBegan,
                Did::SleepEnded => Kind::SleepEnded,
                Did::KeyTaken => Kind::KeyTaken,
                Did::WaitBegan(_) => Kind::WaitBegan,
                Did::Completed(_) => Kind::Completed,
                Did::TimedOut => Kind::TimedOut,
                Did::Called { .. } => Kind::Called,
                Did::Asked(_) => Kind::Asked,
                Did::PairsRead { .. } => Kind::PairsRead,
                Did::PairWritten { .. } => Kind::PairWritten,
                Did::Emitted { .. } => Kind::Emitted,
                Did::SignalAwaited(_) => Kind::SignalAwaited,
                Did::Signalled { .. } => Kind::Signalled,
                Did::Attached { .. } => Kind::Attached,
                Did::Spawned { .. } => Kind::Spawned,
                Did::ChildOpened { .. } => Kind::ChildOpened,
                Did::Said { .. } => Kind::Said,
                Did::Awaited { .. } => Kind::Awaited,
                Did::EventPlanned { .. } => Kind::EventPlanned,
                Did::Handed(_) => Kind::Handed,
            },
            Fact::Suspended(_) => Kind::Suspended,
            Fact::Resumed(_) => Kind::Resumed,
            Fact::Unconnected(_) => Kind::Unconnected,
            Fact::Connected(_) => Kind::Connected,
            Fact::Detached(_) => Kind::Detached,
            Fact::CopyFound => Kind::CopyFound,
            Fact::SetAside(_) => Kind::SetAside,
            Fact::Aborted(_) => Kind::Aborted,
            Fact::StartRefused => Kind::StartRefused,
            Fact::Judged(_) => Kind::Judged,
            Fact::ApprovalAsked(_) => Kind::ApprovalAsked,
            Fact::ApprovalAnswered(_) => Kind::ApprovalAnswered,
            Fact::Withheld(_) => Kind::Withheld,
        }
    }
}
