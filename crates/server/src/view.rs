//! What there is to see: the record, and what the owner knows beyond it. One shape, whoever asks and by which way.

use crate::problem::Problem;
use crate::sessions::{self, Setting};
use crate::wire::schedules::{Fire, Fires, PreviewSchedule};
use crate::wire::shown::{Contract, Page, Session, Tool};
use crate::wire::{LIMIT, LIMIT_MAX, List, Paging, Questions, State};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use windlass::core::call::{Fact, Given};
use windlass::core::entry::{self, Event};
use windlass::core::handle::{Handle, Kind, open_question_id};
use windlass::core::ids::{BatchNo, CallId};
use windlass::core::limits::Limits;
use windlass::core::time::Timestamp;
use windlass::inspect::{self, Recorded, Wanted};
use windlass::store::{SessionRow, Store};
use windlass::{
    AskError, BatchAnswer, BatchError, CallAnswer, Child, Clock, Inbox, Listed, LogPiece, Notice, OpenCall,
    Registered, Runtime, Schedule, ScheduleError, Schedules, SessionLimits, SystemClock, Task, Tasks,
    Trigger, Triggers, wall_time,
};

/// Whose calls and questions are shown.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// Those of all sessions.
    All,
    /// Those of one.
    One(&'a str),
    /// Those of some, which are sorted.
    These(&'a [String]),
}

impl Whose<'_> {
    fn has(&self, session: &str) -> bool {
        match self {
            Whose::All => true,
            Whose::One(name) => *name == session,
            Whose::These(names) => names.binary_search_by(|name| name.as_str().cmp(session)).is_ok(),
        }
    }
}

/// How many sessions are looked at.
pub(crate) const SESSIONS_MAX: u64 = 1_000;

/// What is said where there are more.
pub(crate) fn left_out() -> String {
    format!(
        "there are more than {SESSIONS_MAX} sessions, and the others are left out; ask for those of one session"
    )
}

/// What there is to see.
pub struct View {
    store: Arc<dyn Store>,
    /// What is open and in memory, as its owner knows it, by handle.
    open: HashMap<String, OpenCall>,
}

impl View {
    /// What the owner of a store sees.
    pub fn of(runtime: &Runtime) -> View {
        let open = runtime.live().into_iter().map(|call| (call.call.clone(), call));
        View { store: runtime.store().clone(), open: open.collect() }
    }

    /// What the owner of a store sees of one session.
    pub fn of_session(runtime: &Runtime, session: &str) -> View {
        let open = runtime.live_in(session).into_iter().map(|call| (call.call.clone(), call));
        View { store: runtime.store().clone(), open: open.collect() }
    }

    /// What is to be seen of a store that nobody drives.
    pub fn of_record(store: Arc<dyn Store>) -> View {
        View { store, open: HashMap::new() }
    }

    /// A page of calls, newest first; those that are not recorded yet before all others.
    pub async fn list(&self, whose: Whose<'_>, list: &List) -> Result<Value, AskError> {
        let limit = limit(list.limit)?;
        let mut sessions = self.sessions(whose).await?;
        let is_more = sessions.len() as u64 > SESSIONS_MAX;
        sessions.truncate(SESSIONS_MAX as usize);
        let chosen = |call: &OpenCall| {
            let waits = call.waiting_for.is_some();
            whose.has(&call.session) && fits(list, (call.state, waits), &call.tool)
        };
        let mut fresh = self.unrecorded().await?;
        let mut after = list.after.as_deref().map(handle).transpose()?;
        if let Some(last) = after {
            // A page that ended with a call that is recorded by now goes on where it stands in the record.
            let place = fresh.iter().position(|call| call.call == last.to_string());
            fresh.drain(..place.map_or(fresh.len(), |place| place + 1));
            after = after.filter(|_| place.is_none());
        }
        let mut fresh: Vec<&OpenCall> = fresh.into_iter().filter(|call| chosen(call)).collect();
        let more = fresh.len() > limit;
        fresh.truncate(limit);
        let mut items: Vec<Value> = fresh.iter().map(|call| unrecorded(call)).collect();
        if more {
            let next = fresh.last().map(|call| call.call.as_str());
            return Ok(json!({"items": items, "next": next}));
        }
        let keep = |call: &Recorded| {
            let (state, waiting) = self.stands(&call.answer);
            fits(list, (state, waiting.is_some()), call.answer.tool())
        };
        let open_only = list.state.is_some_and(State::is_open) || list.waiting == Some(true);
        let wanted = Wanted { after, limit: limit - items.len(), open_only, keep: &keep };
        let page = inspect::page(&self.store, &sessions, &wanted).await?;
        items.extend(page.calls.iter().map(|call| self.whole(call)));
        let next = page.next.map(|next| next.to_string());
        let mut shown = json!({"items": items, "next": next});
        if is_more {
            shown["left_out"] = left_out().into();
        }
        if !page.unreadable.is_empty() {
            let told =
                page.unreadable.iter().map(|(session, what)| json!({"session": session, "what": what}));
            shown["unreadable"] = told.collect();
        }
        Ok(shown)
    }

