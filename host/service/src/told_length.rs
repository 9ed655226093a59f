//! Length of a request as policies and budgets are told it: they estimate the tokens of its prompt by it before the
//! prompt is encoded.

use mortise_models::conversation::{ContentPart, Message, Role};

use crate::request::Prompt;

/// Header with the length.
const LENGTH: &str = "content-length";

/// Bytes for which one token counts that a caller gives as its id: those that estimates take for one of a text.
const BYTES_PER_ID: u64 = 4;

/// Raise the length among the headers to at least so many bytes. Where there is none, or none that can be read, it is
/// added.
pub(crate) fn raise(headers: &mut Vec<(String, String)>, least: u64) {
    if told(headers).unwrap_or(0) < least {
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case(LENGTH));
        headers.push((LENGTH.to_owned(), least.to_string()));
    }
}

/// The length among the headers.
pub(crate) fn told(headers: &[(String, String)]) -> Option<u64> {
    let mut headers = headers.iter();
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case(LENGTH));
    length.and_then(|(_, value)| value.trim().parse().ok())
}

/// Bytes of a prompt, with what was stored of its conversation before. Images and recordings do not count.
pub(crate) fn of_prompt(prompt: &Prompt) -> u64 {
    match prompt {
        Prompt::Text(text) => text.len() as u64,
        Prompt::Tokens(ids) => of_ids(ids),
        Prompt::Chat(chat) => chat.conversation.messages().iter().map(of_message).sum(),
    }
}

/// Bytes for which tokens count that a caller gives as their ids.
pub(crate) fn of_ids(ids: &[u32]) -> u64 {
    BYTES_PER_ID.saturating_mul(ids.len() as u64)
}

fn of_message(message: &Message) -> u64 {
    let texts = message.content.iter().map(|part| match part {
        ContentPart::Text(text) => text.len(),
        ContentPart::Image(_) | ContentPart::Audio(_) => 0,
    });
    let of_role = match &message.role {
        Role::Assistant { reasoning, calls } => {
            let calls = calls
                .iter()
                .map(|call| call.name.len() + call.arguments.len());
            reasoning.as_deref().map_or(0, str::len) + calls.sum::<usize>()
        }
        Role::System | Role::Developer | Role::User | Role::Tool { .. } => 0,
    };
    (texts.sum::<usize>() + of_role) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raised(given: &[(&str, &str)], least: u64) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        raise(&mut headers, least);
        headers
    }

    #[test]
    fn the_larger_length_is_told_once() {
        for (given, least, told_then) in [
            (&[][..], 7, "7"),
            (&[("Content-Length", "5")], 7, "7"),
            (&[("content-length", "9")], 7, "9"),
            (&[("content-length", "many")], 7, "7"),
        ] {
            let headers = raised(given, least);
            assert_eq!(headers.len(), 1, "{headers:?}");
            assert_eq!(headers[0].1, told_then, "{given:?}");
        }
    }

    #[test]
    fn ids_count_as_much_as_the_tokens_of_a_text() {
        assert_eq!(of_prompt(&Prompt::Tokens(vec![1; 100])), 400);
        assert_eq!(of_prompt(&Prompt::Text("a".repeat(400))), 400);
    }
}
