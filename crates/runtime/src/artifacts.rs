//! Bytes kept beside the journal, written and read in chunks so that they never lie whole in memory.
//!
//! A blob is kept once for equal bytes of a session. As long as nothing refers to it, it is *loose*: a record says which
//! batch it was made for and since when, and [`collect`] removes it once that batch is over and its time is up. Whatever
//! refers to a blob takes that record away in the change that records the reference; only what is referred to is found
//! by its content, so nobody can build upon what is about to be removed.

mod collect;
mod known;
mod look;
mod writer;

pub(crate) use collect::{forget_session, look_over, sweep, sweep_us};
pub(crate) use known::{Content, Keeping};
pub use look::ArtifactInfo;
pub use writer::ArtifactWriter;

use crate::batch::Used;
use crate::error::Lost;
use crate::inside::nested;
use crate::lane::Lane;
use crate::tool::Place;
use known::{Known, content_rows};
use std::sync::Arc;
use windlass_core::handle::{Handle, Kind, Secret, content_hasher, idempotency_key};
use windlass_core::ids::{ArtifactId, BlobNo, CallId};
use windlass_core::limits::Limits;
use windlass_core::outcome::{Kept, Part};
use windlass_core::time::Timestamp;
use windlass_store::{Row, Sequence, Space, Store, StoreError, blob_key};

/// A session's artifacts.
#[derive(Clone)]
pub(crate) struct Artifacts {
    lane: Arc<Lane>,
}

/// What [`Cx::attach`](crate::Cx::attach) kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its name and its size.
    pub kept: Kept,
    /// Its media type.
    pub media_type: String,
}

impl Artifact {
    /// The artifact as a part of an answer, under this name.
    pub fn into_part(self, name: impl Into<String>) -> Part {
        Part::File { kept: self.kept, media_type: self.media_type, name: name.into() }
    }
}

/// Why an artifact could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is larger than what is kept.
    #[error("the output is larger than {max} bytes, which is the most that is kept of one; ask for less")]
    TooLarge {
        /// The limit `artifact_bytes_max`.
        max: u64,
    },
    /// There is none of that name.
    #[error("there is no artifact {artifact}; take the id from the answer that named it")]
    Unknown {
        /// What was asked for.
        artifact: Handle,
    },
    /// Nothing can be of this media type.
    #[error("{media_type:?} is no media type; say one like text/plain, with at most {max} characters")]
    MediaType {
        /// What was said.
        media_type: String,
        /// The limit `media_type_chars_max`.
        max: u64,
    },
    /// The store could not do it.
    #[error("the artifact could not be stored or read")]
    Lost(#[source] Lost),
}

impl Artifacts {
    pub(crate) fn new(lane: Arc<Lane>) -> Artifacts {
        Artifacts { lane }
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.lane.limits()
    }

    pub(crate) fn idempotency_key(&self, place: &Place, id: &str) -> String {
        idempotency_key(self.secret(), &place.session, nested::first_key(&place.batch_key), id)
    }

    pub(crate) fn call_handle(&self, call: CallId) -> Handle {
        Handle::seal(self.secret(), Kind::Call, call.packed())
    }

    /// Starts to keep bytes for a call of this batch; nothing refers to them at first.
    pub(crate) fn writer(&self, batch: Used, clock: Arc<dyn crate::Clock>) -> ArtifactWriter {
        ArtifactWriter::new(self.clone(), batch, clock)
    }

    /// Bytes of an artifact of this session.
    pub(crate) async fn read(
        &self,
        artifact: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        let id = self.opened(artifact).await?;
        let bytes = self.store().blob(id.blob, offset, len).await.map_err(ArtifactError::from)?;
        bytes.ok_or(ArtifactError::Unknown { artifact })
    }

