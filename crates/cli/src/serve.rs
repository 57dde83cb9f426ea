//! `windlass serve`: serves the HTTP API and drives all calls of the folder.

use crate::args::Serve;
use crate::database;
use crate::door::At;
use crate::exit::{StoppedWaiting, Usage};
use crate::folder::{self, Owned};
use crate::logs;
use crate::owner::{self, RuntimeOwner};
use crate::show;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass::Runtime;
use windlass_server::Api;
use windlass_server::access::AccessRules;
use windlass_server::address::Address;
use windlass_server::client::Client;

/// How often an idle server looks whether somebody needs it.
const IDLE_LOOKS_EVERY: Duration = Duration::from_millis(200);
/// How long a worker that stops tries to tell the others; without that they wait for its lease.
const RETIRE_WAIT: Duration = Duration::from_secs(2);
/// How often a stopping server checks for running calls.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

pub async fn serve(at: &At, owned: &mut Owned, args: Serve) -> anyhow::Result<ExitCode> {
    let leaves = args.leave_when_idle;
    let place = ServePlace { listen: args.listen, advertise: args.advertise };
    let server = RunningServer::start(at, owned, place).await?;
    RunningServer { leaves_when_idle: leaves, ..server }.until_stopped().await
}

/// The addresses of a server.
pub struct ServePlace {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where the other workers of a shared store reach it, if that is not where it listens.
    pub advertise: Option<String>,
}

/// The address at which other workers reach this one; `None`: it listens on all addresses, and none was named.
fn advertised(named: Option<String>, listens: SocketAddr) -> Result<Option<String>, Usage> {
    let Some(url) = named else {
        return Ok((!listens.ip().is_unspecified()).then(|| format!("http://{listens}")));
    };
    match Client::at(&url, None) {
        Ok(_) => Ok(Some(url.trim_end_matches('/').to_string())),
        Err(error) => Err(Usage(format!("--advertise: {error}"))),
    }
}

/// A running server.
pub struct RunningServer {
    pub owner: RuntimeOwner,
    pub address: Address,
    /// The file with its first token, if it still exists.
    pub token: Option<PathBuf>,
    /// Whether it stops by itself once nobody needs it.
    pub leaves_when_idle: bool,
}

impl RunningServer {
    /// Owns the folder, continues its calls, listens, and prints how to connect.
    pub async fn start(at: &At, owned: &mut Owned, place: ServePlace) -> anyhow::Result<RunningServer> {
        on_a_folder(at)?;
        let (listen, served) = (place.listen, folder::configured(at)?.declared.server);
        // Listen first: calls that were started and then cut off, because the address is taken, might have to be resolved by hand.
        let listening = Address::listen(listen).await.with_context(|| Usage(cannot_listen(listen)))?;
        let advertised = advertised(place.advertise.or(served.advertise), listening.address()?)?;
        let mut owner = RuntimeOwner::serve(at, owned, advertised).await?;
        let (api, runtime) = (owner.api().clone(), owner.runtime());
        let token = api.tokens().first().await?;
        let taken_over = tokio::select! {
            resumed = runtime.resume() => resumed?,
            signal = owner.stopped() => {
                stop(owner, None, signal).await;
                return Err(StoppedWaiting(signal).into());
            }
        };
        let rules = AccessRules { hosts: served.hosts, origins: served.origins };
        let address = Address::serve(&api, listening, rules)?;
        owner.keep_upstreams();
        greet(at, &runtime, &address, token.as_ref())?;
        let durability = runtime.store().durability();
        tracing::info!(address = %address.address(), data = %at.data.display(), %durability, taken_over, "the server has started");
        if taken_over > 0 {
            logs::tell!("continuing calls that an earlier owner left open: {taken_over}");
        }
        Ok(RunningServer { owner, address, token, leaves_when_idle: false })
    }

