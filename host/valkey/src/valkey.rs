//! One Valkey server: its connection, the lease of this host, and what happens when it is lost.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ScriptInvocation};
use tokio::sync::{Notify, RwLock, RwLockReadGuard};
use tokio::time::timeout;

use crate::config::{ValkeyConfig, WhenLost};
use crate::connect::{ConnectError, connect};
use crate::limits::{CONNECT_TIMEOUT, FORGET_HOST, KEEP_PLACES, RETRY_EVERY};
use crate::mirror::Mirror;
use crate::scripts::Scripts;

/// Longest that a bucket may be drawn ahead, in microseconds: with the time of day it stays exact in a script's numbers.
pub(crate) const MAX_AHEAD_US: i64 = 4_000_000_000_000_000;

/// State of the server, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// The server answers.
    pub up: bool,
    /// Times that the server was lost.
    pub lost: u64,
    /// Decisions without the server.
    pub without: u64,
}

/// The server did not take part in a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The call was not sent to the server.
    Unsent,
    /// The call was sent and not answered; the server may have carried it out.
    Unanswered,
}

/// A Valkey server.
pub struct Valkey {
    pub(crate) config: ValkeyConfig,
    pub(crate) scripts: Scripts,
    /// Unique name of this process.
    pub(crate) host: String,
    /// Connection to the server; none while the server is lost.
    connection: Mutex<Option<MultiplexedConnection>>,
    /// Lock that calls share. Bringing the server up to date after a loss takes the lock exclusively.
    telling: RwLock<()>,
    loss: Notify,
    known: AtomicBool,
    mirrors: Mutex<HashMap<String, Arc<Mirror>>>,
    lost: AtomicU64,
    without: AtomicU64,
}

impl fmt::Debug for Valkey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Valkey").field(&self.config).finish()
    }
}

impl Valkey {
    /// Connect to a server, once. A server that cannot be reached is lost until [`keep`](Self::keep) finds it.
    pub async fn open(config: ValkeyConfig) -> Arc<Self> {
        let this = Arc::new(Self {
            config,
            scripts: Scripts::new(),
            host: uuid::Uuid::new_v4().to_string(),
            connection: Mutex::default(),
            telling: RwLock::default(),
            loss: Notify::new(),
            known: AtomicBool::new(false),
            mirrors: Mutex::default(),
            lost: AtomicU64::default(),
            without: AtomicU64::default(),
        });
        if let Err(error) = this.recover().await {
            this.lost.fetch_add(1, Ordering::Relaxed);
            this.tell_loss(&error.to_string());
        }
        this
    }

    /// Record of a ledger on this host.
    pub(crate) fn mirror(&self, ledger: &str) -> Arc<Mirror> {
        let mut mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mirrors.entry(ledger.to_owned());
        Arc::clone(known.or_insert_with(|| Arc::new(Mirror::new(ledger))))
    }

    /// Renew the lease of this host, and look for a server that is lost, for as long as the process runs.
    pub async fn keep(&self) {
        loop {
            if self.connected().is_some() {
                let _ = timeout(self.config.lease / 3, self.loss.notified()).await;
                self.renew().await;
            } else if let Err(error) = self.recover().await {
                tracing::debug!(address = %self.config.address, %error, "Valkey is still lost");
                tokio::time::sleep(RETRY_EVERY).await;
            }
        }
    }

    /// End the lease of this host: its answers no longer count.
    pub async fn leave(&self) {
        if let Some(mut connection) = self.connected() {
            let mut command = redis::cmd("ZREM");
            command.arg(self.hosts_key()).arg(&self.host);
            let removed = command.query_async::<()>(&mut connection);
            let _ = timeout(self.config.timeout, removed).await;
        }
    }

    /// State of the server.
    pub fn stats(&self) -> Stats {
        Stats {
            up: self.connected().is_some(),
            lost: self.lost.load(Ordering::Relaxed),
            without: self.without.load(Ordering::Relaxed),
        }
    }

    /// Behaviour without the server.
    pub fn when_lost(&self) -> WhenLost {
        self.config.when_lost
    }

    /// A decision is made without the server.
    pub(crate) fn count_without(&self) {
        self.without.fetch_add(1, Ordering::Relaxed);
    }

