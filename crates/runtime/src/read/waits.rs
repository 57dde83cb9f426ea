//! Open calls, and what each of them waits for.

use crate::api::answer::wall_time;
use crate::api::error::SessionError;
use crate::api::journal::fold;
use crate::api::progress::Progress;
use crate::read::inspect::RecordedCall;
use crate::read::story::rule_names;
use crate::session::batch::{OpenBatch, VisibleCall};
use crate::session::events::RunningAttempt;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use windlass_core::call::{Call, Reason};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::plan::{Limit, Why};
use windlass_core::time::Timestamp;
use windlass_core::wait::Wait;

/// An open call.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OpenCall {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub batch: String,
    /// The turn of the conversation, if the caller gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The handle of the call.
    pub call: String,
    /// The model's id of the call.
    pub id: String,
    /// The handle of the call that made it, if it is nested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The tool, as requested.
    pub tool: String,
    /// The state's name.
    pub state: &'static str,
    /// The reason of its wait, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// The last reported progress of its attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The last reported status of its attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The number of attempts started, as far as it is known: that of a `read` call is recorded with its result.
    pub attempts: u32,
    /// The last sign of life of its running attempt.
    #[serde(skip)]
    pub alive_at: Option<Timestamp>,
    /// Its running attempt, if the attempt's start is not recorded yet.
    #[serde(skip)]
    pub running: Option<RunningAttempt>,
    /// When it was requested.
    #[serde(serialize_with = "crate::api::answer::as_wall_time")]
    pub opened_at: Timestamp,
}

/// The reason of a wait, for people and programs: the [word](Wait::as_str), then details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingFor {
    wait: Wait,
    /// The word, and behind it what is known.
    text: String,
}

impl OpenCall {
    /// An open call as it is recorded.
    pub(crate) fn recorded(found: &RecordedCall) -> OpenCall {
        let call = found.answer.call();
        OpenCall {
            session: found.session.clone(),
            batch: found.batch_key.clone(),
            turn: found.turn.clone(),
            call: found.answer.handle().to_string(),
            id: call.opened.id.to_string(),
            parent: found.answer.parent().map(|parent| parent.to_string()),
            tool: call.opened.tool.to_string(),
            state: call.state.name(),
            waiting_for: recorded(call),
            progress: None,
            status: None,
            attempts: call.attempts,
            alive_at: None,
            running: None,
            opened_at: call.opened_at,
        }
    }
}

impl WaitingFor {
    /// A wait, with what is known of it.
    fn new(wait: Wait, known: &str) -> WaitingFor {
        let text = if known.is_empty() { wait.as_str().to_string() } else { format!("{wait} {known}") };
        WaitingFor { wait, text }
    }

    /// A call that nobody drives.
    pub fn owner() -> WaitingFor {
        WaitingFor::new(Wait::Owner, "(nobody drives it)")
    }

    /// The kind of wait.
    pub fn wait(&self) -> Wait {
        self.wait
    }
}

impl std::ops::Deref for WaitingFor {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for WaitingFor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl serde::Serialize for WaitingFor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// An open call, with the facts that explain its wait.
struct OpenRecord {
    id: CallId,
    open: OpenCall,
    /// Whether a driver has it.
    driven: bool,
    /// Its wait by its journal.
    parked: Option<WaitingFor>,
    /// The call that it duplicates.
    same_as: Option<CallId>,
}

/// The open calls here, in memory or not; by session, oldest first.
pub(crate) async fn open(rt: &Inner) -> Result<Vec<OpenCall>, SessionError> {
    // A call that leaves or comes back meanwhile is in one of them.
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
        open.extend(recorded_open(rt, &mut names, id.batch, &wanted).await?);
    }
    open.sort_by(|(left, of), (right, or)| (&of.session, left).cmp(&(&or.session, right)));
    Ok(open.into_iter().map(|(_, open)| open).collect())
}

