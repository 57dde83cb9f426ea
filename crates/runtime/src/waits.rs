//! The open calls, and what each of them waits for.

use crate::answer::wall_time;
use crate::batch::{OpenBatch, Seen, Standing};
use crate::error::BatchError;
use crate::progress::Progress;
use crate::runtime::Inner;
use crate::session::{Session, fold};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_core::call::{Call, Parked, Reason};
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::plan::{Limit, Why};
use windlass_core::time::Timestamp;

/// A call that is open.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OpenCall {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub batch: String,
    /// Our handle of the call.
    pub call: String,
    /// The model's id of the call.
    pub id: String,
    /// The handle of the call inside which it runs, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The tool, as it was asked for.
    pub tool: String,
    /// The state's name.
    pub state: &'static str,
    /// What it waits for, if it does. The first word is for machines: `claim`, `limit`, `rate`, `retry`, `turn`,
    /// `nested`, `same_as`, `tool_changed`, `no_such_tool`, `tool_paused`; the rest says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// How far its attempt last said that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What its attempt last said that it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// When it was asked for.
    #[serde(serialize_with = "crate::answer::as_wall_time")]
    pub opened_at: Timestamp,
}

/// An open call, and what is needed to say why it waits.
struct Found {
    id: CallId,
    open: OpenCall,
    /// Whether somebody drives it.
    driven: bool,
    /// What its journal says it waits for.
    parked: Option<String>,
    /// The call that it is the same as.
    same_as: Option<CallId>,
}

/// The calls that are open here, in memory or not; by session, oldest first.
pub(crate) async fn open(rt: &Inner) -> Result<Vec<OpenCall>, BatchError> {
    // Those that leave or come back meanwhile are in one of them.
    let mut away = rt.away.all();
    let mut open = live(rt, |_| true);
    away.extend(rt.away.all());
    let here: HashSet<CallId> = open.iter().map(|(id, _)| *id).collect();
    let mut names = HashMap::new();
    let mut left = away.into_iter().filter(|id| !here.contains(id)).peekable();
    while let Some(id) = left.next() {
        let mut wanted = BTreeSet::from([id.ordinal]);
        while let Some(next) = left.next_if(|next| next.batch == id.batch) {
            wanted.insert(next.ordinal);
        }
        open.extend(recorded_open(rt, &mut names, (id.batch, &wanted)).await?);
    }
    open.sort_by(|(left, of), (right, or)| (&of.session, left).cmp(&(&or.session, right)));
    Ok(open.into_iter().map(|(_, open)| open).collect())
}

/// Those of these calls that are open, as they are recorded.
async fn recorded_open(
    rt: &Inner,
    names: &mut HashMap<SessionNo, String>,
    (no, wanted): (BatchNo, &BTreeSet<Ordinal>),
) -> Result<Vec<(CallId, OpenCall)>, BatchError> {
    let rows = rt.store.journal(no).await?;
    let Some(session) = rows.first().map(|row| row.session) else { return Ok(Vec::new()) };
    let name = match names.entry(session) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let row = rt.store.session_by_no(session).await?;
            new.insert(row.map(|row| row.name).unwrap_or_default())
        }
    };
    let folded = fold(&rows)?;
    let is_wanted = |(call, place): &(&Call, u16)| wanted.contains(&Ordinal(*place)) && call.end().is_none();
    let calls = folded.calls.iter().zip(0..).filter(is_wanted);
    let handle = |call: CallId| Handle::seal(rt.store.secret(), Kind::Call, call.packed()).to_string();
    let found = calls.map(|(call, place)| {
        let id = CallId { batch: no, ordinal: Ordinal(place) };
        let open = OpenCall {
            session: name.clone(),
            batch: folded.opening.key.to_string(),
            call: handle(id),
            parent: folded.opening.parent.map(|parent| handle(parent.call)),
            id: call.opened.id.to_string(),
            tool: call.opened.tool.to_string(),
            state: call.state.name(),
            waiting_for: recorded(call),
            progress: None,
            status: None,
            opened_at: call.opened_at,
        };
        (id, open)
    });
    Ok(found.collect())
}

/// The open calls of the wanted sessions that are in memory, by session, oldest first.
pub(crate) fn live(rt: &Inner, wanted: impl Fn(&str) -> bool) -> Vec<(CallId, OpenCall)> {
    let mut found = Vec::new();
    for session in rt.owned().into_iter().filter(|session| wanted(&session.name)) {
        for batch in session.open_batches() {
            see(rt, &session, &batch, &mut found);
        }
    }
    // Asked when no batch is locked: whoever parks a call has the planner first.
    let whys = rt.turns.why(rt.clock.elapsed_us(), found.iter().map(|found| found.id));
    let known: HashMap<CallId, (String, String)> =
        found.iter().map(|found| (found.id, (found.open.call.clone(), found.open.tool.clone()))).collect();
    let told = found.into_iter().zip(whys).map(|(mut found, why)| {
        found.open.waiting_for = why.and_then(|why| tell(rt, &found, (&why, &known)));
        (found.id, found.open)
    });
    told.collect()
}

/// Whether none of these calls goes on before somebody outside has done something: each is over, waits for the world, or
/// for a call of its session that does.
pub(crate) fn stand_still(rt: &Inner, session: &Session, calls: impl Iterator<Item = CallId>) -> bool {
    calls.into_iter().all(|call| stands_still(rt, session, call))
}

