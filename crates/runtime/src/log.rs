//! What a task says while it runs, kept beside its journal: the beginning and the end of it, with bounded memory.
//!
//! Only the owner of the task's session writes it, as records that are removed again when more comes behind them than is kept.
//! A reader that finds a gap in the numbers knows that something was there.

use crate::error::BatchError;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use windlass_core::ids::{CallId, SessionNo};
use windlass_core::limits::Limits;
use windlass_core::time::Timestamp;
use windlass_store::{Record, RecordPage, Row, Space, Store};

/// Where something that an attempt says comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// What it has to tell.
    Out,
    /// What went wrong, and what else belongs to no result.
    Err,
    /// What Windlass says between its attempts.
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

/// A piece of what a task has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogPiece {
    /// Its number in the log, from 1. Where one is missing, what was there is not kept.
    pub no: u64,
    /// When it was written.
    #[serde(serialize_with = "crate::answer::as_wall_time")]
    pub at: Timestamp,
    /// Where it comes from.
    pub stream: Stream,
    /// What was said.
    pub text: String,
}

/// A piece as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept<'a> {
    at_us: i64,
    stream: Stream,
    text: std::borrow::Cow<'a, str>,
}

/// A piece has at most so many bytes, so that it fits in a record however it is escaped.
const PIECE_BYTES: usize = 8 << 10;
/// So many pieces are kept of the end of a log, however short they are.
const TAIL_PIECES: usize = 1_024;

/// What an attempt has said and what of it is written.
#[derive(Debug)]
pub(crate) struct Log {
    /// How many bytes of the beginning are kept, and of the end.
    half: usize,
    /// The beginning of a character whose rest has not come yet, with where it comes from.
    begun: (Option<Stream>, Vec<u8>),
    unwritten: VecDeque<(Stream, String)>,
    unwritten_bytes: usize,
    /// How many bytes came between the beginning and the end of what is not written and were let go of.
    skipped: u64,
    /// The number of the last piece.
    last: u64,
    head_bytes: usize,
    /// The pieces of the end that are written: their numbers and lengths.
    tail: VecDeque<(u64, usize)>,
    tail_bytes: usize,
}

impl Log {
    pub(crate) fn new(limits: &Limits) -> Log {
        let half = usize::try_from(limits.log_bytes_max / 2).unwrap_or(usize::MAX);
        Log {
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

    /// Goes on with what earlier attempts have written.
    pub(crate) async fn read(
        store: &dyn Store,
        (session, call): (SessionNo, CallId),
        limits: &Limits,
    ) -> Result<Log, BatchError> {
        let mut log = Log::new(limits);
        let mut after = None;
        loop {
            let records = page(store, (session, call), (after, PIECES_PAGE)).await?;
            let Some(last) = records.last() else { return Ok(log) };
            after = number(&last.key);
            for record in &records {
                let (no, piece) = (number(&record.key).unwrap_or(0), read(record)?);
                log.written(no, piece.text.len());
            }
        }
    }

    /// Adds what an attempt says. `true`: it is the first that is not written.
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
            let (piece, later) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES));
            self.unwritten.push_back((stream, piece.to_string()));
            rest = later;
        }
        self.unwritten_bytes += text.len();
        // What comes faster than it is written loses its middle.
        while self.unwritten_bytes > 2 * self.half {
            let middle = self.unwritten.len() / 2;
            let Some((_, text)) = self.unwritten.remove(middle) else { break };
            self.unwritten_bytes -= text.len();
            self.skipped += text.len() as u64;
        }
        is_first && !text.is_empty()
    }

    /// What bytes say, together with those of a character that had only begun.
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

    /// The rows by which what is not written is, and what is not kept any more is removed.
    pub(crate) fn rows(&mut self, call: CallId, now: Timestamp) -> Vec<Row> {
        let mut rows = Vec::new();
        let middle = self.unwritten.len() / 2;
        for (place, (stream, text)) in std::mem::take(&mut self.unwritten).into_iter().enumerate() {
            if place == middle && self.skipped > 0 {
                let skipped = std::mem::take(&mut self.skipped);
                let told =
                    format!("{skipped} bytes came faster than they could be written, and are not kept\n");
                rows.push(self.piece(call, now, (Stream::Windlass, &told)));
            }
            rows.push(self.piece(call, now, (stream, &text)));
        }
        self.unwritten_bytes = 0;
        while self.tail_bytes > self.half || self.tail.len() > TAIL_PIECES {
            let Some((no, bytes)) = self.tail.pop_front() else { break };
            self.tail_bytes -= bytes;
            rows.push(Row::Remove { space: Space::Log, key: key(call, no) });
        }
        rows
    }

    fn piece(&mut self, call: CallId, now: Timestamp, (stream, text): (Stream, &str)) -> Row {
        let no = self.last + 1;
        let kept = Kept { at_us: now.0, stream, text: text.into() };
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

/// So many pieces are read at once.
const PIECES_PAGE: u64 = 256;

/// What a task has said after the piece of this number, in order, at most so many pieces.
pub(crate) async fn pieces(
    store: &dyn Store,
    task: (SessionNo, CallId),
    (after, limit): (Option<u64>, u64),
) -> Result<Vec<LogPiece>, BatchError> {
    let records = page(store, task, (after, limit.min(PIECES_PAGE))).await?;
    let piece = |record: &Record| {
        let Kept { at_us, stream, text } = read(record)?;
        let no = number(&record.key).unwrap_or(0);
        Ok(LogPiece { no, at: Timestamp(at_us), stream, text: text.into_owned() })
    };
    records.iter().map(piece).collect()
}

async fn page(
    store: &dyn Store,
    (session, call): (SessionNo, CallId),
    (after, limit): (Option<u64>, u64),
) -> Result<Vec<Record>, BatchError> {
    let prefix = format!("{:012x}-", call.packed());
    let after = after.map(|no| key(call, no));
    let page = RecordPage { session, space: Space::Log, prefix: &prefix, after: after.as_deref(), limit };
    Ok(store.records(page).await?)
}

fn key(call: CallId, no: u64) -> String {
    format!("{:012x}-{no:012x}", call.packed())
}

fn number(key: &str) -> Option<u64> {
    u64::from_str_radix(key.split('-').nth(1)?, 16).ok()
}

fn read(record: &Record) -> Result<Kept<'static>, BatchError> {
    let unreadable =
        |error| BatchError::Unreadable { what: format!("a piece of a task's log cannot be read: {error}") };
    let Kept { at_us, stream, text } = serde_json::from_slice(&record.value).map_err(unreadable)?;
    Ok(Kept { at_us, stream, text: std::borrow::Cow::Owned(std::borrow::Cow::into_owned(text)) })
}
