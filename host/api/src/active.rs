//! Requests whose answers are being made, so that operators can be told which one a model is at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

type All = Arc<Mutex<(u64, BTreeMap<u64, Request>)>>;

/// A request in progress: the model's name, and the request's id.
#[derive(Debug)]
struct Request {
    model: String,
    id: Arc<str>,
}

/// Requests in progress, in the order in which they began.
#[derive(Debug, Default)]
pub(crate) struct ActiveRequests(All);

/// Entry of a request in [`ActiveRequests`], removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Active {
    all: All,
    number: u64,
}

impl ActiveRequests {
    /// Add a request.
    pub(crate) fn enter(&self, model: &str, id: &Arc<str>) -> Active {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.0;
        all.0 += 1;
        let request = Request {
            model: model.to_owned(),
            id: Arc::clone(id),
        };
        all.1.insert(number, request);
        Active {
            all: Arc::clone(&self.0),
            number,
        }
    }

    /// Id of the oldest request in progress for a model.
    pub(crate) fn oldest(&self, model: &str) -> Option<Arc<str>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_model = all.1.values().filter(|request| request.model == model);
        of_model.next().map(|request| Arc::clone(&request.id))
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_of_a_model_is_known_until_it_ends() {
        let active = ActiveRequests::default();
        let enter = |model, id: &str| active.enter(model, &Arc::from(id));
        let (first, _second, _other) = (enter("m", "a"), enter("m", "b"), enter("n", "c"));
        assert_eq!(active.oldest("m").as_deref(), Some("a"));
        drop(first);
        assert_eq!(active.oldest("m").as_deref(), Some("b"));
        assert_eq!(active.oldest("none"), None);
    }
}
