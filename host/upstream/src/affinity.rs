//! Affinity of conversations to upstreams: equal beginnings go to one upstream, whose prefix cache holds
//! them, whichever server asks (rendezvous hashing).

use mortise_models::conversation::{ContentPart, Role};
use mortise_models::{ConversationRequest, EmbeddingInput};
use sha2::{Digest as _, Sha256};

/// Bytes of a conversation that count as its beginning.
const BEGINNING_BYTES: usize = 4096;

/// Tokens of a prompt that count as its beginning: often no more than the system prompt, which others share too.
const BEGINNING_TOKENS: usize = 256;

/// Hash of a conversation's beginning: its tools and its messages up to the first of the user's, which
/// later turns of the same conversation share.
pub(crate) fn beginning(request: &ConversationRequest) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut left = BEGINNING_BYTES;
    let mut add = |bytes: &[u8]| {
        let taken = &bytes[..bytes.len().min(left)];
        left -= taken.len();
        hash.update(taken);
        hash.update([0]);
    };
    for tool in &request.tools {
        add(tool.name.as_str().as_bytes());
    }
    for message in request.conversation.messages() {
        for part in &message.content {
            if let ContentPart::Text(text) = part {
                add(text.as_bytes());
            }
        }
        if message.role == Role::User {
            break;
        }
    }
    hash.finalize().into()
}

/// Hash of the beginning of a prompt's tokens.
pub(crate) fn beginning_of_prompt(tokens: &[u32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for token in tokens.iter().take(BEGINNING_TOKENS) {
        hash.update(token.to_le_bytes());
    }
    hash.finalize().into()
}

/// Hash of the beginning of the first of some inputs: where its vector is kept, it is kept on one upstream.
pub(crate) fn beginning_of_input(input: Option<&EmbeddingInput>) -> [u8; 32] {
    match input {
        None => [0; 32],
        Some(EmbeddingInput::Tokens(ids)) => beginning_of_prompt(ids),
        Some(EmbeddingInput::Text(text)) => {
            let taken = &text.as_bytes()[..text.len().min(BEGINNING_BYTES)];
            Sha256::digest(taken).into()
        }
    }
}

/// Rank of an upstream for a beginning; the highest wins.
pub(crate) fn rank(beginning: &[u8; 32], url: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(beginning);
    hash.update(url);
    let hash: [u8; 32] = hash.finalize().into();
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    u64::from_be_bytes(first)
}