    /// One call, with its arguments, what only operators are told, and on request its journal.
    pub async fn show(&self, call: &str, journal: bool) -> Result<Value, AskError> {
        let not_found = || AskError::NotFound { what: format!("call {call:?}") };
        // A forged handle is told like one that names nothing.
        let handle = Handle::parse(call).ok_or_else(not_found)?;
        let found = inspect::call(&self.store, handle).await?;
        let Some((found, lines)) = found else {
            let open = self.open.get(&handle.to_string()).ok_or_else(not_found)?;
            let mut shown = unrecorded(open);
            if journal {
                shown["journal"] = json!([]);
            }
            return Ok(shown);
        };
        let mut shown = self.whole(&found);
        let given = &found.answer.call().opened.args;
        shown["args"] = match given.given {
            Given::Json => serde_json::from_str(&given.text).unwrap_or_else(|_| json!(&*given.text)),
            Given::Text => json!(&*given.text),
        };
        if let Some(detail) = found.answer.failure().and_then(|failure| failure.detail.as_ref()) {
            shown["outcome"]["failure"]["detail"] = json!(detail);
        }
        if journal {
            shown["journal"] = serde_json::to_value(&lines).unwrap_or_default();
        }
        Ok(shown)
    }

    /// The answers of a batch as they stand, in the order of its calls.
    pub fn batch(&self, answer: &BatchAnswer) -> Value {
        let calls: Vec<Value> = answer.calls.iter().map(|call| self.answer(call)).collect();
        let mut shown = json!({"key": answer.key, "calls": calls});
        if let Some(decided) = &answer.decided {
            shown["decided"] = serde_json::to_value(decided).unwrap_or_default();
        }
        shown
    }

    /// The batch under this key, as it stands.
    pub async fn find_batch(&self, session: &str, key: &str) -> Result<Value, AskError> {
        let row = self.store.session(session).await.map_err(BatchError::from)?;
        let found = match &row {
            Some(row) => inspect::batch(&self.store, row, key).await?,
            None => None,
        };
        if let Some((calls, decided)) = found {
            let calls = calls.into_iter().map(|call| call.answer).collect();
            return Ok(self.batch(&BatchAnswer { key: key.into(), calls, decided }));
        }
        // It may be so new that nothing of it is recorded.
        let is_of = |call: &&OpenCall| call.session == session && call.batch == key;
        let mut open: Vec<&OpenCall> = self.open.values().filter(is_of).collect();
        if open.is_empty() {
            return Err(AskError::NotFound { what: format!("batch {key:?} in session {session:?}") });
        }
        open.sort_by_key(|call| {
            Handle::parse(&call.call).and_then(|handle| handle.open(self.store.secret(), Kind::Call))
        });
        Ok(json!({"key": key, "calls": open.into_iter().map(unrecorded).collect::<Vec<_>>()}))
    }

    /// A page of the questions that wait for an answer, oldest batch first.
    pub async fn questions(&self, whose: Whose<'_>, list: &Questions) -> Result<Value, AskError> {
        let limit = limit(list.limit)?;
        let open = inspect::questions(&*self.store, SystemClock::default().now()).await?;
        let mut open: Vec<_> = open
            .into_iter()
            .filter_map(|question| Some((open_question_id(self.store.secret(), &question.id)?, question)))
            .filter(|(_, question)| whose.has(&question.session))
            .filter(|(_, question)| list.session.as_ref().is_none_or(|session| *session == question.session))
            .collect();
        open.sort_by_key(|(place, _)| *place);
        if let Some(after) = &list.after {
            let what = || format!("after takes the `next` of the page before, and {after:?} is none");
            let after = open_question_id(self.store.secret(), after)
                .ok_or_else(|| BatchError::Shape { what: what() })?;
            // It may be answered by now: what comes behind its place is the same.
            open.retain(|(place, _)| *place > after);
        }
        let more = open.len() > limit;
        open.truncate(limit);
        let items: Vec<_> = open.into_iter().map(|(_, question)| question).collect();
        let next = items.last().filter(|_| more).map(|last| last.id.clone());
        Ok(json!({"items": items, "next": next}))
    }

