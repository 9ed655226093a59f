//! Chunks of a text: by its structure, within so many tokens, each with an overlap with the one before.

use std::ops::Range;

/// Size of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunking {
    /// Tokens of a chunk at most.
    pub tokens: usize,
    /// Tokens at its beginning that the chunk before it has too, at most.
    pub overlap: usize,
}

/// Place of a chunk in the text, in bytes.
pub type ChunkSpan = Range<usize>;

/// Longest part that is counted at once, in bytes. A longer word is cut.
const PART_BYTES: usize = 256;

/// A part of the text that is not divided, and what follows it. A text has millions of them, so that they are small; one ends
/// where the next begins.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: u32,
    tokens: u16,
    /// Quality of a chunk's end behind it: 0 in a sentence, 1 behind one, 2 behind a line, 3 behind a paragraph, 4 before a
    /// heading.
    rank: u8,
}

/// Divide a text of less than 4 GiB. `count` tells the tokens of a piece of it.
pub fn chunks(
    text: &str,
    chunking: Chunking,
    mut count: impl FnMut(&str) -> usize,
) -> Vec<ChunkSpan> {
    let mut parts = parts(text);
    let mut end = text.len();
    for part in parts.iter_mut().rev() {
        let piece = text.get(part.start as usize..end).unwrap_or_default();
        part.tokens = u16::try_from(count(piece)).unwrap_or(u16::MAX);
        end = part.start as usize;
    }
    let start_of = |at: usize| parts.get(at).map_or(text.len(), |part| part.start as usize);
    let mut chunks = Vec::new();
    let mut first = 0;
    while first < parts.len() {
        let end = end_of(&parts, first, chunking.tokens);
        let span = trimmed(text, start_of(first)..start_of(end));
        if !span.is_empty() {
            chunks.push(span);
        }
        first = match end >= parts.len() {
            true => end,
            false => begin_of(&parts, first, end, chunking.overlap),
        };
    }
    chunks
}

/// Behind the last part of the chunk that begins with `first`: as far as its tokens allow, then back to the best end in the
/// second half.
fn end_of(parts: &[Part], first: usize, most: usize) -> usize {
    let mut tokens = 0;
    let mut end = first;
    let mut best = None;
    for (at, part) in parts.iter().enumerate().skip(first) {
        let more = usize::from(part.tokens);
        if at > first && tokens + more > most {
            break;
        }
        tokens += more;
        end = at + 1;
        if part.rank == HEADING && tokens > 0 {
            // What follows belongs to the heading.
            return end;
        }
        let better = |(rank, _): (u8, usize)| part.rank >= rank;
        if tokens * 2 >= most && best.is_none_or(better) {
            best = Some((part.rank, end));
        }
    }
    match best {
        Some((_, best)) if end < parts.len() => best,
        _ => end,
    }
}

/// The first part of the next chunk: as far back from `end` as the overlap allows, and behind `first`. What stands before a
/// heading is not repeated below it.
fn begin_of(parts: &[Part], first: usize, end: usize, overlap: usize) -> usize {
    let mut tokens = 0;
    let mut begin = end;
    while begin > first + 1 {
        let Some(part) = parts.get(begin - 1) else {
            break;
        };
        let more = usize::from(part.tokens);
        if part.rank == HEADING || tokens + more > overlap {
            break;
        }
        tokens += more;
        begin -= 1;
    }
    begin
}

const SENTENCE: u8 = 1;
const LINE: u8 = 2;
const PARAGRAPH: u8 = 3;
const HEADING: u8 = 4;

/// Levels of headings in Markdown.
const HEADING_LEVELS: usize = 6;

/// Words of a text, each with the white space behind it.
fn parts(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut start = 0;
    let mut spaces = false;
    let mut push = |start: usize, end: usize| {
        let piece = text.get(start..end).unwrap_or_default();
        parts.push(Part {
            start: u32::try_from(start).unwrap_or(u32::MAX),
            tokens: 0,
            rank: rank(piece, text.get(end..).unwrap_or_default()),
        });
    };
    for (at, character) in text.char_indices() {
        let is_space = character.is_whitespace();
        let word_begins = spaces && !is_space;
        if at > start && (word_begins || at - start >= PART_BYTES) {
            push(start, at);
            start = at;
        }
        spaces = is_space;
    }
    if start < text.len() {
        push(start, text.len());
    }
    parts
}

