//! OTLP over gRPC: one unary call over HTTP/2. The framing is a head of five bytes, so that no stack of gRPC is linked.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

use crate::answer::TracedOutcome;

/// Path of the call below the collector's address.
pub(crate) const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// Bytes before a message: not compressed, and its length.
const HEAD: usize = 5;

const GRPC_STATUS: &str = "grpc-status";

/// A message as the body of a call; `None` if it is longer than a call may carry.
pub(crate) fn framed(message: &[u8]) -> Option<Bytes> {
    let length = u32::try_from(message.len()).ok()?;
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(length);
    framed.extend_from_slice(message);
    Some(framed.freeze())
}

/// The first message of a body. One that is cut or compressed says nothing.
fn message(body: &Bytes) -> Bytes {
    let (Some(0), Some(length)) = (body.first(), body.get(1..HEAD)) else {
        return Bytes::new();
    };
    let length = length
        .iter()
        .fold(0, |all, byte| all << 8 | usize::from(*byte));
    match HEAD.checked_add(length) {
        Some(end) if end <= body.len() => body.slice(HEAD..end),
        _ => Bytes::new(),
    }
}

/// Outcome of a call. Its status is in the trailers, or in the headers of an answer without a body.
pub(crate) fn answer(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
    body: &Bytes,
) -> TracedOutcome {
    let code = trailers.and_then(|trailers| trailers.get(GRPC_STATUS));
    let code = code.or_else(|| headers.get(GRPC_STATUS));
    let code: Option<u32> = code.and_then(|code| code.to_str().ok()?.parse().ok());
    match code {
        Some(0) if status.is_success() => TracedOutcome::Taken(message(body)),
        Some(code) => refusal(code),
        None => match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                TracedOutcome::Later(format!("it answered {status}"), None)
            }
            _ => TracedOutcome::Refused(format!("it answered {status} without a status of gRPC")),
        },
    }
}

/// A call that failed. OTLP names the codes after which it may be made again.
fn refusal(code: u32) -> TracedOutcome {
    let text = format!("it answered with the status {code} of gRPC");
    match code {
        // Cancelled, deadline exceeded, aborted, out of range, unavailable, data loss.
        1 | 4 | 10 | 11 | 14 | 15 => TracedOutcome::Later(text, None),
        // Resource exhausted.
        8 => TracedOutcome::Later(text, Some(Duration::from_secs(1))),
        _ => TracedOutcome::Refused(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn status(code: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_STATUS, http::HeaderValue::from_static(code));
        headers
    }

    proptest! {
        #[test]
        fn any_body_is_read_and_a_framed_message_comes_out(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            message(&Bytes::from(body.clone()));
            prop_assert_eq!(message(&framed(&body).expect("short")), body);
        }
    }

    #[test]
    fn statuses_say_whether_to_send_again() {
        let none = HeaderMap::new();
        let empty = Bytes::new();
        let of = |code| answer(StatusCode::OK, &none, Some(&status(code)), &empty);
        assert!(matches!(of("0"), TracedOutcome::Taken(_)));
        for later in ["1", "4", "8", "14"] {
            assert!(matches!(of(later), TracedOutcome::Later(..)), "{later}");
        }
        for refused in ["3", "7", "12", "16", "4294967295"] {
            assert!(
                matches!(of(refused), TracedOutcome::Refused(_)),
                "{refused}"
            );
        }
        // A failure without a body has its status in the headers.
        let of_head = answer(StatusCode::OK, &status("14"), None, &empty);
        assert!(matches!(of_head, TracedOutcome::Later(..)));
        let no_grpc = answer(StatusCode::OK, &none, None, &empty);
        assert!(matches!(no_grpc, TracedOutcome::Refused(_)));
        let proxy = answer(StatusCode::SERVICE_UNAVAILABLE, &none, None, &empty);
        assert!(matches!(proxy, TracedOutcome::Later(..)));
    }
}