    async fn sessions(&self, whose: Whose<'_>) -> Result<Vec<SessionRow>, AskError> {
        let find = async |name: &str| self.store.session(name).await.map_err(BatchError::from);
        match whose {
            Whose::All => Ok(self.store.sessions(None, SESSIONS_MAX + 1).await.map_err(BatchError::from)?),
            Whose::These(names) => {
                let mut rows = Vec::with_capacity(names.len());
                for name in names {
                    rows.extend(find(name).await?);
                }
                Ok(rows)
            }
            Whose::One(name) => match find(name).await? {
                Some(session) => Ok(vec![session]),
                // It may be so new that nothing of it is recorded.
                None if self.open.values().any(|call| call.session == name) => Ok(Vec::new()),
                None => Err(AskError::NotFound { what: format!("session {name:?}") }),
            },
        }
    }

    /// The open calls that no journal knows yet, newest first.
    async fn unrecorded(&self) -> Result<Vec<&OpenCall>, AskError> {
        let (mut fresh, mut known) = (Vec::new(), BTreeMap::new());
        for call in self.open.values() {
            let handle = Handle::parse(&call.call);
            let Some(id) = handle.and_then(|handle| handle.open(self.store.secret(), Kind::Call)) else {
                continue;
            };
            let id = CallId::unpacked(id);
            let recorded = match known.get(&id.batch) {
                Some(recorded) => *recorded,
                None => *known.entry(id.batch).or_insert(self.recorded_calls(id.batch).await?),
            };
            if u64::from(id.ordinal.0) >= recorded {
                fresh.push(call);
            }
        }
        fresh.sort_by(|a, b| (b.opened_at, &b.call).cmp(&(a.opened_at, &a.call)));
        Ok(fresh)
    }

    /// How many calls of a batch its journal knows.
    async fn recorded_calls(&self, batch: BatchNo) -> Result<u64, BatchError> {
        let mut count = 0;
        for row in self.store.journal(batch).await? {
            let entries = entry::unpack(&row.data)
                .map_err(|problem| BatchError::Unreadable { what: problem.to_string() })?;
            let is_opening = |event: &Event| matches!(event, Event::Call { fact: Fact::Opened(_), .. });
            count += entries.iter().filter(|entry| is_opening(&entry.event)).count() as u64;
        }
        Ok(count)
    }

    /// A recorded call, and where it stands now.
    fn whole(&self, call: &Recorded) -> Value {
        let mut shown = self.answer(&call.answer);
        shown["session"] = call.session.as_str().into();
        shown["batch"] = call.batch_key.as_str().into();
        shown["opened_at"] = wall_time(call.opened_at).into();
        shown
    }

    /// The answer of a call, and where it stands if it is open.
    fn answer(&self, call: &CallAnswer) -> Value {
        let mut shown = serde_json::to_value(call).unwrap_or_default();
        if call.call().end().is_some() || call.is_conflict() {
            return shown;
        }
        let (state, waiting) = self.stands(call);
        stands(&mut shown, state, waiting.as_deref());
        if let Some(open) = self.open.get(&call.handle().to_string()) {
            says(&mut shown, open);
        }
        shown
    }

    /// The state of a recorded call, and what it waits for.
    fn stands(&self, call: &CallAnswer) -> (&'static str, Option<String>) {
        let state = call.state();
        if call.call().end().is_some() {
            return (state, None);
        }
        match self.open.get(&call.handle().to_string()) {
            Some(open) => (open.state, open.waiting_for.clone()),
            // What the record says is what its last owner knew.
            None => (state, Some(inspect::waiting_for(call).unwrap_or_else(|| NO_OWNER.to_string()))),
        }
    }
}

/// What an open call waits for that nobody drives.
const NO_OWNER: &str = "owner (nobody drives it)";

