//! The size of a document's chunks.

use mortise_http::Problem;
use mortise_retrieval::Chunking;
use serde_json::Value;

/// Chunks where the caller does not say, as at OpenAI; shorter where the model takes less.
pub(super) const USUAL: Chunking = Chunking {
    tokens: 800,
    overlap: 400,
};

/// Tokens that models put around a text.
const AROUND: usize = 2;

/// The size of chunks that a `chunking_strategy` asks for, within a model's context.
pub(crate) fn chunking_of(strategy: Option<&Value>, context: usize) -> Result<Chunking, Problem> {
    let room = context.saturating_sub(AROUND).max(1);
    let usual = Chunking {
        tokens: USUAL.tokens.min(room),
        overlap: USUAL.overlap.min(room / 2),
    };
    let path = "chunking_strategy";
    let wrong = |path: String, message: String| {
        Err(Problem::invalid(
            path.clone(),
            format!("`{path}` {message}"),
        ))
    };
    let strategy = match strategy {
        None | Some(Value::Null) => return Ok(usual),
        Some(strategy) => strategy,
    };
    match strategy["type"].as_str() {
        Some("auto") => return Ok(usual),
        Some("static") => {}
        _ => {
            return wrong(
                format!("{path}.type"),
                "must be `auto` or `static`".to_owned(),
            );
        }
    }
    let number = |name: &str| {
        let value = strategy["static"][name].as_u64();
        value.and_then(|value| usize::try_from(value).ok())
    };
    let most = room.min(4096);
    let tokens = number("max_chunk_size_tokens").filter(|tokens| (1..=most).contains(tokens));
    let Some(tokens) = tokens else {
        let message =
            format!("must be from 1 to {most}: the model embeds texts of {context} tokens");
        return wrong(format!("{path}.static.max_chunk_size_tokens"), message);
    };
    let overlap = number("chunk_overlap_tokens").filter(|overlap| *overlap <= tokens / 2);
    let Some(overlap) = overlap else {
        let message = "must be from 0 to half of `max_chunk_size_tokens`".to_owned();
        return wrong(format!("{path}.static.chunk_overlap_tokens"), message);
    };
    Ok(Chunking { tokens, overlap })
}
