//! Fuzz target of answers: two bytes select the format and the request, the rest is the text of a model, as
//! `tests/parsers/kept.rs` has it. No text may be lost or made up, and cuts must not change the events.

#[path = "../../tests/parsers/kept.rs"]
mod kept;

/// Run on one input.
pub fn run(data: &[u8]) {
    if let Some(input) = kept::Input::new(data) {
        input.check();
    }
}
