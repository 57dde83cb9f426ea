//! Entries as bytes: a fixed header, fields in CBOR with integer keys, and the payload as it is.
//!
//! Entries of one batch that are committed together are packed into one row:
//!
//! ```text
//! row    = format (1) entry*
//! entry  = kind (1) subject (2) at (8) fields length (4) payload length (4) fields payload
//! ```
//!
//! Numbers are little-endian. The subject is the call's ordinal, or 0xffff for the batch itself. An entry's
//! number in its session follows from its place in the row. A released kind is never changed: new fields get
//! new keys, and a reader passes over keys it does not know. A kind it does not know is an error, so that
//! nobody goes on from half of a story.

mod wire;

pub(crate) use wire::ExtraFields;

use crate::batch::{ClockMove, ClosedBy, Opening, ProvisionalAnswer};
use crate::call::{Fact, Kind, Opened};
use crate::ids::Ordinal;
use crate::time::Timestamp;

/// A fact, and the time it was noted.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The time, by the wall clock.
    pub at: Timestamp,
    /// The event.
    pub event: EntryEvent,
}

/// The event of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryEvent {
    /// A batch was opened.
    Batch(Opening),
    /// A streamed batch was closed.
    Closed(ClosedBy),
    /// Calls of a batch were answered provisionally.
    Answered(ProvisionalAnswer),
    /// The wall clock moved while none of the batch's time passed.
    ClockMoved(ClockMove),
    /// A fact about one of its calls.
    Call {
        /// The call.
        ordinal: Ordinal,
        /// The fact.
        fact: Fact,
    },
}

/// Why bytes are not a row of entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// A format of a newer Windlass.
    #[error("the entries have format {format}; this Windlass reads {FORMAT}, use a newer one")]
    Format {
        /// The format found.
        format: u8,
    },
    /// A kind of a newer Windlass.
    #[error("an entry has the unknown kind {kind}; use a newer Windlass")]
    Kind {
        /// The kind found.
        kind: u8,
    },
    /// The bytes are damaged.
    #[error("the entries are damaged at byte {offset}: {what}")]
    Damaged {
        /// The offset.
        offset: usize,
        /// The damage.
        what: String,
    },
}

/// The format of rows written by this version.
pub const FORMAT: u8 = 1;

/// The subject of a batch's own entries; ordinals stay below.
const BATCH_SUBJECT: u16 = u16::MAX;

/// Packs entries one after the other, ready to be committed. An empty one has no memory.
#[derive(Debug, Default)]
pub struct Packer {
    bytes: Vec<u8>,
    count: u32,
}

impl Packer {
    /// Adds an entry.
    pub fn push(&mut self, entry: &Entry) {
        match &entry.event {
            EntryEvent::Batch(opening) => self.batch(entry.at, opening),
            EntryEvent::Closed(by) => self.closed(entry.at, *by),
            EntryEvent::Answered(answer) => self.answered(entry.at, answer),
            EntryEvent::ClockMoved(moved) => self.clock_moved(entry.at, *moved),
            EntryEvent::Call { ordinal, fact } => self.fact(entry.at, *ordinal, fact),
        }
    }

    /// Adds the opening of a batch.
    pub fn batch(&mut self, at: Timestamp, opening: &Opening) {
        let head = EntryHead { kind: wire::BATCH_OPENED, subject: BATCH_SUBJECT, at };
        self.entry(head, |bytes| wire::write_batch(opening, bytes), &[]);
    }

    /// Adds the close of a batch.
    pub fn closed(&mut self, at: Timestamp, by: ClosedBy) {
        let head = EntryHead { kind: wire::BATCH_CLOSED, subject: BATCH_SUBJECT, at };
        self.entry(head, |bytes| wire::write_closed(by, bytes), &[]);
    }

    /// Adds a provisional answer.
    pub fn answered(&mut self, at: Timestamp, answer: &ProvisionalAnswer) {
        let head = EntryHead { kind: wire::BATCH_ANSWERED, subject: BATCH_SUBJECT, at };
        self.entry(head, |bytes| wire::write_answered(answer, bytes), &[]);
    }

    /// Adds a move of the wall clock.
    pub fn clock_moved(&mut self, at: Timestamp, moved: ClockMove) {
        let head = EntryHead { kind: wire::BATCH_CLOCK_MOVED, subject: BATCH_SUBJECT, at };
        self.entry(head, |bytes| wire::write_clock_moved(moved, bytes), &[]);
    }

    /// Adds the opening of a call.
    pub fn opened(&mut self, at: Timestamp, ordinal: Ordinal, opened: &Opened) {
        let head = EntryHead { kind: wire::kind_number(Kind::Opened), subject: ordinal.0, at };
        self.entry(head, |bytes| wire::write_opened(opened, bytes), opened.args.text.as_bytes());
    }

    /// Adds a fact about a call.
    pub fn fact(&mut self, at: Timestamp, ordinal: Ordinal, fact: &Fact) {
        let head = EntryHead { kind: wire::kind_number(fact.kind()), subject: ordinal.0, at };
        self.entry(head, |bytes| wire::write_fact(fact, bytes), wire::payload(fact));
    }

    /// Moves the entries of another packer here, after the existing ones.
    pub fn append(&mut self, other: &mut Packer) {
        if self.bytes.capacity() == 0 {
            return std::mem::swap(self, other);
        }
        self.start(0);
        self.bytes.extend_from_slice(other.bytes.get(1..).unwrap_or_default());
        self.count += std::mem::take(&mut other.count);
        other.bytes.clear();
    }

