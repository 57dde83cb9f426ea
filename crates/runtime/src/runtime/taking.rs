//! Taking over a session at its first use: open work of its features and its last owner comes first.

use crate::api::error::SessionError;
use crate::api::limits::SessionLimits;
use crate::features::awaits;
use crate::features::files;
use crate::features::pauses;
use crate::features::policy;
use crate::features::removal;
use crate::features::retention;
use crate::features::schedules;
use crate::features::toolboxes;
use crate::features::webhooks;
use crate::mailbox::closing::leave_word;
use crate::path::drive;
use crate::path::stream;
use crate::session::adopting::adopt;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::plugs::Taking;
use crate::session::principal::SessionRecords;
use crate::session::turns::{DrivenCall, Turns};
use crate::session::worker::names;
use crate::tools::scope::{Narrowing, ScopeLine};
use std::sync::{Arc, OnceLock};

/// Keeps the tools that a session was opened with in force while it is owned.
#[derive(Default)]
struct OpenedWith(OnceLock<Narrowing>);

/// Opens a session or takes it over.
pub(super) fn open_or_take<'a>(rt: &'a Arc<Inner>, name: &'a str, opening: SessionRecords) -> Taking<'a> {
    Box::pin(take(rt, name, opening))
}

async fn take(rt: &Arc<Inner>, name: &str, opening: SessionRecords) -> Result<Arc<Session>, SessionError> {
    policy::load(rt).await?;
    pauses::load(rt).await?;
    toolboxes::load(rt).await?;
    let is_removed = removal::is_begun(rt, name).await?;
    webhooks::load(rt).await?;
    let (session, mut left, bounds) = Session::acquire(rt, name, &opening).await?;
    let limits = bounds.limits();
    webhooks::taken(rt, &session).await;
    // A child has those of its root, along its line.
    if bounds.child.is_none() && !bounds.overlay.is_empty() {
        let line = ScopeLine::root(name).with(&bounds.overlay, &rt.registry);
        _ = session.slots.of::<OpenedWith>().0.set(Narrowing::begin(&rt.registry, name, line));
    }
    if let Some(folder) = &bounds.folder {
        files::name_folder(&session, folder);
    }
    if limits != SessionLimits::default() {
        rt.turns.set_session(rt, session.lane.session(), limits);
        session.set_inline_ms(limits.inline_ms);
        session.answer.set(&limits);
        retention::begin_session(rt, limits);
    }
    if is_removed {
        session.begin_removal();
        removal::go_on(rt, name);
    }
    rt.count_taken_over(left.len() as u64);
    // Before any call of the session continues: started calls hold their claims, and nothing overtakes
    // earlier requests.
    Turns::enter_left(&mut left);
    names::inherit(rt, &left);
    if let Err(error) = hear(rt, &session).await {
        let count = left.len() as u64;
        rt.turns.leave(rt, left.iter().map(|held| DrivenCall { id: held.id, fresh: false }));
        drop(left);
        rt.closed(count + session.abandon(rt));
        return Err(error);
    }
    let mut batches = left.into_iter().peekable();
    while let Some(first) = batches.next() {
        let (on, batch) = (first.on.clone(), first.id.batch);
        let mut calls = vec![first];
        while let Some(next) = batches.next_if(|next| next.id.batch == batch) {
            calls.push(next);
        }
        drive::start_all(&on, calls.into_iter()).await;
    }
    awaits::look_soon(rt, &session);
    // Nothing of a copy is started. What cannot be read now is looked for again there.
    if !rt.store.is_copy() && schedules::is_scheduled(rt, session.lane.session()).await.unwrap_or(true) {
        schedules::look_soon(rt, &session.name);
    }
    Ok(session)
}

/// Adopts messages that were posted while the session had no owner: its calls receive them before they continue.
async fn hear(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    let parent = session.kin.as_ref().map(|kin| kin.child.parent.as_str());
    session.lane.vault().load(&*rt.store, parent, rt.may_meet_others()).await?;
    if session.look_closed(rt).await? {
        leave_word(&*rt.store, session).await?;
    }
    adopt(rt, session).await?;
    stream::close_left(rt, session).await
}

/// Continues unfinished work of features in abandoned sessions: removals, schedules and webhooks.
pub(super) async fn resume(rt: &Arc<Inner>) -> Result<(), SessionError> {
    pauses::load(rt).await?;
    removal::go_on_with_all(rt).await?;
    schedules::resume(rt).await?;
    webhooks::resume(rt).await
}
