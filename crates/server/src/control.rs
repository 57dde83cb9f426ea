//! `DIR/control.sock`: whoever owns a folder serves its API there, so that others can see and steer what runs.

use crate::access::Door;
use crate::api::Api;
use crate::router::router;
use crate::serving::{Bounds, Listener, Serving};
use crate::socket;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long requests under way may go on when the owner stops.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// The served socket. Stop it, or drop it, before the folder is given up: until then its place is this owner's.
pub struct Control {
    folder: PathBuf,
    serving: Option<Serving>,
}

impl Control {
    /// Serves the API of whoever owns `folder`, until it is stopped.
    pub fn serve(api: &Api, folder: &Path) -> io::Result<Control> {
        let listener = Listener::Socket(socket::bind(folder)?);
        let bounds = Bounds::of(api.runtime().limits(), STOP_WAIT);
        let serving = Serving::start(listener, router(api, &Door::Socket), bounds);
        Ok(Control { folder: folder.to_path_buf(), serving: Some(serving) })
    }

    /// Lets nobody in any more, answers what is under way, and lets go of the runtime.
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
