//! Beginning of a streamed answer of another server: what it refuses at once becomes a status, since nothing has been sent
//! to the caller yet.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use mortise_models::OutputStream;
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::answer::{Answer, StartedPart};
use crate::conversation_choice::failure;
use crate::error::ServiceError;
use crate::limits::MAX_BEGINNING;
use crate::source::ChoiceSource;

/// The answer of these parts. A streamed one is given when each server has begun to answer or has refused to, or after
/// [`MAX_BEGINNING`].
pub(crate) async fn answer_of(mut started: Vec<StartedPart>, streams: bool) -> Answer {
    let refused = match streams {
        true => timeout(MAX_BEGINNING, refusal(&mut started)).await,
        false => Ok(None),
    };
    if streams {
        // What follows the beginning is often there already: after one turn of whoever brings it, both leave together.
        yield_now().await;
    }
    let mut answer = Answer::new(started);
    if let Ok(Some(error)) = refused {
        answer.refuse(error);
    }
    answer
}

/// The first refusal, once all have begun or one has failed. All are waited for at once: a runtime may work only while
/// somebody waits.
async fn refusal(started: &mut [StartedPart]) -> Option<ServiceError> {
    let choices = started.iter_mut().flat_map(|part| &mut part.choices);
    let begun = choices
        .filter_map(ChoiceSource::elsewhere)
        .map(OutputStream::begun);
    let mut begun: FuturesUnordered<_> = begun.collect();
    while let Some(refused) = begun.next().await {
        if let Some(error) = refused {
            return Some(failure(error.clone()));
        }
    }
    None
}
