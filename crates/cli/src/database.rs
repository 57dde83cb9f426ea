//! The database that several workers share, in place of the file in the data folder: where it is, and opening it.

use crate::door::At;
use crate::exit::{StoppedWaiting, Usage};
use crate::folder;
use anyhow::Context;
use std::error::Error;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::store::Store;
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass_tools::Declared;

/// The environment variable with the address: unlike a command line, others on the machine cannot read it.
pub const VARIABLE: &str = "WINDLASS_STORE";
/// Held by the worker whose data folder it is.
const LOCK: &str = "worker.lock";

/// The address that was given with `--store`, or in the environment.
pub fn given(option: Option<&str>) -> Result<Option<String>, Usage> {
    if let Some(url) = option {
        if has_password(url) {
            let told = format!(
                "everybody on this machine can read the password in --store; leave it out and add password_file=FILE, or set {VARIABLE}"
            );
            return Err(Usage(told));
        }
        return checked(url, "--store").map(Some);
    }
    match std::env::var(VARIABLE) {
        Ok(url) if !url.is_empty() => checked(&url, VARIABLE).map(Some),
        _ => Ok(None),
    }
}

fn checked(url: &str, place: &str) -> Result<String, Usage> {
    let is_address = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
        || url.split_whitespace().all(|pair| pair.contains('='));
    if is_address {
        return Ok(url.to_string());
    }
    Err(Usage(format!("{place} is the address of a database, such as postgres://user@host/database")))
}

fn has_password(url: &str) -> bool {
    let in_pairs = url.split(['?', '&', ' ']).any(|pair| pair.starts_with("password="));
    let authority = url.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    in_pairs || user.is_some_and(|user| user.contains(':'))
}

/// An address without what people should not read, for messages: its hosts, its database and its user.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        let is_shown =
            |pair: &&str| ["host=", "port=", "dbname=", "user="].iter().any(|name| pair.starts_with(name));
        return url.split_whitespace().filter(is_shown).collect::<Vec<_>>().join(" ");
    };
    let place = rest.split('?').next().unwrap_or_default();
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let authority = match authority.rsplit_once('@') {
        Some((user, hosts)) => format!("{}@{hosts}", user.split(':').next().unwrap_or_default()),
        None => authority.to_string(),
    };
    format!("{scheme}://{authority}/{database}")
}

/// How the database of a command is opened; `None`: it works on the file of its data folder, or at a server.
pub fn options(at: &At, declared: &Declared) -> anyhow::Result<Option<PostgresOptions>> {
    if at.server.is_some() || at.is_demo {
        return Ok(None);
    }
    let shared = &declared.store;
    let url = match (&at.store, &shared.url) {
        (Some(url), _) => url.clone(),
        (None, Some(url)) => checked(url, "`url` of [store]")?,
        (None, None) => return Ok(None),
    };
    let usual = PostgresOptions::new(url);
    Ok(Some(PostgresOptions {
        direct: shared.direct.clone(),
        writers: shared.writers.unwrap_or(usual.writers),
        readers: shared.readers.unwrap_or(usual.readers),
        durability: declared.durability,
        limits: declared.limits.store(),
        ..usual
    }))
}

/// How the database of a command is opened that does not need the configuration otherwise: one that cannot be read names none.
pub fn find(at: &At) -> anyhow::Result<Option<PostgresOptions>> {
    match folder::configured(at) {
        Ok(configured) => options(at, &configured.declared),
        Err(_) => options(at, &Declared::default()),
    }
}

/// Opens it for a command that somebody waits for: one that is away is not waited for.
pub async fn open(options: PostgresOptions) -> anyhow::Result<Arc<dyn Store>> {
    let options = PostgresOptions { patience: COMMAND_PATIENCE, ..options };
    Ok(Arc::new(PostgresStore::open(options).await?))
}

/// As long as a server that restarts may be away for a command.
const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

/// Opens it for a worker, which waits for a database that is away and says so; `stop`: a signal that ends the wait.
pub async fn open_for_worker(
    options: PostgresOptions,
    stop: impl Future<Output = &'static str>,
) -> anyhow::Result<Arc<dyn Store>> {
    let mut told: Option<Instant> = None;
    let opening = PostgresStore::open_patiently(options, |away| {
        if told.is_none_or(|told| told.elapsed() >= AWAY_TOLD_EVERY) {
            told = Some(Instant::now());
            let causes = std::iter::successors(away.source(), |cause| (*cause).source());
            let causes: String = causes.map(|cause| format!("\n  because {cause}")).collect();
            crate::logs::tell!("{away}; waiting until it is there{causes}");
        }
    });
    tokio::select! {
        opened = opening => Ok(Arc::new(opened?)),
        signal = stop => Err(StoppedWaiting(signal).into()),
    }
}

/// How often a worker that waits for its database says so.
const AWAY_TOLD_EVERY: Duration = Duration::from_secs(5);

/// The error of a command that needs a worker where none serves the data folder.
pub fn no_worker(at: &At) -> Usage {
    Usage(format!(
        "no worker serves {} on this machine, and only a worker changes a database that is shared: start one with `windlass \
         serve`, or name one with --server http://HOST:PORT",
        at.data.display()
    ))
}

/// The right to use a data folder as a worker's: its socket, its token and the processes of its commands.
pub struct FolderLock(#[expect(dead_code, reason = "the file is locked while it is open")] File);

impl FolderLock {
    /// Takes it; refused while another worker has it.
    pub fn take(data: &Path) -> anyhow::Result<FolderLock> {
        DirBuilder::new().recursive(true).mode(0o700).create(data)?;
        let place = data.join(LOCK);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&place);
        let file = file.with_context(|| Usage(format!("could not open {}", place.display())))?;
        match file.try_lock() {
            Ok(()) => Ok(FolderLock(file)),
            Err(TryLockError::WouldBlock) => {
                let told = format!(
                    "another worker uses the data folder {}; give each worker on a machine its own with --data DIR",
                    data.display()
                );
                Err(Usage(told).into())
            }
            Err(TryLockError::Error(error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        for (url, expected) in [
            ("postgres://u:p@a,b:5433/d?sslmode=require&password=p", "postgres://u@a,b:5433/d"),
            ("postgres://h/d", "postgres://h/d"),
            ("host=/run/pg password=p user=u dbname=d password_command=x", "host=/run/pg user=u dbname=d"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
    }

    #[test]
    fn a_password_is_found_wherever_it_stands() {
        for with in [
            "postgres://u:p@h/d",
            "postgres://h/d?password=p",
            "host=h password=p",
            "postgres://h/d?a=1&password=p",
        ] {
            assert!(has_password(with), "{with}");
            assert!(given(Some(with)).is_err(), "{with}");
        }
        for without in
            ["postgres://u@h:5432/d", "host=h password_file=/run/x", "postgres://h/d?password_command=x"]
        {
            assert!(!has_password(without), "{without}");
            assert_eq!(given(Some(without)).unwrap().as_deref(), Some(without));
        }
        for none in ["sqlite", "mysql://h/d", "/tmp/windlass.db"] {
            assert!(given(Some(none)).is_err(), "{none}");
        }
    }
}
