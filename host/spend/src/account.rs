//! Reservations of what requests may cost, and their settlement.

use std::sync::Arc;

use mortise_plugin::{CountersLost, Rate, RateCounters};
use mortise_service::{
    Denial, Outcome, PluginFuture, Principal, Purchase, Reserved, ServiceError, Spend, Usage,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;

use crate::book::Book;
use crate::budget::{Budget, account_of};
use crate::ledger::{LedgerEntry, MoneyLedger};
use crate::money::Money;
use crate::price::{Price, PriceList};

const DAY_MS: u64 = 86_400_000;

/// Longest name of an account that stands in the name of its bucket; a longer one goes by its digest.
const MAX_ACCOUNT_BYTES: usize = 200;

/// Keeps account of what requests cost.
pub struct Accountant {
    currency: String,
    prices: PriceList,
    budgets: Vec<Budget>,
    counters: Arc<dyn RateCounters>,
    book: Arc<Book>,
    ledger: Option<Arc<MoneyLedger>>,
}

/// Bucket of a budget that an amount was taken from.
struct Draw {
    bucket: String,
    rate: Rate,
}

/// Amount that is reserved for one request.
struct Reservation {
    /// Name in the ledger.
    name: String,
    request_id: String,
    currency: String,
    ledger: Option<Arc<MoneyLedger>>,
    price: Price,
    amount: Money,
    model: String,
    accounts: Vec<String>,
    draws: Vec<Draw>,
    counted_elsewhere: bool,
    counters: Arc<dyn RateCounters>,
    book: Arc<Book>,
    runtime: Handle,
    /// The reservation was settled.
    settled: bool,
}

impl Spend for Accountant {
    fn reserve<'a>(
        &'a self,
        purchase: Purchase<'a>,
    ) -> PluginFuture<'a, Result<Option<Box<dyn Reserved>>, ServiceError>> {
        Box::pin(async move {
            let reserved = self.try_reserve(purchase).await?;
            Ok(reserved.map(|reserved| Box::new(reserved) as Box<dyn Reserved>))
        })
    }
}

impl Accountant {
    /// Budgets are kept in `counters`, and totals in `book`.
    pub fn new(
        currency: String,
        prices: PriceList,
        budgets: Vec<Budget>,
        counters: Arc<dyn RateCounters>,
        book: Arc<Book>,
    ) -> Self {
        Self {
            currency,
            prices,
            budgets,
            counters,
            book,
            ledger: None,
        }
    }

    /// Record each reservation and its end in a ledger.
    pub fn recorded(self, ledger: Option<Arc<MoneyLedger>>) -> Self {
        Self { ledger, ..self }
    }

    async fn try_reserve(
        &self,
        purchase: Purchase<'_>,
    ) -> Result<Option<Reservation>, ServiceError> {
        let budgets = self.budgets_of(purchase.principal);
        let Some(price) = self.prices.of(purchase.model) else {
            return match budgets.is_empty() {
                true => Ok(None),
                false => Err(unpriced(purchase.model)),
            };
        };
        let amount = price.at_most(purchase.prompt_tokens, purchase.answer_tokens);
        let mut accounts = vec![format!("caller {}", purchase.principal.subject)];
        accounts.extend(
            purchase
                .principal
                .tenant
                .as_ref()
                .map(|name| format!("tenant {name}")),
        );
        let draws = match self.draw(&budgets, amount).await {
            Ok(draws) => draws,
            Err(error) => {
                self.book.refuse(&accounts, purchase.model);
                return Err(error);
            }
        };
        let ledger = self.ledger.as_ref();
        let reservation = Reservation {
            name: ledger.map(|ledger| ledger.name()).unwrap_or_default(),
            request_id: purchase.request_id.to_owned(),
            currency: self.currency.clone(),
            ledger: self.ledger.clone(),
            price,
            amount,
            model: purchase.model.to_owned(),
            accounts,
            draws,
            counted_elsewhere: purchase.counted_elsewhere,
            counters: Arc::clone(&self.counters),
            book: Arc::clone(&self.book),
            runtime: Handle::current(),
            settled: false,
        };
        // A caller who leaves meanwhile, and a refusal, drop it: then it is released.
        if !reservation.is_recorded().await {
            self.book.refuse(&reservation.accounts, purchase.model);
            return Err(unrecorded());
        }
        self.book
            .reserve(&reservation.accounts, purchase.model, amount);
        tracing::debug!(request_id = purchase.request_id, model = purchase.model, %amount, "money is reserved");
        Ok(Some(reservation))
    }

