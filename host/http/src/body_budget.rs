//! Memory for the bodies of all requests in flight, shared by tenant, and by address where no tenant is known.
//!
//! A request reserves what its body is said to take before any of it is read, and more for what the parsed
//! body takes, until it has been translated. Who has a quarter of the budget gets no more than leaves the last
//! quarter to others. Tenants behind one address, as behind a reverse proxy, do not count for each other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connections::network_of;

/// Part of the budget that anybody may take, and part that is left to those who have no more than that.
const SHARE: usize = 4;

/// Reason for which the memory of a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Other requests hold the memory; a later request may find room.
    Now,
    /// The body needs more memory than one request can ever have.
    Ever,
}

/// Account that the memory of a body counts for: a tenant, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Account);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Account {
    Tenant(Arc<str>),
    Address(IpAddr),
}

impl Owner {
    /// The tenant, or the address of a caller without one.
    pub fn new(peer: IpAddr, tenant: Option<&str>) -> Self {
        Self(match tenant {
            Some(tenant) => Account::Tenant(Arc::from(tenant)),
            None => Account::Address(network_of(peer)),
        })
    }
}

/// Budget of memory for request bodies, shared by tenant or address.
#[derive(Debug)]
pub struct BodyBudget {
    bytes: usize,
    state: Mutex<State>,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    by_owner: HashMap<Owner, usize>,
}

