use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mortise_models::{Script, ScriptLine};
use mortise_plugin::{Fault, PluginError, ServerTool, ToolAnswer, ToolCaller, ToolChoice};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::{one, until};
use crate::fakes::{
    Collected, FakeTemplate, ask, call, chat, conversation_model, fault, functions, loaded, model,
    rename,
};
use crate::plugins::{PluginFuture, RequestId, RunTool};
use crate::{
    FinishReason, PluginRoutes, Prompt, Request, RequestFields, RoutingKey, ServedModel, Service,
    ServiceConfig, ServiceError, SetupError, ToolLimits, ToolOutcome,
};

/// Tools that do what their names say, and remember with what they were called.
struct FakeTools {
    required: bool,
    calls: Mutex<Vec<(String, String, ToolCaller)>>,
    meeting: Barrier,
    dropped: Arc<AtomicUsize>,
}

impl FakeTools {
    fn new(required: bool) -> Arc<Self> {
        Arc::new(Self {
            required,
            calls: Mutex::default(),
            meeting: Barrier::new(2),
            dropped: Arc::default(),
        })
    }

    /// Names and arguments, in the order of the calls.
    fn calls(&self) -> Vec<(String, String)> {
        let calls = self.calls.lock().expect("lock");
        let calls = calls.iter();
        calls
            .map(|(name, arguments, _)| (name.clone(), arguments.clone()))
            .collect()
    }
}

/// Counts what is given up.
struct Guard(Arc<AtomicUsize>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl RunTool for FakeTools {
    fn declarations(&self) -> Vec<ServerTool> {
        let names = ["add", "refuse", "break", "meet", "hang"];
        let declaration = |name: &str| ServerTool {
            name: name.to_owned(),
            description: format!("can {name}"),
            parameters: json!({"type": "object"}),
        };
        names.map(declaration).into()
    }

    fn serves(&self, key: &RoutingKey<'_>) -> bool {
        key.model == Some("demo")
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn call<'a>(
        &'a self,
        _: &'a RequestId,
        caller: &'a ToolCaller,
        name: &'a str,
        arguments: &'a str,
    ) -> PluginFuture<'a, Result<ToolAnswer, PluginError>> {
        let noted = (name.to_owned(), arguments.to_owned(), caller.clone());
        self.calls.lock().expect("lock").push(noted);
        Box::pin(async move {
            match name {
                "add" => Ok(ToolAnswer::Result(format!("sum of {arguments}"))),
                "refuse" => Ok(ToolAnswer::Refused("not so".to_owned())),
                "meet" => {
                    self.meeting.wait().await;
                    Ok(ToolAnswer::Result(format!("met {arguments}")))
                }
                "hang" => {
                    let _guard = Guard(Arc::clone(&self.dropped));
                    std::future::pending().await
                }
                _ => Err(fault("tool.call", Fault::Stack)),
            }
        })
    }
}

/// Speaks by what the prompt holds; the first line that fits counts.
fn script(lines: &[(&str, &str)]) -> Script {
    let line = |(when, say): &(&str, &str)| ScriptLine {
        when: (*when).to_owned(),
        say: (*say).to_owned(),
    };
    Script {
        lines: lines.iter().map(line).collect(),
        ..Script::default()
    }
}

fn fields(tools: &[&str]) -> RequestFields {
    RequestFields {
        server_tools: tools.iter().map(|name| (*name).to_owned()).collect(),
        ..chat("question")
    }
}

fn service(model: ServedModel, tools: &Arc<FakeTools>, limits: ToolLimits) -> Service {
    let config = ServiceConfig {
        tools: limits,
        ..ServiceConfig::default()
    };
    let tools: Arc<dyn RunTool> = Arc::clone(tools) as _;
    Service::new(config, vec![model], Vec::new(), &[tools], Vec::new()).expect("a good setup")
}

async fn answer(
    lines: &[(&str, &str)],
    tools: &Arc<FakeTools>,
    fields: RequestFields,
) -> Result<Collected, ServiceError> {
    let service = service(model(script(lines)), tools, ToolLimits::default());
    ask(&service, fields).await
}

