//! Judges an attack by what happens to everybody else. While an attack runs, a *bystander* keeps
//! sending well-behaved requests; afterwards the invariants of the project's threat list are checked:
//!
//! | | |
//! |-|-|
//! | V1 | the server is the same process as before, and nothing in its log panicked |
//! | V2 | the attacker got the answer that the case names, errors in OpenAI's shape |
//! | V3 | the bystander's answers are those of a quiet run, log-probabilities included |
//! | V4 | none of the bystander's short completions took longer than [`SLOWEST`] |
//! | V5 | the resident memory came back to within [`MEMORY_LEFT`] and stayed below the case's peak |
//! | V6 | `/health` answered: half of the probes within [`HEALTHY`], all within [`SLOWEST`] |
//! | V7 | nothing of the attack shows in the log, in the metrics or in the bystander's answers |
//!
//! ```ignore
//! let mut server = Server::configured("…");
//! let mut bystander = Bystander::new(&mut server, Caller { model: "mortise-demo", key: None });
//! let case = Case { id: "F4", what: "a negative seed of 2^64", ..Case::refused(400, "invalid_value") };
//! bystander.endures(&case, |server| vec![server.post("/v1/completions", &request)]);
//! ```
//!
//! The bounds of V4 and V6 are far above what a quiet machine shows, since tests run on busy ones;
//! the figures themselves are printed and returned, for those who measure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;
use super::client::{Request, Response, events};

/// Bound of V4 and of the slowest probe of V6.
pub const SLOWEST: Duration = Duration::from_secs(10);
/// Bound of the median probe of V6.
pub const HEALTHY: Duration = Duration::from_secs(1);
/// Memory that may be left behind by an attack, in MiB.
pub const MEMORY_LEFT: u64 = 64;
/// Time after an attack within which the memory must have come back.
const MEMORY_PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two short completions, and between two probes.
const PAUSE: Duration = Duration::from_millis(20);
/// Short completions of a quiet run.
const QUIET_ROUNDS: usize = 20;

/// Caller of well-behaved requests: the model that is asked, and the caller's key.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    pub model: &'a str,
    pub key: Option<&'a str>,
}

impl Caller<'_> {
    fn request(&self, prompt: &str, max_tokens: u32, stream: bool) -> Request {
        let body = json!({
            "model": self.model, "prompt": prompt, "max_tokens": max_tokens, "stream": stream,
            "temperature": 0, "seed": 7, "logprobs": 2,
        });
        let request = Request::post("/v1/completions", &body);
        match self.key {
            Some(key) => request.header("authorization", &format!("Bearer {key}")),
            None => request,
        }
    }

    fn long(&self) -> Request {
        self.request("Once upon a time there was", 96, true)
    }

    fn short(&self) -> Request {
        self.request("One, two, three,", 4, false)
    }
}

/// An attack, and what is expected of it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// Id of the attack in the threat list.
    pub id: &'a str,
    pub what: &'a str,
    pub expected: Expected<'a>,
    /// Text of the attack that nobody else may see.
    pub canary: Option<&'a str>,
    /// Memory that the attack may take for a while, in MiB.
    pub peak_mib: u64,
}

/// Expected outcome of each request of the attacker.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// Status 200.
    Answer,
    /// An error with this status and code.
    Refusal(u16, &'a str),
    /// Status 200, or one of these errors.
    Either(&'a [(u16, &'a str)]),
    /// The attack says itself what it expects.
    Anything,
}

impl<'a> Case<'a> {
    /// A case whose every request is refused.
    pub fn refused(status: u16, code: &'a str) -> Self {
        Self::with(Expected::Refusal(status, code))
    }

    pub fn with(expected: Expected<'a>) -> Self {
        Self {
            id: "",
            what: "",
            expected,
            canary: None,
            peak_mib: 256,
        }
    }
}

/// Measurements of the bystander during an attack, or in a quiet run.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Latency of each short completion.
    pub short: Vec<Duration>,
    /// Latency of each probe of `/health`.
    pub health: Vec<Duration>,
    /// Resident memory before and after, in MiB.
    pub memory: (u64, u64),
    /// Peak of the resident memory in between, where the system tells.
    pub peak: Option<u64>,
}

impl Figures {
    /// The 99th percentile of the short completions.
    pub fn p99(&self) -> Duration {
        percentile(&self.short, 99)
    }
}

fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// The text and the log-probabilities of an answer: what is the same every time.
fn essence(response: &Response) -> Result<String, String> {
    if response.status() != 200 {
        return Err(format!("{}: {}", response.status(), response.text()));
    }
    let text = response.text();
    let events = if text.starts_with("data: ") {
        events(&text)
    } else {
        vec![response.json()]
    };
    let choices: Vec<&Value> = events
        .iter()
        .filter_map(|event| event.get("choices"))
        .flat_map(|choices| choices.as_array().into_iter().flatten())
        .collect();
    let of = |name: &str| -> Vec<&Value> {
        choices
            .iter()
            .filter_map(|choice| choice.get(name))
            .collect()
    };
    let text: String = of("text").into_iter().filter_map(Value::as_str).collect();
    // Chunks may be cut differently; what is in them may not differ.
    let logprobs: Vec<&Value> = of("logprobs")
        .into_iter()
        .filter_map(|columns| columns.get("token_logprobs")?.as_array())
        .flatten()
        .collect();
    let finish: Vec<&Value> = of("finish_reason")
        .into_iter()
        .filter(|f| !f.is_null())
        .collect();
    match (
        finish.is_empty(),
        events.iter().find(|event| event.get("error").is_some()),
    ) {
        (false, None) => Ok(format!("{text:?} {finish:?} {logprobs:?}")),
        (_, error) => Err(format!("the answer broke off after {text:?}: {error:?}")),
    }
}

/// A server under attack, and what its well-behaved callers get when there is none.
pub struct Bystander<'a> {
    server: &'a mut Server,
    caller: Caller<'a>,
    long: String,
    short: String,
    /// Figures of the quiet run.
    pub quiet: Figures,
}

/// Says that the attack is over when it is dropped, so that one that panics ends too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Times, answers and faults that one thread of the bystander saw.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    answers: Vec<String>,
    wrong: Vec<String>,
}

impl<'a> Bystander<'a> {
    /// Learn what the caller gets while nothing else happens.
    pub fn new(server: &'a mut Server, caller: Caller<'a>) -> Self {
        let once = |request: Request| {
            essence(&server.send(&request)).expect("the bystander is answered in quiet")
        };
        let (long, short) = (once(caller.long()), once(caller.short()));
        // From here on every prompt is in the cache as far as it ever will be.
        assert_eq!(
            (once(caller.long()), once(caller.short())),
            (long.clone(), short.clone())
        );
        let mut bystander = Self {
            server,
            caller,
            long,
            short,
            quiet: Figures::default(),
        };
        let (quiet, (), violations) = bystander.watch(|_| (), QUIET_ROUNDS);
        assert!(violations.is_empty(), "in quiet: {violations:?}");
        bystander.quiet = quiet;
        bystander
    }

    /// The server, for what stands between attacks.
    pub fn server(&self) -> &Server {
        self.server
    }

    /// Run an attack and judge it; print a line of figures. Panics with all that was violated.
    pub fn endures(
        &mut self,
        case: &Case<'_>,
        attack: impl FnOnce(&Server) -> Vec<Response>,
    ) -> Figures {
        let (mut figures, responses, mut violations) = self.watch(attack, 1);
        violations.extend(check_answers(case, &responses));
        violations.extend(self.check_soundness());
        violations.extend(self.check_memory(case, &mut figures));
        violations.extend(self.check_traces(case));
        println!(
            "{:4} {:60} {} answers, p99 {:?} (quiet {:?}), health {:?}, {} -> {} MiB, peak {:?}",
            case.id,
            case.what,
            responses.len(),
            figures.p99(),
            self.quiet.p99(),
            percentile(&figures.health, 99),
            figures.memory.0,
            figures.memory.1,
            figures.peak,
        );
        assert!(
            violations.is_empty(),
            "{} ({}) violates\n  {}",
            case.id,
            case.what,
            violations.join("\n  ")
        );
        figures
    }

    /// Let `attack` run beside the bystander, who sends at least `rounds` short completions.
    fn watch<T>(
        &self,
        attack: impl FnOnce(&Server) -> T,
        rounds: usize,
    ) -> (Figures, T, Vec<String>) {
        let before = memory(self.server, "VmRSS");
        reset_peak(self.server);
        let over = AtomicBool::new(false);
        let (server, caller) = (&*self.server, self.caller);
        let (long, short, health, result) = std::thread::scope(|scope| {
            let long = scope.spawn(|| repeat(&over, 1, || essence(&server.send(&caller.long()))));
            let short =
                scope.spawn(|| repeat(&over, rounds, || essence(&server.send(&caller.short()))));
            let health = scope.spawn(|| repeat(&over, rounds, || probe(server)));
            let attacked = Over(&over);
            let result = attack(server);
            drop(attacked);
            let done = "a thread of the bystander ends";
            (
                long.join().expect(done),
                short.join().expect(done),
                health.join().expect(done),
                result,
            )
        });
        let mut violations = differences("V3 (long)", &long, &self.long);
        violations.extend(differences("V3 (short)", &short, &self.short));
        violations.extend(differences("V6", &health, ""));
        let slowest = |times: &[Duration]| times.iter().max().copied().unwrap_or_default();
        if slowest(&short.times) > SLOWEST {
            violations.push(format!("V4: a completion took {:?}", slowest(&short.times)));
        }
        let median = percentile(&health.times, 50);
        if slowest(&health.times) > SLOWEST || median > HEALTHY {
            let slowest = slowest(&health.times);
            violations.push(format!("V6: probes took {median:?} and up to {slowest:?}"));
        }
        let figures = Figures {
            short: short.times,
            health: health.times,
            memory: (before, memory(self.server, "VmRSS")),
            peak: Some(memory(self.server, "VmHWM")),
        };
        (figures, result, violations)
    }

