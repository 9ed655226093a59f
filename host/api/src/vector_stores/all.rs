//! Collections of all callers, for those who run the server. What they ask for is answered by the routes of the callers, as
//! work of the owner that was admitted before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use futures::StreamExt as _;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use mortise_http::{AccessRecord, Context, Own, Problem};
use mortise_retrieval::limits::MAX_DOCUMENT_BYTES;
use mortise_service::{Granted, Principal, account_of};
use mortise_store::{Change, Page, RecordKind};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::stores::Counts;
use super::{STORES, api};
use crate::call::OwnCall;
use crate::collections::{Collections, StoredDocument, collection, collections as page_of};
use crate::contents::{FileFacts, Writing, key_of};
use crate::files_expiry::Expiry;
use crate::ids::now;
use crate::limits::{MAX_FILE_NAME, MAX_KEPT_BYTES, MAX_LISTED_COLLECTIONS, MAX_UPLOAD_TIME};
use crate::state::ApiState;
use crate::stored::store_problem;

/// Caller in whose name operators work for a tenant.
const OPERATOR: &str = "admin";
/// Records that are read at once.
const PAGE: usize = 500;
/// A list is read anew when so many times have passed as its last reading took.
const REST: u32 = 50;

/// A question of an operator about the collections of an owner.
#[derive(Debug)]
pub struct CollectionQuery<'a> {
    /// Account that owns the collections, as lists have it.
    pub owner: &'a str,
    /// Address of the operator.
    pub peer: SocketAddr,
    /// Method of the route.
    pub method: Method,
    /// Parts of its path below that of all collections.
    pub below: &'a [&'a str],
    /// Query.
    pub query: Option<&'a str>,
    /// Body.
    pub body: Option<Value>,
}

/// Collections of all callers.
pub struct AllCollections {
    collections: Arc<Collections>,
    routes: Router,
    seen: Mutex<Option<Seen>>,
}

/// Cached list, with the time of the read and how long the read took.
struct Seen {
    body: Value,
    at: Instant,
    took: Duration,
}

impl std::fmt::Debug for AllCollections {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AllCollections")
    }
}

impl AllCollections {
    /// Collections of all callers.
    pub fn new(collections: &Arc<Collections>) -> Self {
        Self {
            collections: Arc::clone(collections),
            routes: api(Arc::clone(collections)).router,
            seen: Mutex::default(),
        }
    }

    fn state(&self) -> &Arc<ApiState> {
        &self.collections.api
    }

