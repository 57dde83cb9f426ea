//! Whose a session is: of the principal that first used it, for good. Kept apart from its journal, since it is known before
//! the first batch is taken.

use crate::access::{Caller, LOCAL, Scope};
use crate::problem::Problem;
use crate::wire::{Language, NewSession, SessionBounds};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use windlass::core::ids::SessionNo;
use windlass::core::limits::Limits;
use windlass::core::time::Timestamp;
use windlass::store::{Change, Guard, Hold, Record, RecordPage, Refused, Row, STORE, Space, Store};
use windlass::{BatchError, Child, ChildSpec, Runtime, SessionLimits, Settings, check_session_name};

/// What a record is about, by the beginning of its key: a session by its name, or the sessions of a principal.
const BY_NAME: &str = "session/";
const BY_PRINCIPAL: &str = "of/";
/// Up to which number all sessions are somebody's.
const ADOPTED: &str = "adopted";
/// Sessions are looked through in pages of this size.
const PAGE: u64 = 500;

/// Whose the sessions of a store are.
pub struct Sessions {
    store: Arc<dyn Store>,
    /// Whoever removes sessions here, if anybody does.
    runtime: Option<Runtime>,
    /// What only changes when a session is removed need not be read again until one is.
    known: Mutex<Known>,
    known_max: usize,
}

/// Whose sessions are, as far as that was read.
#[derive(Default)]
struct Known {
    owners: HashMap<String, Arc<str>>,
    /// How many were removed by then.
    removals: u64,
}

/// What is set for a session.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Setting {
    /// Whose it is.
    pub principal: Arc<str>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What programs want to know it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The language in which people are told what happens in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<Language>,
    /// When it was first used, in microseconds since 1970; not known of those that came before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
}

impl Setting {
    /// Of a session for which nothing was set, by whoever has the folder.
    pub(crate) fn unset() -> Setting {
        Setting { created_at: None, ..Setting::of(LOCAL, Timestamp(0)) }
    }

    fn of(principal: &str, now: Timestamp) -> Setting {
        let created_at = Some(now.0);
        Setting {
            principal: principal.into(),
            title: None,
            labels: BTreeMap::new(),
            locale: None,
            created_at,
        }
    }
}

impl Sessions {
    /// Those of this store.
    pub fn new(store: Arc<dyn Store>, limits: &Limits) -> Sessions {
        let known_max = usize::try_from(limits.sessions_owned_max).unwrap_or(usize::MAX);
        Sessions { store, runtime: None, known: Mutex::default(), known_max }
    }

    /// Those of this runtime's store.
    pub(crate) fn of(runtime: &Runtime) -> Sessions {
        let sessions = Sessions::new(runtime.store().clone(), runtime.limits());
        // What a call opens is whose its session is.
        let (store, clock) = (runtime.store().clone(), runtime.clock().clone());
        runtime.set_for_children(move |parent, child| {
            let (store, now) = (store.clone(), clock.now());
            let (parent, child) = (parent.to_string(), child.to_string());
            Box::pin(async move { inherited(&*store, (&parent, &child), now).await })
        });
        Sessions { runtime: Some(runtime.clone()), ..sessions }
    }

    /// How many sessions were removed here.
    fn removals(&self) -> u64 {
        self.runtime.as_ref().map_or(0, Runtime::removals)
    }

    /// Makes the sessions that nobody has claimed the local principal's: they were made by whoever had the folder.
    pub async fn adopt(&self) -> Result<(), Problem> {
        let mark = self.store.record(STORE, Space::Setting, ADOPTED).await?;
        let mark = mark.and_then(|mark| serde_json::from_slice::<u64>(&mark.value).ok()).unwrap_or(0);
        let mut after = SessionNo(mark);
        loop {
            let rows = self.store.sessions(Some(after), PAGE).await?;
            let Some(last) = rows.last() else { break };
            for row in &rows {
                if self.setting(&row.name).await?.is_none() {
                    self.put_new(&row.name, &Setting::unset(), SessionLimits::default()).await?;
                }
            }
            after = last.no;
        }
        if after.0 > mark {
            let value = after.0.to_string().into_bytes().into();
            self.commit(
                Vec::new(),
                vec![Row::Put { space: Space::Setting, key: ADOPTED.to_string(), value }],
            )
            .await?;
        }
        Ok(())
    }

    /// What is set for a session; `None` if nobody has used it.
    pub async fn setting(&self, name: &str) -> Result<Option<Setting>, Problem> {
        let record = self.store.record(STORE, Space::Setting, &by_name(name)).await?;
        record.map(|record| read(&record)).transpose()
    }

