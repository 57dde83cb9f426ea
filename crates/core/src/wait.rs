//! Kinds of waits: one list, from which its state, the words for programs and the sentences for the model are made.

use crate::call::Reason;
use windlass_args::named;

named! {
    /// A kind of wait of a call.
    Wait {
        /// For earlier calls that claim the same.
        Claim = "claim",
        /// For room under a limit.
        Limit = "limit",
        /// For a rate.
        Rate = "rate",
        /// For nothing but its start.
        Turn = "turn",
        /// For a hook, its tool or the tool's provider, before its start.
        Preparation = "preparation",
        /// For the answer of a call that is the same.
        SameAs = "same_as",
        /// For the calls that its tool has made.
        Nested = "nested",
        /// For a process that drives its session.
        Owner = "owner",
        /// For its next attempt.
        Retry = "retry",
        /// For an operator who accepts what its tool has become.
        ToolChanged = "tool_changed",
        /// For its tool.
        NoSuchTool = "no_such_tool",
        /// For an operator who resumes its tool.
        ToolPaused = "tool_paused",
        /// For a process that serves its toolbox.
        NoWorker = "no_worker",
        /// For a time.
        Sleep = "sleep",
        /// For the holder of a key that its tool gave out.
        Completion = "completion",
        /// For a person who answers a question.
        Input = "input",
        /// For a person who connects what its tool needs.
        Connection = "connection",
        /// For its caller, who runs the tool.
        Client = "client",
        /// For a signal.
        Signal = "signal",
        /// For a task, or for a named event of its session.
        Awaited = "awaited",
        /// For a person who says whether it may run.
        Approval = "approval",
    }
}

impl Wait {
    /// The sentence by which the model is told of it.
    pub fn sentence(self) -> &'static str {
        match self {
            Wait::Claim => "The call waits until earlier calls that it must not overtake are over.",
            Wait::Limit => "The call waits until fewer calls are running.",
            Wait::Rate => "The call waits because its tool may only be started so often.",
            Wait::Turn => "The call waits for its start.",
            Wait::Preparation => "The call waits until what looks at it before its start has answered.",
            Wait::SameAs => "The call waits for the answer of an earlier call that is the same.",
            Wait::Nested => "The call waits for calls that its tool has made.",
            Wait::Owner => "The call waits until a process continues its session.",
            Wait::Retry => "The call failed and waits for its next attempt.",
            Wait::ToolChanged => "The call waits until an operator accepts that its tool has changed.",
            Wait::NoSuchTool => "The call waits until its tool is there again.",
            Wait::ToolPaused => "The call waits until its tool is resumed.",
            Wait::NoWorker => "The call waits for a process that serves the toolbox of its tool.",
            Wait::Sleep => "The call sleeps.",
            Wait::Completion => "The call waits for an answer from outside.",
            Wait::Input => "The call waits until a person has answered its question.",
            Wait::Connection => "The call waits until a person has connected what its tool needs.",
            Wait::Client => "The call waits for its caller, who runs the tool and posts the result.",
            Wait::Signal => "The call waits for a signal.",
            Wait::Awaited => "The call waits for a task, or for an event of its session.",
            Wait::Approval => "The call waits until a person has approved or denied it.",
        }
    }

    /// The sentence by which the model is told that a deadline passed meanwhile; nothing where the deadline says it all.
    pub fn in_vain(self) -> &'static str {
        match self {
            Wait::Claim | Wait::Limit | Wait::Rate | Wait::Turn | Wait::Preparation => "",
            Wait::Nested | Wait::Owner => "",
            Wait::SameAs => " It waited for a call that is the same.",
            Wait::Retry => " It waited for its next attempt.",
            Wait::ToolChanged => " Its tool had changed, and no operator accepted that.",
            Wait::NoSuchTool => " Its tool was not there.",
            Wait::ToolPaused => " Its tool was paused.",
            Wait::NoWorker => " No process served the toolbox of its tool.",
            Wait::Sleep => " It slept.",
            Wait::Completion => " It waited for an answer from outside.",
            Wait::Input => " It had asked a person.",
            Wait::Connection => " It waited for a connection.",
            Wait::Client => " It waited for its caller, who runs the tool.",
            Wait::Signal => " It waited for a signal.",
            Wait::Awaited => " It waited for a task, or for an event of its session.",
            Wait::Approval => " Nobody approved or denied it.",
        }
    }

    /// The state of a call whose attempt is put aside for it.
    pub fn state(self) -> &'static str {
        match self {
            Wait::Completion | Wait::Signal | Wait::Awaited => "awaiting_completion",
            Wait::Input => "awaiting_input",
            Wait::Client => "awaiting_client",
            Wait::Connection => "awaiting_connection",
            Wait::Approval => "awaiting_approval",
            Wait::Retry => "retrying",
            Wait::Claim | Wait::Limit | Wait::Rate | Wait::Turn | Wait::Preparation | Wait::SameAs => {
                "queued"
            }
            Wait::Nested | Wait::Owner | Wait::Sleep => "running",
            Wait::ToolChanged | Wait::NoSuchTool | Wait::ToolPaused | Wait::NoWorker => "running",
        }
    }
}

impl From<Reason> for Wait {
    fn from(reason: Reason) -> Wait {
        match reason {
            Reason::Retry => Wait::Retry,
            Reason::ToolChanged => Wait::ToolChanged,
            Reason::NoSuchTool => Wait::NoSuchTool,
            Reason::ToolPaused => Wait::ToolPaused,
            Reason::NoWorker => Wait::NoWorker,
            Reason::Sleep => Wait::Sleep,
            Reason::Completion => Wait::Completion,
            Reason::Input => Wait::Input,
            Reason::Connection => Wait::Connection,
            Reason::Client => Wait::Client,
            Reason::Signal => Wait::Signal,
            Reason::Awaited => Wait::Awaited,
            Reason::Approval => Wait::Approval,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_wait_has_the_same_word_everywhere() {
        for reason in Reason::ALL {
            assert_eq!(Wait::from(*reason).as_str(), reason.as_str());
        }
    }

    #[test]
    fn no_two_waits_are_told_alike() {
        let sentences: std::collections::BTreeSet<_> = Wait::ALL.iter().map(|wait| wait.sentence()).collect();
        assert_eq!(sentences.len(), Wait::ALL.len());
    }
}
