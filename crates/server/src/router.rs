//! The whole surface on one screen. Each line is a route: its method, its path, who may ask, who answers, what is sent and
//! what is answered, and the problems that are its own. The router, the scopes and the description of the API are made
//! from it.

use crate::access::{self, Caller, Door, Scope, Shows};
use crate::api::Api;
use crate::events::{self, Follow};
use crate::metrics;
use crate::problem::Problem;
use crate::routes::{
    artifacts, asks, batches, calls, files, health, pairs, schedules, sessions, tasks, tokens, tools,
    triggers,
};
use crate::wire;
use crate::wire::schedules::{EditSchedule, Fires, NewSchedule, PreviewSchedule, Schedule};
use crate::wire::shown::{
    Batch, Call, FileShown, FileWritten, Health, LogPiece, Made, Notice, Page, Pair, PairKey, Question,
    Revoked, Session, Task, TaskMessages, TaskNotices, Token, Tool, WholeTask,
};
use crate::wire::triggers::{NewTrigger, Trigger};
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use hyper::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::pin::Pin;

/// Every route there is.
#[rustfmt::skip]
pub(crate) fn surface() -> Vec<Route> {
    use Scope::{Admin, Calls, Complete, Read};
    vec![
        Route::get("/healthz", OPEN, health::healthz).answers::<Health>("The process is there."),
        Route::get("/readyz", OPEN, health::readyz).answers::<Health>("It takes work.").or(&["draining"]),
        Route::get("/openapi.json", OPEN, health::openapi).answers::<serde_json::Value>("This description."),
        Route::get("/metrics", Admin, metrics::metrics).tells("text/plain", "What is counted, as Prometheus reads it."),

        Route::get("/v1/tools", Read, tools::list).asks::<wire::Paging>().answers::<Page<Tool>>("The tools, by name."),
        Route::get("/v1/tools/{name}", Read, tools::show).answers::<Tool>("One tool."),
        Route::post("/v1/tools/{name}/pause", Admin, tools::pause).takes::<wire::Nothing>().answers::<Tool>("Lets no call of it start."),
        Route::post("/v1/tools/{name}/resume", Admin, tools::resume).takes::<wire::Nothing>().answers::<Tool>("Lets its calls start again."),

        Route::post("/v1/sessions", Calls, sessions::open).takes::<wire::NewSession>().makes::<Session>("Opens a session.").or(&["not_found", "conflict", "session_closed", "invalid_session", "too_many_children", "draining"]),
        Route::get("/v1/sessions", Read, sessions::list).asks::<wire::Paging>().answers::<Page<Session>>("The sessions, by name."),
        Route::get("/v1/sessions/{session}", Read, sessions::show).answers::<Session>("One session."),
        Route::delete("/v1/sessions/{session}", Calls, sessions::remove).answers::<wire::Deleted>("Cancels its calls, waits for them, and removes it with everything it had.").or(&["draining"]),
        Route::post("/v1/sessions/{session}/cancel", Calls, asks::cancel_session).takes::<wire::Cancel>().answers::<wire::Cancelled>("Asks all its calls to stop."),
        Route::get("/v1/sessions/{session}/tools", Read, tools::of_session).asks::<wire::Paging>().answers::<Page<Tool>>("The tools that its calls may use."),
        Route::get("/v1/sessions/{session}/calls", Read, calls::of_session).asks::<wire::List>().answers::<Page<Call>>("Its calls, newest first."),
        Route::get("/v1/sessions/{session}/events", Read, events::events).asks::<Follow>().tells("text/event-stream", "What happens in it, as it happens.").or(&["overloaded"]),
        Route::post("/v1/sessions/{session}/connections/{provider}", Complete, asks::connect).takes::<wire::Connect>().answers::<wire::Connecting>("Says whether it is connected to something."),

        Route::post("/v1/sessions/{session}/batches", Calls, batches::submit).takes::<wire::Batch>().answers::<Batch>("Takes a batch; what is recorded is answered and not run again.").or(BATCH),
        Route::get("/v1/sessions/{session}/batches/{key}", Read, batches::show).answers::<Batch>("A batch as it stands."),
        Route::post("/v1/sessions/{session}/batches/{key}/calls", Calls, batches::push).takes::<wire::Push>().answers::<Batch>("Pushes calls to a batch, which the first push opens.").or(BATCH),
        Route::post("/v1/sessions/{session}/batches/{key}/close", Calls, batches::close).takes::<wire::Close>().answers::<Batch>("Closes a batch that calls were pushed to.").or(&["bad_batch", "draining"]),
        Route::post("/v1/sessions/{session}/batches/{key}/cancel", Calls, asks::cancel_batch).takes::<wire::Cancel>().answers::<wire::Cancelled>("Asks its calls to stop."),

        Route::get("/v1/sessions/{session}/kv", Read, pairs::list).asks::<wire::Pairs>().answers::<Page<PairKey>>("The keys of its key-value pairs."),
        Route::get("/v1/sessions/{session}/kv/{key}", Read, pairs::show).answers::<Pair>("One pair.").or(&["invalid_pair"]),
        Route::put("/v1/sessions/{session}/kv/{key}", Calls, pairs::set).takes::<wire::NewPair>().answers::<PairKey>("Writes a pair; with a generation only if it still has that one.").or(&["conflict", "invalid_pair", "too_many_pairs", "invalid_session", "draining"]),
        Route::delete("/v1/sessions/{session}/kv/{key}", Calls, pairs::delete).answers::<wire::Deleted>("Deletes a pair, if it is there.").or(&["invalid_pair", "draining"]),

        Route::get("/v1/sessions/{session}/files", Read, files::list).asks::<wire::Files>().answers::<Page<FileShown>>("What is in a folder of it, by name.").or(&["invalid_file"]),
        Route::get("/v1/sessions/{session}/files/{*path}", Read, files::read).tells("application/octet-stream", "One file.").or(&["invalid_file"]),
        Route::put("/v1/sessions/{session}/files/{*path}", Calls, files::write).takes_bytes().answers::<FileWritten>("Writes a file whole, with the folders it lies in.").or(&["invalid_file", "invalid_session", "draining"]),
        Route::delete("/v1/sessions/{session}/files/{*path}", Calls, files::delete).answers::<wire::Deleted>("Deletes a file or an empty folder, if it is there.").or(&["conflict", "invalid_file", "draining"]),
        Route::get("/v1/artifacts/{id}", Read, artifacts::read).tells("application/octet-stream", "The bytes of an artifact, or one range of them.").in_parts().or(&["no_such_range"]),

        Route::get("/v1/sessions/{session}/tasks", Read, tasks::list).asks::<wire::Paging>().answers::<Page<Task>>("Its tasks, newest first."),
        Route::get("/v1/sessions/{session}/tasks/{task}", Read, tasks::show).answers::<WholeTask>("One task, and its call; or a schedule, by its id."),
        Route::get("/v1/sessions/{session}/tasks/{task}/log", Read, tasks::log).asks::<wire::Paging>().answers::<Page<LogPiece>>("What a task has said; a number that is missing was there and is not kept."),
        Route::post("/v1/sessions/{session}/tasks/{task}/cancel", Calls, asks::cancel_task).takes::<wire::Cancel>().answers::<wire::Cancelled>("Asks a task to stop."),
        Route::get("/v1/sessions/{session}/tasks/{task}/messages", Read, tasks::messages).answers::<TaskMessages>("What was said to a task and what it said, oldest first."),
        Route::post("/v1/sessions/{session}/tasks/{task}/messages", Calls, tasks::say).takes::<wire::Say>().answers::<wire::SaidTo>("Says something to a task whose tool takes the signal `message`.").or(&["unfit", "conflict", "over", "invalid_args", "no_such_signal", "too_many_signals", "draining"]),
        Route::get("/v1/sessions/{session}/inbox", Read, tasks::inbox).asks::<wire::Paging>().answers::<Page<Notice>>("What its agent is to be told, in the order in which it is taken."),
        Route::post("/v1/sessions/{session}/inbox/take", Calls, tasks::take).takes::<wire::Take>().answers::<TaskNotices>("Takes the next notices: for a time nobody else gets them.").or(&["invalid_args", "draining"]),
        Route::post("/v1/sessions/{session}/inbox/{notice}/ack", Calls, tasks::acknowledge).takes::<wire::Nothing>().answers::<wire::Acknowledged>("A notice was heard, and is gone.").or(&["draining"]),
        Route::post("/v1/sessions/{session}/inbox/{notice}/requeue", Calls, tasks::requeue).takes::<wire::Nothing>().answers::<wire::Requeued>("A notice was not heard: whoever takes next gets it.").or(&["draining"]),

        Route::get("/v1/sessions/{session}/schedules", Read, schedules::list).asks::<wire::Paging>().answers::<Page<Schedule>>("Its schedules, by id."),
        Route::post("/v1/sessions/{session}/schedules", Calls, schedules::make).takes::<NewSchedule>().makes::<Schedule>("Makes a schedule: at its times it starts a call, as a task.").or(&["conflict", "invalid_schedule", "too_many_schedules", "invalid_session", "draining"]),
        Route::post("/v1/sessions/{session}/schedules/preview", Read, schedules::preview).takes::<PreviewSchedule>().answers::<Fires>("The next times of what would be a schedule.").or(&["invalid_schedule"]),
        Route::patch("/v1/sessions/{session}/schedules/{schedule}", Calls, schedules::edit).takes::<EditSchedule>().answers::<Schedule>("Changes a schedule; with a generation only if it still has that one.").or(&["conflict", "invalid_schedule", "too_many_schedules", "draining"]),
        Route::delete("/v1/sessions/{session}/schedules/{schedule}", Calls, schedules::remove).answers::<wire::Deleted>("Removes a schedule, if it is there; what it has started goes on.").or(&["draining"]),

        Route::get("/v1/sessions/{session}/triggers", Read, triggers::list).asks::<wire::Paging>().answers::<Page<Trigger>>("Its triggers, by id."),
        Route::post("/v1/sessions/{session}/triggers", Calls, triggers::make).takes::<NewTrigger>().makes::<Trigger>("Makes a trigger: events of its kind start a call, as a task.").or(&["conflict", "invalid_trigger", "too_many_triggers", "invalid_session", "draining"]),
        Route::delete("/v1/sessions/{session}/triggers/{trigger}", Calls, triggers::remove).answers::<wire::Deleted>("Removes a trigger, if it is there; what it has started goes on.").or(&["draining"]),

        Route::get("/v1/calls", Read, calls::list).asks::<wire::List>().answers::<Page<Call>>("The calls of all sessions, newest first."),
        Route::get("/v1/calls/{call}", Read, calls::show).asks::<wire::Show>().answers::<Call>("One call."),
        Route::post("/v1/calls/{call}/cancel", Calls, asks::cancel_call).takes::<wire::Cancel>().answers::<wire::Cancelled>("Asks it to stop."),
        Route::post("/v1/calls/{call}/resolve", Complete, asks::resolve).takes::<wire::Resolve>().answers::<Call>("Says how an unknown call ended.").or(ANSWER),
        Route::post("/v1/calls/{call}/accept", Complete, asks::accept).takes::<wire::Nothing>().answers::<Call>("Lets it go on although its tool has changed.").or(&["unfit"]),
        Route::post("/v1/calls/{call}/result", Calls, asks::client_result).takes::<wire::Complete>().answers::<wire::Completed>("Posts the result of a tool that its caller runs.").or(ANSWER),
        Route::post("/v1/calls/{call}/signal", Complete, asks::signal).takes::<wire::Signal>().answers::<wire::Signalled>("Tells it something that its tool takes.").or(&["unfit", "conflict", "over", "invalid_args", "no_such_signal", "too_many_signals"]),

        Route::post("/v1/completions/{key}", OPEN, asks::complete).takes::<wire::Complete>().answers::<wire::Completed>("Answers what a call waits for; the key is enough.").or(ANSWER),
        Route::get("/v1/questions", Read, asks::questions).asks::<wire::Questions>().answers::<Page<Question>>("What people are asked."),
        Route::post("/v1/questions/{id}", Complete, asks::answer).takes::<wire::Answer>().answers::<wire::Completed>("Answers a question.").or(ANSWER),

        Route::get("/v1/tokens", Admin, tokens::list).asks::<wire::Paging>().answers::<Page<Token>>("The tokens, but for themselves."),
        Route::post("/v1/tokens", Admin, tokens::make).takes::<wire::NewToken>().makes::<Made>("Makes a token, and tells it once.").or(&["invalid_token", "too_many_tokens"]),
        Route::delete("/v1/tokens/{id}", Admin, tokens::revoke).answers::<Revoked>("Makes a token worthless."),
    ]
}

