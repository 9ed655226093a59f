use mortise_plugin::{GrammarSource, ToolChoice};

use super::Request;
use crate::fakes::functions;
use crate::limits::{MAX_GRAMMAR_BYTES, MAX_JSON_DEPTH, MAX_SERVER_TOOLS};
use crate::{
    ChatPrompt, ContentConstraint, Conversation, Message, Prompt, PromptEnd, RequestFields, Role,
    ServiceError, TemplateArguments,
};

fn prompt(role: Role, end: PromptEnd) -> Prompt {
    Prompt::Chat(ChatPrompt {
        conversation: Conversation::new(vec![Message::text(role, "hi")]).expect("a conversation"),
        arguments: TemplateArguments::default(),
        template: None,
        end,
    })
}

fn good() -> RequestFields {
    RequestFields {
        prompt: prompt(Role::User, PromptEnd::AssistantTurn),
        ..RequestFields::default()
    }
}

fn with(change: impl FnOnce(&mut RequestFields)) -> RequestFields {
    let mut fields = good();
    change(&mut fields);
    fields
}

/// `Ok` or the field that is refused.
fn check(fields: RequestFields, expected: Result<(), &str>) {
    let shown = format!("{fields:?}");
    match (Request::check(fields), expected) {
        (Ok(_), Ok(())) => {}
        (Err(ServiceError::Invalid { param, message, .. }), Err(expected)) => {
            assert_eq!(param.as_deref(), Some(expected), "{message}: {shown}");
            assert!(!message.is_empty());
        }
        (result, expected) => panic!("{result:?} and not {expected:?}: {shown}"),
    }
}

#[test]
fn numbers_have_bounds() {
    check(good(), Ok(()));
    for (n, expected) in [(1, Ok(())), (128, Ok(())), (0, Err("n")), (129, Err("n"))] {
        check(with(|f| f.n = Some(n)), expected);
    }
    check(with(|f| f.max_tokens = Some(0)), Err("max_tokens"));
    check(with(|f| f.max_tokens = Some(u32::MAX)), Ok(()));
    check(with(|f| f.logprobs = Some(20)), Ok(()));
    check(with(|f| f.logprobs = Some(21)), Err("top_logprobs"));
    for bad in [f64::NAN, f64::INFINITY, -0.1, 2.1, 1e308] {
        check(with(|f| f.temperature = Some(bad)), Err("temperature"));
    }
    for bad in [f64::NAN, 0.0, -1.0, 1.01] {
        check(with(|f| f.top_p = Some(bad)), Err("top_p"));
    }
    for bad in [f64::NAN, -0.1, 1.1] {
        check(with(|f| f.min_p = Some(bad)), Err("min_p"));
    }
    for bad in [f64::NAN, 0.0, 4.1] {
        check(
            with(|f| f.repetition_penalty = Some(bad)),
            Err("repetition_penalty"),
        );
    }
    for bad in [f64::NAN, -2.1, 2.1] {
        check(
            with(|f| f.frequency_penalty = Some(bad)),
            Err("frequency_penalty"),
        );
        check(
            with(|f| f.presence_penalty = Some(bad)),
            Err("presence_penalty"),
        );
    }
    for bad in [f64::NAN, f64::INFINITY, -100.1, 100.1] {
        check(
            with(|f| f.logit_bias = vec![(1, 0.0), (7, bad)]),
            Err("logit_bias.7"),
        );
    }
    check(
        with(|f| f.logit_bias = vec![(1, 0.0); 1025]),
        Err("logit_bias"),
    );
}

#[test]
fn stop_strings_have_bounds() {
    let stop = |stops: &[&str]| with(|f| f.stop = stops.iter().map(|&s| s.to_owned()).collect());
    check(stop(&["a"; 16]), Ok(()));
    check(stop(&["a"; 17]), Err("stop"));
    check(stop(&["a", ""]), Err("stop[1]"));
    check(stop(&[&"x".repeat(1024)]), Ok(()));
    check(stop(&[&"x".repeat(1025)]), Err("stop[0]"));
    check(stop(&[&*"x".repeat(1000); 5]), Err("stop"));
}

#[test]
fn tool_choice_needs_tools() {
    let choose = |choice: ToolChoice, tools: &[&str]| {
        with(|f| (f.tool_choice, f.tools) = (Some(choice), functions(tools)))
    };
    let named = |name: &str| ToolChoice::Named(name.to_owned());
    check(choose(ToolChoice::Required, &[]), Err("tool_choice"));
    check(choose(ToolChoice::Required, &["f"]), Ok(()));
    check(choose(named("f"), &["f"]), Ok(()));
    check(choose(named("g"), &["f"]), Err("tool_choice"));
    check(choose(ToolChoice::Auto, &[]), Ok(()));
    let choice = |fields| Request::check(fields).expect("good").tool_choice();
    assert_eq!(choice(good()), ToolChoice::None);
    assert_eq!(
        choice(with(|f| f.tools = functions(&["f"]))),
        ToolChoice::Auto
    );
}

#[test]
fn server_tools_need_a_conversation_that_ends() {
    let names = |count: usize| (0..count).map(|at| format!("t{at}")).collect();
    let opted_in = |prompt: Prompt, count: usize| {
        with(|f| (f.prompt, f.server_tools) = (prompt, names(count)))
    };
    let chat = || prompt(Role::ASSISTANT, PromptEnd::AssistantTurn);
    check(opted_in(chat(), MAX_SERVER_TOOLS), Ok(()));
    check(opted_in(chat(), MAX_SERVER_TOOLS + 1), Err("server_tools"));
    let open = prompt(Role::ASSISTANT, PromptEnd::OpenMessage);
    check(opted_in(open, 1), Err("server_tools"));
    let text = Prompt::Text("hi".to_owned());
    check(opted_in(text, 1), Err("server_tools"));
}

#[test]
fn only_an_assistants_message_can_be_continued() {
    for (role, end, expected) in [
        (Role::ASSISTANT, PromptEnd::OpenMessage, Ok(())),
        (
            Role::User,
            PromptEnd::OpenMessage,
            Err("continue_final_message"),
        ),
        (Role::User, PromptEnd::ClosedMessage, Ok(())),
    ] {
        check(with(|f| f.prompt = prompt(role, end)), expected);
    }
}

#[test]
fn grammars_have_bounds() {
    let grammar = |source| {
        with(|f| {
            f.constraint = Some(ContentConstraint::new("guided_json", source));
        })
    };
    let schema = |text: &str| grammar(GrammarSource::JsonSchema(text.to_owned()));
    let nested = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    check(grammar(GrammarSource::JsonObject), Ok(()));
    check(schema("{}"), Ok(()));
    check(schema("true"), Ok(()));
    check(schema("7"), Err("guided_json"));
    check(schema("{"), Err("guided_json"));
    check(schema(&nested(MAX_JSON_DEPTH)), Ok(()));
    check(schema(&nested(MAX_JSON_DEPTH + 1)), Err("guided_json"));
    let long = |bytes: usize| grammar(GrammarSource::Regex("x".repeat(bytes)));
    check(long(MAX_GRAMMAR_BYTES), Ok(()));
    check(long(MAX_GRAMMAR_BYTES + 1), Err("guided_json"));
}

#[test]
fn empty_token_prompts_are_refused() {
    check(
        with(|f| f.prompt = Prompt::Tokens(Vec::new())),
        Err("prompt"),
    );
    check(with(|f| f.prompt = Prompt::Tokens(vec![1])), Ok(()));
    check(with(|f| f.prompt = Prompt::Text(String::new())), Ok(()));
}
