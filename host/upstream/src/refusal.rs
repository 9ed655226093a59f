//! Failures of an upstream in our words: what callers are told, and what is logged.

use mortise_models::RuntimeError;
use serde_json::Value;

use crate::limits::{MAX_MESSAGE_CHARS, MAX_RETRY_AFTER_SECONDS};

/// An answer with an error status.
#[derive(Debug)]
pub(crate) struct ErrorAnswer {
    pub(crate) status: u16,
    /// Seconds of `retry-after`.
    pub(crate) retry_after: Option<u32>,
    /// Beginning of the body.
    pub(crate) body: Vec<u8>,
}

/// Error body of an upstream.
#[derive(Debug, Default)]
struct Told {
    message: String,
    code: String,
    prompt: Option<usize>,
    context: Option<usize>,
}

/// Text of at most [`MAX_MESSAGE_CHARS`] characters, in one line.
pub(crate) fn shortened(text: &str) -> String {
    let plain = |character: char| match character.is_control() {
        true => ' ',
        false => character,
    };
    text.chars().take(MAX_MESSAGE_CHARS).map(plain).collect()
}

/// Words with which a llama-server refuses a text that is longer than its batch, as if the server itself had failed.
const TOO_LARGE: &str = "too large to process";

impl ErrorAnswer {
    /// Whether the answer tells that the upstream failed, and not that the request is at fault.
    pub(crate) fn is_failure(&self) -> bool {
        self.status >= 500 && !self.told().message.contains(TOO_LARGE)
    }

    /// The failure that callers are told. Errors that blame this server's key or setup are the operator's
    /// business, and what a failing server says may quote its insides: of those the caller learns the kind.
    pub(crate) fn failure(&self) -> RuntimeError {
        let told = self.told();
        match self.status {
            300..=399 => RuntimeError::Upstream(format!(
                "the model's server answered with a redirect (HTTP {}), and redirects are not followed",
                self.status
            )),
            401 | 403 => RuntimeError::Upstream(format!(
                "the model's server refused this server's own credentials (HTTP {}); your key is not at \
                 fault, and the operator of this server has to mend it",
                self.status
            )),
            404 => RuntimeError::Upstream(
                "the model's server does not know the model or the address that this server asks it for \
                 (HTTP 404); the operator of this server has to mend it"
                    .to_owned(),
            ),
            429 => self.unavailable("is asked too much (HTTP 429)"),
            503 => self.unavailable("takes no requests at present (HTTP 503)"),
            _ if !self.is_failure() => told.invalid(self.status),
            status => {
                RuntimeError::Upstream(format!("the model's server failed (HTTP {status})"))
            }
        }
    }

    /// Text of the answer for the log.
    pub(crate) fn text(&self) -> String {
        let told = self.told();
        match told.message.is_empty() {
            false => told.message,
            true => shortened(&String::from_utf8_lossy(&self.body)),
        }
    }

    fn unavailable(&self, what: &str) -> RuntimeError {
        RuntimeError::Unavailable {
            message: format!("the model's server {what}; retry later"),
            retry_after: self
                .retry_after
                .unwrap_or(1)
                .clamp(1, MAX_RETRY_AFTER_SECONDS),
        }
    }

    fn told(&self) -> Told {
        match serde_json::from_slice(&self.body) {
            Ok(body) => told(&body),
            Err(_) => Told::default(),
        }
    }
}

/// A failure that an upstream reports in its stream.
pub(crate) fn failure_in_stream(error: &Value) -> RuntimeError {
    let told = told(error);
    let message = match (told.message.as_str(), error) {
        ("", Value::String(text)) => shortened(text),
        (message, _) => message.to_owned(),
    };
    RuntimeError::Upstream(match message.is_empty() {
        true => "the model's server failed while it answered".to_owned(),
        false => format!("the model's server failed while it answered: {message}"),
    })
}

/// Read `{"error": {...}}`, or an error itself, or FastAPI's `{"detail": ...}`.
fn told(body: &Value) -> Told {
    let error = match body.get("error") {
        Some(error) => error,
        None => body,
    };
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    let message = text("message").or(text("detail")).or(error.as_str());
    let code = text("code").or(text("type")).unwrap_or_default();
    let number = |key: &str| usize::try_from(error.get(key)?.as_u64()?).ok();
    Told {
        message: shortened(message.unwrap_or_default()),
        code: code.to_owned(),
        // As llama.cpp's server tells them.
        prompt: number("n_prompt_tokens"),
        context: number("n_ctx"),
    }
}

impl Told {
    fn invalid(self, status: u16) -> RuntimeError {
        if let Some(error) = self.context_length() {
            return error;
        }
        RuntimeError::Invalid(match self.message.is_empty() {
            true => format!("the model's server refused the request (HTTP {status})"),
            false => format!("the model's server refused the request: {}", self.message),
        })
    }

