//! Read views: the record, and what the owner knows beyond it. One shape for every caller and entrance.

mod narrated;
mod rendering;
mod timeline;

pub use rendering::{CallPage, QuestionPage, ShownBatch, ShownCall, UnreadableSession};
pub use timeline::BatchPage;

use rendering::OpenStanding;

use crate::problem::Problem;
use crate::sessions::{self, Setting};
use crate::wire::approvals::{WaitingPage, WaitingQuery};
use crate::wire::background::{InboxQuery, TaskQuery};
use crate::wire::schedules::{Fire, Fires, PreviewQuery};
use crate::wire::shown::{Contract, PageView, SessionView, ToolView};
use crate::wire::{CallQuery, LIMIT, LIMIT_MAX, Paging, QuestionQuery, Show, StateFilter};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use windlass::error::{AskError, ScheduleError, SessionError};
use windlass::inspect::{self, CallFilter, OpenCall, RecordedCall, WaitingKind, WaitingPlace, WaitingSearch};
use windlass::limits::SessionLimits;
use windlass::outcome::{ModelAnswer, Part};
use windlass::schedules::{Schedule, Schedules};
use windlass::sessions::{Child, SessionOpening, SessionOverlay};
use windlass::store::{SessionRow, Store};
use windlass::tasks::{Inbox, LogPiece, Notice, Task, TaskFilter, Tasks};
use windlass::time::{Clock, SystemClock, wall_time};
use windlass::tool::{Listed, Registered};
use windlass::triggers::{Trigger, Triggers};
use windlass::wait::{WaitingFor, standing_sentence};
use windlass::{BatchAnswer, CallAnswer, Limits, Runtime};
use windlass_args::arguments::Given;
use windlass_core::call::Fact;
use windlass_core::entry::{self, EntryEvent};
use windlass_core::handle::{Handle, HandleKind, open_question_id};
use windlass_core::ids::{BatchNo, CallId};
use windlass_core::time::Timestamp;

