//! Connections to PostgreSQL: a few, made when they are needed, and made anew when they are lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::config::Config;
use tokio_postgres::{Client, Error};

use super::failure::told;
use super::schema;
use super::tls::Tls;
use crate::error::StoreError;
use crate::limits::MAX_DATABASE_CONNECTIONS;

/// For so long after a connection could not be made, none is tried: a lost database makes nobody wait.
const PAUSE: Duration = Duration::from_secs(1);

/// Settings of every connection. A server that does not wait for its disk would lose what it has acknowledged. Compiling a
/// statement takes longer than the statements do.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '15s'; SET jit = off; \
     SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') = 'off';";

/// Pool of connections to PostgreSQL.
pub(super) struct ConnectionPool {
    config: Config,
    tls: Tls,
    slots: Arc<Semaphore>,
    idle: Mutex<Vec<Client>>,
    /// Time and error of the last failed attempt to connect.
    failed: Mutex<Option<(Instant, StoreError)>>,
}

/// A connection that is in use. The connection is closed if it is not given back.
pub(super) struct Lent {
    pub(super) client: Client,
    slot: OwnedSemaphorePermit,
}

impl ConnectionPool {
    pub(super) fn new((config, tls): (Config, Tls)) -> Self {
        Self {
            config,
            tls,
            slots: Arc::new(Semaphore::new(MAX_DATABASE_CONNECTIONS)),
            idle: Mutex::default(),
            failed: Mutex::default(),
        }
    }

    /// A connection whose tables were checked by nobody.
    pub(super) async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::warn!(error = told(&error), "a connection to PostgreSQL was lost");
            }
        });
        client.batch_execute(SETTINGS).await?;
        Ok(client)
    }

    /// A connection to tables of this version.
    pub(super) async fn lend(&self) -> Result<Lent, StoreError> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let slot = slot.map_err(|_| StoreError::Unavailable("it is closed".to_owned()))?;
        while let Some(client) = self.idle().pop() {
            if !client.is_closed() {
                return Ok(Lent { client, slot });
            }
        }
        self.check_pause()?;
        let made = match self.connect().await {
            Ok(client) => checked(client).await,
            Err(error) => Err(StoreError::from(error)),
        };
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(client) => {
                if failed.take().is_some() {
                    tracing::info!("PostgreSQL is there again");
                }
                drop(failed);
                Ok(Lent { client, slot })
            }
            Err(error) => {
                *failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Return a connection to the pool.
    pub(super) fn give_back(&self, lent: Lent) {
        let Lent { client, slot } = lent;
        if !client.is_closed() {
            self.idle().push(client);
        }
        drop(slot);
    }

    /// Close the connections that nobody uses.
    #[cfg(test)]
    pub(super) fn forget(&self) {
        self.idle().clear();
    }

    fn check_pause(&self) -> Result<(), StoreError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some((at, error)) if at.elapsed() < PAUSE => Err(error.clone()),
            _ => Ok(()),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A newer host may have changed the tables since this one was started.
async fn checked(client: Client) -> Result<Client, StoreError> {
    let row = client.query_one("SELECT version FROM mortise.meta", &[]);
    let (found, known) = (row.await?.get::<_, i64>(0), schema::known());
    match found == known {
        true => Ok(client),
        false => Err(StoreError::Unavailable(format!(
            "its tables have version {found}, and this program knows version {known}"
        ))),
    }
}
