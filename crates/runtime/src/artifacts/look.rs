//! Artifacts for whoever is outside of any call.

use super::ArtifactError;
use super::known::Known;
use crate::runtime::Runtime;
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::ArtifactId;

/// What is known of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactInfo {
    /// The name of its session.
    pub session: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its media type.
    pub media_type: String,
}

impl Runtime {
    /// Whose an artifact is and what it is. `None`: there is none, or it was kept by a version that did not know that.
    pub async fn artifact(&self, artifact: Handle) -> Result<Option<ArtifactInfo>, ArtifactError> {
        let store = &*self.0.store;
        let Some(id) = open(store.secret(), artifact) else { return Ok(None) };
        let Some(known) = Known::of(store, id.blob).await? else { return Ok(None) };
        let Some(size) = store.blob_size(id.blob).await? else { return Ok(None) };
        let Some(session) = store.session_by_no(known.session).await? else { return Ok(None) };
        let Some(media_type) = known.media_type(id) else { return Ok(None) };
        Ok(Some(ArtifactInfo {
            session: session.name,
            bytes: size.bytes,
            media_type: media_type.to_string(),
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
        let Some(id) = open(store.secret(), artifact) else { return Err(unknown) };
        store.blob(id.blob, offset, len).await?.ok_or(unknown)
    }
}

/// What a handle names.
pub(super) fn open(secret: &Secret, artifact: Handle) -> Option<ArtifactId> {
    artifact.open(secret, Kind::Artifact).map(ArtifactId::unpacked)
}
