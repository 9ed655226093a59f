use std::time::{Duration, Instant};

use mortise_engine::SubmitError;

use super::{ScriptedConversation, deltas, words};
use crate::conversation::{Conversation, Message, Role, TemplateArguments};
use crate::conversation_runtime::{
    ConversationRequest, ConversationRuntime, OutputEvent, OutputFormat, OutputStream,
    RequestedSampling, ToolUse,
};
use crate::output::{Delta, FinishReason, Usage};
use crate::script::{Script, ScriptLine};

fn request(user: &str) -> ConversationRequest {
    let messages = vec![Message::text(Role::User, user)];
    ConversationRequest {
        request_id: "req-1".to_owned(),
        share: mortise_engine::Share::default(),
        conversation: Conversation::new(messages).expect("a conversation"),
        arguments: TemplateArguments::default(),
        continue_final_message: false,
        tools: Vec::new(),
        tool_use: ToolUse::Auto,
        parallel_tool_calls: true,
        format: None,
        max_tokens: 1000,
        max_tokens_given: true,
        stop: Vec::new(),
        sampling: RequestedSampling::default(),
        logprobs: None,
    }
}

fn says(text: &str) -> Script {
    Script {
        default: text.to_owned(),
        ..Script::default()
    }
}

async fn collect(mut stream: OutputStream) -> (Vec<Delta>, FinishReason, Usage) {
    let mut deltas = Vec::new();
    loop {
        match stream.next().await.expect("an end") {
            OutputEvent::Begun => {}
            OutputEvent::Delta { delta, .. } => deltas.push(delta),
            OutputEvent::Finished { reason, usage } => {
                return (deltas, reason, usage.expect("usage"));
            }
            OutputEvent::Failed(error) => panic!("{error}"),
        }
    }
}

fn content(text: &str) -> Delta {
    Delta::Content(text.to_owned())
}

#[test]
fn words_keep_the_space_before_them() {
    let split = |text| words(text).collect::<Vec<_>>();
    assert_eq!(split("a  b\nc "), ["a", "  b", "\nc", " "]);
    assert!(split("").is_empty());
}

#[test]
fn marks_become_events() {
    let output = deltas(
        "<think>a b</think>c<call>f {\"x\": 1}</call><call>g</call>",
        &[],
    );
    let call = |index, name: &str| Delta::CallBegin {
        index,
        id: format!("call_script_{index}"),
        name: name.to_owned(),
    };
    let arguments = |index, delta: &str| Delta::CallArguments {
        index,
        delta: delta.to_owned(),
    };
    let expected = [
        Delta::Reasoning("a".to_owned()),
        Delta::Reasoning(" b".to_owned()),
        content("c"),
        call(0, "f"),
        arguments(0, "{\"x\":"),
        arguments(0, " 1}"),
        call(1, "g"),
    ];
    assert_eq!(output, expected);
}

#[test]
fn a_stop_string_ends_the_content_and_what_follows() {
    let stop = ["END".to_owned(), "d e".to_owned()];
    assert_eq!(
        deltas("a b END c<call>f</call>", &stop),
        [content("a"), content(" b"), content(" ")]
    );
    assert_eq!(
        deltas("<think>END</think>x", &stop).len(),
        2,
        "in content only"
    );
}

#[tokio::test]
async fn lines_are_chosen_by_the_conversation_and_limits_hold() {
    let script = Script {
        lines: vec![ScriptLine {
            when: "weather".to_owned(),
            say: "it will rain".to_owned(),
        }],
        ..says("what else")
    };
    let runtime = ScriptedConversation::new(script);
    let answer = async |request| collect(runtime.submit(request).expect("accepted")).await;
    let (deltas, reason, usage) = answer(request("the weather?")).await;
    assert_eq!(deltas, [content("it"), content(" will"), content(" rain")]);
    assert_eq!(reason, FinishReason::Stop);
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 3));
    let (deltas, reason, _) = answer(ConversationRequest {
        max_tokens: 1,
        ..request("news?")
    })
    .await;
    assert_eq!(
        (deltas, reason),
        (vec![content("what")], FinishReason::Length)
    );
    assert_eq!(runtime.load().running, 0);
}

#[tokio::test]
async fn what_a_script_cannot_do_is_refused() {
    let runtime = ScriptedConversation::new(Script {
        context_length: 4,
        max_sequences: 1,
        repeat: 10_000,
        ..says("word ")
    });
    let refused = |request| runtime.submit(request).expect_err("a refusal");
    let with_format = ConversationRequest {
        format: Some(OutputFormat::JsonObject),
        ..request("hi")
    };
    assert!(matches!(refused(with_format), SubmitError::Invalid(_)));
    let with_logprobs = ConversationRequest {
        logprobs: Some(0),
        ..request("hi")
    };
    assert!(matches!(refused(with_logprobs), SubmitError::Invalid(_)));
    let long = refused(request("one two three four"));
    assert!(matches!(
        long,
        SubmitError::ContextLength { context: 4, .. }
    ));
}

#[tokio::test]
async fn a_dropped_stream_cancels_its_choice() {
    let runtime = ScriptedConversation::new(Script {
        repeat: 10_000,
        max_sequences: 1,
        context_length: 1_000_000,
        ..says("word ")
    });
    let long = || ConversationRequest {
        max_tokens: 100_000,
        ..request("hi")
    };
    let mut stream = runtime.submit(long()).expect("accepted");
    assert!(stream.next().await.is_some());
    let full = runtime.submit(long()).expect_err("one at a time");
    assert_eq!(full, SubmitError::QueueFull { limit: 1 });
    drop(stream);
    let begun = Instant::now();
    while runtime.load().running > 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "still running");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(runtime.submit(long()).is_ok());
}