    /// Moves the entries of another packer here, before the existing ones; only the opening of the batch stays first.
    pub fn prepend(&mut self, mut other: Packer) {
        self.start(0);
        let opens = self.bytes.get(1).is_some_and(|kind| *kind == wire::BATCH_OPENED);
        let offset = if opens { self.entry_end(1) } else { 1 };
        self.bytes.splice(offset..offset, other.bytes.drain(..).skip(1));
        self.count += other.count;
    }

    /// Changes the time of each entry.
    pub fn restamp(&mut self, change: impl Fn(Timestamp) -> Timestamp) {
        let mut start = 1;
        while start < self.bytes.len() {
            let at = start + AT_OFFSET;
            let was = Timestamp(i64::from_le_bytes(self.array(at)));
            self.bytes[at..at + 8].copy_from_slice(&change(was).0.to_le_bytes());
            start = self.entry_end(start);
        }
    }

    /// The end of the entry that begins there.
    fn entry_end(&self, start: usize) -> usize {
        let length = |offset: usize| u32::from_le_bytes(self.array(start + offset)) as usize;
        start + HEAD_BYTES + length(AT_OFFSET + 8) + length(AT_OFFSET + 12)
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|place| self.bytes[offset + place])
    }

    /// Reserves capacity for this many bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.start(bytes);
    }

    #[inline]
    fn start(&mut self, room: usize) {
        if self.bytes.capacity() - self.bytes.len() <= room {
            self.grow(room);
        }
        if self.bytes.is_empty() {
            self.bytes.push(FORMAT);
        }
    }

    #[inline(never)]
    fn grow(&mut self, room: usize) {
        // Where there is nothing to move, that need not be computed.
        match self.bytes.is_empty() {
            true => self.bytes = Vec::with_capacity(room + 1),
            false => self.bytes.reserve(room + 1),
        }
    }

    fn entry(&mut self, head: EntryHead, fields: impl FnOnce(&mut Vec<u8>), payload: &[u8]) {
        self.start(HEAD_BYTES + FIELDS_BYTES + payload.len());
        self.count += 1;
        let bytes = &mut self.bytes;
        let start = bytes.len();
        bytes.extend_from_slice(&[0; HEAD_BYTES]);
        fields(bytes);
        let fields = (bytes.len() - start - HEAD_BYTES) as u32;
        bytes.extend_from_slice(payload);
        let mut written = [0; HEAD_BYTES];
        written[0] = head.kind;
        written[1..3].copy_from_slice(&head.subject.to_le_bytes());
        written[3..11].copy_from_slice(&head.at.0.to_le_bytes());
        written[11..15].copy_from_slice(&fields.to_le_bytes());
        written[15..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[start..start + HEAD_BYTES].copy_from_slice(&written);
    }

    /// The number of entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The row.
    pub fn finish(mut self) -> Vec<u8> {
        self.start(0);
        self.bytes
    }
}

/// The beginning of every entry; the lengths follow when they are known.
struct EntryHead {
    kind: u8,
    subject: u16,
    at: Timestamp,
}

/// The bytes before the fields.
const HEAD_BYTES: usize = 19;

/// The bytes before the time of an entry.
const AT_OFFSET: usize = 3;

/// The capacity for the fields of most entries.
const FIELDS_BYTES: usize = 64;

/// Reads the entries of a row.
pub fn unpack(row: &[u8]) -> Result<Vec<Entry>, Unreadable> {
    let mut reader = EntryReader { row, offset: 0 };
    match reader.take(1)?[0] {
        FORMAT => {}
        format => return Err(Unreadable::Format { format }),
    }
    let mut entries = Vec::new();
    while reader.offset < row.len() {
        entries.push(reader.entry()?);
    }
    Ok(entries)
}

struct EntryReader<'a> {
    row: &'a [u8],
    offset: usize,
}

impl<'a> EntryReader<'a> {
    fn entry(&mut self) -> Result<Entry, Unreadable> {
        let kind = self.take(1)?[0];
        let subject = u16::from_le_bytes(self.array()?);
        let at = Timestamp(i64::from_le_bytes(self.array()?));
        let fields = u32::from_le_bytes(self.array()?) as usize;
        let payload = u32::from_le_bytes(self.array()?) as usize;
        let start = self.offset;
        let (fields, payload) = (self.take(fields)?, self.take(payload)?);
        let event = match subject {
            BATCH_SUBJECT => wire::read_batch(kind, fields),
            ordinal => wire::read_fact(kind, fields, payload)
                .map(|fact| EntryEvent::Call { ordinal: Ordinal(ordinal), fact }),
        };
        let event = event.map_err(|problem| match problem {
            wire::FieldProblem::Kind => Unreadable::Kind { kind },
            wire::FieldProblem::Fields(what) => Unreadable::Damaged { offset: start, what },
        })?;
        Ok(Entry { at, event })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Unreadable> {
        let (offset, rest) = (self.offset, &self.row[self.offset..]);
        let taken = rest.get(..len).ok_or_else(|| Unreadable::Damaged {
            offset,
            what: format!("{len} bytes expected, {} left", rest.len()),
        })?;
        self.offset += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }
}
