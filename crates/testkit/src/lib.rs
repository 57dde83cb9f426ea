//! Suites, rigs and house rules.

pub mod chance;
pub mod clock;
pub mod damage;
pub mod fault_store;
pub mod fleet;
pub mod hostile;
pub mod leases;
pub mod postgres;
pub mod powercut;
pub mod progress;
pub mod proof;
pub mod results;
pub mod scenario;
pub mod shim;
pub mod store_suite;

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_store::StoreError;
use windlass_store::sqlite::{Options, SqliteStore};

/// The store in a folder, as soon as whoever had it has let go of it: a runtime that is dropped is gone when its last task is.
pub fn sqlite_in(folder: &Path) -> SqliteStore {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match SqliteStore::open(Options::new(folder)) {
            Ok(store) => return store,
            Err(StoreError::Owned { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The numbers given on the command line as `--name N`, each one of `known`.
pub fn arguments(known: &[&'static str]) -> anyhow::Result<BTreeMap<&'static str, u64>> {
    let mut found = BTreeMap::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let name = known.iter().find(|name| arg.strip_prefix("--") == Some(name));
        let Some(name) = name else { bail!("{arg}: it takes a number each for {known:?}, as `--name N`") };
        let number = args.next().with_context(|| format!("{arg} takes a number"))?;
        found.insert(*name, number.parse().with_context(|| format!("{arg} {number}"))?);
    }
    Ok(found)
}

/// Another program of the workspace, which cargo builds beside this one.
pub fn sibling(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{} is missing; build it with `cargo build --workspace --bins`", path.display());
    }
    Ok(path)
}
