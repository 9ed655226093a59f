//! Accepts connections, and stops in order: on the first signal no new work is taken and what is
//! going on may finish within the time to drain; then, or on a second signal, it is ended properly.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval_at, sleep, sleep_until, timeout};
use tower::ServiceExt as _;

use crate::connections::{Connection, ConnectionClass, ConnectionTable, HttpExchange};
use crate::drain::{OpenConnection, OpenConnections};
use crate::endpoint::{Accepted, Endpoint};
use crate::exchange_body::{RequestBody, ResponseBody};
use crate::guard::HeaderLimits;
use crate::h2_streams::{Handover, StreamExecutor};
use crate::head_gate::RefusedHead;
use crate::proxy_protocol::ProxyProtocol;
use crate::request_head::HeadBounds;
use crate::transport::{GuardedStream, StreamLimits};
use crate::wire::Wire;

/// Bounds of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Headers of a request.
    pub headers: HeaderLimits,
    /// Time in which the headers of a request must arrive, and before them a TLS handshake.
    pub header_timeout: Duration,
    /// Time for which a write may stall.
    pub write_timeout: Duration,
    /// Trusted proxies that speak the PROXY protocol, if there are some.
    pub proxies: ProxyProtocol,
}

/// Streams on one HTTP/2 connection.
pub(crate) const MAX_H2_STREAMS: u32 = 128;
/// Bytes of request bodies that an HTTP/2 peer may send unasked, on one stream and on all of a connection.
pub(crate) const H2_STREAM_WINDOW: u32 = 64 * 1024;
pub(crate) const H2_CONNECTION_WINDOW: u32 = 256 * 1024;
/// Bytes of an answer that wait for an HTTP/2 peer to read.
pub(crate) const H2_SEND_BUFFER: usize = 64 * 1024;
/// Room for what hyper reads beyond a head.
const READ_AHEAD: usize = 16 * 1024;
/// Interval of the pings to a silent HTTP/2 peer.
const H2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Pause after an accept that failed, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time for the last bytes after everything was told to end.
const CUT_GRACE: Duration = Duration::from_secs(2);
/// While the server stops, connections without a complete request are ended after this time, in which their
/// requests are answered.
const INCOMPLETE_GRACE: Duration = Duration::from_secs(1);
/// Time for connections that only asked how we are while the server stopped.
const LATE_GRACE: Duration = Duration::from_millis(200);

/// Name of the signal that another process listens in the place of this one.
pub const HANDED_OVER: &str = "hand-over";

/// Tells handlers how far the stop has gone.
#[derive(Debug)]
pub struct Stop {
    /// No new work is taken.
    pub draining: watch::Sender<bool>,
    /// No connections are taken, since the server stops or another process takes them.
    pub closing: watch::Sender<bool>,
    /// Work that is still going on must end.
    pub cut: watch::Sender<bool>,
    /// Time for work to end by itself.
    pub drain: Duration,
}

struct Acceptor {
    endpoint: Arc<Endpoint>,
    router: Router,
    limits: ConnectionLimits,
    builder: Arc<Builder<StreamExecutor>>,
    table: Arc<ConnectionTable>,
}

/// Marks requests on a connection that has a place for health checks only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthOnly;

/// Marks answers that are for nobody in particular: whole ones of requests whose caller is not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unclaimed;

/// Serve until a signal came and everything has ended.
pub async fn serve(
    endpoint: Arc<Endpoint>,
    router: Router,
    limits: ConnectionLimits,
    table: Arc<ConnectionTable>,
    mut signals: mpsc::Receiver<&'static str>,
    stop: Stop,
) {
    let acceptor = Acceptor::new(endpoint, router, limits, table);
    let connections = OpenConnections::new();
    let signal = loop {
        tokio::select! {
            signal = signals.recv() => break signal.unwrap_or("end of input"),
            () = acceptor.accept(|| connections.one()) => {}
        }
    };
    tracing::info!(signal, drain_seconds = stop.drain.as_secs(), "stopping");
    stop.closing.send_replace(true);
    // After a hand-over, requests of open connections are answered as ever, and new ones are the other process's.
    let listens = signal != HANDED_OVER;
    stop.draining.send_replace(listens);
    if !listens {
        // Who has connected just now is yet to ask.
        sleep(INCOMPLETE_GRACE).await;
    }
    drain(&acceptor, listens, connections, &mut signals, &stop).await;
    stop.draining.send_replace(true);
    tracing::info!("stopped");
}

