//! The log of a task, stored beside its journal: its beginning and its end, with bounded memory.
//!
//! Only the owner of the task's session writes it, as records that are removed again when newer ones exceed
//! the limit. A gap in the numbers shows a reader that pieces were dropped.

use crate::api::error::SessionError;
use crate::api::limits::Limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{RecordPage, Row, Space, Store, StoredRecord};

/// The source of an attempt's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error, and everything else that belongs to no result.
    Err,
    /// Messages of Windlass between attempts.
    Windlass,
}

impl Stream {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Out => "out",
            Stream::Err => "err",
            Stream::Windlass => "windlass",
        }
    }
}

/// A piece of a task's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LogPiece {
    /// Its number in the log, from 1. Missing numbers were not retained.
    pub no: u64,
    /// When it was written.
    #[serde(serialize_with = "crate::api::answer::as_wall_time")]
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Its source.
    pub stream: Stream,
    /// The text.
    pub text: String,
}

/// A stored piece.
#[derive(Serialize, Deserialize)]
struct KeptPiece<'a> {
    at_us: i64,
    stream: Stream,
    text: std::borrow::Cow<'a, str>,
}

/// The maximum size of a piece, so that it fits in a record however it is escaped.
const PIECE_BYTES: usize = 8 << 10;
/// The maximum number of pieces retained at the end of a log, however short they are.
const TAIL_PIECES: usize = 1_024;

/// An attempt's output, and how much of it is written.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    /// The size of the retained beginning, and of the retained end.
    half: usize,
    /// The beginning of an incomplete character, with its source.
    begun: (Option<Stream>, Vec<u8>),
    unwritten: VecDeque<(Stream, String)>,
    unwritten_bytes: usize,
    /// The number of unwritten bytes dropped between the beginning and the end.
    skipped: u64,
    /// The number of the last piece.
    last: u64,
    head_bytes: usize,
    /// The written pieces of the end: their numbers and lengths.
    tail: VecDeque<(u64, usize)>,
    tail_bytes: usize,
}

impl AttemptLog {
    pub(crate) fn new(limits: &Limits) -> AttemptLog {
        let half = usize::try_from(limits.log_bytes_max / 2).unwrap_or(usize::MAX);
        AttemptLog {
            half,
            begun: (None, Vec::new()),
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            skipped: 0,
            last: 0,
            head_bytes: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
        }
    }

    /// Continues the log of earlier attempts.
    pub(crate) async fn read(
        store: &dyn Store,
        session: SessionNo,
        call: CallId,
        limits: &Limits,
    ) -> Result<AttemptLog, SessionError> {
        let mut log = AttemptLog::new(limits);
        let mut after = None;
        loop {
            let records = LogPage { session, call, after, limit: PIECES_PAGE }.read(store).await?;
            let Some(last) = records.last() else { return Ok(log) };
            after = number(&last.key);
            for record in &records {
                let (no, piece) = (number(&record.key).unwrap_or(0), read(record)?);
                log.written(no, piece.text.len());
            }
        }
    }

