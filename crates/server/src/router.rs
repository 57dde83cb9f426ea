//! The whole surface on one screen. Each line is a route: method, path, scope, handler, name, request, response,
//! and the problems of its own. The router, the scopes and the OpenAPI description are made from it.

use crate::access::{self, Caller, Entrance, Shows, TokenScope, WantedThing};
use crate::api::Api;
use crate::bodies::RequestRoom;
use crate::changes;
use crate::events::{self, Follow};
use crate::guest::Guest;
use crate::metrics;
use crate::page;
use crate::problem::{Problem, ProblemCode};
use crate::routes::{
    approvals, artifacts, asks, batches, calls, files, grants, health, logins, mcp, overview, pairs, policy,
    schedules, secrets, sessions, tasks, tokens, toolboxes, tools, triggers, webhooks,
};
use crate::view::{BatchPage, CallPage, QuestionPage, ShownBatch, ShownCall};
use crate::watched::{self, TokenWatch};
use crate::wire;
use crate::wire::approvals::{
    DecisionBody, DecisionReceipt, PreviewBody, PreviewView, RememberedView, WaitingPage, WaitingQuery,
};
use crate::wire::grants::{AttenuateBody, GrantBody, GrantQuery, GrantView, NewGrantView};
use crate::wire::logins::{LoginBody, LoginCodeBody, LoginCodeView, LogoutReceipt, PageLoginView};
use crate::wire::overview::{BatchesQuery, CallCheckBody, Overview};
use crate::wire::policy::{PolicyBody, PolicyCheckBody};
use crate::wire::schedules::{EditSchedule, Fires, PreviewQuery, ScheduleBody};
use crate::wire::shown::{
    ArtifactUploaded, FileShown, FileStatShown, FileWritten, HealthView, NewTokenView, PageView, PairKeyView,
    PairView, Revoked, SessionView, TaskMessages, TaskNotices, TokenView, ToolView, WholeTask,
};
use crate::wire::toolboxes::{
    AttemptNewsView, LoneOperationBody, NewsView, ReportsBody, TakeBody, TakenView, ToolboxBody,
};
use crate::wire::triggers::TriggerBody;
use crate::wire::turns::{BatchOrResponse, BatchOrTurn, BatchQuery, ToolQuery, ToolsOfSession, WireQuery};
use crate::wire::webhooks::{NewWebhookView, WebhookBody, WebhookEdit};
use crate::workers::credential::{self, Presented};
use crate::workers::{self, Forwarded, NOT_HERE, NotHere};
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use hyper::Method;
use hyper::header::HeaderValue;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::pin::Pin;
use windlass::policy::{CallCheck, PolicyCheck, PolicyVersion};
use windlass::schedules::{Schedule, SessionSchedule};
use windlass::secrets::SecretEntry;
use windlass::tasks::{LogPiece, Notice, SessionTask, Task};
use windlass::toolboxes::Toolbox;
use windlass::triggers::Trigger;
use windlass::webhooks::{Webhook, WebhookTrial};
use windlass::workers::WorkerEntry;

