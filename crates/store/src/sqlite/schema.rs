//! The format of the file, and the migration steps from each older one to the newest.

use super::file::PAGE_BYTES;
use super::homes;
use super::seal::schema_digest;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;
use windlass_core::handle::Secret;

/// "Wndl" in the header tells our files from those of other programs.
pub(super) const APPLICATION_ID: u32 = 0x576e_646c;

/// Step n migrates a file of format n to format n + 1. A released step never changes.
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("marks.sql"),
    include_str!("records.sql"),
    include_str!("removed.sql"),
    include_str!("principals.sql"),
    include_str!("gaps.sql"),
    include_str!("homes.sql"),
];

/// The format from which every record is in its home; the step to it also moves records.
const HOMES: usize = 7;

/// The newest format; the file stores its own in `user_version`.
pub(super) const KNOWN: u32 = STEPS.len() as u32;

/// Creates a new store in an empty file. It is made without a write-ahead log, so that the header is in the
/// file itself and [`recognise`](super::file::recognise) can read it.
pub(super) fn make(path: &Path, secret: [u8; 32]) -> Result<(), rusqlite::Error> {
    make_by(STEPS, path, secret)
}

fn make_by(steps: &[&str], path: &Path, secret: [u8; 32]) -> Result<(), rusqlite::Error> {
    let conn = super::file::connect(path)?;
    conn.pragma_update(None, "page_size", PAGE_BYTES.cast_signed())?;
    // So that free pages can be returned while the file is in use. Files that were made before this only reuse them.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    migrate(&conn, steps)?;
    let mut insert = conn.prepare("INSERT INTO meta (key, value) VALUES (?1, ?2)")?;
    insert.execute(("secret", secret))?;
    insert.execute(("secret_digest", blake3::hash(&secret).as_bytes()))?;
    insert.execute(("schema_digest", schema_digest(&conn)?))?;
    insert.execute(("indexed", 0_u64.to_le_bytes()))?;
    drop(insert);
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.close().map_err(|(_, error)| error)
}

/// Creates a store of an older format in an empty file.
#[cfg(test)]
pub(super) fn make_as(format: usize, path: &Path, secret: [u8; 32]) -> Result<(), rusqlite::Error> {
    make_by(&STEPS[..format], path, secret)
}

/// Migrates a file of an older format to the newest, in one transaction.
pub(super) fn update(conn: &Connection, secret: &Secret) -> Result<(), rusqlite::Error> {
    let transaction = conn.unchecked_transaction()?;
    for format in migrate(&transaction, STEPS)? {
        if format == HOMES {
            homes::move_records(&transaction, secret)?;
        }
    }
    let digest = schema_digest(&transaction)?;
    let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema_digest', ?1)";
    transaction.execute(sql, [digest])?;
    point!("older.migrate", transaction.commit())
}

/// Checks the definitions of the tables, of any format. A migration would seal them anew, so this comes first.
pub(super) fn definitions_problem(conn: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let kept = "SELECT value FROM meta WHERE key = 'schema_digest'";
    let kept = conn.query_row(kept, (), |row| row.get::<_, [u8; 32]>(0)).optional()?;
    let is_own = kept == Some(schema_digest(conn)?);
    Ok((!is_own).then(|| "its tables are not those it was made with".to_owned()))
}

/// Checks the small parts of the file: the definitions of the tables, and that tables and indexes agree.
/// Journals and blobs are verified when they are read. `None`: no damage.
pub(super) fn problem(conn: &Connection) -> Result<Option<String>, rusqlite::Error> {
    if let Some(problem) = definitions_problem(conn)? {
        return Ok(Some(problem));
    }
    // Batches are many: that they and their index agree is checked when they are loaded.
    let checks = [
        "PRAGMA integrity_check(meta)",
        "PRAGMA integrity_check(sessions)",
        "PRAGMA integrity_check(open_batches)",
        "PRAGMA integrity_check(inbound)",
        "PRAGMA integrity_check(records)",
        "PRAGMA integrity_check(gaps)",
        "PRAGMA quick_check(batches)",
        "PRAGMA quick_check(lookups)",
        "PRAGMA quick_check(marks)",
    ];
    for check in checks {
        let found: String = conn.query_row(check, (), |row| row.get(0))?;
        if found != "ok" {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Applies the missing steps, in the current transaction, and returns the formats that the file passed.
fn migrate(conn: &Connection, steps: &[&str]) -> Result<std::ops::RangeInclusive<usize>, rusqlite::Error> {
    let have = format(conn)? as usize;
    for (step, script) in steps.iter().enumerate().skip(have) {
        conn.execute_batch(script)?;
        conn.pragma_update(None, "user_version", step as i64 + 1)?;
    }
    Ok(have + 1..=steps.len())
}

/// The format of the file.
pub(super) fn format(conn: &Connection) -> Result<u32, rusqlite::Error> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The secret the store was made with; `None` if it is missing or damaged.
pub(super) fn secret(conn: &Connection) -> Result<Option<Secret>, rusqlite::Error> {
    let mut select = conn.prepare("SELECT value FROM meta WHERE key = ?1")?;
    let mut value = |key: &str| select.query_row([key], |row| row.get::<_, [u8; 32]>(0)).optional();
    let (secret, digest) = (value("secret")?, value("secret_digest")?);
    let intact = secret.filter(|secret| digest == Some(*blake3::hash(secret).as_bytes()));
    Ok(intact.map(Secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_is_brought_up_to_date_step_by_step() {
        let conn = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x)", "INSERT INTO b VALUES (1)"];
        assert_eq!(migrate(&conn, &steps[..1]).unwrap(), 1..=1);
        assert_eq!(format(&conn).unwrap(), 1);
        assert_eq!(migrate(&conn, &steps).unwrap(), 2..=3);
        assert!(migrate(&conn, &steps).unwrap().is_empty());
        assert_eq!(format(&conn).unwrap(), 3);
        let rows: i64 = conn.query_row("SELECT count(*) FROM b", (), |row| row.get(0)).unwrap();
        assert_eq!(rows, 1, "a step runs once");
    }

    #[test]
    fn a_file_of_each_older_format_is_brought_up_to_date_and_vouches_for_itself() {
        for older in 1..STEPS.len() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("windlass.db");
            std::fs::File::create_new(&path).unwrap();
            make_by(&STEPS[..older], &path, [7; 32]).unwrap();
            let conn = super::super::file::connect(&path).unwrap();
            assert_eq!(format(&conn).unwrap(), older as u32);
            update(&conn, &Secret([7; 32])).unwrap();
            assert_eq!((format(&conn).unwrap(), problem(&conn).unwrap()), (KNOWN, None));
            assert_eq!(secret(&conn).unwrap().map(|secret| secret.0), Some([7; 32]));
            let removed = super::super::remove::numbers(&conn).unwrap();
            assert_eq!(removed, Some([0; 3]), "from format {older}");
        }
    }
}
