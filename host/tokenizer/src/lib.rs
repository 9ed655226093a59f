//! Text to token ids and back, by a model's own files: `tokenizer.json` and its companions, or the
//! vocabulary of a GGUF file. Generated tokens become text incrementally.

mod added_tokens;
mod around_pair;
mod around_size;
mod bound;
mod bytes;
mod checks;
mod detokenizer;
mod encode;
mod error;
mod file_values;
mod files;
#[cfg(test)]
mod fixtures;
mod gguf;
mod limits;
mod long_words;
mod normalize;
mod pair;
mod pattern;
mod pipeline;
mod pre_tokenize;
mod token_table;
mod tokenizer;

pub use added_tokens::SpecialToken;
pub use detokenizer::Detokenizer;
pub use encode::TextSegment;
pub use error::TokenizerError;
pub use files::TokenizerFiles;
pub use gguf::GgufVocabulary;
pub use limits::EncodeLimits;
pub use pair::EncodedPair;
pub use token_table::{MAX_TOKEN_ID, TokenTable};
pub use tokenizer::Tokenizer;
