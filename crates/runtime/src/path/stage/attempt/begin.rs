//! The moment before the tool runs: the policy, the clock, and a start that is taken back.

use crate::api::error::Lost;
use crate::path::grants;
use crate::session::ages::ClockPair;
use crate::session::held::Held;
use crate::session::permission::HeldPermit;
use crate::session::turns::Turns;
use crate::tools::registry::Registered;
use windlass_core::call::{Fact, Start, Withheld};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::ids::AttemptNo;

/// Whether the attempt may begin under the policy as it is now, for which it may have waited; then what its result brings into
/// its session is noted. Else the call is judged anew.
pub(super) fn may_begin(held: &mut Held, tool: &Registered, start: Start) -> Result<bool, Lost> {
    check_lease(held)?;
    let is_granted = |held: &mut Held| held.call.opened.grant.is_none() || grants::take_use(held);
    let may_begin = start.begins.is_under_way() || may_start(held, tool) && is_granted(held);
    if !may_begin {
        held.permit = HeldPermit::unjudged();
        Turns::ran(held, held.on.rt.clock.elapsed_us());
        return Ok(false);
    }
    let exposes = held.on.session.exposure.add(tool.origin);
    if !exposes.is_empty() {
        held.carry(exposes);
    }
    Ok(true)
}

/// Whether the call may start under what this worker has adopted.
pub(super) fn may_start(held: &Held, tool: &Registered) -> bool {
    held.is_permitted(tool) && !tool.is_paused()
}

/// Refuses a start that others may have ruled out meanwhile: a worker that was stopped for longer than its lease was not waited for.
/// Then its session is no longer its own.
#[inline]
pub(super) fn check_lease(held: &Held) -> Result<(), Lost> {
    let rt = &held.on.rt;
    if rt.owners.stands(&*rt.clock) { Ok(()) } else { Err(Lost::Lease) }
}

/// When the attempt begins, by the clock that never jumps: at its turn, unless it waited for something more. From here on a jump
/// of the wall clock comes after the start, however long the attempt takes.
pub(super) fn begin_clock(held: &Held, at_turn_us: Option<u64>) -> u64 {
    let rt = &held.on.rt;
    let seen = match at_turn_us {
        Some(now_us) => ClockPair { now: held.now(), now_us },
        None => ClockPair { now: rt.clock.now(), now_us: rt.clock.elapsed_us() },
    };
    rt.wheel.look_at(seen);
    seen.now_us
}

/// Takes a start back that is recorded, before the tool has seen anything of it: the call is judged anew.
pub(super) fn withhold(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    held.begin_stage();
    Turns::ran(held, held.on.rt.clock.elapsed_us());
    held.permit = HeldPermit::unjudged();
    held.note(Fact::Withheld(Withheld { attempt }))
}

/// Why a tool whose stopped attempts still hang is not started.
pub(super) fn too_many_stuck(tool: &Registered) -> Failure {
    let message = format!(
        "The tool {:?} does not stop when it is told to, and too many of its calls still hang. Do without it.",
        tool.spec.name
    );
    Failure {
        class: FailureClass::ResourceLimit,
        source: Source::Runtime,
        did_not_happen: true,
        ..Failure::invalid_request(Code::ToolStuck, message)
    }
}
