//! The policy: what is in force, changing it, and what it says about a call.

use super::{HandlerResult, json};
use crate::access::Caller;
use crate::api::Api;
use crate::extract::{Body, QueryParams};
use crate::problem::{Problem, ProblemCode};
use crate::view;
use crate::wire::Paging;
use crate::wire::policy::{PolicyBody, PolicyCheckBody};
use crate::wire::shown::PageView;
use axum::extract::State;
use windlass::error::{CheckError, PolicyError};
use windlass::policy::{NewPolicy, PolicyQuestion, PolicyVersion};

pub async fn show(State(api): State<Api>) -> HandlerResult {
    json(&api.runtime().policy().await?)
}

pub async fn set(State(api): State<Api>, caller: Caller, Body(wanted): Body<PolicyBody>) -> HandlerResult {
    api.takes_work()?;
    let PolicyBody { rules, version } = wanted;
    let new = NewPolicy { rules, by: caller.principal.to_string(), version };
    json(&api.runtime().set_policy(new).await?)
}

pub async fn versions(State(api): State<Api>, QueryParams(paging): QueryParams<Paging>) -> HandlerResult {
    let limit = view::limit(paging.limit)?;
    let before = paging.after.map(|after| {
        let told = format!(
            "`after` is the number of a version, and {after:?} is none; send the `next` of the last page"
        );
        after.parse().map_err(|_| Problem::new(ProblemCode::BadQuery, told))
    });
    let items = api.runtime().policy_history(before.transpose()?, limit as u64).await?;
    let last = items.last().filter(|_| items.len() == limit).map(|last| last.version);
    let next = last.filter(|version| *version > 1).map(|version| version.to_string());
    json(&PageView::<PolicyVersion> { items, next })
}

pub async fn check(State(api): State<Api>, Body(asked): Body<PolicyCheckBody>) -> HandlerResult {
    let PolicyCheckBody { tool, args, principal, session, turn, exposed } = asked;
    let question = PolicyQuestion { tool, args, principal, session, turn, exposed };
    json(&api.runtime().check_policy(&question).await?)
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Problem {
        let code = match &error {
            PolicyError::Conflict { .. } => ProblemCode::Conflict,
            PolicyError::Invalid(_) | PolicyError::TooMany { .. } | PolicyError::TooLarge { .. } => {
                ProblemCode::InvalidPolicy
            }
            PolicyError::Unacknowledged { .. } => ProblemCode::Unacknowledged,
            PolicyError::Store(error) => return Problem::from(error.clone()),
            // A kind that this server does not know yet.
            _ => ProblemCode::Internal,
        };
        Problem::new(code, error.to_string())
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Problem {
        let code = match &error {
            CheckError::Tool(_) => ProblemCode::NoSuchTool,
            CheckError::Unavailable { .. } => ProblemCode::ProviderFailed,
            CheckError::Session(error) => return Problem::from(error.clone()),
            _ => ProblemCode::Internal,
        };
        Problem::new(code, error.to_string())
    }
}
