//! The overview of the whole server, and lists over all sessions of the caller.

use super::{HandlerResult, json};
use crate::access::{Caller, TokenScope};
use crate::api::Api;
use crate::extract::{PathParams, QueryParams};
use crate::problem::Problem;
use crate::view::{self, View, Whose};
use crate::wire::Paging;
use crate::wire::background::TaskQuery;
use crate::wire::overview::{BatchesQuery, Overview};
use crate::wire::shown::PageView;
use axum::extract::State;
use std::collections::BTreeMap;
use windlass::schedules::SessionSchedule;
use windlass::store::SessionRow;
use windlass::tasks::TaskFilter;
use windlass::time::wall_time;

/// The number of batches in the overview.
const LATEST: usize = 12;
/// So many waiting calls are read from the store to be counted.
const AWAY_MAX: u64 = 1_000;
/// The number of schedules that are read for a page.
const SCHEDULES_MAX: usize = 10_000;

pub async fn show(State(api): State<Api>, caller: Caller) -> HandlerResult {
    let runtime = api.runtime();
    let mut open = BTreeMap::<String, u64>::new();
    let view = View::of(runtime);
    let (found, more) = api.in_reach(&caller, async |whose| view.latest(whose, LATEST).await).await?;
    let (latest, left_out) = found;
    let calls = if runtime.away() <= AWAY_MAX { runtime.open().await? } else { runtime.live() };
    let too_many = (runtime.away() > AWAY_MAX)
        .then(|| format!("more than {AWAY_MAX} calls wait outside of memory, and are not counted as open"));
    for call in calls {
        if api.sessions().is_reached(&caller, &call.session).await? {
            *open.entry(call.state.to_string()).or_default() += 1;
        }
    }
    let waiting = runtime.count_waiting(|principal| caller.sees_waiting(principal)).await?;
    let data = api.folder().filter(|_| caller.has(TokenScope::Admin));
    json(&Overview {
        version: env!("CARGO_PKG_VERSION").to_string(),
        durability: runtime.store().durability().to_string(),
        data: data.map(|folder| folder.display().to_string()),
        worker: runtime.worker(),
        now: wall_time(api.now()),
        draining: api.is_draining(),
        principal: caller.principal.to_string(),
        scopes: caller.scopes.to_vec(),
        open,
        waiting,
        latest,
        left_out: left_out.or(more).or(too_many),
    })
}

pub async fn batches(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(query): QueryParams<BatchesQuery>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    let view = View::of_session(api.runtime(), &session);
    json(&view.batches(Whose::These(&[session]), &query).await?)
}

pub async fn tasks(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(query): QueryParams<TaskQuery>,
) -> HandlerResult {
    let limit = view::limit(query.limit)?;
    let filter = TaskFilter { state: query.state.as_deref(), kind: query.kind };
    let is_wanted = |row: &SessionRow| caller.reaches(row.principal.as_deref());
    let page = api.runtime().all_tasks(is_wanted, filter, query.after.as_deref(), limit).await?;
    json(&PageView { items: page.tasks, next: page.next })
}

pub async fn schedules(
    State(api): State<Api>,
    caller: Caller,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    let is_wanted = |row: &SessionRow| caller.reaches(row.principal.as_deref());
    let mut all = api.runtime().all_schedules(is_wanted, SCHEDULES_MAX).await?;
    let place = |item: &SessionSchedule| format!("{}/{}", item.session, item.schedule.id);
    all.sort_by_cached_key(place);
    json(&schedule_page(all, &paging, place)?)
}

fn schedule_page(
    mut items: Vec<SessionSchedule>,
    paging: &Paging,
    place: impl Fn(&SessionSchedule) -> String,
) -> Result<PageView<SessionSchedule>, Problem> {
    let limit = view::limit(paging.limit)?;
    items.retain(|item| paging.after.as_ref().is_none_or(|after| place(item) > *after));
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(place);
    Ok(PageView { items, next })
}

pub async fn workers(State(api): State<Api>) -> HandlerResult {
    json(&PageView { items: api.runtime().workers().await?, next: None })
}
