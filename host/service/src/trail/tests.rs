use super::{Claims, TokenTrail, TrailToken};
use crate::event::TokenLogprob;

fn logprob(text: &str) -> Option<TokenLogprob> {
    Some(TokenLogprob {
        token: text.to_owned(),
        bytes: text.as_bytes().to_vec(),
        logprob: 0.0,
        top: Vec::new(),
    })
}

fn ids(tokens: &[TrailToken]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

#[test]
fn tokens_of_one_character_come_out_with_it() {
    let mut trail = TokenTrail::default();
    trail.push(1, None, 1, 1, 0);
    trail.push(2, None, 2, 0, 2);
    assert_eq!(ids(&trail.release(1)), [1]);
    assert!(trail.release(9).is_empty());
    trail.push(3, None, 2, 3, 1);
    let done = trail.release(4);
    assert_eq!(ids(&done), [2], "token 3 has bytes left");
    trail.finish(3);
    assert_eq!(ids(&trail.release(7)), [3]);
}

#[test]
fn a_cut_keeps_tokens_that_are_partly_out() {
    let mut trail = TokenTrail::default();
    trail.push(1, None, 3, 3, 0);
    trail.push(2, None, 3, 3, 0);
    trail.push(3, None, 3, 3, 0);
    assert_eq!(ids(&trail.release(4)), [1]);
    assert_eq!(ids(&trail.release_cut(4)), [2]);
}

/// Offer texts as one token each, and claim.
fn claimed(raw: &[&str], claims: &[&str]) -> Vec<String> {
    let mut all = Claims::default();
    let mut start = 0;
    for (id, text) in raw.iter().enumerate() {
        let end = start + text.len();
        let token = TrailToken {
            id: id as u32,
            start,
            end,
            logprob: logprob(text),
        };
        all.offer(text, vec![token]);
        start = end;
    }
    let name = |claim: &&str| {
        all.claim(claim)
            .into_iter()
            .map(|l| l.token)
            .collect::<Vec<_>>()
    };
    claims
        .iter()
        .map(name)
        .map(|tokens| tokens.join("|"))
        .collect()
}

#[test]
fn claims_skip_markup() {
    let raw = ["<think>", "\n", "n", "o", "</think>", "yes"];
    assert_eq!(claimed(&raw, &["no", "yes"]), ["n|o", "yes"]);
}

#[test]
fn a_token_goes_to_the_first_claim_on_it() {
    assert_eq!(
        claimed(&["abc", "def"], &["ab", "cd", "ef"]),
        ["abc", "def", ""]
    );
}

#[test]
fn text_that_a_parser_made_up_claims_nothing() {
    assert_eq!(claimed(&["abc", "def"], &["xyz", "abc"]), ["", "abc"]);
}

#[test]
fn unclaimed_text_is_bounded() {
    let mut claims = Claims::default();
    for at in 0..100_000 {
        let start = at * 5;
        claims.offer(
            "née ",
            vec![TrailToken {
                id: 0,
                start,
                end: start + 5,
                logprob: None,
            }],
        );
    }
    assert!(claims.raw.len() <= super::MAX_UNCLAIMED_BYTES);
    assert!(claims.tokens.len() <= super::MAX_UNCLAIMED_BYTES);
}
