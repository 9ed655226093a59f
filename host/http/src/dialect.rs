//! Dialect that a request belongs to: it decides the shape of what goes wrong.

use axum::body::Body;
use http::{Request, StatusCode};

use crate::problem::{Problem, ProblemShape};

/// Paths of a dialect, and the shape of its problems.
#[derive(Debug, Clone, Copy)]
pub struct Dialect {
    /// Beginning of all of its paths.
    pub prefix: &'static str,
    /// Writer of its problems.
    pub shape: ProblemShape,
    /// Further differences from other dialects.
    pub conventions: Conventions,
}

/// Differences between a dialect and the rest, beside the shape of its problems.
#[derive(Debug, Clone, Copy)]
pub struct Conventions {
    /// Header that marks a request as one of the dialect's callers, on all paths below the first part of
    /// its prefix.
    pub marker: Option<&'static str>,
    /// Header that repeats the request's id in every response. The shape finds it among a problem's headers.
    pub id_header: Option<&'static str>,
    /// Status of a problem, where the dialect has one of its own.
    pub status: Option<fn(&Problem) -> StatusCode>,
}

impl Conventions {
    /// No difference but the shape.
    pub const NONE: Self = Self {
        marker: None,
        id_header: None,
        status: None,
    };
}

/// Shape of problems and conventions of the dialect that a request belongs to: the one that its headers name, or
/// else the one with the longest prefix of its path, or else `elsewhere`.
pub(crate) fn dialect_of<'a>(
    dialects: impl Iterator<Item = &'a Dialect> + Clone,
    elsewhere: ProblemShape,
    request: &Request<Body>,
) -> (ProblemShape, Conventions) {
    let path = request.uri().path();
    let marked = |dialect: &&Dialect| {
        let marker = dialect.conventions.marker;
        marker.is_some_and(|name| request.headers().contains_key(name))
            && is_below(path, first_part(dialect.prefix))
    };
    let below = dialects
        .clone()
        .filter(|dialect| is_below(path, dialect.prefix));
    let found = dialects.clone().find(marked);
    let found = found.or_else(|| below.max_by_key(|dialect| dialect.prefix.len()));
    match found {
        Some(dialect) => (dialect.shape, dialect.conventions),
        None => (elsewhere, Conventions::NONE),
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// `/v1` of `/v1/messages`.
fn first_part(prefix: &str) -> &str {
    let end = prefix.char_indices().skip(1).find(|(_, c)| *c == '/');
    &prefix[..end.map_or(prefix.len(), |(at, _)| at)]
}