/// All routes.
#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "one table, a line for each route")]
pub(crate) fn surface() -> Vec<Route> {
    use ProblemCode::{BadBatch, Conflict, Draining, FourEyes, Gone, InvalidArgs, InvalidFile, InvalidGrant, InvalidPair, InvalidPolicy, InvalidSchedule, InvalidSecret, InvalidSession, InvalidToken, InvalidToolbox, InvalidTrigger, InvalidWebhook, ManifestChanged, NoSecretKey, NoSuchRange, NoSuchSignal, NoSuchTool, NotBackground, NotFound, Over, Overloaded, ProviderFailed, SessionClosed, StaleDigest, StoreUnavailable, TooManyChildren, TooManyGrants, TooManyPairs, TooManyRequests, TooManySchedules, TooManySecrets, TooManySignals, TooManyTokens, TooManyToolboxes, TooManyTriggers, TooManyWebhooks, Unacknowledged, Unfit, WrongToken};
    use TokenScope::{Admin, Approve, Calls, Complete, Read, Tools};
    vec![
        Route::get("/healthz", OPEN, health::healthz).called("health").answers::<HealthView>("Whether the process is alive."),
        Route::get("/readyz", OPEN, health::readyz).called("readiness").answers::<HealthView>("Whether the server takes work.").or(&[Draining, StoreUnavailable]),
        Route::get("/openapi.json", OPEN, health::openapi).called("openapi").answers::<serde_json::Value>("This OpenAPI description."),
        Route::get("/metrics", Admin, metrics::metrics).called("metrics").tells("text/plain", "Metrics in Prometheus text format."),

        Route::get("/v1/overview", Read, overview::show).called("get_overview").answers::<Overview>("Shows what the server does: open calls by state, what waits, the latest batches."),
        Route::get("/v1/changes", Read, changes::changes).called("follow_changes").tells("text/event-stream", "Streams the names of sessions that have changed, at most four times a second.").or(&[Overloaded]),
        Route::get("/v1/tasks", Read, overview::tasks).called("list_all_tasks").asks::<wire::background::TaskQuery>().answers::<PageView<SessionTask>>("Lists the tasks of all sessions, newest first, without schedules.").or(&[NotFound]),
        Route::get("/v1/schedules", Read, overview::schedules).called("list_all_schedules").asks::<wire::Paging>().answers::<PageView<SessionSchedule>>("Lists the schedules of all sessions, by session and id."),
        Route::get("/v1/workers", Read, overview::workers).called("list_workers").answers::<PageView<WorkerEntry>>("Lists the workers of the store."),
        Route::post("/v1/logins", Read, logins::make_code).called("create_login").takes::<LoginCodeBody>().makes::<LoginCodeView>("Creates a code that logs a browser in to the dashboard, once.").or(&[InvalidToken, TooManyTokens]),
        Route::post("/login", OPEN, logins::log_in).called("log_in").takes::<LoginBody>().answers::<PageLoginView>("Logs a browser in, with a code or a token. The login is a token in two halves: the page key, and a cookie.").or(&[WrongToken, TooManyTokens, TooManyRequests]),
        Route::post("/v1/logout", Read, logins::log_out).called("log_out").takes::<wire::Nothing>().answers::<LogoutReceipt>("Ends the login of a browser.").or(&[Unfit, Unacknowledged]),

        Route::get("/v1/tools", Read, tools::list).called("list_tools").asks::<wire::Paging>().answers::<PageView<ToolView>>("Lists the tools, by name."),
        Route::get("/v1/tools/{name}", Read, tools::show).called("get_tool").answers::<ToolView>("Shows one tool."),
        Route::post("/v1/tools/{name}/check", Read, tools::check).called("check_call").takes::<CallCheckBody>().answers::<CallCheck>("Checks a call without making it: its arguments, the repairs, and the ruling of the policy.").or(&[NoSuchTool, ProviderFailed]),
        Route::post("/v1/tools/{name}/pause", Admin, tools::pause).called("pause_tool").takes::<wire::Nothing>().answers::<ToolView>("Pauses a tool: none of its calls start; answered when every worker has adopted that.").or(&[Unacknowledged, Unfit]),
        Route::post("/v1/tools/{name}/resume", Admin, tools::resume).called("resume_tool").takes::<wire::Nothing>().answers::<ToolView>("Resumes a paused tool.").or(&[Unacknowledged, Unfit]),

        Route::post("/v1/sessions", Calls, sessions::open).called("open_session").takes::<wire::NewSession>().makes::<SessionView>("Opens a session.").or(&[NotFound, Gone, Conflict, SessionClosed, InvalidSession, TooManyChildren, Draining]),
        Route::get("/v1/sessions", Read, sessions::list).called("list_sessions").asks::<wire::Paging>().answers::<PageView<SessionView>>("Lists the sessions, by name."),
        Route::get("/v1/sessions/{session}", Read, sessions::show).called("get_session").answers::<SessionView>("Shows one session."),
        Route::delete("/v1/sessions/{session}", Calls, sessions::remove).called("delete_session").answers::<wire::Deleted>("Cancels the session's calls, waits for them, and removes the session with all its data.").or(&[Draining]),
        Route::post("/v1/sessions/{session}/cancel", Calls, asks::cancel_session).called("cancel_session").takes::<wire::CancelBody>().answers::<wire::Cancelled>("Cancels all calls of the session."),
        Route::get("/v1/sessions/{session}/tools", Read, tools::of_session).called("list_session_tools").asks::<ToolQuery>().answers::<ToolsOfSession>("Lists the tools that the session's calls may use."),
        Route::get("/v1/sessions/{session}/calls", Read, calls::of_session).called("list_session_calls").asks::<wire::CallQuery>().answers::<CallPage>("Lists the session's calls, newest first."),
        Route::get("/v1/sessions/{session}/events", Read, events::events).called("follow_events").asks::<Follow>().tells("text/event-stream", "Streams the session's events.").or(&[Overloaded]),
        Route::post("/v1/sessions/{session}/connections/{provider}", Complete, asks::connect).called("report_connection").takes::<wire::Connect>().answers::<wire::ConnectionReach>("Reports whether the session is connected to a provider."),

        Route::post("/v1/sessions/{session}/batches", Calls, batches::submit).called("submit_batch").asks::<BatchQuery>().takes::<BatchOrResponse>().answers::<BatchOrTurn>("Submits a batch; recorded calls are answered without running again.").or(SUBMIT),
        Route::get("/v1/sessions/{session}/batches", Read, overview::batches).called("list_batches").asks::<BatchesQuery>().answers::<BatchPage>("Lists the session's batches, newest first, without those that calls made."),
        Route::get("/v1/sessions/{session}/batches/{key}", Read, batches::show).called("get_batch").asks::<wire::ShowBatch>().answers::<ShownBatch>("Shows a batch."),
        Route::post("/v1/sessions/{session}/batches/{key}/calls", Calls, batches::push).called("push_calls").takes::<wire::Push>().answers::<ShownBatch>("Pushes calls to a batch, which the first push opens.").or(BATCH),
        Route::post("/v1/sessions/{session}/batches/{key}/close", Calls, batches::close).called("close_batch").takes::<wire::Close>().answers::<ShownBatch>("Closes a batch that is open for pushes.").or(&[BadBatch, Draining]),
        Route::post("/v1/sessions/{session}/batches/{key}/cancel", Calls, asks::cancel_batch).called("cancel_batch").takes::<wire::BatchCancelBody>().answers::<wire::Cancelled>("Cancels the calls of the batch, or the one with the given id."),

        Route::get("/v1/sessions/{session}/kv", Read, pairs::list).called("list_pairs").asks::<wire::PairQuery>().answers::<PageView<PairKeyView>>("Lists the keys of the session's key-value pairs."),
        Route::get("/v1/sessions/{session}/kv/{key}", Read, pairs::show).called("get_pair").answers::<PairView>("Shows one pair.").or(&[InvalidPair]),
        Route::put("/v1/sessions/{session}/kv/{key}", Calls, pairs::set).called("set_pair").takes::<wire::NewPair>().answers::<PairKeyView>("Writes a pair; with a generation, only if the pair still has it.").or(&[Conflict, InvalidPair, TooManyPairs, InvalidSession, Draining]),
        Route::delete("/v1/sessions/{session}/kv/{key}", Calls, pairs::delete).called("delete_pair").answers::<wire::Deleted>("Deletes a pair, if it exists.").or(&[InvalidPair, Draining]),

        Route::get("/v1/sessions/{session}/secrets", Read, secrets::list).called("list_secrets").asks::<wire::Paging>().answers::<PageView<SecretEntry>>("Lists the names of the session's secrets (values are never shown)."),
        Route::put("/v1/sessions/{session}/secrets/{name}", Calls, secrets::set).called("set_secret").takes::<wire::NewSecret>().answers::<SecretEntry>("Stores a secret of the session, encrypted; its tools use it by name.").or(&[InvalidSecret, TooManySecrets, NoSecretKey, InvalidSession, Draining]),
        Route::delete("/v1/sessions/{session}/secrets/{name}", Calls, secrets::remove).called("delete_secret").answers::<wire::Deleted>("Removes a secret of the session, if it exists.").or(&[InvalidSecret, Draining]),

        Route::get("/v1/sessions/{session}/files", Read, files::list).called("list_files").asks::<wire::Files>().answers::<PageView<FileShown>>("Lists a folder of the session, by name.").or(&[InvalidFile]),
        Route::get("/v1/sessions/{session}/files/{*path}", Read, files::read).called("download_file").tells("application/octet-stream", "Downloads one file.").or(&[InvalidFile]),
        Route::put("/v1/sessions/{session}/files/{*path}", Calls, files::write).called("write_file").asks::<wire::FileWrite>().takes_bytes().answers::<FileWritten>("Writes a whole file, or creates a folder, with the parent folders.").or(&[Conflict, InvalidFile, InvalidSession, Draining]),
        Route::get("/v1/sessions/{session}/stat/{*path}", Read, files::stat).called("stat_file").answers::<FileStatShown>("Tells what is at a path, with its hash.").or(&[InvalidFile]),
        Route::delete("/v1/sessions/{session}/files/{*path}", Calls, files::delete).called("delete_file").asks::<wire::FileDelete>().answers::<wire::Deleted>("Deletes a file, or a folder, if it exists.").or(&[Conflict, InvalidFile, Draining]),
        Route::post("/v1/sessions/{session}/artifacts", Calls, artifacts::upload).called("upload_artifact").asks::<wire::UploadQuery>().takes_bytes().makes::<ArtifactUploaded>("Uploads an artifact, for an answer that names it.").or(&[NotFound, Over, InvalidArgs, Draining]),
        Route::get("/v1/artifacts/{id}", Read, artifacts::read).called("download_artifact").tells("application/octet-stream", "Downloads an artifact, or one range of it.").in_parts().or(&[NoSuchRange]),

        Route::get("/v1/sessions/{session}/tasks", Read, tasks::list).called("list_tasks").asks::<wire::background::TaskQuery>().answers::<PageView<Task>>("Lists the session's tasks, newest first."),
        Route::get("/v1/sessions/{session}/tasks/{task}", Read, tasks::show).called("get_task").answers::<WholeTask>("Shows one task with its call; or a schedule, by its id."),
        Route::get("/v1/sessions/{session}/tasks/{task}/log", Read, tasks::log).called("get_task_log").asks::<wire::Paging>().answers::<PageView<LogPiece>>("Reads a task's log; missing numbers were not retained."),
        Route::post("/v1/sessions/{session}/tasks/{task}/cancel", Calls, asks::cancel_task).called("cancel_task").takes::<wire::CancelBody>().answers::<wire::Cancelled>("Cancels a task."),
        Route::get("/v1/sessions/{session}/tasks/{task}/messages", Read, tasks::messages).called("list_task_messages").asks::<wire::Paging>().answers::<TaskMessages>("Lists the messages to and from a task, oldest first."),
        Route::post("/v1/sessions/{session}/tasks/{task}/messages", Calls, tasks::say).called("send_task_message").takes::<wire::SayBody>().answers::<wire::SaidTo>("Sends a message to a task whose tool takes the signal `message`.").or(&[Unfit, Conflict, Over, InvalidArgs, NoSuchSignal, TooManySignals, Draining]),
        Route::get("/v1/sessions/{session}/inbox", Read, tasks::inbox).called("list_notices").asks::<wire::background::InboxQuery>().answers::<PageView<Notice>>("Lists the notices for the session's agent, in order of delivery; or the acknowledged ones."),
        Route::post("/v1/sessions/{session}/inbox", Calls, tasks::post).called("post_notice").takes::<wire::background::NoticeBody>().answers::<wire::background::PostedNotice>("Posts a notice of your own for the session's agent.").or(&[InvalidArgs, InvalidSession, Overloaded, Draining]),
        Route::post("/v1/sessions/{session}/inbox/take", Calls, tasks::take).called("take_notices").asks::<WireQuery>().takes::<wire::Take>().answers::<TaskNotices>("Takes the next notices, reserved for a time; waits for one if asked to.").or(&[InvalidArgs, Draining]),
        Route::post("/v1/sessions/{session}/inbox/{notice}/ack", Calls, tasks::acknowledge).called("acknowledge_notice").takes::<wire::Nothing>().answers::<wire::Acknowledged>("Acknowledges a notice; it stays listed as acknowledged for a time.").or(&[Draining]),
        Route::post("/v1/sessions/{session}/inbox/{notice}/requeue", Calls, tasks::requeue).called("requeue_notice").takes::<wire::Nothing>().answers::<wire::Requeued>("Returns a notice to the inbox, for the next reader.").or(&[Draining]),

        Route::get("/v1/sessions/{session}/schedules", Read, schedules::list).called("list_schedules").asks::<wire::Paging>().answers::<PageView<Schedule>>("Lists the session's schedules, by id."),
        Route::post("/v1/sessions/{session}/schedules", Calls, schedules::make).called("create_schedule").takes::<ScheduleBody>().makes::<Schedule>("Creates a schedule: at its times it starts a call, as a task.").or(&[Conflict, InvalidArgs, NoSuchTool, NotBackground, ProviderFailed, InvalidSchedule, TooManySchedules, InvalidSession, Draining]),
        Route::post("/v1/sessions/{session}/schedules/preview", Read, schedules::preview).called("preview_schedule").takes::<PreviewQuery>().answers::<Fires>("Shows the next times of a schedule without creating it.").or(&[InvalidSchedule]),
        Route::patch("/v1/sessions/{session}/schedules/{schedule}", Calls, schedules::edit).called("edit_schedule").takes::<EditSchedule>().answers::<Schedule>("Changes a schedule; with a generation, only if the schedule still has it.").or(&[Conflict, InvalidArgs, InvalidSchedule, TooManySchedules, Draining]),
        Route::delete("/v1/sessions/{session}/schedules/{schedule}", Calls, schedules::remove).called("delete_schedule").answers::<wire::Deleted>("Removes a schedule, if it exists; calls it has started continue.").or(&[Draining]),

        Route::get("/v1/sessions/{session}/triggers", Read, triggers::list).called("list_triggers").asks::<wire::Paging>().answers::<PageView<Trigger>>("Lists the session's triggers, by id."),
        Route::post("/v1/sessions/{session}/triggers", Calls, triggers::make).called("create_trigger").takes::<TriggerBody>().makes::<Trigger>("Creates a trigger: events of its kind start a call, as a task.").or(&[Conflict, InvalidArgs, NoSuchTool, NotBackground, ProviderFailed, InvalidTrigger, TooManyTriggers, InvalidSession, Draining]),
        Route::delete("/v1/sessions/{session}/triggers/{trigger}", Calls, triggers::remove).called("delete_trigger").answers::<wire::Deleted>("Removes a trigger, if it exists; calls it has started continue.").or(&[Draining]),

        Route::post("/v1/sessions/{session}/events", Calls, triggers::emit).called("emit_event").takes::<wire::background::EventBody>().answers::<wire::background::EmittedEvent>("Emits an event of a kind that a tool of the session declares.").or(&[InvalidArgs, InvalidSession, Overloaded, Draining]),
        Route::post("/v1/sessions/{session}/awaited/{event}", Complete, triggers::fulfil).called("fulfil_event").takes::<wire::CompletionBody>().answers::<wire::CompletionReceipt>("Fulfils a named event that calls of the session wait for; the first one counts.").or(ANSWER),

        Route::get("/v1/calls", Read, calls::list).called("list_calls").asks::<wire::CallQuery>().answers::<CallPage>("Lists the calls of all sessions, newest first."),
        Route::get("/v1/calls/{call}", Read, calls::show).called("get_call").asks::<wire::Show>().answers::<ShownCall>("Shows one call."),
        Route::post("/v1/calls/{call}/cancel", Calls, asks::cancel_call).called("cancel_call").takes::<wire::CancelBody>().answers::<wire::Cancelled>("Cancels a call."),
        Route::post("/v1/calls/{call}/resolve", Complete, asks::resolve).called("resolve_call").takes::<wire::ResolveBody>().answers::<ShownCall>("Resolves a call that ended as unknown.").or(ANSWER),
        Route::post("/v1/calls/{call}/accept", Complete, asks::accept).called("accept_call").takes::<wire::Nothing>().answers::<ShownCall>("Lets a call continue although its tool has changed.").or(&[Unfit]),
        Route::post("/v1/calls/{call}/result", Calls, asks::client_result).called("post_client_result").takes::<wire::CompletionBody>().answers::<wire::CompletionReceipt>("Posts the result of a tool that its caller runs.").or(ANSWER),
        Route::post("/v1/calls/{call}/signal", Complete, asks::signal).called("signal_call").takes::<wire::SignalBody>().answers::<wire::SignalReceipt>("Sends a signal to a call.").or(&[Unfit, Conflict, Over, InvalidArgs, NoSuchSignal, TooManySignals]),

        Route::post("/v1/completions/{key}", OPEN, asks::complete).called("complete").takes::<wire::CompletionBody>().answers::<wire::CompletionReceipt>("Completes a call's wait; the key is enough.").or(ANSWER),
        Route::post("/v1/completions/{key}/artifacts", OPEN, artifacts::upload_for_key).called("upload_artifact_for_key").takes_bytes().makes::<ArtifactUploaded>("Uploads an artifact for the answer to a completion key; the key is enough.").or(&[Over, InvalidArgs, Draining]),
        Route::get("/v1/questions", Read, asks::questions).called("list_questions").asks::<wire::QuestionQuery>().answers::<QuestionPage>("Lists open questions."),
        Route::post("/v1/questions/{id}", Complete, asks::answer).called("answer_question").takes::<wire::AnswerBody>().answers::<wire::CompletionReceipt>("Answers a question.").or(ANSWER),

        Route::get("/v1/waiting", Read, approvals::waiting).called("list_waiting").asks::<WaitingQuery>().answers::<WaitingPage>("Lists everything that waits for a person: approvals, questions, connections, changed tools, unknown outcomes."),
        Route::get("/v1/approvals", Approve, approvals::approvals).called("list_approvals").asks::<WaitingQuery>().answers::<WaitingPage>("Lists open approvals."),
        Route::post("/v1/approvals/{id}", Approve, approvals::decide).called("decide_approval").takes::<DecisionBody>().answers::<DecisionReceipt>("Approves or denies a call; the first answer counts.").or(&[Conflict, FourEyes, StaleDigest, Over, InvalidArgs, Draining]),
        Route::post("/v1/approvals/{id}/preview", Approve, approvals::preview).called("preview_approval").takes::<PreviewBody>().answers::<PreviewView>("Checks edited arguments of an approval without answering it.").or(&[InvalidArgs]),
        Route::get("/v1/sessions/{session}/remembered", Read, approvals::remembered).called("list_remembered").asks::<wire::Paging>().answers::<PageView<RememberedView>>("Lists the approvals that the session gives again by itself."),
        Route::delete("/v1/sessions/{session}/remembered/{id}", Approve, approvals::forget).called("forget_remembered").answers::<wire::Deleted>("Forgets a remembered approval, if there is one: from now on a person is asked again.").or(&[Draining]),
        Route::get("/v1/policy", Admin, policy::show).called("get_policy").answers::<PolicyVersion>("Shows the policy in force."),
        Route::put("/v1/policy", Admin, policy::set).called("set_policy").takes::<PolicyBody>().answers::<PolicyVersion>("Replaces the rules set before; answered when every worker has them.").or(&[Conflict, InvalidPolicy, Unacknowledged, Draining]),
        Route::get("/v1/policy/versions", Admin, policy::versions).called("list_policy_versions").asks::<wire::Paging>().answers::<PageView<PolicyVersion>>("Lists the versions of the policy, newest first."),
        Route::post("/v1/policy/check", Admin, policy::check).called("check_policy").takes::<PolicyCheckBody>().answers::<PolicyCheck>("Explains the ruling on a call, rule by rule, without making it.").or(&[NoSuchTool, ProviderFailed]),
        Route::get("/v1/grants", Admin, grants::list).called("list_grants").asks::<GrantQuery>().answers::<PageView<GrantView>>("Lists grants, by session and id (tokens and bindings are never shown).").or(&[NotFound]),
        Route::post("/v1/grants", Admin, grants::issue).called("issue_grant").takes::<GrantBody>().makes::<NewGrantView>("Issues a grant to a session; its token is returned only once.").or(&[NotFound, Gone, InvalidGrant, TooManyGrants, Unacknowledged, Draining]),
        Route::post("/v1/grants/{grant}/attenuate", Admin, grants::attenuate).called("attenuate_grant").takes::<AttenuateBody>().makes::<NewGrantView>("Makes a narrower copy of a grant, which takes its uses out of the grant; its token is returned only once.").or(&[Over, InvalidGrant, TooManyGrants, Unacknowledged, Draining]),
        Route::delete("/v1/grants/{grant}", Admin, grants::revoke).called("revoke_grant").answers::<wire::Deleted>("Revokes a grant and all its copies; answered when every worker has adopted it.").or(&[Unacknowledged, Draining]),
        Route::get("/v1/secrets", Admin, secrets::list_all).called("list_folder_secrets").asks::<wire::Paging>().answers::<PageView<SecretEntry>>("Lists the names of the secrets of all sessions (values are never shown)."),
        Route::put("/v1/secrets/{name}", Admin, secrets::set_for_all).called("set_folder_secret").takes::<wire::NewSecret>().answers::<SecretEntry>("Stores a secret for all sessions, encrypted; one of a session's own with the same name comes first.").or(&[InvalidSecret, TooManySecrets, NoSecretKey, Draining]),
        Route::delete("/v1/secrets/{name}", Admin, secrets::remove_for_all).called("delete_folder_secret").answers::<wire::Deleted>("Removes a secret of all sessions, if it exists.").or(&[InvalidSecret, Draining]),

        Route::post("/mcp", Calls, mcp::door).called("mcp").asks::<wire::McpQuery>().takes::<serde_json::Value>().answers::<serde_json::Value>("Takes one message of an MCP client (streamable HTTP), for the session of the caller.").or(MCP),
        Route::get("/mcp", Calls, mcp::stream_door).called("mcp_stream").asks::<wire::McpQuery>().tells("text/event-stream", "Streams messages that belong to no request to an MCP client before 2026-07-28, for the session of the caller.").or(MCP_STREAM),
        Route::get("/mcp/{session}", Calls, mcp::session_stream_door).called("mcp_session_stream").asks::<wire::McpQuery>().tells("text/event-stream", "Streams messages that belong to no request to an MCP client before 2026-07-28, for this session.").or(MCP_STREAM),
        Route::post("/mcp/{session}", Calls, mcp::session_door).called("mcp_session").asks::<wire::McpQuery>().takes::<serde_json::Value>().answers::<serde_json::Value>("Takes one message of an MCP client (streamable HTTP), for this session.").or(MCP),

        Route::get("/v1/tokens", Admin, tokens::list).called("list_tokens").asks::<wire::Paging>().answers::<PageView<TokenView>>("Lists tokens (secrets are never shown)."),
        Route::post("/v1/tokens", Admin, tokens::make).called("create_token").takes::<wire::NewToken>().makes::<NewTokenView>("Creates a token; its secret is returned only once.").or(&[InvalidToken, TooManyTokens]),
        Route::delete("/v1/tokens/{id}", Admin, tokens::revoke).called("revoke_token").answers::<Revoked>("Revokes a token; answered when every worker refuses it.").or(&[Unacknowledged]),

        Route::get("/v1/toolboxes", Tools, toolboxes::list).called("list_toolboxes").asks::<wire::Paging>().answers::<PageView<Toolbox>>("Lists the toolboxes, by name."),
        Route::get("/v1/toolboxes/{toolbox}", Tools, toolboxes::show).called("get_toolbox").answers::<Toolbox>("Shows one toolbox."),
        Route::put("/v1/toolboxes/{toolbox}", Tools, toolboxes::put).called("put_toolbox").takes::<ToolboxBody>().answers::<Toolbox>("Puts the manifest of a toolbox, which belongs to the principal that puts it first.").or(&[NotFound, InvalidToolbox, TooManyToolboxes]),
        Route::delete("/v1/toolboxes/{toolbox}", Tools, toolboxes::remove).called("delete_toolbox").answers::<wire::Deleted>("Removes a toolbox and its tools; attempts that its processes have go on."),
        Route::post("/v1/toolboxes/{toolbox}/take", Tools, toolboxes::take).called("take_attempts").takes::<TakeBody>().answers::<TakenView>("Gives attempts to a process of a toolbox; waits for one if asked to.").or(&[ManifestChanged, InvalidToolbox, Draining]),
        Route::post("/v1/toolboxes/{toolbox}/reports", Tools, toolboxes::report).called("report_attempts").takes::<ReportsBody>().answers::<NewsView>("Takes reports of a process about its attempts, and answers with their news.").or(&[InvalidToolbox]),
        Route::get("/v1/toolboxes/{toolbox}/attempts/{attempt}/arguments", Tools, toolboxes::arguments).called("get_attempt_arguments").answers::<serde_json::Value>("Answers with the arguments of an attempt, for the process that has it, if they are too large to come with it.").or(&[NotFound, Over]),
        Route::post("/v1/toolboxes/{toolbox}/attempts/{attempt}/operations", Tools, toolboxes::operate).called("do_attempt_operation").takes::<LoneOperationBody>().answers::<AttemptNewsView>("Does one operation of an attempt that is too large for a request with others; answers with the news of the attempt.").or(&[InvalidToolbox]),
        Route::post("/v1/toolboxes/{toolbox}/attempts/{attempt}/artifacts", Tools, toolboxes::upload).called("upload_attempt_artifact").takes_bytes().makes::<ArtifactUploaded>("Uploads an artifact for the end of an attempt, by the process that has it.").or(&[NotFound, Over, InvalidArgs]),

        Route::get("/v1/webhooks", Admin, webhooks::list).called("list_webhooks").asks::<wire::Paging>().answers::<PageView<Webhook>>("Lists webhooks (secrets are never shown)."),
        Route::post("/v1/webhooks", Admin, webhooks::make).called("create_webhook").takes::<WebhookBody>().makes::<NewWebhookView>("Creates a webhook: notices and waits for a person are posted to its URL. Its secret is returned only once.").or(&[InvalidWebhook, TooManyWebhooks]),
        Route::get("/v1/webhooks/{webhook}", Admin, webhooks::show).called("get_webhook").answers::<Webhook>("Shows one webhook with its deliveries."),
        Route::patch("/v1/webhooks/{webhook}", Admin, webhooks::edit).called("edit_webhook").takes::<WebhookEdit>().answers::<Webhook>("Enables or disables a webhook."),
        Route::delete("/v1/webhooks/{webhook}", Admin, webhooks::remove).called("delete_webhook").answers::<wire::Deleted>("Removes a webhook, with the messages that wait for it."),
        Route::post("/v1/webhooks/{webhook}/test", Admin, webhooks::test).called("test_webhook").takes::<wire::Nothing>().answers::<WebhookTrial>("Sends a test message to a webhook now, once.").or(&[InvalidWebhook]),
    ]
}