    /// Run a script on the server, in one attempt. A server that fails is lost until it is found again, so that at most
    /// the calls in progress wait for it.
    ///
    /// The guard is held until the caller has recorded the answer, so that nothing older is told.
    pub(crate) async fn ask<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<(T, RwLockReadGuard<'_, ()>), Lost> {
        if self.connected().is_none() {
            return Err(Lost::Unsent);
        }
        let shared = timeout(self.config.timeout, self.telling.read()).await;
        let shared = shared.map_err(|_| Lost::Unsent)?;
        let mut connection = self.connected().ok_or(Lost::Unsent)?;
        let answer = timeout(self.config.timeout, call.invoke_async(&mut connection)).await;
        let problem = match answer {
            Ok(Ok(answer)) => return Ok((answer, shared)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", self.config.timeout.as_millis()),
        };
        self.lose(&problem);
        Err(Lost::Unanswered)
    }

    /// Key of what is kept under a name. The braces keep all keys on one node of a cluster.
    pub(crate) fn key(&self, kind: &str, ledger: &str, bucket: &str) -> String {
        format!("{{{}}}:{kind}:{ledger}:{bucket}", self.config.prefix)
    }

    pub(crate) fn hosts_key(&self) -> String {
        format!("{{{}}}:hosts", self.config.prefix)
    }

    fn connected(&self) -> Option<MultiplexedConnection> {
        let connection = self.connection.lock();
        connection.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn connect_with(&self, connection: Option<MultiplexedConnection>) -> bool {
        let mut place = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, connection).is_some()
    }

    fn lose(&self, problem: &str) {
        if self.connect_with(None) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.loss.notify_one();
            self.tell_loss(problem);
        }
    }

    fn tell_loss(&self, problem: &str) {
        let consequence = match self.config.when_lost {
            WhenLost::Refuse => "requests with limits are refused until it is back",
            WhenLost::Local => "each host keeps to the limits by itself until it is back",
        };
        tracing::error!(address = %self.config.address, problem, "Valkey is lost; {consequence}");
    }

    /// Connect, and tell of all that was missed.
    async fn recover(&self) -> Result<(), ConnectError> {
        let mut connection = connect(&self.config).await?;
        let loaded = timeout(CONNECT_TIMEOUT, self.scripts.load(&mut connection)).await;
        loaded.map_err(|_| ConnectError::Timeout)??;
        let _alone = self.telling.write().await;
        self.tell(&mut connection).await?;
        self.connect_with(Some(connection));
        tracing::info!(address = %self.config.address, "counters are shared through Valkey");
        Ok(())
    }

    /// Renew the lease, and tell of what was missed.
    async fn renew(&self) {
        let Some(mut connection) = self.connected() else {
            return;
        };
        let told = match self.live(&mut connection).await {
            Ok(true) if !self.has_untold() => Ok(()),
            Ok(_) => {
                let _alone = self.telling.write().await;
                self.tell(&mut connection).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            self.lose(&error.to_string());
        }
    }

    /// Renew the lease; true if the server knew this host.
    async fn live(&self, connection: &mut MultiplexedConnection) -> Result<bool, ConnectError> {
        let mut call = self.scripts.live.key(self.hosts_key());
        call.arg(&self.host).arg(milliseconds(self.config.lease));
        call.arg(milliseconds(FORGET_HOST));
        let known: u8 = self.run(&call, connection).await?;
        if known == 0 && self.known.swap(true, Ordering::Relaxed) {
            self.mirrors().iter().for_each(|mirror| mirror.doubt_all());
            tracing::warn!(
                "Valkey had forgotten this host; it is told again of the answers under way"
            );
        }
        Ok(known == 1)
    }

    async fn run<T: FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
        connection: &mut MultiplexedConnection,
    ) -> Result<T, ConnectError> {
        let answer = timeout(CONNECT_TIMEOUT, call.invoke_async(connection)).await;
        Ok(answer.map_err(|_| ConnectError::Timeout)??)
    }

    fn mirrors(&self) -> Vec<Arc<Mirror>> {
        let mirrors = self.mirrors.lock().unwrap_or_else(PoisonError::into_inner);
        mirrors.values().cloned().collect()
    }

    fn has_untold(&self) -> bool {
        self.mirrors().iter().any(|mirror| mirror.has_untold())
    }

    /// Bring the server up to date: the lease of this host, its places in use, and changes made without the server.
    async fn tell(&self, connection: &mut MultiplexedConnection) -> Result<(), ConnectError> {
        self.live(connection).await?;
        for mirror in self.mirrors() {
            for (bucket, count) in mirror.untold_places() {
                let mut call = self.scripts.hold.key(self.key("p", &mirror.name, &bucket));
                call.arg(&self.host).arg(count);
                call.arg(milliseconds(KEEP_PLACES));
                self.run::<u8>(&call, connection).await?;
                mirror.told_places(&bucket, count);
            }
            for (bucket, change) in mirror.untold_changes() {
                let key = self.key("b", &mirror.name, &bucket);
                let mut call = self.scripts.adjust.key(key);
                call.arg(change).arg(MAX_AHEAD_US);
                self.run::<String>(&call, connection).await?;
                mirror.told_change(&bucket, change);
            }
        }
        Ok(())
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
