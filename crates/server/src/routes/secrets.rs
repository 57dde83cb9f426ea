//! Secrets: stored and removed by name, never given back.

use super::{HandlerResult, json, page, removed};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, PathParams, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::undisturbed::undisturbed;
use crate::wire::{NewSecret, Paging};
use axum::extract::State;
use windlass::error::SecretError;
use windlass::secrets::SecretEntry;

pub async fn list(
    State(api): State<Api>,
    caller: Caller,
    PathParams(session): PathParams<String>,
    QueryParams(paging): QueryParams<Paging>,
) -> HandlerResult {
    api.session(&caller, &session).await?;
    page(api.runtime().secrets(&session).list().await?, &paging, |entry| &entry.name)
}

pub async fn set(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, name)): PathParams<(String, String)>,
    Body(NewSecret { value }): Body<NewSecret>,
) -> HandlerResult {
    api.takes_work()?;
    api.claim(&caller, &session).await?;
    let secrets = api.runtime().secrets(&session);
    let stored = name.clone();
    undisturbed(async move { secrets.set(&stored, &value).await }).await?;
    json(&SecretEntry { name })
}

pub async fn remove(
    State(api): State<Api>,
    caller: Caller,
    PathParams((session, name)): PathParams<(String, String)>,
) -> HandlerResult {
    api.takes_work()?;
    api.session(&caller, &session).await?;
    let secrets = api.runtime().secrets(&session);
    removed(async move { secrets.remove(&name).await }).await
}

pub async fn list_all(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    page(api.runtime().folder_secrets().list().await?, &paging, |entry| &entry.name)
}

pub async fn set_for_all(
    State(api): State<Api>,
    PathParams(name): PathParams<String>,
    Body(NewSecret { value }): Body<NewSecret>,
) -> HandlerResult {
    api.takes_work()?;
    let secrets = api.runtime().folder_secrets();
    let stored = name.clone();
    undisturbed(async move { secrets.set(&stored, &value).await }).await?;
    json(&SecretEntry { name })
}

pub async fn remove_for_all(State(api): State<Api>, PathParams(name): PathParams<String>) -> HandlerResult {
    api.takes_work()?;
    let secrets = api.runtime().folder_secrets();
    removed(async move { secrets.remove(&name).await }).await
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Problem {
        let told = error.to_string();
        match error {
            SecretError::Unfit { .. } => Problem::new(ProblemCode::InvalidSecret, told),
            SecretError::Full { .. } => Problem::new(ProblemCode::TooManySecrets, told),
            SecretError::NoKey => Problem::new(ProblemCode::NoSecretKey, told),
            // Where the key lies is for operators.
            SecretError::Key { .. } => {
                tracing::error!(error = told, "the key of the secrets cannot be used");
                let told = "the key of the secrets cannot be used; the log of the server says why";
                Problem::new(ProblemCode::NoSecretKey, told)
            }
            SecretError::Session(error) => Problem::from(error),
            // Those come from calls, or are kinds that this server does not know yet.
            SecretError::Missing { .. } | SecretError::Sealed { .. } | SecretError::Undeclared { .. } | _ => {
                Problem::new(ProblemCode::Internal, told)
            }
        }
    }
}
