//! `score` as vLLM has it: one text against many, or pairs of texts.

use std::time::{SystemTime, UNIX_EPOCH};

use mortise_http::Problem;
use mortise_service::ScoreRequest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call};
use crate::fields::{FieldPath, FieldReader, RouteFields, TextOrTexts, missing, refused_fields};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct TextFields {
    model: String,
    text_1: Option<TextOrTexts>,
    text_2: Option<TextOrTexts>,
    /// Names that vLLM has for the two as well.
    queries: Option<TextOrTexts>,
    documents: Option<TextOrTexts>,
    truncate_prompt_tokens: Option<i64>,
    /// True if the logistic function is applied to scores, which are then from 0 to 1.
    use_activation: Option<bool>,
    /// Older name of `use_activation`.
    activation: Option<bool>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        priority: "score requests have one priority",
        mm_processor_kwargs: "this server's models read text only",
        softmax: "a score is that of one pair, and there is nothing to weigh it against",
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<TextFields>()
        .refusing(Refused::REASONS)
}

pub(super) async fn score(mut call: Call<'_>) -> Result<Answer, Problem> {
    let mut reader = FieldReader::new(call.object(), call.state.unsupported);
    let fields: TextFields = reader.read()?;
    reader.read::<Refused>()?.refuse(&mut reader)?;
    if fields
        .truncate_prompt_tokens
        .is_some_and(|tokens| tokens != -1)
    {
        let why = "texts are cut to the model's context (-1), or not at all";
        reader.unsupported(&FieldPath::from("truncate_prompt_tokens"), why)?;
    }
    let ignored = reader.finish(|_| false)?;
    let first = one_of(fields.text_1, fields.queries, "text_1")?;
    let second = one_of(fields.text_2, fields.documents, "text_2")?;
    let (many, others) = (first.len(), second.len());
    if many != 1 && many != others {
        let text = format!(
            "`text_1` has {many} texts and `text_2` {others}; give one text in `text_1`, or as many \
             in both"
        );
        return Err(Problem::invalid("text_1", text));
    }
    let raw = [
        ("use_activation", fields.use_activation),
        ("activation", fields.activation),
    ];
    let raw = raw.into_iter().find(|(_, given)| *given == Some(false));
    let request = ScoreRequest {
        model: fields.model,
        queries: first,
        texts: second,
        truncate: fields.truncate_prompt_tokens.is_some(),
        raw: raw.map(|(name, _)| name),
        search: false,
    };
    let made = call.score(request).await?;
    let data = made.values.iter().enumerate();
    let data =
        data.map(|(index, score)| json!({"index": index, "object": "score", "score": score}));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let body = json!({
        "id": format!("score-{}", uuid::Uuid::new_v4().simple()),
        "object": "list",
        "created": now.map_or(0, |elapsed| elapsed.as_secs()),
        "model": made.model,
        "data": data.collect::<Vec<Value>>(),
        "usage": {
            "prompt_tokens": made.usage.prompt_tokens,
            "total_tokens": made.usage.prompt_tokens,
        },
    });
    Ok(Answer {
        body,
        headers: made.admission.allowance().headers.clone(),
        ignored,
    })
}

/// Texts under one of their two names.
fn one_of(
    one: Option<TextOrTexts>,
    other: Option<TextOrTexts>,
    name: &str,
) -> Result<Vec<String>, Problem> {
    match (one, other) {
        (Some(_), Some(_)) => {
            let text = format!("`{name}` is given under two names; give one of them");
            Err(Problem::invalid(name, text))
        }
        (None, None) => Err(missing(&FieldPath::from(name))),
        (Some(TextOrTexts(texts)), None) | (None, Some(TextOrTexts(texts))) => {
            match texts.is_empty() {
                true => Err(Problem::invalid(
                    name,
                    format!("`{name}` must hold at least one text"),
                )),
                false => Ok(texts),
            }
        }
    }
}
