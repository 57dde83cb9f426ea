//! Tasks that end with the call that started them.

use crate::api::error::{Lost, SessionError, chain};
use crate::api::keys;
use crate::session::adopting::ask_to_stop;
use crate::session::held::{DriveContext, Held};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, Lookup, Ordinal};
use windlass_core::operation::Operations;

/// Asks the tasks that end with a call to stop, and waits until they have ended. The call's own end is noted and not yet
/// committed: after a crash its next driver comes here again.
pub(crate) async fn end(held: &mut Held) -> Result<(), Lost> {
    held.has_ended_tasks = true;
    let DriveContext { rt, session, .. } = &*held.on;
    let call = Handle::seal(rt.store.secret(), HandleKind::Call, held.id.packed());
    let names = held.call.operations.as_deref().into_iter().flat_map(Operations::attached_tasks);
    let keys: Vec<String> = names.map(|name| keys::nested(call, name, 1)).collect();
    let reason = match held.call.cancel.is_some() {
        true => "the call that started it was cancelled",
        false => "the call that started it has ended",
    };
    for key in keys {
        match end_one(held, &key, reason).await {
            Ok(()) => {}
            Err(SessionError::Lost(lost)) => return Err(lost),
            // A task whose record cannot be read is told by nobody.
            Err(error) => {
                tracing::error!(session = %session.name, key, error = %chain(&error), "a task does not end with its call");
            }
        }
    }
    Ok(())
}

async fn end_one(held: &Held, key: &str, reason: &str) -> Result<(), SessionError> {
    let DriveContext { rt, session, .. } = &*held.on;
    // A task that is being started now is there then.
    drop(session.admit().await);
    let lookup = Lookup::of(session.lane.session(), key);
    let no = match session.find(lookup) {
        Some(open) => open.head.no,
        None => match rt.store.batch(lookup).await? {
            Some(row) if !row.expired => row.no,
            // It was refused before it was recorded.
            Some(_) | None => return Ok(()),
        },
    };
    let task = CallId { batch: no, ordinal: Ordinal(0) };
    ask_to_stop(rt, session, task, reason).await?;
    if let Some(batch) = session.find_away(rt, no).await? {
        batch.ended(std::iter::once(task.ordinal), &session.lane).await?;
    }
    Ok(())
}
