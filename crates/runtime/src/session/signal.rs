//! State shared by a running attempt and its watcher: the stop signal, signs of life, the last output.

use crate::api::clock::Clock;
use crate::api::locks::{LockGuard, LockRank, OrderedMutex};
use crate::api::progress::Progress;
use crate::session::book::Book;
use crate::session::events::RunningAttempt;
use crate::session::log::{AttemptLog, Stream};
use crate::session::notices::TaskWords;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use tokio::sync::Notify;
use windlass_core::call::Cause;
use windlass_core::ids::{AttemptNo, CallId};
use windlass_core::redact::{SecretMatcher, StreamScrubber};
use windlass_core::time::Timestamp;
use windlass_store::Row;

/// One per attempt, shared by the tool's [`Cx`](crate::Cx) and its watcher.
#[derive(Debug)]
pub(crate) struct AttemptSignal {
    /// 0, or one more than the place of the cause in [`Cause::ALL`].
    cause: AtomicU8,
    told: Notify,
    /// Whether nothing of the attempt has begun, so that its start is taken back.
    taken_back: AtomicBool,
    /// Whether the process that ran the attempt outside is gone, so that it is lost as with a dead owner.
    lost: AtomicBool,
    /// The last sign of life of the tool, by the clock that never jumps.
    alive_us: AtomicU64,
    said: OrderedMutex<AttemptWords, { LockRank::AttemptWords as u8 }>,
    /// Whether the call, or one around it, may become a task while the attempt runs.
    pub(crate) may_detach: bool,
    /// The attempt.
    began: Began,
    /// The tool's named operations.
    pub(crate) book: Book,
}

/// An attempt that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    /// Its number.
    pub(crate) attempt: AttemptNo,
    /// Its start, by the clock that never jumps.
    pub(crate) at_us: u64,
    /// Whether its start was recorded before.
    pub(crate) is_recorded: bool,
}

/// The reports of a running attempt.
#[derive(Debug, Default)]
struct AttemptWords {
    /// The end of its output.
    output: VecDeque<u8>,
    /// Its log, if it may become a task.
    log: Option<Box<AttemptLog>>,
    progress: Option<Box<Progress>>,
    status: Option<Box<str>>,
    /// Whether progress or status of a possible task are not written.
    is_reported: bool,
    /// The ends of its output by stream that may be the beginnings of secrets.
    scrubbers: Vec<(Stream, StreamScrubber)>,
}

impl AttemptSignal {
    pub(crate) fn new(began: Began) -> AttemptSignal {
        AttemptSignal {
            cause: AtomicU8::new(0),
            told: Notify::new(),
            taken_back: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            alive_us: AtomicU64::new(began.at_us),
            said: OrderedMutex::default(),
            may_detach: false,
            began,
            book: Book::default(),
        }
    }

    /// A signal for another attempt, in the memory of a used one if nobody else has that.
    pub(crate) fn anew(
        used: Option<Arc<AttemptSignal>>,
        began: Began,
        may_detach: bool,
    ) -> Arc<AttemptSignal> {
        if let Some(mut used) = used
            && let Some(signal) = Arc::get_mut(&mut used)
        {
            signal.clear(began, may_detach);
            return used;
        }
        Arc::new(AttemptSignal { may_detach, ..AttemptSignal::new(began) })
    }

    /// Makes it new. Nobody waits for it, so that its notifications stay as they are, unless they keep a permit.
    fn clear(&mut self, began: Began, may_detach: bool) {
        *self.cause.get_mut() = 0;
        *self.taken_back.get_mut() = false;
        *self.lost.get_mut() = false;
        *self.alive_us.get_mut() = began.at_us;
        *self.said.get_mut() = AttemptWords::default();
        (self.began, self.may_detach) = (began, may_detach);
        self.book.clear();
    }

    /// The number of the attempt.
    pub(crate) fn attempt(&self) -> AttemptNo {
        self.began.attempt
    }

    /// The attempt, if its start was not recorded when it began.
    pub(crate) fn unrecorded(&self, clock: &dyn Clock) -> Option<RunningAttempt> {
        let Began { attempt, at_us, is_recorded } = self.began;
        if is_recorded {
            return None;
        }
        let ago_us = i64::try_from(clock.elapsed_us().saturating_sub(at_us)).unwrap_or(i64::MAX);
        let at = Timestamp(clock.now().0.saturating_sub(ago_us));
        Some(RunningAttempt { attempt: attempt.0, at })
    }

    /// Asks the attempt to stop. The first cause stands.
    pub(crate) fn stop(&self, cause: Cause) {
        let place = Cause::ALL.iter().position(|known| *known == cause).unwrap_or_default() as u8;
        if self.cause.compare_exchange(0, place + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.told.notify_waiters();
        }
    }

    /// Nothing of the attempt has begun, and nothing will: its start is taken back.
    pub(crate) fn take_back(&self) {
        self.taken_back.store(true, Ordering::SeqCst);
    }

    /// Whether its start is taken back.
    pub(crate) fn is_taken_back(&self) -> bool {
        self.taken_back.load(Ordering::SeqCst)
    }

