//! Aliases that are switched while the server runs: names that stand for models, all of their requests or a
//! part of them for another one (canary), with the numbers that tell whether it does well.

mod times;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::times::Times;
use crate::limits::{MAX_ALIAS_BYTES, MAX_ALIASES, MAX_CANARY_TENANTS};

/// Meaning of an alias.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alias {
    /// Public name of a model.
    pub target: String,
    /// Canary: another model for a part of the requests.
    #[serde(default)]
    pub canary: Option<Canary>,
}

/// Model that gets a part of an alias's requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// Public name of the model.
    pub target: String,
    /// Part of the callers that it gets, 0 to 100. A caller stays with one model.
    #[serde(default)]
    pub percent: f64,
    /// Tenants that it gets in any case.
    #[serde(default)]
    pub tenants: Vec<String>,
}

/// Meaning of an alias, and the one before.
#[derive(Debug, Clone, PartialEq)]
pub struct AliasMeanings {
    /// Present meaning.
    pub alias: Alias,
    /// Meaning before, to which it can be rolled back.
    pub previous: Option<Alias>,
}

/// Caller of a request, as far as the choice between two models depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct AliasCaller<'a> {
    /// Tenant, if a policy named one.
    pub tenant: Option<&'a str>,
    /// Key by which the caller is told from others: equal keys get equal models.
    pub key: &'a str,
}

/// An alias that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// No alias has the name.
    #[error("no alias is called `{0}`")]
    Unknown(String),
    /// The alias has no earlier meaning to roll back to.
    #[error("the alias `{0}` has no earlier meaning to go back to")]
    NoPrevious(String),
    /// The name of the alias is a model's.
    #[error("`{0}` is the name of a model; an alias has a name of its own")]
    IsModel(String),
    /// The target of the alias is no model.
    #[error("`{field}` is `{target}`, and no model has that name")]
    NoModel {
        /// Field of the alias.
        field: &'static str,
        /// Name that was given.
        target: String,
    },
    /// A value is out of its bounds.
    #[error("`{field}`: {problem}")]
    Bad {
        /// Field of the alias.
        field: &'static str,
        /// Message: what is wrong and what would be right.
        problem: String,
    },
}

/// Counters of the requests that an alias sent to one model.
#[derive(Debug, Default)]
pub struct AliasCounters {
    requests: AtomicU64,
    errors: AtomicU64,
    elapsed_us: AtomicU64,
    first_token_us: AtomicU64,
    first_tokens: AtomicU64,
    no_room: AtomicU64,
    latencies: Times,
    times_to_first_token: Times,
}

/// Numbers of the requests that an alias sent to one model, since the server's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AliasNumbers {
    /// Answers that ended, and requests that failed before they began.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that failed because there was no room for their model.
    pub no_room: u64,
    /// Mean time from arrival to the end.
    pub mean_latency_ms: f64,
    /// Median of the time from arrival to the end.
    pub p50_latency_ms: f64,
    /// 99th percentile of the time from arrival to the end.
    pub p99_latency_ms: f64,
    /// Mean time from arrival to the first token.
    pub mean_first_token_ms: f64,
    /// Median of the time from arrival to the first token.
    pub p50_first_token_ms: f64,
    /// 99th percentile of the time from arrival to the first token.
    pub p99_first_token_ms: f64,
}

/// Sums over the requests that an alias sent to one model, since the server's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasSums {
    /// Name of the alias.
    pub alias: String,
    /// Public name of the model.
    pub model: String,
    /// Answers that ended, and requests that failed before they began.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Sum of the times from arrival to the end, over all requests.
    pub elapsed: Duration,
    /// Requests that came to a first token.
    pub first_tokens: u64,
    /// Sum of the times from arrival to the first token, over the requests that came to one.
    pub first_token: Duration,
}

