//! Observing calls that are made inside others.

use std::fmt;
use std::sync::Arc;
use windlass_core::handle::Handle;

/// Notified of every call that the calls of a batch make inside, directly or not; see
/// [`BatchRequest::observer`](crate::BatchRequest::observer). It is called before the nested call begins, must not block, and is not
/// recorded: after a restart it is there again once its batch is submitted again. A batch with an observer stays in memory.
///
/// ```
/// # use windlass::batch::{NestedCall, Observer};
/// # use windlass::BatchRequest;
/// let observer = Observer::new(|nested: &NestedCall| println!("{} calls {}", nested.inside, nested.tool));
/// let batch = BatchRequest { observer: Some(observer), ..BatchRequest::default() };
/// ```
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&NestedCall) + Send + Sync>);

/// A call made inside another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedCall {
    /// Its handle.
    pub call: Handle,
    /// Its id: the name it was made under, if it was made alone.
    pub id: String,
    /// The name of its tool.
    pub tool: String,
    /// The handle of the call that made it.
    pub inside: Handle,
}

impl Observer {
    /// An observer that calls this closure.
    pub fn new(told: impl Fn(&NestedCall) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    pub(crate) fn tell(&self, nested: &NestedCall) {
        // A panic of the observer must not end the call.
        if let Err(what) = crate::api::polling::caught(|| (self.0)(nested)) {
            tracing::error!(call = %nested.call, what, "an observer panicked");
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(…)")
    }
}
