//! Time of a guardrail's verdicts: `mode`, `hold_tokens` and `every_tokens` of its binding.

use mortise_plugin::Kind;
use mortise_plugin_manager::VerdictTiming;
use mortise_service::GuardMode;

use super::raw::RawGuardMode;
use super::{ConfigError, invalid};

/// Tokens that are held back where the operator says no number.
const HOLD_TOKENS: u32 = 32;

/// Most tokens that may be held back, and after which a guardrail may be asked.
const MAX_WATCHED_TOKENS: u32 = 4096;

/// Read the keys of a binding; `key` makes the path of one.
pub(super) fn check_watch(
    key: &impl Fn(&str) -> String,
    kind: Kind,
    (mode, hold, every): (Option<RawGuardMode>, Option<u32>, Option<u32>),
) -> Result<VerdictTiming, ConfigError> {
    let given = [
        ("mode", mode.is_some()),
        ("hold_tokens", hold.is_some()),
        ("every_tokens", every.is_some()),
    ];
    let wrong = given.iter().find(|(_, given)| *given);
    if let (Some((name, _)), true) = (wrong, kind != Kind::Guardrail) {
        return Err(invalid(&key(name), "only a guardrail has it"));
    }
    for (name, value) in [("hold_tokens", hold), ("every_tokens", every)] {
        if value.is_some_and(|value| !(1..=MAX_WATCHED_TOKENS).contains(&value)) {
            let message = format!("it must be 1 to {MAX_WATCHED_TOKENS}");
            return Err(invalid(&key(name), message));
        }
    }
    let default = VerdictTiming::default();
    if mode != Some(RawGuardMode::Hold) {
        return match hold {
            Some(_) => Err(invalid(
                &key("hold_tokens"),
                "text is held back with mode = \"hold\" only",
            )),
            None => Ok(VerdictTiming {
                mode: GuardMode::Observe,
                every: every.unwrap_or(default.every),
            }),
        };
    }
    let tokens = hold.unwrap_or(HOLD_TOKENS);
    let every = every.unwrap_or(default.every.min(tokens));
    if every > tokens {
        let message = format!("it must be at most hold_tokens, {tokens}");
        return Err(invalid(&key("every_tokens"), message));
    }
    Ok(VerdictTiming {
        mode: GuardMode::Hold { tokens },
        every,
    })
}
