//! In debug builds, the fold of what a batch writes, beside the calls that are driven: both must come to the same.
//!
//! A takeover knows a call only from its journal. So whatever a driver knows of a call that ended and its journal does not
//! say, or says otherwise, would be lost or changed by a crash. In release builds nothing is folded or compared.

use windlass_core::batch::Batch;
use windlass_core::call::Call;
use windlass_core::entry::unpack;
use windlass_core::ids::Ordinal;

/// The fold of the rows of a batch, as they were written.
#[derive(Default)]
pub(super) struct JournalWitness(Option<Box<FoldedRows>>);

#[derive(Default)]
struct FoldedRows {
    batch: Option<Batch>,
    entries: usize,
    /// Whether its calls know other times than its journal: entries were noted before the wall clock was set.
    is_restamped: bool,
}

impl JournalWitness {
    /// The witness of a new batch.
    pub(super) fn new() -> JournalWitness {
        JournalWitness(cfg!(debug_assertions).then(Box::default))
    }

    /// The witness of a batch that was read back.
    pub(super) fn recorded(batch: &Batch) -> JournalWitness {
        let folded = || FoldedRows { batch: Some(batch.clone()), entries: 1, is_restamped: false };
        JournalWitness(cfg!(debug_assertions).then(|| Box::new(folded())))
    }

    /// Entries of the next row got other times than their calls have.
    pub(super) fn restamped(&mut self) {
        self.0.iter_mut().for_each(|folded| folded.is_restamped = true);
    }

    /// Adds a row, as it is written.
    #[inline]
    pub(super) fn wrote(&mut self, row: &[u8]) {
        if let Some(folded) = &mut self.0 {
            folded.wrote(row);
        }
    }

    /// Compares a call that ended with what its journal says of it.
    #[inline]
    pub(super) fn compare(&self, ordinal: Ordinal, call: &Call) {
        if let Some(folded) = &self.0 {
            folded.compare(ordinal, call);
        }
    }
}

impl FoldedRows {
    fn wrote(&mut self, row: &[u8]) {
        let entries = unpack(row).unwrap_or_default();
        match &mut self.batch {
            None => self.batch = Batch::fold(&entries).ok(),
            Some(batch) => {
                for entry in &entries {
                    assert_eq!(batch.apply(self.entries, entry), Ok(()), "{entry:?} can be folded");
                    self.entries += 1;
                }
            }
        }
    }

    fn compare(&self, ordinal: Ordinal, call: &Call) {
        let folded = self.batch.as_ref().and_then(|batch| batch.calls.get(usize::from(ordinal.0)));
        let Some(folded) = folded.filter(|_| !self.is_restamped) else { return };
        // That is said by an entry of the batch, which its driver need not know.
        let known = Call { is_provisional: folded.is_provisional, ..call.clone() };
        assert_eq!(&known, folded, "a call is what its journal adds up to");
    }
}
