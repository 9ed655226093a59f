//! Cost of the default plugins for a request, before its first token.

use std::error::Error;
use std::sync::Arc;

use mortise_plugin::{
    Binding, CallContext, ChatTemplate, ControlToken, Facts, HostConfig, Kind, ModelDescription,
    OutputParser, ParserSetup, PluginHost, Policy, TemplateInput,
};

use crate::{Times, default_plugin};

const LOADS: usize = 100;
const CALLS: usize = 5000;

/// A template with tools, as many models have it.
const TEMPLATE: &str = include_str!("../../../../tests/templates/hermes-tools.jinja");

pub(crate) async fn measure() -> Result<(), Box<dyn Error>> {
    println!("| default plugins | p50 | p99 |\n|---|---|---|");
    let host = PluginHost::new(HostConfig::default())?;
    for source in mortise_bundle::plugins() {
        let name = host.load(source.clone())?.name().to_owned();
        let loads = Times::of(LOADS, async || host.load(source.clone())).await?;
        loads.print(&format!("load `{name}`"));
    }

    let context = CallContext::new("cost");
    let template = default_plugin(&host, Kind::ChatTemplate)?;
    let warm = ChatTemplate::bind(&host, &template, binding()).await?;
    let long = conversation(20);
    let renders = Times::of(CALLS, async || warm.render(&context, long.clone()).await).await?;
    renders.print(&format!(
        "render 20 messages of {} bytes",
        long.messages.len()
    ));
    let mut once = binding();
    once.limits.recycle_after_uses = 1;
    let fresh = ChatTemplate::bind(&host, &template, once).await?;
    let renders = Times::of(CALLS, async || fresh.render(&context, long.clone()).await).await?;
    renders.print("the same on a fresh instance each time");

    let policy = default_plugin(&host, Kind::Policy)?;
    let policy = Policy::bind(&host, &policy, Binding::default()).await?;
    let parser = default_plugin(&host, Kind::OutputParser)?;
    let parser = OutputParser::bind(&host, &parser, binding()).await?;
    let setup = ParserSetup {
        tools: "[]".to_owned(),
        ..ParserSetup::default()
    };
    let plain = conversation(3);
    let mut sessions = 0;
    let first = Times::of(CALLS, async || {
        policy.authorize(&context, facts()).await?;
        warm.render(&context, plain.clone()).await?;
        parser.constraint(&context, &setup, None).await?;
        let session = parser.open(&context, &setup).await?;
        sessions += usize::from(session.is_some());
        Ok::<_, mortise_plugin::PluginError>(())
    });
    first
        .await?
        .print("all calls for a plain chat of 3 messages");
    println!("\nanswers of plain chats that have a session of the parser: {sessions}");
    Ok(())
}

fn binding() -> Binding {
    let control = |(id, text): (u32, &str)| ControlToken {
        id,
        text: text.to_owned(),
        special: true,
    };
    Binding {
        model: Some(Arc::new(ModelDescription {
            name: "cost".to_owned(),
            architecture: "qwen2".to_owned(),
            chat_template: Some(TEMPLATE.to_owned()),
            response_template: None,
            bos_token: String::new(),
            eos_token: "<|im_end|>".to_owned(),
            control_tokens: [(0, "<|im_start|>"), (1, "<|im_end|>")].map(control).into(),
        })),
        ..Binding::default()
    }
}

/// Conversation of `count` messages, of user and assistant in turns.
fn conversation(count: usize) -> TemplateInput {
    let text =
        "What is the weather like in the towns along the river, and in the hills? ".repeat(4);
    let message = |number: usize| {
        let role = ["user", "assistant"][number % 2];
        format!(r#"{{"role": "{role}", "content": "{number}: {text}"}}"#)
    };
    let messages: Vec<String> = (0..count).map(message).collect();
    TemplateInput {
        messages: format!("[{}]", messages.join(", ")),
        add_generation_prompt: true,
        today: "2026-01-31".to_owned(),
        ..TemplateInput::default()
    }
}

fn facts() -> Facts {
    Facts {
        request_id: "cost".to_owned(),
        route: "/v1/chat/completions".to_owned(),
        method: "POST".to_owned(),
        model: Some("cost".to_owned()),
        ..Facts::default()
    }
}
