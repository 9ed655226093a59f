//! The document and its page as routes.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use serde_json::Value;

use super::page::{STYLE, page};
use super::{Operation, Routes};

/// Path of the document.
pub(crate) const DOCUMENT: &str = "/openapi.json";
/// Path of the page.
pub(crate) const PAGE: &str = "/docs";
/// Path of the look of the page.
pub(crate) const LOOK: &str = "/docs/style.css";

/// Headers of the page: it loads its style and nothing else, and runs nothing.
const PAGE_HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// The document and its page as they are sent, once they are made of all routes, their own included.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContractPages(Arc<OnceLock<(Bytes, Bytes)>>);

impl ContractPages {
    /// Send this document from now on. Only the first one counts.
    pub(crate) fn show(&self, document: &Value) {
        let json = Bytes::from(document.to_string());
        let _ = self.0.set((json, Bytes::from(page(document))));
    }

    /// Add the routes of the document and of its page.
    pub(crate) fn on<S: Clone + Send + Sync + 'static>(&self, routes: Routes<S>) -> Routes<S> {
        let (document, page) = (self.clone(), self.clone());
        let of_document = Operation::get(DOCUMENT, "getContract", "This document.");
        let of_page = Operation::get(PAGE, "getContractPage", "This document as a page.");
        let of_look = Operation::get(LOOK, "getContractStyle", "The look of the page.");
        routes
            .on(of_document.answers(200, "object"), move || async move {
                document.json()
            })
            .on(
                of_page.writes("text/html"),
                move || async move { page.html() },
            )
            .on(of_look.writes("text/css"), || async {
                response(
                    "text/css; charset=utf-8",
                    Bytes::from_static(STYLE.as_bytes()),
                )
            })
    }

    fn json(&self) -> Response {
        response("application/json", self.made().0)
    }

    fn html(&self) -> Response {
        let mut response = response("text/html; charset=utf-8", self.made().1);
        for (name, value) in PAGE_HEADERS {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }

    /// The document and the page, which are there before the first request is.
    fn made(&self) -> (Bytes, Bytes) {
        self.0.get().cloned().unwrap_or_default()
    }
}

fn response(media: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let media = HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}
