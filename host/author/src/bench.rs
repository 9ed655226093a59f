//! Durations of a plugin's calls.

use std::time::Instant;

use anyhow::Context as _;
use mortise_plugin::{FunctionStats, PluginStats};
use serde_json::{Value, json};

use crate::args::PluginBenchArgs;
use crate::cases::read_cases;
use crate::plugin::LoadPlugin as _;
use crate::rounds::Rounds;
use mortise_harness::PluginUnderTest;

/// `mortise plugin bench`: run every case many times. The times are those of the calls alone, border
/// crossings included, as the server's metrics have them.
pub(crate) fn bench(args: &PluginBenchArgs, rounds: &Rounds<'_>) -> anyhow::Result<Value> {
    let plugin = &args.test.plugin;
    let begun = Instant::now();
    let subject = PluginUnderTest::timed(plugin)?.granted(&args.test.grants)?;
    let loaded = begun.elapsed();
    let common = crate::settings_of(plugin)?;
    let cases = read_cases(&subject, args.test.cases.as_deref())?;
    let failed = rounds.run(&cases, args.rounds, &subject, &common)?;
    let name = plugin.file.file_stem().unwrap_or_default();
    let name = name.to_string_lossy();
    let all = subject.host.stats();
    let own = all.iter().filter(|stats| stats.plugin == name);
    let bytes = std::fs::metadata(&plugin.file)
        .context("the file is gone")?
        .len();
    Ok(json!({
        "file": plugin.file,
        "bytes": bytes,
        "load_ms": loaded.as_secs_f64() * 1e3,
        "cases": cases.len(),
        "rounds": args.rounds,
        "failed_calls": failed,
        "kinds": own.map(kind).collect::<Vec<_>>(),
    }))
}

fn kind(stats: &PluginStats) -> Value {
    let called = stats.functions.iter().filter(|function| function.calls > 0);
    json!({
        "kind": stats.kind.as_str(),
        "instances_made": stats.created_instances,
        "memory_peak_bytes": stats.memory_peak_bytes,
        "functions": called.map(function).collect::<Vec<_>>(),
    })
}

fn function(stats: &FunctionStats) -> Value {
    let mean = stats.seconds_sum / stats.calls as f64;
    let mut timings = stats.timings.clone();
    timings.sort_unstable();
    json!({
        "function": stats.function,
        "calls": stats.calls,
        "mean_us": (mean * 1e8).round() / 1e2,
        "p50_us": percentile(&timings, 50),
        "p90_us": percentile(&timings, 90),
        "p99_us": percentile(&timings, 99),
        "max_us": percentile(&timings, 100),
        "faults": stats.faults.iter().map(|(label, count)| json!({*label: count})).collect::<Vec<_>>(),
    })
}

/// The duration, in microseconds, that so many hundredths of the calls did not exceed: that of a call, by the
/// nearest rank. `timings` are sorted nanoseconds.
fn percentile(timings: &[u64], hundredths: usize) -> Option<f64> {
    let rank = (timings.len() * hundredths).div_ceil(100);
    let nanoseconds = timings.get(rank.saturating_sub(1))?;
    Some((*nanoseconds as f64 / 10.0).round() / 1e2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_durations_of_calls() {
        let timings: Vec<u64> = (1..=200).map(|call| call * 1_000).collect();
        assert_eq!(percentile(&timings, 50), Some(100.0));
        assert_eq!(percentile(&timings, 99), Some(198.0));
        assert_eq!(percentile(&timings, 100), Some(200.0));
        assert_eq!(percentile(&[1_234], 50), Some(1.23));
        assert_eq!(percentile(&[], 50), None);
    }
}
