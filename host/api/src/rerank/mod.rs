//! Rerank and score, by models that score pairs or from the cosines of embeddings: the shapes of Cohere and Jina, vLLM's
//! `/score`, and `/embed` and `/rerank` of text-embeddings-inference.

mod cohere;
mod contract;
mod pairs;
mod ranked;
mod tei;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{Request as HttpRequest, StatusCode};
use mortise_http::contract::Routes;
use mortise_http::{Api, Context, Conventions, Dialect, Problem, ProblemShape, json_response};
use mortise_service::{EmbeddingRequest, Embeddings, ScoreRequest, Scores};
use serde_json::{Map, Value};

use self::ranked::{Ranked, ranked};
use crate::embed::{embed, score};
use crate::ignored::add_headers;
use crate::receive::{ReceivedRequest, default_model, receive};
use crate::state::ApiState;

const RERANK: &str = "/rerank";
const RERANK_V1: &str = "/v1/rerank";
const RERANK_V2: &str = "/v2/rerank";
const SCORE: &str = "/score";
const SCORE_V1: &str = "/v1/score";
const EMBED: &str = "/embed";

/// The dialect's routes. Their problems are written as `shape` has them.
pub fn api(state: Arc<ApiState>, shape: ProblemShape) -> Api {
    let mode = state.unsupported;
    let routes = Routes::default()
        .on(contract::unversioned_rerank(mode), unversioned_rerank)
        .on(contract::rerank_v1(mode), rerank_v1)
        .on(contract::rerank_v2(mode), rerank_v2)
        .on(contract::unversioned_score(mode), unversioned_score)
        .on(contract::score_v1(mode), score_v1)
        .on(contract::embed(mode), tei_embed);
    let (router, operations) = routes.into_parts();
    Api {
        router: router.with_state(state),
        dialect: Dialect {
            prefix: RERANK,
            shape,
            conventions: Conventions::NONE,
        },
        routes: &[RERANK, RERANK_V1, RERANK_V2, SCORE, SCORE_V1, EMBED],
        contract: contract::contract(operations),
    }
}

/// A request while it is answered.
struct Call<'a> {
    state: &'a ApiState,
    context: &'a Context,
    route: &'static str,
    received: ReceivedRequest,
}

impl Call<'_> {
    /// Take the fields of the body.
    fn object(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.received.object)
    }

    async fn score(&self, request: ScoreRequest) -> Result<Scores, Problem> {
        let (parts, route) = (&self.received.parts, self.route);
        score(self.state, self.context, route, parts, request).await
    }

    async fn embed(&self, request: EmbeddingRequest) -> Result<Embeddings, Problem> {
        let (parts, route) = (&self.received.parts, self.route);
        embed(self.state, self.context, route, parts, request).await
    }
}

/// A body to send, with headers and the names of fields that were left out of account.
struct Answer {
    body: Value,
    headers: Vec<(String, String)>,
    ignored: Vec<String>,
}

impl Answer {
    fn into_response(self) -> Response {
        let mut response = json_response(StatusCode::OK, &self.body);
        add_headers(&mut response, &self.headers, &self.ignored);
        response
    }
}

async fn call<'a>(
    state: &'a ApiState,
    context: &'a Context,
    route: &'static str,
    request: HttpRequest<Body>,
) -> Result<Call<'a>, Problem> {
    let mut received = receive(state, context, route, request).await?;
    default_model(state, &mut received.object);
    Ok(Call {
        state,
        context,
        route,
        received,
    })
}

/// `POST /rerank`: in text-embeddings-inference's shape where there are `texts`, else in Jina's.
async fn unversioned_rerank(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, RERANK, request).await?;
    let answer = match call.received.object.contains_key("texts") {
        true => tei::rerank(call).await?,
        false => cohere::rerank(call).await?,
    };
    Ok(answer.into_response())
}

/// `POST /v1/rerank`
async fn rerank_v1(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, RERANK_V1, request).await?;
    Ok(cohere::rerank(call).await?.into_response())
}

/// `POST /v2/rerank`
async fn rerank_v2(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, RERANK_V2, request).await?;
    Ok(cohere::rerank(call).await?.into_response())
}

/// `POST /score`
async fn unversioned_score(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, SCORE, request).await?;
    Ok(pairs::score(call).await?.into_response())
}

/// `POST /v1/score`
async fn score_v1(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, SCORE_V1, request).await?;
    Ok(pairs::score(call).await?.into_response())
}

/// `POST /embed`
async fn tei_embed(
    State(state): State<Arc<ApiState>>,
    Extension(context): Extension<Context>,
    request: HttpRequest<Body>,
) -> Result<Response, Problem> {
    let call = call(&state, &context, EMBED, request).await?;
    Ok(tei::embed(call).await?.into_response())
}
