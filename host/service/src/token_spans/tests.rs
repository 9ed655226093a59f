use super::{HeldSpans, ParserSpans, TokenSpan};
use mortise_models::TokenLogprob;

fn logprob(text: &str) -> Option<TokenLogprob> {
    Some(TokenLogprob {
        token: text.to_owned(),
        bytes: text.as_bytes().to_vec(),
        logprob: 0.0,
        top: Vec::new(),
    })
}

fn ids(tokens: &[TokenSpan]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

#[test]
fn tokens_of_one_character_come_out_with_it() {
    let mut held = HeldSpans::default();
    held.push(1, None, 1, 1, 0);
    held.push(2, None, 2, 0, 2);
    assert_eq!(ids(&held.release(1)), [1]);
    assert!(held.release(9).is_empty());
    held.push(3, None, 2, 3, 1);
    let done = held.release(4);
    assert_eq!(ids(&done), [2], "token 3 has bytes left");
    held.finish(3);
    assert_eq!(ids(&held.release(7)), [3]);
}

#[test]
fn truncation_keeps_tokens_that_are_partly_emitted() {
    let mut held = HeldSpans::default();
    held.push(1, None, 3, 3, 0);
    held.push(2, None, 3, 3, 0);
    held.push(3, None, 3, 3, 0);
    assert_eq!(ids(&held.release(4)), [1]);
    assert_eq!(ids(&held.release_truncated(4)), [2]);
}

/// Append texts of one token each, then take the emitted ones.
fn taken(raw: &[&str], emitted: &[&str]) -> Vec<String> {
    let mut all = ParserSpans::default();
    let mut start = 0;
    for (id, text) in raw.iter().enumerate() {
        let end = start + text.len();
        let token = TokenSpan {
            id: id as u32,
            start,
            end,
            logprob: logprob(text),
        };
        all.append(text, vec![token]);
        start = end;
    }
    let name = |text: &&str| {
        all.take(text)
            .into_iter()
            .map(|l| l.token)
            .collect::<Vec<_>>()
    };
    emitted
        .iter()
        .map(name)
        .map(|tokens| tokens.join("|"))
        .collect()
}

#[test]
fn markup_is_skipped() {
    let raw = ["<think>", "\n", "n", "o", "</think>", "yes"];
    assert_eq!(taken(&raw, &["no", "yes"]), ["n|o", "yes"]);
}

#[test]
fn a_token_belongs_to_the_first_text_that_it_is_part_of() {
    assert_eq!(
        taken(&["abc", "def"], &["ab", "cd", "ef"]),
        ["abc", "def", ""]
    );
}

#[test]
fn text_that_a_parser_made_up_has_no_tokens() {
    assert_eq!(taken(&["abc", "def"], &["xyz", "abc"]), ["", "abc"]);
}

#[test]
fn pending_text_is_bounded() {
    let mut pending = ParserSpans::default();
    for at in 0..100_000 {
        let start = at * 5;
        pending.append(
            "née ",
            vec![TokenSpan {
                id: 0,
                start,
                end: start + 5,
                logprob: None,
            }],
        );
    }
    assert!(pending.raw.len() <= super::MAX_PENDING_BYTES);
    assert!(pending.spans.len() <= super::MAX_PENDING_BYTES);
}
