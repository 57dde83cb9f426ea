//! Child sessions: each has at most the tools of its parent, and is over with the call that opened it.
//!
//! What makes a session a child is one record, written under a guard before the session is used. That a child is closed is
//! written nowhere: it is closed once the call that opened it has ended, or one further up, and those ends are recorded.

mod open;
mod over;

pub(crate) use open::{Opener, check, open};
pub(crate) use over::{ChildOf, leave_word, of_ended, opened, stop, stop_soon};

use crate::ask;
use crate::error::{BatchError, Lost};
use crate::registry::{Listed, NoSuchTool};
use crate::runtime::{Bounds, Runtime, SessionLimits};
use crate::scope::{Layer, Line, Link};
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::CallId;
use windlass_store::{RecordPage, Row, STORE, Space, Store};

/// How keys of records begin by which the children of a session are found.
const CHILDREN: &str = "children/";
/// They are looked through in pages of this size.
const PAGE: u64 = 500;

/// What a child session is to be.
#[derive(Clone, Debug, Default)]
pub struct ChildSpec {
    /// The names of the tools that it has of its parent's. `None`: all of them, also those that come later.
    pub tools: Option<Vec<String>>,
    /// What bounds it more tightly than every session is bounded.
    pub limits: SessionLimits,
    /// Records of [`Space::Setting`] that nobody has put, by key: they are put with it, and go with it.
    pub settings: Settings,
}

/// Records of [`Space::Setting`], by key.
pub type Settings = Vec<(String, Arc<[u8]>)>;

/// What a host sets for a child session that a call opens, of which the parent and its own name are given.
pub(crate) type Sets = Box<dyn Fn(&str, &str) -> SettingsFuture + Send + Sync>;

/// The settings of one child.
pub type SettingsFuture = Pin<Box<dyn Future<Output = Result<Settings, BatchError>> + Send>>;

/// What a session is as the child of another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Child {
    /// Its parent.
    pub parent: String,
    /// The tools that it has of its parent's, by name; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The call that opened it, as one number; none if its host did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    /// How many calls and sessions lie between it and whoever asked first.
    depth: u32,
    /// The keys of what was put with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settings: Vec<String>,
}

/// Why a child session was not opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChildError {
    /// Its parent has no such tool.
    #[error(
        "a child session has tools of its parent {parent:?}, and {missing}; leave it out, or name one that is there"
    )]
    NoSuchTool {
        /// The parent.
        parent: String,
        /// Which tool, and what was perhaps meant.
        missing: NoSuchTool,
    },
    /// The session is there, and is another.
    #[error("the session {session:?} is there, {stands}; that stands, so give the child another name")]
    Conflict {
        /// Its name.
        session: String,
        /// What it is.
        stands: String,
    },
    /// Its parent is closed.
    #[error(
        "the session {session:?} is closed, as the call that opened it has ended: it has no new children"
    )]
    Closed {
        /// The parent.
        session: String,
    },
    /// Too many sessions and calls lie around it.
    #[error(
        "the child session would lie inside {depth} calls and sessions, and may lie inside {max}; open it further out"
    )]
    TooDeep {
        /// How many.
        depth: u32,
        /// The limit `nesting_max`.
        max: u64,
    },
    /// More children than a session may have.
    #[error(
        "the session {parent:?} has {max} children, and may have no more; remove some that are not needed any more"
    )]
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
    /// The session cannot be had.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

impl From<Lost> for ChildError {
    fn from(lost: Lost) -> ChildError {
        ChildError::Batch(lost.into())
    }
}

