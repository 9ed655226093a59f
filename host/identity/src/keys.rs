//! Issued keys of a running server: in the store first, then in force.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use mortise_store::{Change, Key, Page, Record, RecordKind, SERVER, Store, StoreError};
use tokio::sync::{Mutex, MutexGuard};

use crate::key::{self, IssuedKey, KeyRefusal, NoRandomness, SecretDigest};
use crate::limits::{MAX_KEYS, MAX_SECRETS};
use crate::terms::{Terms, TermsError, check_name};

/// Keys of a page that is read from the store.
const PAGE: usize = 500;

/// Wishes for a key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewKey {
    /// Id, which no other key has.
    pub id: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Seconds since 1970 from which the key is refused.
    pub expires_at: Option<i64>,
    /// True while the key is refused, until the operator enables it again.
    pub disabled: bool,
    /// Scopes and limits.
    pub terms: Terms,
}

/// Failure to change a key. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// There is none of this id.
    #[error("there is no issued key `{0}`")]
    Unknown(String),
    /// The id is taken.
    #[error("there is a key `{0}` already; rotate it, or choose another id")]
    Exists(String),
    /// The key was revoked.
    #[error("the key `{0}` was revoked, and stays so; issue another")]
    Revoked(String),
    /// The number of keys has reached its limit.
    #[error("there are {MAX_KEYS} keys, which is all that there may be; delete revoked ones")]
    TooMany,
    /// A term cannot hold.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// No secret could be made.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The key could not be written to the store.
    #[error("the key could not be kept: {0}")]
    Store(#[from] StoreError),
}

/// Keys in force, by id and by the digests of their secrets.
#[derive(Default)]
struct Table {
    keys: HashMap<String, Arc<IssuedKey>>,
    ids: HashMap<SecretDigest, String>,
}

impl Table {
    fn put(&mut self, key: IssuedKey) {
        self.forget(&key.id);
        let digests = key
            .secrets
            .iter()
            .filter_map(|secret| bytes(&secret.sha256));
        for digest in digests {
            self.ids.insert(digest, key.id.clone());
        }
        self.keys.insert(key.id.clone(), Arc::new(key));
    }

    fn forget(&mut self, id: &str) {
        if let Some(old) = self.keys.remove(id) {
            let digests = old
                .secrets
                .iter()
                .filter_map(|secret| bytes(&secret.sha256));
            for digest in digests {
                self.ids.remove(&digest);
            }
        }
    }
}

/// Mark that changes with every change, where several hosts share the store.
type Revision = Option<Vec<u8>>;

/// Issued keys. A change is in force for the next request once it is written.
pub struct Keys {
    store: Arc<dyn Store>,
    table: RwLock<Table>,
    /// Changes, one at a time, and the mark of the last that is known.
    turn: Mutex<Revision>,
}

