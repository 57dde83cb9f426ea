//! The outgoing HTTP client of Windlass, for language models, declared tools, webhooks and pages.
//!
//! Every address that a request would connect to is checked, whether a name resolved to it or the URL spells it, and so is every
//! redirect. Only public addresses are connected to unless [`HttpConfig::allowed`] names others. Sizes and times are bounded,
//! proxies of the environment are ignored, TLS is rustls.
//!
//! ```
//! use windlass_http::{HttpClient, HttpConfig, HttpError, HttpRequest};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), HttpError> {
//! let client = HttpClient::new(HttpConfig::default())?;
//! // Nothing is sent: the address is not public.
//! let refused = client.send(HttpRequest::get("https://169.254.169.254/latest/meta-data")).await;
//! assert!(matches!(refused, Err(HttpError::Address { .. })));
//! # Ok(()) }
//! ```

mod address;
mod client;
mod error;
mod resolve;

pub use address::{AddressGuard, AddressRange, BadRange};
pub use client::{BodyWatch, FailedRequest, HttpClient, HttpConfig, HttpRequest, HttpResponse, WatchedPiece};
pub use error::HttpError;
pub use reqwest::Method;
