//! Experts in configuration files.

use mortise_kernels::route::{ExpertGroups, GroupRank, RouterScores, Routing};

use super::ExpertsSpec;
use super::families::{Family, RouterRule};
use crate::error::ModelError;
use crate::fields::{ObjectFields, brief};
use crate::limits::{EXPERTS_MAX, INTERMEDIATE_MAX};

pub(super) fn read_experts(
    config: &ObjectFields,
    family: &Family,
) -> Result<Option<ExpertsSpec>, ModelError> {
    let Some(rule) = family.router else {
        return Ok(None);
    };
    let (experts_field, experts) = read_number(config)?;
    let chosen = config.required_count("num_experts_per_tok", 1..=EXPERTS_MAX)?;
    let (scores, groups) = match rule {
        RouterRule::DeepseekV2 => (RouterScores::Softmax, read_v2_groups(config)?),
        RouterRule::DeepseekV3 => (RouterScores::Sigmoid, read_v3_groups(config)?),
        _ => (RouterScores::Softmax, None),
    };
    if let Some(groups) = groups
        && !experts.is_multiple_of(groups.groups)
    {
        let problem = format!("is {}; it must divide the {experts} experts", groups.groups);
        return Err(config.wrong("n_group", problem));
    }
    let open = groups.map_or(experts, |groups| experts / groups.groups * groups.kept);
    if chosen > open {
        let problem = format!("is {chosen}; at most {open} of `{experts_field}` can be chosen");
        return Err(config.wrong("num_experts_per_tok", problem));
    }
    let routing = Routing {
        scores,
        chosen,
        groups,
        normalised: read_normalised(config, rule)?,
        scale: match rule {
            RouterRule::DeepseekV2 | RouterRule::DeepseekV3 => {
                let scale = config.number("routed_scaling_factor", 1e-6..=1e6)?;
                scale.unwrap_or(1.0) as f32
            }
            _ => 1.0,
        },
    };
    let width_field = match rule {
        RouterRule::Mixtral | RouterRule::GptOss => "intermediate_size",
        _ => "moe_intermediate_size",
    };
    let intermediate = config.required_count(width_field, 1..=INTERMEDIATE_MAX)?;
    let shared = read_shared(config, rule, intermediate)?;
    Ok(Some(ExpertsSpec {
        experts,
        intermediate,
        routing,
        correction: rule == RouterRule::DeepseekV3,
        bias: rule == RouterRule::GptOss,
        shared,
        shared_gate: rule == RouterRule::Qwen && shared.is_some(),
    }))
}

/// Number of experts, by the name that the family uses.
fn read_number(config: &ObjectFields) -> Result<(&'static str, usize), ModelError> {
    for field in ["num_local_experts", "n_routed_experts", "num_experts"] {
        if let Some(experts) = config.count(field, 1..=EXPERTS_MAX)? {
            return Ok((field, experts));
        }
    }
    Err(config.wrong("num_experts", "is missing"))
}

fn read_normalised(config: &ObjectFields, rule: RouterRule) -> Result<bool, ModelError> {
    const FIELD: &str = "norm_topk_prob";
    let flag = config.flag(FIELD)?;
    match rule {
        RouterRule::Mixtral | RouterRule::GptOss => Ok(true),
        RouterRule::Qwen => Ok(flag.unwrap_or(false)),
        RouterRule::DeepseekV3 => Ok(flag.unwrap_or(true)),
        RouterRule::DeepseekV2 if flag == Some(true) => Err(config.wrong(
            FIELD,
            "is true, which is not supported for this architecture",
        )),
        RouterRule::DeepseekV2 => Ok(false),
    }
}

/// The width of the expert that computes every token.
fn read_shared(
    config: &ObjectFields,
    rule: RouterRule,
    intermediate: usize,
) -> Result<Option<usize>, ModelError> {
    match rule {
        RouterRule::Mixtral | RouterRule::GptOss => Ok(None),
        RouterRule::Qwen => config.count("shared_expert_intermediate_size", 1..=INTERMEDIATE_MAX),
        RouterRule::DeepseekV2 | RouterRule::DeepseekV3 => {
            let shared = config.count("n_shared_experts", 0..=64)?;
            Ok(shared
                .filter(|shared| *shared > 0)
                .map(|shared| shared * intermediate))
        }
    }
}

fn read_v2_groups(config: &ObjectFields) -> Result<Option<ExpertGroups>, ModelError> {
    match config.text("topk_method")? {
        None | Some("greedy") => Ok(None),
        Some("group_limited_greedy") => read_groups(config, GroupRank::Best).map(Some),
        Some(other) => Err(wrong_method(config, "topk_method", other)),
    }
}

fn read_v3_groups(config: &ObjectFields) -> Result<Option<ExpertGroups>, ModelError> {
    for (field, supported) in [("topk_method", "noaux_tc"), ("scoring_func", "sigmoid")] {
        if let Some(other) = config.text(field)?
            && other != supported
        {
            return Err(wrong_method(config, field, other));
        }
    }
    read_groups(config, GroupRank::BestTwo).map(Some)
}

fn read_groups(config: &ObjectFields, rank: GroupRank) -> Result<ExpertGroups, ModelError> {
    let groups = config.required_count("n_group", 1..=EXPERTS_MAX)?;
    let kept = config.required_count("topk_group", 1..=groups)?;
    Ok(ExpertGroups { groups, kept, rank })
}

fn wrong_method(config: &ObjectFields, field: &str, found: &str) -> ModelError {
    let shown = brief(&found.into());
    config.wrong(
        field,
        format!("is {shown}, which is not supported for this architecture"),
    )
}
