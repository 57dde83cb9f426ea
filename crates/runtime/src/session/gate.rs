//! Attempts of calls that are suspected of killing their owner run alone, so that no other call is blamed.
//! Calls inside a suspect are part of it.

use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::Held;
use crate::session::inner::Inner;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;
use windlass_core::ids::CallId;

/// The gate that every attempt passes. Without a suspect it costs a counter.
#[derive(Default)]
pub(crate) struct Gate {
    /// Running attempts of calls that are not suspects.
    running: AtomicU64,
    /// Whether a suspect runs or wants to.
    shut: AtomicBool,
    suspects: OrderedMutex<Suspects, { LockRank::Suspects as u8 }>,
    /// Notifies suspects when an attempt is over.
    left: Notify,
    /// Notifies all others when a suspect is over. Not when one of themselves steps back: they would wake
    /// each other for ever, and a suspect would hardly ever find them all gone.
    opened: Notify,
}

#[derive(Default)]
struct Suspects {
    /// Suspects that run or want to.
    count: u64,
    /// The running suspect.
    running: Option<CallId>,
    /// Until when the others wait, by the clock that never jumps: the harm of a suspect is bounded.
    aside_until_us: u64,
}

/// An attempt that has passed the gate, until dropped.
pub(crate) struct Passage<'a> {
    rt: &'a Inner,
    who: SuspectRole,
}

#[derive(PartialEq)]
enum SuspectRole {
    Other,
    SuspectThatWaits,
    SuspectThatRuns,
    /// An attempt inside the running suspect, which waits for it.
    SuspectInside,
}

/// The calls around a call, from the inside out.
fn around(held: &Held) -> impl Iterator<Item = CallId> {
    std::iter::successors(held.parent(), |call| {
        let batch = held.on.session.find_no(call.batch)?;
        batch.head.parent.map(|parent| parent.call)
    })
}

impl Suspects {
    /// Whether the running suspect is a call around this one, which it waits for, for ever.
    fn runs_around(&self, held: &Held) -> bool {
        self.running.is_some_and(|running| around(held).any(|call| call == running))
    }

    /// Whether a call that is no suspect may pass though the gate is shut.
    fn lets_pass(&self, held: &Held, now_us: u64) -> bool {
        let is_late = now_us >= self.aside_until_us;
        // A suspect that does not run yet waits for the calls around this one, which wait for it.
        let is_waited_for = self.running.is_none() && held.parent().is_some();
        is_late || is_waited_for || self.runs_around(held)
    }
}

fn is_suspect(held: &Held) -> bool {
    // One of a toolbox is alone in a process of that instead, which is what it may have killed.
    let is_elsewhere = held.tool.as_ref().is_some_and(|tool| tool.link.is_some());
    held.call.is_suspect() && !is_elsewhere && !windlass_core::mutant::breaks("suspects-together")
}

impl Gate {
    /// Passes an attempt that need not wait.
    pub(crate) fn try_pass<'a>(rt: &'a Inner, held: &Held) -> Option<Passage<'a>> {
        if is_suspect(held) {
            return None;
        }
        rt.gate.running.fetch_add(1, Ordering::SeqCst);
        let passage = Passage { rt, who: SuspectRole::Other };
        (!rt.gate.shut.load(Ordering::SeqCst)).then_some(passage)
    }

    /// Waits until an attempt of the call may start.
    pub(crate) async fn pass<'a>(rt: &'a Inner, held: &Held) -> Passage<'a> {
        if is_suspect(held) {
            return rt.gate.alone(rt, held).await;
        }
        loop {
            rt.gate.running.fetch_add(1, Ordering::SeqCst);
            let passage = Passage { rt, who: SuspectRole::Other };
            let opened = rt.gate.opened.notified();
            // A gate opened before this wait began has notified nobody.
            if !rt.gate.shut.load(Ordering::SeqCst) {
                return passage;
            }
            let aside_until_us = {
                let suspects = rt.gate.suspects.lock();
                if suspects.lets_pass(held, rt.clock.elapsed_us()) {
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
            let mut suspects = self.suspects.lock();
            suspects.count += 1;
            suspects.aside_until_us = until;
            self.shut.store(true, Ordering::SeqCst);
        }
        // Those around it wait for it, so it never finds them gone.
        let around = around(held).count() as u64;
        let mut passage = Passage { rt, who: SuspectRole::SuspectThatWaits };
        loop {
            let left = self.left.notified();
            let look_again = {
                let mut suspects = self.suspects.lock();
                let now = rt.clock.elapsed_us();
                let others = self.running.load(Ordering::SeqCst);
                if suspects.runs_around(held) {
                    passage.who = SuspectRole::SuspectInside;
                    return passage;
                }
                if suspects.running.is_none() && (others <= around || now >= until) {
                    suspects.running = Some(held.id);
                    // Its exclusive time begins now.
                    suspects.aside_until_us = now.saturating_add(alone_us);
                    passage.who = SuspectRole::SuspectThatRuns;
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
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let gate = &self.rt.gate;
        if self.who == SuspectRole::Other {
            gate.running.fetch_sub(1, Ordering::SeqCst);
        } else {
            let mut suspects = gate.suspects.lock();
            if self.who == SuspectRole::SuspectThatRuns {
                suspects.running = None;
            }
            suspects.count -= 1;
            gate.shut.store(suspects.count > 0, Ordering::SeqCst);
            gate.opened.notify_waiters();
        }
        if self.who != SuspectRole::Other || gate.shut.load(Ordering::SeqCst) {
            gate.left.notify_waiters();
        }
    }
}
