//! A connection that closes when its peer stops reading.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail when the peer has taken nothing for so long: otherwise a peer that never reads would hold it for ever.
pub struct Patient<S> {
    stream: S,
    wait: Duration,
    /// Runs while a write is blocked.
    deadline: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Patient<S> {
    /// Wraps a stream with this patience.
    pub fn new(stream: S, wait: Duration) -> Patient<S> {
        Patient { stream, wait, deadline: Box::pin(sleep(wait)), waits: false }
    }

    fn judge<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !std::mem::replace(&mut self.waits, true) {
            self.deadline.as_mut().reset(Instant::now() + self.wait);
        }
        match self.deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn who_takes_nothing_is_let_go_and_who_takes_a_little_is_not() {
        let wait = Duration::from_millis(50);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Patient::new(ours, wait);
        let slow = tokio::spawn(async move {
            let mut taken = [0; 8];
            for _ in 0..20 {
                tokio::time::sleep(wait / 5).await; // tidy: a reader that is slow is what this is about
                theirs.read_exact(&mut taken).await.expect("it comes");
            }
            theirs
        });
        ours.write_all(&[7; 160]).await.expect("it is taken, if slowly");
        let _theirs = slow.await.expect("no panic");
        let failed = ours.write_all(&[7; 160]).await.expect_err("nobody takes it");
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    }
}
