//! Weighted fair queuing by virtual time, in two levels.
//!
//! Each tenant, and each key within a tenant, has a virtual time that grows by the tokens computed for it,
//! divided by its weight; the lowest is served next (the virtual token counter of Sheng et al., "Fairness
//! in Serving Large Language Models", 2024). A tenant that returns after a pause starts no lower than the
//! lowest of those present, less a credit of some tokens: more idle time than that cannot be saved up. The credit
//! lets two prompts of a tenant that seldom asks follow each other before a flood has caught up with the first. A
//! tenant that was ahead stays ahead, so that leaving for a moment does not reset its account; one that stays away
//! for long is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::tenant_load::TenantLoad;

/// The account that a sequence is charged to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Tenants share the engine by weight. Those without a name share one account.
    pub tenant: Arc<str>,
    /// The tenant's weight, at least 1: with 3, it gets three times what one with 1 gets.
    pub weight: u32,
    /// Keys share what their tenant gets, in equal parts.
    pub key: Arc<str>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            tenant: Arc::from(""),
            weight: 1,
            key: Arc::from(""),
        }
    }
}

/// Virtual time of one token at weight 1: room for the divisions by weights.
pub(crate) const TOKEN: u64 = 1 << 16;

/// Most accounts without sequences that are kept because they are ahead.
const REMEMBERED: usize = 1024;

/// Virtual times of a tenant and of a key within it.
pub type VirtualTime = (u64, u64);

/// Virtual times of all tenants.
#[derive(Debug, Default)]
pub struct FairQueue {
    tenants: BTreeMap<Arc<str>, Tenant>,
    /// Most places that a tenant is entitled to; 0 is no bound.
    per_tenant: usize,
    /// Seconds after which an account without sequences is forgotten, even if it is ahead; 0 is never.
    idle_s: u64,
    /// Seconds since some moment in the past.
    now_s: u64,
    /// Virtual time by which a tenant that returns may start below those present.
    credit: u64,
}

#[derive(Debug, Default)]
struct Tenant {
    account: Account,
    weight: u32,
    /// Tokens computed, whatever the weight.
    computed: u64,
    keys: BTreeMap<Arc<str>, Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// Virtual time.
    time: u64,
    /// Sequences in the engine.
    present: usize,
    /// When the last one left.
    left_s: u64,
}

impl FairQueue {
    /// A queue in which no tenant is entitled to more places than `per_tenant`, unless that is 0, and in which accounts
    /// without sequences are forgotten after `idle_s` seconds, unless that is 0.
    pub(crate) fn new(per_tenant: usize, idle_s: u64) -> Self {
        Self {
            per_tenant,
            idle_s,
            ..Self::default()
        }
    }

    /// Tell the time, in seconds since any moment.
    pub(crate) fn set_time(&mut self, now_s: u64) {
        self.now_s = now_s;
    }

    /// Let a tenant that returns start this many tokens, at weight 1, below those present.
    pub(crate) fn set_credit(&mut self, tokens: usize) {
        self.credit = TOKEN.saturating_mul(tokens as u64);
    }

    /// Drop accounts that have had no sequence for too long.
    fn expire(&mut self) {
        let (now, idle) = (self.now_s, self.idle_s);
        if idle == 0 {
            return;
        }
        let stays =
            |account: &Account| account.present > 0 || now < account.left_s.saturating_add(idle);
        self.tenants.retain(|_, tenant| stays(&tenant.account));
        for tenant in self.tenants.values_mut() {
            tenant.keys.retain(|_, key| stays(key));
        }
    }

    /// Add a sequence to its account.
    pub fn enter(&mut self, share: &Share) {
        self.expire();
        let floor = lowest(self.tenants.values().map(|tenant| &tenant.account));
        let floor = floor.map(|floor| floor.saturating_sub(self.credit));
        let tenant = self.tenants.entry(Arc::clone(&share.tenant)).or_default();
        tenant.account.enter(floor);
        tenant.weight = share.weight.max(1);
        let floor = lowest(tenant.keys.values());
        let key = tenant.keys.entry(Arc::clone(&share.key)).or_default();
        key.enter(floor);
    }

