//! Writes that a store can do and no runtime does yet, so that they have their kill points visited: a message for a
//! session's owner, its adoption, a mark, a record that is put and removed, and a change that turns out to be impossible half-way.

use anyhow::{Result, anyhow, bail};
use windlass_core::ids::{BatchNo, BlobNo, CallId, Fence, Mark, Ordinal, SessionNo};
use windlass_store::{Hold, Inbound, Posted, Refused, Row, Sequence, SessionChange, Space, Store};

const SESSION: &str = "aside";
const KEY: &str = "message";

/// Does what is still to be done of it; whoever died in the middle is followed by one who goes on.
pub async fn run(store: &dyn Store) -> Result<()> {
    let (session, fence) = own(store).await?;
    let message = Inbound { session, key: KEY.to_owned(), body: b"hello".to_vec() };
    if store.post(message).await? == Posted::Differs {
        bail!("R1: the message changed");
    }
    let held = |rows| SessionChange { session, hold: Hold::Held(fence), guards: vec![], rows };
    if !store.inbound(session, 1).await?.is_empty() {
        commit(store, held(vec![Row::Adopt { key: KEY.to_owned() }])).await??;
    }
    if !store.inbound(session, 1).await?.is_empty() {
        bail!("R1: the message was adopted and waits");
    }
    let (mark, call) = (Mark([7; 16]), CallId { batch: BatchNo(1), ordinal: Ordinal(0) });
    commit(store, held(vec![Row::Mark { mark, call }])).await??;
    if store.marked(mark).await? != Some(call) {
        bail!("R1: a mark is not where it was set");
    }
    records(store, &held).await?;
    let blob = BlobNo(store.reserve(Sequence::Blob, 1).await?);
    let piece = Row::Chunk { blob, seq: 0, data: b"piece"[..].into() };
    if commit(store, held(vec![piece.clone(), piece])).await? != Err(Refused::Exists) {
        bail!("R1: a piece was kept twice");
    }
    if store.blob(blob, 0, 1).await?.is_some() {
        bail!("R1: half of a change was kept");
    }
    Ok(())
}

/// A record is removed with the change that puts another: one of the two is always there, once one was.
async fn records(store: &dyn Store, held: &impl Fn(Vec<Row>) -> SessionChange) -> Result<()> {
    let session = held(vec![]).session;
    let (mut kept, mut last) = (Vec::new(), 0);
    for key in ["even", "odd"] {
        let found = store.record(Space::Pair.of(session), key).await?;
        kept.extend(found.map(|record| (key, record.generation)));
    }
    for (old, new) in [("even", "odd"), ("odd", "even")] {
        if kept.len() > 1 || kept.iter().any(|(_, generation)| *generation <= last) {
            bail!("R1: a record was kept that another replaced: {kept:?}");
        }
        last = kept.first().map_or(last, |(_, generation)| *generation);
        let remove = Row::Remove { space: Space::Pair, key: old.to_owned() };
        let put = Row::Put { space: Space::Pair, key: new.to_owned(), value: b"value"[..].into() };
        commit(store, held(vec![remove, put])).await??;
        let record = store.record(Space::Pair.of(session), new).await?;
        let Some(record) = record else { bail!("R1: a record that was put is not there") };
        kept = vec![(new, record.generation)];
    }
    Ok(())
}

/// Opens or takes the session.
async fn own(store: &dyn Store) -> Result<(SessionNo, Fence)> {
    let (session, hold, fence) = match store.session(SESSION).await? {
        Some(row) => {
            let to = row.fence.after(0);
            (row.no, Hold::Take { from: row.fence, to }, to)
        }
        None => {
            let no = SessionNo(store.reserve(Sequence::Session, 1).await?);
            (no, Hold::Open { name: SESSION.to_owned(), principal: None }, Fence(1))
        }
    };
    commit(store, SessionChange { session, hold, guards: vec![], rows: vec![] }).await??;
    Ok((session, fence))
}

async fn commit(store: &dyn Store, change: SessionChange) -> Result<Result<(), Refused>> {
    let answer = store.commit(vec![change.into()]).await?.pop();
    answer.map(|answer| answer.map(drop)).ok_or_else(|| anyhow!("a commit was not answered"))
}
