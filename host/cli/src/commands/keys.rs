//! `mortise keys …`: keys of callers, of a running server over its admin side, or in a store that no server has open.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use mortise_harness::print_as;
use mortise_identity::{IssuedKey, KeyError, Keys, NewKey, Terms, hash_password};
use mortise_store::{AuditFile, AuditLog, SqliteStore, Store, StoreConfig};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::admin_args::AdminServer;
use crate::admin_client::AdminClient;
use crate::key_args::{KeyTarget, KeyTermArgs, KeysCommand};

/// Longest password that is read, in bytes, with the end of its line.
const MAX_PASSWORD_BYTES: u64 = 4_096;

/// Reason for which the limits of keys in a file have no use.
const NOBODY_COUNTS: &str = "a running server counts, and the file was read without one";

/// Widest column of what is used, in characters; a longer cell puts off the rest of its line.
const WIDEST_USED: usize = 60;

/// Do what the command line says.
pub(crate) fn run(command: KeysCommand) -> anyhow::Result<()> {
    match command {
        KeysCommand::Create {
            id,
            terms,
            place,
            json,
        } => {
            let wanted = wanted(id, *terms)?;
            let made = match of(place)? {
                Place::Server(admin) => admin.post("/v1/admin/keys", &body(&wanted))?,
                Place::File(keys) => {
                    let id = wanted.id.clone();
                    keys.change("create", &id, async |keys| keys.create(wanted).await)?
                }
            };
            print_as(json, &made, secret)
        }
        KeysCommand::List { json, place } => {
            let rows = match of(place)? {
                Place::Server(admin) => listed(&admin)?,
                Place::File(keys) => kept(&keys.keys),
            };
            print_as(json, &rows, table)
        }
        KeysCommand::Rotate {
            id,
            overlap,
            place,
            json,
        } => {
            let rotated = match of(place)? {
                Place::Server(admin) => {
                    let body = json!({"overlap_seconds": overlap});
                    admin.post(&format!("{}/rotate", path(&id)), &body)?
                }
                Place::File(keys) => {
                    keys.change("rotate", &id, async |keys| keys.rotate(&id, overlap).await)?
                }
            };
            print_as(json, &rotated, secret)
        }
        KeysCommand::Revoke { id, place, json } => {
            match of(place)? {
                Place::Server(admin) => {
                    admin.post(&format!("{}/revoke", path(&id)), &json!({}))?;
                }
                Place::File(keys) => {
                    keys.recorded("revoke", &id, async |keys| keys.revoke(&id).await)?;
                }
            }
            let revoked = json!({"id": id, "state": "revoked"});
            print_as(json, &revoked, |_| format!("{id} is revoked\n"))
        }
        KeysCommand::Password { json } => {
            let mut text = String::new();
            let mut input = std::io::stdin().take(MAX_PASSWORD_BYTES);
            let read = input.read_to_string(&mut text);
            read.context("the password cannot be read")?;
            let hash = hash_password(text.trim_end_matches(['\r', '\n']))?;
            print_as(json, &json!({"hash": hash}), |_| format!("{hash}\n"))
        }
    }
}

/// Place of the keys.
enum Place {
    Server(AdminClient),
    File(StoredKeys),
}

/// Keys of a store that this process has open.
struct StoredKeys {
    runtime: tokio::runtime::Runtime,
    keys: Keys,
    audit: Option<AuditLog>,
}

impl StoredKeys {
    fn open(path: &Path, audit: Option<&Path>) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.context("cannot start a thread")?;
        let config = StoreConfig {
            path: Some(path.to_owned()),
            // The server's own records have no quota.
            max_bytes: u64::MAX,
            owner_max_bytes: u64::MAX,
            owner_max_records: u64::MAX,
            sync_answers: false,
        };
        let store = SqliteStore::open(&config).context(
            "the store cannot be opened; of a running server, change keys with --config or --admin-url",
        )?;
        let store: Arc<dyn Store> = Arc::new(store);
        let file = audit.map(AuditFile::open).transpose();
        let file = file.context("the audit log cannot be opened")?;
        let audit = runtime.block_on(AuditLog::take_up(&store, file))?;
        let keys = runtime.block_on(Keys::open(store))?;
        Ok(Self {
            runtime,
            keys,
            audit,
        })
    }

    /// Make a change between two entries of the audit log, if there is one. Without the first, nothing is changed.
    fn recorded<T>(
        &self,
        command: &str,
        id: &str,
        change: impl AsyncFnOnce(&Keys) -> Result<T, KeyError>,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            self.tell(command, id, "begun", None).await?;
            let changed = change(&self.keys).await;
            let error = changed.as_ref().err().map(ToString::to_string);
            self.tell(command, id, "ended", error).await?;
            Ok(changed?)
        })
    }

    async fn tell(
        &self,
        command: &str,
        id: &str,
        outcome: &str,
        error: Option<String>,
    ) -> anyhow::Result<()> {
        let Some(audit) = &self.audit else {
            return Ok(());
        };
        let at = OffsetDateTime::now_utc().format(&Rfc3339)?;
        let mut entry = json!({
            "action": "keys.command",
            "outcome": outcome,
            "command": command,
            "key": id,
            "uid": rustix::process::getuid().as_raw(),
            "at": at,
        });
        if let Some(error) = error {
            entry["error"] = json!(error);
        }
        let appended = audit.append(entry.to_string()).await;
        appended.context("the audit log cannot be written")?;
        Ok(())
    }

    fn change(
        &self,
        command: &str,
        id: &str,
        change: impl AsyncFnOnce(&Keys) -> Result<(Arc<IssuedKey>, String), KeyError>,
    ) -> anyhow::Result<Value> {
        let (key, secret) = self.recorded(command, id, change)?;
        let mut row = row(&key);
        row["key"] = json!(secret);
        Ok(row)
    }
}

