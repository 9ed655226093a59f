//! Reads request bodies within limits that bite before the bytes are held.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::problem::Problem;

/// A client that sends too much reads our answer only when it has sent everything or the
/// connection breaks, so a little more than the limit is read and thrown away.
const LINGER_BYTES: usize = 4 * 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);

/// The whole body, if it is JSON by its type and within the limits.
pub async fn read_json(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    deadline: Duration,
) -> Result<Bytes, Problem> {
    check_type(headers)?;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let limit_u64 = limit as u64;
    if announced.is_some_and(|length| length > limit_u64 + LINGER_BYTES as u64) {
        return Err(too_large(limit));
    }
    match tokio::time::timeout(deadline, collect(body, limit)).await {
        Ok(result) => result,
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            format!("the body did not arrive within {} s", deadline.as_secs()),
        )
        .with_header("connection", "close")),
    }
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    let mut collected = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "body_unreadable",
                format!("the body could not be read: {error}"),
            )
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        if collected.len() + chunk.len() > limit {
            drop(collected);
            let _ = tokio::time::timeout(LINGER_TIME, linger(body)).await;
            return Err(too_large(limit));
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected.into())
}

async fn linger(mut body: Body) {
    let mut left = LINGER_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn too_large(limit: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the body is larger than {limit} bytes"),
    )
}

/// Only JSON, and only as it stands. Other types are also what a web page of a stranger could send
/// without being asked.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if !json {
        let found = if essence.is_empty() {
            "absent"
        } else {
            essence.as_str()
        };
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_content_type",
            format!("the header `Content-Type` must be `application/json`; it is {found:?}"),
        ));
    }
    for parameter in parts {
        let lower = parameter.to_ascii_lowercase();
        let charset = lower
            .strip_prefix("charset=")
            .map(|name| name.trim_matches('"'));
        if charset.is_some_and(|name| name != "utf-8" && name != "utf8") {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported_charset",
                format!("JSON is UTF-8; the header `Content-Type` says `{parameter}`"),
            ));
        }
    }
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|value| value.as_bytes() != b"identity") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_content_encoding",
            "compressed bodies are not read; leave out the header `Content-Encoding`",
        ));
    }
    Ok(())
}
