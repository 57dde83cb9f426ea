//! Artifacts, accessed from outside a call.

use super::known::BlobIdentity;
use super::of_tasks::TaskArtifact;
use crate::api::data_error::ArtifactError;
use crate::session::inner::Runtime;
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::ids::ArtifactId;

/// The metadata of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactInfo {
    /// The name of its session.
    pub session: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its media type.
    pub media_type: String,
    /// Whether its bytes can still change: those of the log and the result of a task do until the task has ended.
    pub is_growing: bool,
}

impl Runtime {
    /// The session and the type of an artifact. `None`: there is none, or an older version stored it without them.
    pub async fn artifact(&self, artifact: Handle) -> Result<Option<ArtifactInfo>, ArtifactError> {
        let store = &*self.0.store;
        if let Some(found) = TaskArtifact::find(store, artifact).await? {
            let size = found.size(store).await?;
            let info = |(bytes, media_type): (u64, &str)| ArtifactInfo {
                session: found.name,
                bytes,
                media_type: media_type.to_string(),
                is_growing: found.is_growing,
            };
            return Ok(size.map(info));
        }
        let Some(id) = open(store.secret(), artifact) else { return Ok(None) };
        let Some(session) = store.blob_session(id.blob).await? else { return Ok(None) };
        let Some(known) = BlobIdentity::of(store, session, id.blob).await? else { return Ok(None) };
        let Some(size) = store.blob_size(id.blob).await? else { return Ok(None) };
        let Some(session) = store.session_by_no(session).await? else { return Ok(None) };
        let Some(media_type) = known.media_type(id) else { return Ok(None) };
        Ok(Some(ArtifactInfo {
            session: session.name,
            bytes: size.bytes,
            media_type: media_type.to_string(),
            is_growing: false,
        }))
    }

    /// Reads at most `len` bytes of an artifact of any session from `offset`; none past its end.
    pub async fn read_artifact(
        &self,
        artifact: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        let store = &*self.0.store;
        let unknown = ArtifactError::Unknown { artifact };
        if let Some(found) = TaskArtifact::find(store, artifact).await? {
            return found.read(store, offset, len).await?.ok_or(unknown);
        }
        let Some(id) = open(store.secret(), artifact) else { return Err(unknown) };
        store.blob(id.blob, offset, len).await?.ok_or(unknown)
    }
}

/// The artifact of a handle.
pub(super) fn open(secret: &Secret, artifact: Handle) -> Option<ArtifactId> {
    artifact.open(secret, HandleKind::Artifact).map(ArtifactId::unpacked)
}