impl BodyBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            state: Mutex::default(),
            refused: AtomicU64::new(0),
        })
    }

    /// A reservation of nothing.
    pub fn open(self: &Arc<Self>, owner: Owner) -> Reservation {
        Reservation {
            budget: Arc::clone(self),
            owner,
            bytes: 0,
        }
    }

    /// Most bytes that one request can have.
    pub(crate) fn most(&self) -> usize {
        self.bytes - self.bytes / SHARE
    }

    /// Bytes reserved at present.
    pub(crate) fn used(&self) -> usize {
        self.lock().used
    }

    /// Requests that were refused for lack of room.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn reserve(&self, owner: &Owner, more: usize) -> Result<(), NoRoom> {
        let mut state = self.lock();
        let state = &mut *state;
        let total = state.used.saturating_add(more);
        let own = state.by_owner.get(owner).copied().unwrap_or(0);
        let within = if own.saturating_add(more) <= self.bytes / SHARE {
            self.bytes
        } else {
            self.most()
        };
        if total > within {
            self.refused.fetch_add(1, Relaxed);
            return Err(NoRoom::Now);
        }
        state.used = total;
        *state.by_owner.entry(owner.clone()).or_default() += more;
        Ok(())
    }

    fn release(&self, owner: &Owner, bytes: usize) {
        let mut state = self.lock();
        state.used = state.used.saturating_sub(bytes);
        if let Some(share) = state.by_owner.get_mut(owner) {
            *share = share.saturating_sub(bytes);
            if *share == 0 {
                state.by_owner.remove(owner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts are valid whatever a panic interrupted.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of one request's body. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<BodyBudget>,
    owner: Owner,
    bytes: usize,
}

impl Reservation {
    /// Have at least so many bytes in all.
    ///
    /// # Errors
    /// When there is no room for them. What was reserved before stays.
    pub fn raise_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        if bytes > self.budget.most() {
            return Err(NoRoom::Ever);
        }
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return Ok(());
        };
        self.budget.reserve(&self.owner, more)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Have so many bytes more.
    ///
    /// # Errors
    /// As for [`raise_to`](Self::raise_to).
    pub fn add(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.raise_to(self.bytes.saturating_add(bytes))
    }

    /// Give so many bytes to a reservation of their own, which may stay longer; all that there are, if they are fewer.
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            budget: Arc::clone(&self.budget),
            owner: self.owner.clone(),
            bytes,
        }
    }

    /// Owner of the body's memory.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Most that it can have.
    pub(crate) fn most(&self) -> usize {
        self.budget.most()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.release(&self.owner, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(address: &str, tenant: Option<&str>) -> Owner {
        Owner::new(address.parse().expect("an address"), tenant)
    }

    fn take(budget: &Arc<BodyBudget>, owner: &Owner, bytes: usize) -> Result<Reservation, NoRoom> {
        let mut reservation = budget.open(owner.clone());
        reservation.raise_to(bytes).map(|()| reservation)
    }

    #[test]
    fn nobody_takes_the_last_quarter_beyond_a_share() {
        let budget = BodyBudget::new(1000);
        let hogs = [
            [owner("10.0.0.1", None), owner("10.0.0.1", Some("acme"))],
            [
                owner("10.0.0.1", Some("acme")),
                owner("10.0.0.2", Some("acme")),
            ],
            [owner("2001:db8::1", None), owner("2001:db8::2", None)],
        ];
        for [one, other] in hogs {
            let mut held = Vec::new();
            for turn in 0.. {
                match take(&budget, if turn % 2 == 0 { &one } else { &other }, 50) {
                    Ok(reservation) => held.push(reservation),
                    Err(reason) => {
                        assert_eq!(reason, NoRoom::Now);
                        break;
                    }
                }
            }
            assert_eq!(budget.used(), 750);
            let others = owner("192.0.2.7", Some("other"));
            let kept = take(&budget, &others, 250).expect("a share is left");
            assert_eq!(take(&budget, &others, 1).expect_err("full"), NoRoom::Now);
            drop((held, kept));
            assert_eq!(budget.used(), 0);
        }
        let state = budget.lock();
        assert!(state.by_owner.is_empty());
    }

    #[test]
    fn tenants_behind_one_address_have_shares_of_their_own() {
        let budget = BodyBudget::new(1000);
        let proxy = "10.0.0.1";
        let (hog, other) = (owner(proxy, Some("hog")), owner(proxy, Some("other")));
        let held = take(&budget, &hog, 750).expect("room");
        assert_eq!(take(&budget, &hog, 1).expect_err("full"), NoRoom::Now);
        let own = take(&budget, &other, 125).expect("a share is left");
        // Callers of the same address without a tenant share what counts for the address alone.
        let unknown = take(&budget, &owner(proxy, None), 125).expect("a share is left");
        drop(held);
        let more = take(&budget, &other, 500).expect("room");
        assert_eq!(take(&budget, &other, 126).expect_err("full"), NoRoom::Now);
        drop((own, unknown, more));
        assert!(budget.lock().by_owner.is_empty());
    }

    #[test]
    fn parts_of_a_reservation_go_on_by_themselves() {
        let budget = BodyBudget::new(1000);
        let owner = owner("10.0.0.1", None);
        let mut whole = take(&budget, &owner, 500).expect("room");
        assert_eq!(whole.add(251), Err(NoRoom::Ever));
        assert_eq!(whole.add(100), Ok(()));
        let part = whole.split(200);
        assert_eq!((whole.bytes, part.bytes, budget.used()), (400, 200, 600));
        drop(whole.split(50));
        assert_eq!(budget.used(), 550);
        drop(whole);
        assert_eq!(budget.used(), 200);
        drop(part);
        assert!(budget.lock().by_owner.is_empty());
    }

    #[test]
    fn a_request_that_never_fits_is_told_so() {
        let budget = BodyBudget::new(1000);
        let owner = owner("10.0.0.1", None);
        let mut reservation = take(&budget, &owner, 700).expect("room");
        assert_eq!(reservation.raise_to(751), Err(NoRoom::Ever));
        assert_eq!(reservation.raise_to(100), Ok(()));
        assert_eq!((reservation.bytes, budget.used()), (700, 700));
        assert_eq!(take(&budget, &owner, 51).expect_err("full"), NoRoom::Now);
        assert_eq!(budget.refused(), 1);
    }
}
