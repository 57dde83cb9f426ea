//! Writing artifacts piece by piece.

use super::known::{self, BlobIdentity, ContentDigest, FoundBlob};
use super::{Artifacts, check_media_type, collect, loose_row, owned};
use crate::api::clock::Clock;
use crate::api::data_error::ArtifactError;
use crate::session::batch::Used;
use std::sync::Arc;
use windlass_core::handle::content_hasher;
use windlass_core::ids::{ArtifactId, BlobNo};
use windlass_core::outcome::KeptBytes;
use windlass_core::redact::StreamScrubber;
use windlass_store::{Row, Space, blob_key};

/// Writes an artifact piece by piece. Each piece is durable before the next is taken, so a fast tool waits
/// for the disk instead of filling memory.
pub struct ArtifactWriter {
    artifacts: Artifacts,
    batch: Used,
    clock: Arc<dyn Clock>,
    hasher: blake3::Hasher,
    /// `Some` once the first piece was stored.
    blob: Option<BlobNo>,
    seq: u32,
    bytes: u64,
    waiting: Vec<u8>,
    /// The end of what was written, if it may be the beginning of a secret.
    scrubber: StreamScrubber,
}

/// A complete artifact.
pub(crate) struct Closed {
    pub(crate) kept: KeptBytes,
    /// The rows still to be written.
    pub(crate) rows: Vec<Row>,
    /// Stored pieces that are not needed, since the same bytes existed already.
    spare: Option<BlobNo>,
}

impl ArtifactWriter {
    pub(super) fn new(artifacts: Artifacts, batch: Used, clock: Arc<dyn Clock>) -> ArtifactWriter {
        let hasher = content_hasher(artifacts.secret());
        let (waiting, scrubber) = (Vec::new(), StreamScrubber::default());
        ArtifactWriter { artifacts, batch, clock, hasher, blob: None, seq: 0, bytes: 0, waiting, scrubber }
    }

