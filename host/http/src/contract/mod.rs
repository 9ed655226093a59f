//! The contract of a server: its operations, each declared where its handler is routed, so that none is
//! routed and not declared. A document in OpenAPI's terms and a page to read are made of them.

mod document;
mod notation;
mod page;
mod pages;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use serde_json::{Value, json};

pub(crate) use self::document::OfStatus;
pub use self::document::{ApiInfo, document};
pub(crate) use self::pages::{ContractPages, DOCUMENT, LOOK, PAGE};

/// Statuses of refusals that every route has: of the head of a request, of the host name, of a defect, of a
/// server that starts, stops or is full.
const EVERY: &[u16] = &[400, 403, 408, 414, 431, 500, 503];
/// Statuses of refusals of routes that ask policies who calls.
pub const CALLER: &[u16] = &[401, 429];
/// Statuses of refusals of routes that read a JSON body.
pub const BODY: &[u16] = &[413, 415];
/// Statuses of refusals of routes that ask a model.
pub const MODEL: &[u16] = &[404, 409, 422, 502];
/// Statuses of refusals of routes that read from the store or write to it.
pub const STORE: &[u16] = &[404, 413];
/// Statuses of refusals of routes that take an idempotency key.
pub const ONCE: &[u16] = &[409];

/// The method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    /// The name in a document.
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Put => "put",
            Self::Delete => "delete",
        }
    }

    fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// The body of an answer: its status, its media type, and its shape in the notation of the types; none
/// for a body that is no JSON.
#[derive(Debug, Clone, Copy)]
struct Answer {
    status: u16,
    media: &'static str,
    shape: Option<&'static str>,
}

/// The body of a request: the name of its schema, its media type, and the schema.
#[derive(Debug, Clone)]
struct Taken {
    name: &'static str,
    media: &'static str,
    schema: Value,
    required: bool,
}

/// Operation of the contract: one method of one route.
#[derive(Debug, Clone)]
pub struct Operation {
    method: Method,
    /// The route as the router has it.
    path: &'static str,
    /// Name in generated clients.
    id: &'static str,
    summary: &'static str,
    /// Parameters of the query and headers.
    parameters: Vec<Value>,
    taken: Option<Taken>,
    answers: Vec<Answer>,
    refusals: Vec<u16>,
}

