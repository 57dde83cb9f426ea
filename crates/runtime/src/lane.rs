//! The ordered way from a session's owner to the store.
use crate::error::Lost;
use std::sync::Arc;
use windlass_core::limits::Limits;
use windlass_store::{Row, Store};

/// A session that this runtime owns.
pub struct Lane {
    store: Arc<dyn Store>,
    limits: Arc<Limits>,
}
impl Lane {
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }
    pub(crate) async fn commit_rows(&self, _rows: Vec<Row>) -> Result<(), Lost> {
        Ok(())
    }
}
