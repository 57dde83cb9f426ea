//! The place of a call in its session, its turn and among other calls, for tools and hooks that look at it.

use crate::session::held::DriveContext;
use crate::tools::registry::Listed;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;

/// The place of a call, while it is prepared or shown to hooks. Everything is looked up when it is asked for: most tools and
/// hooks ask for nothing.
#[derive(Clone, Copy)]
pub(crate) struct CallPlace<'a> {
    pub(crate) on: &'a DriveContext,
    pub(crate) call: CallId,
    /// The model's id of the call.
    pub(crate) id: &'a str,
    /// The number of attempts started.
    pub(crate) attempts: u32,
}

impl<'a> CallPlace<'a> {
    pub(crate) fn turn(&self) -> Option<&'a str> {
        self.on.batch.head.turn.as_deref()
    }

    pub(crate) fn principal(&self) -> Option<&'a str> {
        self.on.session.principal.as_deref()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle_of(self.call)
    }

    /// Its own handle if it is a task.
    pub(crate) fn task(&self) -> Option<Handle> {
        self.on.batch.is_task(self.call.ordinal).then(|| self.handle())
    }

    /// The call that made it, or started it as a task.
    pub(crate) fn parent(&self) -> Option<Handle> {
        let made = self.on.batch.head.parent.map(|parent| parent.call);
        let started = || self.on.batch.asked_for(self.call.ordinal)?.task?.starter;
        made.or_else(started).map(|call| self.handle_of(call))
    }

    pub(crate) fn catalog(&self) -> Vec<Listed> {
        self.on.rt.registry.list_for(&self.on.batch.head.place)
    }

    fn handle_of(&self, call: CallId) -> Handle {
        Handle::seal(self.on.rt.store.secret(), HandleKind::Call, call.packed())
    }
}
