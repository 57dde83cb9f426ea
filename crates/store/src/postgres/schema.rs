//! The tables, their format, and migrations from one format to the next.
//!
//! A format has a number, and says which Windlass can still work with it. A migration **expands**: it adds what the next version needs
//! and leaves what the current one uses, so that workers of both run side by side. What only the older one used is dropped by a later
//! migration, which says that the older version can no longer be used.

use super::connection::{DatabaseFailure, DatabaseLink, answered};
use super::group::fixed;
use super::server::durability_of;
use super::statements as sql;
use crate::Durability;
use std::time::Duration;
use tokio_postgres::types::Type;
use windlass_core::handle::Secret;

/// The format that this version needs.
pub(super) const KNOWN: u32 = 6;

/// The oldest format that can be migrated.
const OLDEST: u32 = 5;

const TABLES: &str = include_str!("schema.sql");
const FUNCTIONS: &str = include_str!("functions.sql");

/// A migration.
struct MigrationStep {
    /// The format that it leads to.
    to: u32,
    /// The oldest version that can work with that format, by the format it needs.
    usable_by: u32,
    sql: &'static str,
}

const STEPS: [MigrationStep; 1] =
    [MigrationStep { to: 6, usable_by: 6, sql: include_str!("migrations/6.sql") }];

/// The oldest version that can work with the newest format.
const USABLE_BY: u32 = STEPS[STEPS.len() - 1].usable_by;

/// Two processes that migrate at once wait for each other here. "Wndl".
const LOCK: i64 = 0x576e_646c;

/// No lock of a migration is waited for longer, because others would wait behind it.
const LOCK_MAX: Duration = Duration::from_secs(1);

/// The time that a migration may take.
const MIGRATION_MAX: Duration = Duration::from_secs(3600);

/// The values that are read when a store is opened.
pub(super) struct OpeningParams {
    pub format: u32,
    /// The oldest version that can work with it, by the format it needs.
    pub usable_by: u32,
    /// `None` if it is damaged.
    pub secret: Option<Secret>,
    pub durability: Durability,
}

/// The formats before and after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigratedFormats {
    /// The format that was found; `None`: the database was empty.
    pub from: Option<u32>,
    /// The format that it has now.
    pub to: u32,
}

/// Reads the values that a store needs. `None`: there are no tables.
pub(super) async fn read(
    link: &DatabaseLink,
    reply: Duration,
) -> Result<Option<OpeningParams>, DatabaseFailure> {
    answered(reply, async {
        let there = "SELECT to_regclass('windlass.meta') IS NOT NULL";
        if !link.client.query_typed_one(there, &[]).await?.try_get::<_, bool>(0)? {
            return Ok::<_, tokio_postgres::Error>(None);
        }
        let durability = durability_of(&link.client.query_typed_one(sql::SERVER.text, &[]).await?)?;
        let mut opened = OpeningParams { format: 0, usable_by: 0, secret: None, durability };
        let (mut kept, mut digest) = ([0; 32], [0; 32]);
        for row in link.client.query_typed("SELECT key, value FROM windlass.meta", &[]).await? {
            let value: &[u8] = row.try_get(1)?;
            match row.try_get(0)? {
                "format" => opened.format = u32::from_be_bytes(fixed(value)),
                "usable_by" => opened.usable_by = u32::from_be_bytes(fixed(value)),
                "secret" => kept = fixed(value),
                "secret_digest" => digest = fixed(value),
                _ => {}
            }
        }
        opened.secret = (*blake3::hash(&kept).as_bytes() == digest).then_some(Secret(kept));
        Ok(Some(opened))
    })
    .await
}

/// Brings the tables to the newest format, in one transaction; creates them, with this secret, if there are none.
pub(super) async fn migrate(
    link: &DatabaseLink,
    reply: Duration,
    secret: [u8; 32],
) -> Result<MigratedFormats, DatabaseFailure> {
    let begin = format!("BEGIN; SET LOCAL lock_timeout = {}", LOCK_MAX.as_millis());
    answered(reply, link.client.batch_execute(&begin)).await?;
    let locked = link.client.query_typed("SELECT pg_advisory_xact_lock($1)", &[(&LOCK, Type::INT8)]);
    answered(reply, locked).await?;
    let found = read(link, reply).await?;
    let from = found.map(|found| found.format);
    answered(MIGRATION_MAX, apply(link, from, secret)).await??;
    // What is in doubt is found out by migrating again.
    answered(MIGRATION_MAX, link.client.batch_execute("COMMIT")).await?;
    Ok(MigratedFormats { from, to: from.unwrap_or(KNOWN).max(KNOWN) })
}

/// Applies the migrations behind a format.
async fn apply(
    link: &DatabaseLink,
    from: Option<u32>,
    secret: [u8; 32],
) -> Result<Result<(), DatabaseFailure>, tokio_postgres::Error> {
    match from {
        Some(from) if from >= KNOWN => return Ok(Ok(())),
        Some(from) if from < OLDEST => {
            let what = format!("format {from} is older than any that can be migrated; make a new database");
            return Ok(Err(DatabaseFailure::Setup { what, source: None }));
        }
        Some(from) => {
            for step in STEPS.iter().filter(|step| step.to > from) {
                link.client.batch_execute(step.sql).await?;
            }
        }
        None => {
            link.client.batch_execute(TABLES).await?;
            put(link, "secret", &secret).await?;
            put(link, "secret_digest", blake3::hash(&secret).as_bytes()).await?;
        }
    }
    link.client.batch_execute(FUNCTIONS).await?;
    put(link, "format", &KNOWN.to_be_bytes()).await?;
    put(link, "usable_by", &USABLE_BY.to_be_bytes()).await?;
    let noted = "INSERT INTO windlass.migrations (format) VALUES ($1)";
    link.client.execute_typed(noted, &[(&i64::from(KNOWN), Type::INT8)]).await?;
    Ok(Ok(()))
}

async fn put(link: &DatabaseLink, key: &str, value: &[u8]) -> Result<u64, tokio_postgres::Error> {
    let put = "INSERT INTO windlass.meta (key, value) VALUES ($1, $2)
               ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    link.client.execute_typed(put, &[(&key, Type::TEXT), (&value, Type::BYTEA)]).await
}
