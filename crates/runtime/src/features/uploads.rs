//! Artifacts uploaded from outside, so that an answer can name them.

use crate::api::data_error::ArtifactError;
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::mailbox::ask::AskError;
use crate::mailbox::ask::find_call;
use crate::session::artifacts::{Artifact, Artifacts};
use crate::session::inner::{Inner, Runtime};
use std::sync::Arc;
use windlass_core::call::Call;
use windlass_core::handle::open_completion_key;
use windlass_core::ids::BatchNo;

/// The belonging of an upload, which decides how long it waits to be named by an answer.
#[derive(Clone, Copy, Debug)]
pub enum UploadFor<'a> {
    /// A session: one that nothing names for `artifact_loose_ms` is removed.
    Session(&'a str),
    /// An open call, by its handle: the upload stays at least as long as the call's batch is open.
    Call(&'a str),
    /// The open call that issued this completion key.
    Key(&'a str),
}

impl Runtime {
    /// Stores bytes of this media type as an artifact, for an answer that names it in a part: the result of a tool that the
    /// caller runs, or a completion. Durable when this returns.
    ///
    /// ```
    /// # use windlass::{Config, Runtime, sessions::UploadFor, store::memory::MemoryStore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
    /// let shot = runtime.upload(UploadFor::Session("demo"), b"\x89PNG", "image/png").await?;
    /// let part = shot.into_image();
    /// # Ok(()) }
    /// ```
    pub async fn upload(
        &self,
        to: UploadFor<'_>,
        bytes: &[u8],
        media_type: &str,
    ) -> Result<Artifact, AskError> {
        let (session, batch) = home(&self.0, to).await?;
        let session = self.0.session(&session).await?;
        session.check_stays().map_err(SessionError::from)?;
        let artifacts = Artifacts::new(session.lane.clone());
        let kept = artifacts.upload(batch, bytes, media_type, self.0.clock.now()).await.map_err(refused)?;
        Ok(Artifact { kept, media_type: media_type.to_string() })
    }
}

/// The session of an upload, and the batch that keeps it.
async fn home(rt: &Arc<Inner>, to: UploadFor<'_>) -> Result<(String, Option<BatchNo>), AskError> {
    let (session, id, call) = match to {
        UploadFor::Session(session) => return Ok((session.to_string(), None)),
        UploadFor::Call(handle) => find_call(&*rt.store, handle).await?,
        UploadFor::Key(key) => {
            let (id, _) = open_completion_key(rt.store.secret(), key).ok_or(AskError::NoKey)?;
            let (session, call, _) = find_id(&*rt.store, id).await?.ok_or(AskError::NoKey)?;
            (session, id, call)
        }
    };
    check_open(&call)?;
    Ok((session.name, Some(id.batch)))
}

fn check_open(call: &Call) -> Result<(), AskError> {
    match call.end() {
        Some(_) => Err(AskError::Over { what: "the call has ended" }),
        None => Ok(()),
    }
}

fn refused(error: ArtifactError) -> AskError {
    match error {
        ArtifactError::Lost(lost) => SessionError::from(lost).into(),
        error @ (ArtifactError::TooLarge { .. }
        | ArtifactError::Unknown { .. }
        | ArtifactError::MediaType { .. }) => AskError::Invalid { what: error.to_string() },
    }
}
