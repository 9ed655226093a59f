//! Profile of a plugin: time by function.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use mortise_plugin::Profile;
use serde_json::{Value, json};

use crate::args::PluginProfileArgs;
use crate::cases::read_cases;
use crate::plugin::LoadPlugin as _;
use crate::rounds::Rounds;
use mortise_harness::PluginUnderTest;

/// Functions that are told.
const SHOWN: usize = 30;

/// `mortise plugin profile`: run every case many times and note, each millisecond, where the plugin is.
pub(crate) fn profile(args: &PluginProfileArgs, rounds: &Rounds<'_>) -> anyhow::Result<Value> {
    let plugin = &args.bench.test.plugin;
    let subject = PluginUnderTest::profiled(plugin)?.granted(&args.bench.test.grants)?;
    let Some(profile) = subject.host.profile().map(Arc::clone) else {
        bail!("the host does not profile");
    };
    let common = crate::settings_of(plugin)?;
    let cases = read_cases(&subject, args.bench.test.cases.as_deref())?;
    // What fails took its time as well.
    rounds.run(&cases, args.bench.rounds, &subject, &common)?;
    if let Some(path) = &args.folded {
        std::fs::write(path, folded(&profile))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let samples = profile.samples();
    let percent = |part: u64| (part as f64 / samples.max(1) as f64 * 1e4).round() / 1e2;
    let functions = profile.functions().into_iter().take(SHOWN).map(|share| {
        json!({
            "function": readable(&share.function),
            "own_percent": percent(share.own),
            "total_percent": percent(share.total),
        })
    });
    Ok(json!({
        "file": plugin.file,
        "samples": samples,
        "functions": functions.collect::<Vec<_>>(),
    }))
}

/// The form that flame graphs are drawn from: a line for each stack, frames joined by `;`, then the
/// number of samples.
fn folded(profile: &Profile) -> String {
    let stacks = profile.stacks().into_iter();
    let lines = stacks.map(|(stack, count)| {
        let frames: Vec<String> = stack
            .iter()
            .map(|name| readable(name).replace(';', ","))
            .collect();
        format!("{} {count}\n", frames.join(";"))
    });
    lines.collect()
}

/// A name as its author wrote it, where that was Rust.
fn readable(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}
