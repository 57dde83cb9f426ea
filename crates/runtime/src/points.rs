//! The runtime's own kill points, as `windlass_store::points` has those of the store. They exist only with the feature
//! `kill-points`; without it, `point!` is the wait itself and nothing else.

/// Names a wait for the store, which is an expression that gives a `Result`.
#[cfg(not(feature = "kill-points"))]
macro_rules! point {
    ($name:literal, $wait:expr) => {
        $wait
    };
}

/// Names a wait for the store, which is an expression that gives a `Result`.
#[cfg(feature = "kill-points")]
macro_rules! point {
    ($name:literal, $wait:expr) => {
        match windlass_store::points::arrive($name) {
            Ok(visit) => visit.leave($wait),
            Err(told) => Err(told.into()),
        }
    };
}

/// Names a moment between two waits, at which a process can die; nothing can fail there.
#[cfg(not(feature = "kill-points"))]
macro_rules! moment {
    ($name:literal) => {};
}

/// Names a moment between two waits, at which a process can die; nothing can fail there.
#[cfg(feature = "kill-points")]
macro_rules! moment {
    ($name:literal) => {
        $crate::points::pass($name)
    };
}

/// Passes a moment, or dies there.
#[cfg(feature = "kill-points")]
pub(crate) fn pass(name: &'static str) {
    // Who is told to fail where nothing is written goes on.
    let _passed = windlass_store::points::arrive(name)
        .and_then(|visit| visit.leave(Ok::<(), windlass_store::points::Told>(())));
}

/// Every point of the runtime; those that begin with `at.` are moments. One that is visited and not listed, or listed
/// and never visited, fails the suite.
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