impl Keys {
    /// The keys of a store.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let (table, seen) = read(&*store).await?;
        Ok(Self {
            store,
            table: RwLock::new(table),
            turn: Mutex::new(seen),
        })
    }

    /// Take note of what other hosts have changed, where several share the store.
    ///
    /// # Errors
    /// When it cannot be read; the keys stay as they were known.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if self.store.is_shared() {
            let mut seen = self.turn.lock().await;
            self.catch_up(&mut seen).await?;
        }
        Ok(())
    }

    async fn catch_up(&self, seen: &mut Revision) -> Result<(), StoreError> {
        if *seen == revision(&*self.store).await? {
            return Ok(());
        }
        let (table, now) = read(&*self.store).await?;
        let mut known = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *known = table;
        *seen = now;
        Ok(())
    }

    /// Wait for the turn to change keys, and read the changes of other hosts before.
    async fn turn(&self) -> Result<MutexGuard<'_, Revision>, StoreError> {
        let mut seen = self.turn.lock().await;
        if self.store.is_shared() {
            self.catch_up(&mut seen).await?;
        }
        Ok(seen)
    }

    /// Write a change of keys. Where several hosts share the store, a new revision is written with the change, by which
    /// the other hosts see it; the write fails if another host has changed keys meanwhile.
    async fn write(&self, seen: &mut Revision, change: Change) -> Result<(), StoreError> {
        if !self.store.is_shared() {
            return self.store.commit(vec![change]).await;
        }
        let number = seen.as_deref().unwrap_or_default();
        let number = std::str::from_utf8(number).ok();
        let number: u64 = number.and_then(|text| text.parse().ok()).unwrap_or(0);
        let next = (number + 1).to_string().into_bytes();
        let record = Record {
            key: revision_address(),
            created: now(),
            expires: None,
            open: false,
            body: next.clone(),
        };
        let mark = match seen.clone() {
            None => Change::Create(record),
            Some(before) => Change::Replace { record, before },
        };
        self.store.commit(vec![mark, change]).await?;
        *seen = Some(next);
        Ok(())
    }

    /// All keys, by id.
    pub fn list(&self) -> Vec<Arc<IssuedKey>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let mut keys: Vec<_> = table.keys.values().cloned().collect();
        keys.sort_by(|one, other| one.id.cmp(&other.id));
        keys
    }

    /// A key.
    ///
    /// # Errors
    /// When there is none of this id.
    pub fn get(&self, id: &str) -> Result<Arc<IssuedKey>, KeyError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let key = table.keys.get(id).cloned();
        key.ok_or_else(|| KeyError::Unknown(id.to_owned()))
    }

    /// True if there is an issued key.
    pub(crate) fn any(&self) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        !table.keys.is_empty()
    }

    /// Key that a secret belongs to, and the reason to refuse it if there is one.
    ///
    /// The table is looked up by the digest. How long that takes can tell something of digests only, which nobody can
    /// choose, and nothing of secrets; the digest that was found is compared in constant time.
    pub(crate) fn find(&self, secret: &str) -> Option<(Arc<IssuedKey>, Option<KeyRefusal>)> {
        let digest = key::digest(secret);
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let key = Arc::clone(table.keys.get(table.ids.get(&digest)?)?);
        drop(table);
        let refusal = key.refusal(&digest, now());
        Some((key, refusal))
    }

    /// Issue a key. The secret is told here and never again.
    ///
    /// # Errors
    /// When the id is taken, a term cannot hold, or the key cannot be kept.
    pub async fn create(&self, wanted: NewKey) -> Result<(Arc<IssuedKey>, String), KeyError> {
        check(&wanted)?;
        let mut seen = self.turn().await?;
        match self.get(&wanted.id) {
            Ok(_) => return Err(KeyError::Exists(wanted.id)),
            Err(_) if self.list().len() >= MAX_KEYS => return Err(KeyError::TooMany),
            Err(_) => {}
        }
        let (text, secret) = key::new_secret(now())?;
        let key = IssuedKey {
            id: wanted.id,
            tenant: wanted.tenant,
            created_at: now(),
            expires_at: wanted.expires_at,
            disabled: wanted.disabled,
            revoked_at: None,
            terms: wanted.terms,
            secrets: vec![secret],
        };
        Ok((self.keep(&mut seen, key).await?, text))
    }

    /// Give a key other terms; its secrets stay.
    ///
    /// # Errors
    /// When there is no such key, it was revoked, a term cannot hold, or it cannot be kept.
    pub async fn update(&self, wanted: NewKey) -> Result<Arc<IssuedKey>, KeyError> {
        check(&wanted)?;
        let mut seen = self.turn().await?;
        let mut key = self.usable(&wanted.id)?;
        key.tenant = wanted.tenant;
        key.expires_at = wanted.expires_at;
        key.disabled = wanted.disabled;
        key.terms = wanted.terms;
        self.keep(&mut seen, key).await
    }

    /// Give a key another secret. Its previous secrets stay valid for `overlap` more seconds.
    ///
    /// # Errors
    /// When there is no such key, it was revoked, or the change cannot be written.
    pub async fn rotate(
        &self,
        id: &str,
        overlap: u32,
    ) -> Result<(Arc<IssuedKey>, String), KeyError> {
        let mut seen = self.turn().await?;
        let mut key = self.usable(id)?;
        let (text, secret) = key::new_secret(now())?;
        let end = now().saturating_add(i64::from(overlap));
        for old in &mut key.secrets {
            old.expires_at = Some(old.expires_at.map_or(end, |at| at.min(end)));
        }
        key.secrets.push(secret);
        let excess = key.secrets.len().saturating_sub(MAX_SECRETS);
        key.secrets.drain(..excess);
        Ok((self.keep(&mut seen, key).await?, text))
    }

    /// Revoke a key for good. The key stays in lists.
    ///
    /// # Errors
    /// When there is no such key, or the change cannot be written.
    pub async fn revoke(&self, id: &str) -> Result<Arc<IssuedKey>, KeyError> {
        let mut seen = self.turn().await?;
        let mut key = IssuedKey::clone(&*self.get(id)?);
        key.revoked_at.get_or_insert_with(now);
        self.keep(&mut seen, key).await
    }

    /// Delete a key, which is refused from then on.
    ///
    /// # Errors
    /// When there is no such key, or it cannot be removed.
    pub async fn delete(&self, id: &str) -> Result<(), KeyError> {
        let mut seen = self.turn().await?;
        self.get(id)?;
        self.write(&mut seen, Change::Delete(address(id))).await?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.forget(id);
        Ok(())
    }

    fn usable(&self, id: &str) -> Result<IssuedKey, KeyError> {
        let key = self.get(id)?;
        match key.revoked_at {
            Some(_) => Err(KeyError::Revoked(id.to_owned())),
            None => Ok(IssuedKey::clone(&key)),
        }
    }

    async fn keep(&self, seen: &mut Revision, key: IssuedKey) -> Result<Arc<IssuedKey>, KeyError> {
        let body =
            serde_json::to_vec(&key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let record = Record {
            key: address(&key.id),
            created: key.created_at,
            expires: None,
            open: false,
            body,
        };
        self.write(seen, Change::Put(record)).await?;
        let id = key.id.clone();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.put(key);
        drop(table);
        self.get(&id)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Keys")
    }
}

