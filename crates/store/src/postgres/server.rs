//! The durability that the server gives a commit.

use super::connection::{DatabaseFailure, answered};
use super::group::Writing;
use super::statements as sql;
use crate::Durability;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_postgres::Row;

/// The durability of commits on the server that was connected to last.
#[derive(Default)]
pub(super) struct ServerDurability {
    syncs: AtomicBool,
    replicates: AtomicBool,
}

impl ServerDurability {
    /// Notes the durability of a server.
    pub fn note(&self, durability: Durability) {
        let before = self.get();
        self.syncs.store(matches!(durability, Durability::Full | Durability::Replicated), Ordering::Relaxed);
        self.replicates.store(durability == Durability::Replicated, Ordering::Relaxed);
        if before > durability {
            tracing::warn!(%before, now = %durability, "the server gives commits less durability than before");
        }
    }

    /// The durability of an acknowledged commit.
    pub fn get(&self) -> Durability {
        match (self.syncs.load(Ordering::Relaxed), self.replicates.load(Ordering::Relaxed)) {
            (false, _) => Durability::Relaxed,
            (true, false) => Durability::Full,
            (true, true) => Durability::Replicated,
        }
    }
}

/// The durability that a row of [`sql::SERVER`] tells of.
pub(super) fn durability_of(row: &Row) -> Result<Durability, tokio_postgres::Error> {
    Ok(match (row.try_get(0)?, row.try_get(1)?) {
        (false, _) => Durability::Relaxed,
        (true, false) => Durability::Full,
        (true, true) => Durability::Replicated,
    })
}

impl Writing {
    /// The durability of a commit on this server.
    pub async fn durability(&self) -> Result<Durability, DatabaseFailure> {
        let rows = answered(self.times.reply, self.link.query(&sql::SERVER, &[])).await?;
        let row = rows.first().ok_or(DatabaseFailure::Impossible("settings returned nothing"))?;
        Ok(durability_of(row)?)
    }
}
