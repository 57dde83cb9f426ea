//! Every limit under one roof, as users set them: those of this crate, declared here, and those of the crates below it, which
//! declare their own.

use serde::{Deserialize, Serialize};
use windlass_args::limits::{ArgLimits, NamedLimit};
use windlass_core::limits::CallLimits;
use windlass_store::limits::StoreLimits;

/// Takes the limits of this crate and goes on to those on arguments.
macro_rules! declare {
    ($($own:tt)+) => { windlass_args::arg_limits! { with_args; [$($own)+] } };
}

macro_rules! with_args {
    ([$($own:tt)+] $($args:tt)+) => { windlass_core::call_limits! { with_call; [$($own)+] [$($args)+] } };
}

macro_rules! with_call {
    ([$($own:tt)+] [$($args:tt)+] $($call:tt)+) => {
        windlass_store::store_limits! { join; [$($own)+] [$($args)+] [$($call)+] }
    };
}

/// Declares the joined struct, its parts, and the table of all.
macro_rules! join {
    (
        [$($(#[doc = $own_reason:literal])+ $own:ident = $own_default:expr;)+]
        [$($(#[doc = $arg_reason:literal])+ $arg:ident = $arg_default:expr;)+]
        [$($(#[doc = $call_reason:literal])+ $call:ident = $call_default:expr;)+]
        $($(#[doc = $store_reason:literal])+ $store:ident = $store_default:expr;)+
    ) => {
        /// The limits in force. Every field may be set in `windlass.toml` under `[limits]`.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[doc = $arg_reason])+ pub $arg: u64,)+
            $($(#[doc = $call_reason])+ pub $call: u64,)+
            $($(#[doc = $store_reason])+ pub $store: u64,)+
            $($(#[doc = $own_reason])+ pub $own: u64,)+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits {
                    $($arg: $arg_default,)+
                    $($call: $call_default,)+
                    $($store: $store_default,)+
                    $($own: $own_default,)+
                }
            }
        }

        impl Limits {
            /// The limits on arguments and results.
            pub fn args(&self) -> ArgLimits {
                ArgLimits { $($arg: self.$arg,)+ }
            }

            /// The limits of the rules of a call.
            pub fn call(&self) -> CallLimits {
                CallLimits { $($call: self.$call,)+ args: self.args() }
            }

            /// The limits of a store.
            pub fn store(&self) -> StoreLimits {
                StoreLimits { $($store: self.$store,)+ }
            }

            /// Every limit: its name, the value in force, and why it exists.
            pub fn table(&self) -> Vec<NamedLimit> {
                let mut table = self.args().table();
                table.extend(self.call().table());
                table.extend(self.store().table());
                table.extend([$(NamedLimit {
                    name: stringify!($own),
                    value: self.$own,
                    reason: concat!($($own_reason),+).trim_ascii(),
                }),+]);
                table
            }
        }
    };
}

declare! {
    /// A batch is answered as a whole, so its size bounds the memory of one answer.
    batch_calls_max = 256;
    /// How long a streamed batch waits for its next push, in milliseconds, before it is closed: its caller may be gone.
    stream_idle_ms = 300_000;
    /// Ids come from the model and are kept in every journal entry of the call.
    call_id_chars_max = 128;
    /// A key is chosen by the caller and kept with its batch for good.
    batch_key_chars_max = 256;
    /// Operations that a tool did by name are in memory while its call runs, and are read again for each replay.
    operations_max = 10_000;
    /// Above so many tools a model chooses worse and every request costs more: then those that allow it are deferred.
    catalog_tools_max = 15;
    /// Names and first lines of deferred tools stand in every request to the model.
    catalog_names_bytes_max = 16 << 10;
    /// Tools that a search reveals: each brings its schema into every later request.
    search_results_max = 8;
    /// Tools that stay revealed in a session: each is read whenever its tools are listed.
    revealed_tools_max = 200;
    /// Calls inside calls inside calls: deeper, a tool that calls itself has probably lost its way.
    nesting_max = 8;
    /// A session knows its children until they are removed, so there must be an end to them.
    children_max = 10_000;
    /// The names of the tools that a child session has are read whenever it is taken.
    child_tools_max = 500;
    /// A call that waits for an answer from outside and states no time waits a day, in milliseconds.
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
    /// The value of a secret: every text that leaves is searched for it in many encodings, which take memory.
    secret_bytes_max = 8 << 10;
    /// Secrets of a session, and of the data folder: every text that leaves is searched for all of them.
    secrets_max = 100;
    /// Kinds of events and of signals that a tool declares: each has a schema that is compiled once and kept.
    declared_kinds_max = 64;
    /// The payload of an event or a signal, as JSON, is kept in the journal of its call.
    payload_bytes_max = 64 << 10;
    /// Signals that have come and that their call has not received: a call that takes none keeps no more.
    signals_max = 1_000;
    /// The name of a provider that a session is connected to stands in commands and paths.
    provider_chars_max = 128;
    /// The address where a person connects a provider is kept in the journal of each call that needs it.
    setup_url_chars_max = 2_048;
    /// Stored bytes that nothing refers to are removed after so many milliseconds: a lost attempt may have left them.
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
    /// A folder that holds more is not listed: the list lies in memory.
    files_listed_max = 10_000;
    /// A larger file is read without its hash and the number of its lines, so that its end is read in constant time. Nor is it edited.
    file_hashed_bytes_max = 8 << 20;
    /// How much of a file `read_file` passes over on the way to a line: time, at some gigabytes a second.
    file_scanned_bytes_max = 4 << 30;
    /// Entries that `list_directory` shows at once.
    directory_entries_max = 200;
    /// Matches that `grep_files` shows at once.
    grep_matches_max = 200;
    /// Files that `grep_files` looks into; their paths lie in memory.
    grep_files_max = 200_000;
    /// The list of `write_todos` is written by a model, and read by people.
    todos_max = 100;
    /// A page that a tool fetches lies in memory while it is converted.
    fetch_bytes_max = 10_000_000;
    /// How long fetching a page may take with all its redirects, in milliseconds: a model waits for it.
    fetch_ms = 30_000;
    /// Redirects from page to page: a longer chain leads nowhere.
    fetch_redirects_max = 5;
    /// Output is stored in pieces of this size, so that a large one never lies whole in memory.
    chunk_bytes_max = 256 << 10;
    /// Sessions that are remembered as owned; past that the idle ones are let go and taken again when they are used.
    sessions_owned_max = 10_000;
    /// Connections with a token that are answered at once at each door of the server: each takes a descriptor and
    /// buffers. One principal has at most three quarters of them. As many more are for connections that have shown no
    /// token yet: when another comes, the oldest of these is closed.
    connections_max = 256;
    /// How long a request waits until its connection is one of `connections_max`, in milliseconds; then it is refused as
    /// overloaded.
    connection_wait_ms = 1_000;
    /// The line and the headers of a request, in bytes.
    header_bytes_max = 16 << 10;
    /// A client that takes longer to send the headers of a request, or is silent between two requests, is disconnected,
    /// in milliseconds.
    header_wait_ms = 10_000;
    /// A client that takes longer to send the body of a request, in milliseconds, holds a connection that others need.
    body_wait_ms = 30_000;
    /// A client that takes nothing of an answer for so long, in milliseconds, is disconnected.
    answer_stall_ms = 30_000;
    /// The body of a request with calls; it lies in memory while it is read. Smaller ones have `result_json_bytes_max`.
    batch_bytes_max = 32 << 20;
    /// Bodies of requests in memory at once, in bytes, and what they take once they are read. A quarter is for requests
    /// that need no token; one principal, or one completion key, has at most half of what is there for its kind.
    bodies_bytes_max = 256 << 20;
    /// How long the answer to a batch waits for its calls, in milliseconds, unless the request says so.
    wait_ms = 60_000;
    /// The longest that a request may ask to wait, in milliseconds: it holds a connection.
    wait_ms_max = 600_000;
    /// How long requests and running calls may go on when the server stops, in milliseconds; what is left goes on with
    /// the next owner.
    drain_ms = 10_000;
    /// Tokens there are; each is looked through when they are listed.
    tokens_max = 1_000;
    /// Requests of one token in a minute, unless the token says so: a client in a loop leaves room for others, and a process of a
    /// toolbox that makes three requests for each call is not slowed down.
    token_requests_per_minute = 120_000;
    /// A token that was read is trusted for so many milliseconds, unless one is revoked meanwhile.
    token_known_ms = 1_000;
    /// The title of a session stands in lists.
    session_title_chars_max = 200;
    /// The locale tag of a session: the longest that are in use are shorter.
    session_locale_chars_max = 64;
    /// Approvals that a session remembers: each is looked at whenever a person would be asked.
    remembered_max = 256;
    /// Grants of a session, revoked and used up ones included while they are listed.
    grants_max = 256;
    /// Copies of one grant: each is named in its record, and reached by its revocation.
    grant_copies_max = 256;
    /// How long a grant that is over stays, in milliseconds, once its session has `grants_max` of them: longer than calls that were
    /// made by it take.
    grant_kept_ms = 7 * 24 * 3_600_000;
    /// How long a person is waited for who says whether a call may run, in milliseconds, where no rule says so: longer than a
    /// look at the phone takes.
    approval_ms = 15 * 60_000;
    /// Labels of a session.
    session_labels_max = 32;
    /// A label's name, and its value.
    session_label_chars_max = 128;
    /// Tools that a session is opened with, hidden and added together: each is listed in every request to its model.
    session_tools_max = 128;
    /// The overlay that a session is opened with, in bytes: it is read and compiled whenever the session is taken.
    session_tools_bytes_max = 1 << 20;
    /// The longest that a call of a tool which a session brings may wait for its caller, in milliseconds.
    client_ms_max = 86_400_000;
    /// Bytes of images kept as artifacts that the messages of one turn carry to a model, in the order of the results; further
    /// images are named in text.
    wire_images_bytes_max = 16 << 20;
    /// Words that a task is tagged with.
    task_tags_max = 16;
    /// The last lines of a command's error output, told to the model when it fails.
    stderr_tail_bytes_max = 4 << 10;
    /// The response to a declared HTTP tool, in bytes: it lies in memory until it is stored.
    http_bytes_max = 10 << 20;
    /// Threads for tools that are not quick: one that blocks its thread takes one of these, never the runtime's.
    tool_threads_max = 8;
    /// Threads for tools that compute or block by declaration.
    blocking_threads_max = 64;
    /// How long a caller waits for a call that may go on in the background, in milliseconds from its first start, unless
    /// the tool or the caller says so: longer than most calls take, and shorter than a model should stand still.
    inline_ms = 300;
    /// How long a caller waits for the first start of such a call, in milliseconds.
    inline_queue_ms = 10_000;
    /// The log of a task keeps its beginning and its end, in equal parts, up to so many bytes in all.
    log_bytes_max = 256 << 10;
    /// The log of a running task is written at most once in so many milliseconds, so that a talkative one costs little.
    log_write_ms = 250;
    /// Open calls, and tasks, in the state of a session that a tool looks at.
    state_page = 100;
    /// Notices that are listed or taken at once; each is told with its outcome.
    notices_page = 100;
    /// Notices of a session that nobody has acknowledged; beyond that the oldest of a kind become one that lists their
    /// calls, since nobody reads so many.
    notices_queued_max = 10_000;
    /// Notices that become one together: it lists as many calls.
    notices_folded_max = 1_000;
    /// The longest that a notice is somebody's before it is taken again, in milliseconds: its reader may be gone.
    notice_lease_ms_max = 3_600_000;
    /// How long an acknowledged notice stays listed, in milliseconds: long enough to look up what an agent was told.
    notice_kept_ms = 86_400_000;
    /// The characters of the text of a notice that a host or a tool posts; its title has at most as many as that of a task.
    notice_chars_max = 10_000;
    /// Webhooks there are: each is compared with every notice, and each takes a row of it.
    webhooks_max = 64;
    /// The URL of a webhook, and its signing secret, in characters each.
    webhook_url_chars_max = 2_048;
    /// Principals that a webhook names.
    webhook_principals_max = 64;
    /// Messages of a session that wait for their delivery to webhooks; beyond that new ones are dropped and counted.
    webhook_queued_max = 10_000;
    /// How long a receiver may take to answer a delivery, in milliseconds.
    webhook_wait_ms = 10_000;
    /// Deliveries at once: each takes a connection and the memory of a body.
    webhook_sends_max = 16;
    /// Deliveries to one webhook at once, so that a slow receiver leaves room for the others.
    webhook_sends_each_max = 4;
    /// The wait before the second try of a delivery, in milliseconds; each further one is twice as long.
    webhook_retry_ms = 1_000;
    /// The longest wait between two tries, in milliseconds: a receiver that is back hears of everything that soon.
    webhook_retry_ms_max = 600_000;
    /// A message that could not be delivered for so long, in milliseconds, is given up and counted as failed.
    webhook_give_up_ms = 86_400_000;
    /// How often counts of deliveries are recorded, and how soon other workers know a new webhook, in milliseconds.
    webhook_known_ms = 1_000;
    /// Toolboxes there are.
    toolboxes_max = 256;
    /// Tools of one toolbox.
    toolbox_tools_max = 256;
    /// The manifest of a toolbox, in bytes.
    toolbox_manifest_bytes_max = 4_194_304;
    /// Processes that serve one toolbox.
    toolbox_workers_max = 1_024;
    /// Attempts that a process takes at once.
    toolbox_take_max = 256;
    /// Arguments that travel with an attempt, in bytes of their text; a process reads larger ones when it begins with the attempt.
    toolbox_args_bytes_max = 65_536;
    /// Attempts that one request of a process reports about.
    toolbox_reports_max = 1_024;
    /// How long a process of a toolbox may be silent, in milliseconds: then it has lost its attempts, and their classes decide.
    toolbox_silence_ms = 10_000;
    /// How long a request of a process waits for work or news, in milliseconds: less than the silence, so that its next one is in time.
    toolbox_wait_ms_max = 5_000;
    /// Schedules of a session that are enabled: each starts calls that nobody waits for.
    schedules_enabled_max = 5;
    /// Schedules of a session, enabled or not.
    schedules_max = 100;
    /// Next times of a schedule that are shown at once.
    schedule_preview_max = 100;
    /// The title, the cron expression, the time and the zone of a schedule, in characters each.
    schedule_text_chars_max = 256;
    /// Triggers of a session: each event is compared with all of them, and each may start a call.
    triggers_max = 32;
    /// How long the end of a stopped attempt is waited for, in milliseconds; then its thread is given up as stuck.
    stop_wait_ms = 1_000;
    /// Attempts of one tool that may block their threads at once; past that its calls are refused until one lets go.
    stuck_attempts_max = 4;
    /// How long a call that is suspected of killing its owner runs alone, in milliseconds, before the others go on.
    suspect_alone_ms = 10_000;
    /// After a death, how long every start is recorded before it is made, in milliseconds, so that the guilty is found.
    careful_ms = 600_000;
    /// A jump of the wall clock by more than this, in milliseconds, is recorded by each batch that is open then.
    clock_jump_ms = 5_000;
    /// The last output of a stopped attempt is kept up to so many bytes.
    partial_bytes_max = 16 << 10;
    /// Readers of events in the process; each is a connection that stays open.
    event_readers_max = 4_096;
    /// Readers of events are woken about once in so many milliseconds, those of busy sessions together, so that many of
    /// them cost little.
    event_frame_ms = 50;
    /// A followed session is checked every so many milliseconds for writes of another process.
    event_look_ms = 1_000;
    /// A stream of events that is silent for so long, in milliseconds, says that it is still there.
    event_keepalive_ms = 15_000;
    /// How long the answer to an MCP call without a progress token is held, in milliseconds: some clients give up after 5 s.
    mcp_hold_ms = 4_000;
    /// How long the answer to an MCP call with a progress token is held, in milliseconds: most clients wait for a minute.
    mcp_progress_hold_ms = 45_000;
    /// How often progress is reported while an answer is held, in milliseconds: clients that hear nothing give up.
    mcp_progress_ms = 10_000;
    /// How often an MCP client is asked to repeat a call that is not over: clients themselves stop after 10 rounds.
    mcp_rounds_max = 8;
    /// How long after its end an MCP call whose answer was not delivered is joined by an identical one, in milliseconds.
    mcp_join_ms = 600_000;
    /// An owner that `windlass mcp` has started leaves so long after the last message of an MCP client, in milliseconds, if no call is
    /// open and nothing is scheduled.
    mcp_owner_idle_ms = 600_000;
    /// How often MCP clients are told to look at a task, in milliseconds.
    mcp_poll_ms = 1_000;
    /// The tools on one page of an MCP list.
    mcp_tools_page = 500;
    /// How long an MCP server may take to be connected to and to list its tools, in milliseconds.
    mcp_connect_ms = 10_000;
    /// How long an MCP server may take to give a prompt or a resource that a client asked for, in milliseconds: nothing goes on behind it.
    mcp_forward_ms = 30_000;
    /// The prompts and resources that clients ask one MCP server for at once.
    mcp_forwards_max = 32;
    /// The resources of one MCP server whose changes clients hear of.
    mcp_subscriptions_max = 256;
    /// A message of an MCP server lies in memory while it is read. One that sends more is ended.
    mcp_message_bytes_max = 32 << 20;
    /// The tools of one MCP server; more of them are left out.
    mcp_server_tools_max = 1_000;
    /// The definition of a tool of an MCP server: a person has to read it.
    mcp_definition_bytes_max = 64 << 10;
    /// An event carries so much of arguments, results and messages; the call has the whole.
    event_text_bytes_max = 4 << 10;
    /// Messages for a session that its owner reads at once.
    inbound_page = 256;
    /// How often a worker of a store that several share says that it is alive, in milliseconds: a few times in a lease.
    heartbeat_ms = 2_000;
    /// How often a worker looks, in milliseconds, for what others have left for its sessions: a cancel comes within a
    /// second.
    knock_ms = 500;
    /// How long, in milliseconds, a request waits for the owner of its session to be reachable: longer than a lease, so that it outlasts
    /// the death of a worker.
    forward_wait_ms = 15_000;
    /// The bytes of a body that is kept while another worker is asked, so that it can be sent again; longer ones are sent once.
    forward_kept_bytes_max = 64 << 10;
    /// Records of workers, and of what was left for one, that are read at once.
    workers_page = 256;
    /// The bytes of a stored version of the policy: a version is one record of the store.
    policy_bytes_max = 60 << 10;
    /// Versions of the policy that are kept, for those who ask which rules were in force when.
    policy_versions_max = 1_000;
    /// How long a change of the policy waits, in milliseconds, until every worker has it: longer than a worker that has died
    /// keeps its lease.
    policy_acknowledge_ms = 30_000;
    /// Rows of a session that are removed at once; others write in between.
    removed_rows_max = 512;
    /// Milliseconds between two looks for records that expire. A look at a large store is followed by a longer rest.
    retention_every_ms = 10_000;
    /// Batches of a session that expire in one change; its calls wait for the change at most.
    retention_batches_max = 64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_limit_has_a_reason_and_a_value() {
        let mut names = BTreeSet::new();
        for NamedLimit { name, value, reason } in Limits::default().table() {
            assert!(names.insert(name), "{name} is declared twice");
            assert!(value > 0, "{name} is zero");
            assert!(reason.ends_with('.'), "{name}: its reason is a sentence: {reason:?}");
            let is_indirect = ["What", "Who", "The same"].iter().any(|word| reason.starts_with(word));
            assert!(!is_indirect, "{name}: its reason begins with its subject: {reason:?}");
        }
    }

    #[test]
    fn parts_have_the_values_in_force() {
        let limits =
            Limits { args_depth_max: 3, calls_running_max: 4, wal_bytes_max: 5, ..Limits::default() };
        assert_eq!((limits.args().args_depth_max, limits.call().args.args_depth_max), (3, 3));
        assert_eq!((limits.call().calls_running_max, limits.store().wal_bytes_max), (4, 5));
        let by_name = |name| limits.table().iter().find(|limit| limit.name == name).map(|limit| limit.value);
        assert_eq!(
            ["args_depth_max", "calls_running_max", "wal_bytes_max"].map(by_name),
            [Some(3), Some(4), Some(5)]
        );
    }
}
