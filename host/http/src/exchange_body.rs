//! Bodies that tell the connection how far a request has come: when all of it is here, and when the last
//! byte of its answer is handed over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::connections::Exchange;

/// Body of a request.
pub(super) struct RequestBody {
    body: Incoming,
    exchange: Arc<Exchange>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, exchange: Arc<Exchange>) -> Self {
        if body.is_end_stream() {
            exchange.complete();
        }
        Self { body, exchange }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if frame.is_none() || self.body.is_end_stream() {
            self.exchange.complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Most bytes of an answer that are handed over at once. hyper takes a piece of any length as soon as the peer has room
/// for one byte, and what it has taken it holds until the peer reads.
const PIECE_BYTES: usize = 64 * 1024;

/// Body of an answer, in pieces.
pub(super) struct ResponseBody {
    body: axum::body::Body,
    /// Rest of the last frame.
    rest: Bytes,
    _exchange: Arc<Exchange>,
}

impl ResponseBody {
    pub(super) fn new(body: axum::body::Body, exchange: Arc<Exchange>) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            _exchange: exchange,
        }
    }

    /// The next piece of what is left.
    fn piece(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PIECE_BYTES);
        Frame::data(self.rest.split_to(length))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame.into_data(),
            other => return Poll::Ready(other),
        };
        Poll::Ready(Some(Ok(match frame {
            Ok(data) => {
                self.rest = data;
                self.piece()
            }
            Err(trailers) => trailers,
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        // The lower bound may not pass the upper one.
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(of_body.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::connections::{ConnectionShares, ConnectionTable};

    #[tokio::test]
    async fn answers_are_handed_over_in_pieces() {
        let table = ConnectionTable::new(ConnectionShares {
            places: 1,
            by_address: 1,
        });
        let place = table.admit(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connection = Arc::new(place.expect("a place"));
        for length in [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES - 1] {
            let whole: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let exchange = Arc::new(connection.begin());
            let mut body = ResponseBody::new(axum::body::Body::from(whole.clone()), exchange);
            let mut read = Vec::new();
            assert_eq!(body.size_hint().exact(), Some(length as u64));
            while let Some(frame) = body.frame().await {
                let data = frame.expect("a frame").into_data().expect("data");
                assert!(data.len() <= PIECE_BYTES);
                read.extend_from_slice(&data);
                let left = (length - read.len()) as u64;
                assert_eq!(body.size_hint().exact(), Some(left));
            }
            assert!(body.is_end_stream() && read == whole, "{length}");
        }
    }
}