impl Runtime {
    /// Opens a child of a session: a session of its own, with at most the tools of its parent. It lives as long as its
    /// parent; one that is over earlier is opened from inside a call, by [`Cx::child`](crate::Cx::child). `true`: it is new; the
    /// same again changes nothing.
    ///
    /// ```
    /// # use windlass::{ChildSpec, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
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
        open(&self.0, Opener { parent, call: None }, (name, spec)).await.map(|(_, is_new)| is_new)
    }

    /// Has what `sets` answers put with every child session that a call opens from now on, beside what the call gives it: by the
    /// names of the parent and the child. There can be one.
    pub fn set_for_children(&self, sets: impl Fn(&str, &str) -> SettingsFuture + Send + Sync + 'static) {
        let _later = self.0.sets_for_children.set(Box::new(sets));
    }

    /// The tools that calls of this session may use, by name.
    pub async fn tools_of(&self, session: &str) -> Result<Vec<Listed>, BatchError> {
        match Child::of(&**self.store(), session).await? {
            None => Ok(self.0.registry.list_of(session)),
            Some(child) => {
                let (line, _) = child.line(&**self.store(), session).await?;
                Ok(self.0.registry.list_along(&line))
            }
        }
    }
}

impl Child {
    /// What the session of this name is the child of, if of any.
    pub async fn of(store: &dyn Store, session: &str) -> Result<Option<Child>, BatchError> {
        Bounds::of(store, session).await.map(|bounds| bounds.child)
    }

    /// A page of the names of a session's children, in order.
    pub async fn page(
        store: &dyn Store,
        parent: &str,
        (after, limit): (Option<&str>, u64),
    ) -> Result<Vec<String>, BatchError> {
        let prefix = format!("{CHILDREN}{parent}/");
        let after = after.map(|after| format!("{prefix}{after}"));
        let (session, space, after) = (STORE, Space::Setting, after.as_deref());
        let found = store.records(RecordPage { session, space, prefix: &prefix, after, limit }).await?;
        Ok(found.iter().filter_map(|record| record.key.strip_prefix(&prefix)).map(str::to_string).collect())
    }

    /// The names of all children of a session.
    pub(crate) async fn all(store: &dyn Store, parent: &str) -> Result<Vec<String>, BatchError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let page = Child::page(store, parent, (names.last().map(String::as_str), PAGE)).await?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page);
        }
    }

    /// Whether it takes nothing new, as it is recorded: the call that opened it has ended, or one further up.
    pub async fn is_closed(&self, store: &dyn Store) -> Result<bool, BatchError> {
        let (_, openers) = self.line(store, "").await?;
        for (_, call) in openers {
            if has_ended(store, call).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The handle of the call that opened it, if one did.
    pub fn opener(&self, secret: &Secret) -> Option<Handle> {
        self.call.map(|call| Handle::seal(secret, Kind::Call, call))
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// The call that opened it, if one did.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.map(CallId::unpacked)
    }

    /// The row by which its parent finds it.
    pub(crate) fn listed(&self, session: &str) -> Row {
        Row::Put { space: Space::Setting, key: self.listed_as(session), value: Arc::default() }
    }

    /// The key of that.
    pub(crate) fn listed_as(&self, session: &str) -> String {
        format!("{CHILDREN}{}/{session}", self.parent)
    }

    /// The keys of what was put with it.
    pub(crate) fn settings(&self) -> &[String] {
        &self.settings
    }

    /// Through what the tools of the session of this name are seen, and the calls with which it is over, each with its session.
    pub(crate) async fn line(
        &self,
        store: &dyn Store,
        session: &str,
    ) -> Result<(Line, Vec<(Arc<str>, CallId)>), BatchError> {
        let (mut links, mut openers) = (Vec::new(), Vec::new());
        let mut at = (Arc::<str>::from(session), self.clone());
        loop {
            let (session, child) = at;
            let parent = Arc::<str>::from(child.parent.as_str());
            let only = child.tools.as_ref().map(|tools| Layer::only(tools.iter().map(String::as_str)));
            links.push(Link { session, only });
            openers.extend(child.call().map(|call| (parent.clone(), call)));
            match Child::of(store, &parent).await? {
                Some(around) => at = (parent, around),
                None => {
                    links.push(Link { session: parent, only: None });
                    return Ok((Line(links), openers));
                }
            }
        }
    }
}

/// Whether a call has ended, as it is recorded; one that is not there any more has.
async fn has_ended(store: &dyn Store, call: CallId) -> Result<bool, BatchError> {
    Ok(ask::find_id(store, call).await?.is_none_or(|(_, call, _)| call.end().is_some()))
}
