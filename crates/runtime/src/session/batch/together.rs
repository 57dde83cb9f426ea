//! Starts of a batch's calls that come in one moment: they are written in one change, which costs the store as much as that of one call.
//!
//! They share one only where several calls are driven one after the other: calls that are woken later start in the order of the plan.
//! Ends never wait for each other: a suspect may start, and kill its owner, as soon as the attempt before it is over, and the end of
//! that one must be on its way by then.

use super::{BatchState, OpenBatch};
use crate::api::error::Lost;
use crate::session::held::{DriveContext, Held};
use crate::session::lane::{Commit, Lane};
use std::sync::Arc;
use tokio::sync::watch;
use windlass_core::entry::Packer;
use windlass_store::{Durability, StoreError};

/// Gathered starts are sent once their notes have so many bytes: a row of the journal stays small.
const STARTS_BYTES_MAX: usize = 1 << 20;

/// The starts of a batch that are about to be sent.
#[derive(Default)]
pub(super) struct GatheringStarts {
    starts: Option<GatheredStarts>,
    /// How many tasks drive several calls of the batch right now, and send the starts when they are done.
    drivers: u32,
}

/// Starts that are about to be sent.
struct GatheredStarts {
    notes: Packer,
    durable: watch::Sender<Durable>,
}

/// Whether a change is durable, once that is known.
type Durable = Option<Result<(), Lost>>;

/// A start among the gathered ones.
struct GatheredStart {
    durable: watch::Receiver<Durable>,
    /// Whether no other may be added.
    is_full: bool,
}

impl BatchState {
    fn gathered(&mut self) -> &mut GatheringStarts {
        self.gathered.get_or_insert_default()
    }
}

impl OpenBatch {
    /// Whether its calls share changes: where a change is a wait for the disk, there are others to share it with, and none is cancelled
    /// by the end of another.
    fn shares_changes(&self, lane: &Lane) -> bool {
        !self.asks_of_siblings() && self.len() > 1 && lane.store().durability() != Durability::Memory
    }

    /// Adds a start to those of the calls that are driven with it. `None`: it is driven alone, and nobody would send it.
    fn gather_start(&self, notes: &mut Packer) -> Option<GatheredStart> {
        let mut state = self.lock();
        let gathered = state.gathered.as_mut().filter(|gathered| gathered.drivers > 0)?;
        let starts = gathered.starts.get_or_insert_with(|| GatheredStarts {
            notes: Packer::default(),
            durable: watch::Sender::new(None),
        });
        starts.notes.append(notes);
        let is_full = starts.notes.len() >= STARTS_BYTES_MAX;
        Some(GatheredStart { durable: starts.durable.subscribe(), is_full })
    }

    /// Sends the gathered starts, with everything that must be recorded before them.
    fn send_starts<'a>(&self, lane: &'a Lane) -> Option<(Commit<'a>, watch::Sender<Durable>)> {
        let mut state = self.lock();
        let GatheredStarts { mut notes, durable } = state.gathered.as_mut()?.starts.take()?;
        let (mut packer, mut rows) = (Packer::default(), Vec::with_capacity(2));
        packer.reserve(notes.len() + self.unwritten_bytes(&state));
        self.admit(&mut state, &mut packer, &mut rows);
        packer.append(&mut notes);
        rows.push(self.journal(&mut state, packer));
        Some((lane.send(Vec::new(), rows), durable))
    }
}

/// Drives calls of a batch: starts are held back until all have got as far as they get at once.
pub(crate) struct StartsHeldBack<'a>(Option<&'a Arc<DriveContext>>);

impl StartsHeldBack<'_> {
    /// Until dropped.
    pub(crate) fn begin(on: &Arc<DriveContext>) -> StartsHeldBack<'_> {
        if !on.batch.shares_changes(&on.session.lane) {
            return StartsHeldBack(None);
        }
        on.batch.lock().gathered().drivers += 1;
        StartsHeldBack(Some(on))
    }
}

impl Drop for StartsHeldBack<'_> {
    fn drop(&mut self) {
        let Some(on) = self.0 else { return };
        on.batch.lock().gathered().drivers -= 1;
        send_starts(on);
    }
}

/// Writes the start of a call, with those of the calls that are driven with it, and waits until it is durable.
pub(crate) async fn commit_start(held: &mut Held) -> Result<(), Lost> {
    let on = held.on.clone();
    // Rows that it carries may be refused, and then nothing of the change is written.
    let gathered = if held.carries_rows() { None } else { on.batch.gather_start(held.notes()) };
    let Some(mut start) = gathered else { return held.commit().await };
    if start.is_full {
        send_starts(&on);
    }
    let durable = start.durable.wait_for(Option::is_some).await;
    let durable = durable.ok().and_then(|durable| durable.clone());
    durable.unwrap_or_else(|| Err(Lost::from(StoreError::Closed)))?;
    held.recorded();
    Ok(())
}

/// Sends the starts that were gathered, and tells their calls once they are durable.
fn send_starts(on: &Arc<DriveContext>) {
    let Some((commit, starts)) = on.batch.send_starts(&on.session.lane) else { return };
    match commit.known() {
        Ok(durable) => _ = starts.send_replace(Some(durable)),
        Err(unanswered) => {
            let on = on.clone();
            on.rt.tasks.clone().spawn(async move {
                let durable = on.session.lane.resume(unanswered).durable().await;
                starts.send_replace(Some(durable));
            });
        }
    }
}
