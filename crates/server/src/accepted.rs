//! An accepted socket. Its connection reads and writes, and a request on it can ask whether the client is still there.

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// An accepted socket. It is closed when this is dropped.
pub(crate) struct AcceptedSocket(Arc<SocketKind>);

/// A look at a socket that somebody else uses; by default at one that is closed.
#[derive(Default)]
pub(crate) struct SocketWatch(Weak<SocketKind>);

enum SocketKind {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl From<UnixStream> for AcceptedSocket {
    fn from(stream: UnixStream) -> AcceptedSocket {
        AcceptedSocket(Arc::new(SocketKind::Unix(stream)))
    }
}

impl From<TcpStream> for AcceptedSocket {
    fn from(stream: TcpStream) -> AcceptedSocket {
        AcceptedSocket(Arc::new(SocketKind::Tcp(stream)))
    }
}

/// Calls a method that both kinds of sockets have.
macro_rules! on_socket {
    ($socket:expr, $stream:ident => $call:expr) => {
        match &*$socket.0 {
            SocketKind::Unix($stream) => $call,
            SocketKind::Tcp($stream) => $call,
        }
    };
}

impl SocketWatch {
    /// Whether the client has closed or lost the connection, as far as this machine knows at this moment. The connection itself
    /// finds out when the runtime next looks for events, which may be after an answer was written.
    pub(crate) fn is_gone(&self) -> bool {
        let Some(socket) = self.0.upgrade().map(AcceptedSocket) else { return true };
        match recv(socket.fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, read)) => read == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

impl AcceptedSocket {
    /// For requests that ask whether the client is still there.
    pub(crate) fn watch(&self) -> SocketWatch {
        SocketWatch(Arc::downgrade(&self.0))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        on_socket!(self, stream => stream.as_fd())
    }

    /// Writes with `write` once the socket takes something.
    fn poll_written(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&SocketKind) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(on_socket!(self, stream => stream.poll_write_ready(cx)))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for AcceptedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(on_socket!(self, stream => stream.poll_read_ready(cx)))?;
            match on_socket!(self, stream => stream.try_read(buf.initialize_unfilled())) {
                Ok(read) => {
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for AcceptedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |socket| match socket {
            SocketKind::Unix(stream) => stream.try_write(buf),
            SocketKind::Tcp(stream) => stream.try_write(buf),
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |socket| match socket {
            SocketKind::Unix(stream) => stream.try_write_vectored(bufs),
            SocketKind::Tcp(stream) => stream.try_write_vectored(bufs),
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// A socket keeps nothing back.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(self.fd(), Shutdown::Write).map_err(io::Error::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Without a look for events in between.
    #[tokio::test]
    async fn a_client_that_has_left_is_noticed_at_once() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut ours = AcceptedSocket::from(ours);
        let watch = ours.watch();
        assert!(!watch.is_gone());
        theirs.write_all(b"asked").await.expect("written");
        assert!(!watch.is_gone(), "something to read is no end");
        let mut asked = [0; 5];
        ours.read_exact(&mut asked).await.expect("read");
        assert_eq!((&asked, watch.is_gone()), (b"asked", false));
        drop(theirs);
        assert!(watch.is_gone());
        assert!(ours.write_all(&[0; 8]).await.is_err());
        drop(ours);
        assert!(watch.is_gone());
    }

    #[tokio::test]
    async fn more_than_a_socket_holds_goes_through_it() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut ours = AcceptedSocket::from(ours);
        let wrote = tokio::spawn(async move {
            ours.write_all(&vec![7; 4 << 20]).await.expect("written");
            ours.shutdown().await.expect("shut down");
        });
        let mut read = Vec::new();
        theirs.read_to_end(&mut read).await.expect("read");
        wrote.await.expect("no panic");
        assert!(read.len() == 4 << 20 && read.iter().all(|byte| *byte == 7));
    }
}