impl Operation {
    fn new(method: Method, path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            id,
            summary,
            parameters: Vec::new(),
            taken: None,
            answers: Vec::new(),
            refusals: EVERY.to_vec(),
        }
    }

    /// `GET` on a route: its path, its name in generated clients, and what it does.
    pub fn get(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::Get, path, id, summary)
    }

    /// `POST` on a route.
    pub fn post(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::Post, path, id, summary)
    }

    /// `PUT` on a route.
    pub fn put(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::Put, path, id, summary)
    }

    /// `DELETE` on a route.
    pub fn delete(path: &'static str, id: &'static str, summary: &'static str) -> Self {
        Self::new(Method::Delete, path, id, summary)
    }

    /// Set the path and the operation id.
    #[must_use]
    pub fn at(mut self, path: &'static str, id: &'static str) -> Self {
        (self.path, self.id) = (path, id);
        self
    }

    /// Add an optional query parameter: name, schema and description.
    #[must_use]
    pub fn query(self, name: &str, schema: Value, about: &str) -> Self {
        self.parameter("query", name, schema, about)
    }

    /// Add an optional request header: name, schema and description.
    #[must_use]
    pub fn header(self, name: &str, schema: Value, about: &str) -> Self {
        self.parameter("header", name, schema, about)
    }

    fn parameter(mut self, place: &str, name: &str, schema: Value, about: &str) -> Self {
        let parameter = json!({"name": name, "in": place, "schema": schema, "description": about});
        self.parameters.push(parameter);
        self
    }

    /// Add a required JSON body: the name of its schema, and the schema.
    #[must_use]
    pub fn takes(self, name: &'static str, schema: Value) -> Self {
        self.takes_body(name, "application/json", schema, true)
    }

    /// Add a required multipart form with files as the body: the name of its schema, and the schema.
    #[must_use]
    pub fn takes_form(self, name: &'static str, schema: Value) -> Self {
        self.takes_body(name, "multipart/form-data", schema, true)
    }

    /// Add a required body of bytes of any kind: the name of its schema.
    #[must_use]
    pub fn takes_bytes(self, name: &'static str) -> Self {
        let schema = json!({"type": "string", "format": "binary"});
        self.takes_body(name, "application/octet-stream", schema, true)
    }

    /// Add an optional JSON body: the name of its schema, and the schema.
    #[must_use]
    pub fn may_take(self, name: &'static str, schema: Value) -> Self {
        self.takes_body(name, "application/json", schema, false)
    }

    fn takes_body(
        mut self,
        name: &'static str,
        media: &'static str,
        schema: Value,
        required: bool,
    ) -> Self {
        self.taken = Some(Taken {
            name,
            media,
            schema,
            required,
        });
        self.refuses(BODY)
    }

    /// Add a JSON answer of a status. The shape is an expression of the notation of types.
    #[must_use]
    pub fn answers(self, status: u16, shape: &'static str) -> Self {
        self.answer(status, "application/json", Some(shape))
    }

    /// Add an answer of server-sent events of a shape, status 200.
    #[must_use]
    pub fn streams(self, shape: &'static str) -> Self {
        self.answer(200, "text/event-stream", Some(shape))
    }

    /// Add an answer of JSON lines, each an object of a shape, status 200.
    #[must_use]
    pub fn writes_lines(self, shape: &'static str) -> Self {
        self.answer(200, "application/x-ndjson", Some(shape))
    }

    /// Add an answer of a media type without a shape, status 200.
    #[must_use]
    pub fn writes(self, media: &'static str) -> Self {
        self.answer(200, media, None)
    }

    /// Add the upgrade to a WebSocket: the answer 101, and the refusal 426.
    #[must_use]
    pub fn upgrades(self) -> Self {
        self.answer(101, "", None).refuses(&[426])
    }

    /// Add the request header `If-None-Match` and the answer 304 (not modified).
    #[must_use]
    pub fn may_be_unchanged(self) -> Self {
        let about = "Tags of what the caller has; 304 if it is still the same.";
        self.header("If-None-Match", json!({"type": "string"}), about)
            .answer(304, "", None)
    }

    fn answer(mut self, status: u16, media: &'static str, shape: Option<&'static str>) -> Self {
        self.answers.push(Answer {
            status,
            media,
            shape,
        });
        self
    }

    /// Add statuses of refusals.
    #[must_use]
    pub fn refuses(mut self, statuses: &[u16]) -> Self {
        self.refusals.extend_from_slice(statuses);
        self
    }
}

/// The future of a handler that is a function, as axum has it.
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler of any type. The services that the router makes of a handler are compiled once for all of these, and
/// not once for each function.
struct ErasedHandler<S>(Arc<dyn Fn(Request, S) -> Answering + Send + Sync>);

impl<S> Clone for ErasedHandler<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: 'static> Handler<(), S> for ErasedHandler<S> {
    type Future = Answering;

    fn call(self, request: Request, state: S) -> Answering {
        (self.0)(request, state)
    }
}

/// Routes with their operations.
pub struct Routes<S> {
    router: Router<S>,
    operations: Vec<Operation>,
}

impl<S> std::fmt::Debug for Routes<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Routes")
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self {
            router: Router::new(),
            operations: Vec::new(),
        }
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    /// Add an operation and its handler.
    #[must_use]
    pub fn on<T: 'static>(
        self,
        operation: Operation,
        handler: impl Handler<T, S, Future = Answering>,
    ) -> Self {
        let call = move |request, state| handler.clone().call(request, state);
        self.on_erased(operation, ErasedHandler(Arc::new(call)))
    }

    fn on_erased(mut self, operation: Operation, handler: ErasedHandler<S>) -> Self {
        let filter = operation.method.filter();
        self.router = self.router.route(operation.path, on(filter, handler));
        self.operations.push(operation);
        self
    }

    /// The router and the operations.
    pub fn into_parts(self) -> (Router<S>, Vec<Operation>) {
        (self.router, self.operations)
    }
}

/// Declarations of one dialect.
#[derive(Debug, Clone)]
pub struct DialectContract {
    /// Name of the dialect in the document.
    pub tag: &'static str,
    /// Description of the dialect.
    pub about: &'static str,
    /// Texts in the notation of types, whose types the operations name.
    pub shapes: &'static [&'static str],
    /// The type of its problems.
    pub problem: &'static str,
    /// True if policies are asked who calls; their refusals may have any status of a client's error.
    pub asks: bool,
    /// Operations of the dialect.
    pub operations: Vec<Operation>,
}
