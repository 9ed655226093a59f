//! Order of JSON keys as a caller wrote them.

/// Order in which the keys of a tool declaration or a tool call stand when a chat template prints it
/// as JSON. Templates print declarations with `tojson`, so the order is part of the prompt.
///
/// Keys that are listed and have no value are written as null. Keys that have a value and are not
/// listed follow in the usual order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyOrder {
    outer: Vec<String>,
    function: Vec<String>,
}

impl KeyOrder {
    /// The order of the outer object's keys and of the keys of its `function`.
    pub fn new(outer: Vec<String>, function: Vec<String>) -> Self {
        Self { outer, function }
    }

    pub(crate) fn outer(&self) -> &[String] {
        &self.outer
    }

    pub(crate) fn function(&self) -> &[String] {
        &self.function
    }
}
