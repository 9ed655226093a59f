use std::sync::Arc;
use std::time::Duration;

use mortise_models::Script;
use mortise_plugin::{Fault, Finish, GrammarSource};

use super::{allow, one, until};
use crate::fakes::{
    FakePolicy, FakeTemplate, ask, call, chat, constrained, loaded, model, says, service,
};
use crate::plugins::DecidePolicy;
use crate::{ContentConstraint, Event, FinishReason, PluginRoutes, Request, ServiceError};

#[tokio::test]
async fn answers_a_chat() {
    let service = service(model(says("hello wörld 😀")), Vec::new());
    let all = ask(&service, chat("hi")).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.content, "hello wörld 😀");
    assert_eq!(choice.finish, Some(FinishReason::Stop));
    let usage = all.usage.expect("completed");
    assert!(usage.prompt_tokens > 5 && usage.completion_tokens > 5);
    assert!(choice.pieces.len() > 5, "token by token");
}

#[tokio::test]
async fn splits_reasoning_and_calls() {
    let text = "<think>two words</think>yes<call>f {\"a\":1}</call><call>g {}</call>";
    let service = service(model(says(text)), Vec::new());
    let all = ask(&service, chat("hi")).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(
        (choice.reasoning.as_str(), choice.content.as_str()),
        ("two words", "yes")
    );
    assert_eq!(choice.finish, Some(FinishReason::ToolCalls));
    let names: Vec<_> = choice
        .calls
        .iter()
        .map(|(_, n, a)| (n.as_str(), a.as_str()))
        .collect();
    assert_eq!(names, [("f", "{\"a\":1}"), ("g", "{}")]);
    for (id, ..) in &choice.calls {
        let random = id.strip_prefix("call_").expect("a prefix");
        assert!(
            random.len() == 24 && random.bytes().all(|b| b.is_ascii_alphanumeric()),
            "{id}"
        );
    }
    assert_ne!(choice.calls[0].0, choice.calls[1].0);
    let usage = all.usage.expect("completed");
    let (reasoning, all) = (usage.reasoning_tokens, usage.completion_tokens);
    assert!(
        reasoning >= 9 && reasoning < all / 2,
        "{reasoning} of {all}"
    );
}

#[tokio::test]
async fn a_limit_is_the_reason_even_after_a_call() {
    let mut fields = chat("hi");
    fields.max_tokens = Some(22);
    let service = service(
        model(says("<call>f {}</call>and much more text")),
        Vec::new(),
    );
    let all = ask(&service, fields).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.calls.len(), 1);
    assert_eq!(choice.finish, Some(FinishReason::Length));
    assert_eq!(all.usage.expect("completed").completion_tokens, 22);
}

#[tokio::test]
async fn a_prompt_that_opens_reasoning_is_parsed_so() {
    let mut served = model(says("because</think>yes"));
    loaded(&mut served).plugins.chat_template = PluginRoutes::one(Arc::new(FakeTemplate {
        opens_reasoning: true,
        ..FakeTemplate::default()
    }));
    let all = ask(&service(served, Vec::new()), chat("hi"))
        .await
        .expect("an answer");
    let choice = one(&all);
    assert_eq!(
        (choice.reasoning.as_str(), choice.content.as_str()),
        ("because", "yes")
    );
}

#[tokio::test]
async fn stop_strings_end_an_answer_and_free_the_engine() {
    let script = Script {
        repeat: 10_000,
        ..says("one two three. ")
    };
    let mut served = model(script);
    let described = Arc::clone(&loaded(&mut served).model);
    let service = service(served, Vec::new());
    let mut fields = chat("hi");
    fields.stop = vec!["three. one".to_owned(), "thr3".to_owned()];
    fields.max_tokens = Some(20_000);
    let all = ask(&service, fields).await.expect("an answer");
    assert_eq!(one(&all).content, "one two ");
    assert_eq!(one(&all).finish, Some(FinishReason::Stop));
    until("the sequence is freed", || described.load().running == 0).await;
}

#[tokio::test]
async fn a_template_may_add_stop_strings() {
    let mut served = model(says("hello Human: x"));
    loaded(&mut served).plugins.chat_template = PluginRoutes::one(Arc::new(FakeTemplate {
        stop: vec!["Human:".to_owned()],
        ..FakeTemplate::default()
    }));
    let all = ask(&service(served, Vec::new()), chat("hi"))
        .await
        .expect("an answer");
    assert_eq!(one(&all).content, "hello ");
}