#[tokio::test]
async fn a_model_that_runs_elsewhere_goes_on_with_the_result_of_a_tool() {
    let tools = FakeTools::new(true);
    let lines = [
        ("sum of", "The sum is known."),
        ("question", "Let me see.<call>add {\"a\":1}</call>"),
    ];
    let served = conversation_model(script(&lines));
    let service = service(served, &tools, ToolLimits::default());
    let all = ask(&service, fields(&["add"])).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.content, "Let me see.\n\nThe sum is known.");
    assert_eq!(choice.finish, Some(FinishReason::Stop));
    assert!(choice.calls.is_empty(), "the client has nothing to answer");
    let [called] = &choice.server_calls[..] else {
        panic!("{:?}", choice.server_calls);
    };
    let outcome = (called.outcome, called.text.as_str());
    assert_eq!(outcome, (ToolOutcome::Answered, "sum of {\"a\":1}"));
    assert_eq!(tools.calls(), [("add".to_owned(), "{\"a\":1}".to_owned())]);
    let usage = all.usage.expect("completed");
    assert!(usage.prompt_tokens > 2, "the prompts of both rounds count");
}

#[tokio::test]
async fn a_tool_is_run_and_the_model_goes_on_with_its_result() {
    let tools = FakeTools::new(true);
    let template = Arc::new(FakeTemplate::default());
    let mut served = model(script(&[
        ("sum of", "The sum is known."),
        ("question", "Let me see.<call>add {\"a\":1}</call>"),
    ]));
    loaded(&mut served).plugins.chat_template = PluginRoutes::one(template.clone());
    let service = service(served, &tools, ToolLimits::default());
    let all = ask(&service, fields(&["add"])).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.content, "Let me see.\n\nThe sum is known.");
    assert_eq!(choice.finish, Some(FinishReason::Stop));
    assert!(choice.calls.is_empty(), "the client has nothing to answer");
    let [called] = &choice.server_calls[..] else {
        panic!("{:?}", choice.server_calls);
    };
    assert_eq!(
        (called.name.as_str(), called.outcome),
        ("add", ToolOutcome::Answered)
    );
    assert_eq!(called.text, "sum of {\"a\":1}");

    let (name, _, caller) = tools.calls.lock().expect("lock").remove(0);
    assert_eq!((name.as_str(), caller.model.as_str()), ("add", "demo"));
    assert_eq!(
        (caller.call_id, caller.subject.as_str()),
        (called.id.clone(), "anonymous")
    );

    let inputs = template.inputs.lock().expect("lock");
    let [first, second] = &inputs[..] else {
        panic!("{inputs:?}");
    };
    let declared: Value =
        serde_json::from_str(first.tools.as_deref().expect("tools")).expect("JSON");
    assert_eq!(declared[0]["function"]["name"], "add");
    assert_eq!(declared[0]["function"]["description"], "can add");
    assert_eq!(first.tools, second.tools, "the prompts begin alike");
    let messages: Value = serde_json::from_str(&second.messages).expect("JSON");
    assert_eq!(messages[1]["role"], "assistant");
    assert_eq!(messages[1]["content"], "Let me see.");
    assert_eq!(messages[1]["tool_calls"][0]["id"], called.id.as_str());
    assert_eq!(
        messages[1]["tool_calls"][0]["function"]["arguments"],
        "{\"a\":1}"
    );
    assert_eq!(messages[2]["role"], "tool");
    assert_eq!(messages[2]["tool_call_id"], called.id.as_str());
    assert_eq!(messages[2]["content"], "sum of {\"a\":1}");
}

#[tokio::test]
async fn usage_counts_all_rounds() {
    let tools = FakeTools::new(true);
    let lines = [("sum of", "Done."), ("question", "<call>add {}</call>")];
    let with = answer(&lines, &tools, fields(&["add"]))
        .await
        .expect("an answer");
    let with = with.usage.expect("usage");
    let without = answer(&[("question", "Done.")], &tools, fields(&["add"])).await;
    let without = without.expect("an answer").usage.expect("usage");
    assert!(
        with.prompt_tokens > 2 * without.prompt_tokens,
        "{with:?} {without:?}"
    );
    assert!(with.completion_tokens > without.completion_tokens);
}

#[tokio::test]
async fn calls_of_one_round_run_side_by_side() {
    let tools = FakeTools::new(true);
    let lines = [
        ("met 2", "Both met."),
        ("question", "<call>meet 1</call><call>meet 2</call>"),
    ];
    // Each waits for the other.
    let all = answer(&lines, &tools, fields(&["meet"]))
        .await
        .expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.content, "Both met.");
    let texts: Vec<&str> = choice
        .server_calls
        .iter()
        .map(|call| call.text.as_str())
        .collect();
    assert_eq!(texts, ["met 1", "met 2"], "told in the order of the calls");
}

