//! Collections of documents of all callers: listed, made, filled, searched, given new vectors, removed. Each is asked of the
//! routes of its owner, so bounds and refusals are those of callers.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::Response;
use http::{Method, StatusCode};
use mortise_http::{Problem, json_response, peer_of};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Admin;
use crate::audit::AuditDetail;
use crate::models::read;

/// An answer that is being made.
pub type Telling<'a> = Pin<Box<dyn Future<Output = Result<Value, Problem>> + Send + 'a>>;

/// Content of a document, as it arrives.
pub type DocumentContent = Body;

/// A question about the collections of an owner, for the routes of callers.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Account that owns the collections: `tenant NAME`, or `caller NAME`.
    pub owner: &'a str,
    /// Address of the operator.
    pub peer: SocketAddr,
    /// Method.
    pub method: Method,
    /// Parts of the path below that of all collections.
    pub below: &'a [&'a str],
    /// Query.
    pub query: Option<&'a str>,
    /// Body.
    pub body: Option<Value>,
}

/// Collections of all callers, as rooms above this one know them.
pub trait Documents: Send + Sync {
    /// Rows of all collections, up to a bound, and how many there are.
    fn list(&self) -> Telling<'_>;

    /// Cached rows of all collections, for readers that poll.
    fn watched(&self) -> Telling<'_>;

    /// The answer of a route to a question.
    fn ask<'a>(&'a self, question: Ask<'a>) -> Telling<'a>;

    /// Store a document under a name, and attach it to the collection that the question names.
    fn add<'a>(&'a self, question: Ask<'a>, name: &'a str, content: DocumentContent)
    -> Telling<'a>;
}

/// Owner of a collection, and its id.
type Place = Result<Path<(String, String)>, PathRejection>;
/// Owner and id of a collection, and id of a file.
type FilePlace = Result<Path<(String, String, String)>, PathRejection>;

/// A collection that is to be made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectionRequest {
    tenant: Option<String>,
    caller: Option<String>,
    name: Option<String>,
    description: Option<String>,
    embedding_model: Option<String>,
    retriever: Option<String>,
    metadata: Option<Map<String, Value>>,
}

impl CollectionRequest {
    /// The owner, and the body for its route.
    fn parts(self) -> Result<(String, Value), Problem> {
        let owner = match (self.tenant, self.caller) {
            (Some(tenant), None) => format!("tenant {tenant}"),
            (None, Some(caller)) => format!("caller {caller}"),
            // Callers who are not told apart.
            (None, None) => "caller anonymous".to_owned(),
            (Some(_), Some(_)) => {
                let message = "a collection belongs to a tenant, or to a caller without one";
                return Err(invalid(message).at("caller"));
            }
        };
        let body = json!({
            "name": self.name,
            "description": self.description,
            "embedding_model": self.embedding_model,
            "retriever": self.retriever,
            "metadata": self.metadata,
        });
        Ok((owner, body))
    }
}

/// Embedding model for new vectors of a collection.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewVectors {
    embedding_model: Option<String>,
}

/// A search.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CollectionSearch {
    query: String,
    max_num_results: Option<u32>,
}

/// List the collections of all callers.
pub(crate) async fn list(State(admin): State<Arc<Admin>>) -> Result<Response, Problem> {
    let rows = admin.documents.list().await?;
    Ok(json_response(StatusCode::OK, &rows))
}

/// Make a collection for a tenant or a caller.
pub(crate) async fn create(
    State(admin): State<Arc<Admin>>,
    request: Request,
) -> Result<Response, Problem> {
    let peer = peer_of(&request);
    let wanted = read::<CollectionRequest>(request.into_body()).await;
    let wanted = wanted.map_err(coded)?.ok_or_else(|| {
        invalid(
            "the body must say what to make, as in {\"tenant\": \"acme\", \"name\": \"papers\"}",
        )
    })?;
    let (owner, body) = wanted.parts()?;
    let question = Ask {
        owner: &owner,
        peer,
        method: Method::POST,
        below: &[],
        query: None,
        body: Some(body),
    };
    let mut made = admin.documents.ask(question).await?;
    made["owner"] = json!(owner);
    let detail = json!({"owner": owner, "collection": made["id"], "name": made["name"]});
    let mut response = json_response(StatusCode::CREATED, &made);
    response.extensions_mut().insert(AuditDetail(detail));
    Ok(response)
}

/// Show a collection.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let sender = Sender::of(&request);
    let mut answer = admin.at(sender, &owner, &[&*id], Method::GET).await?;
    answer["owner"] = json!(owner);
    Ok(json_response(StatusCode::OK, &answer))
}

/// Remove a collection; the files themselves stay.
pub(crate) async fn remove(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let sender = Sender::of(&request);
    Ok(changed(
        admin.at(sender, &owner, &[&*id], Method::DELETE).await?,
    ))
}

