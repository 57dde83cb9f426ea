//! Limits of the rules of a call, each with its reason.

use windlass_args::limits;
use windlass_args::limits::ArgLimits;

/// The limits that this crate enforces, for a macro that declares or joins limits: see `windlass_args::arg_limits`.
#[macro_export]
macro_rules! call_limits {
    ($($to:ident)::+; $($before:tt)*) => { $($to)::+! { $($before)*
        /// Equal calls with equal results in so many batches in a row make no progress: the next batch is not run.
        loop_batches_max = 5;
        /// A cycle of two to four such batches gets nowhere once it was gone through so often.
        loop_cycles_max = 3;
        /// How far back the loop guard looks; it is kept in memory for every session that is in use.
        loop_calls_max = 64;
        /// One answer takes at most so many bytes of a model's context.
        answer_bytes_max = 50 << 10;
        /// One answer takes at most so many lines of a model's context.
        answer_lines_max = 2_000;
        /// The largest budget of bytes that a tool, a session or a call may give its answers: an answer lies in the journal.
        answer_budget_bytes_max = 1 << 20;
        /// The largest budget of lines that a tool, a session or a call may give its answers.
        answer_budget_lines_max = 50_000;
        /// Parts of one result, answer or failure; each is recorded, and a model looks at few images at once.
        answer_parts_max = 1_000;
        /// Calls that run at once; what waits costs little, what runs takes threads, sockets and memory.
        calls_running_max = 64;
        /// Tasks that run at once, apart from calls, so that neither keeps the other from starting.
        tasks_running_max = 64;
        /// Calls of one session that run at once, so that one session cannot fill the process.
        session_calls_running_max = 32;
        /// Tasks of one session that run at once; a model that starts them in a loop waits for its own.
        session_tasks_running_max = 5;
        /// Calls that wait for a claim or for room; past that a batch is refused as overloaded.
        calls_queued_max = 10_000;
        /// Calls of one session that wait for a claim or for room; past that a batch of this session is refused, and no
        /// other.
        session_calls_queued_max = 1_000;
        /// Calls that are parked; past that a batch is refused as overloaded.
        calls_parked_max = 1_000_000;
        /// Claims of one call: each is looked at when it starts and when it ends.
        claims_max = 64;
        /// Levels of a claim's name: each is a place in the tree of what is claimed.
        claim_levels_max = 32;
        /// A claim's name is kept while its call is open.
        claim_name_bytes_max = 1_024;
        /// How much earlier a call may have come and still be passed by one that is one priority above; a call that waits
        /// longer is passed by no more of them, so nothing waits forever.
        priority_lead_ms = 10_000;
        /// The shortest time to come back that is told when overloaded, so that callers do not come back at once.
        overload_wait_ms_min = 100;
        /// The longest time to come back that is told when overloaded; beyond it an estimate means nothing.
        overload_wait_ms_max = 60_000;
        /// How long a call may wait for its first start, in milliseconds, unless its tool says so.
        queue_ms = 600_000;
        /// How often a schedule may come round, in milliseconds between two times.
        schedule_interval_ms_min = 60_000;
        /// Times of a schedule that are made up for at once, after nobody was there.
        schedule_catch_up_max = 10;
        /// A time of a schedule that is so many milliseconds late was missed, and is handled by the schedule's catch-up
        /// rule.
        schedule_late_ms = 60_000;
        /// Missed times of a schedule that are counted; of those before them nothing is told.
        schedule_missed_max = 1_000;
        /// Places of an event that a trigger looks at.
        trigger_conditions_max = 16;
        /// Rules of a policy; those that name no tool are looked at by every call.
        policy_rules_max = 1_000;
        /// Conditions of one rule; each is compared with every call that the conditions before it let through.
        policy_conditions_max = 32;
        /// Texts, numbers or globs in one list of a rule; each is compared in turn.
        policy_values_max = 256;
        /// A text in a rule: it is shown to people, and a glob takes time in proportion to it.
        policy_text_bytes_max = 1_024;
        /// The longest time, in milliseconds, that a rule may give people to answer; beyond it a question is forgotten, not open.
        policy_ask_ms_max = 2_592_000_000;
        /// The uses of one grant: each is a record of its session.
        grant_uses_max = 10_000;
        /// The binding of a grant, in bytes: it is a part of one record.
        grant_binding_bytes_max = 8_192;
        /// How long one attempt may take, in milliseconds, unless the tool says so.
        attempt_ms = 30_000;
        /// How long a call may take in all, in milliseconds, unless its tool says so.
        total_ms = 600_000;
        /// How long one attempt of a task may take, in milliseconds, unless its tool says so: nobody waits for it.
        task_attempt_ms = 3_600_000;
        /// How long an attempt of a task may give no sign of life, in milliseconds, unless its tool says so: nobody
        /// watches it.
        task_silence_ms = 600_000;
        /// How long a task may take in all, in milliseconds, unless its tool says so.
        task_total_ms = 86_400_000;
        /// How long a tool may go on after it was told to stop, in milliseconds, unless it says so.
        grace_ms = 50;
        /// How often a call that may be repeated is tried, unless its tool says so.
        retry_attempts = 3;
        /// The longest wait before a second attempt, in milliseconds, unless the tool says so; it doubles with each.
        retry_base_ms = 200;
        /// The longest wait before an attempt, in milliseconds, unless the tool says so.
        retry_cap_ms = 30_000;
        /// A call under which the owner died so often is set aside: it is probably what killed it.
        deaths_max = 3;
    } };
}

call_limits! { limits;
    /// Limits of the rules of a call, with those on its arguments.
    struct CallLimits { args: ArgLimits }
}
