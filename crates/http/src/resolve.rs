//! Names become addresses; those that the guard does not allow are left out.

use crate::address::AddressGuard;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::io;
use std::sync::Arc;

/// The system's resolver behind the guard.
pub(crate) struct GuardedResolver {
    pub(crate) guard: Arc<AddressGuard>,
}

/// A name without an address that a request may connect to.
#[derive(Debug, thiserror::Error)]
#[error("every address of {name} is refused: none is public or allowed by configuration")]
pub(crate) struct NoAddress {
    name: String,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.guard.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (allowed, refused): (Vec<_>, Vec<_>) = found.partition(|address| guard.allows(address.ip()));
            if allowed.is_empty() && !refused.is_empty() {
                return Err(NoAddress { name: name.as_str().to_string() }.into());
            }
            if allowed.is_empty() {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