    /// Check V1.
    fn check_soundness(&mut self) -> Option<String> {
        if self.server.has_ended() {
            return Some("V1: the server has ended".to_owned());
        }
        let log = self.server.log();
        let signs = ["panicked", "SIGSEGV", "memory allocation of"];
        // What a plugin says of its own end is not the server's.
        let bad = log
            .iter()
            .filter(|line| !line.contains(" mortise::plugin: "))
            .find(|line| signs.iter().any(|sign| line.contains(sign)));
        bad.map(|line| format!("V1: {line}"))
    }

    /// Check V5.
    fn check_memory(&self, case: &Case<'_>, figures: &mut Figures) -> Vec<String> {
        let before = figures.memory.0;
        let mut violations = Vec::new();
        let begun = Instant::now();
        loop {
            figures.memory.1 = memory(self.server, "VmRSS");
            if figures.memory.1 <= before + MEMORY_LEFT {
                break;
            }
            if begun.elapsed() > MEMORY_PATIENCE {
                let after = figures.memory.1;
                violations.push(format!("V5: {before} MiB before, {after} MiB after"));
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if let Some(peak) = figures.peak.filter(|peak| *peak > before + case.peak_mib) {
            violations.push(format!("V5: from {before} MiB up to {peak} MiB"));
        }
        violations
    }

    /// Check V7: in the bystander's answers V3 would have seen it.
    fn check_traces(&self, case: &Case<'_>) -> Vec<String> {
        let Some(canary) = case.canary else {
            return Vec::new();
        };
        let log = self.server.log();
        let mut violations: Vec<String> = log
            .iter()
            .filter(|line| line.contains(canary))
            .map(|line| format!("V7, in the log: {line}"))
            .collect();
        let metrics = self.server.get("/metrics").text();
        if metrics.contains(canary) {
            violations.push("V7: it shows in the metrics".to_owned());
        }
        violations
    }
}

/// Check V2.
fn check_answers(case: &Case<'_>, responses: &[Response]) -> Vec<String> {
    let mut violations = Vec::new();
    for response in responses {
        let found = error_of(response);
        let right = match (case.expected, &found) {
            (Expected::Anything, _) => true,
            (Expected::Answer | Expected::Either(_), Ok(None)) => true,
            (Expected::Refusal(status, code), Ok(Some(error))) => {
                *error == (status, code.to_owned())
            }
            (Expected::Either(errors), Ok(Some((status, code)))) => {
                errors.contains(&(*status, code.as_str()))
            }
            _ => false,
        };
        if !right {
            let expected = case.expected;
            let text: String = response.text().chars().take(300).collect();
            violations.push(format!("V2: expected {expected:?}, got {found:?}: {text}"));
        }
    }
    violations
}

/// Status and code of an error in the right shape; `None` for an answer.
fn error_of(response: &Response) -> Result<Option<(u16, String)>, String> {
    if response.status() == 200 {
        return Ok(None);
    }
    let body: Value = serde_json::from_slice(&response.body)
        .map_err(|error| format!("{} without JSON: {error}", response.status()))?;
    let error = &body["error"];
    let is_text = |name: &str| error[name].is_string();
    let param = error
        .get("param")
        .is_some_and(|param| param.is_null() || param.is_string());
    match (
        is_text("message") && is_text("type") && param,
        error["code"].as_str(),
    ) {
        (true, Some(code)) => Ok(Some((response.status(), code.to_owned()))),
        _ => Err("an error in another shape".to_owned()),
    }
}

/// Do something until the attack is over, and at least `least` times.
fn repeat(over: &AtomicBool, least: usize, once: impl Fn() -> Result<String, String>) -> Seen {
    let mut seen = Seen::default();
    while seen.times.len() < least || !over.load(Ordering::Acquire) {
        let begun = Instant::now();
        let answer = once();
        seen.times.push(begun.elapsed());
        match answer {
            Ok(answer) => seen.answers.push(answer),
            Err(error) => seen.wrong.push(error),
        }
        std::thread::sleep(PAUSE);
    }
    seen
}

fn probe(server: &Server) -> Result<String, String> {
    match server.get("/health").status() {
        200 => Ok(String::new()),
        status => Err(format!("/health answered {status}")),
    }
}

fn differences(invariant: &str, seen: &Seen, expected: &str) -> Vec<String> {
    let other = seen.answers.iter().filter(|answer| *answer != expected);
    let other = other.map(|answer| format!("{invariant}: {answer} instead of {expected}"));
    let wrong = seen
        .wrong
        .iter()
        .map(|error| format!("{invariant}: {error}"));
    // One of a kind tells as much as a thousand.
    other.take(1).chain(wrong.take(1)).collect()
}

/// A line of the kernel's account of the server's memory, in MiB; 0 where there is none.
fn memory(server: &Server, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    let status = status.unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
    kib.map_or(0, |kib| kib / 1024)
}

/// Let the kernel's high-water mark begin anew. Where that is refused the mark is an upper bound.
fn reset_peak(server: &Server) {
    let _ = std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5");
}
