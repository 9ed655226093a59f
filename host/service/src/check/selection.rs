//! Bounds of `best_of` and beam search, which generate more continuations than they return.

use mortise_engine::BEAMS_MAX;

use crate::error::ServiceError;
use crate::limits::MAX_CHOICES;
use crate::refusal::invalid;
use crate::request::{BeamFields, RequestFields};

pub(super) fn check_selection(fields: &RequestFields) -> Result<(), ServiceError> {
    let n = fields.n.unwrap_or(1);
    if let Some(best_of) = fields.best_of {
        if !(n..=MAX_CHOICES).contains(&best_of) {
            return Err(invalid(
                "best_of",
                format!(
                    "best_of is {best_of}; it must be between n, which is {n}, and {MAX_CHOICES}"
                ),
            ));
        }
        if best_of > n && fields.stream {
            return Err(invalid(
                "stream",
                "which of best_of answers is best is known at the end: they cannot be streamed",
            ));
        }
    }
    match &fields.beams {
        Some(beams) => check_beams(fields, beams, n),
        None => Ok(()),
    }
}

fn check_beams(fields: &RequestFields, beams: &BeamFields, n: u32) -> Result<(), ServiceError> {
    let BeamFields {
        size,
        length_penalty,
        ..
    } = *beams;
    if !(1..=BEAMS_MAX).contains(&size) {
        return Err(invalid(
            "beam_size",
            format!("beam_size is {size}; it must be between 1 and {BEAMS_MAX}"),
        ));
    }
    if n > size {
        return Err(invalid(
            "n",
            format!("n is {n}, and a search with {size} beams finds no more than those"),
        ));
    }
    if !(-10.0..=10.0).contains(&length_penalty) {
        return Err(invalid(
            "length_penalty",
            format!("length_penalty is {length_penalty}; it must be between -10 and 10"),
        ));
    }
    for (field, given, why) in beside_beams(fields) {
        if given {
            return Err(invalid(
                field,
                format!("{field} cannot be used together with beam search: {why}"),
            ));
        }
    }
    Ok(())
}

/// Fields that exclude a beam search: name, whether the field is given, and the reason.
fn beside_beams(fields: &RequestFields) -> [(&'static str, bool, &'static str); 17] {
    let differs = |value: Option<f64>, off: f64| value.is_some_and(|value| value != off);
    let sampled = "beam search does not sample";
    let unchanged = "beam search compares probabilities as the model gives them";
    [
        (
            "stream",
            fields.stream,
            "which beam is best is known at the end",
        ),
        (
            "best_of",
            fields.best_of.is_some(),
            "use n to have several of the beams",
        ),
        ("logprobs", fields.logprobs.is_some(), "they are not kept"),
        ("temperature", differs(fields.temperature, 0.0), sampled),
        ("top_p", differs(fields.top_p, 1.0), sampled),
        ("top_k", fields.top_k.is_some_and(|k| k != 0), sampled),
        ("min_p", differs(fields.min_p, 0.0), sampled),
        (
            "repetition_penalty",
            differs(fields.repetition_penalty, 1.0),
            unchanged,
        ),
        (
            "frequency_penalty",
            differs(fields.frequency_penalty, 0.0),
            unchanged,
        ),
        (
            "presence_penalty",
            differs(fields.presence_penalty, 0.0),
            unchanged,
        ),
        ("logit_bias", !fields.logit_bias.is_empty(), unchanged),
        ("min_tokens", fields.min_tokens > 0, unchanged),
        ("bad_words", !fields.bad_words.is_empty(), unchanged),
        (
            "stop",
            !fields.stop.is_empty(),
            "beams end at the model's own end tokens only",
        ),
        (
            "tools",
            !fields.tools.is_empty(),
            "beams are not constrained",
        ),
        (
            "server_tools",
            !fields.server_tools.is_empty(),
            "beams are not continued",
        ),
        (
            "response_format",
            fields.constraint.is_some(),
            "beams are not constrained",
        ),
    ]
}
