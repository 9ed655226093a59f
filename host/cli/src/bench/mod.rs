//! `mortise bench`: what the engine does in a second, and what a server does under load. Figures are
//! medians of several runs; a table for people, JSON for programs.

mod client;
mod engine;
mod report;

use crate::cli::BenchArgs;

/// Measure and print.
pub(crate) fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let report = match &args.serve {
        Some(url) => client::measure(url, args)?,
        None => engine::measure(args)?,
    };
    let text = if args.json {
        format!("{:#}\n", report.json())
    } else {
        report.table()
    };
    mortise_harness::print(&text)
}