fn of(place: KeyTarget) -> anyhow::Result<Place> {
    if let Some(store) = place.store {
        let audit = place.audit.as_deref();
        return Ok(Place::File(StoredKeys::open(&store, audit)?));
    }
    Ok(Place::Server(AdminClient::of(&AdminServer {
        config: place.config,
        admin_url: place.admin_url,
        admin_key_env: place.admin_key_env,
        tls: place.tls,
    })?))
}

fn path(id: &str) -> String {
    format!(
        "/v1/admin/keys/{}",
        utf8_percent_encode(id, NON_ALPHANUMERIC)
    )
}

fn wanted(id: String, args: KeyTermArgs) -> anyhow::Result<NewKey> {
    let mut terms = Map::new();
    for setting in &args.settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("`--set {setting}` has no `=`; write --set KEY=VALUE");
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        terms.insert(key.to_owned(), value);
    }
    let terms: Terms = serde_json::from_value(Value::Object(terms)).context("--set")?;
    let expires_in = args.expires_in.map(i64::from);
    Ok(NewKey {
        id,
        tenant: args.tenant,
        expires_at: expires_in.map(|seconds| now().saturating_add(seconds)),
        disabled: false,
        terms,
    })
}

fn body(wanted: &NewKey) -> Value {
    json!({
        "id": wanted.id,
        "tenant": wanted.tenant,
        "expires_at": wanted.expires_at,
        "terms": wanted.terms,
    })
}

fn row(key: &IssuedKey) -> Value {
    json!({
        "id": key.id,
        "tenant": key.tenant,
        "state": key.state(now()),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "secrets": key.secrets_in_force(now()),
        "terms": key.terms,
    })
}

/// Keys of a file.
fn kept(keys: &Keys) -> Value {
    let rows = keys.list().into_iter();
    let rows = rows.map(|key| with_quotas(row(&key), None, NOBODY_COUNTS));
    json!({"object": "list", "data": rows.collect::<Vec<_>>()})
}

/// Keys of a running server, with how much of each limit is used.
fn listed(admin: &AdminClient) -> anyhow::Result<Value> {
    let mut keys = admin.get("/v1/admin/keys")?;
    let mut quotas = HashMap::new();
    let mut path = "/v1/admin/quotas".to_owned();
    loop {
        let page = admin.get(&path)?;
        let rows = page["data"].as_array().map_or(&[][..], Vec::as_slice);
        quotas.extend(
            rows.iter()
                .map(|row| (text(&row["id"]).to_owned(), row.clone())),
        );
        match rows.last() {
            Some(last) if page["has_more"] == true => {
                let after = utf8_percent_encode(text(&last["id"]), NON_ALPHANUMERIC);
                path = format!("/v1/admin/quotas?after={after}");
            }
            _ => break,
        }
    }
    if let Some(rows) = keys["data"].as_array_mut() {
        for row in rows {
            let told = quotas.get(text(&row["id"]));
            *row = with_quotas(row.take(), told, "the key was deleted meanwhile");
        }
    }
    Ok(keys)
}

/// A row with the limits that a server told of the key; null and the reason without them.
fn with_quotas(mut row: Value, told: Option<&Value>, none: &str) -> Value {
    row["quotas"] = told.map_or(Value::Null, |told| told["quotas"].clone());
    row["quotas_reason"] = told.map_or_else(|| json!(none), |told| told["reason"].clone());
    row
}

/// Use of each limit in words, or the reason for which it is not known.
fn used(row: &Value) -> String {
    let one = |quota: &Value| {
        let shared = match quota["shared_by"].as_str() {
            Some(holder) => format!(" ({holder})"),
            None => String::new(),
        };
        let (used, limit) = (&quota["used"], &quota["limit"]);
        format!("{}{shared} {used} of {limit}", text(&quota["name"]))
    };
    let quotas = row["quotas"].as_array();
    let mut parts: Vec<String> = quotas.into_iter().flatten().map(one).collect();
    if let Some(reason) = row["quotas_reason"].as_str() {
        parts.push(format!("unknown: {reason}"));
    }
    match parts.is_empty() {
        true => "no limit".to_owned(),
        false => parts.join(", "),
    }
}

/// The secret alone, so that a script can take it.
fn secret(row: &Value) -> String {
    format!("{}\n", text(&row["key"]))
}

/// Keys in columns.
fn table(rows: &Value) -> String {
    let rows = rows["data"].as_array().map_or(&[][..], Vec::as_slice);
    let wide = |name: &str, head: &str| {
        let lengths = rows.iter().map(|row| text(&row[name]).chars().count());
        lengths.max().unwrap_or(0).max(head.len())
    };
    let (ids, tenants) = (wide("id", "ID"), wide("tenant", "TENANT"));
    let used: Vec<String> = rows.iter().map(used).collect();
    let widths = used.iter().map(|used| used.chars().count());
    let widest = widths.max().unwrap_or(0).clamp(4, WIDEST_USED);
    let mut lines = format!(
        "{:ids$}  {:tenants$}  {:8}  SECRETS  {:widest$}  TERMS\n",
        "ID", "TENANT", "STATE", "USED"
    );
    for (row, used) in rows.iter().zip(&used) {
        let _ = writeln!(
            lines,
            "{:ids$}  {:tenants$}  {:8}  {:>7}  {used:widest$}  {}",
            text(&row["id"]),
            text(&row["tenant"]),
            text(&row["state"]),
            row["secrets"],
            row["terms"]
        );
    }
    lines
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    elapsed.map_or(0, |elapsed| {
        i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX)
    })
}