/// Those of these calls that are open by the record.
async fn recorded_open(
    rt: &Inner,
    names: &mut HashMap<SessionNo, String>,
    no: BatchNo,
    wanted: &BTreeSet<Ordinal>,
) -> Result<Vec<(CallId, OpenCall)>, SessionError> {
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
    let handle = |call: CallId| Handle::seal(rt.store.secret(), HandleKind::Call, call.packed()).to_string();
    let found = calls.map(|(call, place)| {
        let id = CallId { batch: no, ordinal: Ordinal(place) };
        let open = OpenCall {
            session: name.clone(),
            batch: folded.opening.key.to_string(),
            turn: folded.opening.turn.clone(),
            call: handle(id),
            parent: folded.opening.parent.map(|parent| handle(parent.call)),
            id: call.opened.id.to_string(),
            tool: call.opened.tool.to_string(),
            state: call.state.name(),
            waiting_for: recorded(call),
            progress: None,
            status: None,
            attempts: call.attempts,
            alive_at: None,
            running: None,
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
    // Read when no batch is locked: parking a call takes the planner's lock first.
    let whys = rt.turns.why(rt.clock.elapsed_us(), found.iter().map(|found| found.id));
    let known: HashMap<CallId, (String, String)> =
        found.iter().map(|found| (found.id, (found.open.call.clone(), found.open.tool.clone()))).collect();
    let worker = rt.owners.worker();
    let told = found.into_iter().zip(whys).map(|(mut found, why)| {
        found.open.waiting_for = match worker.as_ref().and_then(|worker| worker.name_awaited_by(found.id)) {
            Some(name) => Some(WaitingFor::new(Wait::Claim, &format!("of another worker on {name}"))),
            None => why.and_then(|why| tell(rt, &found, &why, &known)),
        };
        (found.id, found.open)
    });
    told.collect()
}

/// Lists the open calls of a batch.
fn see(rt: &Inner, session: &Session, batch: &OpenBatch, found: &mut Vec<OpenRecord>) {
    batch.look(|ordinal, seen| {
        let (mut progress, mut status, mut attempts, mut alive_at) = (None, None, 0, None);
        let mut running = None;
        let (asked, opened_at, state, parked) = match seen {
            VisibleCall::Over => return,
            VisibleCall::Driven(asked, at, Some(signal)) => {
                (progress, status) = signal.last_words();
                attempts = signal.attempt().0;
                alive_at = Some(past(rt, signal.alive_us()));
                running = signal.unrecorded(&*rt.clock);
                (asked, at, "running", None)
            }
            VisibleCall::Driven(asked, at, None) => (asked, at, "queued", None),
            VisibleCall::Parked(asked, at, parked) => {
                (asked, at, parked.call().state.name(), Some(parked.call()))
            }
        };
        let driven = parked.is_none();
        attempts = attempts.max(parked.map_or(0, |call| call.attempts));
        let id = CallId { batch: batch.head.no, ordinal };
        let handle =
            |call: CallId| Handle::seal(rt.store.secret(), HandleKind::Call, call.packed()).to_string();
        let open = OpenCall {
            session: session.name.to_string(),
            batch: batch.head.place.batch_key.to_string(),
            turn: batch.head.turn.clone(),
            call: handle(id),
            parent: batch.head.parent.map(|parent| handle(parent.call)),
            id: asked.id.to_string(),
            tool: asked.tool.to_string(),
            state,
            waiting_for: None,
            progress,
            status,
            attempts,
            alive_at,
            running,
            opened_at,
        };
        let same_as = parked.and_then(|call| same_as(session, call));
        let parked = parked.and_then(recorded);
        found.push(OpenRecord { id, open, driven, parked, same_as });
    });
}

/// The call that it waits for as a duplicate: the current one, whatever was noted.
fn same_as(session: &Session, call: &Call) -> Option<CallId> {
    let noted = call.same_as()?;
    let mark = call.dedupe.as_ref().map(|dedupe| dedupe.same.mark)?;
    Some(session.firsts.first(mark).unwrap_or(noted))
}

/// The wait of a call: one word for machines, then detail for people.
fn tell(
    rt: &Inner,
    found: &OpenRecord,
    why: &Why,
    known: &HashMap<CallId, (String, String)>,
) -> Option<WaitingFor> {
    // A body that waited for an external answer continues once it has its claims.
    let takes_anew = found.open.state == "running" && matches!(why, Why::Claim { .. });
    if found.driven && !takes_anew {
        return match why {
            Why::Unprepared if found.open.state != "running" => {
                Some(WaitingFor::new(Wait::Preparation, "by a hook, its tool or the tool's provider"))
            }
            Why::Inside => Some(WaitingFor::new(Wait::Nested, "calls that it has made")),
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
                Some((call, tool)) => format!("of {call} ({tool})"),
                // It waits for an external answer, and is not in memory.
                None if rt.away.has(held_by.batch) => {
                    format!("of {}", Handle::seal(rt.store.secret(), HandleKind::Call, held_by.packed()))
                }
                None => "of a call that is just ending".to_string(),
            };
            let what = name.as_ref().map_or(holder.clone(), |name| format!("{holder} on {name}"));
            WaitingFor::new(Wait::Claim, &what)
        }
        Why::Limit(limit) => WaitingFor::new(Wait::Limit, &reached(limit, tool)),
        Why::Rate { group, until_us } => {
            let whose = match group {
                Some(group) => format!("of the group {group}"),
                None => format!("of the tool {tool}"),
            };
            let until = until_us.map(|until_us| format!(" until {}", wall_time(at(rt, until_us))));
            WaitingFor::new(Wait::Rate, &(whose + until.as_deref().unwrap_or_default()))
        }
        Why::NoSuchTool => WaitingFor::new(Wait::NoSuchTool, ""),
        Why::Parked if let Some(first) = found.same_as => {
            let first = Handle::seal(rt.store.secret(), HandleKind::Call, first.packed());
            WaitingFor::new(Wait::SameAs, &first.to_string())
        }
        Why::Parked | Why::Unprepared => {
            found.parked.clone().unwrap_or_else(|| WaitingFor::new(Wait::Turn, ""))
        }
        Why::Inside | Why::Turn => WaitingFor::new(Wait::Turn, ""),
    })
}

/// The limit that is reached.
fn reached(limit: &Limit, tool: &str) -> String {
    let (whose, max) = match limit {
        Limit::Process { max } => ("the process".to_string(), max),
        Limit::Session { max } => ("the session".to_string(), max),
        Limit::Tool { max, .. } => (format!("the tool {tool}"), max),
        Limit::Group { group, max } => (format!("the group {group}"), max),
    };
    format!("of {whose}: {max} running calls")
}

/// The wait of a call by its journal, if it waits.
pub(crate) fn recorded(call: &Call) -> Option<WaitingFor> {
    let (parked, _) = call.parked?;
    let until = || format!("until {}", wall_time(parked.wake_at));
    let known = match parked.reason {
        Reason::Connection if let Some(said) = call.unconnected() => {
            let told = format!("to {} {}", said.provider, until());
            said.setup_url.as_ref().map_or(told.clone(), |url| format!("{told} at {url}"))
        }
        Reason::Approval if let Some(asked) = call.open_approval() => {
            format!("by {} {}", rule_names(&asked.by), until())
        }
        Reason::Retry
        | Reason::Approval
        | Reason::Sleep
        | Reason::Completion
        | Reason::Input
        | Reason::Connection
        | Reason::Client
        | Reason::Signal
        | Reason::Awaited => until(),
        Reason::ToolChanged | Reason::NoSuchTool | Reason::ToolPaused | Reason::NoWorker => String::new(),
    };
    Some(WaitingFor::new(parked.reason.into(), &known))
}

/// The wall time at a past point of the clock that never jumps.
fn past(rt: &Inner, us: u64) -> Timestamp {
    let ago = i64::try_from(rt.clock.elapsed_us().saturating_sub(us)).unwrap_or(i64::MAX);
    Timestamp(rt.clock.now().0.saturating_sub(ago))
}

/// The wall time at a point of the clock that never jumps.
fn at(rt: &Inner, us: u64) -> Timestamp {
    let left = i64::try_from(us.saturating_sub(rt.clock.elapsed_us())).unwrap_or(i64::MAX);
    Timestamp(rt.clock.now().0.saturating_add(left))
}
