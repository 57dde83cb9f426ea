//! Set a call aside whose record contradicts itself, so that the rest of its session goes on.

use crate::api::error::{Lost, SessionError, chain};
use crate::path::stage::result;
use crate::session::held::{CallPast, DriveContext, Held};
use crate::session::turns::DrivenCall;
use std::sync::Arc;
use windlass_core::call::{CallClock, Fact, Illegal, SetAside, State};

/// Notes that the call is set aside. It ends as unknown then, and an operator says how it ended.
pub(crate) fn note(held: &mut Held) -> Result<(), Lost> {
    let State::SetAside { why, .. } = &held.call.state else { return Ok(()) };
    let why = why.clone();
    tracing::error!(
        session = %held.on.session.name, call = %result::handle(held), tool = ?held.call.opened.tool, %why,
        "the record of a call contradicts itself: it is set aside as unknown, resolve it by hand and report this"
    );
    held.note(Fact::SetAside(SetAside { why }))
}

/// Reads a call back as it is recorded. What it had noted and not recorded is dropped: it led to the contradiction.
pub(crate) async fn read_back(
    on: &Arc<DriveContext>,
    driven: DrivenCall,
    illegal: &Illegal,
) -> Result<Box<Held>, Lost> {
    let DrivenCall { id, fresh } = driven;
    let DriveContext { rt, session, batch } = &**on;
    // Behind everything of it that was sent.
    batch.record(&session.lane).await?;
    let (_, mut folded, _) = match session.read_no(id.batch).await {
        Ok(read) => read,
        Err(SessionError::Lost(lost)) => return Err(lost),
        Err(error) => {
            tracing::error!(call = %id, error = %chain(&error), "a call that is set aside cannot be read back");
            return Err(Lost::Broken(illegal.clone()));
        }
    };
    let place = usize::from(id.ordinal.0);
    if place >= folded.calls.len() {
        return Err(Lost::Broken(illegal.clone()));
    }
    let mut call = folded.calls.swap_remove(place);
    call.contradicted(illegal);
    let (since_us, counted_us) = (rt.clock.elapsed_us(), call.open_us(folded.seen_at));
    let clock = CallClock { since_us, counted_us, ..CallClock::default() };
    let past = CallPast { clock, fresh, waited: true, moved_us: rt.wheel.moved_us() };
    let mut held = on.call(id, Arc::new(call), past);
    held.begin_stage();
    Ok(held)
}
