//! Answers: two bytes that name a format and what a request has, and what a model writes, as `tests/parsers/kept.rs` has it.
//! Nothing is lost or made up, and cuts change nothing.

#[path = "../../tests/parsers/kept.rs"]
mod kept;

/// Run on one input.
pub fn run(data: &[u8]) {
    if let Some(input) = kept::Input::new(data) {
        input.check();
    }
}