    /// What a handle names, if it is this session's.
    async fn opened(&self, artifact: Handle) -> Result<ArtifactId, ArtifactError> {
        let unknown = ArtifactError::Unknown { artifact };
        let Some(id) = look::open(self.secret(), artifact) else { return Err(unknown) };
        match Known::of(self.store(), id.blob).await? {
            Some(known) if known.session != self.lane.session() => Err(unknown),
            // What was kept before it was known whose it is can be read by whoever has its name.
            Some(_) | None => Ok(id),
        }
    }

    /// Finds bytes that are kept already, or cuts them into the rows that keep them; whoever commits the rows refers to them.
    pub(crate) async fn rows(
        &self,
        bytes: &[u8],
        media_type: &str,
    ) -> Result<(Kept, Vec<Row>), ArtifactError> {
        let max = self.limits().artifact_bytes_max;
        if bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        let digest = content_hasher(self.secret()).update(bytes).finalize();
        let content = Content { digest, bytes: bytes.len() as u64, media_type };
        if let Some(found) = self.find(&content).await? {
            return Ok((self.kept(found, content.bytes), Vec::new()));
        }
        let blob = self.reserve().await?;
        let size = self.limits().chunk_bytes_max as usize;
        let pieces = bytes.chunks(size).zip(0..);
        let mut rows: Vec<Row> =
            pieces.map(|(piece, seq)| Row::Chunk { blob, seq, data: piece.into() }).collect();
        rows.push(owned(blob));
        rows.extend(content_rows(blob, self.lane.session(), &content));
        Ok((self.kept(ArtifactId { blob, media: 0 }, content.bytes), rows))
    }

    /// The rows by which an outcome refers to what it names, which must be there.
    pub(crate) async fn refer(&self, artifact: Handle) -> Result<Vec<Row>, ArtifactError> {
        self.or_lost(self.referring(artifact).await)
    }

    async fn referring(&self, artifact: Handle) -> Result<Vec<Row>, ArtifactError> {
        let ArtifactId { blob, .. } = self.opened(artifact).await?;
        let unknown = ArtifactError::Unknown { artifact };
        let Some(known) = Known::of(self.store(), blob).await? else {
            let size = self.store().blob_size(blob).await.map_err(ArtifactError::from)?;
            return size.map(|_| Vec::new()).ok_or(unknown);
        };
        if !known::is_loose(self.store(), blob).await? {
            return Ok(Vec::new());
        }
        Ok(vec![Row::Remove { space: Space::Loose, key: known::key(blob) }, known.content_row(blob)])
    }

    /// The artifact that has this content already.
    async fn find(&self, content: &Content<'_>) -> Result<Option<ArtifactId>, ArtifactError> {
        let found = self.find_blob(content).await?;
        Ok(found.and_then(|(blob, known)| known.artifact(blob, content.media_type)))
    }

    /// The blob that has these bytes already, whatever its media types.
    async fn find_blob(&self, content: &Content<'_>) -> Result<Option<(BlobNo, Known)>, ArtifactError> {
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

    fn kept(&self, id: ArtifactId, bytes: u64) -> Kept {
        Kept { artifact: Handle::seal(self.secret(), Kind::Artifact, id.packed()), bytes }
    }

    fn store(&self) -> &dyn Store {
        self.lane.store()
    }

    pub(crate) fn secret(&self) -> &Secret {
        self.lane.store().secret()
    }
}

/// Whether bytes can be of this media type: what stands in a header, and nothing that ends one.
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

/// Loose since then, made for this batch.
pub(crate) fn loose_row(blob: BlobNo, batch: &Used, lane: &Lane, since: Timestamp) -> Row {
    known::Loose { session: lane.session(), batch: batch.head.no, since }.row(blob)
}

impl From<StoreError> for ArtifactError {
    fn from(error: StoreError) -> ArtifactError {
        ArtifactError::Lost(error.into())
    }
}

/// Says whose a blob is: it goes with its session. Written with its first piece.
pub(super) fn owned(blob: BlobNo) -> Row {
    Row::Put { space: Space::Blob, key: blob_key(blob), value: Arc::from([]) }
}
