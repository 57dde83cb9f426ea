//! Metadata of blobs, in records of their session.

use crate::api::data_error::ArtifactError;
use serde::{Deserialize, Serialize};
use windlass_core::ids::{ArtifactId, BatchNo, BlobNo, SessionNo};
use windlass_core::outcome::JsonText;
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store, StoreError, StoredRecord, blob_key};

/// The digest and the media types of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlobIdentity {
    /// The digest of its bytes.
    digest: String,
    /// Its media types; an artifact refers to one of them by index.
    pub(super) media_types: Vec<String>,
}

/// The batches that refer to a blob. Versions before this one wrote no number, so their blobs count as shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlobUse {
    /// Only this one.
    Batch(BatchNo),
    /// Several, or it is not known which.
    Shared,
}

impl BlobUse {
    pub(super) fn of(record: &StoredRecord) -> BlobUse {
        let number = record.value.as_slice().try_into().map(u64::from_le_bytes);
        number.map_or(BlobUse::Shared, |number| BlobUse::Batch(BatchNo(number)))
    }
}

/// A blob that is found by its content.
pub(super) struct FoundBlob {
    pub(super) blob: BlobNo,
    pub(super) known: BlobIdentity,
    pub(super) used: BlobUse,
}

impl FoundBlob {
    /// The rows by which a batch refers to it, too. It may just have lost its only reference.
    pub(super) fn refer(&self, batch: BatchNo) -> Vec<Row> {
        match self.used {
            BlobUse::Batch(user) if user != batch => vec![
                self.known.content_row(self.blob, BlobUse::Shared),
                Row::Remove { space: Space::Loose, key: blob_key(self.blob) },
            ],
            BlobUse::Batch(_) | BlobUse::Shared => Vec::new(),
        }
    }
}

/// Marks a blob without references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loose {
    /// The batch of the call it was made for.
    pub(super) batch: BatchNo,
    pub(super) since: Timestamp,
}

/// The content by which equal bytes are found.
pub(crate) struct ContentDigest<'a> {
    pub(crate) digest: blake3::Hash,
    pub(crate) bytes: u64,
    pub(crate) media_type: &'a str,
}

/// Serialises looking up and writing named content.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Whether a write began that was not waited for.
    pub(crate) is_unsettled: bool,
}

#[derive(Serialize, Deserialize)]
struct KnownFields {
    digest: String,
    media_types: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct LooseFields {
    batch: u64,
    since_us: i64,
}

impl BlobIdentity {
    /// The metadata of a session's blob; `None` while it is written, and once it is removed.
    pub(crate) async fn of(
        store: &dyn Store,
        session: SessionNo,
        blob: BlobNo,
    ) -> Result<Option<BlobIdentity>, ArtifactError> {
        let record = store.record(Space::Blob.of(session), &blob_key(blob)).await?;
        let Some(record) = record.filter(|record| !record.value.is_empty()) else { return Ok(None) };
        let KnownFields { digest, media_types } = read(&record)?;
        Ok(Some(BlobIdentity { digest, media_types }))
    }

    pub(super) fn new(content: &ContentDigest<'_>) -> BlobIdentity {
        let media_types = vec![content.media_type.to_string()];
        BlobIdentity { digest: content.digest.to_hex().to_string(), media_types }
    }

    /// The artifact for this blob with this media type, if it has that type.
    pub(super) fn artifact(&self, blob: BlobNo, media_type: &str) -> Option<ArtifactId> {
        let place = self.media_types.iter().position(|known| known == media_type)?;
        Some(ArtifactId { blob, media: place as u16 })
    }

    /// The media type of an artifact.
    pub(super) fn media_type(&self, id: ArtifactId) -> Option<&str> {
        self.media_types.get(usize::from(id.media)).map(String::as_str)
    }

    /// The row that completes a blob. It also assigns the blob to its session.
    pub(super) fn row(&self, blob: BlobNo) -> Row {
        let fields = KnownFields { digest: self.digest.clone(), media_types: self.media_types.clone() };
        Row::Put { space: Space::Blob, key: blob_key(blob), value: written(&fields) }
    }

    /// The row by which it is found by its content. It says which batch refers to it, as long as only one does.
    pub(super) fn content_row(&self, blob: BlobNo, by: BlobUse) -> Row {
        let value = match by {
            BlobUse::Batch(batch) => batch.0.to_le_bytes().into(),
            BlobUse::Shared => [].into(),
        };
        Row::Put { space: Space::Content, key: self.content_key(blob), value }
    }

    pub(super) fn content_key(&self, blob: BlobNo) -> String {
        format!("{}/{}", self.digest, blob_key(blob))
    }
}

impl Loose {
    pub(super) fn row(&self, blob: BlobNo) -> Row {
        let fields = LooseFields { batch: self.batch.0, since_us: self.since.0 };
        Row::Put { space: Space::Loose, key: blob_key(blob), value: written(&fields) }
    }

    pub(super) fn of(record: &StoredRecord) -> Result<Loose, ArtifactError> {
        let LooseFields { batch, since_us } = read(record)?;
        Ok(Loose { batch: BatchNo(batch), since: Timestamp(since_us) })
    }
}

impl ContentDigest<'_> {
    /// The recorded form, which a replay is compared with.
    pub(crate) fn text(&self) -> JsonText {
        let ContentDigest { digest, bytes, media_type } = self;
        let digest = digest.to_hex().to_string();
        serde_json::json!({ "bytes": bytes, "digest": digest, "media_type": media_type }).to_string().into()
    }
}

/// The rows that describe a new, referenced blob.
pub(super) fn content_rows(blob: BlobNo, content: &ContentDigest<'_>, batch: BatchNo) -> [Row; 2] {
    let known = BlobIdentity::new(content);
    [known.row(blob), known.content_row(blob, BlobUse::Batch(batch))]
}

/// The referenced blob of a session with this content.
pub(super) async fn find(
    store: &dyn Store,
    session: SessionNo,
    content: &ContentDigest<'_>,
) -> Result<Option<FoundBlob>, ArtifactError> {
    let prefix = format!("{}/", content.digest.to_hex());
    let page = RecordPage { shelf: Space::Content.of(session), prefix: &prefix, after: None, limit: 1 };
    let found = store.records(page).await?;
    let record = found.first().and_then(|record| Some((record, blob_of(record.key.strip_prefix(&prefix)?)?)));
    let Some((record, blob)) = record else { return Ok(None) };
    let used = BlobUse::of(record);
    Ok(BlobIdentity::of(store, session, blob).await?.map(|known| FoundBlob { blob, known, used }))
}

/// The blob of a key that [`blob_key`] made.
pub(super) fn blob_of(key: &str) -> Option<BlobNo> {
    u64::from_str_radix(key, 16).ok().map(BlobNo)
}

fn written(fields: &impl Serialize) -> std::sync::Arc<[u8]> {
    // Numbers and texts can always be serialised.
    serde_json::to_vec(fields).unwrap_or_default().into()
}

fn read<'a, T: Deserialize<'a>>(record: &'a StoredRecord) -> Result<T, ArtifactError> {
    serde_json::from_slice(&record.value).map_err(|error| {
        ArtifactError::from(StoreError::Io {
            doing: "read what is known of an artifact",
            source: Box::new(error),
        })
    })
}