/// Search in a collection, as its owner would.
pub(crate) async fn search(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let peer = peer_of(&request);
    let wanted = read::<CollectionSearch>(request.into_body()).await;
    let wanted = wanted
        .map_err(coded)?
        .ok_or_else(|| invalid("the body must have a `query`"))?;
    let question = Ask {
        owner: &owner,
        peer,
        method: Method::POST,
        below: &[&*id, "search"],
        query: None,
        body: Some(json!({"query": wanted.query, "max_num_results": wanted.max_num_results})),
    };
    let found = admin.documents.ask(question).await?;
    Ok(json_response(StatusCode::OK, &found))
}

/// Files of a collection, and how far each is ingested.
pub(crate) async fn files(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let sender = Sender::of(&request);
    let below = [&*id, "files"];
    let answer = admin.at(sender, &owner, &below, Method::GET).await?;
    Ok(json_response(StatusCode::OK, &answer))
}

/// Store the body as a document, and attach it to a collection.
pub(crate) async fn add(
    State(admin): State<Arc<Admin>>,
    place: Place,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let name = query
        .as_deref()
        .and_then(|query| query.strip_prefix("name="));
    let name = name.filter(|name| !name.contains('&')).ok_or_else(|| {
        let message =
            "the query must be `name=` with the name of the document, whose end tells what it is";
        Problem::new(StatusCode::BAD_REQUEST, "invalid_query", message).at("name")
    })?;
    let name = percent_decode_str(name).decode_utf8_lossy().into_owned();
    let question = Ask {
        owner: &owner,
        peer: peer_of(&request),
        method: Method::POST,
        below: &[&*id, "files"],
        query: None,
        body: None,
    };
    let added = admin.documents.add(question, &name, request.into_body());
    let added = added.await?;
    let mut response = json_response(StatusCode::ACCEPTED, &added);
    let detail = json!({"file": added["id"], "name": name});
    response.extensions_mut().insert(AuditDetail(detail));
    Ok(response)
}

/// Take a file out of a collection; the file itself stays.
pub(crate) async fn detach(
    State(admin): State<Arc<Admin>>,
    place: FilePlace,
    request: Request,
) -> Result<Response, Problem> {
    let Path((owner, id, file)) = place.map_err(unreadable)?;
    let sender = Sender::of(&request);
    let below = [&*id, "files", &*file];
    Ok(changed(
        admin.at(sender, &owner, &below, Method::DELETE).await?,
    ))
}

/// Begin to make new vectors.
pub(crate) async fn reembed(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let peer = peer_of(&request);
    let wanted = read::<NewVectors>(request.into_body())
        .await
        .map_err(coded)?;
    let wanted = wanted.unwrap_or_default();
    let question = Ask {
        owner: &owner,
        peer,
        method: Method::POST,
        below: &[&*id, "reembed"],
        query: None,
        body: Some(json!({"embedding_model": wanted.embedding_model})),
    };
    Ok(changed(admin.documents.ask(question).await?))
}

/// Cancel the making of new vectors of a collection; the vectors in use stay.
pub(crate) async fn keep_vectors(
    State(admin): State<Arc<Admin>>,
    place: Place,
    request: Request,
) -> Result<Response, Problem> {
    let (owner, id) = part(place)?;
    let sender = Sender::of(&request);
    let below = [&*id, "reembed"];
    Ok(changed(
        admin.at(sender, &owner, &below, Method::DELETE).await?,
    ))
}

/// Address and query of an operator's request.
struct Sender {
    peer: SocketAddr,
    query: Option<String>,
}

impl Sender {
    fn of(request: &Request) -> Self {
        Self {
            peer: peer_of(request),
            query: request.uri().query().map(str::to_owned),
        }
    }
}

impl Admin {
    /// Ask a route without a body, with the query of the operator's request.
    async fn at(
        &self,
        sender: Sender,
        owner: &str,
        below: &[&str],
        method: Method,
    ) -> Result<Value, Problem> {
        let question = Ask {
            owner,
            peer: sender.peer,
            method,
            below,
            query: sender.query.as_deref(),
            body: None,
        };
        self.documents.ask(question).await
    }
}

fn part(place: Place) -> Result<(String, String), Problem> {
    let Path(place) = place.map_err(unreadable)?;
    Ok(place)
}

fn unreadable(_: PathRejection) -> Problem {
    let message = "the path is not UTF-8";
    Problem::new(StatusCode::BAD_REQUEST, "invalid_path", message)
}

/// A change, which the audit log tells.
fn changed(answer: Value) -> Response {
    let mut response = json_response(StatusCode::OK, &answer);
    response.extensions_mut().insert(AuditDetail(answer));
    response
}

fn coded(problem: Problem) -> Problem {
    Problem {
        code: "invalid_collection".into(),
        ..problem
    }
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_collection", message)
}
