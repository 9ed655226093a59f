use mortise_models::TokenLogprob;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Events of an answer whose stream is this text, fed in pieces of so many bytes.
fn read(stream: &str, piece: usize) -> Vec<OutputEvent> {
    let mut reader = AnswerReader::default();
    let mut events = Vec::new();
    for piece in stream.as_bytes().chunks(piece) {
        match reader.feed(piece, &mut events) {
            Ok(false) => {}
            Ok(true) => break,
            Err(error) => {
                reader.end(Some(error), &mut events);
                return events;
            }
        }
    }
    reader.end(None, &mut events);
    events
}

fn stream(chunks: &[Value]) -> String {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.collect()
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn event(delta: Delta) -> OutputEvent {
    let logprobs = Vec::new();
    OutputEvent::Delta { delta, logprobs }
}

fn problem(stream: &str) -> String {
    match read(stream, 7).pop() {
        Some(OutputEvent::Failed(RuntimeError::Upstream(text))) => text,
        other => panic!("{stream}: {other:?}"),
    }
}

fn whole() -> String {
    let usage = json!({"choices": [], "usage": {
        "prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }});
    let call = |call: Value| delta(&json!({"tool_calls": [call]}));
    let chunks = [
        delta(&json!({"role": "assistant", "content": ""})),
        // Both names of one thing, as some servers send it.
        delta(&json!({"reasoning_content": "hm", "reasoning": "hm"})),
        delta(&json!({"reasoning": "so"})),
        delta(&json!({"content": "Grüße"})),
        call(json!({"index": 3, "id": "c1", "function": {"name": "f", "arguments": ""}})),
        call(json!({"index": 5, "id": "c2", "function": {"name": "g", "arguments": "{"}})),
        call(json!({"index": 3, "function": {"arguments": "{}"}})),
        call(json!({"index": 5, "function": {"arguments": "}"}})),
        end("tool_calls"),
        usage,
    ];
    format!(
        ": a comment\n\n{}data: [DONE]\n\ndata: garbage",
        stream(&chunks)
    )
}

#[test]
fn an_answer_is_read_in_pieces_of_any_size() {
    let begin = |index, id: &str, name: &str| {
        let (id, name) = (id.to_owned(), name.to_owned());
        event(Delta::CallBegin { index, id, name })
    };
    let arguments = |index, delta: &str| {
        let delta = delta.to_owned();
        event(Delta::CallArguments { index, delta })
    };
    let expected = [
        event(Delta::Reasoning("hm".to_owned())),
        event(Delta::Reasoning("so".to_owned())),
        event(Delta::Content("Grüße".to_owned())),
        begin(0, "c1", "f"),
        begin(1, "c2", "g"),
        arguments(1, "{"),
        arguments(0, "{}"),
        arguments(1, "}"),
        OutputEvent::Finished {
            reason: FinishReason::ToolCalls,
            usage: Some(Usage {
                prompt_tokens: 9,
                cached_tokens: 4,
                completion_tokens: 5,
                reasoning_tokens: 2,
            }),
        },
    ];
    for piece in [1, 2, 3, 7, 64, 1 << 20] {
        assert_eq!(read(&whole(), piece), expected, "{piece}");
    }
}

#[test]
fn log_probabilities_are_translated() {
    let chunk = json!({"choices": [{"index": 0, "delta": {"content": "é"}, "logprobs": {"content": [{
        "token": "é", "logprob": -0.5, "bytes": [195, 169],
        "top_logprobs": [{"token": "x", "logprob": -2.0, "bytes": null}],
    }]}}]});
    let events = read(&stream(&[chunk, end("stop")]), 5);
    let token = TokenLogprob {
        token: "é".to_owned(),
        bytes: vec![195, 169],
        logprob: -0.5,
        top: vec![("x".to_owned(), b"x".to_vec(), -2.0)],
    };
    assert!(
        matches!(&events[0], OutputEvent::Delta { logprobs, .. } if *logprobs == [token]),
        "{events:?}"
    );
}

#[test]
fn calls_without_indices_and_ids_are_told_apart() {
    let call = |call: Value| delta(&json!({"tool_calls": [call]}));
    let chunks = [
        call(json!({"function": {"name": "f", "arguments": "{}"}})),
        call(json!({"function": {"name": "g", "arguments": "{"}})),
        call(json!({"function": {"arguments": "}"}})),
        end("stop"),
    ];
    let events = read(&stream(&chunks), 9);
    let ids: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            OutputEvent::Delta {
                delta: Delta::CallBegin { id, .. },
                ..
            } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{events:?}");
    let last = OutputEvent::Delta {
        delta: Delta::CallArguments {
            index: 1,
            delta: "}".to_owned(),
        },
        logprobs: Vec::new(),
    };
    assert_eq!(events[events.len() - 2], last);
}

#[test]
fn ends_are_orderly_or_named() {
    for (name, reason) in [
        ("stop", FinishReason::Stop),
        ("length", FinishReason::Length),
        ("content_filter", FinishReason::ContentFilter),
    ] {
        // Neither usage nor `[DONE]`: a finish reason is an end.
        let events = read(&stream(&[end(name)]), 9);
        assert_eq!(
            events,
            [OutputEvent::Finished {
                reason,
                usage: None
            }]
        );
    }
    let text = delta(&json!({"content": "a"}));
    assert!(problem(&stream(&[text])).contains("in the middle"));
    assert!(problem(&stream(&[end("abort")])).contains("`abort`"));
    assert!(problem("").contains("in the middle"));
    assert!(problem("data: [DONE]\n\n").contains("in the middle"));
    let failed = json!({"error": {"message": "out of memory", "code": 500}});
    assert!(problem(&stream(std::slice::from_ref(&failed))).contains("out of memory"));
    assert!(problem(&format!("error: {failed}\n\n")).contains("out of memory"));
}

#[test]
fn broken_protocols_are_named() {
    assert!(problem("data: {\n\n").contains("cannot be read"));
    assert!(problem("data: {\"choices\": 7}\n\n").contains("cannot be read"));
    let deep = format!("data: {}\n\n", "[".repeat(100_000));
    assert!(problem(&deep).contains("cannot be read"));
    let second = json!({"choices": [{"index": 1, "delta": {"content": "a"}}]});
    assert!(problem(&stream(&[second])).contains("choice 1"));
    let nameless = delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}));
    assert!(problem(&stream(&[nameless])).contains("without a name"));
    let call = |index: usize, name: &str| {
        delta(&json!({"tool_calls": [{"index": index, "id": "c", "function": {"name": name}}]}))
    };
    let many: Vec<Value> = (0..=MAX_CALLS).map(|index| call(index, "f")).collect();
    assert!(problem(&stream(&many)).contains("tool calls"));
    let long = call(0, &"x".repeat(MAX_CALL_NAME_BYTES + 1));
    assert!(problem(&stream(&[long])).contains("name or id"));
    let event = format!("data: {}", "x".repeat(MAX_EVENT_BYTES + 1));
    assert!(
        matches!(read(&event, 4096).as_slice(), [OutputEvent::Failed(RuntimeError::Upstream(text))] if text.contains("more than"))
    );
}

proptest! {
    /// A damaged stream gives exactly one final event, and it is the last event.
    #[test]
    fn damaged_answers_end_once(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        piece in 1_usize..64,
    ) {
        let mut bytes = whole().into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut reader = AnswerReader::default();
        let mut events = Vec::new();
        let mut defect = None;
        for piece in bytes.chunks(piece) {
            match reader.feed(piece, &mut events) {
                Ok(false) => {}
                Ok(true) => break,
                Err(error) => {
                    defect = Some(error);
                    break;
                }
            }
        }
        reader.end(defect, &mut events);
        let lasts = events.iter().filter(|event| !matches!(event, OutputEvent::Delta { .. }));
        prop_assert_eq!(lasts.count(), 1);
        let last = events.last().is_some_and(|event| !matches!(event, OutputEvent::Delta { .. }));
        prop_assert!(last);
    }
}
