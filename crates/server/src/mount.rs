//! Mounting the API on a runtime that a program embeds, with one call.

use crate::access::AccessRules;
use crate::address::Address;
use crate::api::Api;
use crate::control::Control;
use crate::tokens::FirstError;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use windlass::Runtime;

/// The places at which [`mount`] serves the API.
#[derive(Clone, Debug, Default)]
pub struct Mount {
    /// An address for callers with a token; port 0 picks a free port.
    pub address: Option<SocketAddr>,
    /// An existing folder for `control.sock`, by which commands and other processes of this user reach the runtime, and for
    /// `token`, the first token. Without it there is no socket, and the program [makes its tokens](crate::tokens::Tokens::make).
    pub folder: Option<PathBuf>,
    /// The host names and origins accepted at the address.
    pub rules: AccessRules,
}

/// A failure to mount the API. Nothing is served then.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// There is no place to serve at.
    #[error("the API has no place to be served at: give an address, a folder, or both")]
    Nowhere,
    /// The address cannot be used.
    #[error("could not listen on {address}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The folder's socket cannot be used.
    #[error("could not serve control.sock in {}", folder.display())]
    Socket {
        /// The folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no first token.
    #[error(transparent)]
    Token(#[from] FirstError),
}

/// The API of an embedded runtime, served until it is stopped or dropped.
pub struct MountedApi {
    api: Api,
    address: Option<Address>,
    control: Option<Control>,
    token: Option<PathBuf>,
}

/// Serves the HTTP API of a runtime at an address, on a folder's socket, or both. A runtime that nobody mounts serves nothing.
///
/// ```
/// use windlass::store::memory::MemoryStore;
/// use windlass::{Config, Runtime};
/// use windlass_server::{Mount, mount};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// let address = Some("127.0.0.1:0".parse()?);
/// let mounted = mount(&runtime, Mount { address, ..Mount::default() }).await?;
/// println!("the API is at {:?}", mounted.address());
/// mounted.stop().await;
/// # Ok(()) }
/// ```
pub async fn mount(runtime: &Runtime, place: Mount) -> Result<MountedApi, MountError> {
    let Mount { address, folder, rules } = place;
    if address.is_none() && folder.is_none() {
        return Err(MountError::Nowhere);
    }
    // The address first: if it is taken, neither a token nor a socket has been made.
    let listening = match address {
        Some(address) => {
            let listening = Address::listen(address).await;
            Some(listening.map_err(|source| MountError::Address { address, source })?)
        }
        None => None,
    };
    let api = Api::new(runtime, folder.as_deref());
    let token = api.tokens().first().await?;
    let control = match folder {
        Some(folder) => {
            let control = Control::serve(&api, &folder);
            Some(control.map_err(|source| MountError::Socket { folder, source })?)
        }
        None => None,
    };
    let address = match (address, listening) {
        (Some(address), Some(listening)) => {
            let served = Address::serve(&api, listening, rules);
            Some(served.map_err(|source| MountError::Address { address, source })?)
        }
        _ => None,
    };
    Ok(MountedApi { api, address, control, token })
}

impl MountedApi {
    /// The address it listens on, with the port that was picked.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address.as_ref().map(Address::address)
    }

    /// The file with the first token, if there is one.
    pub fn token(&self) -> Option<&Path> {
        self.token.as_deref()
    }

    /// The API: its tokens and sessions.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Takes no more work, answers running requests for at most `drain_ms`, and closes the address and the socket. The
    /// runtime and its calls continue.
    pub async fn stop(self) {
        let MountedApi { api, address, control, .. } = self;
        api.drain();
        if let Some(address) = address {
            address.stop().await;
        }
        if let Some(control) = control {
            control.stop().await;
        }
    }
}