impl AliasCounters {
    /// Count a request that has ended.
    pub fn ended(&self, failed: bool, elapsed: Duration, first_token: Option<Duration>) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.requests.fetch_add(1, Relaxed);
        self.errors.fetch_add(u64::from(failed), Relaxed);
        self.elapsed_us.fetch_add(micros(elapsed), Relaxed);
        self.latencies.record(elapsed);
        if let Some(time) = first_token {
            self.times_to_first_token.record(time);
            self.first_tokens.fetch_add(1, Relaxed);
            self.first_token_us.fetch_add(micros(time), Relaxed);
        }
    }

    /// Count a request that failed because there was no room for its model.
    pub fn found_no_room(&self) {
        self.no_room.fetch_add(1, Relaxed);
    }

    fn sums(&self, alias: &str, model: &str) -> AliasSums {
        AliasSums {
            alias: alias.to_owned(),
            model: model.to_owned(),
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            elapsed: Duration::from_micros(self.elapsed_us.load(Relaxed)),
            first_tokens: self.first_tokens.load(Relaxed),
            first_token: Duration::from_micros(self.first_token_us.load(Relaxed)),
        }
    }

    fn numbers(&self) -> AliasNumbers {
        let mean = |sum: &AtomicU64, count: &AtomicU64| {
            let (sum, count) = (sum.load(Relaxed) as f64, count.load(Relaxed) as f64);
            if count > 0.0 {
                sum / count / 1000.0
            } else {
                0.0
            }
        };
        AliasNumbers {
            requests: self.requests.load(Relaxed),
            errors: self.errors.load(Relaxed),
            no_room: self.no_room.load(Relaxed),
            mean_latency_ms: mean(&self.elapsed_us, &self.requests),
            p50_latency_ms: self.latencies.quantile_ms(0.5),
            p99_latency_ms: self.latencies.quantile_ms(0.99),
            mean_first_token_ms: mean(&self.first_token_us, &self.first_tokens),
            p50_first_token_ms: self.times_to_first_token.quantile_ms(0.5),
            p99_first_token_ms: self.times_to_first_token.quantile_ms(0.99),
        }
    }
}

/// An alias with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AliasRow {
    /// Name.
    pub name: String,
    /// Present meaning.
    #[serde(flatten)]
    pub alias: Alias,
    /// Meaning before, to which it can be rolled back.
    pub previous: Option<Alias>,
    /// Numbers by model.
    pub targets: BTreeMap<String, AliasNumbers>,
}

#[derive(Debug)]
struct Entry {
    alias: Alias,
    previous: Option<Alias>,
    counters: BTreeMap<String, Arc<AliasCounters>>,
}

/// Model that an alias chose for a request.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// Public name of the model.
    pub target: String,
    /// Counters of the choice.
    pub counters: Arc<AliasCounters>,
}

/// All aliases that can be switched.
#[derive(Debug, Default)]
pub struct AliasTable(RwLock<BTreeMap<String, Entry>>);

impl AliasTable {
    /// Give an alias a meaning, or another one. `is_model` tells public names of models. True if it is new.
    ///
    /// # Errors
    /// When its name or its models are wrong; then nothing changes.
    pub fn set(
        &self,
        name: &str,
        alias: Alias,
        is_model: &dyn Fn(&str) -> bool,
    ) -> Result<bool, AliasError> {
        check(name, &alias, is_model)?;
        check_targets(&alias, is_model)?;
        self.put(name, alias)
    }

    /// Give an alias the meanings that a configuration has. Its models may still come: until then its requests find none. True
    /// if it is new.
    ///
    /// # Errors
    /// When its name or another value is wrong; then nothing changes.
    pub fn define(
        &self,
        name: &str,
        meanings: AliasMeanings,
        is_model: &dyn Fn(&str) -> bool,
    ) -> Result<bool, AliasError> {
        check(name, &meanings.alias, is_model)?;
        if let Some(previous) = &meanings.previous {
            check(name, previous, is_model)?;
        }
        let new = self.put(name, meanings.alias)?;
        if let Some(entry) = self.write().get_mut(name).filter(|_| new) {
            entry.previous = meanings.previous;
        }
        Ok(new)
    }

