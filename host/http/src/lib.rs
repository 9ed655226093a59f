//! HTTP without a dialect: the listener and its limits, host names and CORS, request ids, strict
//! JSON, draining, access records, and failures that each dialect writes in a shape of its own.
//!
//! No dialect and nothing of the service is known in here.

mod access;
mod body;
mod body_budget;
mod chunk_scan;
mod connections;
pub mod contract;
mod dialect;
mod drain;
mod endpoint;
mod exchange_body;
mod figures;
mod guard;
mod h2_streams;
mod head_gate;
mod health;
mod json;
mod json_memory;
mod listen;
mod load_page;
mod metrics_format;
mod multipart;
mod problem;
mod proxy_protocol;
mod request_head;
mod router;
mod startup;
mod suggest;
mod tls;
mod transport;
mod wait_limits;
mod wire;

pub use access::{AccessObserver, AccessRecord, AnswerRecord, EndedRequest, RequestStart};
pub use body::{
    BodyLimits, no_body_memory, object_within, read_json, read_object, reserve, reserve_more,
};
pub use body_budget::{BodyBudget, NoRoom, Owner, Reservation};
pub use connections::{ConnectionShares, ConnectionTable};
pub use dialect::{Conventions, Dialect};
pub use endpoint::{Endpoint, LocalSocket};
pub use figures::{RequestFigures, RequestLatency, RequestSums};
pub use guard::{Guard, HeaderLimits};
pub use health::{Check, CheckState, Checks};
pub use json::{MAX_DEPTH, kind_of, parse_object};
pub use json_memory::{parsed_bytes, value_bytes};
pub use listen::{ConnectionLimits, HANDED_OVER, Occupied, Stop, serve, serve_beside};
pub use multipart::{FormLimits, FormPart, Multipart};
pub use problem::{
    Choices, Problem, ProblemShape, append_headers, json_response, stopping, write_problem,
};
pub use proxy_protocol::ProxyProtocol;
pub use router::{
    Api, Context, Elsewhere, HttpState, Own, check_connection, metrics_elsewhere, panicked,
    peer_of, router,
};
pub use startup::Startup;
pub use suggest::nearest;
pub use tls::{TlsError, TlsMaterial, TlsServer, TlsSettings, TlsVersion};
pub use wait_limits::{WaitEnd, WaitLimits};
pub use wire::ClientCertificate;
