//! `DIR/control.sock`: whoever owns a folder serves its API there, so that others can see and steer what runs.

use crate::guest::Guest;
use crate::patience::Patient;
use crate::{router, socket};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use windlass::Runtime;

/// So many are answered at once; the next ones wait to be let in. Those who follow events are counted elsewhere.
const CONNECTIONS_MAX: usize = 64;
/// Whoever sends its request slower is let go, so that it does not hold a place.
const HEADER_WAIT: Duration = Duration::from_secs(10);
/// How long requests under way may go on when the owner stops.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// After a connection could not be had (too many open files), how long until the next is tried.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The served socket. Stop it, or drop it, before the folder is given up: until then its place is this owner's.
pub struct Control {
    folder: PathBuf,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Control {
    /// Serves the API of `runtime`, which owns `folder`, until it is stopped.
    pub fn serve(runtime: &Runtime, folder: &Path) -> io::Result<Control> {
        let listener = socket::bind(folder)?;
        let (stop, stopping) = watch::channel(false);
        let write_wait = Duration::from_millis(runtime.limits().event_write_ms);
        let serving = tokio::spawn(serve((listener, write_wait), router(runtime.clone()), stopping));
        Ok(Control { folder: folder.to_path_buf(), stop, serving })
    }

    /// Lets nobody in any more, answers what is under way, and lets go of the runtime.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let _ = (&mut self.serving).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.serving.abort();
        if let Err(error) = socket::remove(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "could not remove control.sock");
        }
    }
}

async fn serve(
    (listener, write_wait): (UnixListener, Duration),
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let (mut connections, places) = (JoinSet::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
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
                    Ok((stream, _)) => break stream,
                    Err(error) => {
                        tracing::warn!(%error, "could not let somebody in at control.sock");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        let guest = Guest::new(place, stopping.clone());
        let stream = Patient::new(stream, write_wait);
        connections.spawn(answer(stream, router.clone(), (guest, stopping.clone())));
    }
    drop((listener, router));
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_WAIT, ended).await.is_err() {
        connections.shutdown().await;
    }
}

async fn answer(
    stream: Patient<UnixStream>,
    router: Router,
    (guest, mut stopping): (Guest, watch::Receiver<bool>),
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_WAIT);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(guest.clone());
        router.call(request)
    });
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection to control.sock ended early");
    }
}
