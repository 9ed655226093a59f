//! The `[spend]` table: prices of models, and budgets.

use std::path::{Path, PathBuf};

use mortise_spend::{Budget, Holder, Money, Price, PriceList};
use serde::Deserialize;

use super::{ConfigError, invalid};

/// Prices and budgets that may be configured.
const MAX_ROWS: usize = 1_000;

/// Longest name of a currency.
const MAX_CURRENCY_BYTES: usize = 16;

/// The table as it is written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSpend {
    currency: Option<String>,
    prices: Vec<RawPrice>,
    budgets: Vec<RawBudget>,
    ledger: Option<PathBuf>,
    ledger_required: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrice {
    model: String,
    input: String,
    cached_input: Option<String>,
    output: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawBudget {
    callers: Option<Vec<String>>,
    tenants: Option<Vec<String>>,
    per_day: Option<String>,
    per_request: Option<String>,
}

/// Prices of models, and budgets.
#[derive(Debug, Clone)]
pub struct SpendConfig {
    /// Name of the currency.
    pub currency: String,
    /// Prices by model.
    pub prices: PriceList,
    /// Budgets.
    pub budgets: Vec<Budget>,
    /// File of reservations and their ends.
    pub ledger: Option<PathBuf>,
    /// Requests are refused whose reservations cannot be written there.
    pub ledger_required: bool,
}

impl RawSpend {
    /// Prices and budgets; none without prices.
    pub(crate) fn check(self, base: &Path) -> Result<Option<SpendConfig>, ConfigError> {
        if self.prices.is_empty() {
            return match self == Self::default() {
                true => Ok(None),
                false => Err(invalid(
                    "spend.prices",
                    "there are none, and without them nothing costs anything",
                )),
            };
        }
        if self.prices.len().max(self.budgets.len()) > MAX_ROWS {
            return Err(invalid(
                "spend",
                format!("it has more than {MAX_ROWS} prices or budgets"),
            ));
        }
        let Some(currency) = self.currency else {
            return Err(invalid(
                "spend.currency",
                "it is missing; write a name such as \"EUR\"",
            ));
        };
        if self.ledger_required && self.ledger.is_none() {
            let problem = "there is no ledger; give it a file with `spend.ledger`";
            return Err(invalid("spend.ledger_required", problem));
        }
        let sound = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
        if !(1..=MAX_CURRENCY_BYTES).contains(&currency.len()) || !currency.bytes().all(sound) {
            let problem = format!("it must be 1 to {MAX_CURRENCY_BYTES} visible ASCII characters");
            return Err(invalid("spend.currency", problem));
        }
        let prices = self
            .prices
            .into_iter()
            .zip(0..)
            .map(|(price, at)| price.check(at));
        let budgets = self
            .budgets
            .into_iter()
            .zip(0..)
            .map(|(budget, at)| budget.check(at));
        Ok(Some(SpendConfig {
            currency,
            prices: PriceList::new(prices.collect::<Result<_, _>>()?),
            budgets: budgets.collect::<Result<_, _>>()?,
            ledger: self.ledger.map(|file| base.join(file)),
            ledger_required: self.ledger_required,
        }))
    }
}

impl RawPrice {
    fn check(self, at: usize) -> Result<(String, Price), ConfigError> {
        let amount = |name: &str, text: &str| money(&format!("spend.prices[{at}].{name}"), text);
        let input = amount("input", &self.input)?;
        let cached = self.cached_input.as_deref();
        let price = Price {
            input,
            cached_input: cached.map_or(Ok(input), |text| amount("cached_input", text))?,
            output: amount("output", &self.output)?,
        };
        Ok((self.model, price))
    }
}

impl RawBudget {
    fn check(self, at: usize) -> Result<Budget, ConfigError> {
        let key = |name: &str| format!("spend.budgets[{at}].{name}");
        let holder = match (self.callers, self.tenants) {
            (Some(names), None) if !names.is_empty() => Holder::callers(&names),
            (None, Some(names)) if !names.is_empty() => Holder::tenants(&names),
            _ => {
                let problem = "give one of `callers` and `tenants`, with patterns such as [\"*\"]";
                return Err(invalid(&key("callers"), problem));
            }
        };
        let amount = |name: &str, text: Option<String>| {
            text.map(|text| money(&key(name), &text)).transpose()
        };
        let budget = Budget {
            holder,
            per_day: amount("per_day", self.per_day)?,
            per_request: amount("per_request", self.per_request)?,
        };
        if budget.per_day.is_none() && budget.per_request.is_none() {
            let problem = "give `per_day`, `per_request`, or both";
            return Err(invalid(&key("per_day"), problem));
        }
        Ok(budget)
    }
}

fn money(key: &str, text: &str) -> Result<Money, ConfigError> {
    text.parse()
        .map_err(|error| invalid(key, format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Option<SpendConfig>, String> {
        let raw: RawSpend = toml::from_str(text).map_err(|error| error.to_string())?;
        raw.check(Path::new("/base"))
            .map_err(|error| error.to_string())
    }

    const PRICES: &str =
        "currency = \"EUR\"\n[[prices]]\nmodel = \"*\"\ninput = \"1\"\noutput = \"2\"\n";

    #[test]
    fn prices_and_budgets_are_read() {
        assert!(check("").expect("nothing").is_none());
        let text = format!("{PRICES}[[budgets]]\ncallers = [\"a\"]\nper_day = \"5\"\n");
        let spend = check(&text).expect("a table").expect("prices");
        let price = spend.prices.of("any").expect("a price");
        assert_eq!(price.cached_input, Money::micros(1_000_000), "as input");
        assert_eq!(spend.budgets[0].per_day, Some(Money::micros(5_000_000)));
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, named) in [
            ("currency = \"EUR\"".to_owned(), "spend.prices"),
            (PRICES.replace("currency = \"EUR\"", ""), "spend.currency"),
            (PRICES.replace("EUR", ""), "spend.currency"),
            (PRICES.replace("\"2\"", "\"2e3\""), "spend.prices[0].output"),
            (
                format!("{PRICES}[[budgets]]\nper_day = \"5\""),
                "spend.budgets[0].callers",
            ),
            (
                format!("{PRICES}[[budgets]]\ncallers = []\nper_day = \"5\""),
                "spend.budgets[0].callers",
            ),
            (
                format!("{PRICES}[[budgets]]\ncallers = [\"a\"]"),
                "spend.budgets[0].per_day",
            ),
            (
                format!("{PRICES}[[budgets]]\ntenants = [\"a\"]\nper_day = \"x\""),
                "spend.budgets[0].per_day",
            ),
            (
                format!("ledger_required = true\n{PRICES}"),
                "spend.ledger_required",
            ),
            (format!("{PRICES}[[budgets]]\nkeys = [\"a\"]"), "keys"),
        ] {
            let error = check(&text).map(|_| ()).expect_err(&text);
            assert!(error.contains(named), "{error}");
        }
    }
}