    /// Where a browser on this machine finds the dashboard.
    pub fn page_url(&self) -> String {
        self.owner.api().page_url().unwrap_or_else(|| self.url())
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address.address())
    }

    /// Serves until a signal comes, then stops cleanly.
    pub async fn until_stopped(self) -> anyhow::Result<ExitCode> {
        let RunningServer { mut owner, address, leaves_when_idle, .. } = self;
        let api = owner.api().clone();
        let signal = tokio::select! {
            signal = owner.stopped() => signal,
            () = idle(&api), if leaves_when_idle => "nobody needs it",
        };
        drop(api);
        stop(owner, Some(address), signal).await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Stops cleanly: takes nothing new, lets what runs end, and tells the other workers.
async fn stop(owner: RuntimeOwner, address: Option<Address>, signal: &'static str) {
    let (api, runtime) = (owner.api().clone(), owner.runtime());
    logs::tell!("{signal}: stopping; send it again to exit at once");
    owner::leave_at_once_when_told_again();
    tracing::info!(signal, "the server is stopping");
    api.drain();
    runtime.begin_leaving();
    let drain = Duration::from_millis(runtime.limits().drain_ms);
    let listening = async {
        if let Some(address) = address {
            address.stop().await;
        }
    };
    tokio::join!(listening, drained(&runtime, drain));
    owner::tell(&runtime.live());
    if let Ok(Err(error)) = tokio::time::timeout(RETIRE_WAIT, runtime.retire()).await {
        logs::tell!("the other workers take over when the lease has run out: {error}");
    }
    if runtime.away() > 0 {
        logs::tell!("{} more calls wait for external answers; the next owner continues them", runtime.away());
    }
    drop((api, runtime));
    owner.close().await;
}

/// Waits until no MCP client has asked for anything for a while, no call is open and nothing is scheduled.
async fn idle(api: &Api) {
    let runtime = api.runtime();
    let after = Duration::from_millis(runtime.limits().mcp_owner_idle_ms);
    loop {
        tokio::time::sleep(
            after.saturating_sub(api.mcp_quiet_for().unwrap_or_default()).max(IDLE_LOOKS_EVERY),
        )
        .await;
        let is_quiet = api.mcp_quiet_for().is_some_and(|quiet| quiet >= after);
        if !is_quiet || !runtime.live().is_empty() || runtime.away() > 0 {
            continue;
        }
        // One that cannot be read now is looked at again.
        if runtime.all_schedules(|_| true, 1).await.is_ok_and(|schedules| schedules.is_empty()) {
            return;
        }
    }
}

/// Refuses --server for commands that start a server.
pub fn on_a_folder(at: &At) -> Result<(), Usage> {
    if at.server.is_some() {
        return Err(Usage("this command works on a data folder: leave out --server".to_string()));
    }
    Ok(())
}

/// The error for an address that cannot be used. Usually another server has it, so the message suggests a free port.
fn cannot_listen(listen: SocketAddr) -> String {
    let free = SocketAddr::new(listen.ip(), 0);
    format!("could not listen on {listen}; choose another address, or let --listen {free} find a free port")
}

/// Waits until no call runs or is about to, at most `most`. Calls that wait for external answers stay as they are.
async fn drained(runtime: &Runtime, most: Duration) {
    let deadline = Instant::now() + most;
    loop {
        let counts = runtime.counts();
        if counts.running == [0, 0] && counts.queued == 0 || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(LOOKS_EVERY).await;
    }
}

fn greet(at: &At, runtime: &Runtime, address: &Address, token: Option<&PathBuf>) -> anyhow::Result<()> {
    let (listen, data) = (address.address(), at.data.display());
    let durability = runtime.store().durability();
    let token = match token {
        Some(file) => format!("Authorization: Bearer $(cat {})", file.display()),
        None => "Authorization: Bearer TOKEN; `windlass token create` creates one".to_string(),
    };
    let store = match database::find(at)? {
        None => format!("{data}/windlass.db, durability {durability}"),
        Some(options) => {
            let store = runtime.store();
            // Asked for first, so that it is found out.
            let _wakes = store.wakes("");
            format!(
                "{}, durability {durability}\n  \
                 worker        {}, messages by {}",
                database::shown(&options.url),
                runtime.worker().unwrap_or_else(|| "waits for its lease".to_string()),
                store.wake_way(),
            )
        }
    };
    show::text(&format!(
        "windlass {} serves http://{listen}\n  \
         described at  http://{listen}/openapi.json\n  \
         dashboard     http://{listen}/ (`windlass open` prints a link that logs in)\n  \
         ask with      {token}\n  \
         data          {store}\n  \
         socket        {data}/control.sock",
        env!("CARGO_PKG_VERSION"),
    ))?;
    if !listen.ip().is_loopback() {
        logs::tell!(
            "warning: other machines can reach {listen}, over plain HTTP; put a proxy with TLS in \
             front of it, and list its name under [server] hosts"
        );
    }
    Ok(())
}