/// No token is needed.
const OPEN: Option<TokenScope> = None;
/// The problems of submitting a batch.
const BATCH: &[ProblemCode] = &[
    ProblemCode::BadBatch,
    ProblemCode::Conflict,
    ProblemCode::EmptyBatch,
    ProblemCode::InvalidSession,
    ProblemCode::Over,
    ProblemCode::Overloaded,
    ProblemCode::Draining,
];
/// The problems of submitting a batch, or a provider's response.
const SUBMIT: &[ProblemCode] = &[
    ProblemCode::BadBatch,
    ProblemCode::BadResponse,
    ProblemCode::Conflict,
    ProblemCode::EmptyBatch,
    ProblemCode::NoResponseId,
    ProblemCode::InvalidSession,
    ProblemCode::Over,
    ProblemCode::Overloaded,
    ProblemCode::Draining,
];
/// The problems of a message of an MCP client, beside the errors of the protocol.
const MCP: &[ProblemCode] =
    &[ProblemCode::NotFound, ProblemCode::Gone, ProblemCode::InvalidSession, ProblemCode::Draining];
/// The problems of the stream of messages that belong to no request.
const MCP_STREAM: &[ProblemCode] = &[ProblemCode::NotFound, ProblemCode::Gone, ProblemCode::MethodNotAllowed];
/// The problems of answering a call.
const ANSWER: &[ProblemCode] =
    &[ProblemCode::Unfit, ProblemCode::Conflict, ProblemCode::Over, ProblemCode::InvalidArgs];

