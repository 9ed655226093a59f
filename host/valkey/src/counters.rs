//! Token buckets and places that several hosts share.

use std::collections::HashMap;
use std::sync::Arc;

use mortise_plugin::{
    CountersLost, Counting, Level, Rate, RateCounters, UNDER_WAY, Verdict, Withdrawal,
};
use redis::ScriptInvocation;

use crate::config::WhenLost;
use crate::limits::{KEEP_PLACES, MAX_BUCKET_NAME_BYTES};
use crate::mirror::Mirror;
use crate::valkey::{Lost, MAX_AHEAD_US, Valkey, milliseconds};

/// Counters of one ledger.
pub struct LedgerCounters {
    valkey: Arc<Valkey>,
    mirror: Arc<Mirror>,
}

impl RateCounters for LedgerCounters {
    fn take<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>> {
        Box::pin(self.withdraw(bucket, cost, rate, true))
    }

    fn peek<'a>(
        &'a self,
        bucket: &'a str,
        cost: u64,
        rate: Rate,
    ) -> Counting<'a, Result<Verdict, CountersLost>> {
        Box::pin(self.peek(bucket, cost, rate))
    }

    fn take_all<'a>(
        &'a self,
        withdrawals: &'a [Withdrawal],
        takes: bool,
    ) -> Counting<'a, Result<Vec<Verdict>, CountersLost>> {
        Box::pin(self.take_together(withdrawals, takes))
    }

    fn levels<'a>(
        &'a self,
        buckets: &'a [(String, Rate)],
    ) -> Counting<'a, Result<Vec<Level>, CountersLost>> {
        Box::pin(self.levels(buckets))
    }

    fn adjust<'a>(&'a self, bucket: &'a str, delta: i64, rate: Rate) -> Counting<'a, ()> {
        Box::pin(self.adjust(bucket, delta, rate))
    }
}

impl LedgerCounters {
    /// The counters of a ledger. Ledgers of the same name share their counters on all hosts.
    pub fn of(valkey: &Arc<Valkey>, ledger: &str) -> Self {
        Self {
            mirror: valkey.mirror(ledger),
            valkey: Arc::clone(valkey),
        }
    }

    /// Verdict on a withdrawal without taking. This host grants by the last known state of the bucket, refilled since;
    /// where it would refuse, the server is asked. What other hosts took since is found when the request takes.
    async fn peek(&self, bucket: &str, cost: u64, rate: Rate) -> Result<Verdict, CountersLost> {
        if self.valkey.stats().up {
            let here = match bucket.starts_with(UNDER_WAY) {
                true => places(self.mirror.count(bucket), cost, rate.capacity).1,
                false => self.mirror.buckets.peek(bucket, cost, rate),
            };
            if here.allowed {
                return Ok(here);
            }
        }
        self.withdraw(bucket, cost, rate, false).await
    }

    async fn withdraw(
        &self,
        bucket: &str,
        cost: u64,
        rate: Rate,
        takes: bool,
    ) -> Result<Verdict, CountersLost> {
        if cost > rate.capacity || bucket.len() > MAX_BUCKET_NAME_BYTES {
            return Ok(Verdict::NEVER);
        }
        match bucket.starts_with(UNDER_WAY) {
            true => self.take_places(bucket, cost, rate.capacity, takes).await,
            false => self.take_flow(bucket, cost, rate, takes).await,
        }
    }

    async fn take_flow(
        &self,
        bucket: &str,
        cost: u64,
        rate: Rate,
        takes: bool,
    ) -> Result<Verdict, CountersLost> {
        let flow = microseconds(rate.time_for(cost));
        let period = microseconds(rate.time_for(rate.capacity));
        let key = self.valkey.key("b", &self.mirror.name, bucket);
        let mut call = self.valkey.scripts.take.key(key);
        call.arg(flow).arg(period).arg(u8::from(takes));
        match self.valkey.ask::<(u8, String)>(&call).await {
            Ok(((allowed, ahead), _shared)) => {
                let ahead = u128::from(ahead.parse::<u64>().unwrap_or(u64::MAX)) * 1_000;
                let allowed = allowed == 1;
                if takes || !allowed {
                    self.mirror.buckets.mirror(bucket, ahead);
                }
                Ok(rate.verdict(cost, allowed, ahead))
            }
            Err(_) => {
                self.without()?;
                let verdict = match takes {
                    true => self.mirror.buckets.take(bucket, cost, rate),
                    false => self.mirror.buckets.peek(bucket, cost, rate),
                };
                // A call without an answer may have taken it already: rather twice than not at all.
                if takes && verdict.allowed && flow > 0 {
                    self.mirror.remember(bucket, flow);
                }
                Ok(verdict)
            }
        }
    }