    /// The process that ran the attempt outside is gone.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Whether the process that ran it outside is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Why it must stop, if it must.
    pub(crate) fn cause(&self) -> Option<Cause> {
        let place = usize::from(self.cause.load(Ordering::SeqCst)).checked_sub(1)?;
        Cause::ALL.get(place).copied()
    }

    /// Waits until it is asked to stop.
    pub(crate) async fn stop_requested(&self) -> Cause {
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

    /// Keeps the last `max` bytes of the attempt's output.
    pub(crate) fn output(&self, bytes: &[u8], max: usize) {
        let output = &mut self.said.lock().output;
        let bytes = &bytes[bytes.len().saturating_sub(max)..];
        let excess = (output.len() + bytes.len()).saturating_sub(max);
        output.drain(..excess);
        output.extend(bytes);
    }

    /// The next chunk of a stream without secrets; its end may be held back until more comes.
    pub(crate) fn scrub(&self, stream: Stream, known: &SecretMatcher, bytes: &[u8]) -> Vec<u8> {
        let mut said = self.said.lock();
        let place = match said.scrubbers.iter().position(|(of, _)| *of == stream) {
            Some(place) => place,
            None => {
                said.scrubbers.push((stream, StreamScrubber::default()));
                said.scrubbers.len() - 1
            }
        };
        said.scrubbers[place].1.push(known, bytes)
    }

    /// The held back ends of all streams: no more comes.
    pub(crate) fn held_back(&self, known: &SecretMatcher) -> Vec<(Stream, Vec<u8>)> {
        let scrubbers = std::mem::take(&mut self.said.lock().scrubbers);
        let ends = scrubbers.into_iter().map(|(stream, mut scrubber)| (stream, scrubber.finish(known)));
        ends.filter(|(_, bytes)| !bytes.is_empty()).collect()
    }

    /// Starts to keep the attempt's log.
    pub(crate) fn keep_log(&self, log: AttemptLog) {
        self.said.lock().log = Some(Box::new(log));
    }

    /// Adds to the log, if there is one.
    pub(crate) fn log(&self, stream: Stream, bytes: &[u8]) {
        let is_first = self.said.lock().log.as_mut().is_some_and(|log| log.say(stream, bytes));
        if is_first {
            // The watcher of the attempt has it written.
            self.book.ring();
        }
    }

    /// Whether the log has pending pieces.
    pub(crate) fn has_unwritten_log(&self) -> bool {
        let said = self.said.lock();
        said.is_reported || said.log.as_ref().is_some_and(|log| log.has_unwritten())
    }

    /// The rows that write the log, and the last progress and status of a task.
    pub(crate) fn log_rows(&self, call: CallId, now: Timestamp) -> Vec<Row> {
        let mut said = self.said.lock();
        let mut rows = said.log.as_mut().map(|log| log.rows(call, now)).unwrap_or_default();
        said.is_reported = false;
        if said.progress.is_some() || said.status.is_some() {
            let (progress, status) = (said.progress.as_deref().cloned(), said.status.as_deref());
            let status = status.map(str::to_string);
            rows.push(TaskWords { progress, status, at_us: now.0 }.row(call));
        }
        rows
    }

    /// The end of its output, if it has any.
    pub(crate) fn last_output(&self) -> Option<String> {
        let mut said = self.said.lock();
        let text = String::from_utf8_lossy(said.output.make_contiguous());
        (!text.is_empty()).then(|| text.into_owned())
    }

    /// Sets its progress.
    pub(crate) fn set_progress(&self, progress: Progress) {
        let mut said = self.said.lock();
        said.progress = Some(Box::new(progress));
        self.report(said);
    }

    /// Has the progress or status of a task written, soon.
    fn report(&self, mut said: LockGuard<'_, AttemptWords>) {
        let is_first = said.log.is_some() && !said.is_reported;
        said.is_reported |= is_first;
        drop(said);
        if is_first {
            self.book.ring();
        }
    }

    /// Sets its status.
    pub(crate) fn set_status(&self, status: String) {
        let mut said = self.said.lock();
        said.status = Some(status.into());
        self.report(said);
    }

    /// Its last progress and status.
    pub(crate) fn last_words(&self) -> (Option<Progress>, Option<String>) {
        let said = self.said.lock();
        (said.progress.as_deref().cloned(), said.status.as_deref().map(str::to_string))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal() -> AttemptSignal {
        AttemptSignal::new(Began { attempt: AttemptNo(1), at_us: 0, is_recorded: true })
    }

    #[test]
    fn the_first_cause_stands() {
        let signal = signal();
        assert_eq!(signal.cause(), None);
        for &cause in Cause::ALL {
            signal.stop(cause);
            assert_eq!(signal.cause(), Some(Cause::ALL[0]));
        }
    }

    #[test]
    fn the_last_output_is_kept() {
        let signal = signal();
        assert_eq!(signal.last_output(), None);
        for piece in ["one ", "two ", "three ", &"x".repeat(20)] {
            signal.output(piece.as_bytes(), 10);
        }
        assert_eq!(signal.last_output(), Some("x".repeat(10)));
        signal.output("yz".as_bytes(), 10);
        assert_eq!(signal.last_output(), Some("xxxxxxxxyz".to_string()));
    }
}
