//! `windlass watch`: what happens in a session, line by line, as it happens.

mod lines;

use crate::args::Watch;
use crate::folder;
use lines::Lines;
use std::path::Path;
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

pub async fn watch(data: &Path, args: Watch) -> anyhow::Result<ExitCode> {
    let store = folder::reader(data)?;
    let cursor = match args.after {
        Some(after) => after,
        None => head(&store, &args.session).await?.saturating_sub(TAIL_ENTRIES),
    };
    let locale = Locale::of(args.locale.as_deref().unwrap_or_default());
    let lines = Lines::new(args.json);
    let mut watching = Watching { data, store, args: &args, locale, cursor, lines, told_alone: false };
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
    data: &'a Path,
    store: Arc<dyn Store>,
    args: &'a Watch,
    locale: Locale,
    /// Everything up to here was shown.
    cursor: u64,
    lines: Lines,
    /// Whether it was told that nobody owns the folder.
    told_alone: bool,
}

impl Watching<'_> {
    async fn watch(&mut self) -> anyhow::Result<()> {
        loop {
            let owner = match Client::find(self.data).await {
                // One that is just going.
                Err(ClientError::Unreachable { .. }) => None,
                found => found?,
            };
            let is_over = match &owner {
                Some(owner) => self.with_owner(owner).await?,
                None => self.record().await?,
            };
            if is_over {
                return Ok(());
            }
            if owner.is_none() {
                self.tell_alone();
                tokio::time::sleep(LOOKS_EVERY).await;
            }
        }
    }

    /// Shows what is recorded; whether that is all that is wanted.
    async fn record(&mut self) -> anyhow::Result<bool> {
        if let Some(row) = self.store.session(&self.args.session).await? {
            let mut record = Record::new(&self.store, row, EntryNo(self.cursor));
            while let Some(page) = record.next().await? {
                for event in &page.events {
                    self.lines.tell(event.kind.as_str(), &serde_json::to_value(event.shown(self.locale))?)?;
                }
                self.cursor = page.end.0;
            }
        }
        // What runs is with its owner, and there is none.
        self.lines.clear();
        Ok(self.args.until_idle)
    }

    /// Follows the owner until it goes; whether that is all that is wanted.
    async fn with_owner(&mut self, owner: &Client) -> anyhow::Result<bool> {
        self.told_alone = false;
        let follow = Follow { after: Some(self.cursor), locale: Some(self.locale.to_string()) };
        let mut following = match owner.follow(&self.args.session, &follow).await {
            Err(ClientError::Unreachable { .. }) => return Ok(false),
            following => following?,
        };
        loop {
            match tokio::time::timeout(LOOKS_EVERY, following.next()).await {
                Ok(told) => match told? {
                    Some(told) => self.tell(&told, &following)?,
                    None => {
                        self.lines.clear();
                        return Ok(false);
                    }
                },
                Err(_) if self.args.until_idle && self.is_idle(owner).await? => return Ok(true),
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
        self.cursor = following.cursor().unwrap_or(self.cursor);
        Ok(())
    }

    /// Whether no call of the session is open, and everything was shown.
    async fn is_idle(&self, owner: &Client) -> anyhow::Result<bool> {
        let list = List { state: Some(State::Open), limit: Some(1), ..List::default() };
        let open = match owner.calls(Some(&self.args.session), &list).await {
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
        let Some(row) = self.store.session(&self.args.session).await? else { return Ok(false) };
        let mut record = Record::new(&self.store, row, EntryNo(self.cursor));
        while let Some(page) = record.next().await? {
            if !page.events.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn tell_alone(&mut self) {
        if !std::mem::replace(&mut self.told_alone, true) {
            let (data, session) = (self.data.display(), &self.args.session);
            self.lines.note(&format!(
                "nobody owns {data}: this is what is recorded of session {session}; whoever owns it next is followed"
            ));
        }
    }
}
