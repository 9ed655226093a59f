//! WebSockets on routes that stream: each text frame of the client is the body of a request, and each event of its
//! answer is a frame. Requests of a connection are answered one after the other, and those that come meanwhile wait; closing
//! it cancels all of them. A client that breaks the protocol is told by the code of the close frame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::FromRequestParts as _;
use axum::extract::ws::{
    CloseCode, CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code,
};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Extensions, HeaderValue, Method, Request, StatusCode, header};
use mortise_http::{AccessRecord, Context, Occupied, Owner, Problem, Reservation, reserve};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::timeout;
use tungstenite::Error;

use crate::call::call_of;
use crate::limits::{MAX_SOCKET_IDLE, MAX_SOCKET_MESSAGE, MAX_SOCKET_WAITING};
use crate::problem::problem_of;
use crate::state::ApiState;

/// Headers of the handshake that say nothing of the requests.
const HANDSHAKE: [&str; 7] = [
    "connection",
    "upgrade",
    "content-length",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
];

/// A request as the route's handler answers it.
pub(crate) type RouteHandler =
    fn(Arc<ApiState>, Context, Request<Body>) -> BoxFuture<'static, Result<Response, Problem>>;

/// The body of a request, from the object of a frame.
pub(crate) type Translate = fn(Map<String, Value>) -> Result<Map<String, Value>, Problem>;

/// One dialect over a socket.
#[derive(Clone, Copy)]
pub(crate) struct SocketDialect {
    /// The body of a request, from a frame.
    pub(crate) body: Translate,
    /// Answers a request with server-sent events.
    pub(crate) handle: RouteHandler,
    /// A problem as a frame.
    pub(crate) problem: fn(&Problem) -> Value,
    /// The frame behind the last event; none if the events themselves say that they end.
    pub(crate) done: Option<&'static str>,
}

/// Answer the handshake of a caller who may ask something, and serve the connection. `own` makes the state of the
/// connection for the owner of its memory; its requests find it in their extensions.
pub(crate) async fn upgrade(
    state: Arc<ApiState>,
    context: Context,
    request: Request<Body>,
    dialect: SocketDialect,
    own: impl FnOnce(&Owner) -> Extensions,
) -> Result<Response, Problem> {
    let most = state.http.body.bytes.min(MAX_SOCKET_MESSAGE);
    let SocketHandshake {
        socket,
        parts,
        owner,
        memory,
    } = shake_hands(&state, &context, request, most, most).await?;
    let draining = state.http.draining.clone();
    let own = own(&owner);
    let response = socket.on_upgrade(move |socket| {
        let session = Session {
            state,
            context,
            parts,
            dialect,
            draining,
            own,
            owner,
            opened: Instant::now(),
            _memory: memory,
        };
        session.serve(socket)
    });
    Ok(response)
}

/// A handshake that is right, of a caller who may ask something.
pub(crate) struct SocketHandshake {
    pub(crate) socket: WebSocketUpgrade,
    pub(crate) parts: Parts,
    /// Owner of the memory that the connection takes.
    pub(crate) owner: Owner,
    /// Memory for the messages of the connection.
    pub(crate) memory: Reservation,
}

/// Check a handshake. Messages have at most `most` bytes; the connection gets `bytes` of the memory for bodies, since
/// messages are read before anything of them is known.
pub(crate) async fn shake_hands(
    state: &ApiState,
    context: &Context,
    request: Request<Body>,
    most: usize,
    bytes: usize,
) -> Result<SocketHandshake, Problem> {
    let (mut parts, _) = request.into_parts();
    let call = call_of(context, context.route, "GET", &parts.headers);
    let identity = state.service.identify(&call).await.map_err(problem_of)?;
    let owner = Owner::new(context.peer.ip(), identity.tenant.as_deref());
    let mut memory = state.http.bodies.open(owner.clone());
    reserve(&mut memory, bytes, most)?;
    let socket = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let socket = socket.map_err(|refusal| {
        Problem::new(refusal.status(), "malformed_handshake", refusal.body_text())
    })?;
    Ok(SocketHandshake {
        socket: socket.max_message_size(most).max_frame_size(most),
        parts,
        owner,
        memory,
    })
}

