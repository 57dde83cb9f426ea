//! A session as its calls see it.

use crate::api::error::SessionError;
use crate::api::misuse::{Misuse, StepError};
use crate::features::tasks::{Task, Tasks};
use crate::mailbox::ask::AskError;
use crate::read::inspect::{CallFilter, page};
use crate::read::waits::{self, OpenCall};
use crate::session::cx::Cx;
use crate::session::held::DriveContext;
use crate::session::principal::ABOUT;
use crate::tools::hooks::HookCx;
use crate::tools::tool::PrepareCx;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_store::{Space, Store};

/// A session at one moment: who it belongs to, how it is labelled, its open calls and its latest tasks.
#[derive(Clone, Debug, Serialize)]
pub struct SessionState {
    /// Its name.
    pub session: String,
    /// Its principal, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
    /// Its state: `open`, or `closed` once it takes no new calls.
    pub state: &'static str,
    /// Its title for people, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its labels for programs.
    pub labels: BTreeMap<String, String>,
    /// Its language, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// Its open calls, newest batch first, at most the limit `state_page`.
    pub calls: Vec<OpenCall>,
    /// Its tasks, newest first, at most the limit `state_page`.
    pub tasks: Vec<Task>,
}

/// The settings of a session that hosts keep as JSON under [`ABOUT`].
#[derive(Default, Deserialize)]
struct SessionLabels {
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    locale: Option<String>,
}

impl Cx {
    /// The session at this moment. It is not recorded: a `stepped` body that decides by it reads it in a
    /// [step](Self::step).
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn look(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let session = cx.session_state().await?;
    ///     Ok(json!({ "team": session.labels.get("team"), "open": session.calls.len() }).into())
    /// }
    /// ```
    pub async fn session_state(&self) -> Result<SessionState, StepError> {
        let hold = self.hold.upgrade().ok_or(Misuse::Over)?;
        let looking = hold.rt.tasks.clone().spawn(async move { look(&hold).await });
        match looking.await.map_err(|_| Misuse::Over)? {
            Ok(state) => Ok(state),
            Err(SessionError::Lost(lost)) => Err(StepError::Lost(lost)),
            Err(error) => Err(Misuse::unkept("session_state", error).into()),
        }
    }
}

impl PrepareCx<'_> {
    /// The session at this moment.
    pub async fn session_state(&self) -> Result<SessionState, SessionError> {
        look(self.at.on).await
    }
}

impl HookCx<'_> {
    /// The session at this moment.
    pub async fn session_state(&self) -> Result<SessionState, SessionError> {
        look(self.at.on).await
    }
}

/// The principal and the labels of a session; none of one that does not exist.
pub(crate) async fn principal_and_labels(
    store: &dyn Store,
    session: &str,
) -> Result<(Option<String>, BTreeMap<String, String>), SessionError> {
    let Some(row) = store.session(session).await? else { return Ok((None, BTreeMap::new())) };
    let about = store.record(Space::About.of(row.no), ABOUT).await?;
    let about: Option<SessionLabels> = about.and_then(|record| serde_json::from_slice(&record.value).ok());
    Ok((row.principal, about.unwrap_or_default().labels))
}

async fn look(hold: &DriveContext) -> Result<SessionState, SessionError> {
    let DriveContext { rt, session, .. } = hold;
    let about = rt.store.record(Space::About.of(session.lane.session()), ABOUT).await?;
    let about = about.and_then(|record| serde_json::from_slice(&record.value).ok());
    let SessionLabels { title, labels, locale } = about.unwrap_or_default();
    let limit = rt.limits.state_page;
    let tasks = Tasks::owned(rt, &session.name).list(None, limit).await.or_else(|error| {
        // There is no cursor that could be wrong.
        if let AskError::Session(error) = error { Err(error) } else { Ok(Vec::new()) }
    })?;
    Ok(SessionState {
        session: session.name.to_string(),
        principal: session.principal.clone(),
        state: if session.look_closed(rt).await? { "closed" } else { "open" },
        title,
        labels,
        locale,
        calls: open_calls(hold, limit).await?,
        tasks,
    })
}

/// The open calls of the session: as they stand here, and those that are not in memory as they are recorded.
async fn open_calls(hold: &DriveContext, limit: u64) -> Result<Vec<OpenCall>, SessionError> {
    let DriveContext { rt, session, .. } = hold;
    let mut open: Vec<OpenCall> =
        waits::live(rt, |name| *name == *session.name).into_iter().map(|(_, open)| open).collect();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if let Some(row) = rt.store.session(&session.name).await? {
        let keep = |_: &_| true;
        let wanted = CallFilter { after: None, limit, open_only: true, keep: &keep };
        let found = page(&rt.store, &[row], &wanted).await?;
        for call in found.calls.iter().filter(|call| call.answer.call().end().is_none()) {
            if open.iter().all(|there| there.call != call.answer.handle().to_string()) {
                open.push(OpenCall::recorded(call));
            }
        }
    }
    open.sort_by_key(|call| std::cmp::Reverse(call.opened_at));
    open.truncate(limit);
    Ok(open)
}
