//! `windlass watch`: prints the events of a session as they happen.

mod lines;

use crate::args::Watch;
use crate::door::At;
use crate::folder;
use lines::EventLines;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use windlass::Runtime;
use windlass::events::Record;
use windlass::store::Store;
use windlass_core::ids::EntryNo;
use windlass_core::narration::Locale;
use windlass_server::ProblemCode;
use windlass_server::client::{Client, ClientError};
use windlass_server::events::Follow;
use windlass_server::following::{FollowedNews, Following};
use windlass_server::wire::{CallQuery, StateFilter};

/// How many recorded entries are shown first, without --after.
const TAIL_ENTRIES: u64 = 60;
/// How often the folder is checked for an owner and for new records.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

pub async fn watch(at: &At, args: Watch) -> anyhow::Result<ExitCode> {
    // A server does not share its record: earlier events come only with --after.
    let store = match &at.server {
        Some(_) => None,
        None => Some(folder::reader(at).await?),
    };
    let cursor = match (args.after, &store) {
        (Some(after), _) => Some(after),
        (None, Some(store)) => Some(head(store, &args.session).await?.saturating_sub(TAIL_ENTRIES)),
        (None, None) => None,
    };
    let locale = Locale::of(args.locale.as_deref().unwrap_or_default());
    let lines = EventLines::new(args.json);
    let tools = store.as_ref().and_then(|_| folder::tools_only(at).ok());
    let mut watching = Watching { at, store, tools, args: &args, locale, cursor, lines, told: None };
    let watched = tokio::select! {
        watched = watching.watch() => watched,
        pressed = tokio::signal::ctrl_c() => pressed.map_err(Into::into),
    };
    let printed = watching.lines.flush();
    watching.lines.clear();
    watched.and(printed).map(|()| ExitCode::SUCCESS)
}

async fn head(store: &Arc<dyn Store>, session: &str) -> anyhow::Result<u64> {
    Ok(store.session(session).await?.map_or(0, |row| row.head.0))
}

struct Watching<'a> {
    at: &'a At,
    /// The store, where it can be read.
    store: Option<Arc<dyn Store>>,
    /// The tools as an owner of the folder would load them, so that events read the same without an owner.
    tools: Option<Runtime>,
    args: &'a Watch,
    locale: Locale,
    /// All events up to here were shown.
    cursor: Option<u64>,
    lines: EventLines,
    /// The last reported reason for waiting.
    told: Option<String>,
}

impl Watching<'_> {
    async fn watch(&mut self) -> anyhow::Result<()> {
        loop {
            let driver = match self.at.driver().await {
                // The owner is just exiting.
                Err(ClientError::Unreachable { .. }) => None,
                found => found?,
            };
            let followed = match &driver {
                Some(driver) => self.with_driver(driver).await?,
                None => FollowOutcome::Nobody,
            };
            match followed {
                FollowOutcome::Idle => return Ok(()),
                FollowOutcome::Gone => {}
                FollowOutcome::Nobody => {
                    self.record().await?;
                    if self.args.until_idle {
                        return Ok(());
                    }
                    self.tell_alone();
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
                FollowOutcome::Unused if self.args.until_idle => return Ok(()),
                FollowOutcome::Unused => {
                    self.note(format!("session {} has no calls yet", self.args.session));
                    tokio::time::sleep(LOOKS_EVERY).await;
                }
            }
        }
    }

    /// Shows recorded events.
    async fn record(&mut self) -> anyhow::Result<()> {
        let cursor = self.cursor.unwrap_or(0);
        if let Some(store) = &self.store
            && let Some(row) = store.session(&self.args.session).await?
        {
            let record = Record::new(store, row, EntryNo(cursor));
            let mut record = self.tools.iter().fold(record, Record::with_tools);
            while let Some(page) = record.next().await? {
                for event in &page.events {
                    let mut text = Vec::new();
                    event.write_json(&mut text, self.locale);
                    self.lines.tell(event.kind.as_str(), &serde_json::from_slice(&text)?)?;
                }
                self.cursor = Some(page.end.0);
            }
        }
        self.lines.flush()?;
        // Running calls are known to their owner only, and there is none.
        self.lines.clear();
        Ok(())
    }

    /// Follows the driver of the calls until it is gone, or everything wanted was shown.
    async fn with_driver(&mut self, driver: &Client) -> anyhow::Result<FollowOutcome> {
        let follow = Follow { after: self.cursor, locale: Some(self.locale.to_string()) };
        let mut following = match driver.follow(&self.args.session, &follow).await {
            // The owner of a folder is just exiting; a server has no other way to it.
            Err(ClientError::Unreachable { .. }) if self.store.is_some() => return Ok(FollowOutcome::Gone),
            Err(ClientError::Problem(problem)) if problem.code == ProblemCode::NotFound => {
                return Ok(FollowOutcome::Unused);
            }
            following => following?,
        };
        self.told = None;
        loop {
            let patience = if self.lines.is_holding() { lines::HOLD } else { LOOKS_EVERY };
            match tokio::time::timeout(patience, following.next()).await {
                Ok(told) => match told? {
                    Some(told) => self.tell(&told, &following)?,
                    None => {
                        self.lines.flush()?;
                        self.lines.clear();
                        return Ok(FollowOutcome::Gone);
                    }
                },
                Err(_) if self.lines.is_holding() => self.lines.flush()?,
                Err(_) if self.args.until_idle && self.is_idle(driver).await? => {
                    return Ok(FollowOutcome::Idle);
                }
                Err(_) => {}
            }
        }
    }

    fn tell(&mut self, told: &FollowedNews, following: &Following) -> anyhow::Result<()> {
        if told.kind == "problem" {
            let problem = serde_json::from_value::<windlass_server::Problem>(told.data.clone())?;
            return Err(ClientError::Problem(problem).into());
        }
        self.lines.tell(&told.kind, &told.data)?;
        if self.lines.is_due() {
            self.lines.flush()?;
        }
        self.cursor = following.cursor().or(self.cursor);
        Ok(())
    }

    /// Whether no call of the session is open and every event was shown.
    async fn is_idle(&self, driver: &Client) -> anyhow::Result<bool> {
        let list = CallQuery { state: Some(StateFilter::Open), limit: Some(1), ..CallQuery::default() };
        let open = match driver.calls(Some(&self.args.session), &list).await {
            Ok(page) => page["items"].as_array().is_some_and(|items| !items.is_empty()),
            // The session was never used.
            Err(ClientError::Problem(problem)) if problem.code == ProblemCode::NotFound => false,
            Err(ClientError::Unreachable { .. }) => true,
            Err(error) => return Err(error.into()),
        };
        // Batches have entries of their own, without events: those come after the last event.
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
            "{data} has no owner: showing recorded events of session {session}; the next owner is followed"
        ));
    }

    /// Reports the reason for waiting, once.
    fn note(&mut self, what: String) {
        if self.told.as_ref() != Some(&what) {
            self.lines.note(&what);
            self.told = Some(what);
        }
    }
}

/// The outcome of following the driver.
enum FollowOutcome {
    /// Everything was shown, and no call is open.
    Idle,
    /// The driver is gone.
    Gone,
    /// There is no driver.
    Nobody,
    /// The driver does not know the session.
    Unused,
}
