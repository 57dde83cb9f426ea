//! How a command reaches calls: at the named server, through the owner's socket where the folder is owned,
//! else in the folder itself.

use crate::exit::Usage;
use crate::{database, folder, show};
use anyhow::Context;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::approvals::remembered;
use windlass::inspect::{self, CallFilter, RecordedCall};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Store, StoreError};
use windlass::{Limits, Runtime};
use windlass_core::handle::{Handle, open_question_id};
use windlass_server::access::Caller;
use windlass_server::client::{Client, ClientError};
use windlass_server::sessions::Sessions;
use windlass_server::view::{self, View, Whose};
use windlass_server::wire::approvals::{RememberedView, WaitingFilter, WaitingQuery};
use windlass_server::wire::shown::{PageView, SessionView};
use windlass_server::wire::{CallQuery, LIMIT_MAX, Paging, QuestionQuery, Show, StateFilter};

/// How long to wait for an owner that does not serve its socket yet.
const OWNER_WAIT: Duration = Duration::from_secs(5);
const OWNER_LOOKS_EVERY: Duration = Duration::from_millis(20);
/// The length of a question's id.
const QUESTION_CHARS: usize = 52;
/// The maximum number of remembered approvals that are read.
const REMEMBERED_MAX: u64 = 1_000;
/// The maximum number of sessions searched for a handle's prefix.
const SESSIONS_MAX: u64 = 1_000;

/// The place of the calls: a folder or a server.
pub struct At {
    pub data: PathBuf,
    /// Whether --data was given.
    pub is_named: bool,
    /// Whether the folder is one to try things in: it has a file of its own.
    pub is_demo: bool,
    /// The configuration file, if it is not the folder's own.
    pub config: Option<PathBuf>,
    /// The database given with --store or in the environment.
    pub store: Option<String>,
    pub server: Option<ServerAddress>,
    /// The token file for the server; without one the token is in the environment.
    pub token_file: Option<PathBuf>,
}

/// The default data folder.
const USUAL_DATA: &str = ".windlass";

/// A server's address and the token for it.
pub struct ServerAddress {
    pub url: String,
    pub token: Option<String>,
}

impl At {
    /// The options that point another command at the same calls, ready to append to it: empty, or options
    /// with a leading space.
    pub fn options(&self) -> String {
        let path = |path: &PathBuf| show::word(&path.display().to_string());
        match (&self.server, &self.token_file) {
            (Some(server), Some(file)) => {
                format!(" --server {} --token-file {}", show::word(&server.url), path(file))
            }
            (Some(server), None) => format!(" --server {}", show::word(&server.url)),
            (None, _) if self.data == Path::new(USUAL_DATA) => String::new(),
            (None, _) => format!(" --data {}", path(&self.data)),
        }
    }

    /// The driver of the calls, if there is one: the named server, or the folder's owner.
    pub async fn driver(&self) -> Result<Option<Client>, ClientError> {
        match &self.server {
            Some(ServerAddress { url, token }) => Client::at(url, token.clone()).map(Some),
            None => Client::find(&self.data).await,
        }
    }
}

/// The connection to the calls.
pub struct Door {
    pub way: DoorRoute,
    /// The store, where it can be read next to the driver.
    record: Option<Arc<dyn Store>>,
    /// The tools as this command would load them; they know which arguments are secret. `None` if the
    /// folder's configuration cannot be read.
    tools: Option<Runtime>,
}

