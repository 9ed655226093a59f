//! Runs of the server's tools.

use mortise_service::ToolRun;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::histogram;

/// Tools are known by name: those that plugins have declared, and no others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    tool: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool: String,
}

/// Counters and durations of each tool.
#[derive(Clone)]
pub(super) struct ToolMetrics {
    runs: Family<RunLabels, Counter>,
    seconds: Family<ToolLabel, Histogram>,
}

impl ToolMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let tools = Self {
            runs: Family::default(),
            seconds: Family::new_with_constructor(histogram),
        };
        registry.register(
            "tool_runs",
            "Calls of the server's tools, by what came of them",
            tools.runs.clone(),
        );
        registry.register(
            "tool_run_seconds",
            "Time that calls of the server's tools took",
            tools.seconds.clone(),
        );
        tools
    }

    pub(super) fn ran(&self, run: &ToolRun<'_>) {
        let labels = RunLabels {
            tool: run.tool.to_owned(),
            outcome: run.outcome.name(),
        };
        self.runs.get_or_create(&labels).inc();
        let label = ToolLabel {
            tool: run.tool.to_owned(),
        };
        let seconds = self.seconds.get_or_create(&label);
        seconds.observe(run.took.as_secs_f64());
    }
}
