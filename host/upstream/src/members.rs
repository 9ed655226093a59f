//! Upstreams of one model, and the choice among them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use mortise_engine::CircuitState;
use mortise_models::{BaseUrl, Dispatch};

use crate::affinity::rank;
use crate::breaker::{AttemptOutcome, CircuitChange, UpstreamBreaker};

/// One upstream.
#[derive(Debug)]
pub(crate) struct UpstreamMember {
    pub(crate) url: BaseUrl,
    /// Flag: the upstream is asked only while no other can be.
    standby: bool,
    /// Result of the last health check; true without checks.
    pub(crate) healthy: AtomicBool,
    /// Requests under way.
    inflight: AtomicUsize,
    breaker: UpstreamBreaker,
}

/// Upstreams of a model, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct UpstreamMembers {
    members: Vec<Arc<UpstreamMember>>,
    dispatch: Dispatch,
    /// Index at which the search for the least busy upstream begins, so that equally busy ones take turns.
    next: AtomicUsize,
    /// Requests go to those that stand by, and no other has answered since.
    on_standby: Arc<AtomicBool>,
    /// Requests that went to those that stand by.
    standby_requests: AtomicU64,
}

/// A request's place at an upstream, until it is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    member: Arc<UpstreamMember>,
    /// Tenant whose request it is.
    tenant: Arc<str>,
    /// Flag: the breaker has been told the outcome.
    told: bool,
    /// Flag of all members: an upstream on standby answers.
    on_standby: Arc<AtomicBool>,
}

impl UpstreamMembers {
    /// Upstreams at these addresses, and others that stand by for them.
    pub(crate) fn new(urls: &[BaseUrl], standby: &[BaseUrl], dispatch: Dispatch) -> Self {
        let first = urls.iter().map(|url| (url, false));
        let members = first.chain(standby.iter().map(|url| (url, true)));
        let members = members.map(|(url, standby)| {
            Arc::new(UpstreamMember {
                url: url.clone(),
                standby,
                healthy: AtomicBool::new(true),
                inflight: AtomicUsize::new(0),
                breaker: UpstreamBreaker::default(),
            })
        });
        Self {
            members: members.collect(),
            dispatch,
            next: AtomicUsize::new(0),
            on_standby: Arc::default(),
            standby_requests: AtomicU64::new(0),
        }
    }

    /// Whether the beginning of a prompt decides on its upstream.
    pub(crate) fn go_by_beginnings(&self) -> bool {
        self.dispatch == Dispatch::PrefixAffine && self.members.len() > 1
    }

    pub(crate) fn all(&self) -> &[Arc<UpstreamMember>] {
        &self.members
    }

    /// A place at the best upstream that takes requests: those that were `tried` last, those that are not well
    /// before them, and those that stand by behind others that are as good; else the time until one takes some
    /// again.
    pub(crate) fn place(
        &self,
        beginning: &[u8; 32],
        tried: &HashSet<BaseUrl>,
        tenant: &Arc<str>,
    ) -> Result<InFlight, Duration> {
        let mut order: Vec<usize> = match self.dispatch {
            Dispatch::LeastInflight => self.by_load(),
            Dispatch::PrefixAffine => self.by_affinity(beginning),
        };
        // Stable: among equals the order stays.
        order.sort_by_key(|&index| {
            let member = &self.members[index];
            let ill = !member.healthy.load(Relaxed);
            (tried.contains(&member.url), ill, member.standby)
        });
        let now = Instant::now();
        let mut wait = Duration::MAX;
        for index in order {
            let member = &self.members[index];
            match member.breaker.pass(tenant, now) {
                Ok(()) => {
                    member.inflight.fetch_add(1, Relaxed);
                    self.note_standby(member, tried.is_empty());
                    return Ok(InFlight {
                        member: Arc::clone(member),
                        tenant: Arc::clone(tenant),
                        told: false,
                        on_standby: Arc::clone(&self.on_standby),
                    });
                }
                Err(left) => wait = wait.min(left),
            }
        }
        Err(wait)
    }

    /// Count a request to an upstream that stands by. One that no other was tried for begins a time on standby.
    fn note_standby(&self, member: &UpstreamMember, first: bool) {
        if !member.standby {
            return;
        }
        self.standby_requests.fetch_add(1, Relaxed);
        if first && !self.on_standby.swap(true, Relaxed) {
            let upstream = member.url.as_str();
            tracing::warn!(upstream, "no upstream but those on standby can be asked");
        }
    }

