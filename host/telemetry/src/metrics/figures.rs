//! Figures of requests to models for `GET /api/v1/llm/stats`: sums since the start, and what is of late.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mortise_http::{EndedRequest, RequestFigures, RequestLatency};

/// Requests whose times are kept for the quantiles.
const KEPT: usize = 1024;

/// Seconds over which rates are averaged.
const WINDOW: u64 = 60;

/// Requests and tokens of one second since the start.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    at: u64,
    requests: u64,
    tokens: u64,
}

#[derive(Debug, Default)]
struct State {
    sums: RequestFigures,
    times: VecDeque<Duration>,
    seconds: VecDeque<Second>,
}

/// Figures of all requests that named a model.
pub(super) struct ModelFigures {
    began: Instant,
    state: Mutex<State>,
}

impl ModelFigures {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Count a request, if it named a model.
    pub(super) fn count(&self, access: &EndedRequest<'_>) {
        if access.model.is_none() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count(access, self.began.elapsed().as_secs());
    }

    pub(super) fn now(&self) -> RequestFigures {
        let uptime = self.began.elapsed();
        let mut times: Vec<Duration>;
        let figures = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            times = state.times.iter().copied().collect();
            state.figures(uptime)
        };
        times.sort_unstable();
        RequestFigures {
            latency: latency(&times),
            ..figures
        }
    }
}

impl State {
    fn count(&mut self, access: &EndedRequest<'_>, second: u64) {
        let failed = access.status >= 400 || access.finish == Some("error");
        let sums = &mut self.sums;
        sums.requests += 1;
        sums.failed += u64::from(failed);
        sums.known += u64::from(access.known_model);
        let mut tokens = 0;
        if let Some(answer) = &access.answer {
            tokens = u64::from(answer.completion_tokens);
            match answer.cached_tokens {
                // No prefix was looked up.
                _ if answer.replayed => {}
                0 => sums.prefix_misses += 1,
                cached => {
                    sums.prefix_hits += 1;
                    sums.prefix_tokens += u64::from(cached);
                }
            }
        }
        if !failed {
            self.times.push_back(access.elapsed);
            if self.times.len() > KEPT {
                self.times.pop_front();
            }
        }
        self.forget(second);
        match self.seconds.back_mut() {
            Some(last) if last.at == second => {
                last.requests += 1;
                last.tokens += tokens;
            }
            _ => self.seconds.push_back(Second {
                at: second,
                requests: 1,
                tokens,
            }),
        }
    }

    /// Seconds that lie before the window are of no more use.
    fn forget(&mut self, now: u64) {
        while self
            .seconds
            .front()
            .is_some_and(|second| second.at + WINDOW <= now)
        {
            self.seconds.pop_front();
        }
    }

    fn figures(&mut self, uptime: Duration) -> RequestFigures {
        self.forget(uptime.as_secs());
        let (requests, tokens) = self.seconds.iter().fold((0, 0), |(requests, tokens), one| {
            (requests + one.requests, tokens + one.tokens)
        });
        let span = uptime.as_secs_f64().clamp(1.0, WINDOW as f64);
        RequestFigures {
            uptime,
            requests_per_second: requests as f64 / span,
            tokens_per_second: tokens as f64 / span,
            ..self.sums
        }
    }
}

/// Quantiles of times in order: the least time that so many in a hundred do not exceed.
fn latency(times: &[Duration]) -> Option<RequestLatency> {
    let quantile = |percent: usize| {
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).copied()
    };
    let count = u32::try_from(times.len()).ok().filter(|count| *count > 0)?;
    Some(RequestLatency {
        p50: quantile(50)?,
        p95: quantile(95)?,
        p99: quantile(99)?,
        mean: times.iter().sum::<Duration>() / count,
    })
}

#[cfg(test)]
mod tests {
    use mortise_http::AnswerRecord;

    use super::*;

    fn access(status: u16, cached: u32, milliseconds: u64) -> EndedRequest<'static> {
        EndedRequest {
            id: "r",
            method: "POST",
            route: "/v1/chat/completions",
            status,
            peer: "127.0.0.1",
            model: Some("m"),
            known_model: status != 404,
            stream: false,
            max_tokens: None,
            principal: None,
            tenant: None,
            account: None,
            labels: None,
            user: None,
            answer: (status == 200).then(|| AnswerRecord {
                cached_tokens: cached,
                completion_tokens: 30,
                ..AnswerRecord::default()
            }),
            elapsed: Duration::from_millis(milliseconds),
            finish: None,
            error: None,
            trace_id: None,
            sampled: false,
        }
    }

    #[test]
    fn feature_o2_sums_rates_and_quantiles_are_those_of_the_requests() {
        let mut state = State::default();
        for time in 1..=100 {
            state.count(&access(200, time % 2 * 16, u64::from(time)), 5);
        }
        state.count(&access(404, 0, 9000), 6);
        state.count(&access(429, 0, 9000), 6);
        let figures = state.figures(Duration::from_secs(30));
        assert_eq!(
            (figures.requests, figures.failed, figures.known),
            (102, 2, 101)
        );
        assert_eq!((figures.prefix_hits, figures.prefix_misses), (50, 50));
        assert_eq!(figures.prefix_tokens, 50 * 16);
        assert!((figures.requests_per_second - 102.0 / 30.0).abs() < 1e-9);
        assert!((figures.tokens_per_second - 100.0).abs() < 1e-9);
        let times: Vec<Duration> = state.times.iter().copied().collect();
        let found = latency(&times).expect("times");
        let of = |time: Duration| time.as_micros();
        let found = [found.p50, found.p95, found.p99, found.mean].map(of);
        assert_eq!(found, [50_000, 95_000, 99_000, 50_500]);
        // What is older than the window counts for the sums only.
        let figures = state.figures(Duration::from_secs(66));
        assert_eq!((figures.requests, figures.requests_per_second), (102, 0.0));
        assert_eq!(latency(&[]), None);
        for time in 0..2 * KEPT as u64 {
            state.count(&access(200, 0, time), 70 + time);
        }
        assert_eq!(state.times.len(), KEPT);
        assert!(state.seconds.len() <= WINDOW as usize);
    }
}
