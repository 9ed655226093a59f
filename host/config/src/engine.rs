//! The `[engine]` table: how the local engine computes and shares.

use std::collections::BTreeMap;
use std::time::Duration;

use mortise_engine::{EngineConfig, Speculation};
use mortise_models::lifecycle::KvTypeName;
use mortise_models::{DeviceChoice, EngineSettings, RequestDefaults};
use serde::Deserialize;

use super::health::RawHealthTable;
use super::limits::RawLimits;
use super::{ConfigError, invalid, milliseconds, positive, within};

/// The table as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawEngine {
    pub(super) device: DeviceChoice,
    threads: usize,
    warm_up: bool,
    step_token_budget: usize,
    prefill_chunk_ms: u64,
    kv_cache_mib: usize,
    kv_type: KvTypeName,
    prefix_cache: bool,
    share_prefixes_between_tenants: bool,
    speculation: RawSpeculation,
    draft_tokens: usize,
    tenant_weights: BTreeMap<String, u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawSpeculation {
    Off,
    PromptLookup,
    DraftModel,
}

impl Default for RawEngine {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Auto,
            threads: 0,
            warm_up: true,
            step_token_budget: 512,
            prefill_chunk_ms: 150,
            kv_cache_mib: 1024,
            kv_type: KvTypeName::F32,
            prefix_cache: true,
            share_prefixes_between_tenants: false,
            speculation: RawSpeculation::Off,
            draft_tokens: 8,
            tenant_weights: BTreeMap::new(),
        }
    }
}

impl RawEngine {
    /// `tenants` says whether there are tenants who have to share.
    pub(super) fn check(
        &self,
        limits: &RawLimits,
        health: &RawHealthTable,
        tenants: bool,
    ) -> Result<EngineSettings, ConfigError> {
        const DRAFT_TOKENS_MAX: usize = 32;
        const WEIGHT_MAX: u32 = 1000;
        let max_batch = within("limits.max_batch", limits.max_batch, 1 << 12)?;
        let budget = within("engine.step_token_budget", self.step_token_budget, 1 << 20)?;
        if budget < max_batch {
            return Err(invalid(
                "engine.step_token_budget",
                format!(
                    "it is {budget} and must be at least `limits.max_batch`, which is {max_batch}"
                ),
            ));
        }
        let draft_tokens = within("engine.draft_tokens", self.draft_tokens, DRAFT_TOKENS_MAX)?;
        for (tenant, weight) in &self.tenant_weights {
            if !(1..=WEIGHT_MAX).contains(weight) {
                return Err(invalid(
                    &format!("engine.tenant_weights.{tenant}"),
                    format!("it must be from 1 to {WEIGHT_MAX}; it is {weight}"),
                ));
            }
        }
        let engine = EngineConfig {
            max_sequences: max_batch,
            max_queue: within("limits.max_queue", limits.max_queue, 1 << 16)?,
            max_queued_tokens: positive("limits.max_queued_tokens", limits.max_queued_tokens)?,
            reserve_queue: limits.reserve_queue.unwrap_or(tenants),
            max_queue_per_tenant: limits.max_queue_per_tenant,
            max_sequences_per_tenant: limits.max_batch_per_tenant,
            idle_tenant: (limits.idle_tenant_seconds > 0)
                .then(|| Duration::from_secs(limits.idle_tenant_seconds)),
            breaker_failures: limits.breaker_failures,
            max_expected_wait: match limits.max_expected_wait_ms {
                0 => None,
                time => Some(milliseconds("limits.max_expected_wait_ms", time)?),
            },
            step_token_budget: budget,
            prefill_chunk: match self.prefill_chunk_ms {
                0 => None,
                time => Some(milliseconds("engine.prefill_chunk_ms", time)?),
            },
            kv_cache_bytes: within("engine.kv_cache_mib", self.kv_cache_mib, 1 << 24)? << 20,
            kv_type: self.kv_type.into(),
            prefix_cache: self.prefix_cache,
            speculation: match self.speculation {
                RawSpeculation::Off => Speculation::Off,
                RawSpeculation::PromptLookup => Speculation::PromptLookup { draft_tokens },
                RawSpeculation::DraftModel => Speculation::DraftModel { draft_tokens },
            },
            threads: self.threads,
            warm_up: self.warm_up,
            stall: Some(health.stall()),
            ..EngineConfig::default()
        };
        Ok(EngineSettings {
            device: self.device,
            defaults: RequestDefaults::default(),
            engine,
            share_prefixes: self.share_prefixes_between_tenants,
            tenant_weights: self.tenant_weights.clone(),
        })
    }
}
