//! The principals of sessions: in a session's row, and in the record of a removed session's name.

use crate::api::error::SessionError;
use crate::api::limits::{Limits, SessionLimits};
use crate::session::bounds::Bounds;
use crate::session::folders;
use crate::session::inner::{Inner, Runtime};
use crate::session::lane::{Lane, LaneShared};
use crate::session::owners::Right;
use crate::tools::overlay::SessionOverlay;
use std::path::PathBuf;
use std::sync::Arc;
use windlass_core::handle::Secret;
use windlass_core::ids::SessionNo;
use windlass_store::{Hold, Row, Sequence, Space, Store, gone_value};

/// The principal of sessions that a runtime opens without one.
pub const LOCAL: &str = "local";

/// The key in [`Space::About`] of a session's title, labels and language, as JSON.
pub const ABOUT: &str = "setting";

/// Records of [`Space::About`], by key.
pub type Settings = Vec<(String, Arc<[u8]>)>;

/// The principal, limits and settings with which a session is opened.
#[derive(Clone, Debug)]
pub struct SessionOpening {
    /// The principal it belongs to, permanently.
    pub principal: Arc<str>,
    /// Limits of its own, tighter than the general ones.
    pub limits: SessionLimits,
    /// Tools that it hides, and tools that its callers run.
    pub overlay: SessionOverlay,
    /// The folder of its files, one that `Config::folders` allows; `None`: one of its own. The session's removal leaves it as it is.
    pub folder: Option<PathBuf>,
    /// Records of [`Space::About`], by key: written with the session, and removed with it.
    pub settings: Settings,
}

impl Default for SessionOpening {
    fn default() -> SessionOpening {
        SessionOpening {
            principal: LOCAL.into(),
            limits: SessionLimits::default(),
            overlay: SessionOverlay::default(),
            folder: None,
            settings: Vec::new(),
        }
    }
}

/// A session that was opened, or existed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedSession {
    /// Whether this opened it.
    pub is_new: bool,
    /// The principal it belongs to, if any.
    pub principal: Option<Arc<str>>,
}

/// Whether the name of a session is unused, taken or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionStanding {
    /// The name was never used.
    Unused,
    /// The session exists.
    Present {
        /// The principal it belongs to, if any.
        principal: Option<Arc<str>>,
    },
    /// The session was removed. The name is not used again.
    Gone(GoneSession),
}

/// The retained hash of a removed session's name and principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneSession(Vec<u8>);

impl GoneSession {
    /// Whether the session of this name belonged to this principal.
    pub fn was_of(&self, secret: &Secret, name: &str, principal: &str) -> bool {
        *self.0 == gone_value(secret, name, Some(principal))
    }
}

impl Runtime {
    /// Opens a session for a principal, unless it exists, and returns its principal. Durable when this returns. A name whose session
    /// was removed is refused with [`SessionError::Gone`].
    ///
    /// ```
    /// # use windlass::sessions::SessionOpening;
    /// # use windlass::store::memory::MemoryStore;
    /// # use windlass::{Config, Runtime};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let opening = |principal: &str| SessionOpening { principal: principal.into(), ..SessionOpening::default() };
    /// assert!(runtime.open_session("demo", opening("alice")).await?.is_new);
    /// let there = runtime.open_session("demo", opening("bob")).await?;
    /// assert_eq!((there.is_new, there.principal.as_deref()), (false, Some("alice")));
    /// # Ok(()) }
    /// ```
    pub async fn open_session(
        &self,
        name: &str,
        opening: SessionOpening,
    ) -> Result<OpenedSession, SessionError> {
        check_bound(opening.limits, &self.0.limits)?;
        let SessionOpening { principal, limits, overlay, folder, settings } = opening;
        let problem = overlay.check(self.0.registry.host(), &self.0.limits).err();
        if let Some(what) = problem {
            return Err(SessionError::Shape { what });
        }
        let folder = match folder.map(|folder| folders::allowed_folder(&self.0.folders, &folder)).transpose()
        {
            Ok(folder) => folder,
            Err(what) => return Err(SessionError::Shape { what }),
        };
        let bounds = Bounds::new(limits, None).with(overlay.sorted()).within(folder);
        let opening = SessionRecords { principal: Some(principal), bounds, settings };
        let (session, is_new) =
            self.0.open_session(name, opening, async { Ok::<(), SessionError>(()) }).await?;
        Ok(OpenedSession { is_new, principal: session.principal.clone() })
    }
}

impl SessionStanding {
    /// The principal of a session that exists.
    pub(crate) fn principal(self) -> Option<Arc<str>> {
        match self {
            SessionStanding::Present { principal } => principal,
            SessionStanding::Unused | SessionStanding::Gone(_) => None,
        }
    }

    /// Looks up the name of a session in the store.
    pub async fn of(store: &dyn Store, name: &str) -> Result<SessionStanding, SessionError> {
        if let Some(row) = store.session(name).await? {
            return Ok(SessionStanding::Present { principal: row.principal.map(Arc::from) });
        }
        Ok(match store.gone(name).await? {
            Some(gone) => SessionStanding::Gone(GoneSession(gone)),
            None => SessionStanding::Unused,
        })
    }
}

/// The principal and the records of a new session, all in the change that opens it.
#[derive(Clone, Default)]
pub(crate) struct SessionRecords {
    pub(crate) principal: Option<Arc<str>>,
    pub(crate) bounds: Bounds,
    pub(crate) settings: Settings,
}

impl SessionRecords {
    /// Opens a session for the local principal, since none was named.
    pub(crate) fn local() -> SessionRecords {
        SessionRecords { principal: Some(LOCAL.into()), ..SessionRecords::default() }
    }

    /// The rows of that change.
    pub(crate) fn rows(self) -> impl Iterator<Item = Row> {
        let put = |(key, value)| Row::Put { space: Space::About, key, value };
        self.bounds.row().into_iter().chain(self.settings.into_iter().map(put))
    }
}

/// The lane of a new session. Its principal, parent and settings are in the change that opens it; the name of
/// a removed session is refused here, and again when that change is applied.
pub(crate) async fn open_lane(
    rt: &Arc<Inner>,
    name: &str,
    opening: SessionRecords,
    ends: LaneShared,
    mut right: Right,
) -> Result<(Lane, Option<Arc<str>>), SessionError> {
    check_not_gone(&*rt.store, name).await?;
    let principal = opening.principal.clone();
    let no = SessionNo(rt.store.reserve(Sequence::Session, 1).await?);
    right.rows.extend(opening.rows());
    let whose = principal.as_deref().map(str::to_string);
    let hold = Hold::Open { name: name.to_string(), principal: whose };
    Ok((Lane::open(ends, no, hold, right), principal))
}

/// Refuses a name whose session was removed.
pub(crate) async fn check_not_gone(store: &dyn Store, name: &str) -> Result<(), SessionError> {
    match store.gone(name).await? {
        Some(_) => Err(SessionError::Gone { session: name.to_string() }),
        None => Ok(()),
    }
}

/// Refuses limits of a new session that it cannot have.
pub(crate) fn check_bound(asked: SessionLimits, limits: &Limits) -> Result<(), SessionError> {
    asked.check(limits).map_err(|problem| SessionError::Shape { what: problem.to_string() })
}