/// The router for requests from this entrance.
pub fn router(api: &Api, door: &Entrance) -> Router {
    let mut router = Router::new();
    for route in surface() {
        router = router.route(route.path, (route.behind)(door));
    }
    router = page::routes(router, door);
    let strange = |code: ProblemCode, told: &'static str| async move { Problem::new(code, told) };
    router
        .fallback(move || {
            strange(ProblemCode::NotFound, "there is no such path; /openapi.json lists all paths")
        })
        .method_not_allowed_fallback(move || {
            strange(
                ProblemCode::MethodNotAllowed,
                "this path does not have this method; /openapi.json lists all methods",
            )
        })
        .with_state(api.clone())
}

/// Makes the handler for an entrance.
type Behind = Box<dyn FnOnce(&Entrance) -> MethodRouter<Api>>;

/// A route of the API.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The scope that a token needs; `None` if no token is needed.
    pub(crate) needs: Option<TokenScope>,
    /// The name of the operation, for generated clients.
    pub(crate) called: &'static str,
    pub(crate) says: &'static str,
    pub(crate) query: Option<SchemaShape>,
    pub(crate) body: Option<SchemaShape>,
    pub(crate) answer: Option<SchemaShape>,
    /// The media type of the response.
    pub(crate) media: &'static str,
    /// Whether it creates an object.
    pub(crate) makes: bool,
    /// The media type of the body.
    pub(crate) body_media: &'static str,
    /// Whether the response supports ranges.
    pub(crate) in_parts: bool,
    /// The problems of its own; all others follow from its shape.
    pub(crate) problems: &'static [ProblemCode],
    /// Makes the handler for callers from an entrance.
    behind: Behind,
}

