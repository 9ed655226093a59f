//! A WebSocket that sends every message back, so that test suites of the protocol can be run against the server. It is
//! there only where the configuration asks for it.

mod contract;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::{Message, WebSocket};
use axum::extract::{Extension, State};
use axum::response::Response;
use http::Request as HttpRequest;
use mortise_http::contract::Routes;
use mortise_http::{Api, Context, Conventions, Dialect, Occupied, Problem, ProblemShape};
use tokio::sync::watch;

use crate::socket::{SocketHandshake, receive, shake_hands};
use crate::state::ApiState;

const ECHO: &str = "/debug/websocket-echo";

/// The route. Its problems are written as `shape` has them.
pub fn api(state: Arc<ApiState>, shape: ProblemShape) -> Api {
    let (router, operations) = Routes::default().on(contract::echo(), echo).into_parts();
    Api {
        router: router.with_state(state),
        dialect: Dialect {
            prefix: ECHO,
            shape,
            conventions: Conventions::NONE,
        },
        routes: &[ECHO],
        contract: contract::contract(operations),
    }
}

/// `GET /debug/websocket-echo`
async fn echo(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let most = state.http.body.bytes;
    // A message is in memory twice while it is written.
    let bytes = most.saturating_mul(2);
    let SocketHandshake {
        socket,
        parts,
        memory,
        ..
    } = shake_hands(&state, &context, request, most, bytes).await?;
    let draining = state.http.draining.clone();
    let response = socket.on_upgrade(async move |socket| {
        // The connection is at work for as long as the socket is open.
        let _occupied = parts.extensions.get::<Occupied>().cloned();
        send_back(socket, draining).await;
        drop(memory);
    });
    Ok(response)
}

async fn send_back(mut socket: WebSocket, mut draining: watch::Receiver<bool>) {
    while let Some(message) = receive(&mut socket, &mut draining).await {
        let sent = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            // Pings are answered while the next message is read.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}
