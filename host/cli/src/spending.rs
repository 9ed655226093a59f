//! Wiring of prices and budgets: their counters, their totals, and who shows them.

use std::sync::Arc;

use mortise_admin::Spending;
use mortise_config::SpendConfig;
use mortise_service::{ServiceConfig, Spend};
use mortise_spend::{Accountant, Book};
use mortise_telemetry::Metrics;

use crate::counters::KeptCounters;

/// Ledger that holds the budgets.
const LEDGER: &str = "spend";

/// Prices and budgets of a server, if it has any.
pub(crate) struct Money {
    config: SpendConfig,
    book: Arc<Book>,
}

impl Money {
    pub(crate) fn new(config: Option<SpendConfig>) -> Option<Self> {
        let book = Arc::<Book>::default();
        config.map(|config| Self { config, book })
    }

    /// Figures that the admin side shows.
    pub(crate) fn shown(&self) -> Spending {
        Spending {
            book: Arc::clone(&self.book),
            currency: self.config.currency.clone(),
        }
    }

    /// Keeper of the accounts.
    fn accountant(&self, counters: &KeptCounters) -> Arc<dyn Spend> {
        let SpendConfig {
            currency,
            prices,
            budgets,
        } = self.config.clone();
        let (counters, book) = (counters.ledger(LEDGER), Arc::clone(&self.book));
        Arc::new(Accountant::new(currency, prices, budgets, counters, book))
    }
}

/// Keeper of the accounts of a server that has these prices.
pub(crate) fn accountant(money: Option<&Money>, counters: &KeptCounters) -> Arc<dyn Spend> {
    match money {
        None => ServiceConfig::default().spend,
        Some(money) => money.accountant(counters),
    }
}

/// Metrics of a server that has these prices.
pub(crate) fn charged(metrics: Metrics, money: Option<&Money>, counters: &KeptCounters) -> Metrics {
    let metrics = counters.measured(metrics);
    let Some(money) = money else { return metrics };
    let book = Arc::clone(&money.book);
    metrics.charging(money.config.currency.clone(), move || {
        let charged = book.charged().into_iter();
        charged
            .map(|(model, amount)| (model, amount.as_micros()))
            .collect()
    })
}
