//! Cost of requests: prices by model, budgets of callers and tenants, and totals of the day.
//!
//! Amounts are whole millionths of the currency. A request's highest cost is reserved before its prompt is submitted, and
//! settled by what was used when it has ended. Budgets of the day are counters as those of policies are, so they are kept, and
//! shared by hosts, as those are.

mod account;
mod book;
mod budget;
mod ledger;
pub mod limits;
mod money;
mod price;

pub use account::Accountant;
pub use book::{AccountTotals, Book, DayTotals};
pub use budget::{Budget, Holder};
pub use ledger::{LedgerError, MoneyLedger};
pub use money::{Money, MoneyError};
pub use price::{Price, PriceList};
