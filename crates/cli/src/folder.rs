//! The data folder: its configuration, its store, and the runtime on it.

use crate::database::{self, FolderLock};
use crate::door::At;
use crate::exit::Usage;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass::secrets::{SecretKey, SecretKeySource};
use windlass::sessions::JudgedCopy;
use windlass::store::postgres::PostgresOptions;
use windlass::store::sqlite::{Options, SqliteStore};
use windlass::store::{Durability, Store, StoreError};
use windlass::{Config, Limits, Runtime};
use windlass_mcp::McpListing;
use windlass_mcp::upstream::{McpPins, Upstreams};
use windlass_server::webhooks::WebhookClient;
use windlass_tools::declared::Traces;
use windlass_tools::{BuiltinGroup, Declared, Launcher, builtin, kill_survivors, load};

/// The configuration of a data folder.
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

/// The limits configured for a data folder. A server checks its own.
pub fn limits(at: &At) -> anyhow::Result<Limits> {
    match at.server {
        Some(_) => Ok(Limits::default()),
        None => Ok(configured(at)?.declared.limits),
    }
}

/// Makes a runtime that owns the folder, and its trace exporter. Kills processes left by the last owner's
/// commands first, and handles a copied folder before anything in it continues.
///
/// `address`: where the workers of a shared store reach this one. `stop`: a signal that ends the wait for a database that is away.
pub async fn own(
    at: &At,
    address: Option<String>,
    stop: impl Future<Output = &'static str>,
) -> anyhow::Result<OwnedFolder> {
    let configured = configured(at)?;
    let (limits, traces) = (configured.declared.limits.clone(), configured.declared.traces.clone());
    let (servers, file) = (configured.declared.mcp.clone(), configured.file.clone());
    let mcp_listing = configured.declared.server.mcp_list;
    if configured.declared.durability == Durability::Relaxed {
        crate::logs::tell!("durability is relaxed: a power cut may lose acknowledged writes");
    }
    let (store, lock) = match database::options(at, &configured.declared)? {
        Some(options) => {
            let lock = FolderLock::take(&at.data)?;
            (database::open_for_worker(options, stop).await?, Some(lock))
        }
        None => (own_file(at, &configured.declared)?, None),
    };
    judge_copy(&store, at).await?;
    let place = match lock {
        Some(_) => StorePlace::Shared { address },
        None => StorePlace::Folder,
    };
    let runtime = with_tools(store, at, limits, configured, place)?;
    let killed = kill_survivors(|call| runtime.may_have_started(call))
        .context("could not look for processes of the last owner's commands")?;
    if killed > 0 {
        crate::logs::tell!("ended {killed} processes that the last owner's commands left behind");
    }
    let pins = McpPins::beside(&file.unwrap_or_default());
    let upstreams = Upstreams::register(&runtime, servers, &Launcher::this_binary()?, &pins);
    Ok(OwnedFolder { runtime, traces, upstreams, mcp_listing, _lock: lock })
}

/// The store in the file of the folder.
fn own_file(at: &At, declared: &Declared) -> anyhow::Result<Arc<dyn Store>> {
    let store = open(at, declared)?;
    if let Some(why) = store.no_ballast() {
        crate::logs::tell!(
            "warning: no ballast is reserved ({why}); on a full disk, running calls cannot finish"
        );
    }
    Ok(Arc::new(store))
}

/// A folder that is owned.
pub struct OwnedFolder {
    pub runtime: Runtime,
    pub traces: Option<Traces>,
    /// The MCP servers of others.
    pub upstreams: Upstreams,
    /// The tools that the MCP door lists.
    pub mcp_listing: McpListing,
    /// Held while this process is a worker of a shared store.
    pub _lock: Option<FolderLock>,
}

/// Makes a runtime that owns the folder and drives no calls, for commands that only read and write records.
pub fn keep(at: &At) -> anyhow::Result<Runtime> {
    let configured = configured(at)?;
    let limits = configured.declared.limits.clone();
    let store = open(at, &configured.declared)?;
    with_tools(Arc::new(store), at, limits, configured, StorePlace::Folder)
}

/// Makes a runtime for the records of a shared database. It is no worker: it owns no session and takes none.
pub async fn records(options: PostgresOptions) -> anyhow::Result<Runtime> {
    Ok(Runtime::new(Config::on(database::open(options).await?)))
}

fn open(at: &At, declared: &Declared) -> Result<SqliteStore, StoreError> {
    let (limits, durability) = (declared.limits.store(), declared.durability);
    SqliteStore::open(Options { limits, durability, ..Options::new(&at.data) })
}

/// If the folder is a copy, ends the calls that were under way at its original as unknown, and says so. It
/// uses a runtime of its own: this command must not wait for the calls that it takes over.
async fn judge_copy(store: &Arc<dyn Store>, at: &At) -> anyhow::Result<()> {
    if !store.is_copy() {
        return Ok(());
    }
    let judging = Runtime::new(Config::on(store.clone()));
    let judged = judging.judge_copy().await.context("could not judge the copy")?;
    drop(judging);
    if let Some(JudgedCopy { unknown, parked, schedules, webhooks }) = judged {
        crate::logs::tell!(
            "{} is a copy, and its original may still be running: {unknown} calls that were under way are unknown \
             now (`windlass calls --state unknown`), {parked} parked calls wait on, {schedules} schedules are disabled, \
             {webhooks} webhooks are held, no process was killed",
            at.data.display()
        );
    }
    Ok(())
}

