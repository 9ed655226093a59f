//! Rules of both kinds of runtime: tokens in, tokens out, and conversation in, events out.

use std::sync::Arc;
use std::time::Duration;

use mortise_engine::{EngineLoad, SubmitError};
use mortise_models::{
    ConversationRequest, ConversationRuntime, Generator, OutputFormat, OutputStream, Script,
    ToolUse,
};
use mortise_plugin::{Decision, Finish, GrammarSource, ToolChoice};

use super::{allow, one, until};
use crate::fakes::{
    FakeParser, FakePolicy, ask, call, chat, conversation_model, functions, loaded, model,
    rendered_model, says, service,
};
use crate::plugins::DecidePolicy;
use crate::{
    BeamFields, ContentConstraint, EarlyStopping, Event, FinishReason, PluginRoutes, Prompt,
    Request, RequestFields, ServedModel, ServiceError,
};

/// A model of each kind that answers with a script.
fn kinds() -> [fn(Script) -> ServedModel; 3] {
    [model, conversation_model, rendered_model]
}

#[tokio::test]
async fn content_reasoning_and_calls_arrive() {
    let text = "<think>two words</think>yes it is<call>f {\"a\":1}</call><call>g {}</call>";
    for kind in kinds() {
        let service = service(kind(says(text)), Vec::new());
        let mut fields = chat("hi");
        fields.tools = functions(&["f", "g"]);
        let all = ask(&service, fields).await.expect("an answer");
        let choice = one(&all);
        assert_eq!(choice.reasoning, "two words");
        assert_eq!(choice.content, "yes it is");
        let calls = choice.calls.iter();
        let calls: Vec<_> = calls.map(|(_, n, a)| (n.as_str(), a.as_str())).collect();
        assert_eq!(calls, [("f", "{\"a\":1}"), ("g", "{}")]);
        assert_ne!(choice.calls[0].0, choice.calls[1].0);
        assert_eq!(choice.finish, Some(FinishReason::ToolCalls));
        let usage = all.usage.expect("completed");
        assert!(usage.prompt_tokens > 0 && usage.reasoning_tokens > 0);
        assert!(usage.completion_tokens > usage.reasoning_tokens);
    }
}

#[tokio::test]
async fn stop_strings_and_limits_end_an_answer() {
    for kind in kinds() {
        let service = service(kind(says("one two three four")), Vec::new());
        let mut fields = chat("hi");
        fields.stop = vec![" thr".to_owned()];
        let all = ask(&service, fields).await.expect("an answer");
        assert_eq!(one(&all).content, "one two");
        assert_eq!(one(&all).finish, Some(FinishReason::Stop));
        let mut fields = chat("hi");
        fields.max_tokens = Some(2);
        fields.n = Some(2);
        let all = ask(&service, fields).await.expect("an answer");
        assert_eq!(one(&all).finish, Some(FinishReason::Length));
        assert_eq!(all.choices[0].content, all.choices[1].content);
        assert_eq!(all.usage.expect("completed").completion_tokens, 4);
    }
}

#[tokio::test]
async fn policies_limit_and_account() {
    let Decision::Allow(mut allowance) = allow() else {
        unreachable!()
    };
    allowance.max_tokens = Some(3);
    for kind in kinds() {
        let policy = FakePolicy::new(Ok(Decision::Allow(allowance.clone())));
        let chain = vec![policy.clone() as Arc<dyn DecidePolicy>];
        let service = service(kind(says("one two three four five six")), chain);
        let all = ask(&service, chat("hi")).await.expect("an answer");
        let usage = all.usage.expect("completed");
        assert_eq!(usage.completion_tokens, 3);
        service.settle().await;
        let accounts = policy.accounts();
        assert_eq!(accounts.len(), 1);
        assert_eq!(accounts[0].finish, Finish::Length);
        assert_eq!(accounts[0].prompt_tokens, usage.prompt_tokens);
        assert_eq!(accounts[0].completion_tokens, 3);
    }
}

#[tokio::test]
async fn a_dropped_answer_cancels_and_is_accounted_for() {
    for kind in kinds() {
        let policy = FakePolicy::new(Ok(allow()));
        let mut served = kind(Script {
            repeat: 100_000,
            max_sequences: 1,
            context_length: 10_000_000,
            ..says("word ")
        });
        let described = Arc::clone(&loaded(&mut served).model);
        let service = service(served, vec![policy.clone() as Arc<dyn DecidePolicy>]);
        let mut fields = chat("hi");
        fields.max_tokens = Some(90_000);
        let request = Request::check(fields.clone()).expect("good");
        let mut answer = service.start(call(), request).await.expect("an answer");
        assert!(matches!(answer.next().await, Some(Event::Delta { .. })));
        let full = ask(&service, fields).await.expect_err("one at a time");
        assert!(
            matches!(full, ServiceError::QueueFull { limit: 1, .. }),
            "{full}"
        );
        drop(answer);
        until("the choice is freed", || described.load().running == 0).await;
        service.settle().await;
        let finishes: Vec<_> = policy.accounts().iter().map(|a| a.finish).collect();
        assert_eq!(finishes, [Finish::Error, Finish::Cancelled]);
        assert!(policy.accounts()[1].completion_tokens > 0);
    }
}

