//! Batches of spans as OTLP has them, and the answers to them.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use serde_json::Value;

use crate::config::Encoding;

/// The message that carries these spans.
pub(crate) fn message(
    encoding: Encoding,
    spans: Vec<SpanData>,
    resource: &ResourceAttributesWithSchema,
) -> Result<Bytes, serde_json::Error> {
    let request = ExportTraceServiceRequest {
        resource_spans: group_spans_by_resource_and_scope(spans, resource),
    };
    match encoding {
        Encoding::Protobuf | Encoding::Grpc => Ok(request.encode_to_vec().into()),
        Encoding::Json => Ok(serde_json::to_vec(&request)?.into()),
    }
}

/// Number of spans that an answer rejects. An answer that cannot be read rejects none.
pub(crate) fn rejected(encoding: Encoding, body: &[u8]) -> u64 {
    match encoding {
        Encoding::Protobuf | Encoding::Grpc => {
            let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
            let spans = answer.partial_success.map_or(0, |part| part.rejected_spans);
            u64::try_from(spans).unwrap_or(0)
        }
        Encoding::Json => {
            let answer: Value = serde_json::from_slice(body).unwrap_or_default();
            // JSON of protobuf has such numbers in quotes; the crate of the messages takes them without only.
            let spans = &answer["partialSuccess"]["rejectedSpans"];
            let quoted = || spans.as_str()?.parse().ok();
            spans.as_u64().or_else(quoted).unwrap_or(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_answer_of_a_collector_is_read(body in proptest::collection::vec(any::<u8>(), 0..256)) {
            rejected(Encoding::Protobuf, &body);
            rejected(Encoding::Json, &body);
        }
    }

    #[test]
    fn rejected_spans_are_counted_in_both_encodings() {
        let json = br#"{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "no"}}"#;
        assert_eq!(rejected(Encoding::Json, json), 3);
        // Field 1 of length 2: field 1 as the number 3.
        assert_eq!(rejected(Encoding::Protobuf, &[0x0a, 2, 0x08, 3]), 3);
        assert_eq!(
            rejected(
                Encoding::Protobuf,
                &[
                    0x0a, 11, 0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1
                ]
            ),
            0
        );
        assert_eq!(rejected(Encoding::Json, b"<html>"), 0);
    }
}
