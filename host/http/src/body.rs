//! Reads request bodies within limits that bite before the bytes are held.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::body_budget::{NoRoom, Reservation};
use crate::json::parse_object;
use crate::json_memory::structure_bytes;
use crate::problem::{Problem, stopping};

/// Once the server stops, a body has this long to become complete.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// Least step by which the memory of a body without a length grows.
const GROWTH_BYTES: usize = 16 * 1024;

/// Times that the values of a body are there at once while it is translated: as they were parsed, as the fields of
/// their route, and as what is made of those.
const COPIES: usize = 3;

/// Seconds after which a client may ask again when memory for bodies has run out.
const RETRY_AFTER: &str = "1";

/// Limits on one body.
#[derive(Debug, Clone)]
pub struct BodyLimits {
    /// Its length.
    pub bytes: usize,
    /// Time in which it must arrive.
    pub time: Duration,
    /// Becomes true when the server takes no new work.
    pub draining: watch::Receiver<bool>,
}

/// The whole body, if it is JSON by its type and within the limits. Its memory is reserved before it is read.
pub async fn read_json(
    headers: &HeaderMap,
    body: Body,
    limits: &BodyLimits,
    reservation: &mut Reservation,
) -> Result<Bytes, Problem> {
    check_type(headers)?;
    let limit = limits.bytes;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let announced = match announced.map(usize::try_from) {
        None => 0,
        Some(Ok(length)) if length <= limit => length,
        Some(_) => return Err(too_large(limit)),
    };
    reserve(reservation, announced, limit)?;
    let collected = collect(body, announced, limit, reservation);
    tokio::select! {
        read = timeout(limits.time, collected) => read.unwrap_or_else(|_| Err(late(limits.time))),
        () = stopped(limits.draining.clone()) => Err(stopping().with_header("connection", "close")),
    }
}

async fn collect(
    mut body: Body,
    announced: usize,
    limit: usize,
    reservation: &mut Reservation,
) -> Result<Bytes, Problem> {
    let mut collected = Vec::with_capacity(announced);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "body_unreadable",
                format!("the body could not be read: {}", cause(&error)),
            )
        })?;
        let Ok(chunk) = frame.into_data() else {
            continue;
        };
        let length = collected.len() + chunk.len();
        if length > limit {
            return Err(too_large(limit));
        }
        if length > collected.capacity() {
            let room = length.max(2 * collected.capacity()).max(GROWTH_BYTES);
            let room = room.min(limit);
            reserve(reservation, room, limit)?;
            collected.reserve_exact(room - collected.len());
        }
        collected.extend_from_slice(&chunk);
    }
    Ok(collected.into())
}

/// Root cause of an error.
pub(crate) fn cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a dyn std::error::Error {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// Reserve memory for a body, or a message, of so many bytes.
///
/// # Errors
/// 503 when others have the memory, 413 when no request can have so much.
pub fn reserve(reservation: &mut Reservation, bytes: usize, limit: usize) -> Result<(), Problem> {
    reservation.raise_to(bytes).map_err(|reason| match reason {
        NoRoom::Now => no_body_memory(),
        NoRoom::Ever => too_large(limit),
    })
}

/// Reserve memory for what belongs to a request beside its body.
///
/// # Errors
/// 503 when others have the memory, 413 when no request can have so much.
pub fn reserve_more(reservation: &mut Reservation, bytes: usize) -> Result<(), Problem> {
    let most = reservation.most();
    reservation.add(bytes).map_err(|reason| match reason {
        NoRoom::Now => no_body_memory(),
        NoRoom::Ever => too_many_values(most),
    })
}

/// The object that a body has, as [`read_json`] reads it. Memory for its values is reserved before they are made;
/// a body whose values take more than a request can have is refused.
pub async fn read_object(
    headers: &HeaderMap,
    body: Body,
    limits: &BodyLimits,
    reservation: &mut Reservation,
) -> Result<Map<String, Value>, Problem> {
    let body = read_json(headers, body, limits, reservation).await?;
    object_within(&body, reservation)
}

/// The object that a text has, within memory for its values, as [`read_object`] reserves it.
///
/// # Errors
/// When it is no object, its values take more memory than a request can have, or others have the memory.
pub fn object_within(
    body: &[u8],
    reservation: &mut Reservation,
) -> Result<Map<String, Value>, Problem> {
    let most = reservation.most();
    let values = structure_bytes(body).saturating_mul(COPIES);
    let least = body.len().saturating_add(values);
    if least > most {
        return Err(too_many_values(most));
    }
    // Its text is there twice until it is parsed. A body of text alone is taken whatever it has, when it is alone.
    let bytes = least.saturating_add(body.len()).min(most);
    reservation.raise_to(bytes).map_err(|_| no_body_memory())?;
    parse_object(body)
}

/// The server has been told to stop, and the time for what was on its way is over.
pub(crate) async fn stopped(mut draining: watch::Receiver<bool>) {
    // Fails when the sender is gone, which is the end as well.
    let _ = draining.wait_for(|draining| *draining).await;
    sleep(STOP_GRACE).await;
}

pub(crate) fn late(limit: Duration) -> Problem {
    Problem::new(
        StatusCode::REQUEST_TIMEOUT,
        "request_timeout",
        format!("the body did not arrive within {} s", limit.as_secs()),
    )
    .with_header("connection", "close")
}

/// Refusal of a request for whose body there is no memory now.
pub fn no_body_memory() -> Problem {
    Problem::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "body_memory_full",
        "the server is reading as many bytes of requests as it may; retry shortly. Operators: see \
         `limits.max_body_bytes_in_flight`",
    )
    .with_header("retry-after", RETRY_AFTER)
}

