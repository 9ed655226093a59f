//! A tokenizer: from its file to the tokens of a text and back.

use std::sync::Once;

use mortise_tokenizer::{Tokenizer, TokenizerFiles};

/// Words, scripts, marks that combine, an emoji of several code points, code, a control token.
const TEXT: &str = "Hello, wörld! 日本語 e\u{301} 👩‍👩‍👧 fn main() {}\n\t<|im_end|> 3.14";

/// Run on one input.
pub fn run(data: &[u8]) {
    // The server catches panics of the library that reads these files. What nobody catches ends the fuzzer all the same.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))));
    let files = TokenizerFiles {
        tokenizer: data,
        ..TokenizerFiles::default()
    };
    let Ok(tokenizer) = Tokenizer::load(files) else {
        return;
    };
    if let Ok(tokens) = tokenizer.encode_text(TEXT) {
        let _ = tokenizer.decode(&tokens, true);
    }
    for id in 0..tokenizer.vocabulary_size() as u32 {
        let _ = tokenizer.table().bytes(id);
    }
}
