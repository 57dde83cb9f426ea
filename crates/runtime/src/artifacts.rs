//! Bytes kept beside the journal, written and read in chunks so that they never lie whole in memory.

use crate::error::Lost;
use crate::inside::nested;
use crate::lane::Lane;
use crate::tool::Place;
use std::sync::Arc;
use windlass_core::handle::{Handle, Kind, Secret, idempotency_key};
use windlass_core::ids::{BlobNo, CallId};
use windlass_core::limits::Limits;
use windlass_core::outcome::Kept;
use windlass_store::{Row, Sequence, Space, Store, StoreError, blob_key};

/// A session's artifacts.
#[derive(Clone)]
pub(crate) struct Artifacts {
    lane: Arc<Lane>,
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

    pub(crate) fn writer(&self) -> ArtifactWriter {
        ArtifactWriter { artifacts: self.clone(), blob: None, seq: 0, bytes: 0, waiting: Vec::new() }
    }

    pub(crate) async fn read(
        &self,
        artifact: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        let unknown = ArtifactError::Unknown { artifact };
        let Some(blob) = artifact.open(self.secret(), Kind::Artifact) else { return Err(unknown) };
        let bytes = self.store().blob(BlobNo(blob), offset, len).await.map_err(ArtifactError::from)?;
        bytes.ok_or(unknown)
    }

    /// Reserves a blob and cuts `bytes` into the rows that keep them; whoever commits the rows keeps the blob.
    pub(crate) async fn rows(&self, bytes: &[u8]) -> Result<(Kept, Vec<Row>), ArtifactError> {
        let max = self.limits().artifact_bytes_max;
        if bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        let blob = self.reserve().await?;
        let size = self.limits().chunk_bytes_max as usize;
        let pieces = bytes.chunks(size).zip(0..);
        let mut rows: Vec<Row> =
            pieces.map(|(piece, seq)| Row::Chunk { blob, seq, data: piece.into() }).collect();
        rows.push(owned(blob));
        Ok((self.kept(blob, bytes.len() as u64), rows))
    }

    async fn reserve(&self) -> Result<BlobNo, ArtifactError> {
        let number = self.store().reserve(Sequence::Blob, 1).await;
        // Without the store the tool's work cannot be recorded; that is not a failure of the tool.
        number.map(BlobNo).map_err(|error| ArtifactError::Lost(self.lane.lose(error.into())))
    }

    fn kept(&self, blob: BlobNo, bytes: u64) -> Kept {
        Kept { artifact: Handle::seal(self.secret(), Kind::Artifact, blob.0), bytes }
    }

    fn store(&self) -> &dyn Store {
        self.lane.store()
    }

    pub(crate) fn secret(&self) -> &Secret {
        self.lane.store().secret()
    }
}

impl From<StoreError> for ArtifactError {
    fn from(error: StoreError) -> ArtifactError {
        ArtifactError::Lost(error.into())
    }
}

/// Says whose a blob is: it goes with its session.
fn owned(blob: BlobNo) -> Row {
    Row::Put { space: Space::Blob, key: blob_key(blob), value: Arc::from([]) }
}

/// Keeps bytes as they come. What was written is durable before the next piece is taken, so a fast tool waits
/// for the disk instead of filling memory.
pub struct ArtifactWriter {
    artifacts: Artifacts,
    blob: Option<BlobNo>,
    seq: u32,
    bytes: u64,
    waiting: Vec<u8>,
}

impl ArtifactWriter {
    /// Adds bytes to the end.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), ArtifactError> {
        let limits = self.artifacts.limits();
        let (max, size) = (limits.artifact_bytes_max, limits.chunk_bytes_max as usize);
        if self.bytes + bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = size - self.waiting.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
            if self.waiting.len() == size {
                self.store_piece().await?;
            }
        }
        Ok(())
    }

    /// Ends the artifact and names it. One that is dropped without this is never named.
    pub async fn finish(mut self) -> Result<Kept, ArtifactError> {
        if !self.waiting.is_empty() || self.blob.is_none() {
            self.store_piece().await?;
        }
        let blob = self.blob.unwrap_or(BlobNo(0));
        Ok(self.artifacts.kept(blob, self.bytes))
    }

    async fn store_piece(&mut self) -> Result<(), ArtifactError> {
        let blob = match self.blob {
            Some(blob) => blob,
            None => *self.blob.insert(self.artifacts.reserve().await?),
        };
        let mut rows = vec![Row::Chunk { blob, seq: self.seq, data: self.waiting.as_slice().into() }];
        if self.seq == 0 {
            rows.push(owned(blob));
        }
        self.waiting.clear();
        self.seq += 1;
        self.artifacts.lane.commit_rows(rows).await.map_err(ArtifactError::Lost)
    }
}