    /// Adds bytes to the end.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        match self.artifacts.secrets() {
            Some(known) => {
                let scrubbed = self.scrubber.push(&known, bytes);
                self.write_scrubbed(&scrubbed).await
            }
            None => self.write_scrubbed(bytes).await,
        }
    }

    /// Writes what was held back: no more comes.
    pub(crate) async fn write_rest(&mut self) -> Result<(), ArtifactError> {
        let rest = self.rest();
        self.write_scrubbed(&rest).await
    }

    fn rest(&mut self) -> Vec<u8> {
        let known = self.artifacts.secrets().filter(|_| self.scrubber.is_holding());
        known.map(|known| self.scrubber.finish(&known)).unwrap_or_default()
    }

    async fn write_scrubbed(&mut self, mut bytes: &[u8]) -> Result<(), ArtifactError> {
        self.count_scrubbed(bytes)?;
        let size = self.artifacts.limits().chunk_bytes_max as usize;
        while !bytes.is_empty() {
            // The last piece is stored with the record of the whole.
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

    /// Ends the artifact and returns its name, with this media type. An artifact that is dropped without this
    /// has no name, and one that the result of its call does not name is removed some time after the call.
    pub async fn finish(mut self, media_type: &str) -> Result<KeptBytes, ArtifactError> {
        check_media_type(media_type, self.artifacts.limits())?;
        self.write_rest().await?;
        let content = self.content(media_type);
        if let Some((found, rows)) = self.artifacts.find(&content, self.batch.head.no).await? {
            if !rows.is_empty() {
                // Now: the batch that stored it may expire before this one refers to it.
                self.send(rows).await?;
            }
            let kept = self.artifacts.kept(found, content.bytes);
            self.spare(self.blob).await;
            return Ok(kept);
        }
        let blob = self.blob().await?;
        let rows = vec![
            self.last_piece(blob),
            BlobIdentity::new(&content).row(blob),
            loose_row(blob, &self.batch, self.clock.now()),
        ];
        self.send(rows).await?;
        Ok(self.artifacts.kept(ArtifactId { blob, media: 0 }, content.bytes))
    }

    /// Counts and hashes bytes without storing them.
    pub(crate) fn count(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        match self.artifacts.secrets() {
            Some(known) => {
                let scrubbed = self.scrubber.push(&known, bytes);
                self.count_scrubbed(&scrubbed)
            }
            None => self.count_scrubbed(bytes),
        }
    }

    /// Counts what was held back: no more comes.
    pub(crate) fn count_rest(&mut self) -> Result<(), ArtifactError> {
        let rest = self.rest();
        self.count_scrubbed(&rest)
    }

    fn count_scrubbed(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let max = self.artifacts.limits().artifact_bytes_max;
        if self.bytes + bytes.len() as u64 > max {
            return Err(ArtifactError::TooLarge { max });
        }
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
        Ok(())
    }

    pub(crate) fn content<'a>(&self, media_type: &'a str) -> ContentDigest<'a> {
        ContentDigest { digest: self.hasher.finalize(), bytes: self.bytes, media_type }
    }

    /// The rows to be written so that something refers to these bytes. The caller holds [`Keeping`] until
    /// they are durable.
    pub(crate) async fn close(&mut self, content: &ContentDigest<'_>) -> Result<Closed, ArtifactError> {
        let artifacts = self.artifacts.clone();
        let types_max = artifacts.limits().artifact_media_types_max as usize;
        if let Some(found) = artifacts.find_blob(content).await? {
            let (spare, mut rows) = (self.blob, found.refer(self.batch.head.no));
            let FoundBlob { blob, mut known, .. } = found;
            if let Some(found) = known.artifact(blob, content.media_type) {
                return Ok(Closed { kept: artifacts.kept(found, content.bytes), rows, spare });
            }
            if known.media_types.len() < types_max {
                let media = known.media_types.len() as u16;
                known.media_types.push(content.media_type.to_string());
                let kept = artifacts.kept(ArtifactId { blob, media }, content.bytes);
                rows.push(known.row(blob));
                return Ok(Closed { kept, rows, spare });
            }
        }
        let blob = self.blob().await?;
        let mut rows = vec![self.last_piece(blob)];
        rows.extend(known::content_rows(blob, content, self.batch.head.no));
        if self.seq > 0 {
            rows.push(Row::Remove { space: Space::Loose, key: blob_key(blob) });
        }
        Ok(Closed { kept: artifacts.kept(ArtifactId { blob, media: 0 }, content.bytes), rows, spare: None })
    }

    /// Removes pieces that are not needed. If that fails now, they are loose, and removed later.
    pub(crate) async fn discard(&self, closed: &Closed) {
        self.spare(closed.spare).await;
    }

    async fn spare(&self, blob: Option<BlobNo>) {
        let Some(blob) = blob else { return };
        if let Err(error) = collect::remove(self.artifacts.lane(), blob).await {
            tracing::warn!(%blob, error = %crate::api::error::chain(&error), "bytes that are kept twice could not be removed yet");
        }
    }

    async fn blob(&mut self) -> Result<BlobNo, ArtifactError> {
        match self.blob {
            Some(blob) => Ok(blob),
            None => Ok(*self.blob.insert(self.artifacts.reserve().await?)),
        }
    }

    fn last_piece(&self, blob: BlobNo) -> Row {
        Row::Chunk { blob, seq: self.seq, data: self.waiting.as_slice().into() }
    }

    async fn store_piece(&mut self) -> Result<(), ArtifactError> {
        let blob = self.blob().await?;
        let mut rows = vec![self.last_piece(blob), loose_row(blob, &self.batch, self.clock.now())];
        rows.extend((self.seq == 0).then(|| owned(blob)));
        self.waiting.clear();
        self.send(rows).await?;
        self.seq += 1;
        Ok(())
    }

    async fn send(&self, rows: Vec<Row>) -> Result<(), ArtifactError> {
        let lane = self.artifacts.lane();
        // Loose blobs stay while their batch is open, so the batch is recorded first.
        drop(self.batch.send_calls(lane));
        lane.commit_rows(rows).await.map_err(ArtifactError::Lost)
    }
}
