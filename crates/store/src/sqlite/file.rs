//! The store's file: recognising it before SQLite may touch it, creating a new one whole, opening connections.

use super::lookups::Lookups;
use super::{log, schema};
use crate::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file in its folder.
const FILE: &str = "windlass.db";
/// SQLite before this can damage a file while one connection checkpoints and another writes.
const SQLITE_NEEDED: (i32, &str) = (3_051_003, "3.51.3");
/// How long a connection waits for a lock of an outside process (a backup tool, a shell).
pub(super) const BUSY: Duration = Duration::from_secs(5);
/// More statements than any connection uses.
const STATEMENTS_MAX: usize = 128;

/// SQLite's page size; every file of ours has it.
pub(super) const PAGE_BYTES: u64 = 4_096;
/// The constant bytes in the header of our files, and their offsets: page size, write-ahead log, payload
/// fractions; schema format; UTF-8; zeros.
const CONSTANT: [(usize, &[u8]); 4] =
    [(16, &[0x10, 0, 2, 2, 0, 64, 32, 32]), (44, &[0, 0, 0, 4]), (56, &[0, 0, 0, 1]), (72, &[0; 20])];

/// Where the file of this folder is.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Refuses SQLite libraries with the checkpoint fault.
pub(super) fn check_library() -> Result<(), StoreError> {
    check_version(rusqlite::version_number(), rusqlite::version())
}

fn check_version(number: i32, text: &str) -> Result<(), StoreError> {
    if number >= SQLITE_NEEDED.0 {
        return Ok(());
    }
    Err(StoreError::UnsafeSqlite { found: text.to_owned(), needed: SQLITE_NEEDED.1 })
}

/// Creates the folder if there is none, closed to other users.
pub(super) fn make_folder(folder: &Path) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| failed(folder, "check that it can be created", error))
}

/// Files of a store are closed to other users.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

/// Creates a new store beside its place and renames it when it is complete, so that a file under the real
/// name is never half made: any later defect is damage.
pub(super) fn create(folder: &Path, path: &Path) -> Result<(), StoreError> {
    if beside(path, "-wal").exists() {
        let help = "it is missing, but its write-ahead log is there; restore both from a backup, or move the log away";
        return Err(refused(path, help));
    }
    let unfinished = beside(path, ".new");
    let cannot = |error| failed(path, "check that the folder is writable and the disk not full", error);
    for leftover in ["", "-journal", "-wal", "-shm"] {
        match std::fs::remove_file(beside(&unfinished, leftover)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot(error)),
            Ok(()) | Err(_) => {}
        }
    }
    point!("file.new", private(OpenOptions::new().write(true).create_new(true)).open(&unfinished))
        .map_err(cannot)?;
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|error| StoreError::Io { doing: "draw its secret", source: Box::new(error) })?;
    point!("file.schema", schema::make(&unfinished, secret)).map_err(|error| sql_failed(path, error))?;
    // SQLite does not always report that it could not switch to the log; the file itself does.
    recognise(&unfinished)
        .map_err(|_| refused(path, "it could not be made whole; check the disk and try again"))?;
    point!("file.sync", File::open(&unfinished).and_then(|file| file.sync_all())).map_err(cannot)?;
    point!("file.rename", std::fs::rename(&unfinished, path)).map_err(cannot)?;
    point!("file.sync-folder", File::open(folder).and_then(|folder| folder.sync_all())).map_err(cannot)
}

/// Reads the file's first bytes, before SQLite might repair, and so change, a foreign file.
pub(super) fn recognise(path: &Path) -> Result<(), StoreError> {
    let mut header = [0; 100];
    let mut file = File::open(path).map_err(|error| failed(path, "check that it can be read", error))?;
    if file.read_exact(&mut header).is_err() {
        return Err(refused(path, "it is cut short; restore it from a backup"));
    }
    if &header[..16] != b"SQLite format 3\0" {
        return Err(refused(
            path,
            "it is not a database, or its beginning is damaged; move it away, or restore it from a backup",
        ));
    }
    let constant = CONSTANT.iter().all(|(at, bytes)| header[*at..].starts_with(bytes));
    if number_at(&header, 68) == schema::APPLICATION_ID && !constant {
        return Err(refused(path, "its beginning is damaged; restore it from a backup"));
    }
    if number_at(&header, 68) != schema::APPLICATION_ID {
        return Err(refused(
            path,
            "it is a database of another program; move it away or choose another folder",
        ));
    }
    check_format(path, number_at(&header, 60))?;
    let log = std::fs::metadata(beside(path, "-wal")).map_or(0, |log| log.len());
    let len = file.metadata().map_err(|error| failed(path, "check that it can be read", error))?.len();
    // With a log, the missing part may be there: see `check_whole`.
    if log == 0 && len < u64::from(number_at(&header, 28)) * PAGE_BYTES {
        return Err(refused(path, "it is cut short; restore it from a backup"));
    }
    Ok(())
}

/// Refuses a file that is shorter than its header says, where its log does not have the rest. A checkpoint
/// would fill the gap with zeros, so this comes first.
pub(super) fn check_whole(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    let pages = conn.pragma_query_value(None, "page_count", |row| row.get::<_, i64>(0));
    let unreadable = |error| failed(path, "check that it can be read", error);
    let have = std::fs::metadata(path).map_err(unreadable)?.len() / PAGE_BYTES;
    let pages = match pages {
        Ok(pages) => pages.cast_unsigned(),
        // What is missing may be a part of the definitions of the tables, without which SQLite reads nothing.
        Err(error) => match header_pages(path).map_err(unreadable)? {
            pages if have < pages => pages,
            _ => return Err(sql_failed(path, error)),
        },
    };
    if have >= pages {
        return Ok(());
    }
    let logged = logged_pages(&beside(path, "-wal")).map_err(unreadable)?;
    if (have + 1..=pages).all(|page| logged.contains(&page)) {
        return Ok(());
    }
    Err(refused(path, "it is cut short; restore it from a backup"))
}

