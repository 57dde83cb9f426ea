//! Letting people in, by whichever door: bounded in how many, how slow and how large they may be, and stopped in good order.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use windlass::core::limits::Limits;

/// After a connection could not be had (too many open files), how long until the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The least room for headers that the HTTP library takes.
const HEADER_BYTES_MIN: usize = 8 << 10;

/// Where people come in.
pub(crate) enum Listener {
    Socket(UnixListener),
    Address(TcpListener),
}

/// Whoever came in.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Listener::Socket(listener) => Ok(Box::new(listener.accept().await?.0)),
            Listener::Address(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are written whole: waiting for more to send with them only makes them late.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
        }
    }
}

/// A door that is open until it is stopped.
pub(crate) struct Serving {
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

/// What bounds those who come in.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Those who follow events are counted elsewhere.
    pub(crate) connections_max: usize,
    pub(crate) header_bytes_max: usize,
    pub(crate) header_wait: Duration,
    pub(crate) stall: Duration,
    /// How long requests under way may go on when the door is closed.
    pub(crate) stop_wait: Duration,
}

impl Bounds {
    pub(crate) fn of(limits: &Limits, stop_wait: Duration) -> Bounds {
        let size = |max: u64| usize::try_from(max).unwrap_or(usize::MAX);
        Bounds {
            connections_max: size(limits.connections_max),
            header_bytes_max: size(limits.header_bytes_max).max(HEADER_BYTES_MIN),
            header_wait: Duration::from_millis(limits.header_wait_ms),
            stall: Duration::from_millis(limits.answer_stall_ms),
            stop_wait,
        }
    }
}

impl Serving {
    pub(crate) fn start(listener: Listener, router: Router, bounds: Bounds) -> Serving {
        let (stop, stopping) = watch::channel(false);
        Serving { stop, serving: tokio::spawn(serve(listener, router, (bounds, stopping))) }
    }

    /// Lets nobody in any more, answers what is under way, and lets go of what it serves.
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

async fn serve(listener: Listener, router: Router, (bounds, mut stopping): (Bounds, watch::Receiver<bool>)) {
    let (mut connections, places) = (JoinSet::new(), Arc::new(Semaphore::new(bounds.connections_max)));
    'serving: loop {
        let place = tokio::select! {
            _ = stopping.changed() => break,
            Ok(place) = places.clone().acquire_owned() => place,
        };
        let stream = loop {
            tokio::select! {
                _ = stopping.changed() => break 'serving,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok(stream) => break stream,
                    Err(error) => {
                        tracing::warn!(%error, "could not let somebody in");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let guest = Guest::new(place, stopping.clone());
        connections.spawn(answer(stream, router.clone(), (bounds, guest, stopping.clone())));
    }
    drop((listener, router));
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(bounds.stop_wait, ended).await.is_err() {
        connections.shutdown().await;
    }
}

async fn answer(
    stream: Box<dyn Stream>,
    router: Router,
    (bounds, guest, mut stopping): (Bounds, Guest, watch::Receiver<bool>),
) {
    let mut http = http1::Builder::new();
    // More than a hundred headers it refuses by itself; browsers and proxies send a few dozen. To say that number costs
    // every request a list of so many.
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
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