fn stands_still(rt: &Inner, session: &Session, mut call: CallId) -> bool {
    // Each step leads to an older call, so it ends.
    loop {
        let Some(batch) = session.find_no(call.batch) else { return true };
        match batch.standing(call.ordinal) {
            Standing::Over => return true,
            Standing::Driven => return false,
            Standing::Parked(Some(reason)) => return waits_for_world(reason),
            Standing::Parked(None) => {}
        }
        let why = rt.turns.why(rt.clock.elapsed_us(), std::iter::once(call)).pop().flatten();
        match why {
            Some(Why::Claim { held_by, .. }) if session.find_no(held_by.batch).is_some() => call = held_by,
            _ => return false,
        }
    }
}

/// Whether somebody has to do something before the call goes on; what only takes its time does not count.
fn waits_for_world(reason: Reason) -> bool {
    match reason {
        Reason::Completion
        | Reason::Input
        | Reason::Connection
        | Reason::Client
        | Reason::Signal
        | Reason::ToolChanged
        | Reason::NoSuchTool
        | Reason::ToolPaused => true,
        Reason::Retry | Reason::Sleep => false,
    }
}

/// Lists the open calls of a batch.
fn see(rt: &Inner, session: &Session, batch: &OpenBatch, found: &mut Vec<Found>) {
    batch.look(|ordinal, seen| {
        let (mut progress, mut status) = (None, None);
        let (asked, opened_at, state, parked) = match seen {
            Seen::Over => return,
            Seen::Driven(asked, at, Some(signal)) => {
                (progress, status) = signal.last_words();
                (asked, at, "running", None)
            }
            Seen::Driven(asked, at, None) => (asked, at, "queued", None),
            Seen::Parked(asked, at, parked) => (asked, at, parked.call().state.name(), Some(parked.call())),
        };
        let driven = parked.is_none();
        let id = CallId { batch: batch.head.no, ordinal };
        let handle = |call: CallId| Handle::seal(rt.store.secret(), Kind::Call, call.packed()).to_string();
        let open = OpenCall {
            session: session.name.to_string(),
            batch: batch.head.place.batch_key.to_string(),
            call: handle(id),
            parent: batch.head.parent.map(|parent| handle(parent.call)),
            id: asked.id.to_string(),
            tool: asked.tool.to_string(),
            state,
            waiting_for: None,
            progress,
            status,
            opened_at,
        };
        let same_as = parked.and_then(|call| same_as(session, call));
        let parked = parked.and_then(recorded);
        found.push(Found { id, open, driven, parked, same_as });
    });
}

/// The call that one waits for because they are the same: as it is now, whatever it was when that was noted.
fn same_as(session: &Session, call: &Call) -> Option<CallId> {
    let noted = call.same_as()?;
    let mark = call.dedupe.as_ref().map(|dedupe| dedupe.same.mark)?;
    Some(session.firsts.first(mark).unwrap_or(noted))
}

/// What a call waits for: one word for machines, then the rest for people.
fn tell(
    rt: &Inner,
    found: &Found,
    (why, known): (&Why, &HashMap<CallId, (String, String)>),
) -> Option<String> {
    if found.driven {
        return match why {
            Why::Unprepared if found.open.state != "running" => Some(PREPARATION.to_string()),
            Why::Inside => Some("nested calls that it has made".to_string()),
            Why::Claim { .. }
            | Why::Limit(_)
            | Why::Rate { .. }
            | Why::NoSuchTool
            | Why::Unprepared
            | Why::Parked
            | Why::Turn => None,
        };
    }
    let tool = &found.open.tool;
    Some(match why {
        Why::Claim { name, held_by } => {
            let holder = match known.get(held_by) {
                Some((call, tool)) => format!("claim of {call} ({tool})"),
                // It waits for the world outside, and is not in memory.
                None if rt.away.has(held_by.batch) => {
                    format!("claim of {}", Handle::seal(rt.store.secret(), Kind::Call, held_by.packed()))
                }
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
        Why::NoSuchTool => Reason::NoSuchTool.as_str().to_string(),
        Why::Parked if let Some(first) = found.same_as => {
            let first = Handle::seal(rt.store.secret(), Kind::Call, first.packed());
            format!("same_as {first}")
        }
        Why::Parked | Why::Unprepared => found.parked.clone().unwrap_or_else(|| "turn".to_string()),
        Why::Inside | Why::Turn => "turn".to_string(),
    })
}

/// What a call waits for that cannot be prepared at once.
const PREPARATION: &str = "preparation by a hook, its tool or the tool's provider";

/// What a call waits for by its journal, if it waits.
pub(crate) fn recorded(call: &Call) -> Option<String> {
    let (parked, _) = call.parked?;
    Some(match (call.unconnected(), parked.reason) {
        (Some(said), Reason::Connection) => {
            let told = format!("connection to {} until {}", said.provider, wall_time(parked.wake_at));
            said.setup_url.as_ref().map_or(told.clone(), |url| format!("{told} at {url}"))
        }
        _ => told(parked),
    })
}

fn told(parked: Parked) -> String {
    match parked.reason {
        reason @ (Reason::Retry
        | Reason::Sleep
        | Reason::Completion
        | Reason::Input
        | Reason::Connection
        | Reason::Client
        | Reason::Signal) => format!("{reason} until {}", wall_time(parked.wake_at)),
        reason @ (Reason::ToolChanged | Reason::NoSuchTool | Reason::ToolPaused) => {
            reason.as_str().to_string()
        }
    }
}

/// The wall time at a point of the clock that never jumps.
fn at(rt: &Inner, us: u64) -> Timestamp {
    let left = i64::try_from(us.saturating_sub(rt.clock.elapsed_us())).unwrap_or(i64::MAX);
    Timestamp(rt.clock.now().0.saturating_add(left))
}
