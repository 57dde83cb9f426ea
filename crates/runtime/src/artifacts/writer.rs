//! Keeping bytes as they come.

use super::known::{self, Content, Known};
use super::{ArtifactError, Artifacts, check_media_type, collect, loose_row, owned};
use crate::batch::Used;
use crate::clock::Clock;
use std::sync::Arc;
use windlass_core::handle::content_hasher;
use windlass_core::ids::{ArtifactId, BlobNo};
use windlass_core::outcome::Kept;
use windlass_store::{Row, Space};

/// Keeps bytes as they come. What was written is durable before the next piece is taken, so a fast tool waits
/// for the disk instead of filling memory.
pub struct ArtifactWriter {
    artifacts: Artifacts,
    batch: Used,
    clock: Arc<dyn Clock>,
    hasher: blake3::Hasher,
    /// Once the first piece was stored.
    blob: Option<BlobNo>,
    seq: u32,
    bytes: u64,
    waiting: Vec<u8>,
}

/// Bytes that have all come.
pub(crate) struct Closed {
    pub(crate) kept: Kept,
    /// What is still to be written.
    pub(crate) rows: Vec<Row>,
    /// Pieces that were stored and are not needed, since the same bytes were there.
    spare: Option<BlobNo>,
}

impl ArtifactWriter {
    pub(super) fn new(artifacts: Artifacts, batch: Used, clock: Arc<dyn Clock>) -> ArtifactWriter {
        let hasher = content_hasher(artifacts.secret());
        ArtifactWriter { artifacts, batch, clock, hasher, blob: None, seq: 0, bytes: 0, waiting: Vec::new() }
    }

    /// Adds bytes to the end.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), ArtifactError> {
        self.count(bytes)?;
        let size = self.artifacts.limits().chunk_bytes_max as usize;
        while !bytes.is_empty() {
            // The last piece is stored with what is recorded of all.
            if self.waiting.len() == size {
                self.store_piece().await?;
            }
            let room = size - self.waiting.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.waiting.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Ends the artifact and names it, as bytes of this media type. One that is dropped without this is never named, and one
    /// that the result of its call does not name is removed some time after the call.
    pub async fn finish(mut self, media_type: &str) -> Result<Kept, ArtifactError> {
        check_media_type(media_type, self.artifacts.limits())?;
        let content = self.content(media_type);
        if let Some(found) = self.artifacts.find(&content).await? {
            let kept = self.artifacts.kept(found, content.bytes);
            self.spare(self.blob).await;
            return Ok(kept);
        }
        let blob = self.blob().await?;
        let mut rows = self.first_rows(blob);
        rows.extend([
            self.last_piece(blob),
            Known::new(self.artifacts.lane.session(), &content).row(blob),
            loose_row(blob, &self.batch, &self.artifacts.lane, self.clock.now()),
        ]);
        self.send(rows).await?;
        Ok(self.artifacts.kept(ArtifactId { blob, media: 0 }, content.bytes))
    }

    /// Counts and adds up bytes without keeping them.
    pub(crate) fn count(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let max = self.artifacts.limits().artifact_bytes_max;
        if self.bytes + bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }

    pub(crate) fn content<'a>(&self, media_type: &'a str) -> Content<'a> {
        Content { digest: self.hasher.finalize(), bytes: self.bytes, media_type }
    }

    /// What is to be written so that something refers to these bytes. Whoever asks is keeping, and until that is durable
    /// nobody else does.
    pub(crate) async fn close(&mut self, content: &Content<'_>) -> Result<Closed, ArtifactError> {
        let artifacts = self.artifacts.clone();
        let types_max = artifacts.limits().artifact_media_types_max as usize;
        if let Some((blob, mut known)) = artifacts.find_blob(content).await? {
            let spare = self.blob;
            if let Some(found) = known.artifact(blob, content.media_type) {
                return Ok(Closed { kept: artifacts.kept(found, content.bytes), rows: Vec::new(), spare });
            }
            if known.media_types.len() < types_max {
                let media = known.media_types.len() as u16;
                known.media_types.push(content.media_type.to_string());
                let kept = artifacts.kept(ArtifactId { blob, media }, content.bytes);
                return Ok(Closed { kept, rows: vec![known.row(blob)], spare });
            }
        }
        let blob = self.blob().await?;
        let mut rows = self.first_rows(blob);
        rows.push(self.last_piece(blob));
        rows.extend(known::content_rows(blob, artifacts.lane.session(), content));
        if self.seq > 0 {
            rows.push(Row::Remove { space: Space::Loose, key: known::key(blob) });
        }
        Ok(Closed { kept: artifacts.kept(ArtifactId { blob, media: 0 }, content.bytes), rows, spare: None })
    }

    /// Removes pieces that are not needed. What cannot be removed now is loose, and removed later.
    pub(crate) async fn discard(&self, closed: &Closed) {
        self.spare(closed.spare).await;
    }

    async fn spare(&self, blob: Option<BlobNo>) {
        let Some(blob) = blob else { return };
        if let Err(error) = collect::remove(self.artifacts.store(), blob).await {
            tracing::warn!(%blob, error = %crate::chain(&error), "bytes that are kept twice could not be removed yet");
        }
    }

    async fn blob(&mut self) -> Result<BlobNo, ArtifactError> {
        match self.blob {
            Some(blob) => Ok(blob),
            None => Ok(*self.blob.insert(self.artifacts.reserve().await?)),
        }
    }

    /// What is written before its first piece.
    fn first_rows(&self, blob: BlobNo) -> Vec<Row> {
        if self.seq == 0 { vec![owned(blob)] } else { Vec::new() }
    }

    fn last_piece(&self, blob: BlobNo) -> Row {
        Row::Chunk { blob, seq: self.seq, data: self.waiting.as_slice().into() }
    }

    async fn store_piece(&mut self) -> Result<(), ArtifactError> {
        let blob = self.blob().await?;
        let loose = loose_row(blob, &self.batch, &self.artifacts.lane, self.clock.now());
        let mut rows = self.first_rows(blob);
        rows.extend([self.last_piece(blob), loose]);
        self.waiting.clear();
        self.send(rows).await?;
        self.seq += 1;
        Ok(())
    }

    async fn send(&self, rows: Vec<Row>) -> Result<(), ArtifactError> {
        let lane = self.artifacts.lane();
        // While its batch is open what is loose stays, so that is recorded first.
        drop(self.batch.send_calls(lane));
        lane.commit_rows(rows).await.map_err(ArtifactError::Lost)
    }
}
