//! The open calls, and what each of them waits for.

use crate::answer::wall_time;
use crate::batch::{OpenBatch, Seen};
use crate::runtime::{Inner, OpenCall};
use crate::session::Session;
use std::collections::HashMap;
use windlass_core::call::{Parked, Reason};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::CallId;
use windlass_core::plan::{Limit, Why};
use windlass_core::time::Timestamp;

/// An open call, and what is needed to say why it waits.
struct Found {
    id: CallId,
    open: OpenCall,
    /// Whether nobody drives it.
    waits: bool,
    /// What its journal says it waits for.
    parked: Option<Parked>,
}

/// The calls that are open here, oldest first.
pub(crate) fn open(rt: &Inner) -> Vec<OpenCall> {
    let mut found = Vec::new();
    for session in rt.owned() {
        for batch in session.open_batches() {
            see(rt, &session, &batch, &mut found);
        }
    }
    // Asked when no batch is locked: whoever parks a call has the planner first.
    let waiting = found.iter().filter(|found| found.waits).map(|found| found.id);
    let whys = rt.turns.why(rt.clock.elapsed_us(), waiting);
    let known: HashMap<CallId, (String, String)> =
        found.iter().map(|found| (found.id, (found.open.call.clone(), found.open.tool.clone()))).collect();
    let mut whys = whys.into_iter();
    let told = found.into_iter().map(|mut found| {
        if found.waits {
            let why = whys.next().flatten();
            found.open.waiting_for = why.map(|why| tell(rt, &found, (&why, &known)));
        }
        found.open
    });
    told.collect()
}

/// Lists the open calls of a batch.
fn see(rt: &Inner, session: &Session, batch: &OpenBatch, found: &mut Vec<Found>) {
    batch.look(|ordinal, seen| {
        let (asked, opened_at, state, waits, parked) = match seen {
            Seen::Over => return,
            Seen::Driven(asked, at, true) => (asked, at, "running", false, None),
            Seen::Driven(asked, at, false) => (asked, at, "queued", false, None),
            Seen::Parked(asked, at, parked) => {
                let call = parked.call();
                (asked, at, call.state.name(), true, call.parked.map(|(parked, _)| parked))
            }
        };
        let id = CallId { batch: batch.head.no, ordinal };
        let open = OpenCall {
            session: session.name.to_string(),
            batch: batch.head.place.batch_key.to_string(),
            call: Handle::seal(rt.store.secret(), Kind::Call, id.packed()).to_string(),
            id: asked.id.to_string(),
            tool: asked.tool.to_string(),
            state,
            waiting_for: None,
            opened_at,
        };
        found.push(Found { id, open, waits, parked });
    });
}

/// What a call waits for: one word for machines, then the rest for people.
fn tell(rt: &Inner, found: &Found, (why, known): (&Why, &HashMap<CallId, (String, String)>)) -> String {
    let tool = &found.open.tool;
    match why {
        Why::Claim { name, held_by } => {
            let holder = match known.get(held_by) {
                Some((call, tool)) => format!("claim of {call} ({tool})"),
                None => "claim of a call that is just ending".to_string(),
            };
            name.as_ref().map_or(holder.clone(), |name| format!("{holder} on {name}"))
        }
        Why::Limit(Limit::Process { max }) => format!("limit of the process: {max} running calls"),
        Why::Limit(Limit::Session { max }) => format!("limit of the session: {max} running calls"),
        Why::Limit(Limit::Tool { max, .. }) => format!("limit of the tool {tool}: {max} running calls"),
        Why::Limit(Limit::Group { group, max }) => {
            format!("limit of the group {group}: {max} running calls")
        }
        Why::Rate { group, until_us } => {
            let whose = match group {
                Some(group) => format!("rate of the group {group}"),
                None => format!("rate of the tool {tool}"),
            };
            until_us
                .map_or(whose.clone(), |until_us| format!("{whose} until {}", wall_time(at(rt, until_us))))
        }
        Why::Paused => Reason::ToolPaused.as_str().to_string(),
        Why::NoSuchTool => Reason::NoSuchTool.as_str().to_string(),
        Why::Parked => match found.parked {
            Some(Parked {
                reason: reason @ (Reason::Retry | Reason::Sleep | Reason::Completion),
                wake_at,
                ..
            }) => {
                format!("{reason} until {}", wall_time(wake_at))
            }
            Some(Parked { reason, .. }) => reason.as_str().to_string(),
            None => "turn".to_string(),
        },
        Why::Unprepared | Why::Inside | Why::Turn => "turn".to_string(),
    }
}

/// The wall time at a point of the clock that never jumps.
fn at(rt: &Inner, us: u64) -> Timestamp {
    let left = i64::try_from(us.saturating_sub(rt.clock.elapsed_us())).unwrap_or(i64::MAX);
    Timestamp(rt.clock.now().0.saturating_add(left))
}
