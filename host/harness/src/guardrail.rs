//! Questions to a guardrail, JSON in and JSON out.

use std::sync::Arc;

use anyhow::bail;
use mortise_plugin::{AnswerPart, Finish, GuardContext, GuardVerdict};
use mortise_service::{GuardAnswer, RequestId};
use serde::Deserialize;
use serde_json::{Value, json};

/// Input of a guardrail: messages that are asked, or texts of an answer in their order.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardRequest {
    #[serde(default)]
    messages: Option<Value>,
    #[serde(default)]
    answer: Vec<Piece>,
    /// Text waits for the verdict.
    #[serde(default = "yes")]
    holds: bool,
    #[serde(default = "somebody")]
    subject: String,
    #[serde(default)]
    tenant: Option<String>,
}

/// Piece of an answer: one of its fields.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Piece {
    Content(String),
    Reasoning(String),
    CallArguments {
        index: u32,
        name: String,
        text: String,
    },
}

fn yes() -> bool {
    true
}

fn somebody() -> String {
    "someone".to_owned()
}

/// Verdicts of the guardrails that are bound, of which there is one.
pub(crate) async fn ask(
    guardrails: &[Arc<dyn GuardAnswer>],
    request: &RequestId,
    model: &str,
    asked: GuardRequest,
) -> anyhow::Result<Value> {
    let Some(guardrail) = guardrails.first() else {
        bail!("no guardrail is bound");
    };
    let told = GuardContext {
        model: model.to_owned(),
        subject: asked.subject,
        tenant: asked.tenant,
        holds: asked.holds,
    };
    let traits = guardrail.traits();
    if let Some(messages) = asked.messages {
        if !asked.answer.is_empty() {
            bail!("the input has `messages` and `answer`; a guardrail is asked about one of them");
        }
        if !traits.input {
            return Ok(json!({"input": "not looked at"}));
        }
        let messages = messages.to_string();
        let said = guardrail.check_input(request, &told, &messages).await?;
        return Ok(json!({"input": verdict(said)}));
    }
    let Some(mut session) = guardrail.open(request, &told).await? else {
        return Ok(json!({"answer": "not looked at"}));
    };
    let mut verdicts = Vec::new();
    // Bytes that wait, and the part that they are of.
    let (mut held, mut last) = (0_u32, None);
    for piece in asked.answer {
        let (part, text, looks) = match piece {
            Piece::Content(text) => (AnswerPart::Content, text, traits.content),
            Piece::Reasoning(text) => (AnswerPart::Reasoning, text, traits.reasoning),
            Piece::CallArguments { index, name, text } => (
                AnswerPart::CallArguments { index, name },
                text,
                traits.call_arguments,
            ),
        };
        if !looks {
            verdicts.push(json!("not looked at"));
            continue;
        }
        if last.as_ref() != Some(&part) {
            held = 0;
        }
        let said = session.feed(&part, &text, held).await?;
        last = Some(part);
        held = match said {
            GuardVerdict::Undecided if asked.holds => held + u32::try_from(text.len())?,
            _ => 0,
        };
        let ends = matches!(said, GuardVerdict::Refuse(_));
        verdicts.push(verdict(said));
        if ends {
            return Ok(json!({"answer": verdicts}));
        }
    }
    let last = verdict(session.close(Finish::Stop, held).await?);
    Ok(json!({"answer": verdicts, "end": last}))
}

fn verdict(verdict: GuardVerdict) -> Value {
    match verdict {
        GuardVerdict::Pass => json!("pass"),
        GuardVerdict::Undecided => json!("undecided"),
        GuardVerdict::Replace(text) => json!({"replace": text}),
        GuardVerdict::Refuse(refusal) => {
            json!({"refuse": {"code": refusal.code, "message": refusal.message}})
        }
    }
}
