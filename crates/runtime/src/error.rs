//! What can go wrong around a batch, for the caller of the library.

use std::sync::Arc;
use windlass_store::StoreError;

/// The store is lost to this runtime: nothing more can be recorded, so nothing more is done. What was
/// acknowledged is safe; open the folder anew.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the store is lost to this runtime; what was acknowledged is safe, open it anew")]
pub struct Lost(#[source] pub Arc<StoreError>);

impl From<StoreError> for Lost {
    fn from(error: StoreError) -> Lost {
        Lost(Arc::new(error))
    }
}

/// An error with all its causes on one line, for logs and operators.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
