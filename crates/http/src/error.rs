//! Errors of requests. They never show headers, queries or credentials.

use std::time::Duration;

/// A request without a whole response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL cannot be requested.
    #[error("{url:?} cannot be requested: {what}")]
    Url {
        /// The URL, without its credentials and query.
        url: String,
        /// The problem.
        what: &'static str,
    },
    /// A header is not one.
    #[error("the header {name:?} cannot be sent")]
    Header {
        /// Its name.
        name: String,
    },
    /// The address is not public, and the configuration does not allow it.
    #[error("{host} is refused: its address is neither public nor allowed by configuration")]
    Address {
        /// The host of the URL.
        host: String,
    },
    /// The response redirects once more than is followed.
    #[error("the response redirects more than {max} times")]
    Redirects {
        /// The maximum.
        max: usize,
    },
    /// The response is larger than it may be.
    #[error("the response has more than {max} bytes")]
    TooLarge {
        /// The maximum.
        max: u64,
    },
    /// The response did not come in time.
    #[error("there was no whole response within {} ms", within.as_millis())]
    Timeout {
        /// The time it had.
        within: Duration,
    },
    /// The request was certainly not sent.
    #[error("could not connect to {host}")]
    Connect {
        /// The host of the URL.
        host: String,
        /// The cause.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The request may have been sent; there was no whole response.
    #[error("the exchange with {host} broke off")]
    Broken {
        /// The host of the URL.
        host: String,
        /// The cause.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The client cannot be made.
    #[error("the HTTP client cannot be made")]
    Client {
        /// The cause.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
