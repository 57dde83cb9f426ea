//! Tools.

use super::{Answered, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Asked, Body, Named};
use crate::problem::Problem;
use crate::view;
use crate::wire::shown::{Page, Tool};
use crate::wire::{Nothing, Paging};
use axum::extract::State;
use windlass::core::tool::nearest_name;
use windlass::{Listed, NoSuchTool};

pub async fn list(State(api): State<Api>, Asked(paging): Asked<Paging>) -> Answered {
    json(&page(api.runtime().tools(), &paging)?)
}

pub async fn of_session(
    State(api): State<Api>,
    caller: Caller,
    Named(session): Named<String>,
    Asked(paging): Asked<Paging>,
) -> Answered {
    api.session(&caller, &session).await?;
    json(&page(api.runtime().tools_of(&session).await?, &paging)?)
}

pub async fn show(State(api): State<Api>, Named(name): Named<String>) -> Answered {
    json(&find(&api, &name)?)
}

pub async fn pause(
    State(api): State<Api>,
    Named(name): Named<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    api.runtime().pause(&name).map_err(no_such_tool)?;
    json(&find(&api, &name)?)
}

pub async fn resume(
    State(api): State<Api>,
    Named(name): Named<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Answered {
    api.runtime().resume_tool(&name).map_err(no_such_tool)?;
    json(&find(&api, &name)?)
}

fn find(api: &Api, name: &str) -> Result<Tool, Problem> {
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

fn no_such_tool(error: NoSuchTool) -> Problem {
    Problem::new("not_found", error.to_string())
}

/// The tools are listed by name, so a name is where a page ends.
fn page(tools: Vec<Listed>, paging: &Paging) -> Result<Page<Tool>, Problem> {
    let limit = view::limit(paging.limit)?;
    let behind = |listed: &&Listed| paging.after.as_ref().is_none_or(|after| listed.summary.name > *after);
    let mut rest = tools.iter().filter(behind);
    let items: Vec<Tool> = rest.by_ref().take(limit).map(view::tool).collect();
    let next = rest.next().and(items.last()).map(|last| last.name.clone());
    Ok(Page { items, next })
}
