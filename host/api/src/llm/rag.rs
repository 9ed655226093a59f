//! `POST /api/v1/llm/rag`: an answer from the documents of a collection.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::{Context, Problem, append_headers, json_response};
use mortise_retrieval::Weights;
use mortise_retrieval::limits::MAX_RESULTS;
use mortise_service::{Capability, Joint, RequestFields};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Spoken, milliseconds, whole};
use super::inference::{DEFAULT_MAX_TOKENS, chat, renamed, sole};
use super::sources::{messages, sources};
use super::{Llm, RAG};
use crate::collections::{
    ChunkSearch, Collection, DocumentBudget, FoundChunk, Retrieval, RetrieverCaller, add_distinct,
    candidates, find, named,
};
use crate::fields::{FieldPath, FieldReader, RouteFields, missing};
use crate::receive::{ReceivedRequest, receive};
use crate::start::start;
use crate::state::ApiState;
use crate::stored::caller;
use crate::stream::stream_response;
use crate::unsupported::Unsupported;

/// Chunks that are retrieved where the caller does not say.
const USUAL_CHUNKS: u32 = 5;

/// Least similarity of a chunk where the caller does not say.
const USUAL_SIMILARITY: f64 = 0.8;

/// Text of the answer where no chunk is similar enough.
const NOTHING: &str = "not in the documents";

/// The server's own way to put chunks together.
const CONCAT: &str = "concat";

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct RagFields {
    query: String,
    collection: String,
    top_k: Option<u32>,
    similarity_threshold: Option<f64>,
    model: Option<String>,
    lora_adapter: Option<String>,
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    /// `concat`, or the name of a retriever.
    context_assembly: Option<String>,
    /// An extension.
    stream: Option<bool>,
    /// Model that scores what was found; an extension.
    rerank: Option<String>,
    /// Consent to send the documents and the question to another server; an extension.
    allow_remote: Option<bool>,
}

/// The fields of a body, for the contract.
pub(super) fn fields() -> RouteFields {
    RouteFields::new(Unsupported::Refuse).with::<RagFields>()
}