    /// The refusal of a conversation that is too long, where its numbers are told.
    fn context_length(&self) -> Option<RuntimeError> {
        let message = self.message.to_lowercase();
        let about = self.code.contains("context")
            || message.contains("context")
            || message.contains(TOO_LARGE);
        if !about {
            return None;
        }
        let after = |words: &[&str]| words.iter().find_map(|words| number_after(&message, words));
        let before = |words: &[&str]| {
            words
                .iter()
                .find_map(|words| number_before(&message, words))
        };
        let context = self.context.or_else(|| {
            after(&[
                "maximum context length is ",
                "context holds ",
                "context length is only ",
                "current batch size: ",
            ])
        })?;
        let prompt = self.prompt.or_else(|| {
            before(&[
                " in the messages",
                " input tokens",
                " in the input",
                " tokens in the input",
            ])
            .or_else(|| {
                after(&[
                    "input (",
                    "resulted in ",
                    "the prompt has ",
                    "the prompt has at least ",
                    "prompt contains at least ",
                ])
            })
        })?;
        let requested = before(&[" in the completion", " output tokens"])
            .or_else(|| before(&[" more were asked for"]));
        Some(RuntimeError::ContextLength {
            prompt,
            requested: requested.unwrap_or(1),
            context,
        })
    }
}

fn number_after(text: &str, words: &str) -> Option<usize> {
    let (_, rest) = text.split_once(words)?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn number_before(text: &str, words: &str) -> Option<usize> {
    let (before, _) = text.split_once(words)?;
    let start = before
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + 1);
    // The character before is one byte in every message that is known; others have no number here.
    before.get(start..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(status: u16, body: &Value) -> RuntimeError {
        let body = body.to_string().into_bytes();
        let retry_after = Some(7);
        ErrorAnswer {
            status,
            retry_after,
            body,
        }
        .failure()
    }

    #[test]
    fn statuses_have_their_kinds() {
        let body = json!({"error": {"message": "top_k is odd", "type": "x"}});
        let refused = failure(400, &body);
        assert!(matches!(&refused, RuntimeError::Invalid(text) if text.contains("top_k is odd")));
        assert!(matches!(
            failure(422, &json!({"detail": "no"})),
            RuntimeError::Invalid(_)
        ));
        for status in [429, 503] {
            let busy = failure(status, &body);
            assert!(
                matches!(busy, RuntimeError::Unavailable { retry_after: 7, .. }),
                "{busy:?}"
            );
        }
        let secret = json!({"error": {"message": "Incorrect API key provided: sk-s3cret"}});
        for status in [301, 307, 401, 403, 404, 500, 502, 504, 599] {
            match failure(status, &secret) {
                RuntimeError::Upstream(text) => {
                    assert!(text.contains(&status.to_string()), "{text}");
                    assert!(!text.contains("s3cret"), "{text}");
                }
                other => panic!("{status}: {other:?}"),
            }
        }
    }

    #[test]
    fn long_conversations_are_recognised() {
        let openai = "This model's maximum context length is 8192 tokens. However, your messages \
                      resulted in 9001 tokens. Please reduce the length of the messages.";
        let vllm = "This model's maximum context length is 2048 tokens. However, you requested 2100 \
                    tokens (2000 in the messages, 100 in the completion). Please reduce.";
        let newer = "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum \
                     context length is 2048 tokens and your request has 2000 input tokens.";
        let ours =
            "this model's context holds 64 tokens; the prompt has 70 and 5 more were asked for";
        let unfinished = "this model's context holds 64 tokens; the prompt has at least 65 and 0 more were asked for";
        let embedded = "This model's maximum context length is 512 tokens. However, you requested 600 tokens in \
                        the input for embedding generation. Please reduce the length of the input.";
        let llama = json!({"error": {
            "code": 400, "message": "the request exceeds the available context size", "n_ctx": 512,
            "n_prompt_tokens": 600, "type": "exceed_context_size_error",
        }});
        let of =
            |text: &str| json!({"error": {"message": text, "code": "context_length_exceeded"}});
        for (body, numbers) in [
            (of(openai), (9001, 1, 8192)),
            (of(vllm), (2000, 100, 2048)),
            (of(newer), (2000, 1, 2048)),
            (of(ours), (70, 5, 64)),
            (of(unfinished), (65, 0, 64)),
            (of(embedded), (600, 1, 512)),
            (llama, (600, 1, 512)),
        ] {
            match failure(400, &body) {
                RuntimeError::ContextLength {
                    prompt,
                    requested,
                    context,
                } => {
                    assert_eq!((prompt, requested, context), numbers, "{body}");
                }
                other => panic!("{body}: {other:?}"),
            }
        }
        let large = "input (600 tokens) is too large to process. increase the physical batch size (current \
                     batch size: 512)";
        match failure(
            500,
            &json!({"error": {"message": large, "type": "server_error"}}),
        ) {
            RuntimeError::ContextLength {
                prompt, context, ..
            } => assert_eq!((prompt, context), (600, 512)),
            other => panic!("{other:?}"),
        }
        let unknown = failure(400, &of("context too long"));
        assert!(matches!(unknown, RuntimeError::Invalid(_)), "{unknown:?}");
    }

    #[test]
    fn messages_are_short_and_in_one_line() {
        let text = format!("a\nb\u{1b}[31m{}", "x".repeat(MAX_MESSAGE_CHARS));
        let short = shortened(&text);
        assert_eq!(short.chars().count(), MAX_MESSAGE_CHARS);
        assert!(!short.contains(char::is_control), "{short}");
    }
}
