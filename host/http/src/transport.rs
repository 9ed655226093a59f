//! A TCP stream that gives up on peers that stall: before they have said what they speak, and
//! while they do not read what we write. (hyper bounds the time in between.) What hyper refuses by
//! itself gets a body on its way out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::problem::ProblemShape;
use crate::refusal;

/// After this many bytes it is known whether a peer speaks HTTP/1 or HTTP/2, and hyper's own
/// deadlines hold.
const OPENING_BYTES: usize = 24;

/// See the module.
pub(crate) struct PatientStream {
    stream: TcpStream,
    /// When the opening must be here; `None` once it is.
    opening: Option<Pin<Box<Sleep>>>,
    received: usize,
    write_limit: Duration,
    shape: ProblemShape,
    /// When a stalled write fails; `None` while nothing stalls.
    stalled: Option<Pin<Box<Sleep>>>,
    /// What is written in the place of a refusal of hyper's, as far as it is not written yet.
    refusal: Vec<u8>,
}

impl PatientStream {
    pub(crate) fn new(
        stream: TcpStream,
        opening_limit: Duration,
        write_limit: Duration,
        shape: ProblemShape,
    ) -> Self {
        Self {
            stream,
            opening: Some(Box::pin(sleep(opening_limit))),
            received: 0,
            write_limit,
            shape,
            stalled: None,
            refusal: Vec::new(),
        }
    }

    /// Write a refusal in the place of hyper's own, if `bytes` are one; all of it, before they count as
    /// written.
    fn poll_refusal(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.refusal.is_empty() {
            self.refusal = refusal::in_place_of(bytes, self.shape)?;
        }
        while !self.refusal.is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, &self.refusal) {
                Poll::Ready(Ok(0)) => {
                    return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(written)) => drop(self.refusal.drain(..written)),
                other => return Some(other),
            }
        }
        Some(Poll::Ready(Ok(bytes.len())))
    }

    /// Bound the time for which a write may stall.
    fn writing<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let limit = self.write_limit;
        let timer = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for PatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(timer) = &mut self.opening {
            if polled.is_pending() {
                return match timer.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    Poll::Pending => Poll::Pending,
                };
            }
            self.received += buffer.filled().len() - before;
            if self.received >= OPENING_BYTES {
                self.opening = None;
            }
        }
        polled
    }
}

impl AsyncWrite for PatientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = match self.poll_refusal(context, bytes) {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        };
        self.writing(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = match slices {
            [head] => self.poll_refusal(context, head),
            _ => None,
        };
        let polled = match polled {
            Some(polled) => polled,
            None => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        };
        self.writing(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
