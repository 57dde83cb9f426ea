//! Counting allocations. Counting costs atomics on every allocation, so that a binary which takes times of single calls in
//! memory does not install the allocator, and one which counts does not take such times:
//!
//! ```
//! use windlass_bench::allocations::{self, CountingAlloc};
//!
//! #[global_allocator]
//! static ALLOCATOR: &CountingAlloc = allocations::COUNTING;
//!
//! let (_, count) = allocations::during(|| vec![1]);
//! assert_eq!(count, Some(1));
//! ```

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

/// The system's allocator, with counters for the whole process.
pub type CountingAlloc = StatsAlloc<System>;

/// The one to install with `#[global_allocator]`.
pub const COUNTING: &CountingAlloc = &INSTRUMENTED_SYSTEM;

/// How many allocations (and growths of one) the whole process made while `work` ran; nothing if [`COUNTING`] is
/// not installed. Never inlined: `once-over` counts the instructions between its beginning and its end.
#[inline(never)]
pub fn during<T>(work: impl FnOnce() -> T) -> (T, Option<u64>) {
    let before = so_far();
    let result = work();
    (result, so_far().zip(before).map(|(after, before)| after - before))
}

/// How many bytes the whole process has allocated and not freed; nothing if nobody counts.
pub fn held_bytes() -> Option<u64> {
    let stats = INSTRUMENTED_SYSTEM.stats();
    // Both count growing and shrinking, too.
    (stats.allocations > 0).then(|| stats.bytes_allocated.saturating_sub(stats.bytes_deallocated) as u64)
}

/// How many the whole process has made so far; nothing if nobody counts.
pub fn so_far() -> Option<u64> {
    let stats = INSTRUMENTED_SYSTEM.stats();
    let count = (stats.allocations + stats.reallocations) as u64;
    // No program gets here without a single allocation: zero means that nobody counts.
    (count > 0).then_some(count)
}