    /// Rows of the collections, those of an owner together, up to a bound, and how many there are.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Value, Problem> {
        let owners = self.state().store.owners(RecordKind::VectorStore).await;
        let (mut rows, mut total) = (Vec::new(), 0);
        for owner in owners.map_err(store_problem)? {
            let of = self.of_owner(&owner).await?;
            total += of.len();
            let room = MAX_LISTED_COLLECTIONS.saturating_sub(rows.len());
            rows.extend(of.into_iter().take(room));
        }
        Ok(json!({"object": "list", "data": rows, "total": total}))
    }

    /// Cached list, for callers that poll: it is computed again once its age is a multiple of the time that computing it took.
    ///
    /// # Errors
    /// As of [`list`](Self::list).
    pub async fn watched(&self) -> Result<Value, Problem> {
        let mut seen = self.seen.lock().await;
        if let Some(seen) = &*seen
            && seen.at.elapsed() < seen.took * REST
        {
            return Ok(seen.body.clone());
        }
        let begun = Instant::now();
        let body = self.list().await?;
        *seen = Some(Seen {
            body: body.clone(),
            at: Instant::now(),
            took: begun.elapsed(),
        });
        Ok(body)
    }

    /// Rows of an owner's collections, the oldest first.
    async fn of_owner(&self, owner: &Arc<str>) -> Result<Vec<Value>, Problem> {
        let page = |after| Page {
            after,
            limit: PAGE,
            ascending: true,
        };
        let (mut files, mut after) = (HashMap::<String, Counts>::new(), None);
        loop {
            let kind = RecordKind::VectorStoreFile;
            let some = self.state().store.list(owner, kind, page(after), None);
            let some = some.await.map_err(store_problem)?;
            for member in some.entries.iter().filter_map(StoredDocument::of) {
                files.entry(member.space().id).or_default().add(&member);
            }
            after = some.entries.last().map(|record| record.key.id.clone());
            if !some.more {
                break;
            }
        }
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let some = page_of(self.state(), owner, page(after), |_| true).await?;
            rows.extend(some.entries.iter().map(|one| {
                let counts = files.remove(&one.space().id).unwrap_or_default();
                let mut row = counts.shown(one);
                row["chunks"] = json!(counts.chunks);
                owned(row, owner)
            }));
            after = some.entries.last().map(|one| one.id().to_owned());
            if !some.more {
                return Ok(rows);
            }
        }
    }

    /// The answer of a route to an operator's question.
    ///
    /// # Errors
    /// When there is no such owner, or the route refuses.
    pub async fn ask(&self, question: CollectionQuery<'_>) -> Result<Value, Problem> {
        let principal = principal_of(question.owner)?;
        let path = question.below.iter().fold(STORES.to_owned(), |path, part| {
            format!("{path}/{}", utf8_percent_encode(part, NON_ALPHANUMERIC))
        });
        let query = question.query.map(|query| format!("?{query}"));
        let uri = format!("{path}{}", query.unwrap_or_default());
        let uri = uri.parse::<Uri>().map_err(|_| absent())?;
        let body = question.body.map(|body| body.to_string());
        let mut request = Request::new(body.map_or_else(Body::empty, Body::from));
        *request.method_mut() = question.method;
        *request.uri_mut() = uri;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        request.extensions_mut().insert(Context {
            id: uuid::Uuid::new_v4().simple().to_string().into(),
            peer: question.peer,
            route: STORES,
            record: Arc::new(AccessRecord::new(Instant::now())),
            own: Some(Own(Arc::new(OwnCall {
                granted: Some(Granted {
                    principal,
                    ..Granted::default()
                }),
                waived_priority: 0,
            }))),
        });
        let response = match self.routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if let Some(problem) = response.extensions().get::<Problem>() {
            return Err(problem.clone());
        }
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_KEPT_BYTES).await;
        let body = body
            .ok()
            .and_then(|body| serde_json::from_slice(&body).ok());
        match body {
            Some(body) if status.is_success() => Ok(body),
            // A path that the routes do not have, as one with an empty id.
            _ => Err(absent()),
        }
    }

    /// Store a document as a file of an owner, and attach it to one of its collections.
    ///
    /// # Errors
    /// When there is no such collection, or the document is refused. No part of the document stays stored then.
    pub async fn add(
        &self,
        question: CollectionQuery<'_>,
        name: &str,
        content: Body,
    ) -> Result<Value, Problem> {
        let principal = principal_of(question.owner)?;
        let owner = account_of(&principal);
        let id = question.below.first().copied().unwrap_or_default();
        collection(self.state(), &owner, id, "id").await?;
        if name.is_empty() || name.chars().count() > MAX_FILE_NAME {
            let message = format!("the name of the file must have 1 to {MAX_FILE_NAME} characters");
            return Err(Problem::invalid("name", message));
        }
        let file = self.keep(&owner, name, content).await?;
        let attached = self.ask(CollectionQuery {
            body: Some(json!({"file_id": file})),
            ..question
        });
        let attached = attached.await;
        if attached.is_err() {
            let gone = vec![Change::Delete(key_of(&owner, &file))];
            self.state()
                .store
                .commit(gone)
                .await
                .map_err(store_problem)?;
        }
        attached
    }

    /// Write a file while it arrives. Returns the id of the file.
    async fn keep(&self, owner: &Arc<str>, name: &str, content: Body) -> Result<String, Problem> {
        let state = self.state();
        state.store.promise(owner).await.map_err(store_problem)?;
        let id = format!("file-{}", uuid::Uuid::new_v4().simple());
        let (key, created) = (key_of(owner, &id), now());
        let until = crate::retention::after(created, 2 * MAX_UPLOAD_TIME);
        let writing = Writing::begin(state, key, created, until).await;
        let mut writing = writing.map_err(store_problem)?;
        let (mut content, mut bytes) = (content.into_data_stream(), 0);
        loop {
            let next = timeout(state.http.body.time, content.next()).await;
            let data = match next.map_err(|_| cut())? {
                Some(data) => data.map_err(|_| cut())?,
                None => break,
            };
            bytes += data.len();
            if bytes > MAX_DOCUMENT_BYTES {
                let message = format!("a document may have {MAX_DOCUMENT_BYTES} bytes");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Err(Problem::new(status, "file_too_large", message));
            }
            writing.add(data).await.map_err(store_problem)?;
        }
        let facts = FileFacts {
            name: name.to_owned(),
            purpose: "user_data".to_owned(),
            bytes: 0,
            created,
            expires: Expiry::at(None, created, state.retention),
        };
        writing.finish(facts).await.map_err(store_problem)?;
        Ok(id)
    }
}

/// The row of a collection with its owner.
fn owned(mut row: Value, owner: &str) -> Value {
    let principal = principal_of(owner).ok();
    let tenant = principal.as_ref().and_then(|of| of.tenant.clone());
    let caller = principal.filter(|of| of.tenant.is_none());
    row["owner"] = json!(owner);
    row["tenant"] = json!(tenant);
    row["caller"] = json!(caller.map(|of| of.subject));
    row
}

/// The caller whose account is an owner: a tenant, or a caller without one.
fn principal_of(owner: &str) -> Result<Principal, Problem> {
    let (tenant, subject) = match owner.split_once(' ') {
        Some(("tenant", name)) if !name.is_empty() => (Some(name.to_owned()), OPERATOR),
        Some(("caller", name)) if !name.is_empty() => (None, name),
        _ => {
            let message =
                "an owner is `tenant NAME`, or `caller NAME` where callers have no tenant";
            return Err(Problem::invalid("owner", message));
        }
    };
    Ok(Principal {
        subject: subject.to_owned(),
        tenant,
        ..Principal::default()
    })
}

fn absent() -> Problem {
    let message = "there is no such collection, or no such file in it";
    Problem::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn cut() -> Problem {
    let message = "the document did not arrive whole, or no more of it came in time";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_the_account_of_its_caller() {
        for owner in [
            "tenant acme",
            "tenant a b",
            "caller anonymous",
            "caller tenant x",
        ] {
            let principal = principal_of(owner).expect("an owner");
            assert_eq!(&*account_of(&principal), owner);
        }
        for wrong in ["server", "", "tenant", "tenant ", "caller ", "Tenant a"] {
            let problem = principal_of(wrong).expect_err(wrong);
            assert_eq!(problem.param.as_deref(), Some("owner"));
        }
        let row = owned(json!({}), "caller ann");
        assert_eq!(
            row,
            json!({"owner": "caller ann", "tenant": null, "caller": "ann"})
        );
    }
}