/// Makes the schema of a type.
pub(crate) type SchemaShape = fn(&mut SchemaGenerator) -> Schema;

impl Route {
    fn new<H: Handler<T, Api>, T: 'static>(
        method: Method,
        filter: MethodFilter,
        path: &'static str,
        needs: Option<TokenScope>,
        handler: H,
    ) -> Route {
        let (query, body, answer) = (None, None, None);
        let (called, says, makes, problems) = ("", "", false, &[][..]);
        Route {
            method,
            path,
            needs,
            called,
            says,
            query,
            body,
            answer,
            media: "application/json",
            makes,
            body_media: "application/json",
            in_parts: false,
            problems,
            behind: Box::new(move |door| on(filter, Guarded { handler, door: door.clone(), needs, path })),
        }
    }

    fn get<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<TokenScope>>,
        handler: H,
    ) -> Route {
        Route::new(Method::GET, MethodFilter::GET, path, needs.into(), handler)
    }

    fn post<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<TokenScope>>,
        handler: H,
    ) -> Route {
        Route::new(Method::POST, MethodFilter::POST, path, needs.into(), handler)
    }

    fn put<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<TokenScope>>,
        handler: H,
    ) -> Route {
        Route::new(Method::PUT, MethodFilter::PUT, path, needs.into(), handler)
    }

    fn patch<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<TokenScope>>,
        handler: H,
    ) -> Route {
        Route::new(Method::PATCH, MethodFilter::PATCH, path, needs.into(), handler)
    }

    fn delete<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<TokenScope>>,
        handler: H,
    ) -> Route {
        Route::new(Method::DELETE, MethodFilter::DELETE, path, needs.into(), handler)
    }

    /// Sets the name of the operation.
    fn called(self, called: &'static str) -> Route {
        Route { called, ..self }
    }

    /// Sets the query parameters.
    fn asks<T: JsonSchema>(self) -> Route {
        Route { query: Some(shape::<T>), ..self }
    }

    /// Sets the JSON body.
    fn takes<T: JsonSchema>(self) -> Route {
        Route { body: Some(shape::<T>), ..self }
    }

    /// Sets a body of bytes.
    fn takes_bytes(self) -> Route {
        Route { body_media: "application/octet-stream", ..self.takes::<String>() }
    }

    /// The response supports ranges.
    fn in_parts(self) -> Route {
        Route { in_parts: true, ..self }
    }

    /// Sets the summary and the JSON response.
    fn answers<T: JsonSchema>(self, says: &'static str) -> Route {
        Route { says, answer: Some(shape::<T>), ..self }
    }

    /// Sets the summary and a text response.
    fn tells(self, media: &'static str, says: &'static str) -> Route {
        Route { media, ..self.answers::<String>(says) }
    }

    /// Sets the summary and the response of a creation: 201 the first time.
    fn makes<T: JsonSchema>(self, says: &'static str) -> Route {
        Route { makes: true, ..self.answers::<T>(says) }
    }

    /// Adds the problems of its own.
    fn or(self, problems: &'static [ProblemCode]) -> Route {
        Route { problems, ..self }
    }
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A handler behind authentication: the caller is determined before anything else of the request is read.
#[derive(Clone)]
struct Guarded<H> {
    handler: H,
    door: Entrance,
    needs: Option<TokenScope>,
    /// The template of the path.
    path: &'static str,
}