pub(crate) fn too_large(limit: impl std::fmt::Display) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!("the body is larger than {limit} bytes"),
    )
}

fn too_many_values(most: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "body_too_large",
        format!(
            "the values of this request take more than the {most} bytes of memory that one request may have; send \
             fewer objects, arrays and strings. Operators: see `limits.max_body_bytes_in_flight`"
        ),
    )
}

/// Headers that every browser sends with a request that has a body, where a page of another origin asks for it.
const OF_PAGES: [&str; 2] = ["origin", "sec-fetch-site"];

/// Only JSON, and only as it stands. Other types are also what a web page of a stranger could send
/// without being asked; so is a body without a type, unless no browser sent it.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE);
    let untyped = value.is_none() && !OF_PAGES.iter().any(|name| headers.contains_key(*name));
    let text = value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let json = untyped
        || essence == "application/json"
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::body_budget::{BodyBudget, Owner};

    /// Refusal of a body, and what is reserved for it, within a budget of so many MiB.
    fn taken(body: &str, mib: usize) -> (Option<String>, usize) {
        let budget = BodyBudget::new(mib << 20);
        let owner = Owner::new(IpAddr::V4(Ipv4Addr::LOCALHOST), None);
        let mut reservation = budget.open(owner);
        let read = object_within(body.as_bytes(), &mut reservation);
        (
            read.err().map(|problem| problem.code.to_string()),
            budget.used(),
        )
    }

    fn many(field: &str, item: &str, count: usize) -> String {
        format!("{{\"{field}\":[{}]}}", vec![item; count].join(","))
    }

    #[test]
    fn bodies_whose_values_take_more_than_one_request_may_have_are_refused() {
        for body in [
            many("tools", "{\"type\":\"x\"}", 320_000),
            many("input", "{\"role\":\"user\",\"content\":\"a\"}", 120_000),
            many("prompt", "7", 1_900_000),
            many("documents", "\"\"", 1_300_000),
            many("messages", "[]", 1_300_000),
        ] {
            assert!(body.len() <= 4 << 20);
            let (code, used) = taken(&body, 128);
            assert_eq!(code.as_deref(), Some("body_too_large"), "{}", &body[..40]);
            assert_eq!(used, 0, "it is refused before it is made");
        }
    }

    #[test]
    fn ordinary_bodies_are_taken_for_what_they_take() {
        let mib = 1 << 20;
        let text = many("messages", &format!("\"{}\"", "x".repeat(4 * mib - 100)), 1);
        let (code, used) = taken(&text, 8);
        assert_eq!(
            (code, used),
            (None, 6 * mib),
            "all that one request can have"
        );
        let (code, used) = taken(&text, 128);
        assert!(code.is_none() && used <= 9 * mib, "{used}");
        // As many messages as a conversation may have, and the ids of a long prompt.
        let messages = many("input", "{\"role\":\"user\",\"content\":\"a\"}", 4096);
        let (code, used) = taken(&messages, 128);
        assert!(code.is_none() && used < 12 * mib, "{used}");
        let (code, used) = taken(&many("prompt", "777", 262_144), 128);
        assert!(code.is_none() && used < 64 * mib, "{used}");
    }
}
