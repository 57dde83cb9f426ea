//! Work on large texts, which is done on a thread of its own: on one of the server's it would hold up everybody else there.

use tokio::task::spawn_blocking;

/// The longest text that is parsed or written in place: that takes about a millisecond.
pub(crate) const IN_PLACE_BYTES_MAX: usize = 256 << 10;

/// Does work on a text of this length, apart if it is large.
pub(crate) async fn on_text<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= IN_PLACE_BYTES_MAX {
        return work();
    }
    match spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The process ends: nobody waits for it any more.
        Err(Err(_)) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[tokio::test]
    async fn only_work_on_large_texts_leaves_its_thread() {
        let own = thread::current().id();
        assert_eq!(on_text(IN_PLACE_BYTES_MAX, || thread::current().id()).await, own);
        assert_ne!(on_text(IN_PLACE_BYTES_MAX + 1, || thread::current().id()).await, own);
    }
}
