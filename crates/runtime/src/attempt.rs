//! One run of a tool: the threads it runs on, and its named operations.

pub(crate) mod inside;
pub(crate) mod threads;