impl<H: Handler<T, Api>, T: 'static> Handler<T, Api> for Guarded<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, mut request: Request, api: Api) -> Self::Future {
        Box::pin(async move {
            let is_passed_on = matches!(self.door, Entrance::Address(_))
                && request.headers().contains_key(credential::HEADER);
            let admitted = match is_passed_on {
                true => {
                    let presented = presented(&request, &api);
                    let guest = request.extensions().get::<Guest>().cloned();
                    admit_forwarded(self.needs, presented, guest).await
                }
                false => {
                    let admitted = admit(&self.door, self.needs, Shows::of(&request), &api);
                    if self.needs.is_some() { api.while_it_reads(admitted).await } else { admitted.await }
                }
            };
            let caller = match admitted {
                Ok(caller) => caller,
                Err(problem) => return told(problem.into_response(), is_passed_on),
            };
            if is_passed_on {
                request.extensions_mut().insert(Forwarded);
            }
            let token = caller.as_ref().and_then(|caller| caller.token.clone());
            let watch = token.map(|token| TokenWatch::new(&api, token));
            // Returned when the request is answered, at the latest.
            let room = RequestRoom::default();
            request.extensions_mut().insert(room.clone());
            if let Some(caller) = caller {
                request.extensions_mut().insert(caller);
            }
            let is_safe = request.method().is_safe();
            let work = workers::placed(self.handler, self.path, request, api.clone());
            // A database that is away can be read no more than written.
            let is_readable = is_safe && (self.needs.is_none() || !api.runtime().is_shared());
            let work = async move { if is_readable { work.await } else { api.while_it_writes(work).await } };
            let response = watched::answered(work, watch).await;
            room.release();
            told(response, is_passed_on)
        })
    }
}

