//! The principals and settings of sessions: both are written with the change that opens a session, and removed with it.

use crate::access::{Caller, LOCAL, TokenScope};
use crate::problem::{Problem, ProblemCode};
use crate::wire::{NewSession, SessionBounds};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use windlass::error::SessionError;
use windlass::limits::SessionLimits;
use windlass::sessions::{
    Child, ChildSpec, GoneSession, SessionOpening, SessionOverlay, SessionStanding, Settings,
    check_session_name,
};
use windlass::store::{SessionPage, Space, Store};
use windlass::{Limits, Runtime};
use windlass_core::time::Timestamp;

/// The key of a session's settings, among its records.
const SETTING: &str = windlass::sessions::ABOUT;

/// The sessions of a store and their principals.
pub struct Sessions {
    store: Arc<dyn Store>,
    /// The runtime that opens sessions, if there is one.
    runtime: Option<Runtime>,
    /// Principals change only when a session is removed, so they are cached until then.
    known: Mutex<SessionOwners>,
    known_max: usize,
}

/// Cached principals of sessions.
#[derive(Default)]
struct SessionOwners {
    principals: HashMap<String, Option<Arc<str>>>,
    /// The number of removals at that time.
    removals: u64,
}

/// The principal and the settings of an existing session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The principal it belongs to, if any.
    pub principal: Option<Arc<str>>,
    /// Its title, labels, language and creation time.
    pub about: SessionAbout,
}

/// Title, labels, language and creation time of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct SessionAbout {
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Labels for programs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The language of its messages for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// When it was first used, in microseconds since 1970; `None` for sessions older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
}

impl SessionAbout {
    /// For a session first used now.
    fn since(now: Timestamp) -> SessionAbout {
        SessionAbout { created_at: Some(now.0), ..SessionAbout::default() }
    }

    /// The records that store it with the session.
    fn records(&self) -> Settings {
        vec![(SETTING.to_string(), serde_json::to_vec(self).unwrap_or_default().into())]
    }

    /// Reads the settings of a session.
    pub(crate) async fn of(store: &dyn Store, name: &str) -> Result<SessionAbout, SessionError> {
        let Some(row) = store.session(name).await? else { return Ok(SessionAbout::default()) };
        let kept = store.record(Space::About.of(row.no), SETTING).await?;
        let Some(kept) = kept else { return Ok(SessionAbout::default()) };
        serde_json::from_slice(&kept.value).map_err(|error| {
            SessionError::undecodable(format!("the settings of the session {name:?}"), error)
        })
    }
}

impl Sessions {
    /// The sessions of this store.
    pub fn new(store: Arc<dyn Store>, limits: &Limits) -> Sessions {
        let known_max = usize::try_from(limits.sessions_owned_max).unwrap_or(usize::MAX);
        Sessions { store, runtime: None, known: Mutex::default(), known_max }
    }

    /// The sessions of this runtime's store.
    pub(crate) fn of(runtime: &Runtime) -> Sessions {
        let sessions = Sessions::new(runtime.store().clone(), runtime.limits());
        // A child opened by a call inherits the language of its parent.
        let (store, clock) = (runtime.store().clone(), runtime.clock().clone());
        runtime.set_for_children(move |parent, _| {
            let (store, now, parent) = (store.clone(), clock.now(), parent.to_string());
            Box::pin(async move {
                let locale = SessionAbout::of(&*store, &parent).await?.locale;
                Ok(SessionAbout { locale, ..SessionAbout::since(now) }.records())
            })
        });
        Sessions { runtime: Some(runtime.clone()), ..sessions }
    }

    /// How many sessions were removed here.
    fn removals(&self) -> u64 {
        self.runtime.as_ref().map_or(0, Runtime::removals)
    }

    /// The settings of a session; `None` if there is no such session.
    pub async fn setting(&self, name: &str) -> Result<Option<Setting>, Problem> {
        match self.standing(name).await? {
            SessionStanding::Present { principal } => {
                let about = SessionAbout::of(&*self.store, name).await?;
                Ok(Some(Setting { principal, about }))
            }
            SessionStanding::Unused | SessionStanding::Gone(_) => Ok(None),
        }
    }

    /// Checks that the caller may use the session; reports it as missing otherwise. Its former principal and
    /// admins learn that a removed session is gone.
    pub async fn check(&self, caller: &Caller, name: &str) -> Result<(), Problem> {
        match self.standing(name).await? {
            SessionStanding::Present { principal } => reached(caller, principal.as_deref(), name),
            SessionStanding::Gone(gone) => Err(self.gone(caller, &gone, name)),
            SessionStanding::Unused => Err(not_found(name)),
        }
    }

    /// Checks as [`check`](Self::check) does; an unused session passes: the caller may open it.
    pub async fn check_usable(&self, caller: &Caller, name: &str) -> Result<(), Problem> {
        match self.standing(name).await? {
            SessionStanding::Unused => Ok(()),
            SessionStanding::Present { .. } | SessionStanding::Gone(_) => self.check(caller, name).await,
        }
    }

