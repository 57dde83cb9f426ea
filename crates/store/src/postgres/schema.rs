//! The tables, created by the first process that opens an empty database.

use super::group::fixed;
use tokio_postgres::{Client, Error};
use windlass_core::handle::Secret;

/// The newest format; the database stores its own under `format`.
pub(super) const KNOWN: u32 = 5;

const MAKE: &str = include_str!("schema.sql");

/// Two processes that open an empty database at once wait for each other here. "Wndl".
const LOCK: i64 = 0x576e_646c;

/// The values read when a store is opened.
pub(super) struct OpeningParams {
    pub format: u32,
    /// `None` if it is damaged.
    pub secret: Option<Secret>,
    /// Whether the server waits for its disk.
    pub fsync: bool,
}

/// Creates the tables if there are none, with this secret, and reads the values a store needs.
pub(super) async fn open(client: &mut Client, secret: [u8; 32]) -> Result<OpeningParams, Error> {
    let made = client.transaction().await?;
    made.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let there = made.query_one("SELECT to_regclass('windlass.meta') IS NOT NULL", &[]).await?;
    if !there.try_get::<_, bool>(0)? {
        made.batch_execute(MAKE).await?;
        let insert = made.prepare("INSERT INTO windlass.meta (key, value) VALUES ($1, $2)").await?;
        made.execute(&insert, &[&"format", &&KNOWN.to_be_bytes()[..]]).await?;
        made.execute(&insert, &[&"secret", &&secret[..]]).await?;
        made.execute(&insert, &[&"secret_digest", &&blake3::hash(&secret).as_bytes()[..]]).await?;
    }
    made.commit().await?;
    let mut opened = OpeningParams { format: 0, secret: None, fsync: false };
    let (mut kept, mut digest) = ([0; 32], [0; 32]);
    for row in client.query("SELECT key, value FROM windlass.meta", &[]).await? {
        let value: &[u8] = row.try_get(1)?;
        match row.try_get(0)? {
            "format" => opened.format = u32::from_be_bytes(fixed(value)),
            "secret" => kept = fixed(value),
            "secret_digest" => digest = fixed(value),
            _ => {}
        }
    }
    opened.secret = (*blake3::hash(&kept).as_bytes() == digest).then_some(Secret(kept));
    let fsync = client.query_one("SELECT current_setting('fsync') = 'on'", &[]).await?;
    opened.fsync = fsync.try_get(0)?;
    Ok(opened)
}
