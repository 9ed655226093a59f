//! Chat templates of models whose files have none: told by the architecture and the control tokens.

use mortise_tokenizer::Tokenizer;

/// A chat format with its template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DefaultTemplate {
    /// Name in the log.
    pub(crate) name: &'static str,
    /// Jinja.
    pub(crate) source: &'static str,
    /// Control tokens that it is written with.
    tokens: &'static [&'static str],
    /// Beginnings of the names of architectures that it is tried first for.
    architectures: &'static [&'static str],
}

const FORMATS: [DefaultTemplate; 3] = [
    DefaultTemplate {
        name: "llama3",
        source: include_str!("default_template/llama3.jinja"),
        tokens: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        architectures: &["llama", "mistral"],
    },
    DefaultTemplate {
        name: "gemma",
        source: include_str!("default_template/gemma.jinja"),
        tokens: &["<start_of_turn>", "<end_of_turn>"],
        architectures: &["gemma"],
    },
    DefaultTemplate {
        name: "chatml",
        source: include_str!("default_template/chatml.jinja"),
        tokens: &["<|im_start|>", "<|im_end|>"],
        architectures: &["qwen"],
    },
];

/// The template for a model that has none. `None` where its control tokens are those of no format: it has not learned
/// to chat.
pub(crate) fn default_template(
    tokenizer: &Tokenizer,
    architecture: &str,
) -> Option<&'static DefaultTemplate> {
    let control = tokenizer.control_tokens();
    let knows = |text: &&str| control.iter().any(|token| token.text == **text);
    let mut known: Vec<_> = FORMATS
        .iter()
        .filter(|format| format.tokens.iter().all(&knows))
        .collect();
    // A stable order: those of the architecture first.
    known.sort_by_key(|format| {
        let named = format.architectures.iter();
        !named.clone().any(|name| architecture.starts_with(name))
    });
    known.first().copied()
}

#[cfg(test)]
mod tests {
    use mortise_test_tokenizers::{added, byte_level};
    use mortise_tokenizer::TokenizerFiles;

    use super::*;

    fn tokenizer(more: &[&str]) -> Tokenizer {
        let mut json = byte_level();
        let tokens = json["added_tokens"].as_array_mut().expect("tokens");
        tokens.retain(|token| {
            !token["content"]
                .as_str()
                .unwrap_or_default()
                .contains("im_")
        });
        let next = 2_000;
        for (at, text) in more.iter().enumerate() {
            tokens.push(added(next + at, text, &["special"]));
        }
        let bytes = json.to_string().into_bytes();
        Tokenizer::load(TokenizerFiles {
            tokenizer: &bytes,
            ..TokenizerFiles::default()
        })
        .expect("a tokenizer")
    }

    #[test]
    fn feature_p1_a_format_is_told_by_architecture_and_control_tokens() {
        let headers = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
        let chatml = ["<|im_start|>", "<|im_end|>"];
        let both = [headers.as_slice(), &chatml].concat();
        for (tokens, architecture, expected) in [
            (headers.as_slice(), "llama", Some("llama3")),
            (&headers, "granite", Some("llama3")),
            (&both, "mistral3", Some("llama3")),
            (&both, "qwen3", Some("chatml")),
            (
                &["<start_of_turn>", "<end_of_turn>"],
                "gemma3",
                Some("gemma"),
            ),
            (&chatml, "unheard", Some("chatml")),
            (&["<|im_start|>"], "qwen3", None),
            (&[], "llama", None),
        ] {
            let found = default_template(&tokenizer(tokens), architecture);
            assert_eq!(
                found.map(|format| format.name),
                expected,
                "{tokens:?} {architecture}"
            );
        }
    }
}
