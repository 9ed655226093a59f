//! Connections that are open, so that a stop can ask them to end and wait until they have. A connection that became
//! a WebSocket counts until that is closed.

use tokio::sync::watch;

/// All connections of a listener.
#[derive(Debug)]
pub(crate) struct OpenConnections(watch::Sender<bool>);

/// An open connection; a clone stands for the same connection.
#[derive(Debug, Clone)]
pub(crate) struct OpenConnection(watch::Receiver<bool>);

impl OpenConnections {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn one(&self) -> OpenConnection {
        OpenConnection(self.0.subscribe())
    }

    /// Ask all connections to end after the requests in progress, and wait until they have ended.
    pub(crate) async fn shutdown(self) {
        self.0.send_replace(true);
        self.0.closed().await;
    }
}

impl OpenConnection {
    /// Wait until the connection is to end.
    pub(crate) async fn stopping(&mut self) {
        // Fails when the listener is gone, which is the end as well.
        let _ = self.0.wait_for(|stopping| *stopping).await;
    }
}
