//! The engine of the grammar plugin, and llguidance without it.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher as Inner, ParserFactory};
use mortise_grammar::engine::Engine;
use mortise_grammar::matcher::{Matcher, Status};
use mortise_grammar::source::Source;
use serde_json::Value;

const END: u32 = 256;
/// Longest document that is generated, in bytes.
const MAX_BYTES: usize = 400;

/// One token for each byte, and one for the end.
pub(crate) struct Vocabulary(mortise_grammar::engine::Vocabulary);

impl Vocabulary {
    pub(crate) fn bytes() -> Self {
        let mut bytes: Vec<u8> = (0..=255).collect();
        bytes.extend(b"<end>");
        let mut offsets: Vec<u32> = (0..=256).collect();
        offsets.push(261);
        Self(mortise_grammar::engine::Vocabulary {
            bytes,
            offsets,
            eos: vec![END],
            control: vec![END],
        })
    }
}

/// Something that takes texts.
pub(crate) trait Takes {
    fn takes(&mut self, text: &str) -> bool;
}

pub(crate) struct Ours(Engine);

impl Ours {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        Self(Engine::new(&vocabulary.0).expect("an engine"))
    }

    pub(crate) fn compile(&mut self, schema: &Value) -> Result<Matcher, String> {
        let source = Source::JsonSchema(schema.to_string());
        self.0.compile(&source).map_err(|error| error.to_string())
    }

    /// Documents that the grammar writes where a model without a will follows it; those that end in time.
    pub(crate) fn generate(&mut self, schema: &Value, count: u64) -> Vec<Value> {
        let documents = (0..count).filter_map(|seed| {
            let mut matcher = self.compile(schema).ok()?;
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678;
            let mut text = Vec::new();
            while text.len() < MAX_BYTES {
                let (mask, status) = matcher.mask().expect("a mask");
                let words = mask.into_dense(257, 9);
                let allowed: Vec<u32> = (0..257)
                    .filter(|token| words[*token as usize / 32] >> (token % 32) & 1 == 1)
                    .collect();
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let choice = (random >> 33) as usize;
                // A model that says less where it may say more: quotes and brackets that close come first.
                let closing = allowed
                    .iter()
                    .copied()
                    .find(|token| b"\"}]".iter().any(|end| u32::from(*end) == *token));
                let token = match (status, closing) {
                    (Status::Finished | Status::Accepting, _) if choice.is_multiple_of(2) => END,
                    (_, Some(closing)) if !choice.is_multiple_of(3) => closing,
                    _ => *allowed.get(choice % allowed.len().max(1))?,
                };
                if token == END {
                    let text = String::from_utf8(text).expect("UTF-8");
                    return match serde_json::from_str(&text) {
                        // The reader here has no larger ones.
                        Err(error) if error.to_string().starts_with("number out of range") => None,
                        read => {
                            Some(read.unwrap_or_else(|error| panic!("{schema}: {text}: {error}")))
                        }
                    };
                }
                matcher.accept(&[token]).expect("an allowed token");
                text.push(token as u8);
            }
            None
        });
        documents.collect()
    }
}

impl Takes for Matcher {
    fn takes(&mut self, text: &str) -> bool {
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let mut copy = self.fork();
        copy.accept(&tokens).is_ok() && copy.status().is_ok_and(|status| status != Status::Active)
    }
}

/// llguidance with its own defaults.
pub(crate) struct Native(ParserFactory);

impl Native {
    pub(crate) fn new(vocabulary: &Vocabulary) -> Self {
        let Vocabulary(vocabulary) = vocabulary;
        let words: Vec<Vec<u8>> = vocabulary
            .offsets
            .windows(2)
            .map(|range| vocabulary.bytes[range[0] as usize..range[1] as usize].to_vec())
            .map(|word| {
                if word == b"<end>" {
                    [&[TokTrie::SPECIAL_TOKEN_MARKER][..], &word].concat()
                } else {
                    word
                }
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(257, END), &words);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &[])
            .expect("a factory");
        factory.quiet();
        Self(factory)
    }

    pub(crate) fn compile(&self, schema: &Value) -> Result<Inner, String> {
        let schema = match schema {
            Value::Bool(false) => return Err("no schema".to_owned()),
            Value::Bool(true) => serde_json::json!({}),
            schema => schema.clone(),
        };
        let mut matcher = Inner::new(
            self.0
                .create_parser(TopLevelGrammar::from_json_schema(schema)),
        );
        match matcher.get_error() {
            Some(error) => Err(error),
            None => matcher
                .compute_mask_or_eos()
                .map(|_| matcher)
                .map_err(|error| error.to_string()),
        }
    }
}

impl Takes for Inner {
    fn takes(&mut self, text: &str) -> bool {
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let mut copy = self.deep_clone();
        copy.try_consume_tokens(&tokens)
            .is_ok_and(|taken| taken == tokens.len())
            && (copy.is_stopped() || copy.is_accepting().unwrap_or(false))
    }
}
