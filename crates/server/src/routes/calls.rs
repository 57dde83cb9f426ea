//! Looking at calls.

use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Named};
use crate::view::{View, Whose};
use crate::wire::{List, Show};
use axum::extract::State;

pub async fn list(State(api): State<Api>, caller: Caller, Asked(list): Asked<List>) -> Answered {
    let view = View::of(api.runtime());
    json(&api.in_reach(&caller, async |whose| view.list(whose, &list).await).await?)
}

pub async fn of_session(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(list): Asked<List>,
) -> Answered {
    api.session(&caller, &session).await?;
    let view = View::of_session(api.runtime(), &session);
    json(&view.list(Whose::These(&[session]), &list).await?)
}

pub async fn show(
    State(api): State<Api>,
    caller: Caller,
    Named(call): Named<String>,
    Asked(show): Asked<Show>,
) -> Answered {
    let session = api.call(&caller, &call).await?;
    json(&View::of_session(api.runtime(), &session).show(&call, show.journal).await?)
}