/// Read all keys of a store, and a revision that is not newer than the keys.
async fn read(store: &dyn Store) -> Result<(Table, Revision), StoreError> {
    let seen = match store.is_shared() {
        true => revision(store).await?,
        false => None,
    };
    let (mut table, mut after) = (Table::default(), None);
    loop {
        let page = Page {
            after: after.take(),
            limit: PAGE,
            ascending: true,
        };
        let owner = Arc::from(SERVER);
        let listing = store.list(&owner, RecordKind::ApiKey, page, None).await?;
        after = listing.entries.last().map(|record| record.key.id.clone());
        for record in listing.entries {
            match serde_json::from_slice::<IssuedKey>(&record.body) {
                Ok(key) => table.put(key),
                Err(error) => {
                    let id = record.key.id;
                    tracing::error!(id, %error, "an issued key cannot be read and is not taken");
                }
            }
        }
        if !listing.more {
            return Ok((table, seen));
        }
    }
}

async fn revision(store: &dyn Store) -> Result<Revision, StoreError> {
    let record = store.get(revision_address()).await?;
    Ok(record.map(|record| record.body))
}

fn revision_address() -> Key {
    Key::new(&Arc::from(SERVER), RecordKind::Revision, "api_keys")
}

fn check(wanted: &NewKey) -> Result<(), TermsError> {
    check_name("id", &wanted.id)?;
    if let Some(tenant) = &wanted.tenant {
        check_name("tenant", tenant)?;
    }
    wanted.terms.check()
}

fn address(id: &str) -> Key {
    Key::new(&Arc::from(SERVER), RecordKind::ApiKey, id)
}

fn bytes(digits: &str) -> Option<SecretDigest> {
    let mut digest = SecretDigest::default();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if pairs.len() != digest.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(digest)
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}
