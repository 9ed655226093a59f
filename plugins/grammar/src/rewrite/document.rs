//! The schema whose references are followed, with the number of questions that may be asked of it.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::strings::{self, Complement};

/// References and lists that are followed, one within the other.
pub(super) const MAX_DEPTH: usize = 24;
/// Questions to schemas that one rewriting may ask.
const MAX_STEPS: usize = 200_000;
/// Questions that one to a regular expression counts as.
pub(super) const PATTERN_STEPS: usize = 100;
/// Questions that the complement of a regular expression counts as.
const COMPLEMENT_STEPS: usize = 2_000;

/// Schema whose references lead to its `$defs`, with the number of questions that were asked.
pub(super) struct Document {
    definitions: Map<String, Value>,
    steps: Cell<usize>,
}

impl Document {
    pub(super) fn new(definitions: Map<String, Value>) -> Self {
        Self {
            definitions,
            steps: Cell::new(0),
        }
    }

    /// Schema that a reference leads to.
    pub(super) fn target(&self, reference: &Value) -> Option<&Value> {
        let name = reference.as_str()?.strip_prefix("#/$defs/")?;
        self.definitions.get(name)
    }

    /// Count a question; true if there were too many.
    pub(super) fn is_spent(&self) -> bool {
        self.spend(1)
    }

    pub(super) fn spend(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get() + steps);
        self.steps.get() > MAX_STEPS
    }

    /// Whether the text has the pattern in it, if that can be found out.
    pub(super) fn matches(&self, pattern: &str, text: &str) -> Option<bool> {
        match self.spend(PATTERN_STEPS) {
            true => None,
            false => strings::matches(pattern, text),
        }
    }

    /// The strings that have all of some patterns in them, and none of others.
    pub(super) fn among(&self, all: &[&str], none: &[&str]) -> Complement {
        match self.spend(COMPLEMENT_STEPS) {
            true => Complement::Unknown,
            false => strings::among(all, none),
        }
    }

    /// The strings that do not have this pattern in them.
    pub(super) fn complement(&self, pattern: &str) -> Complement {
        match self.spend(COMPLEMENT_STEPS) {
            true => Complement::Unknown,
            false => strings::complement(pattern),
        }
    }
}
