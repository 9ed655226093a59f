//! Amounts of money, in whole millionths of a currency.

use std::fmt;
use std::str::FromStr;

/// Millionths of one unit.
const MICROS: u64 = 1_000_000;

/// Amount of money in millionths of the currency's unit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u64);

/// A text is no amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no amount; write digits, with up to six behind a point, such as \"0.15\"")]
pub struct MoneyError(String);

impl Money {
    /// Amount of zero.
    pub const ZERO: Self = Self(0);

    /// Amount of whole millionths.
    pub const fn micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Millionths.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Sum, at most the largest amount.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Difference, at least nothing.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let wrong = || MoneyError(text.chars().take(40).collect());
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let part: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
        let micros = whole.checked_mul(MICROS);
        let micros = micros.and_then(|micros| micros.checked_add(part));
        // An account may go below nothing by as much.
        let micros = micros.filter(|micros| i64::try_from(*micros).is_ok());
        micros.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:06}", self.0 / MICROS, self.0 % MICROS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_and_written() {
        for (text, micros) in [
            ("0", 0),
            ("1", 1_000_000),
            ("0.15", 150_000),
            ("12.000001", 12_000_001),
        ] {
            assert_eq!(text.parse(), Ok(Money::micros(micros)), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "0.0000001",
            "1,5",
            " 1",
            "9223372036855",
            "99999999999999999999",
        ] {
            assert!(text.parse::<Money>().is_err(), "{text}");
        }
        assert_eq!(Money::micros(1_500_000).to_string(), "1.500000");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(micros in 0..=u64::try_from(i64::MAX).expect("a number")) {
            let money = Money::micros(micros);
            prop_assert_eq!(money.to_string().parse(), Ok(money));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Money>();
        }
    }
}
