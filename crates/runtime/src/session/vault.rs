//! The secrets that a session may use, in memory, and everything that is made of them: values for tools, references in arguments,
//! and texts without secrets.
//!
//! A session has its own secrets, those of the sessions it is a child of, and those of the data folder, and of one name the nearest counts.
//! A store that never had a secret costs its calls one load of an atomic: [`Vault::guards`].

mod output;
mod reference;
pub(crate) mod seal;

pub use output::SecretScrubber;
pub(crate) use output::{scrub_error, scrub_output, scrub_progress};
pub(crate) use reference::{ReferencePlace, untag};

use crate::api::error::{Lost, SessionError};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::api::secret::{SecretError, SecretKey, SecretKeySource, SecretValue};
use crate::session::inner::Inner;
use crate::session::kin::Child;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::redact::{KnownSecret, SecretMatcher};
use windlass_store::{
    RecordChange, RecordPage, Row, Shelf, Space, Store, StoreError, StoreSpace, StoredRecord,
};

/// The record that the store has, or had, a secret: no secret has its name.
const USED: &str = "*";
/// The page size for reading secrets.
const PAGE: u64 = 256;
/// Values that were replaced or removed and are still recognised while this process runs, of one home: calls may have them.
const RETIRED_MAX: usize = 64;

/// The home of a secret: a session, or the whole data folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecretHome {
    Session(SessionNo),
    Folder,
}

impl SecretHome {
    pub(crate) fn shelf(self) -> Shelf {
        match self {
            SecretHome::Session(session) => Space::Secret.of(session),
            SecretHome::Folder => StoreSpace::FolderSecret.shelf(),
        }
    }

    /// The place for which the value of this name is sealed.
    fn place(self, name: &str) -> Vec<u8> {
        let home = match self {
            SecretHome::Session(session) => format!("session {}", session.0),
            SecretHome::Folder => "folder".to_string(),
        };
        format!("windlass secret\n{home}\n{name}").into_bytes()
    }
}

/// All secrets that a runtime has in memory.
pub(crate) struct Vaults {
    source: SecretKeySource,
    /// Whether the store has, or had, a secret.
    is_used: AtomicBool,
    /// Whether that, and the folder's secrets, were read.
    is_read: AtomicBool,
    /// Counts the changes: a matcher of another count is outdated.
    changes: AtomicU64,
    key: OrderedMutex<Option<SecretKey>, { LockRank::SecretKey as u8 }>,
    folder: Arc<HomeSecrets>,
    sessions: OrderedMutex<HashMap<SessionNo, Weak<HomeSecrets>>, { LockRank::SecretHomes as u8 }>,
}

/// The secrets of one home.
pub(crate) struct HomeSecrets {
    pub(crate) home: SecretHome,
    /// Serialises changes.
    pub(crate) writing: tokio::sync::Mutex<()>,
    held: OrderedMutex<HomeValues, { LockRank::Secrets as u8 }>,
}

#[derive(Default)]
struct HomeValues {
    /// By name; `None`: it cannot be decrypted.
    values: BTreeMap<String, Option<SecretValue>>,
    /// Values that are not in force, and still recognised.
    retired: VecDeque<(String, SecretValue)>,
}

/// A secret that a matcher knows.
struct HeldSecret {
    name: String,
    value: SecretValue,
    /// Its home: 0 for the session, then its parents, then the folder.
    level: usize,
}

/// The secrets of one session, with those it inherits.
pub(crate) struct Vault {
    all: Arc<Vaults>,
    session: SessionNo,
    /// Its own home, those of its parents, the folder.
    levels: OnceLock<Vec<Arc<HomeSecrets>>>,
    known: OrderedMutex<KnownValues, { LockRank::SecretMatcher as u8 }>,
}

#[derive(Default)]
struct KnownValues {
    changes: Option<u64>,
    matcher: Option<Arc<KnownSecrets>>,
}

/// A matcher, and whose secrets it knows.
pub(crate) struct KnownSecrets {
    held: Vec<HeldSecret>,
    matcher: SecretMatcher,
}

impl std::ops::Deref for KnownSecrets {
    type Target = SecretMatcher;

    fn deref(&self) -> &SecretMatcher {
        &self.matcher
    }
}

impl Vaults {
    pub(crate) fn new(source: SecretKeySource) -> Vaults {
        Vaults {
            source,
            is_used: AtomicBool::new(false),
            is_read: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            key: OrderedMutex::default(),
            folder: Arc::new(HomeSecrets::new(SecretHome::Folder)),
            sessions: OrderedMutex::default(),
        }
    }

    /// Whether there is, or was, a secret in the store.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    /// The secrets of the folder.
    pub(crate) fn folder(&self) -> &Arc<HomeSecrets> {
        &self.folder
    }

