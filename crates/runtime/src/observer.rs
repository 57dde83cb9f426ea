//! Being told of what a call starts inside.

use std::fmt;
use std::sync::Arc;
use windlass_core::handle::Handle;

/// Told of every call that the calls of a batch start inside, whatever started it there; see
/// [`BatchRequest::observer`](crate::BatchRequest::observer). It is told before the call begins, must not block, and is not
/// recorded: after a restart it is there again once its batch is submitted again. A batch with one stays in memory.
///
/// ```
/// # use windlass::{BatchRequest, NestedCall, Observer};
/// let observer = Observer::new(|nested: &NestedCall| println!("{} calls {}", nested.inside, nested.tool));
/// let batch = BatchRequest { observer: Some(observer), ..BatchRequest::default() };
/// ```
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&NestedCall) + Send + Sync>);

/// A call that was started inside another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedCall {
    /// Its handle.
    pub call: Handle,
    /// Its id: the name under which it was made, if it was made alone.
    pub id: String,
    /// The name of its tool.
    pub tool: String,
    /// The handle of the call inside which it is.
    pub inside: Handle,
}

impl Observer {
    /// One that does this with everything it is told.
    pub fn new(told: impl Fn(&NestedCall) + Send + Sync + 'static) -> Observer {
        Observer(Arc::new(told))
    }

    pub(crate) fn tell(&self, nested: &NestedCall) {
        // Whoever observes must not end what is observed.
        if let Err(what) = crate::threads::caught(|| (self.0)(nested)) {
            tracing::error!(call = %nested.call, what, "an observer panicked");
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer(…)")
    }
}
