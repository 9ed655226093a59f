//! Reading the chunks of documents, and the index of a collection from them.

use mortise_http::Problem;
use mortise_retrieval::{Chunk, Index};
use mortise_store::Key;

use super::limits::PAGE;
use super::stored::members;
use crate::state::ApiState;
use crate::stored::store_problem;

/// Make the index of a collection from what is stored.
pub(super) async fn index(
    state: &ApiState,
    collection: &Key,
    dimensions: usize,
) -> Result<Index, Problem> {
    let mut index = Index::new(dimensions);
    let mut after = None;
    loop {
        let some = members(state, collection, after, PAGE, true).await?;
        after = some.entries.last().map(super::Member::file);
        for member in some.entries {
            if member.status() == "completed" {
                let chunks = chunks(state, &member.key).await?;
                index.add(member.document(), chunks);
            }
        }
        if !some.more {
            return Ok(index);
        }
    }
}

/// All chunks of a document, in order.
pub(super) async fn chunks(state: &ApiState, document: &Key) -> Result<Vec<Chunk>, Problem> {
    let (mut chunks, mut after) = (Vec::new(), None);
    loop {
        let some = state.store.pieces(document.clone(), after).await;
        let some = some.map_err(store_problem)?;
        chunks.extend(
            some.entries
                .iter()
                .filter_map(|item| Chunk::decode(&item.body)),
        );
        after = some.entries.last().map(|item| item.id.clone());
        if !some.more {
            return Ok(chunks);
        }
    }
}

/// Id of the chunk of a number.
pub(super) fn chunk_id(number: usize) -> String {
    format!("{number:06}")
}
