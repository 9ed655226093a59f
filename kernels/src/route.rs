//! Routing of a token to experts: top-k selection and weights.

use crate::log_softmax::log_sum_exp;

/// Score function of a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouterScores {
    /// Shares of all experts, which sum to 1.
    Softmax,
    /// Each expert by itself.
    Sigmoid,
}

/// Score of a group of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRank {
    /// Its best expert.
    Best,
    /// The sum of its best two.
    BestTwo,
}

/// Group-limited routing: only experts of the best groups are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups; they divide the experts.
    pub groups: usize,
    /// Groups whose experts can be selected; at least 1.
    pub kept: usize,
    /// Score of a group.
    pub rank: GroupRank,
}

/// Routing parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routing {
    /// Score function.
    pub scores: RouterScores,
    /// Experts for a token; at least 1, and as many as the kept groups have.
    pub chosen: usize,
    /// `None` is one group of all.
    pub groups: Option<ExpertGroups>,
    /// Whether the weights of the selected experts are divided by their sum.
    pub normalised: bool,
    /// Factor of the shares at last.
    pub scale: f32,
}

/// An expert and its share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    /// Number of the expert.
    pub expert: usize,
    /// Weight of its output.
    pub share: f32,
}

/// Select the experts of one token, best first, equals by number. `correction` is added to the
/// scores for the selection, not for the weights.
pub fn route(
    routing: &Routing,
    logits: &[f32],
    correction: Option<&[f32]>,
    routes: &mut Vec<Route>,
) {
    let experts = logits.len();
    assert!(routing.chosen > 0 && routing.chosen <= experts);
    assert!(correction.is_none_or(|correction| correction.len() == experts));
    let scores: Vec<f32> = match routing.scores {
        RouterScores::Softmax => {
            let total = log_sum_exp(logits);
            logits.iter().map(|logit| (logit - total).exp()).collect()
        }
        RouterScores::Sigmoid => {
            let sigmoid = |logit: &f32| 1.0 / (1.0 + (-logit).exp());
            logits.iter().map(sigmoid).collect()
        }
    };
    let mut ranks = scores.clone();
    for (rank, correction) in ranks.iter_mut().zip(correction.unwrap_or_default()) {
        *rank += correction;
    }
    if let Some(groups) = routing.groups {
        keep_groups(groups, &mut ranks);
    }
    let best = best_first(&ranks);
    let chosen = &best[..routing.chosen];
    let total: f32 = chosen.iter().map(|expert| scores[*expert]).sum();
    // Sigmoids can all be zero.
    let divisor = if routing.normalised {
        total.max(1e-20)
    } else {
        1.0
    };
    routes.clear();
    routes.extend(chosen.iter().map(|&expert| Route {
        expert,
        share: scores[expert] / divisor * routing.scale,
    }));
}

/// Set the ranks of experts of all but the best groups to minus infinity.
fn keep_groups(groups: ExpertGroups, ranks: &mut [f32]) {
    assert!(groups.groups > 0 && ranks.len().is_multiple_of(groups.groups));
    assert!(groups.kept > 0 && groups.kept <= groups.groups);
    let size = ranks.len() / groups.groups;
    let judged: Vec<f32> = ranks
        .chunks_exact(size)
        .map(|group| {
            let order = best_first(group);
            let counted = match groups.rank {
                GroupRank::Best => 1,
                GroupRank::BestTwo => 2.min(size),
            };
            order[..counted].iter().map(|expert| group[*expert]).sum()
        })
        .collect();
    for &group in &best_first(&judged)[groups.kept..] {
        ranks[group * size..][..size].fill(f32::NEG_INFINITY);
    }
}

fn best_first(values: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order
}
