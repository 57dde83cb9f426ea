//! Which calls of a batch have the id of another.

use super::BatchState;

/// The calls that have one id.
pub(super) struct Alike {
    pub(super) fingerprint: u32,
    pub(super) places: Vec<usize>,
}

impl BatchState {
    /// The calls with this id.
    pub(super) fn alike(&self, id: &str) -> Alike {
        let fingerprint = fingerprint(id);
        // To the end, though one decides: several are compared at once then, and mostly none is found.
        if !self.ids.iter().fold(false, |found, of| found | (*of == fingerprint)) {
            return Alike { fingerprint, places: Vec::new() };
        }
        let same = |place: &usize| *self.slots[*place].opened.id == *id;
        let places = self.ids.iter().zip(0..).filter(|(of, _)| **of == fingerprint);
        Alike { fingerprint, places: places.map(|(_, place)| place).filter(same).collect() }
    }
}

/// A quick hash of an id (FNV-1a); calls that it finds are compared.
fn fingerprint(id: &str) -> u32 {
    id.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