/// No token is needed.
const OPEN: Option<Scope> = None;
/// The problems of whoever sends a batch.
const BATCH: &[&str] =
    &["bad_batch", "conflict", "empty_batch", "invalid_session", "over", "overloaded", "draining"];
/// The problems of whoever answers something.
const ANSWER: &[&str] = &["unfit", "conflict", "over", "invalid_args"];

/// The API, for those who come in by this door.
pub fn router(api: &Api, door: &Door) -> Router {
    let mut router = Router::new();
    for route in surface() {
        router = router.route(route.path, (route.behind)(door));
    }
    let strange = |what: &'static str, told: &'static str| async move { Problem::new(what, told) };
    router
        .fallback(move || strange("not_found", "there is no such path; /openapi.json lists those there are"))
        .method_not_allowed_fallback(move || {
            strange("method_not_allowed", "this path is not asked with this method; /openapi.json lists them")
        })
        .with_state(api.clone())
}

/// What answers, behind a door.
type Behind = Box<dyn FnOnce(&Door) -> MethodRouter<Api>>;

/// A way to ask for something.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The scope that a token needs for it; none if no token is needed.
    pub(crate) needs: Option<Scope>,
    pub(crate) says: &'static str,
    pub(crate) query: Option<Shape>,
    pub(crate) body: Option<Shape>,
    pub(crate) answer: Option<Shape>,
    /// As what it is answered.
    pub(crate) media: &'static str,
    /// Whether it makes something new.
    pub(crate) makes: bool,
    /// As what the body is sent.
    pub(crate) body_media: &'static str,
    /// Whether a part of the answer can be asked for.
    pub(crate) in_parts: bool,
    /// The problems that are its own; all others follow from its shape.
    pub(crate) problems: &'static [&'static str],
    /// Who answers those who come in by a door and may ask.
    behind: Behind,
}