/// The number of pages that the file's header says.
fn header_pages(path: &Path) -> Result<u64, std::io::Error> {
    let mut header = [0; 100];
    File::open(path)?.read_exact(&mut header)?;
    Ok(u64::from(number_at(&header, 28)))
}

/// The pages in a write-ahead log: each frame begins with the number of its page, and repeats the salt of the
/// log's header unless it is left over from an earlier round.
fn logged_pages(log: &Path) -> Result<BTreeSet<u64>, std::io::Error> {
    let mut log = BufReader::new(File::open(log)?);
    let (mut start, mut frame) = ([0; 32], [0; 24]);
    let mut pages = BTreeSet::new();
    if log.read_exact(&mut start).is_err() {
        return Ok(pages);
    }
    while log.read_exact(&mut frame).is_ok() && frame[8..16] == start[16..24] {
        pages.insert(u64::from(u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])));
        log.seek_relative(PAGE_BYTES.cast_signed())?;
    }
    Ok(pages)
}

/// Refuses a log that is damaged before its end: SQLite would use the part before the damage and ignore the rest.
pub(super) fn check_log(path: &Path) -> Result<(), StoreError> {
    match log::is_whole(&beside(path, "-wal")) {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(path, "its write-ahead log is damaged; restore both from a backup")),
        Err(error) => Err(failed(path, "check that its write-ahead log can be read", error)),
    }
}

/// Refuses a file whose small tables are damaged, and reads the look-ups of the others.
pub(super) fn check_tables(conn: &Connection, path: &Path) -> Result<Lookups, StoreError> {
    let found = match schema::problem(conn) {
        Ok(None) => Lookups::load(conn),
        Ok(Some(what)) => Ok(Err(what)),
        Err(error) => Err(error),
    };
    found.map_err(|error| sql_failed(path, error))?.map_err(|what| {
        let help = format!("it is damaged ({what}); restore it from a backup");
        refused(path, &help)
    })
}

/// Refuses newer formats, and format 0: a file gets its name only when it is complete.
pub(super) fn check_format(path: &Path, found: u32) -> Result<(), StoreError> {
    let known = schema::KNOWN;
    if found == 0 {
        return Err(refused(path, "its beginning is damaged; restore it from a backup"));
    }
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    Ok(())
}

/// A connection that may write.
pub(super) fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare(&conn)?;
    // The checkpointer decides when.
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(conn)
}

/// A connection that can only read.
pub(super) fn connect_reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    let conn = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    prepare(&conn)?;
    Ok(conn)
}

fn prepare(conn: &Connection) -> Result<(), rusqlite::Error> {
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    // Plans must not depend on bound values: otherwise some statements are planned again for every query.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// The file cannot be used; `help` says why.
pub(super) fn refused(path: &Path, help: &str) -> StoreError {
    StoreError::Open { path: path.to_owned(), help: help.to_owned(), source: None }
}

/// The file cannot be used because of an SQLite error.
pub(super) fn sql_failed(path: &Path, error: rusqlite::Error) -> StoreError {
    let help = match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
            "it is damaged; restore it from a backup"
        }
        Some(rusqlite::ErrorCode::DiskFull) => "the disk is full; make room",
        _ => "check that the folder is readable and writable and the disk not full",
    };
    StoreError::Open { path: path.to_owned(), help: help.to_owned(), source: Some(Box::new(error)) }
}

/// Whether opening may have failed for lack of disk space. SQLite reports a failed allocation of its shared
/// memory like any disk failure; opening again does no harm.
pub(super) fn may_be_full(error: &StoreError) -> bool {
    let StoreError::Open { source: Some(source), .. } = error else { return false };
    let full = source.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    let sqlite = source.downcast_ref::<rusqlite::Error>().and_then(rusqlite::Error::sqlite_error_code);
    full == Some(std::io::ErrorKind::StorageFull)
        || matches!(
            sqlite,
            Some(
                rusqlite::ErrorCode::DiskFull
                    | rusqlite::ErrorCode::SystemIoFailure
                    | rusqlite::ErrorCode::CannotOpen
            )
        )
}

/// The file cannot be used because it cannot be read.
pub(super) fn unreadable(path: &Path, error: std::io::Error) -> StoreError {
    failed(path, "check that it can be read", error)
}

fn failed(path: &Path, help: &str, error: std::io::Error) -> StoreError {
    StoreError::Open { path: path.to_owned(), help: help.to_owned(), source: Some(Box::new(error)) }
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn number_at(header: &[u8; 100], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn old_libraries_are_refused() {
        for (number, ok) in
            [(3_040_001, false), (3_051_002, false), (3_051_003, true), (3_054_001, true), (4_000_000, true)]
        {
            assert_eq!(check_version(number, "x").is_ok(), ok, "{number}");
        }
        assert!(check_library().is_ok());
    }

    #[test]
    fn a_statement_is_planned_once_whatever_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let made = Connection::open(&path).unwrap();
        made.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)")
            .unwrap();
        let conn = connect_reader(&path).unwrap();
        let mut select = conn.prepare("SELECT a FROM t WHERE a > ?1 ORDER BY a LIMIT ?2").unwrap();
        for limit in 1..4_u32 {
            let found = select.query_map((0, limit), |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(found.count(), limit as usize);
        }
        assert_eq!(select.get_status(StatementStatus::RePrepare), 0);
    }
}
