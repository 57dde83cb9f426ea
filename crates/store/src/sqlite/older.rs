//! Files of older formats: a copy of the file is kept before it is migrated, until the first clean stop.

use super::file::{self, beside};
use super::{checkpoint, schema};
use crate::StoreError;
use crate::health::HealthMonitor;
use rusqlite::Connection;
use std::fs::File;
use std::path::{Path, PathBuf};
use windlass_core::handle::Secret;

/// The suffix of a kept copy, followed by its format.
const COPY: &str = ".format-";

/// Migrates a file of an older format, after a copy of it was kept. Killed at any point, the file is as it was or migrated whole.
pub(super) fn update(
    conn: &Connection,
    folder: &Path,
    path: &Path,
    secret: &Secret,
) -> Result<(), StoreError> {
    let failed = |error| file::sql_failed(path, error);
    let format = schema::format(conn).map_err(failed)?;
    if format == schema::KNOWN {
        return Ok(());
    }
    if let Some(what) = schema::definitions_problem(conn).map_err(failed)? {
        return Err(file::refused(path, &format!("it is damaged ({what}); restore it from a backup")));
    }
    // So that the file is whole without its log.
    if !checkpoint::empty(conn).map_err(failed)? {
        return Err(file::refused(
            path,
            "it must be migrated, and another process reads from it; try again when that has ended",
        ));
    }
    let cannot = |error: std::io::Error| {
        StoreError::Open {
        path: path.to_owned(),
        help: "it must be migrated, and a copy of it could not be kept; check that the folder is writable and make room"
            .to_owned(),
        source: Some(Box::new(error)),
    }
    };
    copy(folder, path, format).map_err(cannot)?;
    tracing::info!(path = %path.display(), from = format, to = schema::KNOWN, "the data folder is migrated; a copy is kept until the first clean stop");
    schema::update(conn, secret).map_err(failed)
}

/// Copies the file beside itself. The copy gets its name when it is whole; one that is there is left alone.
fn copy(folder: &Path, path: &Path, format: u32) -> Result<(), std::io::Error> {
    let kept = beside(path, &format!("{COPY}{format}"));
    if kept.exists() {
        return Ok(());
    }
    let unfinished = beside(&kept, ".new");
    point!("older.copy", std::fs::copy(path, &unfinished))?;
    point!("older.sync", File::open(&unfinished).and_then(|file| file.sync_all()))?;
    point!("older.rename", std::fs::rename(&unfinished, &kept))?;
    point!("older.sync-folder", File::open(folder).and_then(|folder| folder.sync_all()))
}

/// The kept copies of a file. They are removed when this is dropped by a store that writes.
pub(super) struct OlderCopies {
    pub path: PathBuf,
    pub health: HealthMonitor,
}

impl Drop for OlderCopies {
    fn drop(&mut self) {
        if self.health.is_bad() {
            return;
        }
        for copy in copies(&self.path) {
            // The next clean stop tries again.
            if let Err(error) = std::fs::remove_file(&copy) {
                tracing::warn!(path = %copy.display(), %error, "a copy of the file before its migration could not be removed");
            }
        }
    }
}

fn copies(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let prefix = format!("{name}{COPY}");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_copy = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix))
    };
    entries.map(|entry| entry.path()).filter(is_copy).collect()
}