    fn put(&self, name: &str, alias: Alias) -> Result<bool, AliasError> {
        let mut aliases = self.write();
        if aliases.len() >= MAX_ALIASES && !aliases.contains_key(name) {
            let problem = format!("there are {MAX_ALIASES} aliases, and no more can be had");
            return Err(AliasError::Bad {
                field: "name",
                problem,
            });
        }
        let Some(entry) = aliases.get_mut(name) else {
            let entry = Entry {
                alias,
                previous: None,
                counters: BTreeMap::new(),
            };
            aliases.insert(name.to_owned(), entry);
            return Ok(true);
        };
        if entry.alias != alias {
            entry.previous = Some(std::mem::replace(&mut entry.alias, alias));
            entry.forget();
        }
        Ok(false)
    }

    /// Give an alias its earlier meaning back. What it meant until now becomes the earlier one.
    ///
    /// # Errors
    /// When there is no such alias, or no earlier meaning of which the models are still there.
    pub fn roll_back(&self, name: &str, is_model: &dyn Fn(&str) -> bool) -> Result<(), AliasError> {
        let mut aliases = self.write();
        let unknown = || AliasError::Unknown(name.to_owned());
        let entry = aliases.get_mut(name).ok_or_else(unknown)?;
        let previous = entry.previous.clone();
        let previous = previous.ok_or_else(|| AliasError::NoPrevious(name.to_owned()))?;
        check(name, &previous, is_model)?;
        check_targets(&previous, is_model)?;
        entry.previous = Some(std::mem::replace(&mut entry.alias, previous));
        entry.forget();
        Ok(())
    }

    /// Remove an alias.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn remove(&self, name: &str) -> Result<(), AliasError> {
        let removed = self.write().remove(name);
        removed
            .map(drop)
            .ok_or_else(|| AliasError::Unknown(name.to_owned()))
    }

    /// The alias of this name, or the only one whose name differs in case, if that is allowed.
    pub fn spelled(&self, name: &str, any_case: bool) -> Option<String> {
        let aliases = self.read();
        if aliases.contains_key(name) {
            return Some(name.to_owned());
        }
        if !any_case {
            return None;
        }
        let lower = name.to_lowercase();
        let mut alike = aliases.keys().filter(|known| known.to_lowercase() == lower);
        let first = alike.next()?;
        alike.next().is_none().then(|| first.clone())
    }

    /// Model to which all requests of an alias go, but for its canary.
    pub fn target(&self, name: &str) -> Option<String> {
        let aliases = self.read();
        aliases.get(name).map(|entry| entry.alias.target.clone())
    }

    /// All aliases with the models to which their requests go, but for canaries, by name.
    pub fn targets(&self) -> Vec<(String, String)> {
        let aliases = self.read();
        let target = |(name, entry): (&String, &Entry)| (name.clone(), entry.alias.target.clone());
        aliases.iter().map(target).collect()
    }

    /// Whether the model of a request depends on who asks.
    pub fn asks_who(&self, name: &str) -> bool {
        let aliases = self.read();
        aliases
            .get(name)
            .is_some_and(|entry| entry.alias.canary.is_some())
    }

    /// Model of a request; `None` if the name is no alias.
    pub fn choose(&self, name: &str, caller: AliasCaller<'_>) -> Option<Chosen> {
        let (target, known) = {
            let aliases = self.read();
            let entry = aliases.get(name)?;
            let target = entry.alias.choose(name, caller).to_owned();
            let known = entry.counters.get(&target).cloned();
            (target, known)
        };
        let counters = known.unwrap_or_else(|| {
            let mut aliases = self.write();
            let entry = aliases.get_mut(name);
            let of =
                |entry: &mut Entry| Arc::clone(entry.counters.entry(target.clone()).or_default());
            entry.map_or_else(Arc::default, of)
        });
        Some(Chosen { target, counters })
    }

    /// One alias.
    pub fn row(&self, name: &str) -> Option<AliasRow> {
        self.read().get(name).map(|entry| entry.row(name))
    }

    /// All aliases, by name.
    pub fn rows(&self) -> Vec<AliasRow> {
        let aliases = self.read();
        aliases
            .iter()
            .map(|(name, entry)| entry.row(name))
            .collect()
    }

    /// Sums of all aliases, by the models that they chose.
    pub fn sums(&self) -> Vec<AliasSums> {
        let of_entry = |(name, entry): (&String, &Entry)| {
            let sums =
                |(model, counters): (&String, &Arc<AliasCounters>)| counters.sums(name, model);
            entry.counters.iter().map(sums).collect::<Vec<_>>()
        };
        self.read().iter().flat_map(of_entry).collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Entry>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Entry>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn row(&self, name: &str) -> AliasRow {
        let numbers = |(target, counters): (&String, &Arc<AliasCounters>)| {
            (target.clone(), counters.numbers())
        };
        AliasRow {
            name: name.to_owned(),
            alias: self.alias.clone(),
            previous: self.previous.clone(),
            targets: self.counters.iter().map(numbers).collect(),
        }
    }

    /// Forget the counters of models that are neither a present nor a former target of the alias.
    fn forget(&mut self) {
        let meanings = [Some(&self.alias), self.previous.as_ref()];
        let named = |target: &String| {
            meanings.iter().flatten().any(|alias| {
                let canary = alias.canary.as_ref();
                alias.target == *target || canary.is_some_and(|canary| canary.target == *target)
            })
        };
        self.counters.retain(|target, _| named(target));
    }
}