#[tokio::test]
async fn a_call_of_the_clients_tool_ends_the_turn() {
    let tools = FakeTools::new(true);
    let mixed = RequestFields {
        tools: functions(&["own"]),
        ..fields(&["add"])
    };
    let lines = [("question", "<call>add {}</call><call>own {\"b\":2}</call>")];
    let all = answer(&lines, &tools, mixed).await.expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.finish, Some(FinishReason::ToolCalls));
    let [(_, name, arguments)] = &choice.calls[..] else {
        panic!("{:?}", choice.calls);
    };
    assert_eq!((name.as_str(), arguments.as_str()), ("own", "{\"b\":2}"));
    assert!(tools.calls().is_empty(), "nobody would see the result");
}

#[tokio::test]
async fn what_a_request_has_not_opted_in_to_is_never_run() {
    let tools = FakeTools::new(true);
    let lines = [("question", "<call>add {}</call>")];
    for names in [&[][..], &["refuse"]] {
        let all = answer(&lines, &tools, fields(names))
            .await
            .expect("an answer");
        assert_eq!(one(&all).finish, Some(FinishReason::ToolCalls));
    }
    let forbidden = RequestFields {
        tool_choice: Some(ToolChoice::None),
        ..fields(&["add"])
    };
    let template = Arc::new(FakeTemplate::default());
    let mut served = model(script(&[("question", "No.")]));
    loaded(&mut served).plugins.chat_template = PluginRoutes::one(template.clone());
    let service = service(served, &tools, ToolLimits::default());
    ask(&service, forbidden).await.expect("an answer");
    assert_eq!(template.inputs.lock().expect("lock")[0].tools, None);
    assert!(tools.calls().is_empty());
}

