//! `rerank` in the shapes of Cohere (v1 and v2) and Jina, which differ in what they leave out.

use mortise_http::Problem;
use mortise_service::ScoreRequest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Answer, Call, ranked};
use crate::fields::{FieldPath, FieldReader, RouteFields, WordOr, missing, refused_fields};
use crate::unsupported::Unsupported;

#[derive(Debug, Deserialize)]
#[serde(expecting = "an object")]
struct DocumentFields {
    model: String,
    query: String,
    documents: Vec<WordOr<Map<String, Value>>>,
    top_n: Option<usize>,
    return_documents: Option<bool>,
    rank_fields: Option<Vec<String>>,
    truncation: Option<bool>,
}

refused_fields! {
    /// Fields that cannot be honoured.
    Refused {
        max_chunks_per_doc: "a document is one text here and is not split",
        max_tokens_per_doc: "a document is read up to the model's context",
        priority: "rerank requests have one priority",
    }
}

/// The fields of a request, for the contract.
pub(super) fn fields(mode: Unsupported) -> RouteFields {
    RouteFields::new(mode)
        .tolerating(is_document)
        .with::<DocumentFields>()
        .refusing(Refused::REASONS)
}

pub(super) async fn rerank(mut call: Call<'_>) -> Result<Answer, Problem> {
    let mut reader = FieldReader::new(call.object(), call.state.unsupported);
    let fields: DocumentFields = reader.read()?;
    reader.read::<Refused>()?.refuse(&mut reader)?;
    let ignored = reader.finish(is_document)?;
    if fields.top_n == Some(0) {
        return Err(Problem::invalid(
            "top_n",
            "`top_n` must be at least 1; it is 0",
        ));
    }
    let texts = texts(&fields.documents, fields.rank_fields.as_deref())?;
    let compared = call
        .score(ScoreRequest {
            model: fields.model,
            queries: vec![fields.query],
            texts,
            truncate: fields.truncation.unwrap_or(true),
            raw: None,
            search: true,
        })
        .await?;
    let returned = fields.return_documents.unwrap_or(false);
    let results = ranked(&compared.values, fields.top_n);
    let results = results.into_iter().map(|one| {
        let mut result = json!({"index": one.index, "relevance_score": one.score});
        if returned {
            result["document"] = match fields.documents.get(one.index) {
                Some(WordOr::Word(text)) => json!({"text": text}),
                Some(WordOr::Object(document)) => json!(document),
                None => Value::Null,
            };
        }
        result
    });
    let body = json!({
        "id": uuid::Uuid::new_v4().to_string(),
        "model": compared.model,
        "results": results.collect::<Vec<Value>>(),
        "usage": {
            "prompt_tokens": compared.usage.prompt_tokens,
            "total_tokens": compared.usage.prompt_tokens,
        },
        "meta": {
            "api_version": {"version": if call.route == super::RERANK_V2 { "2" } else { "1" }},
            "billed_units": {"search_units": 1},
        },
    });
    Ok(Answer {
        body,
        headers: compared.admission.allowance().headers.clone(),
        ignored,
    })
}

/// Members of documents are the caller's own.
fn is_document(path: &[crate::fields::PathSegment]) -> bool {
    use crate::fields::PathSegment::{Index, Key};
    matches!(path, [Key(list), Index(_), ..] if list == "documents")
}

/// The text of each document: itself, its `text`, or the fields to rank by, one a line.
fn texts(
    documents: &[WordOr<Map<String, Value>>],
    rank_fields: Option<&[String]>,
) -> Result<Vec<String>, Problem> {
    let list = FieldPath::from("documents");
    if documents.is_empty() {
        return Err(Problem::invalid(
            "documents",
            "`documents` must hold at least one document",
        ));
    }
    let texts = documents.iter().enumerate().map(|(at, document)| {
        let object = match document {
            WordOr::Word(text) => return Ok(text.clone()),
            WordOr::Object(object) => object,
        };
        let path = list.index(at);
        let default = ["text".to_owned()];
        let names = rank_fields.unwrap_or(&default);
        let values = names.iter().map(|name| match object.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Null) | None => Err(missing(&path.key(name))),
            Some(other) => Ok(other.to_string()),
        });
        Ok(values.collect::<Result<Vec<String>, Problem>>()?.join("\n"))
    });
    texts.collect()
}