/// Tells the worker that has passed a request on that nothing was done about it here.
fn told(mut response: Response, is_passed_on: bool) -> Response {
    if is_passed_on && response.extensions().get::<NotHere>().is_some() {
        response.headers_mut().insert(NOT_HERE, HeaderValue::from_static("1"));
    }
    response
}

/// The caller of a request, as another worker presents it.
fn presented(request: &Request, api: &Api) -> Presented {
    let header = request.headers().get(credential::HEADER).and_then(|header| header.to_str().ok());
    let (own, shown) = (api.runtime().worker(), header.unwrap_or_default());
    credential::opened(api.secret(), own.as_deref(), shown, request.method(), request.uri())
}

/// The caller of a request that another worker has passed on.
async fn admit_forwarded(
    needs: Option<TokenScope>,
    presented: Presented,
    guest: Option<Guest>,
) -> Result<Option<Caller>, Problem> {
    let caller = match presented {
        Presented::Caller(caller) => caller,
        Presented::OtherWorker => return Err(Problem::elsewhere()),
        Presented::Forged => {
            let told = "this request does not come from a worker of this store; leave out the header x-windlass-forwarded";
            return Err(Problem::new(ProblemCode::WrongToken, told));
        }
    };
    let Some(caller) = caller else {
        return match needs {
            None => Ok(None),
            Some(_) => Err(Problem::new(ProblemCode::NoToken, "a token is required")),
        };
    };
    if let Some(guest) = guest {
        guest.is_known(&caller.principal).await?;
    }
    has_scope(caller, needs)
}

/// The caller, if it has the scope that is needed.
fn has_scope(caller: Caller, needs: Option<TokenScope>) -> Result<Option<Caller>, Problem> {
    let Some(needs) = needs.filter(|needs| !caller.has(*needs)) else { return Ok(Some(caller)) };
    let (principal, scope) = (&caller.principal, needs.as_str());
    let told = format!("this token of {principal:?} lacks the scope {scope:?}, which this request needs");
    Err(Problem::new(ProblemCode::MissingScope, told))
}

async fn admit(
    door: &Entrance,
    needs: Option<TokenScope>,
    shows: Shows<'_>,
    api: &Api,
) -> Result<Option<Caller>, Problem> {
    let caller = match door {
        Entrance::Socket => Caller::local(),
        Entrance::Address(rules) => {
            rules.check(shows, WantedThing::Api)?;
            if needs.is_none() {
                return Ok(None);
            }
            access::caller(shows, api.tokens()).await?
        }
    };
    if let Some(guest) = shows.guest {
        guest.is_known(&caller.principal).await?;
    }
    has_scope(caller, needs)
}
