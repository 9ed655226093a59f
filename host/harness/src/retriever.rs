//! Questions to a retriever, JSON in and JSON out.

use std::sync::Arc;

use anyhow::bail;
use mortise_plugin::{
    ChunkSizes, Joint, Passage, PassageBudget, RetrieverContext, RetrieverTraits, SourceText,
};
use mortise_service::{RequestId, Retrieve};
use serde::Deserialize;
use serde_json::{Value, json};

/// Input of a retriever: one of the three things that it may do.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetrieverRequest {
    #[serde(default)]
    chunk: Option<ChunkRequest>,
    #[serde(default)]
    rewrite: Option<String>,
    #[serde(default)]
    assemble: Option<AssembleRequest>,
    #[serde(default = "somebody")]
    subject: String,
    #[serde(default)]
    tenant: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkRequest {
    text: String,
    #[serde(default = "file_name")]
    name: String,
    #[serde(default = "plain")]
    media_type: String,
    #[serde(default = "usual_tokens")]
    max_tokens: u32,
    #[serde(default)]
    overlap_tokens: u32,
    /// Four to a token where the input does not say.
    about_bytes: Option<u32>,
    #[serde(default = "usual_chunks")]
    max_chunks: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AssembleRequest {
    query: String,
    candidates: Vec<CandidateRequest>,
    #[serde(default = "usual_passages")]
    passages: u32,
    #[serde(default = "usual_tokens")]
    tokens: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateRequest {
    text: String,
    #[serde(default = "file_name")]
    document: String,
    #[serde(default)]
    start: u32,
    /// Behind the text where the input does not say.
    end: Option<u32>,
    #[serde(default)]
    score: f32,
    #[serde(default)]
    similarity: f32,
    #[serde(default = "one")]
    tokens: u32,
}

fn somebody() -> String {
    "someone".to_owned()
}

fn file_name() -> String {
    "document.txt".to_owned()
}

fn plain() -> String {
    "text/plain".to_owned()
}

fn usual_tokens() -> u32 {
    200
}

fn usual_chunks() -> u32 {
    1000
}

fn usual_passages() -> u32 {
    5
}

fn one() -> u32 {
    1
}

/// Answer of the retrievers that are bound, of which there is one.
pub(crate) async fn ask(
    retrievers: &[Arc<dyn Retrieve>],
    request: &RequestId,
    asked: RetrieverRequest,
) -> anyhow::Result<Value> {
    let Some(retriever) = retrievers.first() else {
        bail!("no retriever is bound");
    };
    let told = RetrieverContext {
        collection: "vs_offline".to_owned(),
        subject: asked.subject,
        tenant: asked.tenant,
    };
    let RetrieverTraits {
        chunk,
        rewrite,
        assemble,
    } = retriever.traits();
    match (asked.chunk, asked.rewrite, asked.assemble) {
        (Some(_), None, None) if !chunk => Ok(json!({"chunks": "not made"})),
        (Some(asked), None, None) => divide(&**retriever, request, &told, asked).await,
        (None, Some(_), None) if !rewrite => Ok(json!({"queries": "not rewritten"})),
        (None, Some(query), None) => {
            let queries = retriever.rewrite(request, &told, &query).await?;
            Ok(json!({"queries": queries}))
        }
        (None, None, Some(_)) if !assemble => Ok(json!({"chosen": "not chosen"})),
        (None, None, Some(asked)) => choose(&**retriever, request, &told, asked).await,
        (None, None, None) => {
            Ok(json!({"traits": {"chunk": chunk, "rewrite": rewrite, "assemble": assemble}}))
        }
        _ => bail!("a retriever is asked for one of `chunk`, `rewrite` and `assemble`"),
    }
}

async fn divide(
    retriever: &dyn Retrieve,
    request: &RequestId,
    told: &RetrieverContext,
    asked: ChunkRequest,
) -> anyhow::Result<Value> {
    let document = SourceText {
        name: asked.name,
        media_type: asked.media_type,
        text: asked.text.clone(),
    };
    let about = asked.max_tokens.saturating_mul(4);
    let sizes = ChunkSizes {
        max_tokens: asked.max_tokens,
        overlap_tokens: asked.overlap_tokens,
        about_bytes: asked.about_bytes.unwrap_or(about),
        max_chunks: asked.max_chunks,
    };
    let spans = retriever.chunk(request, told, document, sizes).await?;
    let chunks = spans.into_iter().map(|span| {
        let text = asked.text.get(span.clone()).unwrap_or_default();
        json!({"start": span.start, "end": span.end, "text": text})
    });
    Ok(json!({"chunks": chunks.collect::<Vec<_>>()}))
}

async fn choose(
    retriever: &dyn Retrieve,
    request: &RequestId,
    told: &RetrieverContext,
    asked: AssembleRequest,
) -> anyhow::Result<Value> {
    let passages = asked.candidates.into_iter().map(|candidate| {
        let length = u32::try_from(candidate.text.len()).unwrap_or(u32::MAX);
        let end = candidate
            .end
            .unwrap_or(candidate.start.saturating_add(length));
        Passage {
            document: candidate.document,
            place: candidate.start..end,
            text: candidate.text,
            score: candidate.score,
            similarity: candidate.similarity,
            tokens: candidate.tokens,
        }
    });
    let passages: Vec<Passage> = passages.collect();
    let budget = PassageBudget {
        passages: asked.passages,
        tokens: asked.tokens,
    };
    let made = retriever.assemble(request, told, &asked.query, &passages, budget);
    let made = made.await?;
    let texts = made.chosen.iter();
    let texts = texts.filter_map(|index| passages.get(*index as usize));
    Ok(json!({
        "chosen": made.chosen,
        "joint": match made.joint {
            Joint::BlankLine => "blank-line",
            Joint::Rule => "rule",
        },
        "texts": texts.map(|passage| &*passage.text).collect::<Vec<_>>(),
    }))
}
