//! How a command reaches calls: at the server that was named, through the owner's socket where the folder is owned, else in
//! the folder itself.

use crate::exit::Usage;
use crate::folder;
use anyhow::Context;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::core::handle::{Handle, open_question_id};
use windlass::core::limits::Limits;
use windlass::inspect::{self, Recorded, Wanted};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Store, StoreError};
use windlass_server::access::Caller;
use windlass_server::client::{Client, ClientError};
use windlass_server::sessions::Sessions;
use windlass_server::view::{self, View, Whose};
use windlass_server::wire::shown::{Page, Session};
use windlass_server::wire::{LIMIT_MAX, List, Paging, Questions, State};

/// How long such an owner is waited for.
const OWNER_WAIT: Duration = Duration::from_secs(5);
const OWNER_LOOKS_EVERY: Duration = Duration::from_millis(20);
/// So long is the id of a question.
const QUESTION_CHARS: usize = 52;
/// How many sessions are looked at for the beginning of a handle.
const SESSIONS_MAX: u64 = 1_000;

/// Where calls are: in a folder, or at a server.
pub struct At {
    pub data: PathBuf,
    /// The configuration, if it is not the folder's own.
    pub config: Option<PathBuf>,
    pub server: Option<Server>,
}

/// A server, and by what right it is asked.
pub struct Server {
    pub url: String,
    pub token: Option<String>,
}

impl At {
    /// Whoever drives the calls, if somebody does: the server that was named, or the folder's owner.
    pub async fn driver(&self) -> Result<Option<Client>, ClientError> {
        match &self.server {
            Some(Server { url, token }) => Client::at(url, token.clone()).map(Some),
            None => Client::find(&self.data).await,
        }
    }
}

/// The way to calls.
pub struct Door {
    pub way: Way,
    /// The record, where it can be read beside whoever drives the calls.
    record: Option<Arc<dyn Store>>,
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

/// Who does what is asked.
pub enum Way {
    /// Whoever drives the calls.
    Driver(Client),
    /// Nobody drives them: this command, in the folder.
    Folder(Arc<dyn Store>),
}

impl Door {
    /// To look.
    pub async fn look(at: &At) -> anyhow::Result<Door> {
        if at.server.is_some()
            && let Some(server) = at.driver().await?
        {
            return Ok(Door { way: Way::Driver(server), record: None });
        }
        let store = folder::reader(&at.data)?;
        let way = at.driver().await?.map_or_else(|| Way::Folder(store.clone()), Way::Driver);
        Ok(Door { way, record: Some(store) })
    }

    /// To change something: by asking whoever drives the calls, or as the owner for as long as it takes to leave a request.
    pub async fn change(at: &At) -> anyhow::Result<Door> {
        let looking = Door::look(at).await?;
        if at.server.is_some() || matches!(looking.way, Way::Driver(_)) {
            return Ok(looking);
        }
        let opened = async || SqliteStore::open(Options::new(&at.data)).map_err(anyhow::Error::from);
        match driver_or(at, opened).await? {
            Reached::Driver(owner) => Ok(Door { way: Way::Driver(owner), ..looking }),
            Reached::Own(store) => {
                let store: Arc<dyn Store> = Arc::new(store);
                Ok(Door { way: Way::Folder(store.clone()), record: Some(store) })
            }
        }
    }

    /// A page of calls.
    pub async fn calls(&self, session: Option<&str>, list: &List) -> anyhow::Result<Value> {
        if let Way::Driver(driver) = &self.way {
            match driver.calls(session, list).await {
                Err(error @ ClientError::Unreachable { .. }) if self.record.is_some() => {
                    tell_unreachable(&error);
                }
                answered => return Ok(answered?),
            }
        }
        let whose = session.map_or(Whose::All, Whose::One);
        Ok(View::of_record(self.record()?.clone()).list(whose, list).await?)
    }

    /// One call.
    pub async fn call(&self, call: &str, journal: bool) -> anyhow::Result<Value> {
        if let Way::Driver(driver) = &self.way {
            match driver.call(call, journal).await {
                Err(error @ ClientError::Unreachable { .. }) if self.record.is_some() => {
                    tell_unreachable(&error);
                }
                answered => return Ok(answered?),
            }
        }
        Ok(View::of_record(self.record()?.clone()).show(call, journal).await?)
    }

    /// All questions that wait for an answer.
    pub async fn questions(&self, session: Option<&str>) -> anyhow::Result<Vec<Value>> {
        every(async |Paging { limit, after }| {
            let list =
                Questions { session: session.map(str::to_string), limit: *limit, after: after.clone() };
            Ok(match &self.way {
                Way::Driver(driver) => driver.questions(&list).await?,
                Way::Folder(store) => View::of_record(store.clone()).questions(Whose::All, &list).await?,
            })
        })
        .await
    }

