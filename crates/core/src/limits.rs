//! Every named maximum, with its reason. Nothing in Windlass queues, buffers, pages or nests beyond one of these.

/// Declares the limits once: the struct, its defaults, and the table that `windlass doctor` prints.
macro_rules! limits {
    ($($(#[doc = $reason:literal])+ $name:ident = $default:expr;)+) => {
        /// The limits in force. Every field may be set in `windlass.toml` under `[limits]`.
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $reason])+ pub $name: u64,)+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// Every limit: its name, the value in force, and why it exists.
            pub fn table(&self) -> Vec<(&'static str, u64, &'static str)> {
                vec![$((stringify!($name), self.$name, concat!($($reason),+).trim_ascii())),+]
            }
        }
    };
}

limits! {
    /// A batch is answered as a whole, so its size bounds the memory of one answer.
    batch_calls_max = 256;
    /// How long a streamed batch waits for its next push, in milliseconds, before it is closed: its caller may be gone.
    stream_idle_ms = 300_000;
    /// Ids come from the model and are kept in every journal entry of the call.
    call_id_chars_max = 128;
    /// A key is chosen by the caller and kept with its batch for good.
    batch_key_chars_max = 256;
    /// Arguments are held in memory while a call is open.
    args_bytes_max = 1 << 20;
    /// Nested deeper, arguments cannot be walked by everything that must walk them.
    args_depth_max = 64;
    /// A schema is compiled once and kept while its tool is registered.
    schema_bytes_max = 256 << 10;
    /// Compiling recurses with the schema, so its depth bounds the stack.
    schema_depth_max = 64;
    /// References may double at each level; this bounds what they unfold to.
    schema_nodes_max = 10_000;
    /// Schema nodes times argument nodes bounds the time of one validation.
    validation_work_max = 5_000_000;
    /// Values, counted as often as the schema looks at them, of which all problems are told: of larger ones only the first
    /// is, since collecting a hundred thousand takes longer than a call should.
    explained_values_max = 20_000;
    /// A model reads the first problems and repairs; more would only fill its context.
    problems_max = 10;
    /// Every repair is recorded with its call; arguments that need more are wrong, not misspelt.
    repairs_max = 100;
    /// The same calls with the same results in so many batches in a row get nowhere: the next is not run.
    loop_batches_max = 5;
    /// A cycle of two to four such batches gets nowhere once it was gone through so often.
    loop_cycles_max = 3;
    /// How far back the loop guard looks; it is kept in memory for every session that is in use.
    loop_calls_max = 64;
    /// What a tool did by name is in memory while its call runs, and is read again for each replay.
    operations_max = 10_000;
    /// Calls inside calls inside calls: deeper, a tool that calls itself has probably lost its way.
    nesting_max = 8;
    /// A session knows its children until they are removed, so there must be an end to them.
    children_max = 10_000;
    /// The names of the tools that a child session has are read whenever it is taken.
    child_tools_max = 500;
    /// Whoever waits for an answer from outside and says nothing waits a day, in milliseconds.
    completion_ms = 86_400_000;
    /// A caller that runs a tool itself and posts no result for so long, in milliseconds, is gone.
    client_ms = 300_000;
    /// A question is read by a person, and kept in the journal of its call.
    question_chars_max = 10_000;
    /// The title of a task is one line in a table.
    title_chars_max = 200;
    /// The key of a key-value pair stands in paths and in an index; longer ones no store takes.
    pair_key_bytes_max = 256;
    /// The value of a pair, as JSON, is recorded with whatever reads it; larger ones no store takes: keep an artifact.
    pair_value_bytes_max = 64 << 10;
    /// The pairs of a session are kept until they are deleted, so there must be an end to them.
    pairs_max = 10_000;
    /// Keys that are listed at once.
    pairs_page = 1_000;
    /// Kinds of events and of signals that a tool declares: each has a schema that is compiled once and kept.
    declared_kinds_max = 64;
    /// What an event or a signal says, as JSON, is kept in the journal of its call.
    payload_bytes_max = 64 << 10;
    /// Signals that have come and that their call has not received: a call that takes none keeps no more.
    signals_max = 1_000;
    /// The name of what a session is connected to stands in commands and paths.
    provider_chars_max = 128;
    /// The address where a person connects it is kept in the journal of each call that needs it.
    setup_url_chars_max = 2_048;
    /// What one answer may take of a model's context, in bytes.
    answer_bytes_max = 50 << 10;
    /// What one answer may take of a model's context, in lines.
    answer_lines_max = 2_000;
    /// Larger results stay bytes: parsing them would multiply their size in memory.
    result_json_bytes_max = 8 << 20;
    /// One output kept whole; a tool that writes more is stopped, so that it cannot fill the disk.
    artifact_bytes_max = 2 << 30;
    /// What is kept and nothing refers to is removed after so long, in milliseconds: an attempt that was lost may have left it.
    artifact_loose_ms = 3_600_000;
    /// Media types under which the same bytes are kept; under more they are kept a second time.
    artifact_media_types_max = 16;
    /// The media type of an artifact stands in the header of an answer.
    media_type_chars_max = 128;
    /// A file of a session lies in memory while it is read or written whole.
    file_bytes_max = 64 << 20;
    /// The path of a file stands in addresses and messages.
    file_path_bytes_max = 1_024;
    /// Folders in folders of a session: each level is opened on the way to a file.
    file_levels_max = 32;
    /// What a folder may hold and still be listed: the list lies in memory.
    files_listed_max = 10_000;
    /// Output is stored in pieces of this size, so that a large one never lies whole in memory.
    chunk_bytes_max = 256 << 10;
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
    /// Sessions that are remembered as owned; past that the idle ones are let go and taken again when they are used.
    sessions_owned_max = 10_000;
    /// Connections that are answered at once at each door of the server; each takes a descriptor and buffers, the next ones
    /// wait to be let in.
    connections_max = 256;
    /// The line and the headers of a request, in bytes.
    header_bytes_max = 16 << 10;
    /// Whoever takes longer to send the headers of a request, or says nothing between two, is let go, in milliseconds.
    header_wait_ms = 10_000;
    /// Whoever takes longer to send the body of a request holds a connection that others need, in milliseconds.
    body_wait_ms = 30_000;
    /// Whoever takes nothing of an answer for so long, in milliseconds, is let go.
    answer_stall_ms = 30_000;
    /// The body of a request with calls; it lies in memory while it is read. Smaller ones have `result_json_bytes_max`.
    batch_bytes_max = 32 << 20;
    /// Bodies of requests that are in memory at once, in bytes; a quarter is for requests that need no token.
    bodies_bytes_max = 256 << 20;
    /// How long the answer to a batch waits for its calls, in milliseconds, unless the request says so.
    wait_ms = 60_000;
    /// The longest that a request may ask to wait, in milliseconds: it holds a connection.
    wait_ms_max = 600_000;
    /// How long requests and running calls may go on when the server stops, in milliseconds; what is left goes on with the
    /// next owner.
    drain_ms = 10_000;
    /// Tokens there are; each is looked through when they are listed.
    tokens_max = 1_000;
    /// Requests of one token in a minute, unless the token says so.
    token_requests_per_minute = 6_000;
    /// How long what was read of a token counts, in milliseconds: so soon it is revoked everywhere.
    token_known_ms = 1_000;
    /// The title of a session stands in lists.
    session_title_chars_max = 200;
    /// Labels of a session.
    session_labels_max = 32;
    /// A label's name, and its value.
    session_label_chars_max = 128;
    /// The last lines of a command's error output, told to the model when it fails.
    stderr_tail_bytes_max = 4 << 10;
    /// Threads for tools that are not quick: one that blocks its thread takes one of these, never the runtime's.
    tool_threads_max = 8;
    /// Threads for tools that compute or block by declaration.
    blocking_threads_max = 64;
    /// How long a call may wait for its first start, in milliseconds, unless its tool says so.
    queue_ms = 600_000;
    /// How long a caller waits for a call that may go on in the background, in milliseconds from its first start, unless the
    /// tool or the caller says so: longer than most calls take, and shorter than a model should stand still.
    inline_ms = 300;
    /// How long a caller waits for the first start of such a call, in milliseconds.
    inline_queue_ms = 10_000;
    /// What is kept of what a task says, in bytes: the beginning and the end of it, in equal parts.
    log_bytes_max = 256 << 10;
    /// What a running task says is written at most once in so many milliseconds, so that a talkative one costs little.
    log_write_ms = 250;
    /// Notices that are listed or taken at once; each is told with its outcome.
    notices_page = 100;
    /// The longest that a notice is somebody's before it is taken again, in milliseconds: its reader may be gone.
    notice_lease_ms_max = 3_600_000;
    /// Schedules of a session that are enabled: each starts calls that nobody waits for.
    schedules_enabled_max = 5;
    /// Schedules of a session, enabled or not.
    schedules_max = 100;
    /// How often a schedule may come round, in milliseconds between two times.
    schedule_interval_ms_min = 60_000;
    /// Times of a schedule that are made up for at once, after nobody was there.
    schedule_catch_up_max = 10;
    /// A time of a schedule that is so many milliseconds late was missed: what becomes of it its catch-up says.
    schedule_late_ms = 60_000;
    /// Missed times of a schedule that are counted; of those before them nothing is told.
    schedule_missed_max = 1_000;
    /// Next times of a schedule that are shown at once.
    schedule_preview_max = 100;
    /// How long what people call a schedule may be, its cron, its time and its zone, in characters each.
    schedule_text_chars_max = 256;
    /// Triggers of a session: each event is compared with all of them, and each may start a call.
    triggers_max = 32;
    /// Places of an event that a trigger looks at.
    trigger_conditions_max = 16;
    /// How long one attempt may take, in milliseconds, unless the tool says so.
    attempt_ms = 30_000;
    /// How long a call may take in all, in milliseconds, unless its tool says so.
    total_ms = 600_000;
    /// How long a tool may go on after it was told to stop, in milliseconds, unless it says so.
    grace_ms = 50;
    /// How long the end of a stopped attempt is waited for, in milliseconds; then its thread is given up as stuck.
    stop_wait_ms = 1_000;
    /// Attempts of one tool that may block their threads at once; past that its calls are refused until one lets go.
    stuck_attempts_max = 4;
    /// How often a call that may be repeated is tried, unless its tool says so.
    retry_attempts = 3;
    /// The longest wait before a second attempt, in milliseconds, unless the tool says so; it doubles with each.
    retry_base_ms = 200;
    /// The longest wait before an attempt, in milliseconds, unless the tool says so.
    retry_cap_ms = 30_000;
    /// A call under which the owner died so often is set aside: it is probably what killed it.
    deaths_max = 3;
    /// How long a call that is suspected of killing its owner runs alone, in milliseconds, before the others go on.
    suspect_alone_ms = 10_000;
    /// After a death, how long every start is recorded before it is made, in milliseconds, so that the guilty is found.
    careful_ms = 600_000;
    /// A jump of the wall clock by more than this, in milliseconds, is recorded by the calls that waited through it.
    clock_jump_ms = 5_000;
    /// What is kept of the last output of an attempt that was stopped, in bytes.
    partial_bytes_max = 16 << 10;
    /// Readers of events in the process; each is a connection that stays open.
    event_readers_max = 4_096;
    /// Readers of events are woken about once in so many milliseconds, those of busy sessions together, so that many of them cost
    /// little.
    event_frame_ms = 50;
    /// How often, in milliseconds, is looked whether another process wrote to a session that is followed here.
    event_look_ms = 1_000;
    /// A stream of events that is silent for so long, in milliseconds, says that it is still there.
    event_keepalive_ms = 15_000;
    /// So much of arguments, results and messages is told with an event; the call has the whole.
    event_text_bytes_max = 4 << 10;
    /// Messages for a session that its owner reads at once.
    inbound_page = 256;
    /// How often a worker of a store that several share says that it is alive, in milliseconds: a few times in a lease.
    heartbeat_ms = 2_000;
    /// A worker that was not heard of for so long, in milliseconds, owns nothing any more: a pause that is shorter costs nothing.
    lease_ms = 10_000;
    /// How often a worker looks, in milliseconds, for what others have left for its sessions: a cancel comes within a second.
    knock_ms = 500;
    /// Records of workers, and of what was left for one, that are read at once.
    workers_page = 256;
    /// Rows of a session that are removed at once; others write in between.
    removed_rows_max = 512;
    /// Changes that share one commit; more would make the first of them wait for the last.
    group_changes_max = 1_024;
    /// Past this size of the write-ahead log the writer waits for a checkpoint, so that the log stays bounded.
    wal_bytes_max = 64 << 20;
    /// Kept free on the disk, and used when it is full, so that running work can end.
    ballast_bytes = 1 << 20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_reason_and_a_value() {
        for (name, value, reason) in Limits::default().table() {
            assert!(value > 0, "{name} is zero");
            assert!(reason.ends_with('.'), "{name}: its reason is a sentence: {reason:?}");
        }
    }
}
