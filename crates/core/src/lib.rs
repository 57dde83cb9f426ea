//! The rules of a Windlass call: no IO, no async, no clock, no randomness. Same entries in, same state out.
//!
//! Read [`call`] first: it holds the entries a call's journal is made of, the state they add up to, and the
//! one function that says what happens next.
#![warn(missing_docs)]

pub mod ask;
pub mod attempt;
pub mod batch;
pub mod call;
pub mod claim;
pub mod code;
pub mod dedupe;
pub mod entry;
pub mod failure;
pub mod few;
pub mod grant;
pub mod handle;
pub mod ids;
pub mod limits;
pub mod loops;
#[doc(hidden)]
pub mod mutant;
pub mod narration;
pub mod operation;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod projection;
pub mod rate;
pub mod redact;
pub mod schedule;
pub mod siblings;
pub mod time;
pub mod tool;
pub mod trigger;
pub mod visible;
pub mod wait;
