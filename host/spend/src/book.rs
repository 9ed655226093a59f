//! Totals of today and of the day before, by account and by model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::limits::{MAX_ACCOUNTS, MAX_PRICED_MODELS};
use crate::money::Money;

/// Name for all beyond those that are told apart.
const OTHERS: &str = "others";

const DAY_SECONDS: u64 = 86_400;

/// Totals of a day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DayTotals {
    /// Number of the day since 1970, in UTC.
    pub day: u64,
    /// By account.
    pub accounts: BTreeMap<String, AccountTotals>,
    /// By model.
    pub models: BTreeMap<String, AccountTotals>,
}

/// Totals of an account, or of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountTotals {
    /// Requests that ended.
    pub requests: u64,
    /// Amount that requests under way may cost at most.
    pub reserved: Money,
    /// Amount that was charged.
    pub settled: Money,
    /// Amount that was reserved and not used.
    pub released: Money,
    /// Requests that were charged all that was reserved, since nobody knows what they used.
    pub unknown: u64,
    /// Requests that were refused for want of money.
    pub refused: u64,
}

/// Keeps the totals of this host.
#[derive(Debug, Default)]
pub struct Book {
    days: Mutex<[DayTotals; 2]>,
    /// Charged amounts since the start, by model.
    charged: Mutex<BTreeMap<String, Money>>,
}

impl Book {
    /// Totals of today, and of the day before.
    pub fn days(&self) -> [DayTotals; 2] {
        self.today(today()).clone()
    }

    /// Charged amounts since the start, by model.
    pub fn charged(&self) -> Vec<(String, Money)> {
        let charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        charged
            .iter()
            .map(|(model, money)| (model.clone(), *money))
            .collect()
    }

    fn today(&self, day: u64) -> MutexGuard<'_, [DayTotals; 2]> {
        let mut days = self.days.lock().unwrap_or_else(PoisonError::into_inner);
        if days[0].day != day {
            let before = std::mem::take(&mut days[0]);
            days[1] = match before.day + 1 == day {
                true => before,
                false => DayTotals::default(),
            };
            // What is under way is still reserved.
            let carried = |lines: &BTreeMap<String, AccountTotals>| {
                let open = lines.iter().filter(|(_, line)| line.reserved > Money::ZERO);
                let open = open.map(|(name, line)| {
                    let reserved = line.reserved;
                    (
                        name.clone(),
                        AccountTotals {
                            reserved,
                            ..AccountTotals::default()
                        },
                    )
                });
                open.collect()
            };
            days[0] = DayTotals {
                day,
                accounts: carried(&days[1].accounts),
                models: carried(&days[1].models),
            };
        }
        days
    }

    /// Change the lines of these accounts and of a model.
    fn change(&self, accounts: &[String], model: &str, change: impl Fn(&mut AccountTotals)) {
        let mut days = self.today(today());
        let today = &mut days[0];
        change(line(&mut today.models, model, MAX_PRICED_MODELS));
        for account in accounts {
            change(line(&mut today.accounts, account, MAX_ACCOUNTS));
        }
    }

    pub(crate) fn reserve(&self, accounts: &[String], model: &str, amount: Money) {
        self.change(accounts, model, |line| {
            line.reserved = line.reserved.plus(amount)
        });
    }

    pub(crate) fn refuse(&self, accounts: &[String], model: &str) {
        self.change(accounts, model, |line| line.refused += 1);
    }

    pub(crate) fn settle(
        &self,
        accounts: &[String],
        model: &str,
        reserved: Money,
        cost: Money,
        unknown: bool,
    ) {
        self.change(accounts, model, |line| {
            line.requests += 1;
            line.reserved = line.reserved.minus(reserved);
            line.settled = line.settled.plus(cost);
            line.released = line.released.plus(reserved.minus(cost));
            line.unknown += u64::from(unknown);
        });
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        let known = charged.contains_key(model) || charged.len() < MAX_PRICED_MODELS;
        let name = if known { model } else { OTHERS };
        let sum = charged.entry(name.to_owned()).or_default();
        *sum = sum.plus(cost);
    }
}

fn line<'a>(
    lines: &'a mut BTreeMap<String, AccountTotals>,
    name: &str,
    most: usize,
) -> &'a mut AccountTotals {
    let known = lines.contains_key(name) || lines.len() < most;
    let name = if known { name } else { OTHERS };
    lines.entry(name.to_owned()).or_default()
}

fn today() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs() / DAY_SECONDS
}

#[cfg(test)]
mod tests {
    use super::*;

    const CENT: Money = Money::micros(10_000);

    #[test]
    fn what_is_reserved_is_settled_or_released() {
        let book = Book::default();
        let accounts = ["caller a".to_owned(), "tenant t".to_owned()];
        book.reserve(&accounts, "m", CENT);
        book.reserve(&accounts[..1], "m", CENT);
        book.settle(&accounts, "m", CENT, Money::micros(4_000), false);
        let [today, _] = book.days();
        let line = today.accounts["caller a"];
        assert_eq!((line.requests, line.reserved), (1, CENT));
        assert_eq!(
            (line.settled, line.released),
            (Money::micros(4_000), Money::micros(6_000))
        );
        assert_eq!(today.accounts["tenant t"].reserved, Money::ZERO);
        assert_eq!(today.models["m"].settled, Money::micros(4_000));
        assert_eq!(book.charged(), [("m".to_owned(), Money::micros(4_000))]);
    }

    #[test]
    fn a_new_day_begins_with_what_is_under_way() {
        let book = Book::default();
        let accounts = ["caller a".to_owned()];
        book.reserve(&accounts, "m", CENT);
        book.settle(&accounts, "m", Money::ZERO, CENT, true);
        let day = today();
        let days = book.today(day + 1).clone();
        assert_eq!(days[1].accounts["caller a"].settled, CENT);
        assert_eq!(
            days[0].accounts["caller a"],
            AccountTotals {
                reserved: CENT,
                ..AccountTotals::default()
            }
        );
        let later = book.today(day + 5).clone();
        assert!(later[1].accounts.is_empty());
    }

    #[test]
    fn accounts_beyond_the_bound_are_counted_together() {
        let book = Book::default();
        for number in 0..MAX_ACCOUNTS + 7 {
            book.reserve(&[format!("caller {number}")], "m", CENT);
        }
        let [today, _] = book.days();
        assert_eq!(today.accounts.len(), MAX_ACCOUNTS + 1);
        assert_eq!(today.accounts[OTHERS].reserved, Money::micros(70_000));
    }
}
