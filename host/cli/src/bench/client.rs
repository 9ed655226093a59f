//! A server under load: chat requests over HTTP, as clients send them.

use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use ureq::Agent;

use super::report::{BenchReport, Row};
use crate::cli::BenchArgs;
use crate::progress::Progress;
use mortise_config::variable_of;

/// Words of a prompt, of about one token each.
const WORDS: [&str; 12] = [
    "the", "plugin", "reads", "a", "small", "model", "and", "its", "answer", "is", "in", "time",
];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that says nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Measure the server at `url` with each of the wanted numbers of clients.
pub(super) fn measure(url: &str, args: &BenchArgs) -> anyhow::Result<BenchReport> {
    let name = args.api_key_env.as_deref();
    let key = name
        .map(|name| variable_of("--api-key-env", name))
        .transpose()?;
    let address = url.trim_end_matches('/').trim_end_matches("/v1");
    let target = Target {
        url: format!("{address}/v1/chat/completions"),
        model: args.served_model.clone(),
        key,
        prompt: args.prompt,
        generate: args.generate,
        salt: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_millis() % 1_000_000),
        agent: Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(SILENCE_MAX))
            .timeout_per_read(Some(SILENCE_MAX))
            .max_idle_connections_per_host(4096)
            .build()
            .new_agent(),
    };
    // A wrong address or key should not be measured a hundred times.
    target.ask(0).context("the first request failed")?;
    let shown = Progress::steps(args.repeat * args.streams.iter().sum::<usize>());
    let (mut rows, mut asked) = (Vec::new(), 1);
    for &clients in &args.streams {
        let requests = args.repeat * clients;
        shown.begin(&format!("{clients} clients"));
        rows.push(load(&target, clients, asked..asked + requests, &shown)?);
        asked += requests;
    }
    Ok(BenchReport {
        about: vec![
            ("url", json!(target.url)),
            ("model", json!(target.model)),
            (
                "requests",
                json!(format!("{} for each client", args.repeat)),
            ),
        ],
        rows,
    })
}

struct Target {
    url: String,
    model: String,
    key: Option<String>,
    prompt: usize,
    generate: usize,
    salt: u128,
    agent: Agent,
}

/// Latencies of one answer, in seconds.
struct Answer {
    first: f64,
    gaps: Vec<f64>,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Closed-loop clients: each sends its next request when it has its answer.
fn load(
    target: &Target,
    clients: usize,
    numbers: Range<usize>,
    shown: &Progress,
) -> anyhow::Result<Row> {
    let next = AtomicUsize::new(numbers.start);
    let requests = numbers.len();
    let begun = Instant::now();
    let results: Vec<Vec<anyhow::Result<Answer>>> = thread::scope(|scope| {
        let client = || {
            let mut own = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return own;
                }
                own.push(target.ask(number));
                shown.advance();
            }
        };
        let running: Vec<_> = (0..clients).map(|_| scope.spawn(client)).collect();
        running
            .into_iter()
            .filter_map(|client| client.join().ok())
            .collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let (mut firsts, mut gaps) = (Vec::new(), Vec::new());
    let (mut failed, mut reason, mut sent, mut received) = (0, None, 0, 0);
    for result in results.into_iter().flatten() {
        match result {
            Ok(answer) => {
                firsts.push(answer.first);
                gaps.extend(answer.gaps);
                sent += answer.prompt_tokens;
                received += answer.completion_tokens;
            }
            Err(error) => {
                failed += 1;
                reason.get_or_insert(error);
            }
        }
    }
    if firsts.is_empty() {
        return Err(reason.unwrap_or_else(|| anyhow::anyhow!("no request was answered")));
    }
    if let Some(reason) = reason {
        eprintln!("mortise: {failed} of {requests} requests failed; the first: {reason:#}");
    }
    let answered = firsts.len() as f64;
    Ok(Row::new(format!("{clients} clients"))
        .with("requests_per_second", answered / seconds, "req/s")
        .with("tokens_per_second", received as f64 / seconds, "t/s")
        .with("prompt_tokens", sent as f64 / answered, "")
        .with("completion_tokens", received as f64 / answered, "")
        .with_latency(["first_token_p50", "p95", "p99"], &firsts)
        .with_latency(["between_tokens_p50", "between_p95", "between_p99"], &gaps)
        .with("failed", f64::from(failed), ""))
}

impl Target {
    /// Request a streamed chat answer. `number` and the salt of the run make every prompt a new one, so that the
    /// server's prefix cache has none of it.
    fn ask(&self, number: usize) -> anyhow::Result<Answer> {
        let mut text = format!("{}-{number}:", self.salt);
        for index in 0..self.prompt {
            text.push(' ');
            text.push_str(WORDS[(index * 7 + number) % WORDS.len()]);
        }
        let body = json!({
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": self.generate,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let begun = Instant::now();
        let mut response = request.send(body.to_string())?;
        if !response.status().is_success() {
            let status = response.status();
            let text = response.body_mut().read_to_string().unwrap_or_default();
            bail!("{status}: {}", text.trim());
        }
        read(begun, BufReader::new(response.into_body().into_reader()))
    }
}

/// Read server-sent events to the last.
fn read(begun: Instant, lines: impl BufRead) -> anyhow::Result<Answer> {
    let (mut times, mut usage): (Vec<Instant>, Option<Value>) = (Vec::new(), None);
    for line in lines.lines() {
        let line = line.context("the answer broke off")?;
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        if data == "[DONE]" {
            break;
        }
        let event: Value = serde_json::from_str(data).context("an event is not JSON")?;
        if let Some(error) = event.get("error") {
            bail!("{error}");
        }
        let delta = &event["choices"][0]["delta"];
        let says = |field: &str| delta[field].as_str().is_some_and(|text| !text.is_empty());
        if says("content") || says("reasoning_content") || delta["tool_calls"].is_array() {
            times.push(Instant::now());
        }
        if event["usage"].is_object() {
            usage = Some(event["usage"].clone());
        }
    }
    let usage = usage.context("the answer has no usage")?;
    let first = times.first().context("the answer has no text")?;
    Ok(Answer {
        first: (*first - begun).as_secs_f64(),
        gaps: times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_secs_f64())
            .collect(),
        prompt_tokens: usage["prompt_tokens"].as_u64().unwrap_or(0),
        completion_tokens: usage["completion_tokens"].as_u64().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_and_failures_told() {
        let text = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: keep-alive\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        let answer = read(Instant::now(), text.as_bytes()).expect("an answer");
        assert_eq!(
            (
                answer.gaps.len(),
                answer.prompt_tokens,
                answer.completion_tokens
            ),
            (1, 5, 2)
        );
        let text = "data: {\"error\":{\"message\":\"no\"}}\n\n";
        assert!(read(Instant::now(), text.as_bytes()).is_err());
        assert!(read(Instant::now(), "data: [DONE]\n\n".as_bytes()).is_err());
    }
}
