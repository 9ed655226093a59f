//! Outcomes of cases: a line each while they run, or one JSON object when all have run.

use mortise_harness::{print, print_json, shortened};
use serde_json::{Value, json};

/// Outcomes that are told.
pub(crate) struct Outcomes {
    as_json: bool,
    cases: Vec<Value>,
    failed: usize,
}

impl Outcomes {
    pub(crate) fn new(as_json: bool) -> Self {
        Self {
            as_json,
            cases: Vec::new(),
            failed: 0,
        }
    }

    /// Tell how a case ended.
    pub(crate) fn tell(&mut self, name: &str, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
        let why = outcome.err().map(|error| shortened(format!("{error:#}")));
        self.failed += usize::from(why.is_some());
        self.cases
            .push(json!({"name": name, "passed": why.is_none(), "error": why}));
        match why {
            _ if self.as_json => Ok(()),
            None => print(&format!("ok      {name}\n")),
            Some(why) => print(&format!("FAILED  {name}: {why}\n")),
        }
    }

    /// Count of failed cases, after the outcomes of all are printed.
    pub(crate) fn end(self) -> anyhow::Result<usize> {
        if self.as_json {
            let passed = self.cases.len() - self.failed;
            let failed = self.failed;
            print_json(&json!({"passed": passed, "failed": failed, "cases": self.cases}))?;
        }
        Ok(self.failed)
    }
}
