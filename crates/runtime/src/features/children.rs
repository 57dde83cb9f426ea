//! Child sessions: each has at most the tools of its parent, and is closed with the call that opened it.
//!
//! A record in the change that opens a session makes it a child. That a child is closed is not recorded: it
//! is closed once the call that opened it has ended, or one further up, and those ends are recorded.

mod inside;
mod open;

pub use inside::ChildSession;

pub(crate) use open::{Opener, OpeningCall, check, open};

use crate::api::error::{Lost, SessionError};
use crate::api::limits::SessionLimits;
use crate::mailbox::ask::AskError;
use crate::mailbox::closing;
use crate::session::bounds::Bounds;
use crate::session::inner::{Inner, Runtime};
use crate::session::kin::{CLOSED, Lineage};
use crate::session::principal::Settings;
use crate::tools::registry::{Listed, NoSuchTool};
use crate::tools::scope::ScopeLine;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use windlass_store::{Row, Space};

/// The specification of a child session.
#[derive(Clone, Debug, Default)]
pub struct ChildSpec {
    /// The names of the tools it has of its parent's. `None`: all of them, including later ones.
    pub tools: Option<Vec<String>>,
    /// Limits of its own, tighter than the general ones.
    pub limits: SessionLimits,
    /// Records of [`Space::About`](windlass_store::Space::About), by key: written with it, and removed with it.
    pub settings: Settings,
}

/// The host's settings for a child session that a call opens, by the names of the parent and the child.
pub(crate) type Sets = Box<dyn Fn(&str, &str) -> SettingsFuture + Send + Sync>;

/// The host's settings for child sessions that calls open, if there are any.
#[derive(Default)]
pub(crate) struct SetsForChildren(OnceLock<Sets>);

/// The number of a session's children, once they were counted. Held while opening one.
#[derive(Default)]
pub(crate) struct ChildCount(pub(crate) tokio::sync::Mutex<Option<u64>>);

/// The settings of one child.
pub type SettingsFuture = Pin<Box<dyn Future<Output = Result<Settings, SessionError>> + Send>>;

/// Why a child session was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// Its parent has no such tool.
    #[error(
        "a child session has tools of its parent {parent:?}, and {missing}; leave it out, or name one that is there"
    )]
    NoSuchTool {
        /// The parent.
        parent: String,
        /// The tool, and a suggestion.
        missing: NoSuchTool,
    },
    /// The session exists with another specification.
    #[error("the session {session:?} exists, {stands}; give the child another name")]
    Conflict {
        /// Its name.
        session: String,
        /// Its specification.
        stands: String,
    },
    /// Its parent is closed.
    #[error(
        "the session {session:?} is closed, because the call that opened it has ended: it takes no new children"
    )]
    Closed {
        /// The parent.
        session: String,
    },
    /// Too many sessions and calls are around it.
    #[error(
        "the child session would lie inside {depth} calls and sessions, and may lie inside {max}; open it further out"
    )]
    TooDeep {
        /// The number.
        depth: u32,
        /// The limit `nesting_max`.
        max: u64,
    },
    /// More children than a session may have.
    #[error("the session {parent:?} has {max} children, and may have no more; remove unused ones")]
    TooMany {
        /// The parent.
        parent: String,
        /// The limit `children_max`.
        max: u64,
    },
    /// More tools than can be named.
    #[error("a child session names at most {max} tools; name none to give it all tools of its parent")]
    TooManyTools {
        /// The limit `child_tools_max`.
        max: u64,
    },
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<Lost> for ChildError {
    fn from(lost: Lost) -> ChildError {
        ChildError::Session(lost.into())
    }
}

/// Closes a child session before the call that opened it has ended. Durable when this returns.
pub(crate) async fn close(rt: &Arc<Inner>, name: &str) -> Result<(), AskError> {
    let session = rt.session(name).await?;
    let Some(kin) = &session.kin else { return Ok(()) };
    let row = Row::Put { space: Space::About, key: CLOSED.to_string(), value: Arc::default() };
    session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
    kin.close_early();
    closing::stop(rt, name, Some("the session was closed")).await.map(drop)
}

impl Runtime {
    /// Opens a child of a session: a session of its own, with at most the tools of its parent. It lives as long as its
    /// parent; to close one earlier, open it inside a call, with [`Cx::child`](crate::Cx::child). `true`: it is new; repeating
    /// the request changes nothing.
    ///
    /// ```
    /// # use windlass::sessions::ChildSpec;
    /// # use windlass::store::memory::MemoryStore;
    /// # use windlass::{tool_fn, Config, Runtime, ToolSpec};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// # for name in ["read", "write"] {
    /// #     let spec = ToolSpec { name: name.into(), ..ToolSpec::default() };
    /// #     runtime.register(tool_fn(spec, |args, _| async { Ok(args.into()) }))?;
    /// # }
    /// let spec = ChildSpec { tools: Some(vec!["read".into()]), ..ChildSpec::default() };
    /// assert!(runtime.open_child("agent", "agent.reviewer", spec).await?);
    /// assert_eq!(runtime.tools_of("agent.reviewer").await?.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn open_child(&self, parent: &str, name: &str, spec: ChildSpec) -> Result<bool, ChildError> {
        open(&self.0, Opener { parent, call: None }, name, spec).await.map(|(_, is_new)| is_new)
    }

    /// Writes the settings that `sets` returns with every child session that a call opens from now on, in
    /// addition to the call's own: by the names of the parent and the child. There can be one.
    pub fn set_for_children(&self, sets: impl Fn(&str, &str) -> SettingsFuture + Send + Sync + 'static) {
        let _later = self.0.slots.of::<SetsForChildren>().0.set(Box::new(sets));
    }

    /// The tools that calls of this session may use, by name.
    pub async fn tools_of(&self, session: &str) -> Result<Vec<Listed>, SessionError> {
        let registry = &self.0.registry;
        if let Some(listed) = registry.list_owned(session) {
            return Ok(listed);
        }
        let bounds = Bounds::of(&*self.0.store, session).await?;
        let (line, overlay) = match bounds.child {
            None => (ScopeLine::root(session), bounds.overlay),
            Some(child) => {
                let Lineage { line, overlay, .. } = child.line(&*self.0.store, session).await?;
                (line, overlay)
            }
        };
        Ok(registry.list_along(&line.with(&overlay, registry)))
    }
}
