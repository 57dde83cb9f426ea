//! Bytes stored beside the journal, written and read in chunks so that they are never whole in memory.
//!
//! Equal bytes of a session share one blob. As long as nothing refers to it, a blob is *loose*: a record says
//! which batch it was made for and since when, and [`collect`] removes it once that batch is over and its
//! time is up. The change that records a reference removes that record; only referenced blobs are found by
//! their content, so no call can build on a blob that is about to be removed.

mod collect;
mod expired;
mod known;
mod look;
mod of_tasks;
mod writer;

pub(crate) use collect::{look_over, sweep, sweep_us};
pub(crate) use expired::loosen;
pub(crate) use known::{ContentDigest, Keeping};
pub use look::ArtifactInfo;
pub(crate) use of_tasks::{log_of, result_of};
pub use writer::ArtifactWriter;

use crate::api::data_error::ArtifactError;
use crate::api::keys;
use crate::api::limits::{EnforcedLimits, Limits};
use crate::session::batch::Used;
use crate::session::lane::Lane;
use crate::session::vault::KnownSecrets;
use crate::tools::place::BatchPlace;
use known::{BlobIdentity, BlobUse, FoundBlob, content_rows};
use of_tasks::TaskArtifact;
use std::borrow::Cow;
use std::sync::Arc;
use windlass_core::handle::{Handle, HandleKind, Secret, content_hasher, idempotency_key};
use windlass_core::ids::{ArtifactId, BatchNo, BlobNo, CallId, SessionNo};
use windlass_core::outcome::{KeptBytes, Part};
use windlass_core::time::Timestamp;
use windlass_store::{Row, Sequence, Space, Store, StoreError, blob_key};

/// A session's artifacts.
#[derive(Clone)]
pub(crate) struct Artifacts {
    lane: Arc<Lane>,
}

/// The result of [`Cx::attach`](crate::Cx::attach).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its name and its size.
    pub kept: KeptBytes,
    /// Its media type.
    pub media_type: String,
}

impl Artifact {
    /// The artifact as a part of an answer, under this name.
    pub fn into_part(self, name: impl Into<String>) -> Part {
        Part::File { kept: self.kept, media_type: self.media_type, name: name.into() }
    }

    /// The artifact as an image of an answer: the model sees it natively.
    pub fn into_image(self) -> Part {
        Part::KeptImage { kept: self.kept, media_type: self.media_type }
    }
}