    async fn take_places(
        &self,
        bucket: &str,
        cost: u64,
        capacity: u64,
        takes: bool,
    ) -> Result<Verdict, CountersLost> {
        let key = self.valkey.key("p", &self.mirror.name, bucket);
        let mut call = self.valkey.scripts.place.key(key);
        call.key(self.valkey.hosts_key()).arg(&self.valkey.host);
        call.arg(cost).arg(capacity).arg(u8::from(takes));
        call.arg(milliseconds(KEEP_PLACES));
        match self.valkey.ask::<(u8, String)>(&call).await {
            Ok(((allowed, taken), _shared)) => {
                let taken = taken.parse().unwrap_or(u64::MAX);
                if allowed == 1 && takes && cost > 0 {
                    let cost = i64::try_from(cost).unwrap_or(i64::MAX);
                    self.mirror.change(bucket, cost, false);
                }
                Ok(verdict_of_places(allowed == 1, taken, capacity))
            }
            Err(lost) => {
                if takes && lost == Lost::Unanswered {
                    self.mirror.doubt(bucket);
                }
                self.without()?;
                if !takes {
                    return Ok(places(self.mirror.count(bucket), cost, capacity).1);
                }
                let (before, taken) = self.mirror.take_untold(bucket, cost, capacity);
                let after = if taken { before + cost } else { before };
                Ok(verdict_of_places(taken, after, capacity))
            }
        }
    }

    /// Take several withdrawals in one exchange with the server. Withdrawals that can never be granted are not sent,
    /// and then none is taken.
    async fn take_together(
        &self,
        withdrawals: &[Withdrawal],
        takes: bool,
    ) -> Result<Vec<Verdict>, CountersLost> {
        let sound = |one: &&Withdrawal| {
            one.cost <= one.rate.capacity && one.bucket.len() <= MAX_BUCKET_NAME_BYTES
        };
        let sent: Vec<&Withdrawal> = withdrawals.iter().filter(sound).collect();
        let takes_all = takes && sent.len() == withdrawals.len();
        let here = match takes || !self.valkey.stats().up {
            true => None,
            false => Some(self.together_here(&sent, false)),
        };
        let here = here.filter(|here| here.iter().all(|verdict| verdict.allowed));
        let told = match here {
            Some(here) => here,
            None if sent.is_empty() => Vec::new(),
            None => self.ask_together(&sent, takes_all).await?,
        };
        let mut told = told.into_iter();
        let verdicts = withdrawals.iter().map(|one| match sound(&one) {
            true => told.next().unwrap_or(Verdict::NEVER),
            false => Verdict::NEVER,
        });
        Ok(verdicts.collect())
    }