/// A call that only its owner knows.
fn unrecorded(call: &OpenCall) -> Value {
    let mut shown = json!({
        "id": call.id, "call": call.call, "tool": call.tool, "attempts": u8::from(call.state == "running"),
        "session": call.session, "batch": call.batch, "opened_at": wall_time(call.opened_at),
    });
    if let Some(parent) = &call.parent {
        shown["parent"] = parent.as_str().into();
    }
    stands(&mut shown, call.state, call.waiting_for.as_deref());
    says(&mut shown, call);
    shown
}

/// What a running call says of itself.
fn says(shown: &mut Value, call: &OpenCall) {
    if let Some(progress) = &call.progress {
        shown["progress"] = json!(progress);
    }
    if let Some(status) = &call.status {
        shown["status"] = status.as_str().into();
    }
}

/// Says where an open call stands, to programs and to the model.
fn stands(shown: &mut Value, state: &str, waiting: Option<&str>) {
    shown["state"] = state.into();
    // The first word is for programs, the rest for people.
    let told = match waiting.and_then(|waiting| waiting.split(' ').next()) {
        Some("claim") => "The call waits until earlier calls that it must not overtake are over.",
        Some("retry") => "The call failed and waits for its next attempt.",
        Some("tool_changed") => "The call waits until an operator accepts that its tool has changed.",
        Some("no_such_tool") => "The call waits until its tool is there again.",
        Some("tool_paused") => "The call waits until its tool is resumed.",
        Some("completion") => "The call waits for an answer from outside.",
        Some("input") => "The call waits until a person has answered its question.",
        Some("connection") => "The call waits until a person has connected what its tool needs.",
        Some("client") => "The call waits for its caller, who runs the tool and posts the result.",
        Some("sleep") => "The call sleeps.",
        Some("preparation") => "The call waits until what looks at it before its start has answered.",
        Some("nested") => "The call waits for calls that its tool has made.",
        Some("owner") => "The call waits until a process goes on with its session.",
        Some(_) | None if state == "running" => "The call is running.",
        Some(_) | None => "The call waits for its start.",
    };
    if let Some(waiting) = waiting {
        shown["waiting_for"] = waiting.into();
    }
    // Of a task its answer says that it goes on, and where.
    if shown["task"].is_null() {
        shown["model"] = json!({"parts": [{"type": "text", "text": told}]});
    }
}

fn fits(list: &List, (state, waits): (&str, bool), tool: &str) -> bool {
    let is_over = State::parse(state).is_some_and(|state| !state.is_open());
    let in_state = match list.state {
        None => true,
        Some(State::Open) => !is_over,
        Some(wanted) => wanted.as_str() == state,
    };
    in_state
        && list.waiting.is_none_or(|wanted| wanted == waits)
        && list.tool.as_deref().is_none_or(|wanted| wanted == tool)
}

/// A session, with what is set for it.
pub async fn session(
    store: &Arc<dyn Store>,
    setting: Option<Setting>,
    name: &str,
) -> Result<Session, Problem> {
    let row = store.session(name).await?;
    let set = match (setting, &row) {
        (Some(set), _) => set,
        // Whoever has the folder has opened it, and nothing was set.
        (None, Some(_)) => Setting::unset(),
        (None, None) => return Err(sessions::not_found(name)),
    };
    let limits = SessionLimits::of(store, name).await?;
    let open_batches = match &row {
        Some(row) => store.open_batches(Some(row.no)).await?.len() as u64,
        None => 0,
    };
    let child = Child::of(&**store, name).await?;
    let closed = match &child {
        Some(child) => child.is_closed(&**store).await?,
        None => false,
    };
    let opener = child.as_ref().and_then(|child| child.opener(store.secret()));
    let (parent, tools) = child.map(|child| (child.parent, child.tools)).unzip();
    Ok(Session {
        id: name.to_string(),
        principal: set.principal.to_string(),
        parent,
        opener: opener.map(|opener| opener.to_string()),
        tools: tools.flatten(),
        closed,
        title: set.title,
        labels: set.labels,
        locale: set.locale,
        limits: limits.into(),
        created_at: set.created_at.map(|at| wall_time(Timestamp(at))),
        entries: row.map_or(0, |row| row.head.0),
        open_batches,
    })
}