    /// Whether requests go to upstreams that stand by, and the requests that did so far.
    pub(crate) fn standby(&self) -> (bool, u64) {
        let requests = self.standby_requests.load(Relaxed);
        (self.on_standby.load(Relaxed), requests)
    }

    /// State of the model's breaker, which is open where no upstream takes requests, and the times that those of all
    /// opened.
    pub(crate) fn circuit(&self) -> (CircuitState, u64) {
        let states = || self.members.iter().map(|member| member.breaker.state());
        let best = states().map(|(state, _)| state).min();
        let opened = states().map(|(_, opened)| opened).sum();
        (best.unwrap_or_default(), opened)
    }

    fn by_load(&self) -> Vec<usize> {
        let count = self.members.len();
        let first = self.next.fetch_add(1, Relaxed);
        let mut order: Vec<usize> = (0..count)
            .map(|step| first.wrapping_add(step) % count)
            .collect();
        order.sort_by_key(|&index| self.members[index].inflight.load(Relaxed));
        order
    }

    /// By rank; those that have more than a quarter above their part of the load come last. Those that stand by
    /// have a load of their own to part.
    fn by_affinity(&self, beginning: &[u8; 32]) -> Vec<usize> {
        let load = |index: usize| self.members[index].inflight.load(Relaxed);
        let bound_of = |standby: bool| {
            let members = self.members.iter();
            let loads = members.filter(|member| member.standby == standby);
            let (count, all) = loads.fold((0, 0), |(count, all), member| {
                (count + 1, all + member.inflight.load(Relaxed))
            });
            ((all + 1) * 5).div_ceil((count * 4).max(1))
        };
        let bounds = [false, true].map(bound_of);
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_cached_key(|&index| {
            let member = &self.members[index];
            let rank = rank(beginning, member.url.as_str());
            let bound = bounds[usize::from(member.standby)];
            (load(index) >= bound, std::cmp::Reverse(rank))
        });
        order
    }
}

impl InFlight {
    pub(crate) fn url(&self) -> &BaseUrl {
        &self.member.url
    }