    /// The session of this name is there for the caller, or it is told as one that is not.
    pub async fn check(&self, caller: &Caller, name: &str) -> Result<(), Problem> {
        let owner = self.owner(name).await?.ok_or_else(|| not_found(name))?;
        reached(caller, &owner, name)
    }

    /// The same, and a session that nobody has used is the caller's from now on.
    pub async fn claim(&self, caller: &Caller, name: &str, now: Timestamp) -> Result<(), Problem> {
        check_session_name(name).map_err(invalid)?;
        if self.owner(name).await?.is_none() {
            self.put_new(name, &Setting::of(&caller.principal, now), SessionLimits::default()).await?;
        }
        self.check(caller, name).await
    }

    /// Opens a session with what is set for it. `true` if that was new; the same again changes nothing.
    pub async fn open(
        &self,
        caller: &Caller,
        (name, wanted): (&str, &NewSession),
        (now, limits): (Timestamp, &Limits),
    ) -> Result<bool, Problem> {
        check_session_name(name).map_err(invalid)?;
        check_wanted(wanted, limits)?;
        let (title, labels, locale) = (wanted.title.clone(), wanted.labels.clone(), wanted.locale);
        let setting = Setting { title, labels, locale, ..Setting::of(&caller.principal, now) };
        let child = Child::of(&*self.store, name).await?;
        let is_new = match &wanted.parent {
            Some(parent) => self.open_child(caller, (parent, name), (&setting, wanted)).await?,
            None if child.is_some() => false,
            None => self.put_new(name, &setting, wanted.limits.into()).await?,
        };
        if is_new {
            return Ok(true);
        }
        self.check(caller, name).await?;
        let there = self.setting(name).await?.ok_or_else(|| not_found(name))?;
        let bounds = SessionBounds::from(SessionLimits::of(&self.store, name).await?);
        let set = |setting: &Setting| (setting.title.clone(), setting.labels.clone(), setting.locale);
        let is_as_wanted = wanted.parent.is_some() || child.is_none();
        if set(&there) == set(&setting) && bounds == wanted.limits && is_as_wanted {
            return Ok(false);
        }
        let told = format!(
            "the session {name:?} is there with another title, another parent, or other labels, limits or locale; that stands"
        );
        Err(Problem::new("conflict", told))
    }

    /// Opens a session as the child of another, which must be there for the caller. `false`: it is there.
    async fn open_child(
        &self,
        caller: &Caller,
        (parent, name): (&str, &str),
        (setting, wanted): (&Setting, &NewSession),
    ) -> Result<bool, Problem> {
        self.check(caller, parent).await?;
        // What is another's is told as what is not there, whatever it is a child of.
        if self.owner(name).await?.is_some() {
            self.check(caller, name).await?;
        }
        let runtime = self.runtime.as_ref();
        let runtime = runtime.ok_or_else(|| Problem::new("internal", "nobody drives calls here"))?;
        let (tools, limits) = (wanted.tools.clone(), wanted.limits.into());
        let settings = records(setting, name).map_err(|error| Problem::new("internal", error.to_string()))?;
        Ok(runtime.open_child(parent, name, ChildSpec { tools, limits, settings }).await?)
    }

    /// The names of a page of the sessions that are there for the caller, and where the next begins.
    pub async fn page(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), Problem> {
        let prefix = match caller.has(Scope::Admin) {
            true => BY_NAME.to_string(),
            false => format!("{BY_PRINCIPAL}{}/", caller.principal),
        };
        let after = after.map(|after| format!("{prefix}{after}"));
        let limit_and_one = limit as u64 + 1;
        let page = RecordPage {
            session: STORE,
            space: Space::Setting,
            prefix: &prefix,
            after: after.as_deref(),
            limit: limit_and_one,
        };
        let records = self.store.records(page).await?;
        let mut names: Vec<String> = records
            .iter()
            .filter_map(|record| record.key.strip_prefix(&prefix))
            .map(str::to_string)
            .collect();
        let more = names.len() > limit;
        names.truncate(limit);
        let next = names.last().filter(|_| more).cloned();
        Ok((names, next))
    }

    /// Whose a session is; `None` if nobody has used it.
    pub(crate) async fn owner(&self, name: &str) -> Result<Option<Arc<str>>, Problem> {
        let removals = self.removals();
        {
            let known = self.lock();
            if let Some(owner) = known.owners.get(name).filter(|_| known.removals == removals) {
                return Ok(Some(owner.clone()));
            }
        }
        let owner = match self.setting(name).await? {
            Some(setting) => setting.principal,
            // Whoever has the folder may have opened it without us.
            None if self.store.session(name).await?.is_some() => LOCAL.into(),
            None => return Ok(None),
        };
        let mut known = self.lock();
        if known.owners.len() >= self.known_max || known.removals != removals {
            *known = Known { owners: HashMap::new(), removals };
        }
        // What was read while one was removed may be what is gone.
        if self.removals() == removals {
            known.owners.insert(name.to_string(), owner.clone());
        }
        Ok(Some(owner))
    }

