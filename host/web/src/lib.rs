//! Pages for browsers: the playground, in which people try models, and the page of the admin side. Both ask the same
//! routes as other clients. They are plain HTML, CSS and modules, embedded as they stand, and ask no other server for
//! anything.
//!
//! Pages run under a policy that allows no inline code, no request elsewhere and no text that becomes markup, so
//! that what a model or a caller writes stays text whatever the page does.

mod assets;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use mortise_http::contract::{DialectContract, Operation, Routes};
use mortise_http::{Api, Conventions, Dialect, Elsewhere, Problem};

use crate::assets::{ADMIN, Asset, AssetFile, Assets, PLAYGROUND};

/// Path of a page.
const ROOT: &str = "/";
/// Name of its file.
const PAGE: &str = "index.html";
/// Paths of what the playground loads.
const FILE: &str = "/playground/{file}";
/// Beginning of those.
const PREFIX: &str = "/playground";
/// Paths of what the page of the admin side loads.
const ADMIN_FILE: &str = "/page/{file}";
/// Media types of files.
const MEDIA: [&str; 3] = ["text/css", "text/javascript", "image/svg+xml"];

/// Headers of all files: the page loads its own files, asks its own server, and is embedded nowhere.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    // A newer server has newer files; the tag saves sending those that are the same.
    (header::CACHE_CONTROL, "no-cache"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// The routes of the playground. Their problems are written as those on paths of no dialect.
pub fn api(elsewhere: Elsewhere) -> Api {
    let page = Operation::get(ROOT, "getPlayground", "A page to try models.");
    let file = Operation::get(FILE, "getPlaygroundFile", "A file of that page.");
    let about = ("Playground", "The page at the root of the server.");
    of(
        elsewhere,
        PLAYGROUND,
        PREFIX,
        &[ROOT, FILE],
        page,
        file,
        about,
    )
}

/// The routes of the page of the admin side, whose files take no key: they hold no data.
pub fn admin(elsewhere: Elsewhere) -> Api {
    let page = Operation::get(
        ROOT,
        "getAdminPage",
        "A page to watch and change the server.",
    );
    let file = Operation::get(ADMIN_FILE, "getAdminPageFile", "A file of that page.");
    let about = ("Page", "The page at the root of the admin side.");
    of(
        elsewhere,
        ADMIN,
        "/page",
        &[ROOT, ADMIN_FILE],
        page,
        file,
        about,
    )
}

/// The routes of a page and of its files.
fn of(
    elsewhere: Elsewhere,
    files: &[AssetFile],
    prefix: &'static str,
    paths: &'static [&'static str],
    page: Operation,
    file: Operation,
    (tag, about): (&'static str, &'static str),
) -> Api {
    let file = MEDIA.into_iter().fold(file, Operation::writes);
    let routes = Routes::default()
        .on(page.writes("text/html").may_be_unchanged(), root)
        .on(file.may_be_unchanged().refuses(&[404]), one);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.with_state(Arc::new(Assets::of(files))),
        dialect: Dialect {
            prefix,
            shape: elsewhere.shape,
            conventions: Conventions::NONE,
        },
        routes: paths,
        contract: DialectContract {
            tag,
            about,
            shapes: &[],
            problem: elsewhere.problem,
            asks: false,
            operations,
        },
    }
}

async fn root(State(assets): State<Arc<Assets>>, headers: HeaderMap) -> Result<Response, Problem> {
    answer(&assets, PAGE, &headers)
}

async fn one(
    State(assets): State<Arc<Assets>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    answer(&assets, &name, &headers)
}

fn answer(assets: &Assets, name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let asset = assets.get(name).ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "unknown_route",
            "the page has no such file; it is at `/`",
        )
    })?;
    let known = headers.get_all(header::IF_NONE_MATCH).iter();
    let known = known.filter_map(|value| value.to_str().ok());
    let unchanged = known
        .flat_map(|tags| tags.split(','))
        .any(|tag| is_same(tag.trim(), &asset.tag));
    Ok(response(asset, unchanged))
}

/// True if a tag that a browser or a proxy remembers is that of a file. Proxies mark those that they compress as weak.
fn is_same(known: &str, tag: &HeaderValue) -> bool {
    let known = known.strip_prefix("W/").unwrap_or(known);
    known == "*" || known.as_bytes() == tag.as_bytes()
}

fn response(asset: &Asset, unchanged: bool) -> Response {
    let mut response = Response::new(match unchanged {
        true => Body::empty(),
        false => Body::from(asset.bytes.clone()),
    });
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    let media = HeaderValue::from_static(asset.media);
    headers.insert(header::CONTENT_TYPE, media);
    headers.insert(header::ETAG, asset.tag.clone());
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
