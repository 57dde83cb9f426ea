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

/// Every point of the runtime. One that is visited and not listed, or listed and never visited, fails the suite.
#[cfg(feature = "kill-points")]
pub const NAMES: &[&str] = &["lane.durable"];