    /// Adds output. `true`: it is the first that is not written.
    pub(crate) fn say(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        let is_first = self.unwritten.is_empty();
        let text = self.text(stream, bytes);
        let mut rest = &*text;
        if let Some((last, text)) = self.unwritten.back_mut()
            && *last == stream
            && text.len() + rest.len() <= PIECE_BYTES
        {
            text.push_str(std::mem::take(&mut rest));
        }
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(piece_end(rest));
            self.unwritten.push_back((stream, piece.to_string()));
            rest = later;
        }
        self.unwritten_bytes += text.len();
        // Output that comes faster than it is written loses its middle.
        while self.unwritten_bytes > 2 * self.half {
            let middle = self.unwritten.len() / 2;
            let Some((_, text)) = self.unwritten.remove(middle) else { break };
            self.unwritten_bytes -= text.len();
            self.skipped += text.len() as u64;
        }
        is_first && !text.is_empty()
    }

    /// The text of these bytes, together with an incomplete character before them.
    fn text(&mut self, stream: Stream, bytes: &[u8]) -> String {
        let (from, begun) = &mut self.begun;
        let mut bytes = if *from == Some(stream) { [&**begun, bytes].concat() } else { bytes.to_vec() };
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => bytes.len(),
        };
        self.begun = (Some(stream), bytes.split_off(whole));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether something is not written.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// The rows that write pending pieces, and remove those no longer retained.
    pub(crate) fn rows(&mut self, call: CallId, now: Timestamp) -> Vec<Row> {
        let mut rows = Vec::new();
        let middle = self.unwritten.len() / 2;
        for (place, (stream, text)) in std::mem::take(&mut self.unwritten).into_iter().enumerate() {
            if place == middle && self.skipped > 0 {
                let skipped = std::mem::take(&mut self.skipped);
                let told =
                    format!("{skipped} bytes came faster than they could be written, and are not kept\n");
                rows.push(self.piece(call, now, Stream::Windlass, &told));
            }
            rows.push(self.piece(call, now, stream, &text));
        }
        self.unwritten_bytes = 0;
        while self.tail_bytes > self.half || self.tail.len() > TAIL_PIECES {
            let Some((no, bytes)) = self.tail.pop_front() else { break };
            self.tail_bytes -= bytes;
            rows.push(Row::Remove { space: Space::Log, key: key(call, no) });
        }
        rows
    }

    fn piece(&mut self, call: CallId, now: Timestamp, stream: Stream, text: &str) -> Row {
        let no = self.last + 1;
        let kept = KeptPiece { at_us: now.0, stream, text: text.into() };
        self.written(no, text.len());
        let value = serde_json::to_vec(&kept).unwrap_or_default().into();
        Row::Put { space: Space::Log, key: key(call, no), value }
    }

    fn written(&mut self, no: u64, bytes: usize) {
        self.last = no;
        if self.tail.is_empty() && self.head_bytes + bytes <= self.half {
            self.head_bytes += bytes;
        } else {
            self.tail.push_back((no, bytes));
            self.tail_bytes += bytes;
        }
    }
}

/// The end of the first piece of a text: behind a whole line, if one fits.
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(PIECE_BYTES);
    text[..most].rfind('\n').map_or(most, |line_end| line_end + 1)
}

/// The page size for reading pieces.
const PIECES_PAGE: u64 = 256;

/// A part of the log of a task: the pieces after one, in order.
pub(crate) struct LogPage {
    pub(crate) session: SessionNo,
    pub(crate) call: CallId,
    /// The number of the piece before the first.
    pub(crate) after: Option<u64>,
    /// How many pieces at most.
    pub(crate) limit: u64,
}

impl LogPage {
    /// The pieces, at most as many as are read at once.
    pub(crate) async fn pieces(self, store: &dyn Store) -> Result<Vec<LogPiece>, SessionError> {
        let limit = self.limit.min(PIECES_PAGE);
        let records = LogPage { limit, ..self }.read(store).await?;
        let piece = |record: &StoredRecord| {
            let KeptPiece { at_us, stream, text } = read(record)?;
            let no = number(&record.key).unwrap_or(0);
            Ok(LogPiece { no, at: Timestamp(at_us), stream, text: text.into_owned() })
        };
        records.iter().map(piece).collect()
    }

    async fn read(self, store: &dyn Store) -> Result<Vec<StoredRecord>, SessionError> {
        let LogPage { session, call, after, limit } = self;
        let prefix = format!("{:012x}-", call.packed());
        let after = after.map(|no| key(call, no));
        let page =
            RecordPage { shelf: Space::Log.of(session), prefix: &prefix, after: after.as_deref(), limit };
        Ok(store.records(page).await?)
    }
}

/// The rows that remove the log of a task.
pub(crate) async fn gone_rows(
    store: &dyn Store,
    session: SessionNo,
    call: CallId,
) -> Result<Vec<Row>, SessionError> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let records = LogPage { session, call, after, limit: PIECES_PAGE }.read(store).await?;
        let Some(last) = records.last() else { return Ok(rows) };
        after = number(&last.key);
        rows.extend(records.iter().map(|record| Row::Remove { space: Space::Log, key: record.key.clone() }));
    }
}

fn key(call: CallId, no: u64) -> String {
    format!("{:012x}-{no:012x}", call.packed())
}

fn number(key: &str) -> Option<u64> {
    u64::from_str_radix(key.split('-').nth(1)?, 16).ok()
}

fn read(record: &StoredRecord) -> Result<KeptPiece<'static>, SessionError> {
    let unreadable =
        |error| SessionError::undecodable(format!("the piece {:?} of a task's log", record.key), error);
    let KeptPiece { at_us, stream, text } = serde_json::from_slice(&record.value).map_err(unreadable)?;
    Ok(KeptPiece { at_us, stream, text: std::borrow::Cow::Owned(std::borrow::Cow::into_owned(text)) })
}
