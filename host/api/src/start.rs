//! The start of an answer, for handlers of all dialects.

use std::sync::Arc;

use http::request::Parts;
use mortise_http::{Context, Problem, Reservation};
use mortise_service::{CacheUse, Request, RequestFields, Service, ServiceError, sampling_advice};
use tokio::sync::watch;

use crate::answering::Answering;
use crate::call::{call_of, record_principal};
use crate::problem::problem_of;
use crate::receive::wait_limits;
use crate::state::ApiState;
use crate::sunset;

/// An answer that has begun.
pub(crate) struct Started {
    pub(crate) answering: Answering,
    /// Public name of the model.
    pub(crate) model: String,
    /// Headers of the policies, that of the cache of answers, that of a model that is to be removed, and the place in
    /// its queue.
    pub(crate) headers: Vec<(String, String)>,
    /// The answer was made before.
    pub(crate) cache_hit: bool,
}

/// Header that tells whether an answer was made before, where the cache of answers was asked.
const CACHE_HEADER: &str = "x-mortise-cache";

/// Header that tells of sampling parameters that do not go together.
const ADVICE_HEADER: &str = "x-mortise-advice";

/// Header with the place of a request in the queue of its model, 1 for the next that is taken.
const QUEUE_HEADER: &str = "x-queue-position";

/// Start to answer a request of one or more prompts, within its time limits. `reserved`, the memory of its body,
/// is given back when the answer has begun.
pub(crate) async fn start(
    state: &ApiState,
    context: &Context,
    route: &'static str,
    parts: &Parts,
    reserved: Reservation,
    prompts: Vec<RequestFields>,
) -> Result<Started, Problem> {
    let limits = wait_limits(state, context, &parts.headers)?;
    let advice = prompts.iter().find_map(sampling_advice);
    let starting = async {
        let mut requests = Vec::with_capacity(prompts.len());
        for fields in prompts {
            context.record.asked(&fields.model, fields.stream);
            context.record.limited(fields.max_tokens);
            requests.push(Request::check(fields).map_err(problem_of)?);
        }
        let (peer, begun) = (context.peer.ip(), context.record.begun());
        let observer = &state.http.observer;
        observer.request_taken_up(&context.id, context.route, peer, &begun);
        let call = call_of(context, route, "POST", &parts.headers);
        let answer = state.service.start_all(call, requests).await;
        answer.map_err(problem_of)
    };
    let mut answer = tokio::select! {
        answer = limits.bound(starting) => answer?,
        () = cut_off(state.http.cut.clone()) => return Err(problem_of(ServiceError::Stopping)),
    };
    drop(reserved);
    context.record.answers(answer.model());
    if let Some(principal) = answer.principal() {
        record_principal(context, principal);
    }
    let refused = answer.refusal();
    let active = state.active.enter(answer.model(), &context.id);
    let came = answer.cache();
    let mut headers = answer.headers().to_vec();
    headers.extend(came.map(|came| (CACHE_HEADER.to_owned(), came.name().to_owned())));
    headers.extend(advice.map(|advice| (ADVICE_HEADER.to_owned(), advice.to_owned())));
    headers.extend(sunset::header_of(&state.service, answer.model()));
    headers.extend(place_in_queue(&state.service, answer.model()));
    let (record, cut) = (Arc::clone(&context.record), state.http.cut.clone());
    let model = answer.model().to_owned();
    let answering = Answering::new(answer, record, cut, limits, active);
    match refused {
        Some(error) => Err(answering.failed(error)),
        None => Ok(Started {
            model,
            headers,
            cache_hit: came == Some(CacheUse::Hit),
            answering,
        }),
    }
}

/// The end of the time to drain, for requests that still wait: for a model that is being loaded, say.
async fn cut_off(mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|over| *over).await.is_err() {
        // Nobody can cut any more.
        std::future::pending::<()>().await;
    }
}

/// The place in a model's queue at which a request has just come, if the model's batch is full.
fn place_in_queue(service: &Service, model: &str) -> Option<(String, String)> {
    let served = service.model(model).ok()?;
    let load = served.loaded.as_ref()?.model.load();
    let full = load.max_running > 0 && load.running >= load.max_running;
    let waits = full && load.waiting > 0;
    waits.then(|| (QUEUE_HEADER.to_owned(), load.waiting.to_string()))
}