    /// The tasks of a session, newest first.
    pub async fn tasks(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            Way::Driver(driver) => Ok(driver.tasks(session, paging).await?),
            Way::Folder(store) => {
                let recorded = windlass::Tasks::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::tasks(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// What a task has said after this piece: some of it.
    pub async fn log(&self, session: &str, task: &str, after: Option<u64>) -> anyhow::Result<Vec<Value>> {
        let paging = Paging { limit: Some(LIMIT_MAX), after: after.map(|no| no.to_string()) };
        let answered = match &self.way {
            Way::Driver(driver) => match driver.log((session, task), &paging).await {
                // Whoever follows it goes on with what is recorded, until somebody owns the folder again.
                Err(ClientError::Unreachable { .. }) if self.record.is_some() => None,
                answered => Some(answered?),
            },
            Way::Folder(_) => None,
        };
        let mut page = match answered {
            Some(page) => page,
            None => {
                let tasks = windlass::Tasks::recorded(self.record()?.clone(), session);
                serde_json::to_value(view::log((&tasks, task), &paging).await?)?
            }
        };
        Ok(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// What is in the inbox of a session.
    pub async fn inbox(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            Way::Driver(driver) => Ok(driver.inbox(session, paging).await?),
            Way::Folder(store) => {
                let recorded = windlass::Inbox::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::inbox(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// What was said to a task and what it said, oldest first.
    pub async fn messages(&self, session: &str, task: &str) -> anyhow::Result<Vec<Value>> {
        let mut page = match &self.way {
            Way::Driver(driver) => driver.messages((session, task)).await?,
            Way::Folder(store) => {
                let tasks = windlass::Tasks::recorded(store.clone(), session);
                serde_json::json!({ "items": tasks.messages(task).await? })
            }
        };
        Ok(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// The schedules of a session, by id.
    pub async fn schedules(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            Way::Driver(driver) => Ok(driver.schedules(session, paging).await?),
            Way::Folder(store) => {
                let recorded = windlass::Schedules::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::schedules(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// The triggers of a session, by id.
    pub async fn triggers(&self, session: &str) -> anyhow::Result<Vec<Value>> {
        every(async |paging| match &self.way {
            Way::Driver(driver) => Ok(driver.triggers(session, paging).await?),
            Way::Folder(store) => {
                let recorded = windlass::Triggers::recorded(store.clone(), session);
                Ok(serde_json::to_value(view::triggers(&recorded, paging).await?)?)
            }
        })
        .await
    }

    /// Whoever owns the folder: only an owner changes what it goes by.
    pub fn driver(&self, so: &str) -> anyhow::Result<&Client> {
        match &self.way {
            Way::Driver(driver) => Ok(driver),
            Way::Folder(_) => {
                let told =
                    format!("nobody owns this folder, so {so}; start its owner first, with `windlass serve`");
                Err(Usage(told).into())
            }
        }
    }

    /// All sessions, by name.
    pub async fn sessions(&self) -> anyhow::Result<Vec<Session>> {
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            let page = match &self.way {
                Way::Driver(driver) => driver.sessions(&Paging { limit: Some(LIMIT_MAX), after }).await?,
                Way::Folder(store) => recorded_sessions(store, after.as_deref()).await?,
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

    /// The id of the question that is meant: a whole one, or the only one that begins with this.
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

    /// The handle that is meant: a whole one, or the only one that begins with this.
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

    /// What is not recorded yet is known to its owner only, and what is recorded elsewhere to the server there.
    async fn open_beginning_with(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        if matches!(self.way, Way::Folder(_)) {
            return Ok(found);
        }
        let state = self.record.is_some().then_some(State::Open);
        let mut list = List { state, limit: Some(LIMIT_MAX), ..List::default() };
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
        let keep = |call: &Recorded| call.answer.handle().to_string().starts_with(prefix);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            // Two are as good as many.
            let wanted = Wanted { after, limit: 2, open_only: false, keep: &keep };
            let page = inspect::page(record, &sessions, &wanted).await?;
            for (session, what) in page.unreadable {
                eprintln!("windlass: the calls of session {session} are not looked at: {what}");
            }
            found.extend(page.calls.iter().map(|call| call.answer.handle().to_string()));
            after = page.next;
            if after.is_none() || found.len() > 1 {
                return Ok(found);
            }
        }
    }
}

/// A page of the sessions of a folder that nobody owns.
async fn recorded_sessions(store: &Arc<dyn Store>, after: Option<&str>) -> anyhow::Result<Page<Session>> {
    let sessions = Sessions::new(store.clone(), &Limits::default());
    let (names, next) = sessions.page(&Caller::local(), after, LIMIT_MAX as usize).await?;
    let mut items = Vec::with_capacity(names.len());
    for name in &names {
        items.push(view::session(store, sessions.setting(name).await?, name).await?);
    }
    Ok(Page { items, next })
}

/// Who does something: whoever drives the calls, or this command, which owns the folder.
pub enum Reached<T> {
    Driver(Client),
    Own(T),
}

/// Whoever drives the calls, or what this command makes of the folder if nobody does. An owner that has just begun may not
/// serve its socket yet, and one that ends may still hold the folder.
pub async fn driver_or<T>(
    at: &At,
    mut own: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<Reached<T>> {
    let deadline = Instant::now() + OWNER_WAIT;
    loop {
        if let Some(driver) = at.driver().await? {
            return Ok(Reached::Driver(driver));
        }
        let refused = match own().await {
            Ok(own) => return Ok(Reached::Own(own)),
            Err(refused) => refused,
        };
        match refused.downcast_ref::<StoreError>() {
            Some(StoreError::Owned { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(OWNER_LOOKS_EVERY).await;
            }
            Some(StoreError::Owned { .. }) => {
                let told = "the folder is owned, but its owner serves no control.sock to ask it at";
                return Err(refused.context(told));
            }
            _ => return Err(refused),
        }
    }
}

fn tell_unreachable(error: &ClientError) {
    eprintln!("windlass: {error}; this is what is recorded");
}

/// The id that is meant: a whole one, or the only one that begins with this.
pub fn the_one<'a>(
    (what, list): (&str, &str),
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
