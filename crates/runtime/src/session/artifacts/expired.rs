//! The artifacts of a batch that expires become loose, unless another batch refers to them.

use super::known::{BlobIdentity, BlobUse, Loose};
use super::look;
use crate::api::data_error::ArtifactError;
use crate::session::inner::Inner;
use crate::session::lane::Lane;
use std::collections::BTreeSet;
use windlass_core::batch::Batch;
use windlass_core::call::Call;
use windlass_core::handle::Handle;
use windlass_core::ids::{BatchNo, BlobNo};
use windlass_core::operation::Operations;
use windlass_core::outcome::{Outcome, Part, Value};
use windlass_store::{Guard, Row, Space};

/// The rows by which a batch no longer refers to its artifacts, and the conditions that nobody else does by then. A blob that several
/// batches refer to stays as long as its session.
pub(crate) async fn loosen(
    rt: &Inner,
    lane: &Lane,
    no: BatchNo,
    batch: &Batch,
) -> Result<(Vec<Row>, Vec<Guard>), ArtifactError> {
    let (mut rows, mut guards) = (Vec::new(), Vec::new());
    let named: BTreeSet<BlobNo> = batch
        .calls
        .iter()
        .flat_map(artifacts)
        .filter_map(|artifact| look::open(rt.store.secret(), artifact))
        .map(|id| id.blob)
        .collect();
    for blob in named {
        // The blob of another session is not found here.
        let Some(known) = BlobIdentity::of(&*rt.store, lane.session(), blob).await? else { continue };
        let content = known.content_key(blob);
        let contents = Space::Content.of(lane.session());
        let Some(record) = rt.store.record(contents, &content).await? else { continue };
        if BlobUse::of(&record) != BlobUse::Batch(no) {
            continue;
        }
        guards.push(Guard::Generation { space: Space::Content, key: content.clone(), is: record.generation });
        rows.push(Row::Remove { space: Space::Content, key: content });
        rows.push(Loose { batch: no, since: rt.clock.now() }.row(blob));
    }
    Ok((rows, guards))
}

/// The artifacts that the record of a call names.
fn artifacts(call: &Call) -> Vec<Handle> {
    let mut found = Vec::new();
    let (parts, side) = match call.outcome() {
        Some(Outcome::Succeeded(success)) => {
            if let Value::Kept { kept, .. } = &success.value {
                found.push(kept.artifact);
            }
            (&*success.parts, success.side.as_deref())
        }
        Some(Outcome::Failed(failure)) => (&*failure.parts, failure.side.as_deref()),
        Some(Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown) | None => (&[][..], None),
    };
    found.extend(side.and_then(|side| side.raw).map(|raw| raw.artifact));
    found.extend(parts.iter().filter_map(file));
    found.extend(call.end().into_iter().flat_map(|end| end.model().parts).filter_map(|part| file(&part)));
    let operations = call.operations.as_deref().into_iter();
    found.extend(operations.flat_map(Operations::attachments).map(|kept| kept.artifact));
    found
}

fn file(part: &Part) -> Option<Handle> {
    part.kept().map(|kept| kept.artifact)
}