    fn budgets_of(&self, principal: &Principal) -> Vec<(String, &Budget)> {
        let budgets = self.budgets.iter();
        let of =
            budgets.filter_map(|budget| Some((account_of(&budget.holder, principal)?, budget)));
        of.collect()
    }

    /// Take an amount from all budgets, or from none.
    async fn draw(
        &self,
        budgets: &[(String, &Budget)],
        amount: Money,
    ) -> Result<Vec<Draw>, ServiceError> {
        for (account, budget) in budgets {
            if let Some(limit) = budget.per_request.filter(|limit| *limit < amount) {
                return Err(self.too_dear(account, amount, "a request", limit));
            }
            if let Some(limit) = budget.per_day.filter(|limit| *limit < amount) {
                return Err(self.too_dear(account, amount, "a day", limit));
            }
        }
        let mut draws: Vec<Draw> = Vec::new();
        for (account, budget) in budgets {
            let Some(limit) = budget.per_day else {
                continue;
            };
            let draw = Draw {
                bucket: bucket_of(account),
                rate: Rate {
                    capacity: limit.as_micros(),
                    period_ms: DAY_MS,
                },
            };
            let verdict = self
                .counters
                .take(&draw.bucket, amount.as_micros(), draw.rate)
                .await;
            let refused = match verdict {
                Ok(verdict) if verdict.allowed => {
                    draws.push(draw);
                    continue;
                }
                Ok(verdict) => {
                    let left = Money::micros(verdict.remaining);
                    self.spent(account, amount, left, limit, verdict.retry_after_ms)
                }
                Err(CountersLost) => lost(),
            };
            adjust(&*self.counters, &draws, -signed(amount)).await;
            return Err(refused);
        }
        Ok(draws)
    }

    fn too_dear(&self, account: &str, amount: Money, unit: &str, limit: Money) -> ServiceError {
        let currency = &self.currency;
        let message = format!(
            "this request may cost {amount} {currency}, and the budget of the {account} for {unit} is {limit} {currency}; \
             ask for fewer tokens with `max_tokens`, or for another model"
        );
        denied(
            403,
            "permission_error",
            "request_over_budget",
            message,
            None,
        )
    }

    fn spent(
        &self,
        account: &str,
        amount: Money,
        left: Money,
        limit: Money,
        retry_after_ms: u64,
    ) -> ServiceError {
        let currency = &self.currency;
        let message = format!(
            "this request may cost {amount} {currency}, and {left} of the {limit} {currency} that the {account} may spend in a \
             day are left; retry later, or ask for fewer tokens with `max_tokens`"
        );
        let retry = Some(retry_after_ms);
        denied(429, "insufficient_quota", "budget_exceeded", message, retry)
    }
}

impl Reservation {
    /// Change what was taken from the budgets.
    fn give_back(&mut self, delta: i64) {
        let draws = std::mem::take(&mut self.draws);
        if delta != 0 && !draws.is_empty() {
            let counters = Arc::clone(&self.counters);
            self.runtime
                .spawn(async move { adjust(&*counters, &draws, delta).await });
        }
    }

    /// Record the reservation, if there is a ledger. False if the ledger is required and cannot be written.
    async fn is_recorded(&self) -> bool {
        let Some(ledger) = &self.ledger else {
            return true;
        };
        let written = self.record(ledger, LedgerEntry::Reserved, json!({}));
        !ledger.is_required() || written.await.unwrap_or(false)
    }

    fn record(&self, ledger: &Arc<MoneyLedger>, entry: LedgerEntry, more: Value) -> Receiver<bool> {
        let mut fields = json!({
            "request_id": self.request_id,
            "model": self.model,
            "accounts": self.accounts,
            "currency": self.currency,
            "reserved_micros": self.amount.as_micros(),
        });
        if let (Value::Object(fields), Value::Object(more)) = (&mut fields, more) {
            fields.extend(more);
        }
        ledger.append(entry, &self.name, fields, &self.runtime)
    }

