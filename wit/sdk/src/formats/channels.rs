//! Readers of answers that are made of messages, each with its own header.

use super::spec::Tags;
use super::tags;
use crate::output_parser::Event;
use crate::stream::{CallKeys, Text};

/// Messages of Harmony: `<|start|>assistant<|channel|>CHANNEL to=RECIPIENT<|message|>…<|end|>`. The prompt
/// ends behind `assistant`, and the recipient may stand before the channel.
pub(super) async fn harmony(text: &mut Text) {
    const ENDS: [&str; 5] = [
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|start|>",
        "<|channel|>",
    ];
    let mut header = text.is_at("<|start|>").await
        || text.is_at("<|channel|>").await
        || text.is_at(" to=").await;
    loop {
        if header {
            harmony_message(text).await;
        }
        header = match text.content_until_any(&ENDS).await {
            None => return,
            // The header begins with the mark, and is content with it if it turns out to be none.
            Some(3 | 4) => true,
            Some(_) => {
                text.drop_held();
                text.is_at(" to=").await
            }
        };
    }
}

/// One message from its header on: what is for the user is left to be passed on. `None` for what is no
/// header or a call of nothing declared.
async fn harmony_message(text: &mut Text) -> Option<()> {
    let (header, _) = text.name_until(&["<|message|>"]).await?;
    let recipient = header
        .split_once("to=")
        .map(|(_, rest)| rest.split([' ', '<']).next().unwrap_or_default());
    match recipient {
        Some(recipient) => {
            let name = recipient.strip_prefix("functions.").unwrap_or(recipient);
            text.json_arguments(name, None).await
        }
        None if header.contains("analysis") => {
            text.drop_held();
            text.pass_until(&["<|end|>"], Event::Reasoning).await;
            text.drop_held();
            Some(())
        }
        None => {
            text.drop_held();
            Some(())
        }
    }
}

/// Messages of Muse: `<|start|>assistant to=RECIPIENT<|message|>…<|eom|>`, to itself what it thinks. The
/// prompt may end behind `assistant`.
pub(super) async fn muse(text: &mut Text, marks: &Tags) {
    const MESSAGE: &[&str] = &["<|message|>"];
    async fn body(text: &mut Text, header: &str) {
        text.drop_held();
        if header.contains("to=self") {
            text.pass_until(&["<|eom|>", "<|eot|>"], Event::Reasoning)
                .await;
            text.drop_held();
        }
    }
    let here = text.position();
    if text.follows("to=").await
        && let Some((recipient, _)) = text.name_until(MESSAGE).await
    {
        body(text, &format!("to={recipient}")).await;
    } else {
        text.back_to(here);
    }
    let all = [
        marks.sections[0].0,
        marks.call.0,
        "<|start|>",
        "<|eom|>",
        "<|eot|>",
    ];
    while let Some(mark) = text.content_until_any(&all).await {
        match mark {
            0 | 1 => tags::section(text, marks, mark).await,
            2 => {
                if let Some((header, _)) = text.name_until(MESSAGE).await {
                    body(text, &header).await;
                }
            }
            _ => text.drop_held(),
        }
    }
}

/// Messages of Inkling: `<|message_model|>`, a name if it is a call, and what the message holds.
pub(super) async fn inkling(text: &mut Text) {
    const CALL: CallKeys = CallKeys {
        name: &["name"],
        arguments: &["args", "arguments"],
        id: &["id"],
        only: false,
    };
    async fn message(text: &mut Text) -> Option<()> {
        if text.follows("<|content_thinking|>").await {
            text.drop_held();
            text.pass_until(&["<|end_message|>"], Event::Reasoning)
                .await;
            text.drop_held();
            return Some(());
        }
        if text.follows("<|content_text|>").await {
            text.drop_held();
            return Some(());
        }
        let (name, _) = text.name_until(&["<|content_invoke_tool_json|>"]).await?;
        text.tool(name.trim())?;
        text.json_call(CALL).await?;
        text.close("<|end_message|>").await;
        Some(())
    }
    message(text).await;
    while let Some(mark) = text
        .content_until_any(&["<|message_model|>", "<|end_message|>"])
        .await
    {
        match mark {
            0 => {
                message(text).await;
            }
            _ => text.drop_held(),
        }
    }
}