    /// The script that makes several withdrawals, or tells what the answer would be.
    fn call_of(&self, sent: &[&Withdrawal], takes: bool) -> ScriptInvocation<'_> {
        let scripts = &self.valkey.scripts;
        let mut call = scripts.take_all.key(self.valkey.hosts_key());
        call.arg(&self.valkey.host).arg(milliseconds(KEEP_PLACES));
        call.arg(u8::from(takes));
        for one in sent {
            let (kind, cost, most) = match is_place(one) {
                true => ("p", one.cost.to_string(), one.rate.capacity.to_string()),
                false => (
                    "b",
                    microseconds(one.rate.time_for(one.cost)).to_string(),
                    microseconds(one.rate.time_for(one.rate.capacity)).to_string(),
                ),
            };
            call.key(self.valkey.key(kind, &self.mirror.name, &one.bucket));
            call.arg(kind).arg(cost).arg(most);
        }
        call
    }

    /// State of several buckets as the server has it, in one exchange. This host's own record would leave out what the others
    /// took.
    async fn levels(&self, buckets: &[(String, Rate)]) -> Result<Vec<Level>, CountersLost> {
        let asked = buckets.iter().map(|(bucket, rate)| Withdrawal {
            bucket: bucket.clone(),
            cost: 0,
            rate: *rate,
        });
        let asked: Vec<Withdrawal> = asked.collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let call = self.call_of(&asked.iter().collect::<Vec<_>>(), false);
        let answered = self.valkey.ask::<Vec<String>>(&call).await;
        let (answers, _shared) = answered.map_err(|_| CountersLost)?;
        let answers = answers.chunks(3).map(Drawn::read);
        let levels = asked
            .iter()
            .zip(answers)
            .map(|(one, answer)| match is_place(one) {
                true => Level::of_places(
                    u64::try_from(answer.left).unwrap_or(u64::MAX),
                    one.rate.capacity,
                ),
                false => one.rate.level(answer.left * 1_000),
            });
        Ok(levels.collect())
    }

    async fn ask_together(
        &self,
        sent: &[&Withdrawal],
        takes: bool,
    ) -> Result<Vec<Verdict>, CountersLost> {
        let call = self.call_of(sent, takes);
        match self.valkey.ask::<Vec<String>>(&call).await {
            Ok((answers, _shared)) => {
                let answers: Vec<Drawn> = answers.chunks(3).map(Drawn::read).collect();
                let all = answers.iter().all(|answer| answer.allowed);
                let verdicts = sent.iter().zip(&answers).map(|(one, answer)| {
                    self.note(one, answer, all && takes);
                    answer.verdict(one, all)
                });
                Ok(verdicts.collect())
            }
            Err(lost) => {
                if takes && lost == Lost::Unanswered {
                    let places = sent.iter().filter(|one| is_place(one));
                    places.for_each(|one| self.mirror.doubt(&one.bucket));
                }
                self.without()?;
                Ok(self.together_here(sent, takes))
            }
        }
    }

    /// Record what the server told of one withdrawal.
    fn note(&self, one: &Withdrawal, answer: &Drawn, taken: bool) {
        if !is_place(one) {
            self.mirror.buckets.mirror(&one.bucket, answer.left * 1_000);
        } else if taken && one.cost > 0 {
            let cost = i64::try_from(one.cost).unwrap_or(i64::MAX);
            self.mirror.change(&one.bucket, cost, false);
        }
    }

    /// The answer by what this host knows. Withdrawals that are made are remembered, to be told later.
    fn together_here(&self, sent: &[&Withdrawal], takes: bool) -> Vec<Verdict> {
        let flows = sent.iter().filter(|one| !is_place(one));
        let flows: Vec<Withdrawal> = flows.map(|one| (*one).clone()).collect();
        let mut flowing = self.mirror.buckets.take_all(&flows, false).into_iter();
        let mut held: HashMap<&str, u64> = HashMap::new();
        let verdicts = sent.iter().map(|one| match is_place(one) {
            true => {
                let count = held.entry(&one.bucket);
                let count = count.or_insert_with(|| self.mirror.count(&one.bucket));
                let (after, verdict) = places(*count, one.cost, one.rate.capacity);
                *count = after;
                verdict
            }
            false => flowing.next().unwrap_or(Verdict::NEVER),
        });
        let mut verdicts: Vec<Verdict> = verdicts.collect();
        let all = verdicts.iter().all(|verdict| verdict.allowed);
        if !all {
            for (verdict, one) in verdicts.iter_mut().zip(sent) {
                verdict.remaining = self.left_here(one);
            }
        }
        if all && takes {
            self.mirror.buckets.take_all(&flows, true);
            for one in &flows {
                let flow = microseconds(one.rate.time_for(one.cost));
                if flow > 0 {
                    self.mirror.remember(&one.bucket, flow);
                }
            }
            for one in sent.iter().filter(|one| is_place(one)) {
                self.mirror
                    .take_untold(&one.bucket, one.cost, one.rate.capacity);
            }
        }
        verdicts
    }

    /// Remaining amount of a bucket, or remaining places, as far as this host knows.
    fn left_here(&self, one: &Withdrawal) -> u64 {
        match is_place(one) {
            true => one
                .rate
                .capacity
                .saturating_sub(self.mirror.count(&one.bucket)),
            false => self.mirror.buckets.peek(&one.bucket, 0, one.rate).remaining,
        }
    }

    async fn adjust(&self, bucket: &str, delta: i64, rate: Rate) {
        if bucket.len() > MAX_BUCKET_NAME_BYTES || delta == 0 {
            return;
        }
        if bucket.starts_with(UNDER_WAY) {
            return self.change_places(bucket, delta).await;
        }
        let flow = microseconds(rate.time_for(delta.unsigned_abs())) * delta.signum();
        let key = self.valkey.key("b", &self.mirror.name, bucket);
        let mut call = self.valkey.scripts.adjust.key(key);
        call.arg(flow).arg(MAX_AHEAD_US);
        match self.valkey.ask::<String>(&call).await {
            Ok((ahead, _shared)) => {
                let ahead = u128::from(ahead.parse::<u64>().unwrap_or(u64::MAX)) * 1_000;
                self.mirror.buckets.mirror(bucket, ahead);
            }
            Err(lost) => {
                self.mirror.buckets.adjust(bucket, delta, rate);
                // Charged rather twice than not at all, and given back rather not at all than twice.
                if delta > 0 || lost == Lost::Unsent {
                    self.mirror.remember(bucket, flow);
                }
            }
        }
    }

    async fn change_places(&self, bucket: &str, delta: i64) {
        let key = self.valkey.key("p", &self.mirror.name, bucket);
        let mut call = self.valkey.scripts.release.key(key);
        call.arg(&self.valkey.host).arg(delta);
        call.arg(milliseconds(KEEP_PLACES));
        let asked = self.valkey.ask::<u8>(&call).await;
        self.mirror.change(bucket, delta, asked.is_err());
    }

    /// A decision without the server, if there may be one.
    fn without(&self) -> Result<(), CountersLost> {
        self.valkey.count_without();
        match self.valkey.when_lost() {
            WhenLost::Refuse => Err(CountersLost),
            WhenLost::Local => Ok(()),
        }
    }
}

