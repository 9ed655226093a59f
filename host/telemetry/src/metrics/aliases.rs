//! Series under the names that vLLM has for them, for dashboards and autoscalers that know those.

use std::fmt::Write as _;

/// Our families with vLLM's names for what they measure. Their `model` is its `model_name`.
const ALIASES: [(&str, &str); 11] = [
    ("mortise_batch_size_decode", "vllm:num_requests_running"),
    ("mortise_queue_depth", "vllm:num_requests_waiting"),
    ("mortise_tokens_input_total", "vllm:prompt_tokens_total"),
    (
        "mortise_tokens_output_total",
        "vllm:generation_tokens_total",
    ),
    ("mortise_preemptions_total", "vllm:num_preemptions_total"),
    (
        "mortise_prefix_queried_tokens_total",
        "vllm:prefix_cache_queries_total",
    ),
    (
        "mortise_prefix_hit_tokens_total",
        "vllm:prefix_cache_hits_total",
    ),
    (
        "mortise_queue_time_seconds",
        "vllm:request_queue_time_seconds",
    ),
    (
        "mortise_time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
    ),
    (
        "mortise_inter_token_latency_seconds",
        "vllm:inter_token_latency_seconds",
    ),
    (
        "mortise_latency_per_token_seconds",
        "vllm:request_time_per_output_token_seconds",
    ),
];

/// Name of the part of the KV cache that is in use, which is no family of ours.
const CACHE_USAGE: &str = "vllm:kv_cache_usage_perc";

/// Add them to a page in Prometheus' text format. Each has the very samples of ours.
pub(super) fn add(mut page: String) -> String {
    let mut added = String::new();
    for (ours, theirs) in ALIASES {
        let of_family = |line: &&str| family_of(line) == Some(ours);
        for line in page.lines().filter(of_family) {
            let line = line.replacen(ours, theirs, 1);
            let line = line.replacen("model=\"", "model_name=\"", 1);
            let _ = writeln!(added, "{line}");
        }
    }
    cache_usage(&page, &mut added);
    page.push_str(&added);
    page
}

/// The family that a line is about: a comment or a sample.
pub(super) fn family_of(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("# HELP ")
        .or(line.strip_prefix("# TYPE "));
    if let Some(rest) = rest {
        return rest.split(' ').next();
    }
    let name = line.split(['{', ' ']).next()?;
    let part = ["_bucket", "_sum", "_count"];
    let base = part.iter().find_map(|part| name.strip_suffix(part));
    Some(base.unwrap_or(name))
}

/// Blocks in use as a part of all blocks, of each model that has any.
fn cache_usage(page: &str, added: &mut String) {
    let values = |family: &str| -> Vec<(String, f64)> {
        let beginning = format!("{family}{{");
        let samples = page.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(&beginning)?.rsplit_once("} ")?;
            Some((labels.to_owned(), value.parse().ok()?))
        });
        samples.collect()
    };
    let used = values("mortise_kv_blocks_used");
    let help = "Part of the KV cache that is in use, from 0 to 1";
    let _ = writeln!(
        added,
        "# HELP {CACHE_USAGE} {help}\n# TYPE {CACHE_USAGE} gauge"
    );
    for (labels, all) in values("mortise_kv_blocks") {
        let used = used.iter().find(|(of, _)| *of == labels);
        if let Some((_, used)) = used
            && all > 0.0
        {
            let labels = labels.replacen("model=\"", "model_name=\"", 1);
            let _ = writeln!(added, "{CACHE_USAGE}{{{labels}}} {}", used / all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_told_again_under_the_other_name() {
        let page = "# HELP mortise_queue_depth Waiting\n# TYPE mortise_queue_depth gauge\n\
                    mortise_queue_depth{model=\"a\"} 3\n\
                    # TYPE mortise_queue_time_seconds histogram\n\
                    mortise_queue_time_seconds_bucket{model=\"a\",le=\"1.0\"} 2\n\
                    mortise_kv_blocks_used{model=\"a\"} 1\nmortise_kv_blocks{model=\"a\"} 4\n\
                    mortise_kv_blocks_used{model=\"none\"} 0\nmortise_kv_blocks{model=\"none\"} 0\n";
        let all = add(page.to_owned());
        let added = all.strip_prefix(page).expect("ours stay");
        assert_eq!(
            added,
            "# HELP vllm:num_requests_waiting Waiting\n# TYPE vllm:num_requests_waiting gauge\n\
             vllm:num_requests_waiting{model_name=\"a\"} 3\n\
             # TYPE vllm:request_queue_time_seconds histogram\n\
             vllm:request_queue_time_seconds_bucket{model_name=\"a\",le=\"1.0\"} 2\n\
             # HELP vllm:kv_cache_usage_perc Part of the KV cache that is in use, from 0 to 1\n\
             # TYPE vllm:kv_cache_usage_perc gauge\n\
             vllm:kv_cache_usage_perc{model_name=\"a\"} 0.25\n"
        );
    }
}
