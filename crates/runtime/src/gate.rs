//! Attempts of calls that are suspected of killing their owner run alone, so that no other call is taken for them.

use crate::runtime::Inner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

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
    /// Whether one of them runs.
    running: bool,
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

    /// Waits until the attempt may start.
    pub(crate) async fn pass(rt: &Inner, is_suspect: bool) -> Passage<'_> {
        if is_suspect {
            return rt.gate.alone(rt).await;
        }
        loop {
            rt.gate.running.fetch_add(1, Ordering::SeqCst);
            let passage = Passage { rt, who: Who::Other };
            let opened = rt.gate.opened.notified();
            // Whoever opened the gate before this was waited for has told nobody.
            if !rt.gate.shut.load(Ordering::SeqCst) {
                return passage;
            }
            let aside_until_us = rt.gate.lock().aside_until_us;
            if rt.clock.elapsed_us() >= aside_until_us {
                return passage;
            }
            drop(passage);
            tokio::select! {
                () = opened => {}
                () = rt.wheel.until(aside_until_us) => {}
            }
        }
    }

    async fn alone<'a>(&'a self, rt: &'a Inner) -> Passage<'a> {
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
                if !suspects.running && (others == 0 || now >= until) {
                    suspects.running = true;
                    // Its time alone begins now.
                    suspects.aside_until_us = now.saturating_add(alone_us);
                    passage.who = Who::SuspectThatRuns;
                    return passage;
                }
                if suspects.running { u64::MAX } else { until }
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
            suspects.running &= self.who != Who::SuspectThatRuns;
            suspects.count -= 1;
            gate.shut.store(suspects.count > 0, Ordering::SeqCst);
            gate.opened.notify_waiters();
        }
        if self.who != Who::Other || gate.shut.load(Ordering::SeqCst) {
            gate.left.notify_waiters();
        }
    }
}
