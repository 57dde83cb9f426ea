//! What passes between a running attempt and whoever watches it: the word to stop, signs of life, the last output.

use crate::inside::Book;
use crate::log::{Log, Stream};
use crate::progress::Progress;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use windlass_core::call::Cause;
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// One per attempt, shared by the tool's [`Cx`](crate::Cx) and its watcher.
#[derive(Debug)]
pub(crate) struct Signal {
    /// 0, or one more than the place of the cause in [`Cause::ALL`].
    cause: AtomicU8,
    told: Notify,
    /// When the tool last gave a sign of life, by the clock that never jumps.
    alive_us: AtomicU64,
    said: Mutex<Said>,
    /// What the tool does by name.
    pub(crate) book: Book,
}

/// What an attempt has said while it runs.
#[derive(Debug, Default)]
struct Said {
    /// The last of what it wrote.
    output: VecDeque<u8>,
    /// What it says for its log, if it may become a task.
    log: Option<Box<Log>>,
    progress: Option<Box<Progress>>,
    status: Option<Box<str>>,
}

impl Signal {
    pub(crate) fn new(now_us: u64) -> Signal {
        Signal {
            cause: AtomicU8::new(0),
            told: Notify::new(),
            alive_us: AtomicU64::new(now_us),
            said: Mutex::default(),
            book: Book::default(),
        }
    }

    /// One for another attempt, in the memory of a used one if nobody has that any more.
    pub(crate) fn anew(used: Option<Arc<Signal>>, now_us: u64) -> Arc<Signal> {
        let Some(mut used) = used else { return Arc::new(Signal::new(now_us)) };
        match Arc::get_mut(&mut used) {
            Some(signal) => {
                *signal = Signal::new(now_us);
                used
            }
            None => Arc::new(Signal::new(now_us)),
        }
    }

    /// Tells the attempt to stop. The first cause stands.
    pub(crate) fn stop(&self, cause: Cause) {
        let place = Cause::ALL.iter().position(|known| *known == cause).unwrap_or_default() as u8;
        if self.cause.compare_exchange(0, place + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.told.notify_waiters();
        }
    }

    /// Why it is to stop, if it is.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let place = usize::from(self.cause.load(Ordering::SeqCst)).checked_sub(1)?;
        Cause::ALL.get(place).copied()
    }

    /// Waits until it is told to stop.
    pub(crate) async fn told(&self) -> Cause {
        loop {
            let told = self.told.notified();
            if let Some(cause) = self.cause() {
                return cause;
            }
            told.await;
        }
    }

    pub(crate) fn alive(&self, now_us: u64) {
        self.alive_us.fetch_max(now_us, Ordering::Relaxed);
    }

    pub(crate) fn alive_us(&self) -> u64 {
        self.alive_us.load(Ordering::Relaxed)
    }

    /// Keeps the last `max` bytes of what the attempt writes.
    pub(crate) fn output(&self, bytes: &[u8], max: usize) {
        let output = &mut self.said().output;
        let bytes = &bytes[bytes.len().saturating_sub(max)..];
        let excess = (output.len() + bytes.len()).saturating_sub(max);
        output.drain(..excess);
        output.extend(bytes);
    }

    /// Keeps what the attempt says for its log, from now on.
    pub(crate) fn keep_log(&self, log: Log) {
        self.said().log = Some(Box::new(log));
    }

    /// Adds to the log, if there is one.
    pub(crate) fn log(&self, stream: Stream, bytes: &[u8]) {
        let is_first = self.said().log.as_mut().is_some_and(|log| log.say(stream, bytes));
        if is_first {
            // Whoever watches the attempt sees to it that it is written.
            self.book.ring();
        }
    }

    /// Whether something is to be written to the log.
    pub(crate) fn has_unwritten_log(&self) -> bool {
        self.said().log.as_ref().is_some_and(|log| log.has_unwritten())
    }

    /// The rows by which the log is written.
    pub(crate) fn log_rows(&self, call: CallId, now: Timestamp) -> Vec<Row> {
        self.said().log.as_mut().map(|log| log.rows(call, now)).unwrap_or_default()
    }

    /// The last of what it has written, if it has.
    pub(crate) fn last_output(&self) -> Option<String> {
        let mut said = self.said();
        let text = String::from_utf8_lossy(said.output.make_contiguous());
        (!text.is_empty()).then(|| text.into_owned())
    }

    /// How far it is.
    pub(crate) fn set_progress(&self, progress: Progress) {
        self.said().progress = Some(Box::new(progress));
    }

    /// What it does now.
    pub(crate) fn set_status(&self, status: String) {
        self.said().status = Some(status.into());
    }

    /// How far it last said that it is, and what it does.
    pub(crate) fn last_words(&self) -> (Option<Progress>, Option<String>) {
        let said = self.said();
        (said.progress.as_deref().cloned(), said.status.as_deref().map(str::to_string))
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stands() {
        let signal = Signal::new(0);
        assert_eq!(signal.cause(), None);
        for &cause in Cause::ALL {
            signal.stop(cause);
            assert_eq!(signal.cause(), Some(Cause::ALL[0]));
        }
    }

    #[test]
    fn the_last_output_is_kept() {
        let signal = Signal::new(0);
        assert_eq!(signal.last_output(), None);
        for piece in ["one ", "two ", "three ", &"x".repeat(20)] {
            signal.output(piece.as_bytes(), 10);
        }
        assert_eq!(signal.last_output(), Some("x".repeat(10)));
        signal.output("yz".as_bytes(), 10);
        assert_eq!(signal.last_output(), Some("xxxxxxxxyz".to_string()));
    }
}