struct Session {
    state: Arc<ApiState>,
    context: Context,
    /// The handshake, whose headers count for every request.
    parts: Parts,
    dialect: SocketDialect,
    draining: watch::Receiver<bool>,
    /// State of the connection, which every request has.
    own: Extensions,
    owner: Owner,
    opened: Instant,
    /// Memory of a message.
    _memory: Reservation,
}

/// Requests that wait until the one before them is answered, with their memory.
type Waiting = VecDeque<(Utf8Bytes, Reservation)>;

impl Session {
    async fn serve(mut self, mut socket: WebSocket) {
        // The connection is at work for as long as the socket is open.
        let _occupied = self.parts.extensions.get::<Occupied>().cloned();
        let mut waiting = Waiting::new();
        loop {
            if let Some((text, _memory)) = waiting.pop_front() {
                if !self
                    .answer(&mut socket, &mut waiting, text.as_bytes())
                    .await
                {
                    return;
                }
                continue;
            }
            let Some(message) = receive(&mut socket, &mut self.draining).await else {
                return;
            };
            let text = match message {
                Message::Text(text) => text,
                Message::Binary(_) => {
                    close(
                        &mut socket,
                        close_code::UNSUPPORTED,
                        "requests are text frames",
                    )
                    .await;
                    return;
                }
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Close(_) => return,
            };
            if !self
                .answer(&mut socket, &mut waiting, text.as_bytes())
                .await
            {
                return;
            }
        }
    }

    /// Answer one request. `false` if the socket is closed.
    async fn answer(&self, socket: &mut WebSocket, waiting: &mut Waiting, body: &[u8]) -> bool {
        if self.opened.elapsed() >= self.state.http.websocket_time {
            let frame = (self.dialect.problem)(&too_old()).to_string();
            let _ = socket.send(Message::Text(frame.into())).await;
            close(socket, close_code::AWAY, "the connection is too old").await;
            return false;
        }
        let context = Context {
            id: uuid::Uuid::new_v4().simple().to_string().into(),
            record: Arc::new(AccessRecord::new(Instant::now())),
            ..self.context.clone()
        };
        let answered = match self.request(body) {
            Ok(request) => {
                let handled = (self.dialect.handle)(Arc::clone(&self.state), context, request);
                tokio::select! {
                    biased;
                    answered = handled => answered,
                    () = self.closed(socket, waiting) => return false,
                }
            }
            Err(problem) => Err(problem),
        };
        match answered {
            Ok(response) => self.stream(socket, waiting, response).await,
            Err(problem) => {
                let frame = (self.dialect.problem)(&problem).to_string();
                socket.send(Message::Text(frame.into())).await.is_ok()
            }
        }
    }

    /// A frame as a request of the route.
    fn request(&self, body: &[u8]) -> Result<Request<Body>, Problem> {
        let object = mortise_http::parse_object(body)?;
        let mut object = (self.dialect.body)(object)?;
        object.insert("stream".to_owned(), Value::Bool(true));
        let body = Value::Object(object).to_string();
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.parts.uri.clone();
        *request.extensions_mut() = self.own.clone();
        let headers = request.headers_mut();
        *headers = self.parts.headers.clone();
        for name in HANDSHAKE {
            headers.remove(name);
        }
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        Ok(request)
    }

    /// Send the events of an answer, one a frame. A client that does not read pauses its answer.
    async fn stream(
        &self,
        socket: &mut WebSocket,
        waiting: &mut Waiting,
        response: Response,
    ) -> bool {
        if response.status() != StatusCode::OK {
            return false;
        }
        let mut chunks = response.into_body().into_data_stream();
        let mut events = Events::default();
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = chunks.next() => chunk,
                () = self.closed(socket, waiting) => return false,
            };
            let Some(chunk) = chunk else {
                return true;
            };
            let Ok(chunk) = chunk else {
                return false;
            };
            for event in events.take(&chunk) {
                let message = match event {
                    Event::Data(data) if data == "[DONE]" => match self.dialect.done {
                        Some(done) => Message::Text(done.into()),
                        None => continue,
                    },
                    Event::Data(data) => Message::Text(data.into()),
                    Event::Comment => Message::Ping(Bytes::new()),
                };
                if socket.send(message).await.is_err() {
                    return false;
                }
            }
        }
    }

    /// Wait until the client closes the socket. Requests that it sends before the answer has ended wait for it.
    async fn closed(&self, socket: &mut WebSocket, waiting: &mut Waiting) {
        loop {
            match socket.recv().await {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Text(text))) => {
                    let mut memory = self.state.http.bodies.open(self.owner.clone());
                    let fits = memory.raise_to(text.len()).is_ok();
                    if waiting.len() >= MAX_SOCKET_WAITING || !fits {
                        return close(socket, close_code::POLICY, "too many requests wait").await;
                    }
                    waiting.push_back((text, memory));
                }
                Some(Ok(Message::Binary(_))) => {
                    let reason = "requests are text frames";
                    return close(socket, close_code::UNSUPPORTED, reason).await;
                }
                Some(Err(error)) => return fail(socket, error).await,
                Some(Ok(Message::Close(_))) | None => return,
            }
        }
    }
}

