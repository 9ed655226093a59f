//! Bodies that tell the connection how far a request has come: when all of it is here, and when the last
//! byte of its answer is handed over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::connections::HttpExchange;
use crate::h2_streams::Handover;

/// Body of a request.
pub(super) struct RequestBody {
    body: Incoming,
    exchange: Arc<HttpExchange>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, exchange: Arc<HttpExchange>) -> Self {
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

/// Result of polling a body.
type Polled = Option<Result<Frame<Bytes>, axum::Error>>;

/// Body of an answer, in pieces.
pub(super) struct ResponseBody {
    body: axum::body::Body,
    /// Rest of the last frame.
    rest: Bytes,
    /// Frame behind that one, where it is known.
    ahead: Option<Polled>,
    /// Over HTTP/2, who is told whether the peer reads.
    stream: Option<Arc<Handover>>,
    _exchange: Arc<HttpExchange>,
}

impl ResponseBody {
    pub(super) fn new(
        body: axum::body::Body,
        stream: Option<Arc<Handover>>,
        exchange: Arc<HttpExchange>,
    ) -> Self {
        if let Some(stream) = &stream {
            stream.waits();
        }
        Self {
            body,
            rest: Bytes::new(),
            ahead: None,
            stream,
            _exchange: exchange,
        }
    }

    /// Whether nothing comes behind the rest, as far as is known.
    fn ends_with_rest(&self) -> bool {
        match &self.ahead {
            Some(next) => next.is_none(),
            None => self.body.is_end_stream(),
        }
    }

    /// The next piece of what is left. Over HTTP/2 the last byte of an answer is a piece of its own: hyper hands it over
    /// when the peer has room for all before it, and until then the answer is not over.
    fn piece(&mut self) -> Frame<Bytes> {
        let mut length = self.rest.len().min(PIECE_BYTES);
        let is_last = length == self.rest.len() && self.ends_with_rest();
        if is_last && length > 1 && self.stream.is_some() {
            length -= 1;
        }
        Frame::data(self.rest.split_to(length))
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Polled> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let next = match self.ahead.take() {
            Some(next) => next,
            None => ready!(Pin::new(&mut self.body).poll_frame(context)),
        };
        let frame = match next {
            Some(Ok(frame)) => frame.into_data(),
            other => return Poll::Ready(other),
        };
        Poll::Ready(Some(Ok(match frame {
            Ok(data) => {
                self.rest = data;
                // Whether it is the last is not always known before the end is there.
                if self.stream.is_some()
                    && !self.body.is_end_stream()
                    && let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context)
                {
                    self.ahead = Some(next);
                }
                self.piece()
            }
            Err(trailers) => trailers,
        })))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Polled> {
        if let Some(stream) = &self.stream {
            stream.goes_on();
        }
        let next = self.next(context);
        if let (Some(stream), Poll::Ready(Some(_))) = (&self.stream, &next) {
            stream.waits();
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.ends_with_rest()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = match &self.ahead {
            Some(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        let (of_body, rest) = (self.body.size_hint(), (self.rest.len() + ahead) as u64);
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
            let mut body = ResponseBody::new(axum::body::Body::from(whole.clone()), None, exchange);
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

    #[tokio::test]
    async fn over_http2_the_last_byte_is_a_piece_of_its_own() {
        let table = ConnectionTable::new(ConnectionShares {
            places: 1,
            by_address: 1,
        });
        let place = table.admit(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connection = Arc::new(place.expect("a place"));
        for (length, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (2, vec![1, 1]),
            (PIECE_BYTES, vec![PIECE_BYTES - 1, 1]),
            (PIECE_BYTES + 1, vec![PIECE_BYTES, 1]),
            (PIECE_BYTES + 2, vec![PIECE_BYTES, 1, 1]),
        ] {
            let exchange = Arc::new(connection.begin());
            let whole = axum::body::Body::from(vec![7; length]);
            let mut body = ResponseBody::new(whole, Some(Arc::default()), exchange);
            let mut pieces = Vec::new();
            while let Some(frame) = body.frame().await {
                let data = frame.expect("a frame").into_data().expect("data");
                assert_eq!(body.is_end_stream(), pieces.len() + 1 == expected.len());
                pieces.push(data.len());
            }
            assert_eq!(pieces, expected);
        }
        // A stream whose end comes with its last frame, and none of whose frames is known to be the last before.
        let frames = ["abc", "de"].map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
        let streamed = axum::body::Body::from_stream(futures::stream::iter(frames));
        let exchange = Arc::new(connection.begin());
        let mut body = ResponseBody::new(streamed, Some(Arc::default()), exchange);
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.expect("a frame").into_data().expect("data"));
        }
        assert_eq!(pieces, ["abc", "d", "e"]);
    }
}
