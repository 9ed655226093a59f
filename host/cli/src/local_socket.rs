//! Connections of the HTTP client to a socket in the file system.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects to one socket, whatever address is asked for.
#[derive(Debug)]
pub(crate) struct LocalSockets {
    path: PathBuf,
}

impl LocalSockets {
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
}

impl Connector<()> for LocalSockets {
    type Out = LocalStream;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Self::Out>, Error> {
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = UnixStream::connect(&self.path)?;
        Ok(Some(LocalStream { stream, buffers }))
    }
}

/// A connection.
pub(crate) struct LocalStream {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for LocalStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("LocalStream")
    }
}

/// The time that an operation has; none is without end.
fn left(timeout: &NextTimeout) -> Result<Option<Duration>, Error> {
    match timeout.after.is_zero() {
        true => Err(Error::Timeout(timeout.reason)),
        false => Ok(timeout.not_zero().map(|left| *left)),
    }
}

/// The error of an operation that had so much time.
fn late(error: std::io::Error, timeout: &NextTimeout) -> Error {
    match error.kind() {
        // A socket says either when its time is over.
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

impl Transport for LocalStream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream.set_write_timeout(left(&timeout)?)?;
        let output = &self.buffers.output()[..amount];
        let written = self.stream.write_all(output);
        written.map_err(|error| late(error, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream.set_read_timeout(left(&timeout)?)?;
        let input = self.buffers.input_append_buf();
        let read = self.stream.read(input);
        let amount = read.map_err(|error| late(error, &timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// Each connection has one request.
    fn is_open(&mut self) -> bool {
        false
    }
}
