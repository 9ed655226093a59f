//! Tools that the server runs for one request alone, such as a search in the documents that it names.

use std::fmt;
use std::sync::Arc;

use crate::plugins::RunTool;

/// Tools of one request. The dialect that reads the request makes them.
#[derive(Clone, Default)]
pub struct OwnTools(Vec<Arc<dyn RunTool>>);

impl OwnTools {
    /// These tools.
    pub fn new(tools: Vec<Arc<dyn RunTool>>) -> Self {
        Self(tools)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if one of them has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let declared = self.0.iter().flat_map(|tool| tool.declarations());
        declared.map(|tool| tool.name).collect()
    }

    pub(crate) fn tools(&self) -> &[Arc<dyn RunTool>] {
        &self.0
    }
}

impl fmt::Debug for OwnTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}