#[tokio::test]
async fn rounds_and_calls_are_limited() {
    let tools = FakeTools::new(true);
    let lines = [("question", "<call>add {}</call><call>refuse {}</call>")];
    let limits = ToolLimits {
        rounds: 2,
        calls: 3,
        ..ToolLimits::default()
    };
    let service = service(model(script(&lines)), &tools, limits);
    let all = ask(&service, fields(&["add", "refuse"]))
        .await
        .expect("an answer");
    let choice = one(&all);
    assert_eq!(choice.finish, Some(FinishReason::Length));
    let outcomes: Vec<ToolOutcome> = choice
        .server_calls
        .iter()
        .map(|call| call.outcome)
        .collect();
    use ToolOutcome::{Answered, NotRun, Refused};
    assert_eq!(
        outcomes,
        [Answered, Refused, Answered, NotRun, NotRun, NotRun]
    );
    assert!(choice.server_calls[3].text.contains("at most 3 tool calls"));
    assert!(choice.server_calls[4].text.contains("at most 2 rounds"));
    assert_eq!(tools.calls().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_told_to_the_model_and_a_fault_is_told_as_its_binding_says() {
    let lines = [
        ("error: not so", "It was refused."),
        ("error: the tool failed", "It failed."),
        ("refuse it", "<call>refuse {}</call>"),
        ("question", "<call>break {}</call>"),
    ];
    let tools = FakeTools::new(false);
    let refused = RequestFields {
        server_tools: vec!["refuse".to_owned()],
        ..chat("refuse it")
    };
    let all = answer(&lines, &tools, refused).await.expect("an answer");
    assert_eq!(one(&all).content, "It was refused.");
    let all = answer(&lines, &tools, fields(&["break"]))
        .await
        .expect("an answer");
    assert_eq!(one(&all).content, "It failed.");
    assert_eq!(one(&all).server_calls[0].outcome, ToolOutcome::Failed);

    let required = FakeTools::new(true);
    let all = answer(&lines, &required, fields(&["break"]))
        .await
        .expect("a start");
    let error = all.error.expect("the failure of the plugin");
    assert!(
        matches!(&error, ServiceError::Plugin(error) if error.fault == Fault::Stack),
        "{error}"
    );
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_given_up() {
    let tools = FakeTools::new(true);
    let lines = [
        ("time that an answer has", "Too slow."),
        ("question", "<call>hang {}</call>"),
    ];
    let limits = ToolLimits {
        time: Duration::from_millis(20),
        ..ToolLimits::default()
    };
    let service = service(model(script(&lines)), &tools, limits);
    let all = ask(&service, fields(&["hang"])).await.expect("an answer");
    assert_eq!(one(&all).content, "Too slow.");
    assert_eq!(tools.dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_answer_that_is_dropped_gives_up_its_tools() {
    let tools = FakeTools::new(true);
    let lines = [("question", "<call>hang {}</call>")];
    let service = service(model(script(&lines)), &tools, ToolLimits::default());
    let request = Request::check(fields(&["hang"])).expect("a good request");
    let mut answer = service.start(call(), request).await.expect("an answer");
    tokio::select! {
        event = answer.next() => panic!("{event:?}"),
        () = until("the call", || tools.calls().len() == 1) => {}
    }
    drop(answer);
    until("the end of the call", || {
        tools.dropped.load(Ordering::Relaxed) == 1
    })
    .await;
}

#[tokio::test]
async fn the_limit_on_tokens_holds_over_all_rounds() {
    let tools = FakeTools::new(true);
    let lines = [
        ("sum of", "the the the the the the"),
        ("question", "<call>add {}</call>"),
    ];
    let unlimited = answer(&lines, &tools, fields(&["add"]))
        .await
        .expect("an answer");
    let spent = unlimited.usage.expect("usage").completion_tokens;
    let limited = RequestFields {
        max_tokens: Some(spent - 3),
        ..fields(&["add"])
    };
    let all = answer(&lines, &tools, limited).await.expect("an answer");
    assert_eq!(one(&all).finish, Some(FinishReason::Length));
    assert_eq!(all.usage.expect("usage").completion_tokens, spent - 3);
}

#[tokio::test]
async fn every_choice_has_rounds_of_its_own() {
    let tools = FakeTools::new(true);
    let lines = [("sum of", "Done."), ("question", "<call>add {}</call>")];
    let two = RequestFields {
        n: Some(2),
        ..fields(&["add"])
    };
    let all = answer(&lines, &tools, two).await.expect("an answer");
    assert_eq!(all.choices.len(), 2);
    for choice in &all.choices {
        assert_eq!(choice.content, "Done.");
        assert_eq!(
            (choice.server_calls.len(), choice.server_calls[0].index),
            (1, 0)
        );
    }
}

fn refusal(result: Result<Collected, ServiceError>) -> (String, String) {
    match result {
        Err(ServiceError::Invalid { param, message, .. }) => (param.unwrap_or_default(), message),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn names_that_stand_for_no_tool_are_refused() {
    let tools = FakeTools::new(true);
    let ask = async |fields| refusal(answer(&[], &tools, fields).await);
    let (param, message) = ask(fields(&["add", "ghost"])).await;
    assert_eq!(param, "server_tools[1]");
    assert!(
        message.contains("`ghost`") && message.contains("add, break"),
        "{message}"
    );
    let (param, message) = ask(fields(&["add", "add"])).await;
    assert_eq!(
        (param.as_str(), message.contains("twice")),
        ("server_tools[1]", true)
    );
    let (param, message) = ask(RequestFields {
        tools: functions(&["add"]),
        ..fields(&["add"])
    })
    .await;
    assert_eq!(param, "server_tools[0]");
    assert!(message.contains("`add` is declared twice"), "{message}");
    let (param, _) = ask(RequestFields {
        prompt: Prompt::Text("question".to_owned()),
        ..fields(&["add"])
    })
    .await;
    assert_eq!(param, "server_tools");

    let mut other = model(script(&[]));
    rename(&mut other, "other", &[]);
    let service = service(other, &tools, ToolLimits::default());
    let elsewhere = RequestFields {
        model: "other".to_owned(),
        ..fields(&["add"])
    };
    let (_, message) = refusal(crate::fakes::ask(&service, elsewhere).await);
    assert!(
        message.contains("no plugin offers this request any"),
        "{message}"
    );
}

#[tokio::test]
async fn two_plugins_cannot_offer_tools_of_one_name() {
    let tools: [Arc<dyn RunTool>; 2] = [FakeTools::new(true), FakeTools::new(true)];
    let made = Service::new(
        ServiceConfig::default(),
        Vec::new(),
        Vec::new(),
        &tools,
        Vec::new(),
    );
    let error = made.err().expect("a refusal");
    assert!(matches!(error, SetupError::Tools(_)), "{error}");
}
