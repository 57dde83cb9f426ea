//! The last frames of running calls: the new part for a reader that keeps up, and the whole for a later one.

use super::{RunningAttempt, Words};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::handle::Handle;

/// The number of running calls of a session whose last reports are kept.
pub(super) const WORDS_MAX: usize = 1_024;
/// The maximum size of a call's output in a frame.
pub(super) const OUTPUT_BYTES_MAX: usize = 4 << 10;

/// The last frame of each call, by handle.
#[derive(Default)]
pub(super) struct LastFrames(BTreeMap<Handle, LastFrame>);

struct LastFrame {
    /// The ring it was delivered at.
    ring: u64,
    /// The ring the previous one was delivered at.
    ring_before: u64,
    /// The new reports.
    new: Arc<Words>,
    /// The last of all reports. Progress, status and output may come in different frames, and a reader that
    /// missed one of them needs all three.
    whole: Arc<Words>,
}

impl LastFrames {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn remove(&mut self, call: &Handle) {
        self.0.remove(call);
    }

    pub(super) fn running(&self, call: &Handle) -> Option<RunningAttempt> {
        self.0.get(call).and_then(|frame| frame.new.running)
    }

    /// Adds a frame for this ring.
    pub(super) fn add(&mut self, ring: u64, words: Words) {
        let call = words.call();
        let new = Arc::new(words);
        let frame = match self.0.remove(&call) {
            None => LastFrame { ring, ring_before: 0, whole: new.clone(), new },
            Some(before) => {
                let whole = Arc::new(joined(&before.whole, &new));
                LastFrame { ring, ring_before: before.ring, new, whole }
            }
        };
        self.0.insert(call, frame);
        while self.0.len() > WORDS_MAX {
            // Only stuck tools that were given up keep reporting after their end.
            self.0.pop_first();
        }
    }

    /// The frames that a reader has missed since a ring.
    pub(super) fn since(&self, heard: u64) -> impl Iterator<Item = Arc<Words>> {
        let missed = self.0.values().filter(move |frame| frame.ring > heard);
        missed.map(move |frame| if frame.ring_before > heard { &frame.whole } else { &frame.new }.clone())
    }
}

fn joined(before: &Words, new: &Words) -> Words {
    Words {
        subject: new.subject.clone(),
        running: new.running,
        progress: new.progress.clone().or_else(|| before.progress.clone()),
        status: new.status.clone().or_else(|| before.status.clone()),
        output: joined_output(before.output.as_deref(), new.output.as_deref()),
    }
}

/// The end of both outputs.
fn joined_output(before: Option<&str>, new: Option<&str>) -> Option<String> {
    let mut output = format!("{}{}", before.unwrap_or_default(), new.unwrap_or_default());
    let excess = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    output.drain(..output.ceil_char_boundary(excess));
    (!output.is_empty()).then_some(output)
}
