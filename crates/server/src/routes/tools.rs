//! Tools.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::turns;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::overview::CallCheckBody;
use crate::wire::shown::{PageView, ToolView};
use crate::wire::turns::{ToolQuery, WireTools};
use crate::wire::{Nothing, Paging};
use axum::extract::State;
use windlass::error::{NoSuchTool, PauseError};
use windlass::tool::Listed;
use windlass_args::names::nearest_name;

pub async fn list(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    json(&page(api.runtime().tools(), &paging)?)
}

pub async fn of_session(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(ToolQuery { limit, after, wire, fixed }): QueryParams<ToolQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    if let Some(wire) = wire {
        let catalog = api.runtime().catalog(&session);
        let tools = if fixed { catalog.fixed().await? } else { catalog.list().await? };
        return json(&WireTools { tools: turns::tools(&tools, wire.into()) });
    }
    if fixed {
        return Err(Problem::new(
            ProblemCode::BadQuery,
            "`fixed` is for a `wire`: name one, or leave it out",
        ));
    }
    let paging = Paging { limit, after };
    json(&page(api.runtime().tools_of(&session).await?, &paging)?)
}

pub async fn show(State(api): State<Api>, PathParams(name): PathParams<String>) -> HandlerResult {
    json(&find(&api, &name)?)
}

pub async fn pause(
    State(api): State<Api>,
    PathParams(name): PathParams<String>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    let runtime = api.runtime().clone();
    let paused = name.clone();
    undisturbed(async move { runtime.pause(&paused).await.map_err(Problem::from) }).await?;
    json(&find(&api, &name)?)
}

pub async fn check(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Body(body): Body<CallCheckBody>,
) -> HandlerResult {
    if let Some(session) = &body.session {
        api.session(&caller, session).await?;
    }
    json(&api.runtime().check_call(body.question(name, &caller.principal)).await?)
}

pub async fn resume(
    State(api): State<Api>,
    PathParams(name): PathParams<String>,
    Body(Nothing {}): Body<Nothing>,
) -> HandlerResult {
    let runtime = api.runtime().clone();
    let resumed = name.clone();
    undisturbed(async move { runtime.resume_tool(&resumed).await.map_err(Problem::from) }).await?;
    json(&find(&api, &name)?)
}

fn find(api: &Api, name: &str) -> Result<ToolView, Problem> {
    let tools = api.runtime().tools();
    match tools.iter().find(|listed| listed.summary.name == name) {
        Some(listed) => Ok(view::tool(listed)),
        None => {
            let names = tools.iter().map(|listed| listed.summary.name.as_str());
            let nearest = nearest_name(name, names).map(|near| near.to_string());
            Err(no_such_tool(NoSuchTool { name: name.to_string(), nearest }))
        }
    }
}

impl From<PauseError> for Problem {
    fn from(error: PauseError) -> Problem {
        let code = match &error {
            PauseError::NoSuchTool(_) => ProblemCode::NotFound,
            PauseError::Unacknowledged { .. } => ProblemCode::Unacknowledged,
            PauseError::TooMany { .. } => ProblemCode::Unfit,
            PauseError::Store(error) => return Problem::from(error.clone()),
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        };
        Problem::new(code, error.to_string())
    }
}

fn no_such_tool(error: NoSuchTool) -> Problem {
    Problem::new(ProblemCode::NotFound, error.to_string())
}

/// Tools are listed by name, so a name is the cursor.
fn page(tools: Vec<Listed>, paging: &Paging) -> Result<PageView<ToolView>, Problem> {
    let limit = view::limit(paging.limit)?;
    let behind = |listed: &&Listed| paging.after.as_ref().is_none_or(|after| listed.summary.name > *after);
    let mut rest = tools.iter().filter(behind);
    let items: Vec<ToolView> = rest.by_ref().take(limit).map(view::tool).collect();
    let next = rest.next().and(items.last()).map(|last| last.name.clone());
    Ok(PageView { items, next })
}
