//! Text to token ids and back, by a model's own files: `tokenizer.json` and its companions, or the
//! vocabulary of a GGUF file. Generated tokens become text incrementally.

mod added_tokens;
mod bytes;
mod detokenizer;
mod encode;
mod error;
mod files;
#[cfg(test)]
mod fixtures;
mod gguf;
mod probe;
mod token_table;
mod tokenizer;

pub use added_tokens::ControlToken;
pub use detokenizer::Detokenizer;
pub use encode::Segment;
pub use error::TokenizerError;
pub use files::TokenizerFiles;
pub use gguf::GgufVocabulary;
pub use token_table::TokenTable;
pub use tokenizer::Tokenizer;
