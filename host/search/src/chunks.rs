//! Reading the chunks of documents.

use mortise_retrieval::Chunk;
use mortise_store::{Key, Store, StoreError};

/// All chunks of a document, in order.
///
/// # Errors
/// When the store cannot be read, or the document is gone.
pub async fn chunks(store: &dyn Store, document: &Key) -> Result<Vec<Chunk>, StoreError> {
    let (mut chunks, mut after) = (Vec::new(), None);
    loop {
        let some = store.pieces(document.clone(), after).await?;
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

/// Id of the item of the chunk of a number.
pub fn chunk_id(number: usize) -> String {
    format!("{number:06}")
}
