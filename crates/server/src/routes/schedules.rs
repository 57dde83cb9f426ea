//! The schedules of a session.

use super::{HandlerResult, json, opened, removed};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::Paging;
use crate::wire::schedules::{EditSchedule, PreviewQuery, ScheduleBody};
use axum::extract::State;
use windlass::error::ScheduleError;
use windlass_core::call::Wake;
use windlass_core::schedule::{CatchUp, Overlap};

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    json(&view::schedules(&api.runtime().schedules(&session), &paging).await?)
}

pub async fn make(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(wanted): Body<ScheduleBody>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let new = windlass::schedules::NewSchedule {
        id: wanted.id,
        cron: wanted.cron,
        at: wanted.at,
        zone: wanted.zone,
        tool: wanted.tool,
        args: wanted.args,
        title: wanted.title,
        catch_up: wanted.catch_up.map_or(CatchUp::One, Into::into),
        overlap: wanted.overlap.map_or(Overlap::Skip, Into::into),
        wake: Wake::signals(wanted.signal_on_completion),
        enabled: wanted.enabled.unwrap_or(true),
        owner: Some(caller.principal.to_string()),
    };
    let schedules = api.runtime().schedules(&session);
    let (made, is_new) = undisturbed(async move { schedules.create(new).await }).await?;
    opened(is_new, &made)
}

pub async fn preview(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    Body(wanted): Body<PreviewQuery>,
) -> HandlerResult {
    // The first schedule of a session is often what opens it.
    api.usable_session(&caller, &session).await?;
    json(&view::fires(&wanted, api.runtime().clock().now(), api.runtime().limits())?)
}

pub async fn edit(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
    Body(edit): Body<EditSchedule>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let schedules = api.runtime().schedules(&session);
    json(&undisturbed(async move { schedules.edit(&id, edit.into()).await }).await?)
}

pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, id)): PathParams<(String, String)>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let schedules = api.runtime().schedules(&session);
    removed(async move { schedules.remove(&id).await }).await
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Problem {
        let told = error.to_string();
        match error {
            ScheduleError::NotFound { .. } => Problem::new(ProblemCode::NotFound, told),
            ScheduleError::Invalid { .. } => Problem::new(ProblemCode::InvalidSchedule, told),
            ScheduleError::Refused(failure) => Problem::refused(&failure),
            ScheduleError::Exists { .. } | ScheduleError::Changed { .. } => {
                Problem::new(ProblemCode::Conflict, told)
            }
            ScheduleError::Full { .. } => Problem::new(ProblemCode::TooManySchedules, told),
            ScheduleError::NotOwned => Problem::new(ProblemCode::Internal, told),
            ScheduleError::Session(error) => Problem::from(error),
            ScheduleError::Batch(error) => Problem::from(error),
            // A kind that this server does not know yet.
            _ => Problem::new(ProblemCode::Internal, told),
        }
    }
}
