//! Sums of each caller since the start of the server, for `GET /v1/metrics`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use mortise_http::{EndedRequest, RequestSums};

/// Accounts whose sums are kept; a new one beyond them takes the place of that which asked longest ago. Issuers of tokens
/// may name any number of callers.
const MAX_SUMMED_ACCOUNTS: usize = 4096;

/// Sums of one account by the public names of models, of which there are as many as the configuration has.
#[derive(Default)]
struct Account {
    sums: BTreeMap<String, RequestSums>,
    /// Number of its last request.
    last: u64,
}

/// Sums by account.
#[derive(Default)]
struct Accounts {
    all: HashMap<String, Account>,
    /// Requests so far.
    requests: u64,
}

impl Accounts {
    fn of(&mut self, name: &str) -> &mut Account {
        self.requests += 1;
        if self.all.len() >= MAX_SUMMED_ACCOUNTS && !self.all.contains_key(name) {
            let oldest = self.all.iter().min_by_key(|(_, account)| account.last);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.all.remove(&oldest);
            }
        }
        let account = self.all.entry(name.to_owned()).or_default();
        account.last = self.requests;
        account
    }
}

/// Sums of all accounts.
#[derive(Default)]
pub(super) struct SpendTotals(Mutex<Accounts>);

impl SpendTotals {
    /// Count a request, if it named a model that the server has, for who asked.
    pub(super) fn count(&self, access: &EndedRequest<'_>) {
        let model = access.model.filter(|_| access.known_model);
        let (Some(model), Some(account)) = (model, access.account) else {
            return;
        };
        let answer = access.answer.unwrap_or_default();
        let mut accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.of(account);
        *account.sums.entry(model.to_owned()).or_default() += RequestSums {
            requests: 1,
            prompt_tokens: u64::from(answer.prompt_tokens),
            completion_tokens: u64::from(answer.completion_tokens),
        };
    }

    /// Sums of one account.
    pub(super) fn of(&self, account: &str) -> BTreeMap<String, RequestSums> {
        let accounts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.all.get(account);
        account.map_or_else(BTreeMap::new, |account| account.sums.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::access;
    use super::*;

    fn asked(totals: &SpendTotals, account: Option<&str>, model: &str) {
        totals.count(&EndedRequest {
            model: Some(model),
            known_model: true,
            account,
            ..access("/v1/chat/completions")
        });
    }

    #[test]
    fn feature_e8_each_account_has_its_own_sums() {
        let totals = SpendTotals::default();
        for (account, model) in [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")] {
            asked(&totals, Some(account), model);
        }
        asked(&totals, None, "x");
        let counts = |account: &str| -> Vec<(String, u64)> {
            let sums = totals.of(account).into_iter();
            sums.map(|(model, sums)| (model, sums.requests)).collect()
        };
        assert_eq!(counts("a"), [("x".to_owned(), 2), ("y".to_owned(), 1)]);
        assert_eq!(counts("b"), [("x".to_owned(), 1)]);
        assert_eq!(counts("c"), []);
    }

    #[test]
    fn accounts_without_end_take_no_room_without_end() {
        let totals = SpendTotals::default();
        asked(&totals, Some("steady"), "x");
        for number in 0..2 * MAX_SUMMED_ACCOUNTS {
            asked(&totals, Some(&number.to_string()), "x");
            if number % 1000 == 0 {
                asked(&totals, Some("steady"), "x");
            }
        }
        let accounts = totals.0.lock().expect("lock");
        assert_eq!(accounts.all.len(), MAX_SUMMED_ACCOUNTS);
        assert!(accounts.all["steady"].sums["x"].requests > 2, "it was kept");
    }
}