/// A tool, as far as its provider was asked for it.
pub fn tool(listed: &Listed) -> Tool {
    let summary = &listed.summary;
    Tool {
        name: summary.name.clone(),
        title: if summary.title.is_empty() { summary.name.clone() } else { summary.title.clone() },
        description: summary.description.clone(),
        paused: listed.tool.as_ref().is_some_and(|tool| tool.is_paused()),
        contract: listed.tool.as_deref().map(contract),
    }
}

fn contract(tool: &Registered) -> Contract {
    let spec = &tool.spec;
    let hints = spec.hints.table().into_iter();
    let flags = spec.flags.table().into_iter().filter(|(_, set)| *set);
    Contract {
        id: spec.stable_id().to_string(),
        class: tool.class.to_string(),
        hints: hints.filter_map(|(name, hint)| Some((name.to_string(), Value::Bool(hint?)))).collect(),
        flags: flags.map(|(name, _)| name.to_string()).collect(),
        version: spec.version.clone(),
        input_schema: spec.input_schema.clone(),
        output_schema: spec.output_schema.clone(),
        contract: tool.contract.to_string(),
        display: spec.display_digest().to_string(),
    }
}

/// How many are on a page of a list.
pub fn limit(asked: Option<u64>) -> Result<usize, AskError> {
    let asked = asked.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&asked) {
        let what = format!("limit is between 1 and {LIMIT_MAX}, and {asked} is not; page on with after");
        return Err(BatchError::Shape { what }.into());
    }
    Ok(usize::try_from(asked).unwrap_or(usize::MAX))
}

fn handle(text: &str) -> Result<Handle, AskError> {
    let what = || format!("after takes the `next` of the page before, and {text:?} is none");
    Handle::parse(text).ok_or_else(|| BatchError::Shape { what: what() }.into())
}

/// A page of a session's tasks, newest first.
pub async fn tasks(tasks: &Tasks, paging: &Paging) -> Result<Page<Task>, AskError> {
    let limit = limit(paging.limit)?;
    let mut items = tasks.list(paging.after.as_deref(), limit as u64 + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|task| task.task.clone());
    Ok(Page { items, next })
}

/// A page of what a task has said.
pub async fn log((tasks, task): (&Tasks, &str), paging: &Paging) -> Result<Page<LogPiece>, AskError> {
    let limit = limit(paging.limit)?;
    let number = |after: &str| {
        after.parse::<u64>().map_err(|_| {
            let what = format!("after is the number of a piece, as `next` gives it, and {after:?} is none");
            AskError::Batch(BatchError::Shape { what })
        })
    };
    let after = paging.after.as_deref().map(number).transpose()?;
    let mut items = tasks.log(task, after, limit as u64 + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|piece| piece.no.to_string());
    Ok(Page { items, next })
}

/// A page of a session's inbox, in the order in which it is taken.
pub async fn inbox(inbox: &Inbox, paging: &Paging) -> Result<Page<Notice>, Problem> {
    let limit = limit(paging.limit)?.min(INBOX_MAX);
    let mut items = inbox.list(paging.after.as_deref(), limit as u64 + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|notice| notice.id.clone());
    Ok(Page { items, next })
}

/// So many notices are on a page at most: each is told with its outcome.
const INBOX_MAX: usize = 50;

/// A page of a session's schedules, by id.
pub async fn schedules(schedules: &Schedules, paging: &Paging) -> Result<Page<Schedule>, Problem> {
    page_of(schedules.list().await?, paging, |schedule| &schedule.id)
}

/// A page of a session's triggers, by id.
pub async fn triggers(triggers: &Triggers, paging: &Paging) -> Result<Page<Trigger>, Problem> {
    page_of(triggers.list().await?, paging, |trigger| &trigger.id)
}

/// A page of what is all in memory, and sorted.
fn page_of<T>(mut items: Vec<T>, paging: &Paging, id: impl Fn(&T) -> &String) -> Result<Page<T>, Problem> {
    let limit = limit(paging.limit)?;
    items.retain(|item| paging.after.as_ref().is_none_or(|after| id(item) > after));
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|item| id(item).clone());
    Ok(Page { items, next })
}

/// The next times of what would be a schedule.
pub fn fires(wanted: &PreviewSchedule, now: Timestamp, limits: &Limits) -> Result<Fires, ScheduleError> {
    let found = windlass::preview(wanted.written(), wanted.limit.unwrap_or(5), now, limits)?;
    let fire = |(at, local)| Fire { at: wall_time(at), local };
    Ok(Fires { items: found.into_iter().map(fire).collect() })
}
