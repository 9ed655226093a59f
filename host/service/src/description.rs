//! A model as plugins see it: its description, its vocabulary, its prompts.

use mortise_plugin::{ControlToken, ModelDescription, Segment, Vocabulary};
use mortise_tokenizer::Tokenizer;
use sha2::{Digest, Sha256};

use crate::default_template::default_template;

/// The name of the chat format that stands in for a template, where a model's files have none and its tokens tell one.
pub fn assumed_format(tokenizer: &Tokenizer, architecture: &str) -> Option<&'static str> {
    match tokenizer.chat_template() {
        Some(_) => None,
        None => default_template(tokenizer, architecture).map(|format| format.name),
    }
}

/// The description of a model for plugins.
pub fn describe_model(tokenizer: &Tokenizer, name: &str, architecture: &str) -> ModelDescription {
    let text = |token: Option<&str>| token.unwrap_or_default().to_owned();
    let control = tokenizer.control_tokens().iter();
    ModelDescription {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        chat_template: tokenizer
            .chat_template()
            .or_else(|| default_template(tokenizer, architecture).map(|format| format.source))
            .map(str::to_owned),
        response_template: tokenizer.response_template().map(str::to_owned),
        bos_token: text(tokenizer.bos_token()),
        eos_token: text(tokenizer.eos_token()),
        control_tokens: control
            .map(|token| ControlToken {
                id: token.id,
                text: token.text.clone(),
                special: token.special,
            })
            .collect(),
    }
}

/// The vocabulary as grammars see it. `size` is the number of the model's logits: ids that the
/// tokenizer does not know get no bytes, so that no grammar allows them.
pub fn vocabulary(tokenizer: &Tokenizer, eos: &[u32], size: usize) -> Vocabulary {
    let mut bytes = Vec::new();
    let mut offsets = Vec::with_capacity(size + 1);
    offsets.push(0u32);
    for id in 0..size as u32 {
        bytes.extend_from_slice(tokenizer.table().bytes(id));
        offsets.push(bytes.len() as u32);
    }
    let known = |id: &u32| (*id as usize) < size;
    let eos: Vec<u32> = eos.iter().copied().filter(known).collect();
    let control = tokenizer.control_tokens().iter().map(|token| token.id);
    let control: Vec<u32> = control.filter(known).collect();
    let digest = digest(&bytes, &offsets, &eos, &control);
    Vocabulary {
        bytes,
        offsets,
        eos,
        control,
        digest,
    }
}

/// Segments of a rendered prompt, for the tokenizer.
pub(crate) fn for_tokenizer(segments: &[Segment]) -> Vec<mortise_tokenizer::TextSegment<'_>> {
    let segments = segments.iter().map(|segment| match segment {
        Segment::Special(text) => mortise_tokenizer::TextSegment::Special(text),
        Segment::Plain(text) => mortise_tokenizer::TextSegment::Plain(text),
    });
    segments.collect()
}

fn digest(bytes: &[u8], offsets: &[u32], eos: &[u32], control: &[u32]) -> String {
    let mut hash = Sha256::new();
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
    for list in [offsets, eos, control] {
        hash.update((list.len() as u64).to_le_bytes());
        for value in list {
            hash.update(value.to_le_bytes());
        }
    }
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use mortise_test_tokenizers::{END, byte_level};

    use super::vocabulary;
    use crate::fakes::load;

    #[test]
    fn vocabularies_hold_the_bytes_of_every_token() {
        let tokenizer = load(&byte_level());
        let eos = tokenizer.token_id(END).expect("a token");
        let size = tokenizer.vocabulary_size() + 5;
        let found = vocabulary(&tokenizer, &[eos, 99_999], size);
        assert_eq!(found.len(), size);
        assert_eq!(found.eos, [eos]);
        let bytes = |id: u32| {
            let at = id as usize;
            &found.bytes[found.offsets[at] as usize..found.offsets[at + 1] as usize]
        };
        assert_eq!(
            bytes(tokenizer.token_id("Ġworld").expect("a token")),
            b" world"
        );
        assert_eq!(bytes(tokenizer.token_id("Ã").expect("a token")), [0xC3]);
        assert_eq!(bytes(eos), END.as_bytes());
        assert_eq!(bytes(size as u32 - 1), b"");
        assert!(found.control.contains(&eos) && found.control.is_sorted());
        assert_eq!(found.digest.len(), 64);
        assert_ne!(found.digest, vocabulary(&tokenizer, &[], size).digest);
    }
}
