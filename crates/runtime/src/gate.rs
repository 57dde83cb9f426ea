//! Attempts of calls that are suspected of killing their owner run alone, so that no other call is taken for them. Those
//! inside one that runs so are part of it.

use crate::held::Held;
use crate::runtime::Inner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use windlass_core::ids::CallId;

/// Through which every attempt goes. While there is no suspect it costs a count.
#[derive(Default)]
pub(crate) struct Gate {
    /// Attempts that are not suspects'.
    running: AtomicU64,
    /// Whether a suspect runs or wants to.
    shut: AtomicBool,
    suspects: Mutex<Suspects>,
    /// Told to suspects when an attempt is over.
    left: Notify,
    /// Told to all others when a suspect is over. Not when one of themselves steps back: they would wake each other for
    /// ever, and a suspect would hardly ever find them all gone.
    opened: Notify,
}

#[derive(Default)]
struct Suspects {
    /// Those that run or want to.
    count: u64,
    /// The one of them that runs.
    running: Option<CallId>,
    /// Until when the others stand aside, by the clock that never jumps: the harm one can do has a bound.
    aside_until_us: u64,
}

/// An attempt that was let through, until it is dropped.
pub(crate) struct Passage<'a> {
    rt: &'a Inner,
    who: Who,
}

#[derive(PartialEq)]
enum Who {
    Other,
    SuspectThatWaits,
    SuspectThatRuns,
    /// One inside the one that runs, which waits for it.
    SuspectInside,
}

impl Suspects {
    /// Whether the one that runs is a call around this one. That waits for this one, and would do so for ever.
    fn runs_around(&self, held: &Held) -> bool {
        let Some(running) = self.running else { return false };
        let mut around = held.parent();
        while let Some(call) = around.filter(|call| *call != running) {
            let batch = held.on.session.find_no(call.batch);
            around = batch.and_then(|batch| batch.head.parent).map(|parent| parent.call);
        }
        around.is_some()
    }
}

impl Gate {
    /// Lets an attempt through that need not wait.
    pub(crate) fn try_pass(rt: &Inner, is_suspect: bool) -> Option<Passage<'_>> {
        if is_suspect {
            return None;
        }
        rt.gate.running.fetch_add(1, Ordering::SeqCst);
        let passage = Passage { rt, who: Who::Other };
        (!rt.gate.shut.load(Ordering::SeqCst)).then_some(passage)
    }

    /// Waits until an attempt of the call may start.
    pub(crate) async fn pass<'a>(rt: &'a Inner, held: &Held, is_suspect: bool) -> Passage<'a> {
        if is_suspect {
            return rt.gate.alone(rt, held).await;
        }
        loop {
            rt.gate.running.fetch_add(1, Ordering::SeqCst);
            let passage = Passage { rt, who: Who::Other };
            let opened = rt.gate.opened.notified();
            // Whoever opened the gate before this was waited for has told nobody.
            if !rt.gate.shut.load(Ordering::SeqCst) {
                return passage;
            }
            let aside_until_us = {
                let suspects = rt.gate.lock();
                if rt.clock.elapsed_us() >= suspects.aside_until_us || suspects.runs_around(held) {
                    return passage;
                }
                suspects.aside_until_us
            };
            drop(passage);
            tokio::select! {
                () = opened => {}
                () = rt.wheel.until(aside_until_us) => {}
            }
        }
    }

    async fn alone<'a>(&'a self, rt: &'a Inner, held: &Held) -> Passage<'a> {
        let alone_us = rt.limits.suspect_alone_ms.saturating_mul(1_000);
        let until = rt.clock.elapsed_us().saturating_add(alone_us);
        {
            let mut suspects = self.lock();
            suspects.count += 1;
            suspects.aside_until_us = until;
            self.shut.store(true, Ordering::SeqCst);
        }
        let mut passage = Passage { rt, who: Who::SuspectThatWaits };
        loop {
            let left = self.left.notified();
            let look_again = {
                let mut suspects = self.lock();
                let now = rt.clock.elapsed_us();
                let others = self.running.load(Ordering::SeqCst);
                if suspects.runs_around(held) {
                    passage.who = Who::SuspectInside;
                    return passage;
                }
                if suspects.running.is_none() && (others == 0 || now >= until) {
                    suspects.running = Some(held.id);
                    // Its time alone begins now.
                    suspects.aside_until_us = now.saturating_add(alone_us);
                    passage.who = Who::SuspectThatRuns;
                    return passage;
                }
                if suspects.running.is_some() { u64::MAX } else { until }
            };
            tokio::select! {
                () = left => {}
                () = rt.wheel.until(look_again) => {}
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let gate = &self.rt.gate;
        if self.who == Who::Other {
            gate.running.fetch_sub(1, Ordering::SeqCst);
        } else {
            let mut suspects = gate.lock();
            if self.who == Who::SuspectThatRuns {
                suspects.running = None;
            }
            suspects.count -= 1;
            gate.shut.store(suspects.count > 0, Ordering::SeqCst);
            gate.opened.notify_waiters();
        }
        if self.who != Who::Other || gate.shut.load(Ordering::SeqCst) {
            gate.left.notify_waiters();
        }
    }
}