    /// Remove a sequence from its account.
    pub fn leave(&mut self, share: &Share) {
        if let Some(tenant) = self.tenants.get_mut(&share.tenant) {
            tenant.account.leave(self.now_s);
            if let Some(key) = tenant.keys.get_mut(&share.key) {
                key.leave(self.now_s);
            }
            forget(&mut tenant.keys, 0, |key| key);
        }
        forget(&mut self.tenants, self.credit, |tenant| &tenant.account);
    }

    /// Charge `tokens` computed tokens.
    pub fn charge(&mut self, share: &Share, tokens: usize) {
        let time = TOKEN.saturating_mul(tokens as u64);
        if let Some(tenant) = self.tenants.get_mut(&share.tenant) {
            let weighted = time / u64::from(share.weight.max(1));
            tenant.account.time = tenant.account.time.saturating_add(weighted);
            tenant.computed = tenant.computed.saturating_add(tokens as u64);
            if let Some(key) = tenant.keys.get_mut(&share.key) {
                key.time = key.time.saturating_add(time);
            }
        }
    }

    /// The virtual time by which sequences are ordered, lowest first.
    pub fn virtual_time(&self, share: &Share) -> VirtualTime {
        let Some(tenant) = self.tenants.get(&share.tenant) else {
            return (0, 0);
        };
        let key = tenant.keys.get(&share.key);
        (tenant.account.time, key.map_or(0, |key| key.time))
    }

    /// Number of tenants that have sequences.
    pub(crate) fn present(&self) -> usize {
        let tenants = self.tenants.values();
        tenants.filter(|tenant| tenant.account.present > 0).count()
    }

    /// A tenant's part of `places` by its weight among the tenants that have sequences, at least one.
    pub(crate) fn entitlement(&self, tenant: &Arc<str>, places: usize) -> usize {
        let weight = self.tenants.get(tenant).map_or(1, |tenant| tenant.weight);
        self.bounded(part(places, weight, self.weights()))
    }

    fn bounded(&self, entitled: usize) -> usize {
        match self.per_tenant {
            0 => entitled,
            most => entitled.min(most),
        }
    }

    /// Weights of all tenants that are there.
    fn weights(&self) -> u128 {
        let tenants = self.tenants.values();
        let present = tenants.filter(|tenant| tenant.account.present > 0);
        present.map(|tenant| u128::from(tenant.weight)).sum()
    }

    /// Accounts of all tenants, with their parts of `places`.
    pub(crate) fn accounts(&self, places: usize) -> impl Iterator<Item = TenantLoad> {
        let weights = self.weights();
        self.tenants.iter().map(move |(name, tenant)| TenantLoad {
            tenant: Arc::clone(name),
            weight: tenant.weight,
            entitled: match tenant.account.present {
                0 => 0,
                _ => self.bounded(part(places, tenant.weight, weights)),
            },
            computed_tokens: tenant.computed,
            ..TenantLoad::default()
        })
    }

    /// The virtual time by which `one` is ahead of `other`, on the level where their accounts differ.
    pub(crate) fn lead(&self, one: &Share, other: &Share) -> u64 {
        let (mine, theirs) = (self.virtual_time(one), self.virtual_time(other));
        if one.tenant == other.tenant {
            mine.1.saturating_sub(theirs.1)
        } else {
            mine.0.saturating_sub(theirs.0)
        }
    }

    /// Number of tenants. For tests.
    #[cfg(test)]
    pub(crate) fn tenants(&self) -> usize {
        self.tenants.len()
    }
}

impl Account {
    fn enter(&mut self, floor: Option<u64>) {
        if self.present == 0 {
            self.time = self.time.max(floor.unwrap_or(0));
        }
        self.present += 1;
    }

