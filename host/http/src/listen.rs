//! Accepts connections, and stops in order: on the first signal no new work is taken and what is
//! going on may finish within the time to drain; then, or on a second signal, it is ended properly.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower::ServiceExt as _;

use crate::guard::HeaderLimits;
use crate::problem::ProblemShape;
use crate::transport::PatientStream;

/// Bounds of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Connections at once.
    pub max_connections: usize,
    /// Headers of a request.
    pub headers: HeaderLimits,
    /// Time in which the headers of a request must arrive.
    pub header_timeout: Duration,
    /// Time for which a write may stall.
    pub write_timeout: Duration,
    /// How requests are refused whose path is not known yet.
    pub shape: ProblemShape,
}

/// Streams on one HTTP/2 connection.
const MAX_H2_STREAMS: u32 = 128;
/// How often a silent HTTP/2 peer is asked whether it is there.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Pause after an accept that failed, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the last bytes after everything was told to end.
const CUT_GRACE: Duration = Duration::from_secs(2);
/// Time for connections that only asked how we are while the server stopped.
const LATE_GRACE: Duration = Duration::from_millis(200);

/// Tells handlers how far the stop has gone.
#[derive(Debug)]
pub struct Stop {
    /// No new work is taken.
    pub draining: watch::Sender<bool>,
    /// Work that is still going on must end.
    pub cut: watch::Sender<bool>,
    /// Time for work to end by itself.
    pub drain: Duration,
}

struct Acceptor {
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    builder: Arc<Builder<TokioExecutor>>,
    slots: Arc<Semaphore>,
}

/// Serve until a signal came and everything has ended.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    mut signals: mpsc::Receiver<&'static str>,
    stop: Stop,
) {
    let acceptor = Acceptor::new(listener, router, limits);
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            signal = signals.recv() => {
                let signal = signal.unwrap_or("end of input");
                tracing::info!(signal, drain_seconds = stop.drain.as_secs(), "stopping");
                break;
            }
            () = acceptor.accept(|| connections.watcher()) => {}
        }
    }
    stop.draining.send_replace(true);
    drain(&acceptor, connections, &mut signals, &stop).await;
    tracing::info!("stopped");
}

/// Serve until the server drains, beside the main listener and within the same bounds. What is
/// going on then may finish.
pub async fn serve_beside(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    mut draining: watch::Receiver<bool>,
) {
    let acceptor = Acceptor::new(listener, router, limits);
    let connections = GracefulShutdown::new();
    loop {
        tokio::select! {
            // Fails when the sender is gone, which is the end as well.
            _ = draining.wait_for(|draining| *draining) => break,
            () = acceptor.accept(|| connections.watcher()) => {}
        }
    }
    connections.shutdown().await;
}

/// Wait for the connections. Meanwhile the door stays open for those who ask whether the server is
/// ready; work is refused.
async fn drain(
    acceptor: &Acceptor,
    connections: GracefulShutdown,
    signals: &mut mpsc::Receiver<&'static str>,
    stop: &Stop,
) {
    let late = GracefulShutdown::new();
    let mut ended = std::pin::pin!(connections.shutdown());
    let mut deadline = std::pin::pin!(sleep_until(Instant::now() + stop.drain));
    loop {
        tokio::select! {
            () = &mut ended => break,
            () = &mut deadline => {
                tracing::warn!("the time to drain is over; open answers are ended");
                cut(stop, &mut ended).await;
                break;
            }
            Some(signal) = signals.recv() => {
                tracing::warn!(signal, "second signal; open answers are ended");
                cut(stop, &mut ended).await;
                break;
            }
            () = acceptor.accept(|| late.watcher()) => {}
        }
    }
    let _ = timeout(LATE_GRACE, late.shutdown()).await;
}

/// End what is going on, with an error that clients can read, and give the bytes time to leave.
async fn cut(stop: &Stop, ended: impl Future<Output = ()>) {
    stop.cut.send_replace(true);
    if timeout(CUT_GRACE, ended).await.is_err() {
        tracing::warn!("some connections did not end in time and are dropped");
    }
}

impl Acceptor {
    fn new(listener: TcpListener, router: Router, limits: ConnectionLimits) -> Self {
        Self {
            builder: Arc::new(builder(&limits)),
            slots: Arc::new(Semaphore::new(limits.max_connections)),
            listener,
            router,
            limits,
        }
    }

    /// Accept one connection and serve it on a task of its own. Cancel safe.
    async fn accept(&self, watcher: impl FnOnce() -> Watcher) {
        let Ok(slot) = Arc::clone(&self.slots).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match self.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                return;
            }
        };
        let (builder, router) = (Arc::clone(&self.builder), self.router.clone());
        let (limits, watcher) = (self.limits.clone(), watcher());
        tokio::spawn(async move {
            connection(stream, peer, &builder, router, &limits, watcher).await;
            drop(slot);
        });
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    builder: &Builder<TokioExecutor>,
    router: Router,
    limits: &ConnectionLimits,
    watcher: Watcher,
) {
    // Tokens are small and each should leave at once.
    let _ = stream.set_nodelay(true);
    let stream = PatientStream::new(
        stream,
        limits.header_timeout,
        limits.write_timeout,
        limits.shape,
    );
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let served = builder.serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(served.into_owned()).await {
        tracing::debug!(%error, %peer, "connection ended");
    }
}

fn builder(limits: &ConnectionLimits) -> Builder<TokioExecutor> {
    let headers = limits.headers.doubled();
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(headers.count)
        .max_buf_size(headers.bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(H2_PING_INTERVAL)
        .max_concurrent_streams(MAX_H2_STREAMS)
        .max_header_list_size(u32::try_from(headers.bytes).unwrap_or(u32::MAX));
    builder
}
