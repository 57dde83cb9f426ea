//! `windlass serve`: the API at an address, and all calls of the folder driven.

use crate::args::Serve;
use crate::door::At;
use crate::exit::Usage;
use crate::folder::{self, Owned};
use crate::owner::{self, Owner};
use crate::show;
use anyhow::Context;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windlass::Runtime;
use windlass_server::access::Rules;
use windlass_server::address::Address;

/// How often it is looked whether running calls are over, when the server stops.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

pub async fn serve((at, owned): (&At, &mut Owned), args: Serve) -> anyhow::Result<ExitCode> {
    Server::start((at, owned), args.listen).await?.until_stopped().await
}

/// A server that runs.
pub struct Server {
    pub owner: Owner,
    pub address: Address,
    /// The file that holds its first token, if that is still there.
    pub token: Option<PathBuf>,
}

impl Server {
    /// Owns the folder, goes on with its calls, listens, and says how to ask.
    pub async fn start((at, owned): (&At, &mut Owned), listen: SocketAddr) -> anyhow::Result<Server> {
        on_a_folder(at)?;
        let served = folder::configured(at)?.declared.server;
        let owner = Owner::take((at, owned)).await?;
        let (api, runtime) = (owner.api().clone(), owner.runtime());
        let token = api.tokens().first().await?;
        let taken_over = runtime.resume().await?;
        let rules = Rules { hosts: served.hosts, origins: served.origins };
        let address =
            Address::serve(&api, listen, rules).await.with_context(|| Usage(cannot_listen(listen)))?;
        greet((at, &runtime), (&address, token.as_ref()))?;
        if taken_over > 0 {
            eprintln!("windlass: goes on with calls that an earlier owner left open: {taken_over}");
        }
        Ok(Server { owner, address, token })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address.address())
    }

    /// Serves until a signal comes, and stops in good order.
    pub async fn until_stopped(self) -> anyhow::Result<ExitCode> {
        let Server { mut owner, address, .. } = self;
        let (api, runtime) = (owner.api().clone(), owner.runtime());
        let signal = owner.stopped().await;
        eprintln!("windlass: {signal}: stopping; once more leaves at once");
        owner::leave_at_once_when_told_again();
        api.drain();
        let drain = Duration::from_millis(runtime.limits().drain_ms);
        tokio::join!(address.stop(), drained(&runtime, drain));
        owner::tell(&runtime.live());
        if runtime.away() > 0 {
            eprintln!(
                "windlass: {} more calls wait for the world outside, and go on with the next owner",
                runtime.away()
            );
        }
        drop((api, runtime));
        owner.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Refuses to start a server at another server.
pub fn on_a_folder(at: &At) -> Result<(), Usage> {
    if at.server.is_some() {
        return Err(Usage("a server is started on a data folder: leave out --server".to_string()));
    }
    Ok(())
}

/// Most often another server is there already, so a place is named that is free.
fn cannot_listen(listen: SocketAddr) -> String {
    let free = SocketAddr::new(listen.ip(), 0);
    format!("could not listen at {listen}; choose another address, or let --listen {free} find a free port")
}

/// Waits until nothing runs or is about to, not longer than this. What waits for the world stays as it is.
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

fn greet(
    (at, runtime): (&At, &Runtime),
    (address, token): (&Address, Option<&PathBuf>),
) -> anyhow::Result<()> {
    let (listen, data) = (address.address(), at.data.display());
    let durability = runtime.store().durability();
    let token = match token {
        Some(file) => format!("Authorization: Bearer $(cat {})", file.display()),
        None => "Authorization: Bearer TOKEN; `windlass token create` makes one".to_string(),
    };
    show::text(&format!(
        "windlass {} serves http://{listen}\n  \
         described at  http://{listen}/openapi.json\n  \
         ask with      {token}\n  \
         data          {data}/windlass.db, durability {durability}\n  \
         socket        {data}/control.sock",
        env!("CARGO_PKG_VERSION"),
    ))?;
    if !listen.ip().is_loopback() {
        eprintln!(
            "windlass: warning: other machines can reach {listen}, and this speaks plain HTTP; put a proxy with TLS in \
             front of it, and list its name under [server] hosts"
        );
    }
    Ok(())
}
