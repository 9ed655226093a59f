//! `embed` and `rerank` of text-embeddings-inference.

use mortise_http::Problem;
use mortise_service::{EmbeddingInput, EmbeddingRequest, PromptUse, ScoreRequest};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call, Ranked, ranked};
use crate::fields::{FieldPath, FieldReader, RouteFields, TextOrTexts, words};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct Shared {
    /// Not a field of that server, which has one model.
    model: String,
    truncate: Option<bool>,
    truncation_direction: Option<Direction>,
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
    inputs: TextOrTexts,
    normalize: Option<bool>,
    dimensions: Option<u32>,
    /// Name of the model's instruction for the texts.
    prompt_name: Option<String>,
}

impl Shared {
    /// Refuse what cannot be honoured.
    fn check(&self, reader: &mut FieldReader) -> Result<(), Problem> {
        if self.truncation_direction == Some(Direction::Left) {
            let why = "long texts lose their end: only `Right` is known";
            reader.unsupported(&FieldPath::from("truncation_direction"), why)?;
        }
        Ok(())
    }
}

/// The fields of `POST /rerank`, for the contract.
pub(super) fn rerank_fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<Shared>()
        .with::<RerankFields>()
}

/// The fields of `POST /embed`, for the contract.
pub(super) fn embed_fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .with::<Shared>()
        .with::<EmbedFields>()
}

pub(super) async fn rerank(mut call: Call<'_>) -> Result<Answer, Problem> {
    let mut reader = FieldReader::new(call.object(), call.state.unsupported);
    let shared: Shared = reader.read()?;
    shared.check(&mut reader)?;
    let fields: RerankFields = reader.read()?;
    let ignored = reader.finish(|_| false)?;
    if fields.texts.is_empty() {
        return Err(Problem::invalid(
            "texts",
            "`texts` must hold at least one text",
        ));
    }
    let compared = call
        .score(ScoreRequest {
            model: shared.model,
            queries: vec![fields.query],
            texts: fields.texts.clone(),
            truncate: shared.truncate.unwrap_or(false),
            raw: (fields.raw_scores == Some(true)).then_some("raw_scores"),
            search: true,
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
    let rows = ranked(&compared.values, None).into_iter().map(row);
    Ok(Answer {
        body: rows.collect::<Vec<Value>>().into(),
        headers: compared.admission.allowance().headers.clone(),
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
    let inputs = fields.inputs.0.into_iter().map(EmbeddingInput::Text);
    let request = EmbeddingRequest {
        model: shared.model,
        inputs: inputs.collect(),
        dimensions: fields.dimensions,
        truncate: shared.truncate.unwrap_or(false),
        prompt: fields
            .prompt_name
            .map_or(PromptUse::Usual, PromptUse::Named),
        allow_remote: false,
    };
    let made = call.embed(request).await?;
    Ok(Answer {
        body: json!(made.vectors),
        headers: made.admission.allowance().headers.clone(),
        ignored,
    })
}
