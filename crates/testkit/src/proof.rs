//! Proofs that kill: a worker in a process of its own runs seeded batches against a ledger and dies at any moment;
//! what its caller was told, what the journal says and what the ledger saw are then joined.
//!
//! [`plan`] says what is submitted, [`worker`] runs it, [`ledger`] is the way to the ledger, [`trial`] is one data
//! folder through all its workers, [`check`] joins the three histories, [`kill`] is the rig that kills at random
//! instants, [`points`] the one that kills at every write.

pub mod aside;
pub mod check;
pub mod history;
pub mod kill;
pub mod ledger;
pub mod plan;
pub mod points;
pub mod programs;
pub mod trial;
pub mod worker;