    /// Record the end of the reservation.
    fn record_end(&self, usage: Usage, outcome: Outcome, cost: Money, unknown: bool) {
        let Some(ledger) = &self.ledger else { return };
        let entry = match outcome {
            Outcome::Failed => LedgerEntry::Failed,
            _ if cost == Money::ZERO => LedgerEntry::Released,
            _ => LedgerEntry::Settled,
        };
        let (cost, reserved) = (cost.as_micros(), self.amount.as_micros());
        let more = json!({
            "settled_micros": cost,
            "released_micros": reserved.saturating_sub(cost),
            "finish": outcome.name(),
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "unknown_usage": unknown,
        });
        drop(self.record(ledger, entry, more));
    }

    /// Cost of what was used; true if nobody knows what was, so that all that was reserved is charged.
    fn cost(&self, usage: Usage, outcome: Outcome) -> (Money, bool) {
        if outcome == Outcome::Failed && usage.completion_tokens == 0 {
            return (Money::ZERO, false);
        }
        if self.counted_elsewhere && usage.prompt_tokens == 0 {
            return (self.amount.max(self.price.of(usage)), true);
        }
        (self.price.of(usage), false)
    }
}

impl Reserved for Reservation {
    fn cost_micros(&self, usage: Usage, outcome: Outcome) -> u64 {
        self.cost(usage, outcome).0.as_micros()
    }

    fn settle(mut self: Box<Self>, usage: Usage, outcome: Outcome) {
        let (cost, unknown) = self.cost(usage, outcome);
        self.book
            .settle(&self.accounts, &self.model, self.amount, cost, unknown);
        self.record_end(usage, outcome, cost, unknown);
        let delta = signed(cost).saturating_sub(signed(self.amount));
        self.settled = true;
        self.give_back(delta);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.settled {
            self.record_end(Usage::default(), Outcome::Cancelled, Money::ZERO, false);
            self.give_back(-signed(self.amount));
        }
    }
}

async fn adjust(counters: &dyn RateCounters, draws: &[Draw], delta: i64) {
    for draw in draws {
        counters.adjust(&draw.bucket, delta, draw.rate).await;
    }
}

fn signed(money: Money) -> i64 {
    i64::try_from(money.as_micros()).unwrap_or(i64::MAX)
}

fn bucket_of(account: &str) -> String {
    if account.len() <= MAX_ACCOUNT_BYTES {
        return format!("day.{account}");
    }
    let digest = Sha256::digest(account.as_bytes());
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("day.{digits}")
}

fn unpriced(model: &str) -> ServiceError {
    let message = format!(
        "the model `{model}` has no price, and you have a budget, so it cannot be used; ask the operator to give it one, or \
         use another model"
    );
    denied(403, "permission_error", "model_not_priced", message, None)
}

fn unrecorded() -> ServiceError {
    let message =
        "what the request costs cannot be recorded at present, so it is not answered; retry later";
    ServiceError::Unavailable {
        message: message.to_owned(),
        retry_after: 1,
    }
}

fn lost() -> ServiceError {
    ServiceError::CountersLost
}

