//! An attempt that a toolbox has, between the tool that waits for it here and the process that runs it there.

use super::talk::{
    AttemptReport, OperationAnswer, OperationRefusal, TakenAttempt, ToolboxEnd, ToolboxOperation,
};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::cx::Cx;
use crate::tools::toolbox::{HandedAttempt, ToolboxLink};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc;
use windlass_core::call::Cause;
use windlass_core::tool::Digest;

/// One attempt of a toolbox while its tool waits for it.
pub(super) struct Seat {
    /// The hash of its token.
    pub(super) hash: Arc<str>,
    pub(super) toolbox: Arc<str>,
    /// The principal that the toolbox belongs to.
    pub(super) principal: Arc<str>,
    /// The manifest that its tool has: only a process with the same may take it.
    pub(super) manifest: Digest,
    /// Whether its call is suspected of killing the processes that run it: then it runs alone in one.
    pub(super) is_suspect: bool,
    /// Whether another call made it, or started it as a task.
    pub(super) is_inside: bool,
    /// When it began here, by the clock that never jumps.
    pub(super) since_us: u64,
    pub(super) cx: Cx,
    /// The arguments, which a process may read for itself.
    pub(super) args: Arc<Value>,
    /// The attempt as a process takes it; none if it was taken under an earlier owner.
    pub(super) offer: Option<TakenAttempt>,
    page: OrderedMutex<SeatPage, { LockRank::SeatPage as u8 }>,
    messages: mpsc::UnboundedSender<SeatMessage>,
    /// When its process was last heard of, by the clock that never jumps.
    heard_us: AtomicU64,
    /// Notified when a report may have news.
    news: Arc<Notify>,
    /// Notified when the tool here must look again.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct SeatPage {
    /// The process that has it.
    worker: Option<Arc<str>>,
    /// Whether nobody may take it any more.
    is_withdrawn: bool,
    /// Each operation by its number, with its answer once there is one.
    answers: BTreeMap<u64, AskedOperation>,
    has_end: bool,
    is_over: bool,
}

struct AskedOperation {
    is_quick: bool,
    answer: Option<OperationAnswer>,
}

/// The work of an attempt.
pub(super) struct SeatContent {
    pub(super) args: Arc<Value>,
    /// The attempt as a process takes it; none if it was taken under an earlier owner.
    pub(super) offer: Option<TakenAttempt>,
}

/// A message of the process to the tool.
pub(super) enum SeatMessage {
    Operation(u64, ToolboxOperation),
    End(ToolboxEnd),
}

impl Seat {
    pub(super) fn new(
        link: &ToolboxLink,
        handed: &HandedAttempt,
        cx: Cx,
        content: SeatContent,
        news: &Arc<Notify>,
    ) -> (Arc<Seat>, mpsc::UnboundedReceiver<SeatMessage>) {
        let (messages, heard) = mpsc::unbounded_channel();
        let (page, changed) = (OrderedMutex::default(), Notify::new());
        let since_us = cx.clock().elapsed_us();
        let HandedAttempt { hash, is_suspect, .. } = handed.clone();
        let SeatContent { args, offer } = content;
        let seat = Seat {
            hash,
            toolbox: link.toolbox.clone(),
            principal: link.principal.clone(),
            manifest: link.manifest,
            is_suspect,
            is_inside: cx.parent().is_some(),
            since_us,
            cx,
            args,
            offer,
            page,
            messages,
            heard_us: AtomicU64::new(since_us),
            news: news.clone(),
            changed,
        };
        (Arc::new(seat), heard)
    }

    /// Gives it to a process. `false`: nobody may take it.
    pub(super) fn take(&self, worker: &Arc<str>, now_us: u64) -> bool {
        let mut page = self.page.lock();
        if page.is_withdrawn || page.is_over || page.worker.is_some() {
            return false;
        }
        page.worker = Some(worker.clone());
        drop(page);
        self.heard(now_us);
        self.changed.notify_one();
        true
    }

    /// The attempt as a process takes it, at this moment.
    pub(super) fn offered(&self) -> Option<TakenAttempt> {
        let offer = self.offer.clone()?;
        Some(TakenAttempt { left: self.cx.time_left(), ..offer })
    }

