//! One file per arm of [`drive`](crate::drive), with its name.

pub(crate) mod attempt;
pub(crate) mod prepare;
pub(crate) mod settle;