/// Refusal of a request on a connection that is too old.
fn too_old() -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        "websocket_connection_limit_reached",
        "the connection has reached its longest time; open another one",
    )
}

/// The next message of a connection that stays open. `None` when it has ended, or is ended here.
pub(crate) async fn receive(
    socket: &mut WebSocket,
    draining: &mut watch::Receiver<bool>,
) -> Option<Message> {
    let message = tokio::select! {
        biased;
        message = timeout(MAX_SOCKET_IDLE, socket.recv()) => message,
        () = stopping(draining) => {
            close(socket, close_code::RESTART, "the server is stopping").await;
            return None;
        }
    };
    match message {
        Err(_) => {
            close(
                socket,
                close_code::AWAY,
                "nothing was asked for a long time",
            )
            .await;
            None
        }
        Ok(Some(Ok(Message::Close(_)))) => {
            // Reading on sends the answer to it.
            let _ = socket.recv().await;
            None
        }
        Ok(Some(Ok(message))) => Some(message),
        Ok(Some(Err(error))) => {
            fail(socket, error).await;
            None
        }
        Ok(None) => None,
    }
}

/// Wait until the server takes no new work.
async fn stopping(draining: &mut watch::Receiver<bool>) {
    // Fails when the sender is gone, which is the end as well.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Fail a connection whose client broke the protocol, as section 7.1.7 of RFC 6455 has it: with the reason.
async fn fail(socket: &mut WebSocket, error: axum::Error) {
    let Ok(error) = error.into_inner().downcast::<Error>() else {
        return;
    };
    let (code, reason) = match *error {
        Error::Protocol(_) => (close_code::PROTOCOL, "a frame breaks the protocol"),
        Error::Utf8(_) => (close_code::INVALID, "a text is not UTF-8"),
        Error::Capacity(_) => (close_code::SIZE, "the message is too long"),
        // The connection is gone.
        _ => return,
    };
    close(socket, code, reason).await;
}

/// Send a close frame, to a client that may have gone.
async fn close(socket: &mut WebSocket, code: CloseCode, reason: &'static str) {
    let reason = reason.into();
    let _ = socket
        .send(Message::Close(Some(CloseFrame { code, reason })))
        .await;
}

/// Server-sent events as they are written here: one `data` line each, or a comment.
#[derive(Default)]
struct Events {
    held: Vec<u8>,
}

enum Event {
    Data(String),
    Comment,
}

impl Events {
    /// The events that are complete.
    fn take(&mut self, chunk: &[u8]) -> Vec<Event> {
        self.held.extend_from_slice(chunk);
        let mut events = Vec::new();
        let mut begin = 0;
        while let Some(length) = find(&self.held[begin..], b"\n\n") {
            let text = String::from_utf8_lossy(&self.held[begin..begin + length]);
            let data = text.lines().find_map(|line| line.strip_prefix("data: "));
            match data {
                Some(data) => events.push(Event::Data(data.to_owned())),
                None if text.starts_with(':') => events.push(Event::Comment),
                None => {}
            }
            begin += length + 2;
        }
        self.held.drain(..begin);
        events
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_they_are_cut() {
        let all = "event: a\ndata: {\"x\":1}\n\n: keep-alive\n\ndata: [DONE]\n\n".as_bytes();
        for cut in 0..all.len() {
            let mut events = Events::default();
            let mut found = events.take(&all[..cut]);
            found.extend(events.take(&all[cut..]));
            let shown = found.into_iter().map(|event| match event {
                Event::Data(data) => data,
                Event::Comment => ":".to_owned(),
            });
            assert_eq!(shown.collect::<Vec<_>>(), ["{\"x\":1}", ":", "[DONE]"]);
        }
    }
}
