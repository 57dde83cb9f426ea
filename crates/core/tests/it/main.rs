//! The rules of a call, tested from outside.

mod batch;
mod call;
mod entry;