    /// Tell what became of the request.
    pub(crate) fn note(&mut self, outcome: AttemptOutcome) {
        self.told |= outcome != AttemptOutcome::Begun;
        let upstream = self.member.url.as_str();
        let answers = matches!(outcome, AttemptOutcome::Begun | AttemptOutcome::Answered);
        if answers && !self.member.standby && self.on_standby.swap(false, Relaxed) {
            tracing::info!(upstream, "upstreams on standby are no longer asked");
        }
        let breaker = &self.member.breaker;
        match breaker.note(outcome, &self.tenant, Instant::now()) {
            Some(CircuitChange::Opened(pause)) => {
                let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(
                    upstream,
                    pause_ms,
                    "an upstream fails and is left alone for a pause"
                );
            }
            Some(CircuitChange::Closed) => tracing::info!(upstream, "an upstream answers again"),
            None => {}
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.member.inflight.fetch_sub(1, Relaxed);
        if !self.told {
            self.note(AttemptOutcome::Unknown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: usize, dispatch: Dispatch) -> UpstreamMembers {
        let url = |index| {
            format!("http://host{index}/v1")
                .parse()
                .expect("a base URL")
        };
        UpstreamMembers::new(&(0..count).map(url).collect::<Vec<_>>(), &[], dispatch)
    }

    /// Two upstreams, and one that stands by.
    fn with_standby(dispatch: Dispatch) -> UpstreamMembers {
        let url = |name: &str| format!("http://{name}/v1").parse().expect("a base URL");
        UpstreamMembers::new(&[url("one"), url("two")], &[url("spare")], dispatch)
    }

    fn beginning(number: u8) -> [u8; 32] {
        [number; 32]
    }

    fn place(members: &UpstreamMembers, number: u8) -> InFlight {
        members
            .place(&beginning(number), &HashSet::new(), &Arc::from("a"))
            .expect("a place")
    }

    #[test]
    fn the_least_busy_is_chosen_and_equals_take_turns() {
        let members = members(3, Dispatch::LeastInflight);
        let mut held: Vec<InFlight> = (0..6).map(|_| place(&members, 0)).collect();
        for member in members.all() {
            assert_eq!(member.inflight.load(Relaxed), 2);
        }
        let freed = held.remove(4);
        let url = freed.url().clone();
        drop(freed);
        assert_eq!(*place(&members, 0).url(), url);
        // One after the other, none is forgotten.
        drop(held);
        let used: HashSet<BaseUrl> = (0..3).map(|_| place(&members, 0).url().clone()).collect();
        assert_eq!(used.len(), 3);
    }

    #[test]
    fn equal_beginnings_meet_and_the_load_is_bounded() {
        let members = members(4, Dispatch::PrefixAffine);
        let mut used = HashSet::new();
        for number in 0..64 {
            let url = place(&members, number).url().clone();
            assert_eq!(*place(&members, number).url(), url);
            used.insert(url);
        }
        assert_eq!(used.len(), 4, "beginnings are spread");
        // One beginning that everybody has floods nobody.
        let held: Vec<InFlight> = (0..40).map(|_| place(&members, 7)).collect();
        for member in members.all() {
            let load = member.inflight.load(Relaxed);
            assert!((1..=13).contains(&load), "{load}");
        }
        drop(held);
    }

    #[test]
    fn one_less_upstream_moves_only_its_own_beginnings() {
        let before = members(4, Dispatch::PrefixAffine);
        let after = members(3, Dispatch::PrefixAffine);
        for number in 0..64 {
            let url = place(&before, number).url().clone();
            if url.as_str() != "http://host3/v1" {
                assert_eq!(*place(&after, number).url(), url);
            }
        }
    }

    #[test]
    fn those_on_standby_are_asked_while_no_other_can_be() {
        for dispatch in [Dispatch::LeastInflight, Dispatch::PrefixAffine] {
            let members = with_standby(dispatch);
            let [one, two, spare] = members.all() else {
                panic!("three members");
            };
            // However busy the others are.
            let held: Vec<InFlight> = (0..64).map(|number| place(&members, number)).collect();
            assert_eq!(spare.inflight.load(Relaxed), 0);
            drop(held);
            // One of them is enough.
            one.healthy.store(false, Relaxed);
            assert_eq!(place(&members, 0).url(), &two.url);
            assert_eq!(members.standby(), (false, 0));
            // Not well, or failing: that is the same.
            for _ in 0..5 {
                let mut place = InFlight {
                    member: Arc::clone(two),
                    tenant: Arc::from("a"),
                    told: false,
                    on_standby: Arc::clone(&members.on_standby),
                };
                two.inflight.fetch_add(1, Relaxed);
                place.note(AttemptOutcome::Failed);
            }
            for number in 0..8 {
                assert_eq!(place(&members, number).url(), &spare.url);
            }
            assert_eq!(members.standby(), (true, 8));
            // A request that all others failed goes there as well.
            one.healthy.store(true, Relaxed);
            let tried = HashSet::from([one.url.clone()]);
            let next = members
                .place(&beginning(0), &tried, &Arc::from("a"))
                .expect("a place");
            assert_eq!(next.url(), &spare.url);
            drop(next);
            // They are given up once another is back, which its answer tells.
            for number in 0..8 {
                let mut place = place(&members, number);
                assert_eq!(place.url(), &one.url);
                assert_eq!(members.standby(), (number == 0, 9));
                place.note(AttemptOutcome::Answered);
            }
            assert_eq!(members.standby(), (false, 9));
            // None is well: better one that stands by than none.
            one.healthy.store(false, Relaxed);
            spare.healthy.store(false, Relaxed);
            assert_eq!(place(&members, 0).url(), &one.url);
        }
    }

    #[test]
    fn the_ill_and_the_tried_come_last_and_failing_ones_not_at_all() {
        let members = members(2, Dispatch::LeastInflight);
        let [one, two] = members.all() else {
            panic!("two members");
        };
        one.healthy.store(false, Relaxed);
        for _ in 0..4 {
            assert_eq!(place(&members, 0).url(), &two.url);
        }
        let tried = HashSet::from([two.url.clone()]);
        let next = members
            .place(&beginning(0), &tried, &Arc::from("a"))
            .expect("a place");
        assert_eq!(next.url(), &one.url, "an ill one is better than none");
        drop(next);
        for _ in 0..5 {
            place(&members, 0).note(AttemptOutcome::Failed);
        }
        assert_eq!(place(&members, 0).url(), &one.url);
        for _ in 0..5 {
            place(&members, 0).note(AttemptOutcome::Failed);
        }
        let wait = members
            .place(&beginning(0), &HashSet::new(), &Arc::from("a"))
            .expect_err("a pause");
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }
}
