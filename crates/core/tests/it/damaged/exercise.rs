//! The promise about any row of a journal; the fuzz target uses it too, so that they cannot drift apart.

use windlass_core::entry::{Packer, Unreadable, unpack};

/// Reads a row of a journal.
pub fn entries(row: &[u8]) -> Result<usize, Unreadable> {
    let entries = unpack(row)?;
    let mut packer = Packer::default();
    entries.iter().for_each(|entry| packer.push(entry));
    assert_eq!(unpack(&packer.finish()).as_ref(), Ok(&entries), "what was read is written and read again");
    Ok(entries.len())
}

/// The input of the fuzz target for journals.
pub fn any_entries(data: &[u8]) {
    let _ = entries(data);
}
