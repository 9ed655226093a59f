//! An uploaded document, to its text and its chunks: the first byte is the size of chunks and, by its last bit, the name.

use mortise_retrieval::{Chunking, chunks, text_of};

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let Some((size, document)) = bytes.split_first() else {
        return;
    };
    let name = if size % 2 == 0 { "a.html" } else { "a.md" };
    let Ok((text, _)) = text_of(name, document.to_vec()) else {
        return;
    };
    let tokens = usize::from(*size).max(2);
    let chunking = Chunking {
        tokens,
        overlap: tokens / 4,
    };
    let count = |piece: &str| piece.split_whitespace().count();
    let mut last = 0..0;
    for span in chunks(&text, chunking, count) {
        assert!(text.get(span.clone()).is_some(), "a chunk is text");
        assert!(span.start >= last.start && span.end > last.end, "chunks go on");
        let between = text.get(last.end..span.start.max(last.end)).expect("text");
        assert!(between.trim().is_empty(), "no word is left out");
        last = span;
    }
    let rest = text.get(last.end..).expect("text");
    assert!(rest.trim().is_empty(), "no word is left out at the end");
}