/// Waits until every call has ended. Calls that an earlier owner left open in the session run here too, and
/// must not lose their owner again just because the requested calls are answered.
pub async fn finish(runtime: &Runtime) {
    if tokio::time::timeout(LEFT_TOLD_AFTER, runtime.idle()).await.is_ok() {
        return;
    }
    let open = runtime.open_calls();
    crate::logs::tell!("{open} calls go on (tasks, or left open by an earlier owner); waiting for their end");
    runtime.idle().await;
}

/// The store of the folder, if this command owns it. The end of the command keeps it, so that it drops the
/// last reference.
pub type Owned = Option<Arc<dyn Store>>;

/// Closes the store cleanly, which tells the next owner that this one did not crash. Waits for all other
/// references to be dropped, at most `wait`.
pub fn close(owned: Owned, wait: Duration) {
    let Some(store) = owned else { return };
    let deadline = Instant::now() + wait;
    while Arc::strong_count(&store) > 1 {
        if Instant::now() > deadline {
            crate::logs::tell!(
                "warning: a tool did not stop, so the next owner will treat this exit as a crash"
            );
            return;
        }
        std::thread::sleep(CLOSE_LOOKS_EVERY);
    }
}

const CLOSE_LOOKS_EVERY: Duration = Duration::from_millis(1);

/// Longer than it takes to count an answered call as over.
const LEFT_TOLD_AFTER: Duration = Duration::from_millis(40);

/// Makes a runtime in memory, to look at tools.
pub fn tools_only(at: &At) -> anyhow::Result<Runtime> {
    let configured = configured(at)?;
    let limits = configured.declared.limits.clone();
    let store = windlass::store::memory::MemoryStore::new()?;
    let (servers, file) = (configured.declared.mcp.clone(), configured.file.clone());
    let runtime = with_tools(Arc::new(store), at, limits, configured, StorePlace::Folder)?;
    // Only looked at: nothing is connected to.
    drop(Upstreams::register(
        &runtime,
        servers,
        &Launcher::this_binary()?,
        &McpPins::beside(&file.unwrap_or_default()),
    ));
    Ok(runtime)
}

/// Opens the store for reading, also while another process owns the folder, or workers share it.
pub async fn reader(at: &At) -> anyhow::Result<Arc<dyn Store>> {
    match database::find(at)? {
        Some(options) => database::open(options).await,
        None => Ok(file_reader(&at.data)?),
    }
}

fn file_reader(data: &Path) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(SqliteStore::open_reader(data)?))
}

/// Makes a runtime that only reads the folder's secrets, also while another process owns the folder.
pub async fn reading(at: &At, declared: &Declared) -> anyhow::Result<Runtime> {
    let store: Arc<dyn Store> = match (database::options(at, declared)?, at.data.join("windlass.db").exists())
    {
        (Some(options), _) => database::open(options).await?,
        (None, true) => file_reader(&at.data)?,
        (None, false) => Arc::new(windlass::store::memory::MemoryStore::new()?),
    };
    let secret_key = secret_key(at)?;
    Ok(Runtime::new(Config { limits: declared.limits.clone(), secret_key, ..Config::on(store) }))
}

fn secret_key(at: &At) -> Result<SecretKeySource, Usage> {
    Ok(match SecretKey::from_env().map_err(|error| Usage(error.to_string()))? {
        Some(key) => SecretKeySource::Key(key),
        None => SecretKeySource::File(at.data.join("secret.key")),
    })
}

/// The key of the secrets that several workers share: nobody makes one, since the others would not have it.
fn shared_key(at: &At) -> Result<SecretKeySource, Usage> {
    let source = secret_key(at)?;
    match &source {
        SecretKeySource::File(file) if !file.exists() => Ok(SecretKeySource::None),
        SecretKeySource::File(_) | SecretKeySource::Key(_) | SecretKeySource::None => Ok(source),
    }
}

/// Where the store of a runtime is.
enum StorePlace {
    /// In the data folder, which nobody else drives.
    Folder,
    /// In a database, with other workers, which reach this one at this address.
    Shared { address: Option<String> },
}

/// The groups of built-in tools that can be offered: workers that share a database have a folder of files only if they name one.
fn offered(groups: &[BuiltinGroup], has_files: bool) -> Vec<BuiltinGroup> {
    if !has_files && groups.contains(&BuiltinGroup::Files) {
        tracing::info!(
            "the file tools are not offered; name a folder that all workers see as `files` of [store]"
        );
    }
    groups.iter().copied().filter(|group| has_files || *group != BuiltinGroup::Files).collect()
}

fn with_tools(
    store: Arc<dyn Store>,
    at: &At,
    limits: Limits,
    configured: Configured,
    place: StorePlace,
) -> anyhow::Result<Runtime> {
    let (shared, address, files) = match place {
        StorePlace::Folder => (false, None, Some(at.data.join("files"))),
        // Files in this folder would be another worker's tomorrow.
        StorePlace::Shared { address } => (true, address, configured.declared.store.files.clone()),
    };
    let groups = offered(&configured.declared.builtin, files.is_some());
    let runtime = Runtime::new(Config {
        limits,
        shared,
        address,
        secret_key: if shared { shared_key(at)? } else { secret_key(at)? },
        files,
        folders: configured.declared.folders.clone(),
        webhooks: Some(Arc::new(WebhookClient::default())),
        retention: configured.declared.retention,
        policy: configured.declared.policy,
        toolbox_secrets: configured.declared.toolbox_secrets,
        ..Config::on(store)
    });
    for tool in builtin(&groups) {
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
