//! Limits of stores, each with its reason.

use windlass_args::limits;

/// The limits that this crate enforces, for a macro that declares or joins limits: see `windlass_args::arg_limits`.
#[macro_export]
macro_rules! store_limits {
    ($($to:ident)::+; $($before:tt)*) => { $($to)::+! { $($before)*
        /// A worker that was not heard of for so long, in milliseconds, owns nothing any more: a pause that is shorter
        /// costs nothing.
        lease_ms = 10_000;
        /// Changes that share one commit; more would make the first of them wait for the last.
        group_changes_max = 1_024;
        /// Past this size of the write-ahead log the writer waits for a checkpoint, so that the log stays bounded.
        wal_bytes_max = 64 << 20;
        /// Kept free on the disk, and used when it is full, so that running work can end. At most 1 GiB; more than a
        /// quarter of what is free is not kept.
        ballast_bytes = 1 << 20;
    } };
}

store_limits! { limits;
    /// Limits of a store.
    struct StoreLimits {}
}

/// The largest `ballast_bytes`: what lets running work end needs no more, and more would only take the disk from others.
pub const BALLAST_BYTES_MAX: u64 = 1 << 30;
