//! Messages from outside: any process posts them, the owner of their session adopts them.

pub mod approve;
pub mod ask;
pub(crate) mod closing;
pub(crate) mod grants;
