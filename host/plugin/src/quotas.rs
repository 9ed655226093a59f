//! Limits of callers as a policy tells them (`quotas`), and how much of each is used.

use crate::limits::{MAX_QUOTA_NAME_BYTES, MAX_QUOTA_TEXT_BYTES, MAX_WITHDRAWALS};
use crate::rate_counters::{CountersLost, Level, Rate};
use crate::state::escape;
use crate::{Fault, PluginError};

/// A caller that the host knows (`quotas.caller`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCaller {
    /// Id of the caller.
    pub id: String,
    /// Kind of the credential: `key` or `token`.
    pub kind: &'static str,
    /// Account of the caller.
    pub tenant: Option<String>,
    /// Scopes and limits, a JSON object.
    pub terms: String,
}

/// Unit that a limit counts (`quotas.unit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaUnit {
    /// Requests.
    Requests,
    /// Tokens of prompts and answers.
    Tokens,
    /// Answers under way.
    Answers,
    /// Something else.
    Other,
}

impl QuotaUnit {
    /// `requests`, `tokens`, `answers` or `other`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::Answers => "answers",
            Self::Other => "other",
        }
    }
}

/// A limit, and the bucket that it is counted in (`quotas.quota`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerQuota {
    /// Name of the limit.
    pub name: String,
    /// Unit that it counts.
    pub unit: QuotaUnit,
    /// Holder that shares it with others.
    pub shared_by: Option<String>,
    /// Name of the bucket.
    pub bucket: String,
    /// Capacity and period of the bucket.
    pub rate: Rate,
}

/// A limit with its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaUse {
    /// The limit.
    pub quota: CallerQuota,
    /// State of its bucket.
    pub level: Level,
}

/// Reason for which limits are not told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuotasUntold {
    /// The component does not export the interface.
    #[error("it does not export `quotas`, so it does not tell the limits of callers")]
    NotExported,
    /// The policy does not know.
    #[error("it does not tell the limits of callers")]
    NotTold,
    /// The policy failed.
    #[error("{0}")]
    Failed(#[from] Box<PluginError>),
    /// The policy failed a moment ago.
    #[error("it failed when it was asked for them less than a minute ago; the log says how")]
    FailedLately,
    /// The counters cannot be reached.
    #[error(transparent)]
    CountersLost(#[from] CountersLost),
}

/// Check limits that a policy told: they are shown to people, and looked up.
pub(crate) fn check(quotas: &[CallerQuota]) -> Result<(), Fault> {
    let wrong = |problem: String| Err(Fault::InvalidResult(problem));
    let count = quotas.len();
    if count > MAX_WITHDRAWALS {
        return wrong(format!(
            "told {count} limits of a caller, of at most {MAX_WITHDRAWALS}"
        ));
    }
    for quota in quotas {
        let holder = quota.shared_by.as_deref();
        for (what, text, most) in [
            ("name", Some(quota.name.as_str()), MAX_QUOTA_NAME_BYTES),
            ("holder", holder, MAX_QUOTA_TEXT_BYTES),
            ("bucket", Some(quota.bucket.as_str()), MAX_QUOTA_TEXT_BYTES),
        ] {
            let Some(text) = text else { continue };
            let length = text.len();
            if length == 0 || length > most {
                return wrong(format!(
                    "told a limit whose {what} has {length} bytes; 1 to {most} are allowed"
                ));
            }
            if escape(text) != text {
                return wrong(format!("told a limit whose {what} has a control character"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(name: &str, holder: Option<&str>, bucket: &str) -> CallerQuota {
        CallerQuota {
            name: name.to_owned(),
            unit: QuotaUnit::Requests,
            shared_by: holder.map(str::to_owned),
            bucket: bucket.to_owned(),
            rate: Rate {
                capacity: 1,
                period_ms: 1,
            },
        }
    }

    #[test]
    fn limits_that_cannot_be_shown_are_refused() {
        let long = "n".repeat(MAX_QUOTA_TEXT_BYTES + 1);
        for good in [
            vec![],
            vec![quota("requests_per_day", Some("tenant acme"), "day.acme")],
            vec![quota("n", None, &long[1..]); MAX_WITHDRAWALS],
        ] {
            assert_eq!(check(&good), Ok(()));
        }
        for wrong in [
            vec![quota("", None, "b")],
            vec![quota(&long[..MAX_QUOTA_NAME_BYTES + 1], None, "b")],
            vec![quota("n", Some(""), "b")],
            vec![quota("n", Some(&long), "b")],
            vec![quota("n", None, "")],
            vec![quota("n", None, &long)],
            vec![quota("n\n", None, "b")],
            vec![quota("n", Some("\u{1b}[2J"), "b")],
            vec![quota("n", None, "b"); MAX_WITHDRAWALS + 1],
        ] {
            assert!(
                matches!(check(&wrong), Err(Fault::InvalidResult(_))),
                "{wrong:?}"
            );
        }
    }
}