/// `POST /api/v1/llm/rag`
pub(super) async fn rag(
    State(llm): State<Arc<Llm>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let began = Instant::now();
    let state = &llm.api;
    let ReceivedRequest {
        parts,
        object,
        reserved,
        ..
    } = receive(state, &context, RAG, request).await?;
    let mut reader = FieldReader::new(object, Unsupported::Refuse);
    let fields: RagFields = reader.read()?;
    reader.finish(|_| false)?;
    let (most, least) = bounds(&fields)?;
    let model = fields.model.or_else(|| sole(state, Capability::Generate));
    let model = model.ok_or_else(|| missing(&FieldPath::from("model")))?;
    let caller = caller(state, &context, RAG, "POST", &parts).await?;
    let of = named(state, &caller.owner, &fields.collection).await?;
    let asker = RetrieverCaller::of(&context.id, caller.principal());
    let ways = Ways::of(state, &of, asker, fields.context_assembly.as_deref())?;
    let search = ways.search(&fields.query, most, fields.rerank).await?;
    let found = find(state, (&context, RAG, &parts), &of, search, "query").await?;
    let (retrieved, time) = (found.len(), milliseconds(began));
    let similar = found
        .into_iter()
        .filter(|hit| f64::from(hit.similarity) >= least);
    let budget = DocumentBudget::of(state, &model, fields.max_tokens, &fields.query);
    let similar = similar.collect();
    let (used, joint) = ways.context(&fields.query, similar, most, budget).await?;
    let figures = vec![
        ("documents_retrieved", json!(retrieved)),
        ("documents_used", json!(used.len())),
        ("retrieval_time_ms", json!(time)),
        ("sources", sources(&used)),
    ];
    let stream = fields.stream.unwrap_or(false);
    if used.is_empty() && !stream {
        let spoken = Spoken::new(&model, None, began).with(figures);
        return Ok(json_response(StatusCode::OK, &spoken.said(NOTHING)));
    }
    let asked = RequestFields {
        model,
        lora_adapter: fields.lora_adapter.clone(),
        allow_remote: fields.allow_remote.unwrap_or(false),
        prompt: chat(messages(&fields.query, &used, joint))?,
        max_tokens: Some(fields.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
        max_tokens_fit: fields.max_tokens.is_none(),
        temperature: fields.temperature,
        stream,
        ..RequestFields::default()
    };
    let started = start(state, &context, RAG, &parts, reserved, vec![asked]).await;
    let started = started.map_err(renamed)?;
    let spoken = Spoken::new(&started.model, fields.lora_adapter, began)
        .cached(started.cache_hit)
        .with(figures);
    let mut response = match stream {
        true => stream_response(started.answering, spoken, state.http.heartbeat),
        false => {
            let object = whole(started.answering, spoken).await?;
            json_response(StatusCode::OK, &object)
        }
    };
    append_headers(response.headers_mut(), &started.headers);
    Ok(response)
}

/// Retrievers of a request: that of the collection, which rewrites, and that which puts the context together.
struct Ways {
    rewrites: Option<Retrieval>,
    assembles: Option<Retrieval>,
}

impl Ways {
    /// The retrievers of a collection, or those that a request names.
    fn of(
        state: &ApiState,
        of: &Collection,
        asker: RetrieverCaller<'_>,
        wanted: Option<&str>,
    ) -> Result<Self, Problem> {
        let assembles = match wanted {
            Some(CONCAT) => None,
            Some(name) => {
                let param = "context_assembly";
                let named = Retrieval::named(state, name, of.id(), asker, param)?;
                if !named.assembles() {
                    let message = format!("`{param}`: the retriever `{name}` chooses no passages");
                    return Err(Problem::invalid(param, message));
                }
                Some(named)
            }
            None => Retrieval::of(state, of, asker)?.filter(Retrieval::assembles),
        };
        Ok(Self {
            rewrites: Retrieval::of(state, of, asker)?,
            assembles,
        })
    }

    /// The search for a question. Where some of what it finds are chosen, it finds more of them.
    async fn search(
        &self,
        query: &str,
        most: usize,
        rerank: Option<String>,
    ) -> Result<ChunkSearch, Problem> {
        let queries = match &self.rewrites {
            Some(retrieval) => retrieval.queries(query).await?,
            None => vec![query.to_owned()],
        };
        Ok(ChunkSearch {
            text: query.to_owned(),
            queries,
            weights: Weights::default(),
            most: match self.assembles {
                Some(_) => candidates(most),
                None => most,
            },
            filter: None,
            least_similarity: None,
            diversity: None,
            rerank,
        })
    }

    /// The passages of the context, and what stands between them.
    async fn context(
        &self,
        query: &str,
        mut found: Vec<FoundChunk>,
        most: usize,
        mut budget: DocumentBudget,
    ) -> Result<(Vec<FoundChunk>, Joint), Problem> {
        if let Some(retrieval) = &self.assembles {
            let made = retrieval.assemble(query, &found, most, &budget).await?;
            if let Some(made) = made {
                return Ok(made);
            }
            found.truncate(most);
        }
        let mut used = Vec::new();
        add_distinct(&mut used, found, &mut budget);
        Ok((used, Joint::default()))
    }
}

/// Chunks to retrieve, and the least similarity of one that is used.
fn bounds(fields: &RagFields) -> Result<(usize, f64), Problem> {
    let most = usize::try_from(fields.top_k.unwrap_or(USUAL_CHUNKS)).ok();
    let most = most
        .filter(|most| (1..=MAX_RESULTS).contains(most))
        .ok_or_else(|| {
            Problem::invalid("top_k", format!("`top_k` must be from 1 to {MAX_RESULTS}"))
        })?;
    let least = fields.similarity_threshold.unwrap_or(USUAL_SIMILARITY);
    match (-1.0..=1.0).contains(&least) {
        true => Ok((most, least)),
        false => {
            let message = "`similarity_threshold` must be from -1 to 1";
            Err(Problem::invalid("similarity_threshold", message))
        }
    }
}

impl Spoken {
    /// The whole answer, of a text that nobody had to generate.
    fn said(&self, text: &str) -> Value {
        self.object(text, Default::default())
    }
}
