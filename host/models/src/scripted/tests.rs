use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use mortise_engine::{
    Constraint, ConstraintError, LogprobParams, MaskStep, SamplingParams, SequenceEnd,
    SequenceError, SequenceRequest, Share, SubmitError, TokenEvent, TokenStream,
};

use super::{ScriptCodec, Scripted};
use crate::script::{Script, ScriptLine};
use crate::token_runtime::TokenRuntime;

/// A token is a byte, and 256 ends a sequence.
fn codec() -> ScriptCodec {
    ScriptCodec {
        encode: Arc::new(|text| text.bytes().map(u32::from).collect()),
        decode: Arc::new(|ids| {
            let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }),
    }
}

fn request(prompt: &str) -> SequenceRequest {
    SequenceRequest {
        prompt: prompt.bytes().map(u32::from).collect(),
        max_tokens: 1000,
        stop_tokens: vec![256],
        sampling: SamplingParams::default(),
        logprobs: None,
        prompt_logprobs: None,
        priority: 0,
        share: Share::default(),
        salt: None,
        adapter: None,
        constraint: None,
    }
}

fn says(text: &str) -> Script {
    Script {
        default: text.to_owned(),
        ..Script::default()
    }
}

async fn collect(mut stream: TokenStream) -> (String, Option<TokenEvent>) {
    let mut bytes = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            TokenEvent::Token(token) => bytes.push(token.id as u8),
            end => return (String::from_utf8(bytes).expect("ascii"), Some(end)),
        }
    }
    (String::from_utf8(bytes).expect("ascii"), None)
}

async fn check(script: Script, request: SequenceRequest, text: &str, reason: SequenceEnd) {
    let backend = Scripted::new(script, codec());
    let prompt = request.prompt.len() as u32;
    let (spoken, end) = collect(backend.submit(request).expect("accepted")).await;
    assert_eq!(spoken, text);
    let Some(TokenEvent::Finished { reason: got, usage }) = end else {
        panic!("ended with {end:?}");
    };
    assert_eq!(got, reason);
    assert_eq!(usage.prompt_tokens, prompt);
    assert_eq!(usage.completion_tokens, text.len() as u32);
}

#[tokio::test]
async fn speaks_the_line_that_the_prompt_calls_for() {
    let script = Script {
        lines: vec![
            ScriptLine {
                when: "weather".into(),
                say: "sunny".into(),
            },
            ScriptLine {
                when: "time".into(),
                say: "noon".into(),
            },
        ],
        ..says("what?")
    };
    check(
        script.clone(),
        request("the time please"),
        "noon",
        SequenceEnd::Stop,
    )
    .await;
    check(
        script.clone(),
        request("weather at this time"),
        "sunny",
        SequenceEnd::Stop,
    )
    .await;
    check(script, request("hello"), "what?", SequenceEnd::Stop).await;
}

#[tokio::test]
async fn ends_at_limits_and_stop_tokens() {
    let mut short = request("x");
    short.max_tokens = 3;
    check(says("abcdef"), short, "abc", SequenceEnd::Length).await;
    let mut exact = request("x");
    exact.max_tokens = 6;
    check(says("abcdef"), exact, "abcdef", SequenceEnd::Stop).await;
    let mut stopped = request("x");
    stopped.stop_tokens = vec![u32::from(b'd')];
    check(says("abcdef"), stopped, "abc", SequenceEnd::Stop).await;
    let script = Script {
        context_length: 5,
        repeat: 4,
        ..says("ab")
    };
    check(script, request("xy"), "aba", SequenceEnd::Length).await;
    let script = Script {
        repeat: 3,
        ..says("ab")
    };
    check(script, request("xy"), "ababab", SequenceEnd::Stop).await;
}

#[tokio::test]
async fn reports_log_probabilities_when_asked() {
    let backend = Scripted::new(says("a"), codec());
    let mut request = request("x");
    request.logprobs = Some(LogprobParams { top: 2 });
    let mut stream = backend.submit(request).expect("accepted");
    let Some(TokenEvent::Token(token)) = stream.next().await else {
        panic!("no token");
    };
    let logprobs = token.logprobs.expect("asked for");
    assert_eq!((logprobs.chosen, logprobs.top), (0.0, vec![(97, 0.0)]));
}

