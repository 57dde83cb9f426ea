//! Features built on calls: tasks, notices, schedules, triggers, child sessions, pairs, secrets, files, policy, approvals, grants,
//! removal, retention, webhooks.

pub(crate) mod approvals;
pub(crate) mod awaits;
pub(crate) mod catalog;
pub(crate) mod children;
pub(crate) mod deliveries;
pub(crate) mod files;
pub(crate) mod grants;
pub(crate) mod inbox;
pub(crate) mod orders;
pub(crate) mod pairs;
pub(crate) mod pauses;
pub(crate) mod policy;
pub(crate) mod removal;
pub(crate) mod retention;
pub(crate) mod revocations;
pub(crate) mod schedules;
pub(crate) mod secrets;
pub(crate) mod standing;
pub(crate) mod state;
pub(crate) mod tasks;
pub(crate) mod toolboxes;
pub(crate) mod triggers;
pub(crate) mod uploads;
pub(crate) mod webhooks;