    /// Whether the session exists and the caller may use it.
    pub async fn is_reached(&self, caller: &Caller, name: &str) -> Result<bool, Problem> {
        match self.standing(name).await? {
            SessionStanding::Present { principal } => Ok(caller.reaches(principal.as_deref())),
            // One that only this process uses, without a request, is the local principal's.
            SessionStanding::Unused => Ok(caller.reaches(Some(LOCAL))),
            SessionStanding::Gone(_) => Ok(false),
        }
    }

    /// Whether the caller is told that the session has changed: its own, one of which it sees what waits, and one that is gone.
    pub(crate) async fn is_shown(&self, caller: &Caller, name: &str) -> Result<bool, Problem> {
        match self.standing(name).await? {
            SessionStanding::Present { principal } => Ok(caller.sees_waiting(principal.as_deref())),
            SessionStanding::Unused => Ok(caller.reaches(Some(LOCAL))),
            SessionStanding::Gone(gone) => {
                let was_theirs = gone.was_of(self.store.secret(), name, &caller.principal);
                Ok(caller.has(TokenScope::Admin) || was_theirs)
            }
        }
    }

    /// Checks as [`check`](Self::check) does; an unused session is opened for the caller first.
    pub async fn claim(&self, caller: &Caller, name: &str, now: Timestamp) -> Result<(), Problem> {
        check_session_name(name).map_err(invalid)?;
        if self.standing(name).await? == SessionStanding::Unused {
            let (principal, settings) = (caller.principal.clone(), SessionAbout::since(now).records());
            self.open_for(name, SessionOpening { principal, settings, ..SessionOpening::default() }).await?;
        }
        self.check(caller, name).await
    }

    /// Opens a session for the caller. `false`: it existed.
    async fn open_for(&self, name: &str, opening: SessionOpening) -> Result<bool, Problem> {
        match self.runtime()?.open_session(name, opening).await {
            Ok(opened) => Ok(opened.is_new),
            // Removed in the meantime: the next check reports it.
            Err(SessionError::Gone { .. }) => Ok(false),
            Err(SessionError::Shape { what }) => Err(Problem::new(ProblemCode::InvalidSession, what)),
            Err(error) => Err(error.into()),
        }
    }

    fn runtime(&self) -> Result<&Runtime, Problem> {
        self.runtime.as_ref().ok_or_else(|| Problem::new(ProblemCode::Internal, "nobody drives calls here"))
    }

    /// Opens a session with its settings. `true` if it is new; repeating the request changes nothing.
    pub async fn open(
        &self,
        caller: &Caller,
        name: &str,
        wanted: &NewSession,
        now: Timestamp,
        limits: &Limits,
    ) -> Result<bool, Problem> {
        check_session_name(name).map_err(invalid)?;
        check_wanted(wanted, limits)?;
        let (title, labels, locale) = (wanted.title.clone(), wanted.labels.clone(), wanted.locale.clone());
        let about = SessionAbout { title, labels, locale, ..SessionAbout::since(now) };
        let child = Child::of(&*self.store, name).await?;
        let is_new = match &wanted.parent {
            Some(parent) => self.open_child(caller, parent, name, &about, wanted).await?,
            None if child.is_some() => false,
            None => {
                let opening = SessionOpening {
                    principal: caller.principal.clone(),
                    limits: wanted.limits.into(),
                    overlay: wanted.overlay.clone(),
                    folder: wanted.folder.as_ref().map(PathBuf::from),
                    settings: about.records(),
                };
                self.open_for(name, opening).await?
            }
        };
        if is_new {
            return Ok(true);
        }
        self.check(caller, name).await?;
        let there = self.setting(name).await?.ok_or_else(|| not_found(name))?.about;
        let bounds = SessionBounds::from(SessionLimits::of(&self.store, name).await?);
        let overlay = SessionOverlay::of(&*self.store, name).await?;
        let set = |about: &SessionAbout| (about.title.clone(), about.labels.clone(), about.locale.clone());
        let is_as_wanted = wanted.parent.is_some() || child.is_none();
        let has_wanted_tools = overlay == wanted.overlay.clone().sorted();
        let has_wanted_folder = self.has_folder(name, wanted).await?;
        if set(&there) == set(&about)
            && bounds == wanted.limits
            && is_as_wanted
            && has_wanted_tools
            && has_wanted_folder
        {
            return Ok(false);
        }
        let told = format!(
            "the session {name:?} exists with another title, parent, folder or overlay, or other labels, limits or locale; it was not changed"
        );
        Err(Problem::new(ProblemCode::Conflict, told))
    }

    /// Whether the session was opened with the wanted folder.
    async fn has_folder(&self, name: &str, wanted: &NewSession) -> Result<bool, Problem> {
        let there = SessionOpening::folder_of(&*self.store, name).await?;
        // Recorded without links.
        let real = |folder: &String| std::fs::canonicalize(folder).unwrap_or_else(|_| PathBuf::from(folder));
        Ok(there.map(PathBuf::from) == wanted.folder.as_ref().map(real))
    }

