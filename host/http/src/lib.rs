//! HTTP without a dialect: the listener and its limits, host names and CORS, request ids, strict
//! JSON, draining, access records, and failures that each dialect writes in a shape of its own.
//!
//! No dialect and nothing of the service is known in here.

mod access;
mod body;
mod guard;
mod json;
mod listen;
mod problem;
mod refusal;
mod router;
mod suggest;
mod transport;

pub use access::{Access, AccessObserver, AnswerRecord, Notes};
pub use body::read_json;
pub use guard::{Guard, HeaderLimits};
pub use json::{MAX_DEPTH, kind_of, parse_object};
pub use listen::{ConnectionLimits, Stop, serve, serve_beside};
pub use problem::{Problem, ProblemShape, append_headers, json_response, write_problem};
pub use router::{Api, Context, HttpState, panicked, router, stopping};
pub use suggest::nearest;
