//! `score` as vLLM has it: one text against many, or pairs of texts.

use std::time::{SystemTime, UNIX_EPOCH};

use mortise_http::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call, cosine::cosine};
use crate::fields::{FieldPath, FieldReader, Fields, Texts, missing, refused_fields};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct TextFields {
    model: String,
    text_1: Option<Texts>,
    text_2: Option<Texts>,
    /// Names that vLLM has for the two as well.
    queries: Option<Texts>,
    documents: Option<Texts>,
    truncate_prompt_tokens: Option<i64>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        priority: "score requests have one priority",
        mm_processor_kwargs: "this server's models read text only",
        activation: "scores are cosines",
        use_activation: "scores are cosines",
        softmax: "scores are cosines",
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> Fields {
    Fields::new(mode)
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
    let texts = first.into_iter().chain(second).collect();
    let truncate = fields.truncate_prompt_tokens.is_some();
    let made = call.embed(fields.model, texts, truncate, None).await?;
    let (first, second) = made.vectors.split_at(many.min(made.vectors.len()));
    let data = second.iter().enumerate().map(|(index, other)| {
        let one = first
            .get(index)
            .or(first.first())
            .map_or(&[][..], Vec::as_slice);
        json!({"index": index, "object": "score", "score": cosine(one, other)})
    });
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
fn one_of(one: Option<Texts>, other: Option<Texts>, name: &str) -> Result<Vec<String>, Problem> {
    match (one, other) {
        (Some(_), Some(_)) => {
            let text = format!("`{name}` is given under two names; give one of them");
            Err(Problem::invalid(name, text))
        }
        (None, None) => Err(missing(&FieldPath::from(name))),
        (Some(Texts(texts)), None) | (None, Some(Texts(texts))) => match texts.is_empty() {
            true => Err(Problem::invalid(
                name,
                format!("`{name}` must hold at least one text"),
            )),
            false => Ok(texts),
        },
    }
}
