//! Counters of policies: shared with other hosts through Valkey, or in this process, and in the store those of long periods:
//! a killed process loses at most what was counted since they were last written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mortise_plugin::{KeptBucket, Ledger, RateCounters};
use mortise_store::{Change, Key, Page, Record, RecordKind, SERVER, Store, StoreError};
use mortise_telemetry::Metrics;
use mortise_valkey::{LedgerCounters, Valkey, ValkeyConfig};

/// Time between two writings: what a killed process may forget.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Counters that are written or read together.
const PAGE: usize = 500;

/// Separates the name of a ledger from that of a bucket.
const SEPARATOR: char = '\n';

/// Ledgers by name, with the store that outlives them.
pub(crate) struct KeptCounters {
    /// `None` where the store ends with the process.
    store: Option<Arc<dyn Store>>,
    ledgers: Mutex<HashMap<String, Arc<Ledger>>>,
    /// Server that keeps them in place of this process.
    shared: Option<Arc<Valkey>>,
    /// Records that were read, until its ledger is opened.
    read: Mutex<HashMap<String, Vec<KeptBucket>>>,
}

impl KeptCounters {
    /// The counters that a store kept, or those that several hosts share.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) async fn open(
        store: Option<Arc<dyn Store>>,
        valkey: Option<ValkeyConfig>,
    ) -> Result<Arc<Self>, StoreError> {
        let mut read: HashMap<String, Vec<KeptBucket>> = HashMap::new();
        if let Some(store) = &store {
            for record in all(&**store).await? {
                let full_at = std::str::from_utf8(&record.body).ok();
                let full_at = full_at.and_then(|text| text.parse().ok());
                let name = record.key.id.split_once(SEPARATOR);
                if let (Some((ledger, bucket)), Some(full_at)) = (name, full_at) {
                    let bucket = bucket.to_owned();
                    let buckets = read.entry(ledger.to_owned()).or_default();
                    buckets.push(KeptBucket { bucket, full_at });
                }
            }
        }
        let shared = match valkey {
            Some(config) => Some(Valkey::open(config).await),
            None => None,
        };
        Ok(Arc::new(Self {
            store,
            shared,
            ledgers: Mutex::default(),
            read: Mutex::new(read),
        }))
    }

    /// The ledger of this name.
    pub(crate) fn ledger(&self, name: &str) -> Arc<dyn RateCounters> {
        if let Some(valkey) = &self.shared {
            return Arc::new(LedgerCounters::of(valkey, name));
        }
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = ledgers.entry(name.to_owned()).or_insert_with(|| {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            let ledger = Ledger::new();
            for kept in read.remove(name).unwrap_or_default() {
                ledger.restore(&kept);
            }
            Arc::new(ledger)
        });
        let counters: Arc<dyn RateCounters> = ledger.clone();
        counters
    }

    /// Server through which hosts share their counters.
    pub(crate) fn shared(&self) -> Option<&Arc<Valkey>> {
        self.shared.as_ref()
    }

    /// Metrics that show the server through which hosts share their counters.
    pub(crate) fn measured(&self, metrics: Metrics) -> Metrics {
        let shared = self.shared.clone();
        metrics.sharing(shared.map(|valkey| {
            move || {
                let now = valkey.stats();
                mortise_telemetry::SharedCounters {
                    up: now.up,
                    lost: now.lost,
                    without: now.without,
                }
            }
        }))
    }

    /// End the lease of this host.
    pub(crate) async fn leave(&self) {
        if let Some(valkey) = &self.shared {
            valkey.leave().await;
        }
    }

    /// Write what has changed for as long as the server runs.
    pub(crate) async fn write_regularly(&self) {
        let mut ticks = tokio::time::interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.write().await;
        }
    }

    /// Write what has changed. What cannot be written is told of and lost if the process ends before it changes again.
    pub(crate) async fn write(&self) {
        let Some(store) = &self.store else { return };
        let ledgers: Vec<(String, Arc<Ledger>)> = {
            let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
            let ledgers = ledgers.iter();
            ledgers
                .map(|(name, ledger)| (name.clone(), Arc::clone(ledger)))
                .collect()
        };
        for (name, ledger) in ledgers {
            for page in ledger.changed().chunks(PAGE) {
                let changes = page.iter().map(|kept| Change::Put(record(&name, kept)));
                if let Err(error) = store.commit(changes.collect()).await {
                    tracing::error!(%error, "counters of days could not be written");
                }
            }
        }
    }
}

fn record(ledger: &str, kept: &KeptBucket) -> Record {
    const SECOND: u64 = 1_000_000_000;
    let owner = Arc::from(SERVER);
    let expires = i64::try_from(kept.full_at.div_ceil(SECOND)).unwrap_or(i64::MAX);
    Record {
        key: Key::new(
            &owner,
            RecordKind::Counter,
            format!("{ledger}{SEPARATOR}{}", kept.bucket),
        ),
        created: 0,
        expires: Some(expires),
        open: false,
        body: kept.full_at.to_string().into_bytes(),
    }
}

async fn all(store: &dyn Store) -> Result<Vec<Record>, StoreError> {
    let owner = Arc::from(SERVER);
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = Page {
            after: after.take(),
            limit: PAGE,
            ascending: true,
        };
        let listing = store.list(&owner, RecordKind::Counter, page, None).await?;
        after = listing.entries.last().map(|record| record.key.id.clone());
        records.extend(listing.entries);
        if !listing.more {
            return Ok(records);
        }
    }
}