/// The sessions whose calls and questions are shown.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// All sessions.
    All,
    /// One session.
    One(&'a str),
    /// These sessions, sorted.
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

/// The maximum number of sessions read.
pub(crate) const SESSIONS_MAX: u64 = 1_000;

/// The message for skipped sessions.
pub(crate) fn left_out() -> String {
    format!("there are more than {SESSIONS_MAX} sessions, and the others are left out; name one session")
}

/// A read view of calls and questions.
pub struct View {
    store: Arc<dyn Store>,
    /// The tools, which declare their secret arguments.
    tools: Option<Runtime>,
    /// Open calls in memory, as their owner knows them, by handle.
    open: HashMap<String, OpenCall>,
}

impl View {
    /// The view of a store's owner.
    pub fn of(runtime: &Runtime) -> View {
        let open = runtime.live().into_iter().map(|call| (call.call.clone(), call));
        View { store: runtime.store().clone(), tools: Some(runtime.clone()), open: open.collect() }
    }

    /// The owner's view of one session.
    pub fn of_session(runtime: &Runtime, session: &str) -> View {
        let open = runtime.live_in(session).into_iter().map(|call| (call.call.clone(), call));
        View { store: runtime.store().clone(), tools: Some(runtime.clone()), open: open.collect() }
    }

    /// The view of a store without an owner.
    pub fn of_record(store: Arc<dyn Store>) -> View {
        View { store, tools: None, open: HashMap::new() }
    }

    /// Renders calls as a runtime with these tools would.
    pub fn with_tools(self, runtime: &Runtime) -> View {
        View { tools: Some(runtime.clone()), ..self }
    }

    /// A page of calls, newest first; unrecorded calls come before all others.
    pub async fn list(&self, whose: Whose<'_>, list: &CallQuery) -> Result<CallPage, AskError> {
        let limit = limit(list.limit)?;
        let mut sessions = self.sessions(whose).await?;
        let is_more = sessions.len() as u64 > SESSIONS_MAX;
        sessions.truncate(SESSIONS_MAX as usize);
        let chosen = |call: &OpenCall| {
            let waits = call.waiting_for.is_some();
            whose.has(&call.session)
                && fits(list, call.state, waits, &call.tool)
                && in_turn(list, call.turn.as_deref())
        };
        let mut fresh = self.unrecorded().await?;
        let mut after = list.after.as_deref().map(handle).transpose()?;
        if let Some(last) = after {
            // If the last page ended with a call that is recorded by now, the next continues at its place in the record.
            let place = fresh.iter().position(|call| call.call == last.to_string());
            fresh.drain(..place.map_or(fresh.len(), |place| place + 1));
            after = after.filter(|_| place.is_none());
        }
        let mut fresh: Vec<&OpenCall> = fresh.into_iter().filter(|call| chosen(call)).collect();
        let more = fresh.len() > limit;
        fresh.truncate(limit);
        let mut items: Vec<ShownCall> = fresh.iter().map(|call| ShownCall::unrecorded(call)).collect();
        if more {
            let next = fresh.last().map(|call| call.call.clone());
            self.narrate(&mut items).await?;
            return Ok(CallPage { items, next, ..CallPage::default() });
        }
        let keep = |call: &RecordedCall| {
            let (state, waiting) = self.stands(&call.answer);
            fits(list, state, waiting.is_some(), call.answer.tool()) && in_turn(list, call.turn.as_deref())
        };
        let open_only = list.state.is_some_and(StateFilter::is_open) || list.waiting == Some(true);
        let wanted = CallFilter { after, limit: limit - items.len(), open_only, keep: &keep };
        let page = inspect::page(&self.store, &sessions, &wanted).await?;
        items.extend(page.calls.iter().map(|call| self.whole(call)));
        self.narrate(&mut items).await?;
        let next = page.next.map(|next| next.to_string());
        let told = |(session, what)| UnreadableSession { session, what };
        let unreadable = page.unreadable.into_iter().map(told).collect();
        Ok(CallPage { items, next, left_out: is_more.then(left_out), unreadable })
    }

    /// One call, with its arguments, the details only operators see, and on request its journal.
    pub async fn show(&self, call: &str, Show { journal, spans }: Show) -> Result<ShownCall, AskError> {
        let not_found = || AskError::NotFound { what: format!("call {call:?}") };
        // A forged handle looks like one that names nothing.
        let handle = Handle::parse(call).ok_or_else(not_found)?;
        let found = inspect::call_with_tools(&self.store, handle, self.tools.as_ref()).await?;
        let Some((found, lines)) = found else {
            let open = self.open.get(&handle.to_string()).ok_or_else(not_found)?;
            let mut shown = ShownCall::unrecorded(open);
            shown.more.journal = journal.then(Vec::new);
            if spans {
                self.add_call_spans(&mut shown, call).await?;
            }
            self.narrate(std::slice::from_mut(&mut shown)).await?;
            return Ok(shown);
        };
        let mut shown = self.whole(&found);
        shown.show_operators();
        let given = &found.answer.call().opened.args;
        shown.more.args = Some(match given.given {
            Given::Json => serde_json::from_str(&given.text).unwrap_or_else(|_| json!(&*given.text)),
            Given::Text => json!(&*given.text),
        });
        let edited = found.answer.call().edited_args();
        shown.more.edited_args = edited.and_then(|args| serde_json::from_str(args).ok());
        if journal {
            shown.more.journal = Some(lines.iter().map(|line| json!(line)).collect());
        }
        if spans {
            self.add_call_spans(&mut shown, call).await?;
        }
        self.narrate(std::slice::from_mut(&mut shown)).await?;
        Ok(shown)
    }

    /// The current answers of a batch, in the order of its calls.
    pub fn batch(&self, answer: &BatchAnswer) -> ShownBatch {
        let calls = answer.calls.iter().map(|call| self.answer(call)).collect();
        ShownBatch { key: answer.key.to_string(), calls, decided: answer.decided.clone(), recorded: None }
    }

    /// The current state of the batch under this key.
    pub async fn find_batch(&self, session: &str, key: &str) -> Result<ShownBatch, AskError> {
        let row = self.store.session(session).await.map_err(SessionError::from)?;
        let found = match &row {
            Some(row) => inspect::batch(&self.store, row, key).await?,
            None => None,
        };
        if let Some((calls, decided)) = found {
            let calls = calls.into_iter().map(|call| call.answer).collect();
            return Ok(self.batch(&BatchAnswer { key: key.into(), calls, decided }));
        }
        // It may be too new to be recorded.
        let is_of = |call: &&OpenCall| call.session == session && call.batch == key;
        let mut open: Vec<&OpenCall> = self.open.values().filter(is_of).collect();
        if open.is_empty() {
            return Err(AskError::NotFound { what: format!("batch {key:?} in session {session:?}") });
        }
        open.sort_by_key(|call| {
            Handle::parse(&call.call).and_then(|handle| handle.open(self.store.secret(), HandleKind::Call))
        });
        let calls = open.into_iter().map(ShownCall::unrecorded).collect();
        Ok(ShownBatch { key: key.to_string(), calls, decided: None, recorded: None })
    }

    /// A page of open questions, oldest batch first.
    pub async fn questions(&self, whose: Whose<'_>, list: &QuestionQuery) -> Result<QuestionPage, AskError> {
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
                .ok_or_else(|| AskError::Shape { what: what() })?;
            // It may be answered by now: the questions after its place are the same.
            open.retain(|(place, _)| *place > after);
        }
        let more = open.len() > limit;
        open.truncate(limit);
        let items: Vec<_> = open.into_iter().map(|(_, question)| question).collect();
        let next = items.last().filter(|_| more).map(|last| last.id.clone());
        Ok(QuestionPage { items, next, left_out: None })
    }

    /// A page of what waits for a person, as it is recorded.
    pub async fn waiting(&self, list: &WaitingQuery) -> Result<WaitingPage, Problem> {
        let now = SystemClock::default().now();
        let found = inspect::waiting(&*self.store, now, &waiting_search(list)?, limit(list.limit)?).await?;
        Ok(found.into())
    }

    async fn sessions(&self, whose: Whose<'_>) -> Result<Vec<SessionRow>, AskError> {
        let find = async |name: &str| self.store.session(name).await.map_err(SessionError::from);
        match whose {
            Whose::All => {
                Ok(self.store.sessions(None, SESSIONS_MAX + 1).await.map_err(SessionError::from)?)
            }
            Whose::These(names) => {
                let mut rows = Vec::with_capacity(names.len());
                for name in names {
                    rows.extend(find(name).await?);
                }
                Ok(rows)
            }
            Whose::One(name) => match find(name).await? {
                Some(session) => Ok(vec![session]),
                // It may be too new to be recorded.
                None if self.open.values().any(|call| call.session == name) => Ok(Vec::new()),
                None => Err(SessionError::NotFound { session: name.to_string() }.into()),
            },
        }
    }

    /// The open calls that no journal has yet, newest first.
    async fn unrecorded(&self) -> Result<Vec<&OpenCall>, AskError> {
        let (mut fresh, mut known) = (Vec::new(), BTreeMap::new());
        for call in self.open.values() {
            let handle = Handle::parse(&call.call);
            let Some(id) = handle.and_then(|handle| handle.open(self.store.secret(), HandleKind::Call))
            else {
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

    /// The number of calls of a batch in its journal.
    async fn recorded_calls(&self, batch: BatchNo) -> Result<u64, SessionError> {
        let mut count = 0;
        for row in self.store.journal(batch).await? {
            let entries = entry::unpack(&row.data).map_err(|problem| {
                SessionError::undecodable(format!("entry {} of its journal", row.first), problem)
            })?;
            let is_opening =
                |event: &EntryEvent| matches!(event, EntryEvent::Call { fact: Fact::Opened(_), .. });
            count += entries.iter().filter(|entry| is_opening(&entry.event)).count() as u64;
        }
        Ok(count)
    }

    /// A recorded call, with its current state.
    fn whole(&self, call: &RecordedCall) -> ShownCall {
        let mut shown = self.answer(&call.answer);
        shown.more.session = Some(call.session.clone());
        shown.more.batch = Some(call.batch_key.to_string());
        shown.more.opened_at = Some(wall_time(call.opened_at));
        shown
    }

    /// The answer of a call, with its current state if it is open.
    fn answer(&self, call: &CallAnswer) -> ShownCall {
        if call.call().end().is_some() || call.is_conflict() {
            return ShownCall::over(call);
        }
        let (state, waiting) = self.stands(call);
        let live = self.open.get(&call.handle().to_string()).cloned();
        ShownCall::open(call, OpenStanding { state, waiting, live })
    }

    /// The answer of a call for the model; of one that is open, a sentence that says where it stands.
    pub(crate) fn model(&self, call: &CallAnswer) -> ModelAnswer {
        if call.call().end().is_some() || call.is_conflict() || call.is_task() {
            return call.model();
        }
        let (state, waiting) = self.stands(call);
        let text = standing_sentence(state, waiting.as_ref().map(WaitingFor::wait));
        ModelAnswer { parts: vec![Part::Text(text.into())], is_error: false }
    }

    /// The state of a recorded call, and what it waits for.
    fn stands(&self, call: &CallAnswer) -> (&'static str, Option<WaitingFor>) {
        let state = call.state();
        if call.call().end().is_some() {
            return (state, None);
        }
        match self.open.get(&call.handle().to_string()) {
            Some(open) => (open.state, open.waiting_for.clone()),
            // The record has the last owner's knowledge.
            None => (state, Some(inspect::waiting_for(call).unwrap_or_else(WaitingFor::owner))),
        }
    }
}

fn in_turn(list: &CallQuery, turn: Option<&str>) -> bool {
    list.turn.as_deref().is_none_or(|wanted| Some(wanted) == turn)
}

fn fits(list: &CallQuery, state: &str, waits: bool, tool: &str) -> bool {
    let is_over = StateFilter::parse(state).is_some_and(|state| !state.is_open());
    let in_state = match list.state {
        None => true,
        Some(StateFilter::Open) => !is_over,
        Some(wanted) => wanted.as_str() == state,
    };
    in_state
        && list.waiting.is_none_or(|wanted| wanted == waits)
        && list.tool.as_deref().is_none_or(|wanted| wanted == tool)
}

/// A session with its settings.
pub async fn session(
    store: &Arc<dyn Store>,
    setting: Option<Setting>,
    name: &str,
) -> Result<SessionView, Problem> {
    let row = store.session(name).await?;
    let Setting { principal, about: set } = setting.ok_or_else(|| sessions::not_found(name))?;
    let limits = SessionLimits::of(store, name).await?;
    let open_batches = match &row {
        Some(row) => store.open_batches(Some(row.no)).await?.len() as u64,
        None => 0,
    };
    let newest = match &row {
        Some(row) => inspect::batches(store, std::slice::from_ref(row), None, 1).await?.batches,
        None => Vec::new(),
    };
    let active_at =
        newest.first().and_then(|batch| batch.calls.first()).map(|call| wall_time(call.opened_at));
    let overlay = SessionOverlay::of(&**store, name).await?;
    let folder = SessionOpening::folder_of(&**store, name).await?;
    let child = Child::of(&**store, name).await?;
    let closed = match &child {
        Some(child) => child.is_closed(&**store).await?,
        None => false,
    };
    let opener = child.as_ref().and_then(|child| child.opener(store.secret()));
    let (parent, tools) = child.map(|child| (child.parent, child.tools)).unzip();
    Ok(SessionView {
        id: name.to_string(),
        principal: principal.map(|principal| principal.to_string()),
        parent,
        opener: opener.map(|opener| opener.to_string()),
        tools: tools.flatten(),
        overlay,
        folder,
        closed,
        title: set.title,
        labels: set.labels,
        locale: set.locale,
        limits: limits.into(),
        created_at: set.created_at.map(|at| wall_time(Timestamp(at))),
        active_at,
        entries: row.map_or(0, |row| row.head.0),
        open_batches,
    })
}

/// A tool, with the details its provider has loaded.
pub fn tool(listed: &Listed) -> ToolView {
    let summary = &listed.summary;
    ToolView {
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
        source: spec.source.to_string(),
        category: spec.category.clone(),
        tags: spec.tags.clone(),
        class: tool.class.to_string(),
        hints: hints.filter_map(|(name, hint)| Some((name.to_string(), Value::Bool(hint?)))).collect(),
        flags: flags.map(|(name, _)| name.to_string()).collect(),
        claims: spec.claims.clone(),
        approval: spec.approval.to_string(),
        version: spec.version.clone(),
        input_schema: spec.input_schema.clone(),
        output_schema: spec.output_schema.clone(),
        contract: tool.contract.to_string(),
        display: spec.display_digest().to_string(),
    }
}

/// The number of items on a page.
pub fn limit(asked: Option<u64>) -> Result<usize, AskError> {
    let asked = asked.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&asked) {
        let what = format!("limit is between 1 and {LIMIT_MAX}, and {asked} is not; page on with after");
        return Err(AskError::Shape { what });
    }
    Ok(usize::try_from(asked).unwrap_or(usize::MAX))
}

fn handle(text: &str) -> Result<Handle, AskError> {
    let what = || format!("after takes the `next` of the page before, and {text:?} is none");
    Handle::parse(text).ok_or_else(|| AskError::Shape { what: what() })
}

/// A page of a session's tasks, newest first.
pub async fn tasks(tasks: &Tasks, query: &TaskQuery) -> Result<PageView<Task>, AskError> {
    let limit = limit(query.limit)?;
    let filter = TaskFilter { state: query.state.as_deref(), kind: query.kind };
    let found = tasks.list_where(filter, query.after.as_deref(), limit as u64).await?;
    Ok(PageView { items: found.tasks, next: found.next })
}

/// A page of a task's log.
pub async fn log(tasks: &Tasks, task: &str, paging: &Paging) -> Result<PageView<LogPiece>, AskError> {
    let limit = limit(paging.limit)?;
    let number = |after: &str| {
        after.parse::<u64>().map_err(|_| {
            let what = format!("after is the number of a piece, as `next` gives it, and {after:?} is none");
            AskError::Shape { what }
        })
    };
    let after = paging.after.as_deref().map(number).transpose()?;
    let mut items = tasks.log(task, after, limit as u64 + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|piece| piece.no.to_string());
    Ok(PageView { items, next })
}

/// A page of a session's inbox, in order of delivery.
pub async fn inbox(inbox: &Inbox, query: &InboxQuery) -> Result<PageView<Notice>, Problem> {
    let limit = limit(query.limit)?.min(INBOX_MAX);
    let (after, most) = (query.after.as_deref(), limit as u64 + 1);
    let mut items = match query.acknowledged {
        true => inbox.acknowledged(after, most).await?,
        false => inbox.list(after, most).await?,
    };
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|notice| notice.id.clone());
    Ok(PageView { items, next })
}

/// The maximum number of notices on a page: each carries its outcome.
const INBOX_MAX: usize = 50;

/// A page of a session's schedules, by id.
pub async fn schedules(schedules: &Schedules, paging: &Paging) -> Result<PageView<Schedule>, Problem> {
    page_of(schedules.list().await?, paging, |schedule| &schedule.id)
}

/// A page of a session's triggers, by id.
pub async fn triggers(triggers: &Triggers, paging: &Paging) -> Result<PageView<Trigger>, Problem> {
    page_of(triggers.list().await?, paging, |trigger| &trigger.id)
}

/// A page of a sorted list in memory.
fn page_of<T>(
    mut items: Vec<T>,
    paging: &Paging,
    id: impl Fn(&T) -> &String,
) -> Result<PageView<T>, Problem> {
    let limit = limit(paging.limit)?;
    items.retain(|item| paging.after.as_ref().is_none_or(|after| id(item) > after));
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|item| id(item).clone());
    Ok(PageView { items, next })
}

/// The next times of a schedule that is not created yet.
pub fn fires(wanted: &PreviewQuery, now: Timestamp, limits: &Limits) -> Result<Fires, ScheduleError> {
    let found = windlass::schedules::preview(wanted.written(), wanted.limit.unwrap_or(5), now, limits)?;
    let fire = |(at, local)| Fire { at: wall_time(at), local };
    Ok(Fires { items: found.into_iter().map(fire).collect() })
}

/// The search that a list of waiting calls asks for.
pub(crate) fn waiting_search(list: &WaitingQuery) -> Result<WaitingSearch<'_>, Problem> {
    let place = |after: &String| {
        let what = format!("after takes the `next` of the page before, and {after:?} is none");
        WaitingPlace::parse(after).ok_or(AskError::Shape { what })
    };
    let (kind, session) = (list.kind.map(WaitingKind::from), list.session.as_deref());
    Ok(WaitingSearch { kind, session, after: list.after.as_ref().map(place).transpose()? })
}
