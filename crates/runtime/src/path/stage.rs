//! One file per arm of [`drive`](crate::path::drive), with its name.

pub(crate) mod aside;
pub(crate) mod attempt;
pub(crate) mod authorize;
pub(crate) mod complete;
pub(crate) mod join;
pub(crate) mod park;
pub(crate) mod prepare;
pub(crate) mod reconcile;
pub(crate) mod result;
pub(crate) mod retry;
pub(crate) mod settle;
