//! What is known of a blob beside its bytes, in records of the store.

use super::ArtifactError;
use serde::{Deserialize, Serialize};
use windlass_core::ids::{ArtifactId, BatchNo, BlobNo, SessionNo};
use windlass_core::outcome::JsonText;
use windlass_core::time::Timestamp;
use windlass_store::{Record, RecordPage, Row, STORE, Space, Store, StoreError};

/// Whose a blob is and what its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(super) session: SessionNo,
    /// The digest of its bytes.
    digest: String,
    /// As what it is looked at; an artifact names one of them by its place.
    pub(super) media_types: Vec<String>,
}

/// That nothing refers to a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loose {
    pub(super) session: SessionNo,
    /// For a call of which batch it was made.
    pub(super) batch: BatchNo,
    pub(super) since: Timestamp,
}

/// What makes bytes the same as others.
pub(crate) struct Content<'a> {
    pub(crate) digest: blake3::Hash,
    pub(crate) bytes: u64,
    pub(crate) media_type: &'a str,
}

/// What is kept by name is looked up and written by one after the other.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Whether somebody began to write and did not wait until it was durable.
    pub(crate) is_unsettled: bool,
}

#[derive(Serialize, Deserialize)]
struct KnownFields {
    session: u64,
    digest: String,
    media_types: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct LooseFields {
    session: u64,
    batch: u64,
    since_us: i64,
}

impl Known {
    /// What is known of a blob; `None` while it is written, and of what is gone.
    pub(crate) async fn of(store: &dyn Store, blob: BlobNo) -> Result<Option<Known>, ArtifactError> {
        let Some(record) = store.record(STORE, Space::Artifact, &key(blob)).await? else { return Ok(None) };
        let KnownFields { session, digest, media_types } = read(&record)?;
        Ok(Some(Known { session: SessionNo(session), digest, media_types }))
    }

    pub(super) fn new(session: SessionNo, content: &Content<'_>) -> Known {
        let media_types = vec![content.media_type.to_string()];
        Known { session, digest: content.digest.to_hex().to_string(), media_types }
    }

    /// The artifact that is this blob as this media type, if it is looked at so.
    pub(super) fn artifact(&self, blob: BlobNo, media_type: &str) -> Option<ArtifactId> {
        let place = self.media_types.iter().position(|known| known == media_type)?;
        Some(ArtifactId { blob, media: place as u16 })
    }

    /// The media type of an artifact.
    pub(super) fn media_type(&self, id: ArtifactId) -> Option<&str> {
        self.media_types.get(usize::from(id.media)).map(String::as_str)
    }

    pub(super) fn row(&self, blob: BlobNo) -> Row {
        let fields = KnownFields {
            session: self.session.0,
            digest: self.digest.clone(),
            media_types: self.media_types.clone(),
        };
        Row::Put { space: Space::Artifact, key: key(blob), value: written(&fields) }
    }

    /// The row by which it is found by its content.
    pub(super) fn content_row(&self, blob: BlobNo) -> Row {
        Row::Put { space: Space::Content, key: format!("{}/{}", self.digest, key(blob)), value: [].into() }
    }
}

impl Loose {
    pub(super) fn row(&self, blob: BlobNo) -> Row {
        let fields = LooseFields { session: self.session.0, batch: self.batch.0, since_us: self.since.0 };
        Row::Put { space: Space::Loose, key: key(blob), value: written(&fields) }
    }

    pub(super) fn of(record: &Record) -> Result<Loose, ArtifactError> {
        let LooseFields { session, batch, since_us } = read(record)?;
        Ok(Loose { session: SessionNo(session), batch: BatchNo(batch), since: Timestamp(since_us) })
    }
}

impl Content<'_> {
    /// What is recorded of it, and what a replay is compared with.
    pub(crate) fn text(&self) -> JsonText {
        let Content { digest, bytes, media_type } = self;
        let digest = digest.to_hex().to_string();
        serde_json::json!({ "bytes": bytes, "digest": digest, "media_type": media_type }).to_string().into()
    }
}

/// The rows that say what a new blob is that something refers to.
pub(super) fn content_rows(blob: BlobNo, session: SessionNo, content: &Content<'_>) -> [Row; 2] {
    let known = Known::new(session, content);
    [known.row(blob), known.content_row(blob)]
}

/// The blob of a session that has this content and that something refers to.
pub(super) async fn find(
    store: &dyn Store,
    session: SessionNo,
    content: &Content<'_>,
) -> Result<Option<(BlobNo, Known)>, ArtifactError> {
    let prefix = format!("{}/", content.digest.to_hex());
    let page = RecordPage { session, space: Space::Content, prefix: &prefix, after: None, limit: 1 };
    let found = store.records(page).await?;
    let blob = found.first().and_then(|record| blob_of(record.key.strip_prefix(&prefix)?));
    let Some(blob) = blob else { return Ok(None) };
    Ok(Known::of(store, blob).await?.map(|known| (blob, known)))
}

/// Whether nothing refers to a blob.
pub(super) async fn is_loose(store: &dyn Store, blob: BlobNo) -> Result<bool, ArtifactError> {
    Ok(store.record(STORE, Space::Loose, &key(blob)).await?.is_some())
}

/// The key of the records about a blob: they are listed in the order of their numbers.
pub(super) fn key(blob: BlobNo) -> String {
    format!("{:016x}", blob.0)
}

/// The blob that records of this key are about.
pub(super) fn blob_of(key: &str) -> Option<BlobNo> {
    u64::from_str_radix(key, 16).ok().map(BlobNo)
}

fn written(fields: &impl Serialize) -> std::sync::Arc<[u8]> {
    // Numbers and texts can always be written.
    serde_json::to_vec(fields).unwrap_or_default().into()
}

fn read<'a, T: Deserialize<'a>>(record: &'a Record) -> Result<T, ArtifactError> {
    serde_json::from_slice(&record.value).map_err(|error| {
        ArtifactError::from(StoreError::Io {
            doing: "read what is known of an artifact",
            source: Box::new(error),
        })
    })
}
