//! Wiring of prices and budgets: their counters, their totals, and who shows them.

use std::sync::Arc;

use mortise_admin::Spending;
use mortise_config::SpendConfig;
use mortise_service::{ServiceConfig, Spend};
use mortise_spend::{Accountant, Book, MoneyLedger};
use mortise_telemetry::Metrics;

use crate::counters::KeptCounters;

/// Ledger that holds the budgets.
const LEDGER: &str = "spend";

/// Prices and budgets of a server, if it has any.
pub(crate) struct SpendLimits {
    config: SpendConfig,
    book: Arc<Book>,
    ledger: Option<Arc<MoneyLedger>>,
}

impl SpendLimits {
    /// Open the ledger, if there is one. Blocks for as long as its end takes to be read.
    pub(crate) fn new(config: Option<SpendConfig>) -> anyhow::Result<Option<Self>> {
        let Some(config) = config else {
            return Ok(None);
        };
        let path = config.ledger.as_deref();
        let ledger = path.map(|path| MoneyLedger::open(path, config.ledger_required));
        Ok(Some(Self {
            ledger: ledger.transpose()?,
            book: Arc::default(),
            config,
        }))
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
            ..
        } = self.config.clone();
        let (counters, book) = (counters.ledger(LEDGER), Arc::clone(&self.book));
        let accountant = Accountant::new(currency, prices, budgets, counters, book);
        Arc::new(accountant.recorded(self.ledger.clone()))
    }
}

/// Keeper of the accounts of a server that has these prices.
pub(crate) fn accountant(money: Option<&SpendLimits>, counters: &KeptCounters) -> Arc<dyn Spend> {
    match money {
        None => ServiceConfig::default().spend,
        Some(money) => money.accountant(counters),
    }
}

/// Metrics of a server that has these prices.
pub(crate) fn charged(
    metrics: Metrics,
    money: Option<&SpendLimits>,
    counters: &KeptCounters,
) -> Metrics {
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
