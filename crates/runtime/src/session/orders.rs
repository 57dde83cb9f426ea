//! Orders: what is changed for all workers of a store at once. A change is acknowledged when every live worker has adopted it.
//!
//! Each order has a number that only grows. A worker says in its record which it has adopted; one that says nothing for a lease is
//! not waited for, and starts nothing more: see [`Owners::stands`](crate::session::owners::Owners::stands).

use std::sync::atomic::{AtomicU64, Ordering};

/// The kinds of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The policy, by its version.
    Policy,
    /// Revoked tokens.
    Revocations,
    /// Paused tools.
    Pauses,
}

/// The numbers of the orders that this process has adopted, apart from the policy, which knows its version.
#[derive(Default)]
pub(crate) struct AdoptedOrders {
    revocations: AtomicU64,
    pauses: AtomicU64,
    /// Whether the paused tools were read.
    are_pauses_known: std::sync::atomic::AtomicBool,
}

impl AdoptedOrders {
    /// The number of the last adopted order of a kind; 0 if there was none, and of the policy.
    pub(crate) fn number(&self, order: Order) -> u64 {
        self.cell(order).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    /// Notes that an order is adopted. `true`: it was not before.
    pub(crate) fn adopt(&self, order: Order, number: u64) -> bool {
        self.cell(order).is_some_and(|cell| cell.fetch_max(number, Ordering::AcqRel) < number)
    }

    /// Whether the paused tools were read once.
    pub(crate) fn knows_pauses(&self) -> bool {
        self.are_pauses_known.load(Ordering::Acquire)
    }

    /// Notes that the paused tools were read.
    pub(crate) fn has_read_pauses(&self) {
        self.are_pauses_known.store(true, Ordering::Release);
    }

    fn cell(&self, order: Order) -> Option<&AtomicU64> {
        match order {
            Order::Policy => None,
            Order::Revocations => Some(&self.revocations),
            Order::Pauses => Some(&self.pauses),
        }
    }
}
