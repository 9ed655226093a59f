//! Stream of a connection, with the deadlines and checks that hyper does not have: a head must be sound
//! and arrive in time (see [`head_gate`](super::head_gate)), a write must not stall, and a connection that is
//! closed while the peer still sends lingers, so that the peer reads its answer and not a reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::connections::Connection;
use crate::head_gate::{HeadGate, RefusedHead};
use crate::request_head::{HeadBounds, HeadRefusal};
use crate::wire::{LINGER_BYTES, LINGER_TIME, Wire};

/// Bytes read at once while a connection lingers.
const LINGER_READ: usize = 16 * 1024;

/// Deadlines of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamLimits {
    /// For a head, from when the connection waits for it.
    pub(super) head: Duration,
    /// For a write that makes no progress.
    pub(super) write: Duration,
    pub(super) bounds: HeadBounds,
}

/// See the module.
pub(super) struct GuardedStream {
    stream: Wire,
    limits: StreamLimits,
    gate: HeadGate,
    connection: Arc<Connection>,
    /// When the head must be here; `None` while none is awaited.
    head_due: Option<HeadDue>,
    /// When a stalled write fails; `None` while nothing stalls.
    write_due: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

/// Time by which a head must be complete.
struct HeadDue {
    timer: Pin<Box<Sleep>>,
    /// The request before the head went on while the time ran.
    in_request: bool,
}

impl GuardedStream {
    pub(super) fn new(
        stream: Wire,
        limits: StreamLimits,
        connection: Arc<Connection>,
        refused: Arc<RefusedHead>,
    ) -> Self {
        Self {
            stream,
            limits,
            gate: HeadGate::new(limits.bounds, refused),
            connection,
            head_due: None,
            write_due: None,
            linger: None,
        }
    }

    /// Bound the time for a head. While a request is being answered, none is awaited.
    fn poll_head_due(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gate.awaits_head() {
            self.head_due = None;
            return Poll::Pending;
        }
        let limit = self.limits.head;
        loop {
            let in_request = self.connection.is_in_request();
            let due = self.head_due.get_or_insert_with(|| HeadDue {
                timer: Box::pin(sleep(limit)),
                in_request,
            });
            due.in_request |= in_request;
            let in_request = due.in_request;
            ready!(due.timer.as_mut().poll(context));
            self.head_due = None;
            // Nothing wakes this task when the request before the head ends, so the time is taken again.
            if !in_request {
                break;
            }
        }
        if !self.gate.has_part_of_head() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.gate.refuse(HeadRefusal::slow());
        Poll::Ready(Ok(()))
    }

    /// Bound the time for which a write may stall.
    fn bound_write<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.write_due = None;
            return polled;
        }
        let limit = self.limits.write;
        let timer = self
            .write_due
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// True if the peer has sent more than was read, such as a body that its request does not announce. Takes
    /// some of it.
    fn has_unread(&mut self, context: &mut Context<'_>) -> bool {
        let mut scratch = [0; 1];
        let mut buffer = ReadBuf::new(&mut scratch);
        let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
        matches!(read, Poll::Ready(Ok(()))) && !buffer.filled().is_empty()
    }

    /// Read and throw away what the peer still sends: closing a socket with unread bytes resets the
    /// connection, and the peer may lose the answer that it has not read.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let linger = self.linger.get_or_insert_with(|| Linger {
            until: Box::pin(sleep(LINGER_TIME)),
            bytes_left: LINGER_BYTES,
        });
        let mut scratch = [0; LINGER_READ];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => return linger.until.as_mut().poll(context).map(Ok),
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => {
                    let read = buffer.filled().len();
                    if read == 0 || read >= linger.bytes_left {
                        return Poll::Ready(Ok(()));
                    }
                    linger.bytes_left -= read;
                }
            }
        }
    }
}

/// Error of a body of which a chunk is broken.
fn broken_chunk() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a chunk of it is malformed: sizes are hexadecimal digits alone, extensions printable ASCII of at most 8 KiB, and \
         lines end with CR LF",
    )
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            let ready = this.gate.deliver(buffer.remaining());
            if !ready.is_empty() {
                buffer.put_slice(ready);
                return Poll::Ready(Ok(()));
            }
            if this.gate.is_broken() {
                return Poll::Ready(Err(broken_chunk()));
            }
            if this.gate.is_closed() {
                return Poll::Pending;
            }
            let before = buffer.filled().len();
            match Pin::new(&mut this.stream).poll_read(context, buffer) {
                Poll::Pending => ready!(this.poll_head_due(context))?,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {
                    let new = buffer.filled().get(before..).unwrap_or_default();
                    if new.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    let direct = this.gate.take(new);
                    buffer.set_filled(before + direct);
                    if direct > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound_write(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bound_write(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// TLS holds some of what it was given, so that a stalled write may show here only.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.bound_write(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.gate.is_within_message() && !self.has_unread(context) {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(context)
    }
}
