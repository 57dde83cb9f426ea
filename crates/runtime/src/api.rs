//! Values that callers pass in and get back, and the services the runtime needs from its host. Imports no other room.

pub(crate) mod answer;
pub(crate) mod clock;
pub(crate) mod content;
pub(crate) mod data_error;
pub(crate) mod decided;
pub(crate) mod error;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod misuse;
pub(crate) mod observer;
pub(crate) mod output;
pub(crate) mod pending;
pub(crate) mod polling;
pub(crate) mod progress;
pub(crate) mod retention;
pub(crate) mod secret;
pub(crate) mod traced;
pub(crate) mod view;
