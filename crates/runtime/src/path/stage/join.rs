//! Find out whether another call that is the same runs or ran: wait for that one, take its answer, or run.

use crate::api::error::Lost;
use crate::api::journal::fold;
use crate::path::stage::settle;
use crate::session::held::Held;
use crate::session::owner::Session;
use crate::session::same::{DedupeStanding, SharedEnd};
use crate::session::turns::Turns;
use crate::session::wheel::WakeTime;
use windlass_core::call::{Call, Fact, Same, SameAs};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::ids::CallId;
use windlass_store::{Row, StoreError};

/// Notes that the call is the first of its key, or that it ended like the one it is the same as. `None`: it is parked
/// until that one has ended.
pub(crate) async fn join(mut held: Box<Held>, same: Same) -> Result<Option<Box<Held>>, Lost> {
    let answer = match held.answer.take() {
        Some(answer) => Some(answer),
        None => match held.on.session.firsts.stand(same.mark, held.id) {
            DedupeStanding::Behind(first) if held.on.session.is_around(first, &held.on.batch) => {
                settle::refused(&mut held, Box::new(waits_for_itself()))?;
                return Ok(Some(held));
            }
            DedupeStanding::Behind(first) => return follow(held, first).await,
            DedupeStanding::First => None,
            DedupeStanding::Alone => match recorded(&held, same).await? {
                FirstCall::Ended(answer) => Some((*answer).into()),
                FirstCall::None => None,
                FirstCall::Expired => {
                    settle::refused(&mut held, Box::new(Failure::expired()))?;
                    return Ok(Some(held));
                }
            },
        },
    };
    match answer {
        Some(answer) => settle::same(&mut held, &answer)?,
        None => lead(&mut held, same)?,
    }
    Ok(Some(held))
}

/// The call runs. Its mark travels with the record of that, so a crash loses both or neither.
fn lead(held: &mut Held, same: Same) -> Result<(), Lost> {
    let followed = held.call.same_as().is_some();
    held.note(Fact::First)?;
    held.carry(vec![Row::Mark { mark: same.mark, call: held.id }]);
    if followed {
        // It stood aside: its place is behind whatever was asked for meanwhile.
        Turns::anew(held);
    }
    Ok(())
}

/// Parks the call until `first` has ended, or until its own deadline. That it waits is recorded, and it holds nothing.
async fn follow(mut held: Box<Held>, first: CallId) -> Result<Option<Box<Held>>, Lost> {
    if held.call.same_as().is_none() {
        held.note(Fact::SameAs(SameAs { first }))?;
        Turns::anew(&mut held);
        held.commit().await?;
    }
    let due_us = held.due_us();
    Session::park(held, WakeTime { due_us, wall: None });
    Ok(None)
}

/// A call that waits for one around it waits for itself.
fn waits_for_itself() -> Failure {
    let message = "By its tool's dedupe key the call is the same as one around it, and would wait for itself. Use other \
                   arguments, or do not call this tool from there.";
    Failure {
        class: FailureClass::ResourceLimit,
        source: Source::Runtime,
        did_not_happen: true,
        ..Failure::invalid_request(Code::WouldDeadlock, message.to_string())
    }
}

/// The call of earlier that one is the same as, by the record.
enum FirstCall {
    /// There is none whose end stands for others.
    None,
    /// It ended so, in this or an earlier process.
    Ended(Box<SharedEnd>),
    /// It took effect, or may have, and its record has expired.
    Expired,
}

async fn recorded(held: &Held, same: Same) -> Result<FirstCall, Lost> {
    // One that waited for a call keeps to it, however long ago that one was asked for.
    if let Some(first) = held.call.same_as()
        && let Some(call) = read(held, first).await?
        && let Some(answer) = answer(first, &call, same)
    {
        return Ok(FirstCall::Ended(Box::new(answer)));
    }
    let Some(first) = held.on.rt.store.marked(same.mark).await? else { return Ok(FirstCall::None) };
    let call = read(held, first).await?;
    if call.is_none() && held.on.rt.store.batch_by_no(first.batch).await?.is_some_and(|row| row.expired) {
        return Ok(FirstCall::Expired);
    }
    let window_us = same.for_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000));
    let age_us = |at| held.on.rt.wheel.age_us(at);
    let apart_us = |call: &Call| age_us(call.opened_at).saturating_sub(age_us(held.call.opened_at));
    let call = call.filter(|call| apart_us(call) < window_us);
    let answer = call.and_then(|call| answer(first, &call, same));
    Ok(answer.map_or(FirstCall::None, |answer| FirstCall::Ended(Box::new(answer))))
}

/// The end of a call, for its duplicates. A mark may be at one that is no duplicate any more.
fn answer(first: CallId, call: &Call, same: Same) -> Option<SharedEnd> {
    call.dedupe.as_ref().filter(|dedupe| dedupe.same.mark == same.mark)?;
    let end = call.end().filter(|end| end.stands())?;
    Some(SharedEnd { first: call.same_as().unwrap_or(first), end: end.clone() })
}

async fn read(held: &Held, call: CallId) -> Result<Option<Call>, Lost> {
    let rows = held.on.rt.store.journal(call.batch).await?;
    let session = held.on.session.lane.session();
    if rows.is_empty() {
        return Ok(None);
    }
    let damaged = |what: String| StoreError::Damaged { session, entry: rows[0].first.0, what };
    if rows[0].session != session {
        return Err(damaged(format!("a mark of it is at call {call} of another session")).into());
    }
    let mut batch = fold(&rows).map_err(|error| damaged(error.to_string()))?;
    let place = usize::from(call.ordinal.0);
    Ok((place < batch.calls.len()).then(|| batch.calls.swap_remove(place)))
}