impl Artifacts {
    pub(crate) fn new(lane: Arc<Lane>) -> Artifacts {
        Artifacts { lane }
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(crate) fn limits(&self) -> &EnforcedLimits {
        self.lane.limits()
    }

    pub(crate) fn idempotency_key(&self, place: &BatchPlace, id: &str) -> String {
        idempotency_key(self.secret(), &place.session, keys::first_key(&place.batch_key), id)
    }

    pub(crate) fn call_handle(&self, call: CallId) -> Handle {
        Handle::seal(self.secret(), HandleKind::Call, call.packed())
    }

    /// Starts to store bytes for a call of this batch; nothing refers to them at first.
    pub(crate) fn writer(&self, batch: Used, clock: Arc<dyn crate::api::clock::Clock>) -> ArtifactWriter {
        ArtifactWriter::new(self.clone(), batch, clock)
    }

    /// Bytes of an artifact of this session.
    pub(crate) async fn read(
        &self,
        artifact: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        let unknown = ArtifactError::Unknown { artifact };
        if let Some(found) = TaskArtifact::find(self.store(), artifact).await? {
            if found.session != self.lane.session() {
                return Err(unknown);
            }
            return found.read(self.store(), offset, len).await?.ok_or(unknown);
        }
        let id = self.opened(artifact).await?;
        let bytes = self.store().blob(id.blob, offset, len).await.map_err(ArtifactError::from)?;
        bytes.ok_or(unknown)
    }

    /// How many bytes an artifact of this session has.
    pub(crate) async fn bytes(&self, artifact: Handle) -> Result<u64, ArtifactError> {
        let bytes = self.or_lost(size_in(self.store(), self.lane.session(), artifact).await)?;
        bytes.ok_or(ArtifactError::Unknown { artifact })
    }

    /// The artifact of a handle, if it is this session's.
    async fn opened(&self, artifact: Handle) -> Result<ArtifactId, ArtifactError> {
        let unknown = ArtifactError::Unknown { artifact };
        let Some(id) = look::open(self.secret(), artifact) else { return Err(unknown) };
        match self.store().blob_session(id.blob).await? {
            Some(session) if session != self.lane.session() => Err(unknown),
            // Blobs older than ownership records can be read with their handle alone.
            Some(_) | None => Ok(id),
        }
    }

    /// Finds equal bytes that are stored already, or cuts them into rows; committing the rows makes a reference.
    pub(crate) async fn rows(
        &self,
        batch: BatchNo,
        bytes: &[u8],
        media_type: &str,
    ) -> Result<(KeptBytes, Vec<Row>), ArtifactError> {
        let max = self.limits().artifact_bytes_max;
        if bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        let known = self.secrets();
        let bytes = &*known.as_ref().map_or(Cow::Borrowed(bytes), |known| known.scrub_bytes(bytes));
        let digest = content_hasher(self.secret()).update(bytes).finalize();
        let content = ContentDigest { digest, bytes: bytes.len() as u64, media_type };
        if let Some((found, rows)) = self.find(&content, batch).await? {
            return Ok((self.kept(found, content.bytes), rows));
        }
        let blob = self.reserve().await?;
        let mut rows = self.chunks(blob, bytes);
        rows.extend(content_rows(blob, &content, batch));
        Ok((self.kept(ArtifactId { blob, media: 0 }, content.bytes), rows))
    }

    /// Stores bytes that nothing refers to yet: for an answer to a call of this batch, or of any if there is none.
    pub(crate) async fn upload(
        &self,
        batch: Option<BatchNo>,
        bytes: &[u8],
        media_type: &str,
        now: Timestamp,
    ) -> Result<KeptBytes, ArtifactError> {
        check_media_type(media_type, self.limits())?;
        let max = self.limits().artifact_bytes_max;
        if bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        let known = self.secrets();
        let bytes = &*known.as_ref().map_or(Cow::Borrowed(bytes), |known| known.scrub_bytes(bytes));
        let digest = content_hasher(self.secret()).update(bytes).finalize();
        let content = ContentDigest { digest, bytes: bytes.len() as u64, media_type };
        let blob = self.reserve().await?;
        let mut rows = self.chunks(blob, bytes);
        rows.push(BlobIdentity::new(&content).row(blob));
        let batch = batch.unwrap_or(BatchNo(0));
        rows.push(known::Loose { batch, since: now }.row(blob));
        self.lane.commit_rows(rows).await.map_err(ArtifactError::Lost)?;
        Ok(self.kept(ArtifactId { blob, media: 0 }, content.bytes))
    }

    fn chunks(&self, blob: BlobNo, bytes: &[u8]) -> Vec<Row> {
        let size = self.limits().chunk_bytes_max as usize;
        let pieces = bytes.chunks(size).zip(0..);
        pieces.map(|(piece, seq)| Row::Chunk { blob, seq, data: piece.into() }).collect()
    }

    /// The rows by which an outcome refers to an artifact, which must exist.
    pub(crate) async fn refer(&self, batch: BatchNo, artifact: Handle) -> Result<Vec<Row>, ArtifactError> {
        self.or_lost(self.referring(batch, artifact).await)
    }

    async fn referring(&self, batch: BatchNo, artifact: Handle) -> Result<Vec<Row>, ArtifactError> {
        let ArtifactId { blob, .. } = self.opened(artifact).await?;
        let unknown = ArtifactError::Unknown { artifact };
        let Some(known) = BlobIdentity::of(self.store(), self.lane.session(), blob).await? else {
            let size = self.store().blob_size(blob).await.map_err(ArtifactError::from)?;
            return size.map(|_| Vec::new()).ok_or(unknown);
        };
        let content =
            self.store().record(Space::Content.of(self.lane.session()), &known.content_key(blob)).await?;
        match content.as_ref().map(BlobUse::of) {
            Some(used) => Ok(FoundBlob { blob, known, used }.refer(batch)),
            None => {
                let content = known.content_row(blob, BlobUse::Batch(batch));
                Ok(vec![Row::Remove { space: Space::Loose, key: blob_key(blob) }, content])
            }
        }
    }

    /// The artifact that already has this content.
    async fn find(
        &self,
        content: &ContentDigest<'_>,
        batch: BatchNo,
    ) -> Result<Option<(ArtifactId, Vec<Row>)>, ArtifactError> {
        let found = self.find_blob(content).await?;
        Ok(found.and_then(|found| {
            Some((found.known.artifact(found.blob, content.media_type)?, found.refer(batch)))
        }))
    }

    /// The blob that already has these bytes, whatever its media types.
    async fn find_blob(&self, content: &ContentDigest<'_>) -> Result<Option<FoundBlob>, ArtifactError> {
        self.or_lost(known::find(self.store(), self.lane.session(), content).await)
    }

    async fn reserve(&self) -> Result<BlobNo, ArtifactError> {
        let number = self.store().reserve(Sequence::Blob, 1).await;
        self.or_lost(number.map(BlobNo).map_err(ArtifactError::from))
    }

    /// Without the store the tool's work cannot be recorded; that is not a failure of the tool.
    fn or_lost<T>(&self, answer: Result<T, ArtifactError>) -> Result<T, ArtifactError> {
        answer.map_err(|error| match error {
            ArtifactError::Lost(lost) => ArtifactError::Lost(self.lane.lose(lost)),
            error @ (ArtifactError::TooLarge { .. }
            | ArtifactError::Unknown { .. }
            | ArtifactError::MediaType { .. }) => error,
        })
    }

    fn kept(&self, id: ArtifactId, bytes: u64) -> KeptBytes {
        KeptBytes { artifact: Handle::seal(self.secret(), HandleKind::Artifact, id.packed()), bytes }
    }

    fn store(&self) -> &dyn Store {
        self.lane.store()
    }

    /// The secrets that no artifact may hold; mostly there are none.
    fn secrets(&self) -> Option<Arc<KnownSecrets>> {
        let vault = self.lane.vault();
        if vault.guards() { vault.known() } else { None }
    }

    pub(crate) fn secret(&self) -> &Secret {
        self.lane.store().secret()
    }
}

/// How many bytes an artifact has; `None` if it is not one of this session.
pub(crate) async fn size_in(
    store: &dyn Store,
    session: SessionNo,
    artifact: Handle,
) -> Result<Option<u64>, ArtifactError> {
    let Some(id) = look::open(store.secret(), artifact) else { return Ok(None) };
    if BlobIdentity::of(store, session, id.blob).await?.is_none() {
        return Ok(None);
    }
    Ok(store.blob_size(id.blob).await?.map(|size| size.bytes))
}

/// Checks a media type: legal in a header, without characters that end one.
pub(crate) fn check_media_type(media_type: &str, limits: &Limits) -> Result<(), ArtifactError> {
    let max = limits.media_type_chars_max;
    let is_token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte))
    };
    let (kind, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
    let is_kind = kind.trim_end().split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    let is_text = parameters.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_kind && is_text && media_type.len() as u64 <= max {
        return Ok(());
    }
    Err(ArtifactError::MediaType { media_type: media_type.chars().take(max as usize).collect(), max })
}

/// The record of a loose blob, made for this batch.
pub(crate) fn loose_row(blob: BlobNo, batch: &Used, since: Timestamp) -> Row {
    known::Loose { batch: batch.head.no, since }.row(blob)
}

impl From<StoreError> for ArtifactError {
    fn from(error: StoreError) -> ArtifactError {
        ArtifactError::Lost(error.into())
    }
}

/// The row that assigns a blob to its session: it is removed with it. Written with the first piece.
pub(super) fn owned(blob: BlobNo) -> Row {
    Row::Put { space: Space::Blob, key: blob_key(blob), value: Arc::from([]) }
}
