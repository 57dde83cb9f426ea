//! The record of a session's limits: how many of its calls run, and its parent.

use crate::api::error::SessionError;
use crate::api::limits::SessionLimits;
use crate::session::kin::Child;
use crate::session::principal::SessionOpening;
use crate::tools::overlay::SessionOverlay;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{Row, Space, Store};

/// The key of the record with the limits of a session.
pub(crate) const BOUNDS: &str = "bounds";

/// The limits of a session, in one record: how many of its calls run, its parent, and the tools it was opened with. So
/// taking a session reads no more than it would without children and overlays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bounds {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calls_running_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tasks_running_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inline_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_age_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_bytes_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_lines_max: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) child: Option<Child>,
    #[serde(default, skip_serializing_if = "SessionOverlay::is_empty")]
    pub(crate) overlay: SessionOverlay,
    /// The folder of its files, if it was opened with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<String>,
}

impl Bounds {
    pub(crate) fn new(limits: SessionLimits, child: Option<Child>) -> Bounds {
        Bounds {
            calls_running_max: limits.calls_running_max,
            tasks_running_max: limits.tasks_running_max,
            inline_ms: limits.inline_ms,
            retention_age_ms: limits.retention_age_ms,
            retention_bytes: limits.retention_bytes,
            answer_bytes_max: limits.answer_bytes_max,
            answer_lines_max: limits.answer_lines_max,
            child,
            overlay: SessionOverlay::default(),
            folder: None,
        }
    }

    /// The limits of a session that is opened with these tools.
    pub(crate) fn with(self, overlay: SessionOverlay) -> Bounds {
        Bounds { overlay, ..self }
    }

    /// The limits of a session that is opened with this folder.
    pub(crate) fn within(self, folder: Option<String>) -> Bounds {
        Bounds { folder, ..self }
    }

    pub(crate) fn limits(&self) -> SessionLimits {
        SessionLimits {
            calls_running_max: self.calls_running_max,
            tasks_running_max: self.tasks_running_max,
            inline_ms: self.inline_ms,
            retention_age_ms: self.retention_age_ms,
            retention_bytes: self.retention_bytes,
            answer_bytes_max: self.answer_bytes_max,
            answer_lines_max: self.answer_lines_max,
        }
    }

    /// The row that stores them with the session; `None` if they are empty.
    pub(crate) fn row(&self) -> Option<Row> {
        let (space, key) = (Space::About, BOUNDS.to_string());
        let value = || serde_json::to_vec(self).unwrap_or_default().into();
        (*self != Bounds::default()).then(|| Row::Put { space, key, value: value() })
    }

    /// The limits of the session of this name.
    pub(crate) async fn of(store: &dyn Store, session: &str) -> Result<Bounds, SessionError> {
        match store.session(session).await? {
            Some(row) => Bounds::kept(store, row.no, session).await,
            None => Ok(Bounds::default()),
        }
    }

    /// The limits of the session of this number and name.
    pub(crate) async fn kept(store: &dyn Store, no: SessionNo, name: &str) -> Result<Bounds, SessionError> {
        let Some(kept) = store.record(Space::About.of(no), BOUNDS).await? else {
            return Ok(Bounds::default());
        };
        serde_json::from_slice(&kept.value)
            .map_err(|error| SessionError::undecodable(format!("the limits of the session {name:?}"), error))
    }
}

impl SessionLimits {
    /// The stored limits of the session of this name.
    pub async fn of(store: &Arc<dyn Store>, session: &str) -> Result<SessionLimits, SessionError> {
        Ok(Bounds::of(&**store, session).await?.limits())
    }
}

impl SessionOverlay {
    /// The overlay that the session of this name was opened with.
    pub async fn of(store: &dyn Store, session: &str) -> Result<SessionOverlay, SessionError> {
        Ok(Bounds::of(store, session).await?.overlay)
    }
}

impl SessionOpening {
    /// The folder that the session of this name was opened with, without links.
    pub async fn folder_of(store: &dyn Store, session: &str) -> Result<Option<String>, SessionError> {
        Ok(Bounds::of(store, session).await?.folder)
    }
}
