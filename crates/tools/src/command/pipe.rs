//! One of the two output pipes of a command.

use rustix::io::{Errno, ioctl_fionread};
use std::io;
use std::os::fd::AsFd;
use tokio::io::{AsyncRead, AsyncReadExt};

/// A pipe, and the last piece that was read of it.
pub(super) struct Pipe<S> {
    source: Option<S>,
    buffer: Box<[u8]>,
    /// The remaining bytes once there is no writer.
    left: u64,
}

impl<S: AsyncRead + AsFd + Unpin> Pipe<S> {
    /// A pipe that reads at most `bytes_max` at once.
    pub(super) fn new(source: Option<S>, bytes_max: usize) -> Pipe<S> {
        Pipe { source, buffer: vec![0; bytes_max].into(), left: 0 }
    }

    /// Whether more may come.
    pub(super) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Waits for a piece and returns its length; 0 at the end. Cancel-safe.
    pub(super) async fn read(&mut self) -> io::Result<usize> {
        let Some(source) = &mut self.source else { return Ok(0) };
        let len = source.read(&mut self.buffer).await?;
        if len == 0 {
            self.source = None;
        }
        Ok(len)
    }

    /// All processes of the command are gone: the bytes in the pipe now are the rest. A stranger that got the
    /// pipe from the command can neither delay its end nor add to its output.
    pub(super) fn writers_are_gone(&mut self) -> io::Result<()> {
        if let Some(source) = &self.source {
            self.left = ioctl_fionread(source)?;
        }
        Ok(())
    }

    /// A piece of the rest, without waiting; 0 at its end.
    pub(super) fn rest(&mut self) -> io::Result<usize> {
        let len = self.buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let Some(source) = self.source.as_ref().filter(|_| len > 0) else { return Ok(0) };
        match rustix::io::read(source, &mut self.buffer[..len]) {
            Ok(len) => {
                self.left -= len as u64;
                Ok(len)
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// The piece that was read last.
    pub(super) fn piece(&self, len: usize) -> &[u8] {
        &self.buffer[..len]
    }
}
