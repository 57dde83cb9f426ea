//! Proofs that kill: a worker in a process of its own runs seeded batches against a ledger and dies at any moment;
//! what its caller was told, what the journal says and what the ledger saw are then joined.
//!
//! [`plan`] says what is submitted, [`worker`] runs it with its [`tools`] and its [`client`], [`ledger`] is the way to the
//! ledger, [`trial`] is one data folder through all its workers, [`check`] joins the three histories, [`kill`] is the rig
//! that kills at random instants, [`points`] the one that kills at every write, [`table`] what each class does at each
//! event and [`rows`] the rig that kills at every write of each of its rows, [`poison`] a call that kills its workers,
//! [`backup`] kills backups of a folder whose owner works.
//! [`mutants`] shows that they can fail.

pub mod agent;
pub mod approver;
pub mod aside;
pub mod backup;
pub mod check;
pub mod client;
pub mod context;
pub mod deletion;
pub mod grants;
pub mod history;
pub mod jumps;
pub mod kill;
pub mod kind;
pub mod ledger;
pub mod mutants;
pub mod person;
pub mod plan;
pub mod points;
pub mod poison;
pub mod programs;
pub mod rows;
pub mod table;
pub mod tools;
pub mod trial;
pub mod worker;
