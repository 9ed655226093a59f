//! A form with files: the first byte is the size of the pieces that it comes in, which makes no difference.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use futures::stream;
use http::{HeaderMap, HeaderValue, header};
use mortise_http::{FormLimits, Multipart};
use tokio::sync::watch;

type Parts = Vec<(String, Option<String>, Vec<u8>)>;

async fn read(form: &[u8], size: usize) -> Option<Parts> {
    let mut headers = HeaderMap::new();
    let form_type = HeaderValue::from_static("multipart/form-data; boundary=B");
    headers.insert(header::CONTENT_TYPE, form_type);
    let (_draining, seen) = watch::channel(false);
    let limits = FormLimits {
        bytes: 65_536,
        pause: Duration::from_secs(5),
        time: Duration::from_secs(5),
        draining: seen,
    };
    let pieces: Vec<_> = form
        .chunks(size)
        .map(|piece| Ok::<_, Infallible>(piece.to_vec()))
        .collect();
    let body = Body::from_stream(stream::iter(pieces));
    let mut form = Multipart::open(&headers, body, limits).ok()?;
    let mut parts = Parts::new();
    while let Some(part) = form.part().await.ok()? {
        let mut data = Vec::new();
        while let Some(piece) = form.data().await.ok()? {
            data.extend_from_slice(&piece);
        }
        parts.push((part.name, part.file_name, data));
    }
    Some(parts)
}

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Some((size, form)) = bytes.split_first() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let whole = read(form, form.len().max(1)).await;
        assert_eq!(read(form, usize::from(*size).max(1)).await, whole);
    });
}
