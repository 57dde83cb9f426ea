//! `DIR/control.sock`: the owner of a folder serves its API there, so that other processes can read and control it.

use crate::access::Entrance;
use crate::api::Api;
use crate::crowd::Crowd;
use crate::router::router;
use crate::serving::{ConnectionBounds, Listener, Serving};
use crate::socket;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long running requests may continue when the owner stops.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// The served socket. Stop or drop it before the folder is released: until then the path belongs to this owner.
pub struct Control {
    folder: PathBuf,
    serving: Option<Serving>,
}

impl Control {
    /// Serves the API of the owner of `folder`, until stopped.
    pub fn serve(api: &Api, folder: &Path) -> io::Result<Control> {
        let listener = Listener::Socket(socket::bind(folder)?);
        let limits = api.runtime().limits();
        let bounds = ConnectionBounds::of(limits, Crowd::new(limits, false), STOP_WAIT);
        let serving = Serving::start(listener, router(api, &Entrance::Socket), bounds);
        Ok(Control { folder: folder.to_path_buf(), serving: Some(serving) })
    }

    /// Stops accepting connections, answers running requests, and releases the runtime.
    pub async fn stop(mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = socket::remove(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "could not remove control.sock");
        }
    }
}