    /// The value of a name among the folder's.
    pub(crate) fn folder_value(&self, name: &str) -> Result<SecretValue, SecretError> {
        usable(name, self.folder().value(name))
    }

    /// The key, if there is one.
    pub(crate) fn key(&self) -> Result<SecretKey, SecretError> {
        match &self.source {
            SecretKeySource::None => Err(SecretError::NoKey),
            SecretKeySource::Key(key) => Ok(key.clone()),
            SecretKeySource::File(path) => {
                let mut known = self.key.lock();
                if let Some(key) = &*known {
                    return Ok(key.clone());
                }
                let key = SecretKey::read(path)?.ok_or_else(|| SecretError::Key {
                    what: format!(
                        "the key of the secrets is missing: {path:?}; restore it, or remove the secrets that were stored with it"
                    ),
                })?;
                Ok(known.insert(key).clone())
            }
        }
    }

    /// The key; a key file is made if no secret was ever stored.
    pub(crate) fn key_or_new(&self) -> Result<SecretKey, SecretError> {
        match &self.source {
            SecretKeySource::File(path) if !self.is_used() => {
                let made = SecretKey::make(path)?;
                Ok(self.key.lock().insert(made).clone())
            }
            SecretKeySource::None | SecretKeySource::File(_) | SecretKeySource::Key(_) => self.key(),
        }
    }