#[tokio::test]
async fn a_slow_reader_holds_its_choice_up() {
    for kind in kinds() {
        let mut served = kind(Script {
            repeat: 10_000,
            context_length: 1_000_000,
            ..says("word ")
        });
        let described = Arc::clone(&loaded(&mut served).model);
        let service = service(served, Vec::new());
        let mut fields = chat("hi");
        fields.max_tokens = Some(9_000);
        let request = Request::check(fields).expect("good");
        let answer = service.start(call(), request).await.expect("an answer");
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The stream's capacity, the token that waits for room, and none more.
        let generated = described.load().decode_tokens;
        assert!(
            generated <= OutputStream::CAPACITY as u64 + 2,
            "{generated}"
        );
        drop(answer);
    }
}

#[tokio::test]
async fn what_needs_the_models_tokens_is_refused_by_name_where_it_runs_elsewhere() {
    let service = service(conversation_model(says("x")), Vec::new());
    let refused = async |change: fn(&mut RequestFields)| {
        let mut fields = chat("hi");
        change(&mut fields);
        match ask(&service, fields).await {
            Err(ServiceError::Invalid { param, .. }) => param.unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused(|fields| fields.prompt = Prompt::Text("x".to_owned())).await,
        "prompt"
    );
    assert_eq!(
        refused(|fields| fields.logit_bias = vec![(1, 1.0)]).await,
        "logit_bias"
    );
    let beams = |fields: &mut RequestFields| {
        fields.beams = Some(BeamFields {
            size: 2,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
        });
    };
    assert_eq!(refused(beams).await, "beam_size");
}

#[tokio::test]
async fn a_parser_that_is_bound_in_front_parses_the_content() {
    /// Sends the text as content, as a server without a parser would.
    struct Raw;
    impl ConversationRuntime for Raw {
        fn submit(&self, _: ConversationRequest) -> Result<OutputStream, SubmitError> {
            use mortise_models::{Delta, OutputEvent};
            let (sender, stream) = OutputStream::channel();
            for text in ["<think>so</thi", "nk>yes<call>f {}</", "call>"] {
                let event = OutputEvent::Delta {
                    delta: Delta::Content(text.to_owned()),
                    logprobs: Vec::new(),
                };
                sender.try_send(event).expect("room");
            }
            let end = OutputEvent::Finished {
                reason: FinishReason::Stop,
                usage: None,
            };
            sender.try_send(end).expect("room");
            Ok(stream)
        }

        fn context_length(&self) -> Option<usize> {
            None
        }

        fn load(&self) -> EngineLoad {
            EngineLoad::default()
        }
    }
    let mut served = conversation_model(says("x"));
    let described = Arc::make_mut(&mut loaded(&mut served).model);
    described.generator = Some(Generator::Conversation(Arc::new(Raw)));
    loaded(&mut served).plugins.parser = PluginRoutes::one(Arc::new(FakeParser));
    let mut fields = chat("hi");
    fields.tools = functions(&["f"]);
    let all = ask(&service(served, Vec::new()), fields).await;
    let all = all.expect("an answer");
    let choice = one(&all);
    assert_eq!(
        (choice.reasoning.as_str(), choice.content.as_str()),
        ("so", "yes")
    );
    assert_eq!(choice.calls.len(), 1);
    assert_eq!(choice.finish, Some(FinishReason::ToolCalls));
    assert_eq!(
        all.usage.expect("completed").completion_tokens,
        3,
        "counted"
    );
}

#[tokio::test]
async fn tools_formats_and_sampling_are_the_runtimes() {
    /// Refuses what it is asked, in words that show it.
    struct Echo;
    impl ConversationRuntime for Echo {
        fn submit(&self, request: ConversationRequest) -> Result<OutputStream, SubmitError> {
            let names: Vec<_> = request.tools.iter().map(|t| t.name.as_str()).collect();
            assert_eq!(request.tool_use, ToolUse::Named("f".to_owned()));
            assert_eq!(request.format, Some(OutputFormat::Regex("a+".to_owned())));
            assert_eq!(request.sampling.temperature, Some(0.5));
            assert_eq!(request.sampling.seed, Some(7));
            assert_eq!(request.stop, ["END"]);
            assert_eq!((request.max_tokens, request.logprobs), (9, Some(2)));
            Err(SubmitError::Invalid(names.join(" ")))
        }

        fn context_length(&self) -> Option<usize> {
            Some(100)
        }

        fn load(&self) -> EngineLoad {
            EngineLoad::default()
        }
    }
    let mut served = conversation_model(says("x"));
    let described = Arc::make_mut(&mut loaded(&mut served).model);
    described.generator = Some(Generator::Conversation(Arc::new(Echo)));
    let fields = RequestFields {
        tools: functions(&["f", "g"]),
        tool_choice: Some(ToolChoice::Named("f".to_owned())),
        constraint: Some(ContentConstraint::new(
            "guided_regex",
            GrammarSource::Regex("a+".to_owned()),
        )),
        temperature: Some(0.5),
        seed: Some(7),
        stop: vec!["END".to_owned()],
        max_tokens: Some(9),
        logprobs: Some(2),
        ..chat("hi")
    };
    let error = ask(&service(served, Vec::new()), fields)
        .await
        .expect_err("refused");
    assert_eq!(error.to_string(), "f g");
}
