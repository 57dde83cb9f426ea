//! How a command reaches calls: through the owner's socket where the folder is owned, else in the folder itself.

use crate::exit::Usage;
use crate::folder;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::core::handle::{Handle, open_question_id};
use windlass::inspect::{self, Recorded, Wanted};
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Store, StoreError};
use windlass_server::client::{Client, ClientError};
use windlass_server::view::View;
use windlass_server::wire::{LIMIT_MAX, List, Questions, State};

/// An owner that has just begun may not serve its socket yet, and one that ends may still hold the folder.
const OWNER_WAIT: Duration = Duration::from_secs(5);
const OWNER_LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How many sessions are looked at for the beginning of a handle.
const SESSIONS_MAX: u64 = 1_000;

/// The way to the calls of a folder.
pub struct Door {
    /// Whoever drives the calls.
    pub owner: Option<Client>,
    /// The record; it can be written to if there is no owner and something is to be changed.
    pub store: Arc<dyn Store>,
}

impl Door {
    /// To look.
    pub async fn look(data: &Path) -> anyhow::Result<Door> {
        let store = folder::reader(data)?;
        Ok(Door { owner: Client::find(data).await?, store })
    }

    /// To change something: by asking the owner, or as the owner for as long as it takes to leave a request.
    pub async fn change(data: &Path) -> anyhow::Result<Door> {
        let store = folder::reader(data)?;
        let deadline = Instant::now() + OWNER_WAIT;
        loop {
            if let Some(owner) = Client::find(data).await? {
                return Ok(Door { owner: Some(owner), store });
            }
            match SqliteStore::open(Options::new(data)) {
                Ok(store) => return Ok(Door { owner: None, store: Arc::new(store) }),
                Err(StoreError::Owned { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(OWNER_LOOKS_EVERY).await;
                }
                Err(error @ StoreError::Owned { .. }) => {
                    let told = "the folder is owned, but its owner serves no control.sock to ask it at";
                    return Err(anyhow::Error::new(error).context(told));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A page of calls.
    pub async fn calls(&self, session: Option<&str>, list: &List) -> anyhow::Result<Value> {
        if let Some(owner) = &self.owner {
            match owner.calls(session, list).await {
                Err(error @ ClientError::Unreachable { .. }) => tell_unreachable(&error),
                answered => return Ok(answered?),
            }
        }
        Ok(View::of_record(self.store.clone()).list(session, list).await?)
    }

    /// One call.
    pub async fn call(&self, call: &str, journal: bool) -> anyhow::Result<Value> {
        if let Some(owner) = &self.owner {
            match owner.call(call, journal).await {
                Err(error @ ClientError::Unreachable { .. }) => tell_unreachable(&error),
                answered => return Ok(answered?),
            }
        }
        Ok(View::of_record(self.store.clone()).show(call, journal).await?)
    }

    /// All questions that wait for an answer.
    pub async fn questions(&self, session: Option<&str>) -> anyhow::Result<Vec<Value>> {
        let session = session.map(str::to_string);
        let mut list = Questions { session, limit: Some(LIMIT_MAX), after: None };
        let mut items = Vec::new();
        loop {
            let mut page = match &self.owner {
                Some(owner) => owner.questions(&list).await?,
                None => View::of_record(self.store.clone()).questions(&list).await?,
            };
            items.extend(page["items"].as_array_mut().map(std::mem::take).unwrap_or_default());
            list.after = page["next"].as_str().map(str::to_string);
            if list.after.is_none() {
                return Ok(items);
            }
        }
    }

    /// The id of the question that is meant: a whole one, or the only one that begins with this.
    pub async fn find_question(&self, text: &str) -> anyhow::Result<String> {
        let prefix = text.to_lowercase();
        if open_question_id(self.store.secret(), &prefix).is_some() {
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

    /// What is not recorded yet is known to its owner only.
    async fn open_beginning_with(&self, prefix: &str) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        if self.owner.is_none() {
            return Ok(found);
        }
        let mut list = List { state: Some(State::Open), ..List::default() };
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
        let sessions = self.store.sessions(None, SESSIONS_MAX).await?;
        let keep = |call: &Recorded| call.answer.handle().to_string().starts_with(prefix);
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            // Two are as good as many.
            let wanted = Wanted { after, limit: 2, open_only: false, keep: &keep };
            let page = inspect::page(&self.store, &sessions, &wanted).await?;
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

fn tell_unreachable(error: &ClientError) {
    eprintln!("windlass: {error}; this is what is recorded");
}
