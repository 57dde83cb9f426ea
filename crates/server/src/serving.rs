//! Serving connections, at either listener: bounded in number, slowness and size, and stopped gracefully.

use crate::accepted::AcceptedSocket;
use crate::crowd::{Crowd, Displaced};
use crate::guest::Guest;
use crate::patience::Patient;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use windlass::Limits;

/// The pause after a failed accept (too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The HTTP library's minimum for the header buffer.
const HEADER_BYTES_MIN: usize = 8 << 10;

/// A listening socket.
pub(crate) enum Listener {
    Socket(UnixListener),
    Address(TcpListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<AcceptedSocket> {
        match self {
            Listener::Socket(listener) => Ok(listener.accept().await?.0.into()),
            Listener::Address(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are written whole: delaying them to send more together only makes them late.
                let _ = stream.set_nodelay(true);
                Ok(stream.into())
            }
        }
    }
}

/// A listener being served until it is stopped.
pub(crate) struct Serving {
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// The limits of a listener's connections.
#[derive(Clone)]
pub(crate) struct ConnectionBounds {
    /// Event streams are counted elsewhere.
    pub(crate) crowd: Arc<Crowd>,
    pub(crate) header_bytes_max: usize,
    pub(crate) header_wait: Duration,
    pub(crate) stall: Duration,
    /// How long running requests may continue after the listener is closed.
    pub(crate) stop_wait: Duration,
}

impl ConnectionBounds {
    pub(crate) fn of(limits: &Limits, crowd: Arc<Crowd>, stop_wait: Duration) -> ConnectionBounds {
        let size = |max: u64| usize::try_from(max).unwrap_or(usize::MAX);
        ConnectionBounds {
            crowd,
            header_bytes_max: size(limits.header_bytes_max).max(HEADER_BYTES_MIN),
            header_wait: Duration::from_millis(limits.header_wait_ms),
            stall: Duration::from_millis(limits.answer_stall_ms),
            stop_wait,
        }
    }
}

impl Serving {
    pub(crate) fn start(listener: Listener, router: Router, bounds: ConnectionBounds) -> Serving {
        let (stop, stopping) = watch::channel(false);
        Serving { stop, serving: tokio::spawn(serve(listener, router, bounds, stopping)) }
    }

    /// Stops accepting connections, answers running requests, and releases the API.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    listener: Listener,
    router: Router,
    bounds: ConnectionBounds,
    mut stopping: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            _ = stopping.changed() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &bounds) => match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            }
        };
        let (arrival, displaced) = bounds.crowd.enter();
        let guest = Guest::new(arrival, stopping.clone(), stream.watch());
        let connection =
            ServedConnection { bounds: bounds.clone(), guest, displaced, stopping: stopping.clone() };
        connections.spawn(connection.answer(stream, router.clone()));
    }
    drop((listener, router));
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(bounds.stop_wait, ended).await.is_err() {
        connections.shutdown().await;
    }
}

/// Accepts the next connection, once there is space for it.
async fn accept(listener: &Listener, bounds: &ConnectionBounds) -> io::Result<AcceptedSocket> {
    bounds.crowd.make_room().await;
    listener.accept().await
}

/// A connection and its limits.
struct ServedConnection {
    bounds: ConnectionBounds,
    guest: Guest,
    displaced: Displaced,
    stopping: watch::Receiver<bool>,
}

impl ServedConnection {
    async fn answer(self, stream: AcceptedSocket, router: Router) {
        let ServedConnection { bounds, guest, displaced, mut stopping } = self;
        let mut http = http1::Builder::new();
        // The library itself refuses more than a hundred headers; browsers and proxies send a few dozen.
        // Setting the number would cost every request a list of that size.
        http.timer(TokioTimer::new())
            .header_read_timeout(bounds.header_wait)
            .max_buf_size(bounds.header_bytes_max);
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(guest.clone());
            router.call(request)
        });
        let connection = http.serve_connection(TokioIo::new(Patient::new(stream, bounds.stall)), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            _ = displaced => {
                tracing::debug!("a connection that had shown no token was closed for newer ones");
                return;
            }
            _ = stopping.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}