#[tokio::test]
async fn a_dropped_stream_frees_its_place() {
    let script = Script {
        token_delay: Duration::from_millis(1),
        repeat: 100_000,
        max_sequences: 1,
        context_length: 1_000_000,
        ..says("ab")
    };
    let backend = Scripted::new(script, codec());
    let mut long = request("x");
    long.max_tokens = 500_000;
    let stream = backend.submit(long).expect("accepted");
    assert_eq!(backend.load().running, 1);
    let refused = backend.submit(request("y")).expect_err("full");
    assert_eq!(refused, SubmitError::QueueFull { limit: 1 });
    drop(stream);
    let start = Instant::now();
    while backend.load().running != 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "still running");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn refuses_what_the_engine_refuses() {
    let backend = Scripted::new(
        Script {
            context_length: 3,
            ..says("a")
        },
        codec(),
    );
    assert!(matches!(
        backend.submit(request("")),
        Err(SubmitError::Invalid(_))
    ));
    let error = backend.submit(request("abc")).expect_err("too long");
    assert_eq!(
        error,
        SubmitError::ContextLength {
            prompt: 3,
            context: 3
        }
    );
}

/// Plays back masks: each is the set of allowed tokens, `None` for finished.
struct Masks {
    steps: VecDeque<Option<Vec<u32>>>,
    current: Option<Option<Arc<Vec<u32>>>>,
    committed: Vec<u32>,
}

impl Constraint for Masks {
    fn advance(&mut self, committed: &[u32]) {
        self.committed.extend_from_slice(committed);
        let mask = |allowed: Vec<u32>| {
            let mut mask = vec![0; 9];
            for id in allowed {
                mask[id as usize / 32] |= 1 << (id % 32);
            }
            Arc::new(mask)
        };
        self.current = self.steps.pop_front().map(|step| step.map(mask));
    }

    fn poll(&mut self, _: &Waker) -> Poll<Result<MaskStep<'_>, ConstraintError>> {
        Poll::Ready(match &self.current {
            Some(Some(mask)) => Ok(MaskStep::Allow(mask)),
            Some(None) => Ok(MaskStep::Finished),
            None => Err(ConstraintError {
                message: "no more masks".to_owned(),
            }),
        })
    }
}

async fn constrained(text: &str, steps: &[Option<&[u32]>]) -> (String, Option<TokenEvent>) {
    let backend = Scripted::new(says(text), codec());
    let mut request = request("x");
    request.constraint = Some(Box::new(Masks {
        steps: steps.iter().map(|s| s.map(<[u32]>::to_vec)).collect(),
        current: None,
        committed: Vec::new(),
    }));
    collect(backend.submit(request).expect("accepted")).await
}

#[tokio::test]
async fn honours_the_constraint_or_says_why_not() {
    let (text, end) = constrained("ab", &[Some(&[97]), Some(&[98]), Some(&[256])]).await;
    assert_eq!(text, "ab");
    assert!(matches!(
        end,
        Some(TokenEvent::Finished {
            reason: SequenceEnd::Stop,
            ..
        })
    ));

    let (text, end) = constrained("abc", &[Some(&[97]), None]).await;
    assert_eq!(text, "a");
    assert!(matches!(
        end,
        Some(TokenEvent::Finished {
            reason: SequenceEnd::Stop,
            ..
        })
    ));

    let (text, end) = constrained("ab", &[Some(&[97]), Some(&[97])]).await;
    assert_eq!(text, "a");
    let Some(TokenEvent::Failed(SequenceError::Constraint(message))) = end else {
        panic!("ended with {end:?}");
    };
    assert!(message.contains("token 1 (id 98)"), "{message}");

    let (_, end) = constrained("a", &[Some(&[97]), Some(&[98])]).await;
    let Some(TokenEvent::Failed(SequenceError::Constraint(message))) = end else {
        panic!("ended with {end:?}");
    };
    assert!(message.contains("not complete"), "{message}");
}