/// Serve until the server takes no connections, beside the main listener and within the same bounds. What is
/// going on then may finish.
pub async fn serve_beside(
    endpoint: Arc<Endpoint>,
    router: Router,
    limits: ConnectionLimits,
    table: Arc<ConnectionTable>,
    mut closing: watch::Receiver<bool>,
) {
    let acceptor = Acceptor::new(endpoint, router, limits, table);
    let connections = OpenConnections::new();
    loop {
        tokio::select! {
            // Fails when the sender is gone, which is the end as well.
            _ = closing.wait_for(|closing| *closing) => break,
            () = acceptor.accept(|| connections.one()) => {}
        }
    }
    connections.shutdown().await;
    // The process ends with the main listener; a task that must go on does not end before.
    std::future::pending::<()>().await;
}

/// Drain: wait until the connections have ended. While it `listens`, the listener accepts health checks meanwhile;
/// work is refused.
async fn drain(
    acceptor: &Acceptor,
    listens: bool,
    connections: OpenConnections,
    signals: &mut mpsc::Receiver<&'static str>,
    stop: &Stop,
) {
    let late = OpenConnections::new();
    let mut ended = std::pin::pin!(connections.shutdown());
    let mut deadline = std::pin::pin!(sleep_until(Instant::now() + stop.drain));
    let mut incomplete = interval_at(Instant::now() + INCOMPLETE_GRACE, INCOMPLETE_GRACE);
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
            _ = incomplete.tick() => acceptor.table.end_waiting(INCOMPLETE_GRACE),
            () = acceptor.accept(|| late.one()), if listens => {}
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
    fn new(
        endpoint: Arc<Endpoint>,
        router: Router,
        limits: ConnectionLimits,
        table: Arc<ConnectionTable>,
    ) -> Self {
        Self {
            builder: Arc::new(builder(&limits)),
            table,
            endpoint,
            router,
            limits,
        }
    }

    /// Accept one connection and serve it on a task of its own. Cancel safe.
    async fn accept(&self, watcher: impl FnOnce() -> OpenConnection) {
        let (accepted, peer) = match self.endpoint.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
                return;
            }
        };
        // Without a place it is closed at once.
        let Some(place) = self.table.admit(peer.ip()) else {
            return;
        };
        let (builder, router) = (Arc::clone(&self.builder), self.router.clone());
        let (limits, open) = (self.limits.clone(), watcher());
        tokio::spawn(async move {
            connection(accepted, peer, &builder, router, &limits, place, open).await;
        });
    }
}

/// Stream of a connection, after the TLS handshake. A connection whose handshake is not complete counts as one without
/// a request: it may be evicted.
async fn open_wire(
    accepted: Accepted,
    peer: SocketAddr,
    limits: &ConnectionLimits,
    connection: &Connection,
) -> Option<(Wire, SocketAddr)> {
    let opened = tokio::select! {
        opened = accepted.open(peer, limits.header_timeout, &limits.proxies) => opened,
        () = connection.ended() => return None,
    };
    let failed = |error| tracing::debug!(%error, %peer, "a connection was not opened");
    opened.map_err(failed).ok()
}