impl Alias {
    /// Models that it means and that are not there: the field of each, and its name.
    pub fn missing(&self, is_model: &dyn Fn(&str) -> bool) -> Vec<(&'static str, &str)> {
        let canary = self.canary.as_ref();
        let canary = canary.map(|canary| ("canary.target", canary.target.as_str()));
        let meant = [Some(("target", self.target.as_str())), canary];
        let missing = meant.into_iter().flatten();
        missing.filter(|(_, target)| !is_model(target)).collect()
    }

    /// The model of a caller's request.
    fn choose(&self, name: &str, caller: AliasCaller<'_>) -> &str {
        let Some(canary) = &self.canary else {
            return &self.target;
        };
        let named = |tenant: &str| canary.tenants.iter().any(|known| known == tenant);
        let drawn = place(name, caller.key) < canary.percent;
        match caller.tenant.is_some_and(named) || drawn {
            true => &canary.target,
            false => &self.target,
        }
    }
}

/// Place of a key among all, from 0 up to 100. It depends on the alias too: who is early in one is not early in
/// all. The same key gets the same place on every server (FNV-1a, with the finish of MurmurHash3).
fn place(alias: &str, key: &str) -> f64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in alias.bytes().chain([0]).chain(key.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    // A million places: exact in floating point.
    (hash % 1_000_000) as f64 / 10_000.0
}

fn check(name: &str, alias: &Alias, is_model: &dyn Fn(&str) -> bool) -> Result<(), AliasError> {
    let bad = |field, problem: String| Err(AliasError::Bad { field, problem });
    if name.trim().is_empty() || name.len() > MAX_ALIAS_BYTES {
        let problem = format!(
            "it must have 1 to {MAX_ALIAS_BYTES} bytes; it has {}",
            name.len()
        );
        return bad("name", problem);
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        let problem = "it must not begin or end with a space, nor have control characters";
        return bad("name", problem.to_owned());
    }
    if is_model(name) {
        return Err(AliasError::IsModel(name.to_owned()));
    }
    let Some(canary) = &alias.canary else {
        return Ok(());
    };
    if !(0.0..=100.0).contains(&canary.percent) {
        let problem = format!("it must be from 0 to 100; it is {}", canary.percent);
        return bad("canary.percent", problem);
    }
    if canary.tenants.len() > MAX_CANARY_TENANTS {
        let problem = format!("it may name {MAX_CANARY_TENANTS} tenants at most");
        return bad("canary.tenants", problem);
    }
    Ok(())
}

fn check_targets(alias: &Alias, is_model: &dyn Fn(&str) -> bool) -> Result<(), AliasError> {
    match alias.missing(is_model).first() {
        None => Ok(()),
        Some((field, target)) => Err(AliasError::NoModel {
            field,
            target: (*target).to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
