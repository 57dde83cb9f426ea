//! The data folder: its configuration, its store, and the runtime on it.

use crate::door::At;
use crate::exit::Usage;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::core::limits::Limits;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Durability, Store, StoreError};
use windlass::{Config, Runtime, SystemClock};
use windlass_tools::declared::Traces;
use windlass_tools::{Declared, Launcher, builtin, kill_survivors, load};

/// What is configured for a data folder.
pub struct Configured {
    /// The file it came from, if there is one.
    pub file: Option<PathBuf>,
    pub declared: Declared,
}

/// Reads the configuration that was named, or `windlass.toml` from the data folder, else from the current one.
pub fn configured(at: &At) -> anyhow::Result<Configured> {
    let places = [at.data.join("windlass.toml"), PathBuf::from("windlass.toml")];
    let file = at.config.clone().or_else(|| places.into_iter().find(|place| place.exists()));
    let declared = match &file {
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| Usage(format!("could not read {}", file.display())))?;
            load(&text, file, Launcher::this_binary()?)?
        }
        None => Declared::default(),
    };
    Ok(Configured { file, declared })
}

/// A runtime that owns the folder, and where its traces go. Whatever the last owner's commands left behind is ended first.
pub fn own(at: &At) -> anyhow::Result<(Runtime, Option<Traces>)> {
    let configured = configured(at)?;
    let limits = configured.declared.limits.clone();
    let (durability, traces) = (configured.declared.durability, configured.declared.traces.clone());
    if durability == Durability::Relaxed {
        eprintln!("windlass: durability is relaxed: a power cut may lose what was acknowledged");
    }
    let store = SqliteStore::open(Options { limits: limits.clone(), durability, ..Options::new(&at.data) })?;
    let runtime = with_tools((Arc::new(store), at), limits, configured)?;
    let killed =
        kill_survivors(|call| runtime.is_call(call)).context("could not look for commands left behind")?;
    if killed > 0 {
        eprintln!("windlass: ended {killed} processes that the last owner's commands left behind");
    }
    Ok((runtime, traces))
}

/// Stays until every call has ended: those that an earlier owner left open in the session go on here too, and must
/// not lose their owner once more because the calls that were asked for are answered.
pub async fn finish(runtime: &Runtime) {
    if tokio::time::timeout(LEFT_TOLD_AFTER, runtime.idle()).await.is_ok() {
        return;
    }
    let open = runtime.open_calls();
    eprintln!(
        "windlass: {open} calls go on (tasks, or left open by an earlier owner); waiting for their end"
    );
    runtime.idle().await;
}

/// The store of the folder that this command owns, if it does: kept by whoever ends the command, so that it is the last
/// to let go of it.
pub type Owned = Option<Arc<dyn Store>>;

/// Closes the store in good order, which tells the next owner that this one was not cut off: once all others have let
/// go of it, and not later than that may take.
pub fn close(owned: Owned, wait: Duration) {
    let Some(store) = owned else { return };
    let deadline = Instant::now() + wait;
    while Arc::strong_count(&store) > 1 {
        if Instant::now() > deadline {
            eprintln!(
                "windlass: warning: a tool does not let go, so the next owner takes this end for a crash"
            );
            return;
        }
        std::thread::sleep(CLOSE_LOOKS_EVERY);
    }
}

const CLOSE_LOOKS_EVERY: Duration = Duration::from_millis(1);

/// Longer than an answered call takes to be counted as over.
const LEFT_TOLD_AFTER: Duration = Duration::from_millis(40);

/// A runtime on nothing durable, to look at tools.
pub fn tools_only(at: &At) -> anyhow::Result<Runtime> {
    let configured = configured(at)?;
    let limits = configured.declared.limits.clone();
    let store = windlass::store::memory::MemoryStore::new()?;
    with_tools((Arc::new(store), at), limits, configured)
}

/// A store to read from, also while another process owns the folder.
pub fn reader(data: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open_reader(data)?))
}

fn with_tools(
    (store, at): (Arc<dyn Store>, &At),
    limits: Limits,
    configured: Configured,
) -> anyhow::Result<Runtime> {
    let clock = Arc::new(SystemClock::default());
    let runtime = Runtime::new(Config {
        store,
        clock,
        limits,
        hooks: Vec::new(),
        files: Some(at.data.join("files")),
        shared: false,
    });
    for tool in builtin() {
        runtime.register_shared(tool)?;
    }
    for (group, cap) in &configured.declared.groups {
        runtime.limit_group(group, *cap);
    }
    let file = configured.file.unwrap_or_default();
    for tool in configured.declared.tools {
        runtime
            .register_shared(tool)
            .with_context(|| format!("{} declares a tool that is refused", file.display()))?;
    }
    Ok(runtime)
}
