//! Toolboxes: their manifests, the attempts that their processes take, and what those report.

use super::artifacts::UploadTarget;
use super::{HandlerResult, json};
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::extract::{Body, LargeBody, PathParams, QueryParams, Raw};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::shown::PageView;
use crate::wire::toolboxes::{
    AttemptNewsView, AttemptView, LoneOperationBody, NewsView, ReportBody, ReportsBody, TakeBody, TakenView,
    ToolboxBody,
};
use crate::wire::{Deleted, Paging};
use axum::extract::State;
use hyper::HeaderMap;
use std::time::Duration;
use windlass::error::ToolboxError;
use windlass::toolboxes::Toolboxes;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let all = api.runtime().toolboxes().list().await?;
    let mut rest = all.into_iter().filter(|toolbox| {
        caller.reaches(Some(&toolbox.principal))
            && paging.after.as_ref().is_none_or(|after| toolbox.name > *after)
    });
    let items: Vec<_> = rest.by_ref().take(limit).collect();
    let next = rest.next().and(items.last()).map(|last| last.name.clone());
    json(&PageView { items, next })
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> HandlerResult {
    let all = api.runtime().toolboxes().list().await?;
    let found =
        all.into_iter().find(|toolbox| toolbox.name == name && caller.reaches(Some(&toolbox.principal)));
    json(&found.ok_or(ToolboxError::NotFound { name })?)
}

pub async fn put(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Body(ToolboxBody { tools }): Body<ToolboxBody>,
) -> HandlerResult {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let put = async move { toolboxes.put(&name, &principal, tools).await.map_err(Problem::from) };
    json(&undisturbed(put).await?)
}

pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> HandlerResult {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let removed = undisturbed(async move {
        match toolboxes.remove(&name, &principal).await? {
            true => Ok(()),
            false => Err(Problem::from(ToolboxError::NotFound { name })),
        }
    });
    removed.await?;
    json(&Deleted { deleted: true })
}

pub async fn take(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Body(body): Body<TakeBody>,
) -> HandlerResult {
    api.takes_work()?;
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let taken = tokio::select! {
        taken = toolboxes.take(&name, &principal, body.into()) => taken?,
        () = api.drains() => Vec::new(),
    };
    let now = api.runtime().clock().now();
    let args_bytes_max = api.runtime().limits().toolbox_args_bytes_max;
    let attempts = taken.into_iter().map(|taken| AttemptView::of(taken, now, args_bytes_max)).collect();
    json(&TakenView { attempts })
}

pub async fn report(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Body(ReportsBody { worker, wait_ms, reports }): Body<ReportsBody>,
) -> HandlerResult {
    let max = api.runtime().limits().toolbox_reports_max;
    if reports.len() as u64 > max {
        let told = format!("a request reports about at most {max} attempts; send several");
        return Err(Problem::new(ProblemCode::BadBody, told));
    }
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let reports = reports.into_iter().map(ReportBody::read).collect::<Result<Vec<_>, _>>()?;
    let wait = Duration::from_millis(if api.is_draining() { 0 } else { wait_ms });
    let news = toolboxes.report(&name, &principal, &worker, reports, wait).await?;
    json(&NewsView { attempts: news.into_iter().map(AttemptNewsView::of).collect() })
}

/// The arguments of an attempt that are too large to come with it.
pub async fn arguments(
    State(api): State<Api>,
    caller: Caller,
    PathParams((name, attempt)): PathParams<(String, String)>,
) -> HandlerResult {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    json(&*toolboxes.arguments(&name, &principal, &attempt).await?)
}

/// One operation of an attempt that is too large for a request with others, such as a step with a large value.
pub async fn operate(
    State(api): State<Api>,
    caller: Caller,
    PathParams((name, attempt)): PathParams<(String, String)>,
    LargeBody(body): LargeBody<LoneOperationBody>,
) -> HandlerResult {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let (worker, report) = body.read(attempt);
    let news = toolboxes.report(&name, &principal, &worker, vec![report], Duration::ZERO).await?;
    let news = news.into_iter().map(AttemptNewsView::of).next();
    json(&news.ok_or_else(|| Problem::from(ToolboxError::AttemptOver))?)
}

/// Stores the body as an artifact, for the end of an attempt.
pub async fn upload(
    State(api): State<Api>,
    caller: Caller,
    PathParams((name, attempt)): PathParams<(String, String)>,
    headers: HeaderMap,
    Raw(body): Raw,
) -> HandlerResult {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, &caller, &name).await?;
    let call = toolboxes.call_of(&name, &principal, &attempt).await?;
    super::artifacts::store(&api, UploadTarget::Call(call), &headers, body).await
}

/// The principal in whose name a caller uses a toolbox: an admin uses that of another as its owner.
async fn principal(toolboxes: &Toolboxes, caller: &Caller, name: &str) -> Result<String, Problem> {
    if caller.has(TokenScope::Admin)
        && let Some(owner) = toolboxes.owner(name).await?
    {
        return Ok(owner);
    }
    Ok(caller.principal.to_string())
}
