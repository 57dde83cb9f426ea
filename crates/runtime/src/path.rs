//! The path of a call, from the submission of its batch to its end.

pub(crate) mod attached;
pub(crate) mod background;
pub(crate) mod drive;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod kept;
pub(crate) mod nested;
pub(crate) mod stage;
pub(crate) mod stream;
pub(crate) mod submit;
mod together;