async fn connection(
    accepted: Accepted,
    peer: SocketAddr,
    builder: &Builder<StreamExecutor>,
    router: Router,
    limits: &ConnectionLimits,
    place: Connection,
    mut open: OpenConnection,
) {
    let connection = Arc::new(place);
    let opened = open_wire(accepted, peer, limits, &connection).await;
    let Some((wire, peer)) = opened else {
        return;
    };
    let certificate = wire.client_certificate();
    let refused = Arc::<RefusedHead>::default();
    let stream_limits = StreamLimits {
        head: limits.header_timeout,
        write: limits.write_timeout,
        bounds: head_bounds(limits.headers),
    };
    let stream = GuardedStream::new(
        wire,
        stream_limits,
        Arc::clone(&connection),
        Arc::clone(&refused),
    );
    let requests = AtomicU64::new(0);
    let served = {
        let connection = Arc::clone(&connection);
        let open = open.clone();
        service_fn(move |request: Request<Incoming>| {
            let number = requests.fetch_add(1, Ordering::Relaxed);
            let mut request = request;
            let extensions = request.extensions_mut();
            extensions.insert(peer);
            if let Some(certificate) = certificate.clone() {
                extensions.insert(certificate);
            }
            if connection.place() == ConnectionClass::Health {
                extensions.insert(HealthOnly);
            }
            if let Some(refusal) = refused.of(number) {
                extensions.insert(refusal);
            }
            answer(request, router.clone(), &connection, &open)
        })
    };
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), served);
    let mut served = std::pin::pin!(served.into_owned());
    let mut stopping = false;
    loop {
        tokio::select! {
            served = &mut served => {
                if let Err(error) = served {
                    tracing::debug!(%error, %peer, "connection ended");
                }
                return;
            }
            reason = must_end(&connection, limits) => {
                tracing::debug!(%peer, reason, "a connection was ended");
                return;
            }
            () = open.stopping(), if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Wait until the server must end a connection, and return the reason.
async fn must_end(connection: &Connection, limits: &ConnectionLimits) -> &'static str {
    tokio::select! {
        () = connection.ended() => "it has no complete request",
        () = connection.overdue(limits.write_timeout) => "its peer does not read an answer in time",
    }
}

/// Guard of a connection that a WebSocket takes over. While the guard is held, the connection keeps its place, and a
/// stop of the server waits for the connection.
#[derive(Debug, Clone)]
pub struct Occupied {
    _exchange: Arc<HttpExchange>,
    _open: OpenConnection,
}

/// Answer a request, and keep the connection's stage of the request up to date.
fn answer(
    request: Request<Incoming>,
    router: Router,
    connection: &Arc<Connection>,
    open: &OpenConnection,
) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + use<> {
    let exchange = Arc::new(connection.begin());
    let mut request = request.map(|body| Body::new(RequestBody::new(body, Arc::clone(&exchange))));
    let upgrades = request.headers().contains_key(header::UPGRADE);
    if upgrades {
        request.extensions_mut().insert(Occupied {
            _exchange: Arc::clone(&exchange),
            _open: open.clone(),
        });
    }
    async move {
        let mut response = router.oneshot(request).await?;
        let stream = Handover::here();
        if response.extensions_mut().remove::<Unclaimed>().is_some() {
            // A stream is reset by its own clock. Two clocks of one length would end the connection, with its other
            // streams, whenever the second is looked at first.
            exchange.hand_to_nobody(stream.is_none());
            if let Some(stream) = &stream {
                stream.hand_to_nobody();
            }
        }
        if upgrades && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            // What follows may be frames, and is not to be read as requests.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response.map(|body| ResponseBody::new(body, stream, exchange)))
    }
}

/// Bounds of the head gate: twice the limits on headers. A request between the two is refused with a problem that
/// states the limits; a larger head is refused before hyper parses it.
fn head_bounds(headers: HeaderLimits) -> HeadBounds {
    let HeaderLimits { count, bytes } = headers.doubled();
    HeadBounds {
        bytes,
        headers: count,
    }
}

fn builder(limits: &ConnectionLimits) -> Builder<StreamExecutor> {
    let head = head_bounds(limits.headers);
    let mut builder = Builder::new(StreamExecutor {
        limit: limits.write_timeout,
    });
    builder
        .http1()
        .timer(TokioTimer::new())
        // The stream has a deadline for heads, and answers those that come late.
        .header_read_timeout(None)
        .max_headers(head.headers)
        .max_buf_size(head.bytes + READ_AHEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(H2_PING_INTERVAL)
        .max_concurrent_streams(MAX_H2_STREAMS)
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .max_send_buf_size(H2_SEND_BUFFER)
        .max_header_list_size(u32::try_from(head.bytes).unwrap_or(u32::MAX));
    builder
}