fn rank(piece: &str, rest: &str) -> u8 {
    let word = piece.trim_end();
    let space = piece.get(word.len()..).unwrap_or_default();
    let lines = space.matches('\n').count();
    match lines {
        1.. if is_heading(rest) => HEADING,
        2.. => PARAGRAPH,
        1 => LINE,
        0 if word.ends_with(['.', '!', '?', '。', '！', '？']) => SENTENCE,
        0 => 0,
    }
}

/// True if a text begins with the mark of a heading: one to six `#` and a blank. No more is looked at, however many there are.
fn is_heading(text: &str) -> bool {
    let bytes = text.as_bytes();
    let marks = bytes
        .iter()
        .take(HEADING_LEVELS + 1)
        .take_while(|byte| **byte == b'#')
        .count();
    (1..=HEADING_LEVELS).contains(&marks) && bytes.get(marks) == Some(&b' ')
}

/// The part of a text without white space around it; `None` if there is nothing else.
pub fn without_blanks(text: &str) -> Option<ChunkSpan> {
    let span = trimmed(text, 0..text.len());
    (!span.is_empty()).then_some(span)
}

/// A span without white space around it.
fn trimmed(text: &str, span: ChunkSpan) -> ChunkSpan {
    let piece = text.get(span.clone()).unwrap_or_default();
    let start = span.start + (piece.len() - piece.trim_start().len());
    start..start + piece.trim().len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A token a word, for tests.
    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn texts(text: &str, tokens: usize, overlap: usize) -> Vec<&str> {
        let spans = chunks(text, Chunking { tokens, overlap }, words);
        spans.into_iter().map(|span| &text[span]).collect()
    }

    #[test]
    fn chunks_end_where_the_text_does() {
        let text = "# One\na b c d.\n\ne f g h.\n## Two\ni j";
        assert_eq!(
            texts(text, 8, 0),
            ["# One\na b c d.", "e f g h.", "## Two\ni j"]
        );
        // A sentence is better than its middle.
        assert_eq!(texts("a b c. d e f g", 5, 0), ["a b c.", "d e f g"]);
        assert_eq!(texts("", 5, 0), Vec::<&str>::new());
        assert_eq!(texts(" \n ", 5, 0), Vec::<&str>::new());
    }

    #[test]
    fn the_overlap_is_of_whole_words_and_below_no_heading() {
        assert_eq!(
            texts("a b c d e f g", 4, 2),
            ["a b c d", "c d e f", "e f g"]
        );
        assert_eq!(texts("a b c\n# D\ne f", 6, 2), ["a b c", "# D\ne f"]);
    }

    #[test]
    fn a_word_without_end_is_cut() {
        let text = "é".repeat(5000);
        let spans = chunks(
            &text,
            Chunking {
                tokens: 2,
                overlap: 0,
            },
            |_| 1,
        );
        assert!(spans.iter().all(|span| span.len() <= 2 * (PART_BYTES + 1)));
        assert_eq!(
            spans.iter().map(|span| span.len()).sum::<usize>(),
            text.len()
        );
    }

    /// Bound on what is looked at again and again, such as what follows a part: this ends.
    #[test]
    fn feature_e30_lines_of_ten_megabytes_are_divided() {
        const BYTES: usize = 10 << 20;
        let chunking = Chunking {
            tokens: 800,
            overlap: 400,
        };
        for unit in ["x", "#", "\n#", "a ", " ", "é"] {
            let text = unit.repeat(BYTES / unit.len());
            let spans = chunks(&text, chunking, |piece| piece.trim().len() / 4);
            assert!(spans.len() <= BYTES / 800, "{unit:?}: {}", spans.len());
            let last = spans.last().map_or(0, |span| span.end);
            assert_eq!(last, text.trim_end().len(), "{unit:?}");
        }
    }

    #[test]
    fn headings_are_marked_by_one_to_six_signs() {
        for (text, expected) in [
            ("# a", true),
            ("###### a", true),
            ("####### a", false),
            ("#a", false),
            ("#", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(is_heading(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn chunks_cover_the_text_within_their_bounds(
            text in "([a-z]{1,6}[.]?[ \n#]{1,3}){0,80}", tokens in 1usize..20, overlap in 0usize..10,
        ) {
            let overlap = overlap.min(tokens / 2);
            let spans = chunks(&text, Chunking { tokens, overlap }, words);
            let mut covered = 0;
            for span in &spans {
                prop_assert!(words(&text[span.clone()]) <= tokens);
                // Nothing but white space is left out.
                if span.start > covered {
                    prop_assert!(text[covered..span.start].trim().is_empty());
                }
                covered = covered.max(span.end);
            }
            prop_assert!(text[covered..].trim().is_empty());
            prop_assert!(spans.windows(2).all(|two| two[0].start < two[1].start));
        }
    }
}
