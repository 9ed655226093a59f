//! Embeddings, for handlers of all dialects: within time limits, and in the access record.

use http::request::Parts;
use mortise_http::{AnswerRecord, Context, Problem};
use mortise_service::{EmbeddingRequest, Embeddings, FinishReason, Outcome};

use crate::call::{call_of, record_principal};
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
    let record = &context.record;
    record.answers(&made.model);
    record_principal(context, &made.admission.allowance().principal);
    let done = Outcome::Finished(FinishReason::Stop);
    record.answered(AnswerRecord {
        prompt_tokens: made.usage.prompt_tokens,
        finish: "stop",
        cost_micros: made.admission.cost_micros(made.usage, done),
        ..AnswerRecord::default()
    });
    Ok(made)
}
