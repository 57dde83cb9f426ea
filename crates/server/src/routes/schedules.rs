//! The schedules of a session.

use super::{Answered, json, opened};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::undisturbed::undisturbed;
use crate::view;
use crate::wire::schedules::{EditSchedule, NewSchedule, PreviewSchedule};
use crate::wire::{Deleted, Paging};
use axum::extract::State;
use windlass::ScheduleError;
use windlass::core::call::Wake;
use windlass::core::schedule::{CatchUp, Overlap};

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::schedules(&api.runtime().schedules(&session), &paging).await?)
}

pub async fn make(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Body(wanted): Body<NewSchedule>,
) -> Answered {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let new = windlass::NewSchedule {
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
    Named(session): Named<String>,
    Body(wanted): Body<PreviewSchedule>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&view::fires(&wanted, api.runtime().clock().now(), api.runtime().limits())?)
}

pub async fn edit(
    State(api): State<Api>,
    caller: Caller,
    Named((session, id)): Named<(String, String)>,
    Body(edit): Body<EditSchedule>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let schedules = api.runtime().schedules(&session);
    json(&undisturbed(async move { schedules.edit(&id, edit.into()).await }).await?)
}

pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    Named((session, id)): Named<(String, String)>,
) -> Answered {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let schedules = api.runtime().schedules(&session);
    undisturbed(async move { schedules.remove(&id).await }).await?;
    json(&Deleted { deleted: true })
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Problem {
        let told = error.to_string();
        match error {
            ScheduleError::NotFound { .. } => Problem::new("not_found", told),
            ScheduleError::Invalid { .. } => Problem::new("invalid_schedule", told),
            ScheduleError::Exists { .. } | ScheduleError::Changed { .. } => Problem::new("conflict", told),
            ScheduleError::Full { .. } => Problem::new("too_many_schedules", told),
            ScheduleError::NotOwned => Problem::new("internal", told),
            ScheduleError::Batch(error) => Problem::from(error),
        }
    }
}
