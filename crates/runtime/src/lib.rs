//! The durable tool runtime.
