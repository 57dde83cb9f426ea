//! The runtime's own kill points, like the store's in `windlass_store::points`. They exist only with the
//! feature `kill-points`; without it, `point!` is just the wait itself.

/// Names a wait for the store: an expression that returns a `Result`.
#[cfg(not(feature = "kill-points"))]
macro_rules! point {
    ($name:literal, $wait:expr) => {
        $wait
    };
}

/// Names a wait for the store: an expression that returns a `Result`.
#[cfg(feature = "kill-points")]
macro_rules! point {
    ($name:literal, $wait:expr) => {
        match windlass_store::points::arrive($name) {
            Ok(visit) => visit.leave($wait),
            Err(told) => Err(told.into()),
        }
    };
}

/// Names a moment between two waits, at which a process can die; it cannot fail.
#[cfg(not(feature = "kill-points"))]
macro_rules! moment {
    ($name:literal) => {};
}

/// Names a moment between two waits, at which a process can die; it cannot fail.
#[cfg(feature = "kill-points")]
macro_rules! moment {
    ($name:literal) => {
        $crate::points::pass($name)
    };
}

/// Passes a moment, or dies there.
#[cfg(feature = "kill-points")]
pub(crate) fn pass(name: &'static str) {
    // A moment writes nothing, so an injected failure is ignored.
    let _passed = windlass_store::points::arrive(name)
        .and_then(|visit| visit.leave(Ok::<(), windlass_store::points::Told>(())));
}

/// All points of the runtime; moments begin with `at.`. A point that is visited and not listed, or listed and
/// never visited, fails the suite.
#[cfg(feature = "kill-points")]
pub const NAMES: &[&str] = &[
    "lane.durable",
    "inbound.post",
    "at.adopt",
    "at.start",
    "at.stop",
    "at.end",
    "at.wake",
    "at.call",
    "at.leave",
    "at.fetch",
    "at.reconcile",
    "at.reconciled",
];
