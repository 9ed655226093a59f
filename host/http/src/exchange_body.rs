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

/// Body of an answer.
pub(super) struct ResponseBody {
    body: axum::body::Body,
    _exchange: Arc<Exchange>,
}

impl ResponseBody {
    pub(super) fn new(body: axum::body::Body, exchange: Arc<Exchange>) -> Self {
        Self {
            body,
            _exchange: exchange,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