/// All items of a list, page by page.
async fn every(page: impl AsyncFn(&Paging) -> anyhow::Result<Value>) -> anyhow::Result<Vec<Value>> {
    let mut paging = Paging { limit: Some(LIMIT_MAX), after: None };
    let mut items = Vec::new();
    loop {
        let mut page = page(&paging).await?;
        items.extend(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
        paging.after = page["next"].as_str().map(str::to_string);
        if paging.after.is_none() {
            return Ok(items);
        }
    }
}

/// The process that carries out a request.
pub enum DoorRoute {
    /// The driver of the calls.
    Driver(Client),
    /// No driver: this command works on the folder itself.
    Folder(Arc<dyn Store>),
}

impl Door {
    /// Opens a door for reading.
    pub async fn look(at: &At) -> anyhow::Result<Door> {
        if at.server.is_some()
            && let Some(server) = at.driver().await?
        {
            return Ok(Door { way: DoorRoute::Driver(server), record: None, tools: None });
        }
        let store = folder::reader(at).await?;
        let way = at.driver().await?.map_or_else(|| DoorRoute::Folder(store.clone()), DoorRoute::Driver);
        let tools = folder::tools_only(at).ok();
        Ok(Door { way, record: Some(store), tools })
    }

    /// Opens a door for changes: asks the driver of the calls, or owns the folder long enough to leave a request.
    pub async fn change(at: &At) -> anyhow::Result<Door> {
        let looking = Door::look(at).await?;
        if at.server.is_some() || matches!(looking.way, DoorRoute::Driver(_)) {
            return Ok(looking);
        }
        let opened = async || SqliteStore::open(Options::new(&at.data)).map_err(anyhow::Error::from);
        match driver_or(at, opened).await? {
            DoorReach::Driver(owner) => Ok(Door { way: DoorRoute::Driver(owner), ..looking }),
            DoorReach::Own(store) => {
                let store: Arc<dyn Store> = Arc::new(store);
                Ok(Door { way: DoorRoute::Folder(store.clone()), record: Some(store), ..looking })
            }
        }
    }

    /// A page of calls.
    pub async fn calls(&self, session: Option<&str>, list: &CallQuery) -> anyhow::Result<Value> {
        if let DoorRoute::Driver(driver) = &self.way {
            match driver.calls(session, list).await {
                Err(error @ ClientError::Unreachable { .. }) if self.record.is_some() => {
                    tell_unreachable(&error);
                }
                answered => return Ok(answered?),
            }
        }
        let whose = session.map_or(Whose::All, Whose::One);
        Ok(View::of_record(self.record()?.clone()).list(whose, list).await?.to_value())
    }

    /// One call.
    pub async fn call(&self, call: &str, journal: bool) -> anyhow::Result<Value> {
        if let DoorRoute::Driver(driver) = &self.way {
            match driver.call(call, journal).await {
                Err(error @ ClientError::Unreachable { .. }) if self.record.is_some() => {
                    tell_unreachable(&error);
                }
                answered => return Ok(answered?),
            }
        }
        let view = View::of_record(self.record()?.clone());
        let view = self.tools.iter().fold(view, View::with_tools);
        Ok(view.show(call, Show { journal, ..Show::default() }).await?.to_value())
    }

    /// All open questions.
    pub async fn questions(&self, session: Option<&str>) -> anyhow::Result<Vec<Value>> {
        every(async |Paging { limit, after }| {
            let list =
                QuestionQuery { session: session.map(str::to_string), limit: *limit, after: after.clone() };
            Ok(match &self.way {
                DoorRoute::Driver(driver) => driver.questions(&list).await?,
                DoorRoute::Folder(store) => {
                    let view = View::of_record(store.clone());
                    serde_json::to_value(view.questions(Whose::All, &list).await?)?
                }
            })
        })
        .await
    }

    /// Everything that waits for a person.
    pub async fn waiting(&self, list: &WaitingQuery) -> anyhow::Result<Vec<Value>> {
        every(async |Paging { limit, after }| {
            let list = WaitingQuery { limit: *limit, after: after.clone(), ..list.clone() };
            Ok(match &self.way {
                DoorRoute::Driver(driver) => driver.waiting(&list).await?,
                DoorRoute::Folder(store) => {
                    serde_json::to_value(View::of_record(store.clone()).waiting(&list).await?)?
                }
            })
        })
        .await
    }

    /// All open approvals.
    pub async fn approvals(&self, session: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let session = session.map(str::to_string);
        self.waiting(&WaitingQuery {
            session,
            kind: Some(WaitingFilter::Approval),
            ..WaitingQuery::default()
        })
        .await
    }

    /// Finds an open approval by its id or a unique prefix of it.
    pub async fn find_approval(&self, text: &str) -> anyhow::Result<Value> {
        let prefix = text.to_lowercase();
        let mut found = self.approvals(None).await?;
        found.retain(|approval| approval["id"].as_str().is_some_and(|id| id.starts_with(&prefix)));
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            0 => {
                let told = "no open approval begins with";
                let next = "it may have been answered; `windlass approvals` lists the open ones";
                Err(Usage(format!("{told} {text}; {next}")).into())
            }
            _ => Err(Usage(format!("several approvals begin with {text}; write more of it")).into()),
        }
    }

    /// The approvals that a session gives again by itself.
    pub async fn remembered(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| {
            Ok(match &self.way {
                DoorRoute::Driver(driver) => driver.remembered(session, paging).await?,
                DoorRoute::Folder(store) => {
                    let found = remembered(&**store, session, REMEMBERED_MAX).await?;
                    let items: Vec<RememberedView> = found.into_iter().map(Into::into).collect();
                    json!({ "items": items })
                }
            })
        })
        .await
    }

    /// The tasks of a session, newest first.
    pub async fn tasks(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            DoorRoute::Driver(driver) => Ok(driver.tasks(session, paging).await?),
            DoorRoute::Folder(store) => {
                let recorded = windlass::tasks::Tasks::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::tasks(&recorded, &paging.into()).await?)?)
            }
        })
        .await
    }

    /// A page of a task's log, after this piece.
    pub async fn log(&self, session: &str, task: &str, after: Option<u64>) -> anyhow::Result<Vec<Value>> {
        let paging = Paging { limit: Some(LIMIT_MAX), after: after.map(|no| no.to_string()) };
        let answered = match &self.way {
            DoorRoute::Driver(driver) => match driver.log(session, task, &paging).await {
                // A follower continues with the recorded log until the folder has an owner again.
                Err(ClientError::Unreachable { .. }) if self.record.is_some() => None,
                answered => Some(answered?),
            },
            DoorRoute::Folder(_) => None,
        };
        let mut page = match answered {
            Some(page) => page,
            None => {
                let tasks = windlass::tasks::Tasks::recorded(self.record()?.clone(), session);
                serde_json::to_value(view::log(&tasks, task, &paging).await?)?
            }
        };
        Ok(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// The notices in a session's inbox.
    pub async fn inbox(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            DoorRoute::Driver(driver) => Ok(driver.inbox(session, paging).await?),
            DoorRoute::Folder(store) => {
                let recorded = windlass::tasks::Inbox::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::inbox(&recorded, &paging.into()).await?)?)
            }
        })
        .await
    }

    /// The messages to and from a task, oldest first.
    pub async fn messages(&self, session: &str, task: &str) -> anyhow::Result<Vec<Value>> {
        let mut page = match &self.way {
            DoorRoute::Driver(driver) => driver.messages(session, task).await?,
            DoorRoute::Folder(store) => {
                let tasks = windlass::tasks::Tasks::recorded(store.clone(), session);
                serde_json::json!({ "items": tasks.messages(task).await? })
            }
        };
        Ok(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// The schedules of a session, by id.
    pub async fn schedules(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            DoorRoute::Driver(driver) => Ok(driver.schedules(session, paging).await?),
            DoorRoute::Folder(store) => {
                let recorded = windlass::schedules::Schedules::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::schedules(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// The triggers of a session, by id.
    pub async fn triggers(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            DoorRoute::Driver(driver) => Ok(driver.triggers(session, paging).await?),
            DoorRoute::Folder(store) => {
                let recorded = windlass::triggers::Triggers::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::triggers(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// The owner of the folder: only an owner changes its own schedules and triggers.
    pub fn driver(&self, so: &str) -> anyhow::Result<&Client> {
        match &self.way {
            DoorRoute::Driver(driver) => Ok(driver),
            DoorRoute::Folder(_) => {
                let told = format!("this folder has no owner, so {so}; start `windlass serve` first");
                Err(Usage(told).into())
            }
        }
    }

    /// All sessions, by name.
    pub async fn sessions(&self) -> anyhow::Result<Vec<SessionView>> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = match &self.way {
                DoorRoute::Driver(driver) => {
                    driver.sessions(&Paging { limit: Some(LIMIT_MAX), after }).await?
                }
                DoorRoute::Folder(store) => recorded_sessions(store, after.as_deref()).await?,
            };
            items.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(items);
            }
        }
    }

    fn record(&self) -> anyhow::Result<&Arc<dyn Store>> {
        self.record.as_ref().context("the record cannot be read from here")
    }

    /// Finds a question by its id or a unique prefix of it.
    pub async fn find_question(&self, text: &str) -> anyhow::Result<String> {
        let prefix = text.to_lowercase();
        let is_whole = match &self.record {
            Some(record) => open_question_id(record.secret(), &prefix).is_some(),
            None => prefix.len() == QUESTION_CHARS,
        };
        if is_whole {
            return Ok(prefix);
        }
        let questions = self.questions(None).await?;
        let ids = questions.iter().filter_map(|question| question["id"].as_str());
        match ids.filter(|id| id.starts_with(&prefix)).collect::<Vec<_>>().as_slice() {
            [one] => Ok(one.to_string()),
            [] => {
                let told = "no open question begins with";
                Err(Usage(format!("{told} {text}; `windlass questions` lists them")).into())
            }
            _ => Err(Usage(format!("several questions begin with {text}; write more of it")).into()),
        }
    }

    /// Finds a handle by itself or a unique prefix of it.
    pub async fn find(&self, text: &str) -> anyhow::Result<String> {
        if let Some(handle) = Handle::parse(text) {
            return Ok(handle.to_string());
        }
        let prefix = text.to_lowercase();
        let mut found = self.open_beginning_with(&prefix).await?;
        found.extend(self.recorded_beginning_with(&prefix).await?);
        found.sort();
        found.dedup();
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Usage(format!("no call begins with {text}; `windlass calls` lists them")).into()),
            _ => Err(Usage(format!("several calls begin with {text}; write more of it")).into()),
        }
    }

    /// Open calls with this prefix. Calls that are not recorded yet are known only to their owner; a server's record only to that server.
    async fn open_beginning_with(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        if matches!(self.way, DoorRoute::Folder(_)) {
            return Ok(found);
        }
        let state = self.record.is_some().then_some(StateFilter::Open);
        let mut list = CallQuery { state, limit: Some(LIMIT_MAX), ..CallQuery::default() };
        loop {
            let page = self.calls(None, &list).await?;
            let calls =
                page["items"].as_array().into_iter().flatten().filter_map(|call| call["call"].as_str());
            found.extend(calls.filter(|call| call.starts_with(prefix)).map(str::to_string));
            list.after = page["next"].as_str().map(str::to_string);
            if list.after.is_none() {
                return Ok(found);
            }
        }
    }

    async fn recorded_beginning_with(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let Some(record) = &self.record else { return Ok(Vec::new()) };
        let sessions = record.sessions(None, SESSIONS_MAX).await?;
        let keep = |call: &RecordedCall| call.answer.handle().to_string().starts_with(prefix);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            // Two matches are enough to know that the prefix is ambiguous.
            let wanted = CallFilter { after, limit: 2, open_only: false, keep: &keep };
            let page = inspect::page(record, &sessions, &wanted).await?;
            for (session, what) in page.unreadable {
                crate::logs::tell!("the calls of session {session} are skipped: {what}");
            }
            found.extend(page.calls.iter().map(|call| call.answer.handle().to_string()));
            after = page.next;
            if after.is_none() || found.len() > 1 {
                return Ok(found);
            }
        }
    }
}

/// A page of the sessions of a folder without an owner.
async fn recorded_sessions(
    store: &Arc<dyn Store>,
    after: Option<&str>,
) -> anyhow::Result<PageView<SessionView>> {
    let sessions = Sessions::new(store.clone(), &Limits::default());
    let (names, next) = sessions.page(&Caller::local(), after, LIMIT_MAX as usize).await?;
    let mut items = Vec::with_capacity(names.len());
    for name in &names {
        items.push(view::session(store, sessions.setting(name).await?, name).await?);
    }
    Ok(PageView { items, next })
}

/// The result of reaching the calls: a driver, or the folder owned by this command.
pub enum DoorReach<T> {
    Driver(Client),
    Own(T),
}

/// Returns the driver of the calls, or `own` applied to the folder if there is none. A new owner may not
/// serve its socket yet, and an ending one may still hold the folder.
pub async fn driver_or<T>(
    at: &At,
    mut own: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<DoorReach<T>> {
    let deadline = Instant::now() + OWNER_WAIT;
    loop {
        if let Some(driver) = at.driver().await? {
            return Ok(DoorReach::Driver(driver));
        }
        if database::find(at)?.is_some() {
            return Err(database::no_worker(at).into());
        }
        let refused = match own().await {
            Ok(own) => return Ok(DoorReach::Own(own)),
            Err(refused) => refused,
        };
        match refused.downcast_ref::<StoreError>() {
            Some(StoreError::Owned { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(OWNER_LOOKS_EVERY).await;
            }
            Some(StoreError::Owned { .. }) => {
                let told = "the folder has an owner, but it serves no control.sock";
                return Err(refused.context(told));
            }
            _ => return Err(refused),
        }
    }
}

fn tell_unreachable(error: &ClientError) {
    crate::logs::tell!("{error}; showing recorded calls only");
}

/// Finds an id by itself or a unique prefix of it.
pub fn the_one<'a>(
    what: &str,
    list: &str,
    text: &str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<String, Usage> {
    let found: Vec<&str> = ids.filter(|id| id.starts_with(text)).collect();
    match found.as_slice() {
        [one] => Ok((*one).to_string()),
        _ if found.contains(&text) => Ok(text.to_string()),
        [] => Err(Usage(format!("no {what} begins with {text}; `{list}` shows them"))),
        _ => Err(Usage(format!("several {what}s begin with {text}; write more of it"))),
    }
}
