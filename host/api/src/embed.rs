//! Embeddings and scores, for handlers of all dialects: within time limits, and in the access record.

use http::request::Parts;
use mortise_http::{AnswerRecord, Context, Problem};
use mortise_service::{
    Admission, EmbeddingRequest, Embeddings, FinishReason, Outcome, ScoreRequest, Scores, Usage,
};

use crate::call::{call_of, record_admitted};
use crate::problem::problem_of;
use crate::receive::wait_limits;
use crate::state::ApiState;

/// Compute embeddings.
pub(crate) async fn embed(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    parts: &Parts,
    request: EmbeddingRequest,
) -> Result<Embeddings, Problem> {
    context.record.asked(&request.model, false);
    let call = call_of(context, route, "POST", &parts.headers);
    let limits = wait_limits(state, context, &parts.headers)?;
    let embedding = async {
        let made = state.service.embed(&call, request).await;
        made.map_err(problem_of)
    };
    let made = limits.bound(embedding).await?;
    note(context, &made.model, &made.admission, made.usage);
    Ok(made)
}

/// Score texts.
pub(crate) async fn score(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    parts: &Parts,
    request: ScoreRequest,
) -> Result<Scores, Problem> {
    context.record.asked(&request.model, false);
    let call = call_of(context, route, "POST", &parts.headers);
    let limits = wait_limits(state, context, &parts.headers)?;
    let scoring = async {
        let made = state.service.score(&call, request).await;
        made.map_err(problem_of)
    };
    let made = limits.bound(scoring).await?;
    note(context, &made.model, &made.admission, made.usage);
    Ok(made)
}

/// Note an answer in the access record.
fn note(context: &Context, model: &str, admission: &Admission, usage: Usage) {
    record_admitted(context, model, admission);
    let done = Outcome::Finished(FinishReason::Stop);
    context.record.answered(AnswerRecord {
        prompt_tokens: usage.prompt_tokens,
        finish: "stop",
        cost_micros: admission.cost_micros(usage, done),
        ..AnswerRecord::default()
    });
}
