//! Grants of a plugin under test, and the time that it sees.

use std::str::FromStr;

use anyhow::ensure;
use mortise_plugin::{Component, HttpGrant, Kind, Origin};
use serde::Deserialize;
use time::format_description::well_known::Rfc3339;
use time::macros::datetime;
use time::{OffsetDateTime, UtcOffset};

/// A time that does not pass, so that outputs can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Moment(OffsetDateTime);

/// A text is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no time {problem}; write one such as 2024-01-31T12:00:00Z")]
pub struct MomentError {
    text: String,
    problem: &'static str,
}

impl Moment {
    /// Time of golden cases that name none.
    pub const GOLDEN: Self = Self(datetime!(2024-01-01 0:00 UTC));

    /// Milliseconds since 1970.
    pub fn unix_millis(self) -> u64 {
        u64::try_from(self.0.unix_timestamp_nanos() / 1_000_000).unwrap_or_default()
    }

    /// The day in UTC, as templates are told it.
    pub fn today(self) -> String {
        self.0.to_offset(UtcOffset::UTC).date().to_string()
    }
}

impl FromStr for Moment {
    type Err = MomentError;

    fn from_str(text: &str) -> Result<Self, MomentError> {
        let wrong = |problem| MomentError {
            text: text.to_owned(),
            problem,
        };
        let moment = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| wrong("in RFC 3339"))?;
        match moment < OffsetDateTime::UNIX_EPOCH {
            true => Err(wrong("since 1970")),
            false => Ok(Self(moment)),
        }
    }
}

impl TryFrom<String> for Moment {
    type Error = MomentError;

    fn try_from(text: String) -> Result<Self, MomentError> {
        text.parse()
    }
}

/// Grants to a plugin under test.
#[derive(Debug, Clone, Default)]
pub struct TestGrants {
    /// Origins that a policy or a tool may send HTTP requests to.
    pub origins: Vec<Origin>,
    /// Names and values, for policies.
    pub secrets: Vec<(String, String)>,
    /// Fixed time; the system's clock without it.
    pub now: Option<Moment>,
}

impl TestGrants {
    /// Whether the plugin could make use of them.
    ///
    /// # Errors
    /// When one of them is for other kinds only.
    pub fn check(&self, component: &Component) -> anyhow::Result<()> {
        let has = |kinds: &[Kind]| component.kinds().iter().any(|kind| kinds.contains(kind));
        ensure!(
            self.origins.is_empty()
                || has(&[Kind::Policy, Kind::Tool, Kind::Guardrail, Kind::Retriever]),
            "--allow-origin: only a policy, a tool, a guardrail or a retriever can send HTTP requests"
        );
        ensure!(
            self.secrets.is_empty() || has(&[Kind::Policy]),
            "--secret: only a policy can be granted secrets"
        );
        ensure!(
            self.now.is_none()
                || has(&[
                    Kind::ChatTemplate,
                    Kind::Policy,
                    Kind::Tool,
                    Kind::Guardrail,
                    Kind::Retriever
                ]),
            "--now: only a chat template, a policy, a tool, a guardrail or a retriever is told the time"
        );
        Ok(())
    }

    /// The grant of HTTP requests.
    pub fn http(&self) -> HttpGrant {
        HttpGrant {
            origins: self.origins.clone(),
            ..HttpGrant::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_rfc_3339_has_them() {
        let read = |text: &str| text.parse::<Moment>();
        let moment = read("2024-02-29T23:30:00.250-01:00").expect("a time");
        assert_eq!(moment.unix_millis(), 1_709_253_000_250);
        assert_eq!(moment.today(), "2024-03-01", "in UTC");
        assert_eq!(Moment::GOLDEN.unix_millis(), 1_704_067_200_000);
        assert_eq!(Moment::GOLDEN.today(), "2024-01-01");
        for (text, problem) in [
            ("2024-02-30T00:00:00Z", "RFC 3339"),
            ("2024-02-29", "RFC 3339"),
            ("noon", "RFC 3339"),
            ("1969-12-31T23:59:59Z", "since 1970"),
        ] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains(problem) && error.contains(text), "{error}");
        }
    }
}
