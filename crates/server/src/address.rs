//! The server at an address: the API of the folder's socket, for callers with a token.

use crate::access::{AccessRules, Entrance};
use crate::api::Api;
use crate::crowd::Crowd;
use crate::router::router;
use crate::serving::{ConnectionBounds, Listener, Serving};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// The server at an address.
pub struct Address {
    address: SocketAddr,
    serving: Serving,
}

/// A bound address; clients that connect wait until it is served.
pub struct Listening(TcpListener);

impl Listening {
    /// The address, with its port.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Address {
    /// Binds the address, before anything starts that a taken address would cut off; port 0 picks a free port.
    pub async fn listen(address: SocketAddr) -> io::Result<Listening> {
        TcpListener::bind(address).await.map(Listening)
    }

    /// Serves the API at an address until it is stopped.
    pub fn serve(api: &Api, Listening(listener): Listening, rules: AccessRules) -> io::Result<Address> {
        let address = listener.local_addr()?;
        api.served_at(address);
        let limits = api.runtime().limits();
        let bounds =
            ConnectionBounds::of(limits, Crowd::new(limits, true), Duration::from_millis(limits.drain_ms));
        let door = Entrance::Address(Arc::new(rules.at(address.ip())));
        let serving = Serving::start(Listener::Address(listener), router(api, &door), bounds);
        Ok(Address { address, serving })
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, and answers running requests, for at most `drain_ms`.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}
