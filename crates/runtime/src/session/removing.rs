//! The mark of a session that is being removed: a record of the session, which goes with the session's own row.

use crate::api::error::SessionError;
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_store::{Row, Space, Store};

/// The key of the mark.
const BEGUN: &str = "begun";

/// The row that marks a session.
pub(crate) fn mark() -> Row {
    Row::Put { space: Space::Removing, key: BEGUN.to_string(), value: Arc::default() }
}

/// Whether the session of this number is being removed.
pub(crate) async fn is_marked(store: &dyn Store, session: SessionNo) -> Result<bool, SessionError> {
    Ok(store.record(Space::Removing.of(session), BEGUN).await?.is_some())
}