/// How the shape of something is described.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

impl Route {
    fn new<H: Handler<T, Api>, T: 'static>(
        (method, filter): (Method, MethodFilter),
        path: &'static str,
        needs: Option<Scope>,
        handler: H,
    ) -> Route {
        let (query, body, answer) = (None, None, None);
        let (says, makes, problems) = ("", false, &[][..]);
        Route {
            method,
            path,
            needs,
            says,
            query,
            body,
            answer,
            media: "application/json",
            makes,
            body_media: "application/json",
            in_parts: false,
            problems,
            behind: Box::new(move |door| on(filter, Guarded { handler, door: door.clone(), needs })),
        }
    }

    fn get<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<Scope>>,
        handler: H,
    ) -> Route {
        Route::new((Method::GET, MethodFilter::GET), path, needs.into(), handler)
    }

    fn post<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<Scope>>,
        handler: H,
    ) -> Route {
        Route::new((Method::POST, MethodFilter::POST), path, needs.into(), handler)
    }

    fn put<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<Scope>>,
        handler: H,
    ) -> Route {
        Route::new((Method::PUT, MethodFilter::PUT), path, needs.into(), handler)
    }

    fn patch<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<Scope>>,
        handler: H,
    ) -> Route {
        Route::new((Method::PATCH, MethodFilter::PATCH), path, needs.into(), handler)
    }

    fn delete<H: Handler<T, Api>, T: 'static>(
        path: &'static str,
        needs: impl Into<Option<Scope>>,
        handler: H,
    ) -> Route {
        Route::new((Method::DELETE, MethodFilter::DELETE), path, needs.into(), handler)
    }

    /// What may stand behind the question mark.
    fn asks<T: JsonSchema>(self) -> Route {
        Route { query: Some(shape::<T>), ..self }
    }

    /// What stands in the body.
    fn takes<T: JsonSchema>(self) -> Route {
        Route { body: Some(shape::<T>), ..self }
    }

    /// The same where it is bytes.
    fn takes_bytes(self) -> Route {
        Route { body_media: "application/octet-stream", ..self.takes::<String>() }
    }

    /// A range of what is answered can be asked for.
    fn in_parts(self) -> Route {
        Route { in_parts: true, ..self }
    }

    /// What it is for, and what is answered.
    fn answers<T: JsonSchema>(self, says: &'static str) -> Route {
        Route { says, answer: Some(shape::<T>), ..self }
    }

    /// The same where it is text of another kind.
    fn tells(self, media: &'static str, says: &'static str) -> Route {
        Route { media, ..self.answers::<String>(says) }
    }

    /// The same where something new is made: 201 the first time.
    fn makes<T: JsonSchema>(self, says: &'static str) -> Route {
        Route { makes: true, ..self.answers::<T>(says) }
    }

    /// The problems that are its own.
    fn or(self, problems: &'static [&'static str]) -> Route {
        Route { problems, ..self }
    }
}

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A handler that only those reach who may ask: who that is, is found out before anything of the request is looked at.
#[derive(Clone)]
struct Guarded<H> {
    handler: H,
    door: Door,
    needs: Option<Scope>,
}

impl<H: Handler<T, Api>, T: 'static> Handler<T, Api> for Guarded<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, mut request: Request, api: Api) -> Self::Future {
        Box::pin(async move {
            match admit((&self.door, self.needs), Shows::of(&request), &api).await {
                Ok(caller) => {
                    if let Some(caller) = caller {
                        request.extensions_mut().insert(caller);
                    }
                    self.handler.call(request, api).await
                }
                Err(problem) => problem.into_response(),
            }
        })
    }
}

async fn admit(
    (door, needs): (&Door, Option<Scope>),
    shows: Shows<'_>,
    api: &Api,
) -> Result<Option<Caller>, Problem> {
    let Door::Address(rules) = door else { return Ok(Some(Caller::local())) };
    rules.check(shows.headers)?;
    let Some(needs) = needs else { return Ok(None) };
    let caller = access::caller(shows, api.tokens()).await?;
    if caller.has(needs) {
        return Ok(Some(caller));
    }
    let (principal, scope) = (&caller.principal, needs.as_str());
    let told = format!("this token of {principal:?} has not the scope {scope:?}, which this needs");
    Err(Problem::new("missing_scope", told))
}
