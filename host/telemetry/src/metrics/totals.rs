//! Sums since the start of the server, for `GET /v1/metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use mortise_http::Access;
use serde_json::{Value, json};

/// Requests to one model, or to all, and their tokens.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Sums {
    fn add(&mut self, access: &Access<'_>) {
        self.requests += 1;
        if let Some(answer) = &access.answer {
            self.prompt_tokens += u64::from(answer.prompt_tokens);
            self.completion_tokens += u64::from(answer.completion_tokens);
        }
    }

    fn body(self) -> Value {
        json!({
            "total_requests": self.requests,
            "total_prompt_tokens": self.prompt_tokens,
            "total_completion_tokens": self.completion_tokens,
        })
    }
}

/// Sums by the public names of models, of which there are as many as the configuration has.
pub(super) struct Totals {
    began: Instant,
    sums: Mutex<BTreeMap<String, Sums>>,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            sums: Mutex::default(),
        }
    }

    /// Count a request, if it named a model that the server has.
    pub(super) fn count(&self, access: &Access<'_>) {
        let Some(model) = access.model.filter(|_| access.known_model) else {
            return;
        };
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        match sums.get_mut(model) {
            Some(sums) => sums.add(access),
            None => sums.entry(model.to_owned()).or_default().add(access),
        }
    }

    /// All sums as JSON.
    pub(super) fn body(&self) -> Value {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let all = sums.values().fold(Sums::default(), |all, one| Sums {
            requests: all.requests + one.requests,
            prompt_tokens: all.prompt_tokens + one.prompt_tokens,
            completion_tokens: all.completion_tokens + one.completion_tokens,
        });
        let mut body = all.body();
        body["uptime_seconds"] = json!(self.began.elapsed().as_secs());
        let models = sums.iter().map(|(name, sums)| (name.clone(), sums.body()));
        body["models"] = Value::Object(models.collect());
        body
    }
}
