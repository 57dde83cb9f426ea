//! Toolboxes: their manifests, the attempts that their processes take, and what those report.

use super::HandlerResult;
use super::artifacts::UploadTarget;
use super::json;
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
use crate::workers::{Forwarded, toolboxes as workers};
use axum::Extension;
use axum::extract::State;
use hyper::HeaderMap;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
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
    passed_on: Option<Extension<Forwarded>>,
    Body(body): Body<TakeBody>,
) -> HandlerResult {
    api.takes_work()?;
    if api.runtime().is_shared() && passed_on.is_none() {
        return take_anywhere(&api, &caller, &name, body).await;
    }
    json(&TakenView { attempts: take_here(&api, &caller, &name, body).await? })
}

async fn take_here(
    api: &Api,
    caller: &Caller,
    name: &str,
    body: TakeBody,
) -> Result<Vec<AttemptView>, Problem> {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, caller, name).await?;
    let taken = tokio::select! {
        taken = toolboxes.take(name, &principal, body.into()) => taken?,
        () = api.drains() => Vec::new(),
    };
    let now = api.runtime().clock().now();
    let args_bytes_max = api.runtime().limits().toolbox_args_bytes_max;
    Ok(taken.into_iter().map(|taken| AttemptView::of(taken, now, args_bytes_max)).collect())
}

/// How often the other workers are asked for attempts while a process waits for one.
const OTHERS_ASKED_EVERY: Duration = Duration::from_millis(250);

/// Attempts of this worker, else of the others.
async fn take_anywhere(api: &Api, caller: &Caller, name: &str, body: TakeBody) -> HandlerResult {
    let wait_ms = body.wait_ms.min(api.runtime().limits().toolbox_wait_ms_max);
    let until = Instant::now() + Duration::from_millis(wait_ms);
    let path = format!("/v1/toolboxes/{name}/take");
    let mut wait = Duration::ZERO;
    loop {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(0);
        let here = take_here(api, caller, name, TakeBody { wait_ms, ..body.clone() }).await?;
        if !here.is_empty() {
            return json(&TakenView { attempts: here });
        }
        for other in workers::others(api).await? {
            let body = TakeBody { wait_ms: 0, ..body.clone() };
            let taken = workers::ask(api, caller, &other, &path, &body).await?;
            if !taken.is_empty() {
                return json(&json!({ "attempts": taken }));
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || body.max == 0 || api.is_draining() {
            return json(&TakenView { attempts: here });
        }
        wait = left.min(OTHERS_ASKED_EVERY);
    }
}

pub async fn report(
    State(api): State<Api>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    passed_on: Option<Extension<Forwarded>>,
    Body(body): Body<ReportsBody>,
) -> HandlerResult {
    let max = api.runtime().limits().toolbox_reports_max;
    if body.reports.len() as u64 > max {
        let told = format!("a request reports about at most {max} attempts; send several");
        return Err(Problem::new(ProblemCode::BadBody, told));
    }
    if api.runtime().is_shared() && passed_on.is_none() {
        return report_anywhere(&api, &caller, &name, body).await;
    }
    json(&NewsView { attempts: report_here(&api, &caller, &name, body).await? })
}

async fn report_here(
    api: &Api,
    caller: &Caller,
    name: &str,
    ReportsBody { worker, wait_ms, reports }: ReportsBody,
) -> Result<Vec<AttemptNewsView>, Problem> {
    let toolboxes = api.runtime().toolboxes();
    let principal = principal(&toolboxes, caller, name).await?;
    let reports = reports.into_iter().map(ReportBody::read).collect::<Result<Vec<_>, _>>()?;
    let wait = Duration::from_millis(if api.is_draining() { 0 } else { wait_ms });
    let news = toolboxes.report(name, &principal, &worker, reports, wait).await?;
    Ok(news.into_iter().map(AttemptNewsView::of).collect())
}

/// Reports about attempts of several workers: each hears of its own.
async fn report_anywhere(api: &Api, caller: &Caller, name: &str, body: ReportsBody) -> HandlerResult {
    let tokens = body.reports.iter().map(|report| report.attempt.as_str());
    let owners = workers::owners(api, tokens).await;
    let path = format!("/v1/toolboxes/{name}/reports");
    // Nobody waits for the news of one worker while there are some of another.
    let is_split = owners.values().any(|(_, places)| places.len() < body.reports.len());
    let wait_ms = if is_split { 0 } else { body.wait_ms };
    let part = |places: &[usize]| ReportsBody {
        worker: body.worker.clone(),
        wait_ms,
        reports: places.iter().filter_map(|place| body.reports.get(*place)).cloned().collect(),
    };
    let mut news: Vec<Option<Value>> = vec![None; body.reports.len()];
    for (other, places) in owners.values() {
        let told = workers::ask(api, caller, other, &path, &part(places)).await?;
        places.iter().zip(told).for_each(|(place, told)| news[*place] = Some(told));
    }
    // What no other worker has answered is this one's; of an attempt that runs elsewhere it says that it is not heard yet.
    let mine: Vec<usize> = (0..news.len()).filter(|place| news[*place].is_none()).collect();
    if !mine.is_empty() || news.is_empty() {
        let told = report_here(api, caller, name, part(&mine)).await?;
        for (place, told) in mine.iter().zip(told) {
            news[*place] = serde_json::to_value(told).ok();
        }
    }
    json(&json!({ "attempts": news }))
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
