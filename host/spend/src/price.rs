//! Prices of models.

use mortise_service::Usage;
use wildmatch::WildMatch;

use crate::money::Money;

/// Tokens that a price is for.
const TOKENS: u128 = 1_000_000;

/// Price of a model, each part for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: Money,
    /// Tokens of the prompt that the cache had.
    pub cached_input: Money,
    /// Generated tokens.
    pub output: Money,
}

impl Price {
    /// Cost of what was used, rounded up to a millionth.
    pub fn of(self, usage: Usage) -> Money {
        let cached = usage.cached_tokens.min(usage.prompt_tokens);
        self.cost(
            u64::from(usage.prompt_tokens - cached),
            u64::from(cached),
            u64::from(usage.completion_tokens),
        )
    }

    /// Highest cost of a prompt, of which the cache may have nothing or all, and its answer.
    pub fn at_most(self, prompt: u64, answer: u64) -> Money {
        let dearest = Self {
            input: self.input.max(self.cached_input),
            ..self
        };
        dearest.cost(prompt, 0, answer)
    }

    fn cost(self, input: u64, cached: u64, output: u64) -> Money {
        let part = |tokens: u64, price: Money| u128::from(tokens) * u128::from(price.as_micros());
        let sum = part(input, self.input)
            .saturating_add(part(cached, self.cached_input))
            .saturating_add(part(output, self.output));
        Money::micros(u64::try_from(sum.div_ceil(TOKENS)).unwrap_or(u64::MAX))
    }
}

/// Prices by model; of patterns that fit, the first counts.
#[derive(Debug, Clone, Default)]
pub struct PriceList(Vec<(WildMatch, Price)>);

impl PriceList {
    /// Prices of the models that these patterns name, `*` for any text.
    pub fn new(prices: Vec<(String, Price)>) -> Self {
        let prices = prices.into_iter();
        Self(
            prices
                .map(|(model, price)| (WildMatch::new(&model), price))
                .collect(),
        )
    }

    /// Price of a model.
    pub fn of(&self, model: &str) -> Option<Price> {
        let found = self.0.iter().find(|(pattern, _)| pattern.matches(model));
        found.map(|(_, price)| *price)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn price(input: u64, cached_input: u64, output: u64) -> Price {
        Price {
            input: Money::micros(input),
            cached_input: Money::micros(cached_input),
            output: Money::micros(output),
        }
    }

    #[test]
    fn cost_is_by_the_million_and_rounded_up() {
        let price = price(150_000, 75_000, 600_000);
        let usage = Usage {
            prompt_tokens: 1_000_000,
            cached_tokens: 400_000,
            completion_tokens: 500_000,
            ..Usage::default()
        };
        assert_eq!(price.of(usage), Money::micros(90_000 + 30_000 + 300_000));
        assert_eq!(price.at_most(1, 0), Money::micros(1), "0.15 millionths");
        assert_eq!(price.at_most(0, 0), Money::ZERO);
        let dear = self::price(2_000_000, 0, 2_000_000);
        assert_eq!(dear.at_most(u64::MAX, 0), Money::micros(u64::MAX));
    }

    #[test]
    fn the_first_pattern_counts() {
        let list = PriceList::new(vec![
            ("chat-large".to_owned(), price(3, 3, 3)),
            ("chat-*".to_owned(), price(2, 2, 2)),
        ]);
        assert_eq!(list.of("chat-large"), Some(price(3, 3, 3)));
        assert_eq!(list.of("chat-small"), Some(price(2, 2, 2)));
        assert_eq!(list.of("embed"), None);
    }

    proptest! {
        #[test]
        fn what_is_used_costs_no_more_than_was_reserved(
            input in 0u64..1 << 40, cached in 0u64..1 << 40, output in 0u64..1 << 40,
            prompt: u32, of_it: u32, answer: u32,
        ) {
            let price = price(input, cached, output);
            let usage = Usage { prompt_tokens: prompt, cached_tokens: of_it, completion_tokens: answer, ..Usage::default() };
            prop_assert!(price.of(usage) <= price.at_most(u64::from(prompt), u64::from(answer)));
        }
    }
}
