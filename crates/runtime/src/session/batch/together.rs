//! Starts and ends of a batch's calls that come in one moment: they are written in one change, which costs the store as much as that of
//! one call.
//!
//! Starts share one only where several calls are driven one after the other: calls that are woken later start in the order of the plan.

use super::{BatchState, OpenBatch};
use crate::api::error::Lost;
use crate::session::held::{DriveContext, Going, Held};
use crate::session::lane::{Commit, Lane};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::yield_now;
use windlass_core::entry::Packer;
use windlass_store::{Durability, StoreError};

/// Gathered starts are sent once their notes have so many bytes: a row of the journal stays small.
const STARTS_BYTES_MAX: usize = 1 << 20;

/// The starts and ends of a batch that are about to be sent.
#[derive(Default)]
pub(super) struct GatheredChanges {
    starts: Option<GatheredStarts>,
    /// How many tasks drive several calls of the batch right now, and send the starts when they are done.
    drivers: u32,
    ends: Option<Going>,
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
    fn gathered(&mut self) -> &mut GatheredChanges {
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
        Some((lane.send_here(rows), durable))
    }

    /// Adds a call that has ended. Returns whether its driver must have the gathered ends sent.
    fn gather_end(&self, held: Box<Held>) -> bool {
        let mut state = self.lock();
        let ends = &mut state.gathered().ends;
        let is_first = ends.is_none();
        ends.get_or_insert_default().end(held);
        is_first
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

/// The ends to be written by the driver of a call that has ended: its own, with those of other calls of its batch that end in the
/// same moment. `None`: another driver writes it.
pub(crate) async fn ends(on: &DriveContext, held: Box<Held>) -> Option<Going> {
    if !on.batch.shares_changes(&on.session.lane) {
        let mut going = Going::default();
        going.end(held);
        return Some(going);
    }
    if !on.batch.gather_end(held) {
        return None;
    }
    // Those that were woken in the same moment are polled first.
    yield_now().await;
    on.batch.lock().gathered().ends.take()
}
