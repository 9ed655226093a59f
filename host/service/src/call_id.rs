//! Ids of tool calls.

use uuid::Uuid;

/// Random characters in the id of a tool call.
const CALL_ID_CHARACTERS: usize = 24;

/// Random id for a call to which the model gave none.
pub(crate) fn new_call_id() -> String {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::from("call_");
    // Each half of the characters takes 71 of the 122 random bits of an identifier of its own.
    for _ in 0..2 {
        let mut random = Uuid::new_v4().as_u128();
        for _ in 0..CALL_ID_CHARACTERS / 2 {
            id.push(char::from(ALPHABET[(random % 62) as usize]));
            random /= 62;
        }
    }
    id
}