#[tokio::test]
async fn choices_are_merged_fairly() {
    let script = Script {
        token_delay: Duration::from_millis(1),
        ..says("hello the world again")
    };
    let service = service(model(script), Vec::new());
    let mut fields = chat("hi");
    fields.n = Some(4);
    let request = Request::check(fields).expect("good");
    let mut answer = service.start(call(), request).await.expect("an answer");
    let mut order = Vec::new();
    let mut finished = 0;
    while let Some(event) = answer.next().await {
        match event {
            Event::Delta { choice, .. } => order.push(choice),
            Event::Finished { .. } => finished += 1,
            Event::Completed { usage } => {
                assert_eq!(finished, 4);
                assert_eq!(usage.completion_tokens as usize, order.len());
            }
            Event::Prompt { tokens, .. } => panic!("{tokens:?}"),
            Event::ServerToolCall { call, .. } => panic!("{call:?}"),
            Event::Failed(error) => panic!("{error}"),
        }
    }
    // No choice waits for another to end.
    let first_of_last = order.iter().position(|&c| c == 3).expect("there");
    let last_of_first = order.iter().rposition(|&c| c == 0).expect("there");
    assert!(first_of_last < last_of_first, "{order:?}");
}

#[tokio::test]
async fn log_probabilities_come_with_the_text_of_their_tokens() {
    for (text, stop) in [
        ("hello the world", None),
        ("<think>no</think>hello the wörld 😀 and <b>", None),
        ("hello END of it", Some("END")),
        ("hello the EN", Some("END")),
    ] {
        let mut fields = chat("hi");
        fields.logprobs = Some(1);
        fields.stop = stop.into_iter().map(str::to_owned).collect();
        let service = service(model(says(text)), Vec::new());
        let all = ask(&service, fields).await.expect("an answer");
        let choice = one(&all);
        let mut content = Vec::new();
        for (piece, logprobs) in &choice.pieces {
            assert!(
                !logprobs.is_empty() || piece.len() < 4,
                "{piece:?} came from some token"
            );
            for logprob in logprobs {
                assert_eq!(logprob.logprob, 0.0);
                assert_eq!(logprob.top.len(), 1);
                content.extend_from_slice(&logprob.bytes);
            }
        }
        assert_eq!(String::from_utf8_lossy(&content), choice.content, "{text}");
    }
}

#[tokio::test]
async fn no_log_probabilities_unless_asked() {
    let service = service(model(says("hello")), Vec::new());
    let all = ask(&service, chat("hi")).await.expect("an answer");
    assert!(
        one(&all)
            .pieces
            .iter()
            .all(|(_, logprobs)| logprobs.is_empty())
    );
}

#[tokio::test]
async fn a_grammar_constrains_every_choice() {
    let service = service(model(says("hello the world")), Vec::new());
    let mut fields = chat("hi");
    fields.n = Some(2);
    fields.constraint = constrained(GrammarSource::Regex("hello the world".to_owned()));
    let all = ask(&service, fields.clone()).await.expect("an answer");
    assert!(all.error.is_none(), "{:?}", all.error);
    assert!(all.choices.iter().all(|c| c.content == "hello the world"));

    fields.constraint = constrained(GrammarSource::Regex("hello you".to_owned()));
    let all = ask(&service, fields.clone()).await.expect("an answer");
    let error = all
        .error
        .expect("the script does not follow it")
        .to_string();
    assert!(error.contains("not allowed"), "{error}");

    fields.constraint = Some(ContentConstraint::new(
        "guided_json",
        GrammarSource::JsonObject,
    ));
    let error = ask(&service, fields).await.expect_err("not compiled");
    let ServiceError::Invalid { param, code, .. } = error else {
        panic!("{error}");
    };
    let told = (param.as_deref(), code);
    assert_eq!(told, (Some("guided_json"), "invalid_value"));
}

#[tokio::test]
async fn a_grammar_that_grows_too_complex_ends_the_answer_as_the_callers_fault() {
    let service = service(model(says("hello the world")), Vec::new());
    let mut fields = chat("hi");
    fields.constraint = constrained(GrammarSource::Lark("hello ".to_owned()));
    let all = ask(&service, fields).await.expect("an answer");
    let said = &all.choices[0].content;
    assert!(
        said.starts_with("hello"),
        "what was said stays said: {said}"
    );
    let Some(ServiceError::Plugin(error)) = all.error else {
        panic!("{:?}", all.error);
    };
    assert!(matches!(error.fault, Fault::TooComplex(_)), "{error}");
}

#[tokio::test]
async fn a_parser_fault_fails_the_answer_after_what_was_said() {
    let policy = FakePolicy::new(Ok(allow()));
    let served = model(says("hello FAULT more"));
    let service = service(served, vec![policy.clone() as Arc<dyn DecidePolicy>]);
    let all = ask(&service, chat("hi")).await.expect("an answer");
    assert_eq!(all.choices[0].content, "hello ");
    assert!(matches!(all.error, Some(ServiceError::Plugin(e)) if &*e.plugin == "fake"));
    assert!(all.usage.is_none());
    service.settle().await;
    assert_eq!(policy.accounts()[0].finish, Finish::Error);
}
