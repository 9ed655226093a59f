//! The dialect's operations: what its routes take and answer.

use mortise_http::contract::{CALLER, DialectContract, MODEL, Operation};
use serde_json::json;

use super::{EMBED, RERANK, RERANK_V1, RERANK_V2, SCORE, SCORE_V1, cohere, pairs, tei};
use crate::openai_error::{ERROR, SHAPE};
use crate::unsupported::Unsupported;

const SHAPES: &str = include_str!("shapes.ts");

/// The contract of these operations.
pub(super) fn contract(operations: Vec<Operation>) -> DialectContract {
    DialectContract {
        tag: "Rerank",
        about: "Rerank and score by models that score pairs, or from embeddings, in the shapes of Cohere, Jina, vLLM and TEI.",
        shapes: &[SHAPE, SHAPES],
        problem: ERROR,
        asks: true,
        operations,
    }
}

fn posting(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    Operation::post(path, id, summary)
        .refuses(CALLER)
        .refuses(MODEL)
}

pub(super) fn rerank_v1(mode: Unsupported) -> Operation {
    posting(
        RERANK_V1,
        "rerank",
        "Orders documents by their scores against a query.",
    )
    .takes(
        "RerankRequest",
        cohere::fields(mode).without(&["model"]).schema(),
    )
    .answers(200, "Reranked")
}

pub(super) fn rerank_v2(mode: Unsupported) -> Operation {
    rerank_v1(mode).at(RERANK_V2, "rerankV2")
}

pub(super) fn unversioned_rerank(mode: Unsupported) -> Operation {
    let texts = tei::rerank_fields(mode).without(&["model"]).schema();
    let documents = cohere::fields(mode).without(&["model"]).schema();
    posting(
        RERANK,
        "rerankUnversioned",
        "Orders documents or texts by their scores against a query.",
    )
    .takes("AnyRerankRequest", json!({"anyOf": [documents, texts]}))
    .answers(200, "Reranked | RerankedTexts")
}

pub(super) fn score_v1(mode: Unsupported) -> Operation {
    posting(SCORE_V1, "score", "Compares texts.")
        .takes(
            "ScoreRequest",
            pairs::fields(mode).without(&["model"]).schema(),
        )
        .answers(200, "Scored")
}

pub(super) fn unversioned_score(mode: Unsupported) -> Operation {
    score_v1(mode).at(SCORE, "scoreUnversioned")
}

pub(super) fn embed(mode: Unsupported) -> Operation {
    posting(EMBED, "embed", "Turns texts into vectors.")
        .takes(
            "EmbedRequest",
            tei::embed_fields(mode).without(&["model"]).schema(),
        )
        .answers(200, "number[][]")
}
