//! Bounds of a grammar in GBNF.

/// Rules of a grammar.
pub(crate) const MAX_RULES: usize = 1_000;
/// Literals, classes, references and groups of a grammar.
pub(crate) const MAX_ELEMENTS: usize = 5_000;
/// Groups around an element.
pub(crate) const MAX_DEPTH: usize = 32;
/// Times that a part may be repeated by a number.
pub(crate) const MAX_REPETITION: u32 = 2_000;
