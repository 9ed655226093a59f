//! A policy around another one: who may ask is the inner policy's to say, and nobody whom it lets in gets longer answers
//! than the operator's limit: `{"max_tokens": 256}`. Both are one file, so neither can be left out.
//!
//! Build: `cargo build --release --target wasm32-wasip2`; then
//! `mortise plugin compose target/wasm32-wasip2/release/cap_tokens.wasm --output cap_tokens.wasm`.

use mortise_plugin_sdk::Fault;
use mortise_plugin_sdk::inner;
use mortise_plugin_sdk::policy::{Decision, Facts, Policy, Usage};
use serde::Deserialize;

mortise_plugin_sdk::export!(policy: CapTokens, settings: "settings.schema.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    max_tokens: u32,
}

struct CapTokens {
    max_tokens: u32,
    inner: inner::Policy,
}

impl Policy for CapTokens {
    type Settings = Settings;

    fn prepare(settings: Settings) -> Result<Self, Fault> {
        Ok(Self {
            max_tokens: settings.max_tokens,
            inner: inner::Policy::prepare()?,
        })
    }

    fn authorize(&self, facts: Facts) -> Result<Decision, Fault> {
        let mut decision = self.inner.authorize(&facts)?;
        if let Decision::Allow(allow) = &mut decision {
            let granted = allow.max_tokens.unwrap_or(u32::MAX);
            allow.max_tokens = Some(granted.min(self.max_tokens));
        }
        Ok(decision)
    }

    fn account(&self, usage: Usage) -> Result<(), Fault> {
        self.inner.account(&usage)
    }
}