    fn leave(&mut self, now_s: u64) {
        self.present -= 1;
        self.left_s = now_s;
    }
}

/// Part of so many places that a weight has of all weights: one at least.
fn part(places: usize, weight: u32, weights: u128) -> usize {
    let part = places as u128 * u128::from(weight) / weights.max(1);
    usize::try_from(part).unwrap_or(places).max(1)
}

/// The lowest virtual time of the accounts that have sequences.
fn lowest<'a>(accounts: impl Iterator<Item = &'a Account>) -> Option<u64> {
    let present = accounts.filter(|account| account.present > 0);
    present.map(|account| account.time).min()
}

/// Drop accounts without sequences that would start at the floor, less `credit`, anyway and, above [`REMEMBERED`], those
/// of the others that are least ahead.
fn forget<T>(accounts: &mut BTreeMap<Arc<str>, T>, credit: u64, account: impl Fn(&T) -> &Account) {
    let floor = lowest(accounts.values().map(&account));
    // With no account present, none is ahead.
    let floor = floor.map_or(u64::MAX, |floor| floor.saturating_sub(credit));
    let ahead = |entry: &T| account(entry).present > 0 || account(entry).time > floor;
    accounts.retain(|_, entry| ahead(entry));
    let absent = |entry: &T| account(entry).present == 0;
    let mut times: Vec<u64> = accounts
        .values()
        .filter(|entry| absent(entry))
        .map(|entry| account(entry).time)
        .collect();
    if times.len() > REMEMBERED {
        let surplus = times.len() - REMEMBERED;
        let (_, last, _) = times.select_nth_unstable(surplus - 1);
        let last = *last;
        accounts.retain(|_, entry| !absent(entry) || account(entry).time > last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(tenant: &str, weight: u32, key: &str) -> Share {
        Share {
            tenant: Arc::from(tenant),
            weight,
            key: Arc::from(key),
        }
    }

    #[test]
    fn weights_divide_and_idle_time_is_not_saved_up() {
        let mut queue = FairQueue::default();
        let (a, b, late) = (share("a", 1, ""), share("b", 4, ""), share("c", 1, ""));
        queue.enter(&a);
        queue.enter(&b);
        queue.charge(&a, 100);
        queue.charge(&b, 100);
        assert_eq!(queue.virtual_time(&a).0, 100 * TOKEN);
        assert_eq!(queue.virtual_time(&b).0, 25 * TOKEN);
        assert_eq!(queue.lead(&a, &b), 75 * TOKEN);
        assert_eq!(queue.lead(&b, &a), 0);
        queue.enter(&late);
        assert_eq!(
            queue.virtual_time(&late).0,
            25 * TOKEN,
            "the lowest present"
        );
    }

    #[test]
    fn feature_q6_a_tenant_that_returns_has_a_credit_and_no_second_one_before_it_is_earned() {
        let mut queue = FairQueue::default();
        queue.set_credit(100);
        let (steady, seldom) = (share("a", 1, ""), share("b", 1, ""));
        queue.enter(&steady);
        queue.charge(&steady, 1000);
        queue.enter(&seldom);
        assert_eq!(queue.virtual_time(&seldom).0, 900 * TOKEN);
        queue.charge(&seldom, 80);
        // It comes and goes: what it used of its credit stays used.
        queue.leave(&seldom);
        queue.enter(&seldom);
        assert_eq!(queue.virtual_time(&seldom).0, 980 * TOKEN);
        queue.leave(&seldom);
        queue.charge(&steady, 50);
        queue.enter(&seldom);
        assert_eq!(queue.virtual_time(&seldom).0, 980 * TOKEN);
        queue.leave(&seldom);
        queue.charge(&steady, 500);
        queue.enter(&seldom);
        assert_eq!(queue.virtual_time(&seldom).0, 1450 * TOKEN);
    }

    #[test]
    fn feature_q6_weights_entitle_to_no_more_than_the_bound() {
        let mut queue = FairQueue::new(6, 0);
        let (large, small) = (share("a", 3, ""), share("b", 1, ""));
        queue.enter(&large);
        assert_eq!(queue.entitlement(&large.tenant, 16), 6);
        queue.enter(&small);
        assert_eq!(queue.entitlement(&large.tenant, 16), 6);
        assert_eq!(queue.entitlement(&small.tenant, 16), 4);
        let entitled: Vec<usize> = queue.accounts(16).map(|load| load.entitled).collect();
        assert_eq!(entitled, [6, 4]);
    }

    #[test]
    fn leaving_for_a_moment_does_not_reset_an_account() {
        let mut queue = FairQueue::default();
        let (greedy, modest) = (share("a", 1, ""), share("b", 1, ""));
        queue.enter(&greedy);
        queue.enter(&modest);
        queue.charge(&greedy, 500);
        queue.charge(&modest, 10);
        queue.leave(&greedy);
        queue.enter(&greedy);
        assert_eq!(queue.virtual_time(&greedy).0, 500 * TOKEN);
        // Once the others have caught up, the account is dropped.
        queue.leave(&greedy);
        queue.charge(&modest, 1000);
        queue.leave(&modest);
        assert_eq!(queue.tenants(), 0);
    }

    #[test]
    fn feature_q6_a_tenant_that_stays_away_is_forgotten_after_its_time() {
        let mut queue = FairQueue::new(0, 600);
        let (greedy, other_key, modest) =
            (share("a", 1, "x"), share("a", 1, "y"), share("b", 1, ""));
        for share in [&greedy, &other_key, &modest] {
            queue.enter(share);
        }
        queue.charge(&greedy, 500);
        queue.charge(&modest, 10);
        queue.set_time(100);
        queue.leave(&greedy);
        // Others come and go meanwhile.
        queue.set_time(699);
        queue.enter(&modest);
        assert_eq!(queue.virtual_time(&greedy), (500 * TOKEN, 500 * TOKEN));
        // The tenant is there by another key; the first key is forgotten, and begins where the other is.
        queue.set_time(700);
        queue.enter(&greedy);
        assert_eq!(queue.virtual_time(&greedy), (500 * TOKEN, 0));
        queue.leave(&greedy);
        queue.leave(&other_key);
        queue.set_time(1299);
        queue.enter(&modest);
        assert_eq!(queue.tenants(), 2);
        queue.set_time(1300);
        queue.enter(&modest);
        assert_eq!(queue.tenants(), 1);
        queue.enter(&greedy);
        assert_eq!(queue.virtual_time(&greedy).0, 10 * TOKEN);
    }

    #[test]
    fn keys_share_what_their_tenant_gets() {
        let mut queue = FairQueue::default();
        let (x, y, other) = (share("a", 2, "x"), share("a", 2, "y"), share("b", 1, ""));
        for share in [&x, &y, &other] {
            queue.enter(share);
        }
        queue.charge(&x, 10);
        assert_eq!(queue.virtual_time(&x), (5 * TOKEN, 10 * TOKEN));
        assert_eq!(queue.virtual_time(&y), (5 * TOKEN, 0));
        assert_eq!(queue.lead(&x, &y), 10 * TOKEN, "within a tenant, by key");
        assert_eq!(
            queue.lead(&y, &other),
            5 * TOKEN,
            "between tenants, by tenant"
        );
    }

    #[test]
    fn made_up_keys_do_not_fill_the_memory() {
        let mut queue = FairQueue::default();
        let steady = share("a", 1, "steady");
        queue.enter(&steady);
        for number in 0..5000 {
            let made_up = share("a", 1, &number.to_string());
            queue.enter(&made_up);
            queue.charge(&made_up, 1 + number);
            queue.leave(&made_up);
        }
        assert_eq!(queue.tenants["a"].keys.len(), REMEMBERED + 1);
    }
}
