//! `windlass watch`: what happens in a session, line by line, as it happens.

mod lines;

use crate::args::Watch;
use crate::door::At;
use crate::folder;
use lines::Lines;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use windlass::core::ids::EntryNo;
use windlass::core::narration::Locale;
use windlass::events::Record;
use windlass::store::Store;
use windlass_server::client::{Client, ClientError};
use windlass_server::events::Follow;
use windlass_server::following::{Following, Told};
use windlass_server::wire::{List, State};

/// So many entries of what is recorded are shown first, if it is not said from where on.
const TAIL_ENTRIES: u64 = 60;
/// How often is looked whether somebody owns the folder, and whether something was recorded.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

pub async fn watch(at: &At, args: Watch) -> anyhow::Result<ExitCode> {
    // A server keeps its record to itself: what was before is told from the cursor that is named.
    let store = match &at.server {
        Some(_) => None,
        None => Some(folder::reader(&at.data)?),
    };
    let cursor = match (args.after, &store) {
        (Some(after), _) => Some(after),
        (None, Some(store)) => Some(head(store, &args.session).await?.saturating_sub(TAIL_ENTRIES)),
        (None, None) => None,
    };
    let locale = Locale::of(args.locale.as_deref().unwrap_or_default());
    let lines = Lines::new(args.json);
    let mut watching = Watching { at, store, args: &args, locale, cursor, lines, told: None };
    let watched = tokio::select! {
        watched = watching.watch() => watched,
        pressed = tokio::signal::ctrl_c() => pressed.map_err(Into::into),
    };
    watching.lines.clear();
    watched.map(|()| ExitCode::SUCCESS)
}

async fn head(store: &Arc<dyn Store>, session: &str) -> anyhow::Result<u64> {
    Ok(store.session(session).await?.map_or(0, |row| row.head.0))
}

struct Watching<'a> {
    at: &'a At,
    /// The record, where it can be read.
    store: Option<Arc<dyn Store>>,
    args: &'a Watch,
    locale: Locale,
    /// Everything up to here was shown.
    cursor: Option<u64>,
    lines: Lines,
    /// What it was last told that it waits for.
    told: Option<String>,
}

impl Watching<'_> {
    async fn watch(&mut self) -> anyhow::Result<()> {
        loop {
            let driver = match self.at.driver().await {
                // One that is just going.
                Err(ClientError::Unreachable { .. }) => None,
                found => found?,
            };
            let followed = match &driver {
                Some(driver) => self.with_driver(driver).await?,
                None => Followed::Nobody,
            };
            match followed {
                Followed::Idle => return Ok(()),
                Followed::Gone => {}
                Followed::Nobody => {
                    self.record().await?;
                    if self.args.until_idle {
                        return Ok(());
                    }
                    self.tell_alone();
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
                Followed::Unused if self.args.until_idle => return Ok(()),
                Followed::Unused => {
                    self.note(format!("nothing was asked in session {} yet", self.args.session));
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
            }
        }
    }

    /// Shows what is recorded.
    async fn record(&mut self) -> anyhow::Result<()> {
        let cursor = self.cursor.unwrap_or(0);
        if let Some(store) = &self.store
            && let Some(row) = store.session(&self.args.session).await?
        {
            let mut record = Record::new(store, row, EntryNo(cursor));
            while let Some(page) = record.next().await? {
                for event in &page.events {
                    let mut text = Vec::new();
                    event.write_json(&mut text, self.locale);
                    self.lines.tell(event.kind.as_str(), &serde_json::from_slice(&text)?)?;
                }
                self.cursor = Some(page.end.0);
            }
        }
        // What runs is with its owner, and there is none.
        self.lines.clear();
        Ok(())
    }

    /// Follows whoever drives the calls until it goes, or all that is wanted was shown.
    async fn with_driver(&mut self, driver: &Client) -> anyhow::Result<Followed> {
        let follow = Follow { after: self.cursor, locale: Some(self.locale.to_string()) };
        let mut following = match driver.follow(&self.args.session, &follow).await {
            // The owner of a folder is just going; there is no other way to a server.
            Err(ClientError::Unreachable { .. }) if self.store.is_some() => return Ok(Followed::Gone),
            Err(ClientError::Problem(problem)) if problem.code == "not_found" => return Ok(Followed::Unused),
            following => following?,
        };
        self.told = None;
        loop {
            match tokio::time::timeout(LOOKS_EVERY, following.next()).await {
                Ok(told) => match told? {
                    Some(told) => self.tell(&told, &following)?,
                    None => {
                        self.lines.clear();
                        return Ok(Followed::Gone);
                    }
                },
                Err(_) if self.args.until_idle && self.is_idle(driver).await? => return Ok(Followed::Idle),
                Err(_) => {}
            }
        }
    }

    fn tell(&mut self, told: &Told, following: &Following) -> anyhow::Result<()> {
        if told.kind == "problem" {
            let problem = serde_json::from_value::<windlass_server::Problem>(told.data.clone())?;
            return Err(ClientError::Problem(problem).into());
        }
        self.lines.tell(&told.kind, &told.data)?;
        self.cursor = following.cursor().or(self.cursor);
        Ok(())
    }

    /// Whether no call of the session is open, and everything was shown.
    async fn is_idle(&self, driver: &Client) -> anyhow::Result<bool> {
        let list = List { state: Some(State::Open), limit: Some(1), ..List::default() };
        let open = match driver.calls(Some(&self.args.session), &list).await {
            Ok(page) => page["items"].as_array().is_some_and(|items| !items.is_empty()),
            // It was never used.
            Err(ClientError::Problem(problem)) if problem.code == "not_found" => false,
            Err(ClientError::Unreachable { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        // Batches have entries of their own, of which nothing is told: those are behind the last event.
        Ok(!open && !self.is_more_recorded().await?)
    }

    async fn is_more_recorded(&self) -> anyhow::Result<bool> {
        let Some(store) = &self.store else { return Ok(false) };
        let Some(row) = store.session(&self.args.session).await? else { return Ok(false) };
        let mut record = Record::new(store, row, EntryNo(self.cursor.unwrap_or(0)));
        while let Some(page) = record.next().await? {
            if !page.events.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn tell_alone(&mut self) {
        let (data, session) = (self.at.data.display(), &self.args.session);
        self.note(format!(
            "nobody owns {data}: this is what is recorded of session {session}; whoever owns it next is followed"
        ));
    }

    /// Says what it waits for, once.
    fn note(&mut self, what: String) {
        if self.told.as_ref() != Some(&what) {
            self.lines.note(&what);
            self.told = Some(what);
        }
    }
}

/// What came of following whoever drives the calls.
enum Followed {
    /// Everything was shown, and no call is open.
    Idle,
    /// It went.
    Gone,
    /// There is nobody.
    Nobody,
    /// It knows nothing of the session.
    Unused,
}
