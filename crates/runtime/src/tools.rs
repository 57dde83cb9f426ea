//! Tools as they are written, registered and found.

pub(crate) mod client;
pub(crate) mod hooks;
pub(crate) mod meter;
pub(crate) mod model;
pub(crate) mod overlay;
pub(crate) mod place;
pub(crate) mod policy;
pub(crate) mod projector;
pub(crate) mod provider;
pub(crate) mod registry;
pub(crate) mod request;
pub(crate) mod scope;
pub(crate) mod tool;
pub(crate) mod toolbox;
pub(crate) mod transport;
pub(crate) mod typed;
pub(crate) mod typed_fn;