fn is_place(one: &Withdrawal) -> bool {
    one.bucket.starts_with(UNDER_WAY)
}

/// Result of one of several withdrawals, as the server tells it: times in microseconds, or places.
struct Drawn {
    allowed: bool,
    /// Amount drawn before this withdrawal, with the withdrawals before it.
    seen: u128,
    /// Amount drawn after all withdrawals, if all are allowed; else before any.
    left: u128,
}

impl Drawn {
    fn read(answer: &[String]) -> Self {
        let number = |at: usize| answer.get(at).and_then(|text| text.parse().ok());
        Self {
            allowed: answer.first().is_some_and(|text| text == "1"),
            seen: number(1).unwrap_or(u64::MAX.into()),
            left: number(2).unwrap_or(u64::MAX.into()),
        }
    }

    fn verdict(&self, one: &Withdrawal, all: bool) -> Verdict {
        if is_place(one) {
            let taken = u64::try_from(self.left).unwrap_or(u64::MAX);
            return verdict_of_places(self.allowed, taken, one.rate.capacity);
        }
        let left = one.rate.verdict(0, true, self.left * 1_000);
        match self.allowed {
            true if all => one.rate.verdict(one.cost, true, self.left * 1_000),
            true => left,
            false => Verdict {
                remaining: left.remaining,
                ..one.rate.verdict(one.cost, false, self.seen * 1_000)
            },
        }
    }
}

/// Number of places after a withdrawal, and the answer to it.
fn places(taken: u64, cost: u64, capacity: u64) -> (u64, Verdict) {
    let wanted = taken.saturating_add(cost);
    let allowed = wanted <= capacity;
    let after = if allowed { wanted } else { taken };
    (after, verdict_of_places(allowed, after, capacity))
}

/// Places come back when answers end, and nobody knows when that will be.
fn verdict_of_places(allowed: bool, taken: u64, capacity: u64) -> Verdict {
    Verdict {
        allowed,
        remaining: capacity.saturating_sub(taken),
        retry_after_ms: if allowed { 0 } else { 1_000 },
    }
}

fn microseconds(nanoseconds: u128) -> i64 {
    let time = i64::try_from(nanoseconds.div_ceil(1_000)).unwrap_or(i64::MAX);
    time.min(MAX_AHEAD_US)
}