    /// Records that the store has secrets, before the first is stored.
    pub(crate) async fn mark_used(&self, store: &dyn Store) -> Result<(), SessionError> {
        if !self.is_used() {
            let mark = RecordChange::put(StoreSpace::FolderSecret, USED, Vec::new());
            let receipts = store.commit(vec![mark.into()]).await?;
            receipts.into_iter().try_for_each(|receipt| receipt.map(drop)).map_err(Lost::Refused)?;
            self.is_used.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads the folder's secrets. On a store that others use too they are read anew each time.
    pub(crate) async fn read(&self, store: &dyn Store, is_shared: bool) -> Result<(), SessionError> {
        if self.is_read.load(Ordering::Relaxed) && !is_shared {
            return Ok(());
        }
        let mut records = records(store, SecretHome::Folder).await?;
        let mark = records.iter().position(|record| record.key == USED);
        if let Some(mark) = mark {
            records.remove(mark);
            self.fill(&self.folder, records);
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.is_read.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The secrets of a session, read at the first use.
    async fn home(
        &self,
        store: &dyn Store,
        session: SessionNo,
        is_shared: bool,
    ) -> Result<Arc<HomeSecrets>, SessionError> {
        let found = self.sessions.lock().get(&session).and_then(Weak::upgrade);
        if let Some(found) = found {
            // Another worker may have changed them.
            if is_shared && self.is_used() {
                self.fill(&found, records(store, found.home).await?);
            }
            return Ok(found);
        }
        let made = Arc::new(HomeSecrets::new(SecretHome::Session(session)));
        if self.is_used() {
            self.fill(&made, records(store, made.home).await?);
        }
        let mut sessions = self.sessions.lock();
        if let Some(found) = sessions.get(&session).and_then(Weak::upgrade) {
            return Ok(found);
        }
        // Now and then, so that many sessions cost little.
        if sessions.len().is_power_of_two() {
            sessions.retain(|_, home| home.strong_count() > 0);
        }
        sessions.insert(session, Arc::downgrade(&made));
        Ok(made)
    }

    /// Decrypts records of a home.
    fn fill(&self, home: &HomeSecrets, records: Vec<StoredRecord>) {
        let key = self.key();
        if let (Err(error), false) = (&key, records.is_empty()) {
            tracing::error!(error = %crate::api::error::chain(error), "secrets are stored that cannot be used");
        }
        let value = |record: &StoredRecord| {
            let opened = seal::open(key.as_ref().ok()?, &home.home.place(&record.key), &record.value)?;
            String::from_utf8(opened.to_vec()).ok().map(SecretValue::new)
        };
        let values: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.key.clone(), value(&record))).collect();
        let mut held = home.held.lock();
        let before = std::mem::replace(&mut held.values, values);
        for (name, value) in before {
            held.retire(name, value);
        }
        drop(held);
        self.changed();
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Recognises a value from now on, though it is not in force yet.
    pub(crate) fn expect(&self, home: &HomeSecrets, name: &str, value: &SecretValue) {
        home.held.lock().retire(name.to_string(), Some(value.clone()));
        self.changed();
    }

    /// Puts a value into force, or removes it.
    pub(crate) fn put(&self, home: &HomeSecrets, name: &str, value: Option<SecretValue>) {
        let mut held = home.held.lock();
        let before = match value {
            Some(value) => held.values.insert(name.to_string(), Some(value)),
            None => held.values.remove(name),
        };
        held.retire(name.to_string(), before.flatten());
        drop(held);
        self.changed();
    }
}

impl HomeSecrets {
    fn new(home: SecretHome) -> HomeSecrets {
        HomeSecrets { home, writing: tokio::sync::Mutex::default(), held: OrderedMutex::default() }
    }

    /// The sealed record of a value.
    pub(crate) fn sealed(&self, key: &SecretKey, name: &str, value: &str) -> Result<Vec<u8>, SecretError> {
        seal::seal(key, &self.home.place(name), value.as_bytes()).ok_or_else(|| SecretError::Key {
            what: "the secret could not be encrypted: the machine gives no random numbers".to_string(),
        })
    }

    /// How many secrets there are besides the one of this name.
    pub(crate) fn count_without(&self, name: &str) -> u64 {
        self.held.lock().values.keys().filter(|known| *known != name).count() as u64
    }

    /// The names of its secrets.
    pub(crate) fn names(&self) -> Vec<String> {
        self.held.lock().values.keys().cloned().collect()
    }

    fn value(&self, name: &str) -> Option<Option<SecretValue>> {
        self.held.lock().values.get(name).cloned()
    }
}

impl HomeValues {
    fn retire(&mut self, name: String, value: Option<SecretValue>) {
        let Some(value) = value else { return };
        let is_known = |known: &SecretValue| known.expose() == value.expose();
        if self.retired.iter().any(|(_, known)| is_known(known)) {
            return;
        }
        if self.retired.len() == RETIRED_MAX {
            self.retired.pop_front();
        }
        self.retired.push_back((name, value));
    }
}

/// All records of a home.
async fn records(store: &dyn Store, home: SecretHome) -> Result<Vec<StoredRecord>, SessionError> {
    let mut found: Vec<StoredRecord> = Vec::new();
    loop {
        let after = found.last().map(|record| record.key.clone());
        let page = RecordPage { shelf: home.shelf(), prefix: "", after: after.as_deref(), limit: PAGE };
        let next = store.records(page).await?;
        let is_last = (next.len() as u64) < PAGE;
        found.extend(next);
        if is_last {
            return Ok(found);
        }
    }
}

/// The names of the secrets of a home, whoever owns it.
pub(crate) async fn recorded_names(store: &dyn Store, home: SecretHome) -> Result<Vec<String>, SessionError> {
    let names = records(store, home).await?.into_iter().map(|record| record.key);
    Ok(names.filter(|name| name != USED).collect())
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Vault {
    pub(crate) fn new(all: Arc<Vaults>, session: SessionNo) -> Vault {
        Vault { all, session, levels: OnceLock::new(), known: OrderedMutex::default() }
    }

    /// Whether texts must be looked through for secrets at all.
    #[inline]
    pub(crate) fn guards(&self) -> bool {
        self.all.is_used()
    }

    /// Reads the secrets that a session with this parent may use. The caller has just taken the session.
    pub(crate) async fn load(
        &self,
        store: &dyn Store,
        parent: Option<&str>,
        is_shared: bool,
    ) -> Result<(), SessionError> {
        self.all.read(store, is_shared).await?;
        let mut levels = vec![self.all.home(store, self.session, is_shared).await?];
        let mut parent = parent.map(str::to_string);
        while let Some(name) = parent {
            if let Some(row) = store.session(&name).await? {
                levels.push(self.all.home(store, row.no, is_shared).await?);
            }
            parent = Child::of(store, &name).await?.map(|child| child.parent);
        }
        levels.push(self.all.folder.clone());
        _ = self.levels.set(levels);
        Ok(())
    }

    fn levels(&self) -> &[Arc<HomeSecrets>] {
        self.levels.get().map_or(&[], Vec::as_slice)
    }

    /// The session's own secrets; `None` until they were read.
    pub(crate) fn own(&self) -> Option<&Arc<HomeSecrets>> {
        self.levels().first()
    }

    /// All secrets of the runtime.
    pub(crate) fn all(&self) -> &Arc<Vaults> {
        &self.all
    }

    /// The value of a name: the session's own, else that of a parent, else the folder's.
    pub(crate) fn value(&self, name: &str) -> Result<SecretValue, SecretError> {
        let found = self.levels().iter().find_map(|home| home.value(name));
        usable(name, found)
    }

    /// The value of a name at one level.
    fn value_at(&self, level: usize, name: &str) -> Result<SecretValue, SecretError> {
        usable(name, self.levels().get(level).and_then(|home| home.value(name)))
    }

    /// The secrets to look for; `None` if there are none.
    pub(crate) fn known(&self) -> Option<Arc<KnownSecrets>> {
        if !self.guards() {
            return None;
        }
        let changes = self.all.changes.load(Ordering::Relaxed);
        let mut known = self.known.lock();
        if known.changes != Some(changes) {
            let held = self.held();
            let secrets =
                held.iter().map(|held| KnownSecret { name: &held.name, value: held.value.expose() });
            let matcher = SecretMatcher::new(secrets);
            *known = KnownValues {
                changes: Some(changes),
                matcher: matcher.map(|matcher| Arc::new(KnownSecrets { held, matcher })),
            };
        }
        known.matcher.clone()
    }

    /// All values that are recognised, nearest first.
    fn held(&self) -> Vec<HeldSecret> {
        let mut found = Vec::new();
        for (level, home) in self.levels().iter().enumerate() {
            let held = home.held.lock();
            let in_force = held.values.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
            let retired = held.retired.iter().map(|(name, value)| (name, value));
            found.extend(in_force.chain(retired).map(|(name, value)| HeldSecret {
                name: name.clone(),
                value: value.clone(),
                level,
            }));
        }
        found
    }

    /// Arguments of a call with references for secrets; `None` if there are no secrets in them.
    pub(crate) fn conceal(&self, place: ReferencePlace<'_>, text: &str) -> Option<String> {
        let known = self.known()?;
        reference::conceal(&known.matcher, &known.held, place, text)
    }

    /// Recorded arguments of a call with the values of the secrets that they refer to; `None` if they refer to none.
    pub(crate) fn reveal(
        &self,
        place: ReferencePlace<'_>,
        text: &str,
    ) -> Result<Option<String>, SecretError> {
        reference::reveal(self, place, text)
    }

    /// The result of a step in recorded form: sealed if there is a secret in it.
    pub(crate) fn sealed_step(
        &self,
        call: CallId,
        step: &str,
        text: &str,
    ) -> Result<Option<String>, SecretError> {
        let Some(known) = self.known().filter(|known| known.is_in(text)) else { return Ok(None) };
        drop(known);
        Ok(seal::seal_text(&self.all.key()?, &self.step_place(call, step), text))
    }

    /// The recorded result of a step as its body returned it; `None` if it was not sealed.
    pub(crate) fn opened_step(
        &self,
        call: CallId,
        step: &str,
        text: &str,
    ) -> Result<Option<String>, SecretError> {
        if !self.guards() || !seal::is_sealed(text) {
            return Ok(None);
        }
        Ok(seal::open_text(&self.all.key()?, &self.step_place(call, step), text))
    }

    fn step_place(&self, call: CallId, step: &str) -> Vec<u8> {
        format!("windlass step\n{}\n{}\n{step}", self.session.0, call.packed()).into_bytes()
    }

    /// Replaces secrets in records that are about to be written.
    pub(crate) fn scrub_rows(&self, rows: &mut [Row]) {
        let Some(known) = self.known() else { return };
        for row in rows {
            let Row::Put { space, value, .. } = row else { continue };
            if matches!(space, Space::Secret | Space::Blob | Space::Content | Space::Loose | Space::Owner) {
                continue;
            }
            if let Ok(text) = std::str::from_utf8(value)
                && let std::borrow::Cow::Owned(scrubbed) = known.scrub_json(text)
            {
                *value = scrubbed.into_bytes().into();
            }
        }
    }
}

impl Inner {
    /// Whether there is, or was, a secret in the store, also if no session was used yet.
    pub(crate) async fn has_secrets(&self) -> Result<bool, SessionError> {
        self.secrets.read(&*self.store, self.may_meet_others()).await?;
        Ok(self.secrets.is_used())
    }

    /// The secrets to look for in a session of this name, whoever owns it; `None` if there are none.
    pub(crate) async fn secrets_of(&self, session: &str) -> Result<Option<Arc<KnownSecrets>>, SessionError> {
        if !self.has_secrets().await? {
            return Ok(None);
        }
        let Some(row) = self.store.session(session).await? else { return Ok(None) };
        let parent = Child::of(&*self.store, session).await?.map(|child| child.parent);
        let vault = Vault::new(self.secrets.clone(), row.no);
        vault.load(&*self.store, parent.as_deref(), self.may_meet_others()).await?;
        Ok(vault.known())
    }
}

fn usable(name: &str, found: Option<Option<SecretValue>>) -> Result<SecretValue, SecretError> {
    match found {
        Some(Some(value)) => Ok(value),
        Some(None) => Err(SecretError::Sealed { name: name.to_string() }),
        None => Err(SecretError::Missing { name: name.to_string() }),
    }
}

impl From<StoreError> for SecretError {
    fn from(error: StoreError) -> SecretError {
        SecretError::Session(error.into())
    }
}
