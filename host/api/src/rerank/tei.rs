//! `embed` and `rerank` of text-embeddings-inference.

use mortise_http::Problem;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call, Comparison, Ranked, ranked};
use crate::fields::{FieldPath, FieldReader, Fields, Texts, words};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Shared {
    /// Not a field of that server, which has one model.
    model: String,
    truncate: Option<bool>,
    truncation_direction: Option<Direction>,
    prompt_name: Option<String>,
}

words! {
    /// End at which long texts are cut.
    Direction {
        Left = "Left",
        Right = "Right",
    }
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct RerankFields {
    query: String,
    texts: Vec<String>,
    raw_scores: Option<bool>,
    return_text: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct EmbedFields {
    inputs: Texts,
    normalize: Option<bool>,
    dimensions: Option<u32>,
}

impl Shared {
    /// Refuse what cannot be honoured.
    fn check(&self, reader: &mut FieldReader) -> Result<(), Problem> {
        if self.truncation_direction == Some(Direction::Left) {
            let why = "long texts lose their end: only `Right` is known";
            reader.unsupported(&FieldPath::from("truncation_direction"), why)?;
        }
        if self.prompt_name.is_some() {
            let why = "this server adds no prompts; put the text before the input";
            reader.unsupported(&FieldPath::from("prompt_name"), why)?;
        }
        Ok(())
    }
}

/// The fields of `POST /rerank`, for the contract.
pub(super) fn rerank_fields(mode: Unsupported) -> Fields {
    Fields::new(mode).with::<Shared>().with::<RerankFields>()
}

/// The fields of `POST /embed`, for the contract.
pub(super) fn embed_fields(mode: Unsupported) -> Fields {
    Fields::new(mode).with::<Shared>().with::<EmbedFields>()
}

pub(super) async fn rerank(mut call: Call<'_>) -> Result<Answer, Problem> {
    let mut reader = FieldReader::new(call.object(), call.state.unsupported);
    let shared: Shared = reader.read()?;
    shared.check(&mut reader)?;
    let fields: RerankFields = reader.read()?;
    if fields.raw_scores == Some(true) {
        let why = "scores are cosines, and there are no raw ones";
        reader.unsupported(&FieldPath::from("raw_scores"), why)?;
    }
    let ignored = reader.finish(|_| false)?;
    if fields.texts.is_empty() {
        return Err(Problem::invalid(
            "texts",
            "`texts` must hold at least one text",
        ));
    }
    let compared = call
        .compare(Comparison {
            model: shared.model,
            query: fields.query,
            texts: fields.texts.clone(),
            truncate: shared.truncate.unwrap_or(false),
        })
        .await?;
    let shown = fields.return_text.unwrap_or(false);
    let row = |Ranked { index, score }| {
        let mut row = json!({"index": index, "score": score});
        if let Some(text) = fields.texts.get(index).filter(|_| shown) {
            row["text"] = json!(text);
        }
        row
    };
    let rows = ranked(&compared.scores, None).into_iter().map(row);
    Ok(Answer {
        body: rows.collect::<Vec<Value>>().into(),
        headers: compared.headers,
        ignored,
    })
}

pub(super) async fn embed(mut call: Call<'_>) -> Result<Answer, Problem> {
    let mut reader = FieldReader::new(call.object(), call.state.unsupported);
    let shared: Shared = reader.read()?;
    shared.check(&mut reader)?;
    let fields: EmbedFields = reader.read()?;
    if fields.normalize == Some(false) {
        let why = "vectors have the length that the model gives them, which is 1 for most";
        reader.unsupported(&FieldPath::from("normalize"), why)?;
    }
    let ignored = reader.finish(|_| false)?;
    let truncate = shared.truncate.unwrap_or(false);
    let request = call.embed(shared.model, fields.inputs.0, truncate, fields.dimensions);
    let made = request.await?;
    Ok(Answer {
        body: json!(made.vectors),
        headers: made.admission.allowance().headers.clone(),
        ignored,
    })
}
