//! Closed child sessions: their running calls are stopped.

use crate::api::answer::Asked;
use crate::api::error::{Lost, SessionError, chain};
use crate::mailbox::ask::{self, AskError, Target};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::sync::Arc;
use windlass_store::Store;

/// Stops the running calls of child sessions, in a task of its own. If this process dies first, the next
/// owner of each finds that it is closed.
pub(crate) fn stop_soon(rt: &Arc<Inner>, sessions: Vec<String>, reason: &'static str) {
    if sessions.is_empty() {
        return;
    }
    let weak = Arc::downgrade(rt);
    rt.tasks.spawn(async move {
        for session in sessions {
            let Some(rt) = weak.upgrade() else { return };
            if let Err(error) = stop(&rt, &session, Some(reason)).await {
                let error = chain(&error);
                tracing::error!(%session, %error, "the calls of a closed child session could not be stopped; its next owner stops them");
            }
        }
    });
}

/// Stops the running calls of a child session, and of its children.
pub(crate) async fn stop(rt: &Arc<Inner>, name: &str, reason: Option<&str>) -> Result<Asked, AskError> {
    if let Some(session) = rt.owned_session(name) {
        // Calls being submitted now are submitted by then, and stopped; later ones find the session closed.
        let _admission = session.admit().await;
        session.look_closed(rt).await?;
    }
    match ask::cancel(rt, Target::Session(name), reason).await {
        // The session was never used, or nothing is left of it.
        Err(error) if error.is_not_found() => Ok(Asked::default()),
        Err(AskError::Session(SessionError::Lost(Lost::Removed) | SessionError::Gone { .. })) => {
            Ok(Asked::default())
        }
        asked => asked,
    }
}

/// Posts a cancel for the calls of a closed session, before they continue.
pub(crate) async fn leave_word(store: &dyn Store, session: &Session) -> Result<(), SessionError> {
    let reason = Some("the call that opened the session has ended");
    match ask::post_cancel(store, Target::Session(&session.name), reason).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(AskError::Session(error)) => Err(error),
        Err(error) => Err(SessionError::undecodable("its open calls", error)),
    }
}
