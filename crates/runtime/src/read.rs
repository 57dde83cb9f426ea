//! Reading recorded and running calls, without changing them.

pub mod inspect;
pub(crate) mod story;
pub mod trace;
pub(crate) mod waits;
