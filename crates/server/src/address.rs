//! The server at an address: the same API as on the folder's socket, for whoever has a token.

use crate::access::{Door, Rules};
use crate::api::Api;
use crate::router::router;
use crate::serving::{Bounds, Listener, Serving};
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

impl Address {
    /// Serves the API at this address until it is stopped; port 0 is any that is free.
    pub async fn serve(api: &Api, address: SocketAddr, rules: Rules) -> io::Result<Address> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let limits = api.runtime().limits();
        let bounds = Bounds::of(limits, Duration::from_millis(limits.drain_ms));
        let door = Door::Address(Arc::new(rules.at(address.ip())));
        let serving = Serving::start(Listener::Address(listener), router(api, &door), bounds);
        Ok(Address { address, serving })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets nobody in any more, and answers what is under way, not longer than `drain_ms`.
    pub async fn stop(self) {
        self.serving.stop().await;
    }
}