    /// Opens a session as the child of another, which the caller must be able to use. `false`: it existed.
    async fn open_child(
        &self,
        caller: &Caller,
        parent: &str,
        name: &str,
        about: &SessionAbout,
        wanted: &NewSession,
    ) -> Result<bool, Problem> {
        self.check(caller, parent).await?;
        // Another principal's session is reported as missing, whatever its parent.
        if self.standing(name).await? != SessionStanding::Unused {
            self.check(caller, name).await?;
        }
        let (tools, limits, settings) = (wanted.tools.clone(), wanted.limits.into(), about.records());
        Ok(self.runtime()?.open_child(parent, name, ChildSpec { tools, limits, settings }).await?)
    }

    /// A page of the names of sessions that the caller may use, and the next page's cursor.
    pub async fn page(
        &self,
        caller: &Caller,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<String>, Option<String>), Problem> {
        let principal = if caller.has(TokenScope::Admin) { None } else { Some(&*caller.principal) };
        let page = SessionPage { principal, after, limit: limit as u64 + 1 };
        let rows = self.store.sessions_by_name(page).await?;
        let names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
        let more = names.len() > limit;
        let names: Vec<String> = names.into_iter().take(limit).collect();
        let next = names.last().filter(|_| more).cloned();
        Ok((names, next))
    }

    /// Looks up a session by name.
    pub(crate) async fn standing(&self, name: &str) -> Result<SessionStanding, Problem> {
        let removals = self.removals();
        {
            let known = self.lock();
            if let Some(principal) = known.principals.get(name).filter(|_| known.removals == removals) {
                return Ok(SessionStanding::Present { principal: principal.clone() });
            }
        }
        let standing = SessionStanding::of(&*self.store, name).await?;
        let SessionStanding::Present { principal } = &standing else { return Ok(standing) };
        let mut known = self.lock();
        if known.principals.len() >= self.known_max || known.removals != removals {
            *known = SessionOwners { principals: HashMap::new(), removals };
        }
        // A row read during a removal may be stale.
        if self.removals() == removals {
            known.principals.insert(name.to_string(), principal.clone());
        }
        Ok(standing)
    }

    /// The problem for a removed session, by caller.
    pub(crate) fn gone(&self, caller: &Caller, gone: &GoneSession, name: &str) -> Problem {
        let was_theirs = gone.was_of(self.store.secret(), name, &caller.principal);
        match caller.has(TokenScope::Admin) || was_theirs {
            true => SessionError::Gone { session: name.to_string() }.into(),
            false => not_found(name),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SessionOwners> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that the caller may use a session of this principal.
pub(crate) fn reached(caller: &Caller, principal: Option<&str>, name: &str) -> Result<(), Problem> {
    if caller.reaches(principal) { Ok(()) } else { Err(not_found(name)) }
}

/// The problem for a session that is missing, or not the caller's.
pub(crate) fn not_found(name: &str) -> Problem {
    SessionError::NotFound { session: name.to_string() }.into()
}

fn invalid(error: SessionError) -> Problem {
    Problem::new(ProblemCode::InvalidSession, error.to_string())
}

fn check_wanted(wanted: &NewSession, limits: &Limits) -> Result<(), Problem> {
    let longer = |text: &str, max: u64| text.chars().count() as u64 > max;
    let (title_max, labels_max) = (limits.session_title_chars_max, limits.session_labels_max);
    let locale_max = limits.session_locale_chars_max;
    let label_max = limits.session_label_chars_max;
    let told = if wanted.parent.is_some() && wanted.folder.is_some() {
        "a child session has files of its own; leave out `folder`, or `parent`".to_string()
    } else if wanted.parent.is_some() && !wanted.overlay.is_empty() {
        "a child session has tools of its parent: select them with `tools`, and give the overlay to the parent".to_string()
    } else if wanted.tools.is_some() && wanted.parent.is_none() {
        "only a child session selects its tools; name its parent as `parent`".to_string()
    } else if wanted.title.as_ref().is_some_and(|title| longer(title, title_max)) {
        format!("a title has at most {title_max} characters; shorten it")
    } else if wanted.locale.as_ref().is_some_and(|locale| longer(locale, locale_max)) {
        format!("a locale has at most {locale_max} characters, such as de-AT; shorten it")
    } else if wanted.labels.len() as u64 > labels_max {
        format!("a session has at most {labels_max} labels; leave some out")
    } else if wanted.labels.iter().any(|(name, value)| longer(name, label_max) || longer(value, label_max)) {
        format!("a label has at most {label_max} characters, and so does its value; shorten it")
    } else if let Err(problem) = SessionLimits::from(wanted.limits).check(limits) {
        problem.to_string()
    } else {
        return Ok(());
    };
    Err(Problem::new(ProblemCode::InvalidSession, told))
}
