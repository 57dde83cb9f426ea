//! Observing calls that are made inside others.

use std::fmt;
use std::sync::Arc;
use windlass_core::handle::Handle;

/// Notified of every call that the calls of a batch make inside, directly or not, of the tasks that they start, also by
/// events, of calls in their child sessions, and of work that they [announce](crate::Cx::announce); see
/// [`BatchRequest::observer`](crate::BatchRequest::observer) and [`CallRequest::observer`](crate::CallRequest::observer). It is called before the nested call begins, must not block, and is not
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

/// How a call came from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOrigin {
    /// The other call made it and waits for it.
    Nested,
    /// The other call started it as a task.
    Spawned,
    /// An event of the other call started it as a task.
    Triggered,
    /// It was made in a child session of the other call.
    Child,
    /// It is no call of Windlass: the tool of the other call announced work of its own.
    Announced,
}

/// A call made inside another, or started by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedCall {
    /// How it came from the other call.
    pub origin: CallOrigin,
    /// Its handle; that of the call around it, if it is announced work.
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

    /// An observer that tells both of these.
    pub(crate) fn both(one: Observer, other: Observer) -> Observer {
        Observer::new(move |nested| {
            one.tell(nested);
            other.tell(nested);
        })
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