    /// Keeps it from being taken. `false`: a process has it.
    pub(super) fn withdraw(&self) -> bool {
        let mut page = self.page.lock();
        page.is_withdrawn |= page.worker.is_none();
        let withdrawn = page.is_withdrawn;
        drop(page);
        self.changed.notify_one();
        withdrawn
    }

    /// The process that has it, if one has.
    pub(super) fn worker(&self) -> Option<Arc<str>> {
        self.page.lock().worker.clone()
    }

    /// Whether a process has it, maybe since an earlier owner.
    pub(super) fn is_taken(&self) -> bool {
        self.offer.is_none() || self.worker().is_some()
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.page.lock().is_withdrawn
    }

    /// Its process was heard of.
    pub(super) fn heard(&self, now_us: u64) {
        self.heard_us.fetch_max(now_us, Ordering::SeqCst);
    }

    /// When its process was last heard of.
    pub(super) fn heard_us(&self) -> u64 {
        self.heard_us.load(Ordering::SeqCst)
    }

    /// Whether its process was silent for too long. Then it has lost the attempt, whatever it says now.
    pub(super) fn is_silent(&self, now_us: u64, silence_us: u64) -> bool {
        now_us >= self.heard_us().saturating_add(silence_us)
    }

    /// Takes a report of the process. An operation or an end that is sent again changes nothing.
    pub(super) fn report(&self, worker: &Arc<str>, report: AttemptReport, now_us: u64) {
        self.heard(now_us);
        let AttemptReport { is_alive, progress, status, output, operations, end, .. } = report;
        if is_alive {
            self.cx.heartbeat();
        }
        if let Some(progress) = progress {
            self.cx.progress(progress);
        }
        if let Some(status) = status {
            self.cx.status(&status);
        }
        for (stream, text) in output {
            self.cx.output(stream, text.as_bytes());
        }
        let operations_max = self.cx.limits().operations_max;
        let mut page = self.page.lock();
        // After a restart of the owner the process says who it is.
        page.worker.get_or_insert_with(|| worker.clone());
        for (number, operation) in operations {
            if page.is_over || page.answers.contains_key(&number) {
                continue;
            }
            if page.answers.len() as u64 >= operations_max {
                // Nothing is kept of it: a process that counts on for ever takes no more memory.
                continue;
            }
            page.answers.insert(number, AskedOperation { is_quick: operation.is_quick(), answer: None });
            let _ = self.messages.send(SeatMessage::Operation(number, operation));
        }
        if let Some(end) = end
            && !page.has_end
        {
            page.has_end = true;
            let _ = self.messages.send(SeatMessage::End(end));
        }
    }

    /// The answer to an operation is there.
    pub(super) fn answer(&self, number: u64, answer: OperationAnswer) {
        if let Some(asked) = self.page.lock().answers.get_mut(&number) {
            asked.answer = Some(answer);
        }
        self.news.notify_waiters();
    }

    /// The answers to these operations, as far as they are there. One more than an attempt may have is refused.
    pub(super) fn answers(&self, numbers: &[u64]) -> Vec<(u64, OperationAnswer)> {
        let max = self.cx.limits().operations_max;
        let page = self.page.lock();
        let answer = |number: &u64| match page.answers.get(number) {
            Some(asked) => Some((*number, asked.answer.clone()?)),
            None if page.answers.len() as u64 >= max => {
                let message = format!("an attempt has at most {max} operations");
                Some((*number, OperationAnswer::Refused { code: OperationRefusal::Misused, message }))
            }
            None => None,
        };
        numbers.iter().filter_map(answer).collect()
    }

    /// Whether an answer to one of these comes as soon as it is recorded, and is missing.
    pub(super) fn owes(&self, numbers: &[u64]) -> bool {
        let page = self.page.lock();
        let owed = |number: &u64| {
            page.answers.get(number).is_some_and(|asked| asked.is_quick && asked.answer.is_none())
        };
        !page.is_over && numbers.iter().any(owed)
    }

    /// Why it must stop, if it must.
    pub(super) fn stop(&self) -> Option<Cause> {
        self.cx.signal.cause()
    }

    /// Nothing that its process says counts any more.
    pub(super) fn close(&self) {
        self.page.lock().is_over = true;
    }

    pub(super) fn is_over(&self) -> bool {
        self.page.lock().is_over
    }
}