fn denied(
    status: u16,
    kind: &str,
    code: &str,
    message: String,
    retry_after_ms: Option<u64>,
) -> ServiceError {
    ServiceError::Denied(Denial {
        status,
        kind: kind.to_owned(),
        code: code.to_owned(),
        message,
        retry_after_ms,
        headers: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use mortise_plugin::Ledger;
    use mortise_service::FinishReason;
    use wildmatch::WildMatch;

    use super::*;
    use crate::budget::Holder;

    const PRICE: Price = Price {
        input: Money::micros(1_000_000),
        cached_input: Money::micros(500_000),
        output: Money::micros(2_000_000),
    };

    fn accountant() -> (Accountant, Arc<Book>) {
        let budget = |holder, per_day, per_request| Budget {
            holder,
            per_day: Some(Money::micros(per_day)),
            per_request,
        };
        let all = || vec![WildMatch::new("*")];
        let budgets = vec![
            budget(Holder::Callers(all()), 1_000, Some(Money::micros(600))),
            budget(Holder::Tenants(all()), 1_500, None),
        ];
        let prices = PriceList::new(vec![("m".to_owned(), PRICE)]);
        let book = Arc::<Book>::default();
        let counters = Arc::new(Ledger::new());
        let accountant = Accountant::new(
            "EUR".to_owned(),
            prices,
            budgets,
            counters,
            Arc::clone(&book),
        );
        (accountant, book)
    }

    fn principal(name: &str) -> Principal {
        Principal {
            subject: name.to_owned(),
            tenant: Some("t".to_owned()),
            ..Principal::default()
        }
    }

    async fn reserve(
        accountant: &Accountant,
        name: &str,
        model: &str,
        prompt: u64,
    ) -> Result<Option<Reservation>, (u16, String)> {
        let purchase = Purchase {
            request_id: "r",
            principal: &principal(name),
            model,
            prompt_tokens: prompt,
            answer_tokens: 50,
            counted_elsewhere: false,
        };
        accountant
            .try_reserve(purchase)
            .await
            .map_err(|error| match error {
                ServiceError::Denied(denial) => (denial.status, denial.code),
                other => panic!("{other}"),
            })
    }

    const DONE: Outcome = Outcome::Finished(FinishReason::Stop);

    fn used(prompt_tokens: u32, completion_tokens: u32) -> Usage {
        Usage {
            prompt_tokens,
            completion_tokens,
            ..Usage::default()
        }
    }

    #[tokio::test]
    async fn feature_b15_money_is_reserved_settled_and_released() {
        let (accountant, book) = accountant();
        let first = reserve(&accountant, "a", "m", 400)
            .await
            .expect("money")
            .expect("a price");
        assert_eq!(first.amount, Money::micros(500));
        let second = reserve(&accountant, "a", "m", 400)
            .await
            .expect("money")
            .expect("a price");
        assert_eq!(
            reserve(&accountant, "a", "m", 0).await.err(),
            Some((429, "budget_exceeded".to_owned()))
        );
        // Another caller of the tenant has what the tenant has left.
        let third = reserve(&accountant, "b", "m", 400)
            .await
            .expect("money")
            .expect("a price");
        assert_eq!(
            reserve(&accountant, "c", "m", 0).await.err(),
            Some((429, "budget_exceeded".to_owned()))
        );
        Box::new(first).settle(used(400, 10), DONE);
        Box::new(second).settle(used(400, 0), Outcome::Failed);
        Box::new(third).settle(used(100, 0), Outcome::Cancelled);
        let [today, _] = book.days();
        let line = today.accounts["tenant t"];
        assert_eq!(
            (line.reserved, line.settled, line.released),
            (Money::ZERO, Money::micros(520), Money::micros(980))
        );
        assert_eq!(line.refused, 2);
        let mut tries = 0;
        // 580 of 1000 are left to the first caller, and all is told in the background.
        while reserve(&accountant, "a", "m", 460).await.is_err() {
            tries += 1;
            assert!(tries < 1_000, "what was released does not come back");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn feature_b15_what_can_never_be_paid_is_refused_for_good() {
        let (accountant, _) = accountant();
        assert_eq!(
            reserve(&accountant, "a", "m", 600).await.err(),
            Some((403, "request_over_budget".to_owned()))
        );
        assert_eq!(
            reserve(&accountant, "a", "other", 1).await.err(),
            Some((403, "model_not_priced".to_owned()))
        );
    }

    #[tokio::test]
    async fn feature_b15_unknown_usage_costs_all_that_was_reserved() {
        let (accountant, _) = accountant();
        let mut reserved = reserve(&accountant, "a", "m", 400)
            .await
            .expect("money")
            .expect("a price");
        reserved.counted_elsewhere = true;
        assert_eq!(
            reserved.cost(used(0, 0), Outcome::Cancelled),
            (Money::micros(500), true)
        );
        assert_eq!(
            reserved.cost(used(0, 400), DONE),
            (Money::micros(800), true)
        );
        assert_eq!(reserved.cost(used(10, 5), DONE), (Money::micros(20), false));
        assert_eq!(
            reserved.cost(used(0, 0), Outcome::Failed),
            (Money::ZERO, false)
        );
    }
}
