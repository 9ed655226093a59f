//! Cases that are run many times.

use mortise_harness::{Case, PluginUnderTest};
use serde_json::Value;

use crate::guest_log::GuestLog;
use crate::steps::OpenSteps;

/// Runs cases, and shows how far that is.
pub(crate) struct Rounds<'a> {
    open: OpenSteps,
    log: &'a GuestLog,
}

impl<'a> Rounds<'a> {
    /// Runs are shown by what `open` opens, beside the lines of plugins.
    pub(crate) fn new(open: OpenSteps, log: &'a GuestLog) -> Self {
        Self { open, log }
    }

    /// Run each case so many times; the number of calls that failed. A case about settings that are refused has nothing to
    /// run.
    pub(crate) fn run(
        &self,
        cases: &[(String, Case)],
        rounds: u32,
        subject: &PluginUnderTest,
        common: &Value,
    ) -> anyhow::Result<u64> {
        let rounds = u64::from(rounds);
        let steps = (self.open)(rounds * cases.len() as u64);
        let _beside = self.log.beside(&steps);
        let mut failed = 0;
        for (name, case) in cases {
            steps.begin(name);
            let kind = case.kind(subject)?;
            let Ok(bench) = case.harness(subject, common) else {
                steps.advance(rounds);
                continue;
            };
            for _ in 0..rounds {
                failed += u64::from(bench.ask(kind, case.input.clone()).is_err());
                steps.advance(1);
            }
            tracing::debug!(case = name, "measured");
        }
        Ok(failed)
    }
}
