//! Affinity of conversations to upstreams: equal beginnings go to one upstream, whose prefix cache holds
//! them, whichever server asks (rendezvous hashing).

use mortise_models::ConversationRequest;
use mortise_models::conversation::{Part, Role};
use sha2::{Digest as _, Sha256};

/// Bytes of a conversation that count as its beginning.
const BEGINNING_BYTES: usize = 4096;

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
            if let Part::Text(text) = part {
                add(text.as_bytes());
            }
        }
        if message.role == Role::User {
            break;
        }
    }
    hash.finalize().into()
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
