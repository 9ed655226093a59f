//! Chunks of a stream: the envelope around a choice, and the usage at the end.

use mortise_service::Usage;
use serde::Serialize;

use super::answer::{padding, write_event};
use super::envelope::{AnswerIdentity, AnswerShape, FINGERPRINT, UsageBody};

/// Writes the chunks of one answer.
pub(super) struct Chunks {
    /// The name of the shape, `object` on the wire.
    pub(super) object: &'static str,
    pub(super) identity: AnswerIdentity,
    pub(super) shape: AnswerShape,
    /// Usage so far, where every chunk reports it.
    pub(super) so_far: Option<Usage>,
    /// Ids of the prompt, for the first chunks.
    pub(super) prompt: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Chunk<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    system_fingerprint: &'static str,
    choices: &'a [C],
    /// vLLM's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageBody>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    obfuscation: Option<String>,
}

impl Chunks {
    /// Remember the usage so far, if chunks report it.
    pub(super) fn progress(&mut self, usage: &dyn Fn() -> Usage) {
        if self.shape.usage_throughout {
            self.so_far = Some(usage());
        }
    }

    /// Append a chunk of one choice that holds `text_bytes` of text.
    pub(super) fn choice<C: Serialize>(&self, choice: &C, text_bytes: usize, out: &mut Vec<u8>) {
        self.write(std::slice::from_ref(choice), text_bytes, None, out);
    }

    /// Append the last chunk, if the caller asked for one.
    pub(super) fn usage(&self, usage: Usage, out: &mut Vec<u8>) {
        if self.shape.include_usage {
            self.write::<()>(&[], 0, Some(usage), out);
        }
    }

    fn write<C: Serialize>(
        &self,
        choices: &[C],
        text_bytes: usize,
        usage: Option<Usage>,
        out: &mut Vec<u8>,
    ) {
        let chunk = Chunk {
            id: &self.identity.id,
            object: self.object,
            created: self.identity.created,
            model: &self.identity.model,
            system_fingerprint: FINGERPRINT,
            choices,
            prompt_token_ids: self.prompt.as_deref(),
            usage: self
                .shape
                .include_usage
                .then(|| usage.or(self.so_far).map(UsageBody::from)),
            obfuscation: self.shape.obfuscate.then(|| padding(text_bytes)),
        };
        write_event(out, &chunk);
    }
}