    /// Sets what nobody has set. `false`: somebody was first.
    async fn put_new(
        &self,
        name: &str,
        setting: &Setting,
        session_limits: SessionLimits,
    ) -> Result<bool, Problem> {
        let space = Space::Setting;
        let records = records(setting, name).map_err(|error| Problem::new("internal", error.to_string()))?;
        let guards = vec![Guard::Generation { space, key: by_name(name), is: 0 }];
        let rows = records.into_iter().map(|(key, value)| Row::Put { space, key, value });
        self.commit(guards, rows.chain(session_limits.row(name)).collect()).await
    }

    /// `false`: another was there.
    async fn commit(&self, guards: Vec<Guard>, rows: Vec<Row>) -> Result<bool, Problem> {
        let change = Change { session: STORE, hold: Hold::Store, guards, rows };
        match self.store.commit(vec![change]).await?.pop() {
            Some(Err(Refused::Changed { .. })) => Ok(false),
            Some(Err(refused)) => Err(Problem::new("internal", refused.to_string())),
            Some(Ok(_)) | None => Ok(true),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is set for a child session that a call of its parent opens.
async fn inherited(
    store: &dyn Store,
    (parent, child): (&str, &str),
    now: Timestamp,
) -> Result<Settings, BatchError> {
    let unreadable = |what: String| BatchError::Unreadable { what };
    let kept = store.record(STORE, Space::Setting, &by_name(parent)).await?;
    let of_parent = kept.map(|kept| read(&kept)).transpose().map_err(|problem| unreadable(problem.detail))?;
    let of_parent = of_parent.unwrap_or_else(Setting::unset);
    let setting = Setting { locale: of_parent.locale, ..Setting::of(&of_parent.principal, now) };
    records(&setting, child).map_err(|error| unreadable(error.to_string()))
}

/// The records of what is set for a session.
fn records(setting: &Setting, name: &str) -> Result<Settings, serde_json::Error> {
    let of = of_principal(&setting.principal, name);
    Ok(vec![(by_name(name), serde_json::to_vec(setting)?.into()), (of, Arc::from([]))])
}

/// A session of this owner is there for the caller.
pub(crate) fn reached(caller: &Caller, owner: &str, name: &str) -> Result<(), Problem> {
    if caller.reaches(owner) { Ok(()) } else { Err(not_found(name)) }
}

/// What is said of a session that is not there, or not for whoever asks.
pub(crate) fn not_found(name: &str) -> Problem {
    windlass::AskError::NotFound { what: format!("session {name:?}") }.into()
}

/// The keys of what is set for a session: they go with it.
pub(crate) fn settings(principal: &str, name: &str) -> Vec<String> {
    vec![by_name(name), of_principal(principal, name)]
}

fn of_principal(principal: &str, name: &str) -> String {
    format!("{BY_PRINCIPAL}{principal}/{name}")
}

fn by_name(name: &str) -> String {
    format!("{BY_NAME}{name}")
}

fn invalid(error: BatchError) -> Problem {
    Problem::new("invalid_session", error.to_string())
}

fn read(record: &Record) -> Result<Setting, Problem> {
    serde_json::from_slice(&record.value).map_err(|error| {
        Problem::new("internal", format!("the record {} cannot be read: {error}", record.key))
    })
}

fn check_wanted(wanted: &NewSession, limits: &Limits) -> Result<(), Problem> {
    let longer = |text: &str, max: u64| text.chars().count() as u64 > max;
    let (title_max, labels_max) = (limits.session_title_chars_max, limits.session_labels_max);
    let (label_max, running_max) = (limits.session_label_chars_max, limits.session_calls_running_max);
    let told = if wanted.tools.is_some() && wanted.parent.is_none() {
        "only a child has tools of its own choosing; say as `parent` whose child it is".to_string()
    } else if wanted.title.as_ref().is_some_and(|title| longer(title, title_max)) {
        format!("a title has at most {title_max} characters; say it shorter")
    } else if wanted.labels.len() as u64 > labels_max {
        format!("a session has at most {labels_max} labels; leave some out")
    } else if wanted.labels.iter().any(|(name, value)| longer(name, label_max) || longer(value, label_max)) {
        format!("a label has at most {label_max} characters, its value too; say it shorter")
    } else if wanted.limits.calls_running_max.is_some_and(|max| !(1..=running_max).contains(&max)) {
        format!(
            "of a session 1 to {running_max} calls run at once; ask for as many, or for none in particular"
        )
    } else {
        return Ok(());
    };
    Err(Problem::new("invalid_session", told))
}
