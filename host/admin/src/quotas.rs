//! Limits of issued keys, with how much of each is used. What is shown is what the policies tell, with the state of the
//! counters that the host keeps for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::StatusCode;
use mortise_http::contract::Operation;
use mortise_http::{Problem, json_response};
use mortise_identity::IssuedKey;
use mortise_plugin_manager::{QuotaCaller, QuotaUse};
use serde_json::{Value, json};

use crate::Admin;
use crate::limits::{EVENT_INTERVAL, MAX_LISTED_QUOTAS};
use crate::models::{ModelName, name_of};

/// Pause after a look at all keys, as a multiple of the time that it took.
const REST: u32 = 50;

/// Rows of keys by their ids, as they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Watched(tokio::sync::Mutex<Option<Seen>>);

#[derive(Debug)]
struct Seen {
    rows: Arc<BTreeMap<String, Value>>,
    at: Instant,
    took: Duration,
}

/// Operation that lists the limits of keys.
pub(crate) fn list_operation() -> Operation {
    let summary = "Lists the limits of issued keys with their use, for 1,000 keys at a time.";
    let about = "Lists the keys behind the one of this id.";
    Operation::get("/v1/admin/quotas", "listQuotas", summary)
        .refuses(&[400, 401])
        .query("after", json!({"type": "string"}), about)
        .answers(200, "KeyQuotaRows")
}

/// Operation that shows the limits of a key.
pub(crate) fn key_operation() -> Operation {
    let summary = "Limits that requests of an issued key count against, with their use.";
    Operation::get("/v1/admin/keys/{id}/quotas", "getKeyQuotas", summary)
        .refuses(&[401, 404])
        .answers(200, "KeyQuotas")
}

/// Limits of a key.
pub(crate) async fn show(
    State(admin): State<Arc<Admin>>,
    id: ModelName,
) -> Result<Response, Problem> {
    let key = admin.identity.keys().get(&name_of(id)?);
    let key = key.map_err(crate::keys::problem)?;
    Ok(json_response(StatusCode::OK, &row(&admin, &key).await))
}

/// Limits of all keys, up to a bound.
pub(crate) async fn list(
    State(admin): State<Arc<Admin>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let after = after(query.as_deref().unwrap_or_default())?;
    let keys = admin.identity.keys().list();
    let first = match &after {
        Some(after) => keys.partition_point(|key| key.id <= *after),
        None => 0,
    };
    let left = keys.get(first..).unwrap_or_default();
    let mut rows = Vec::new();
    for key in left.iter().take(MAX_LISTED_QUOTAS) {
        rows.push(row(&admin, key).await);
    }
    let has_more = left.len() > MAX_LISTED_QUOTAS;
    let body = json!({"object": "list", "data": rows, "has_more": has_more});
    Ok(json_response(StatusCode::OK, &body))
}

/// Id behind which a list begins, of a query.
fn after(query: &str) -> Result<Option<String>, Problem> {
    if query.is_empty() {
        return Ok(None);
    }
    let Some(id) = query.strip_prefix("after=").filter(|id| !id.contains('&')) else {
        let message = "the only parameter is `after`, the id of a key, as in `?after=alice`";
        let problem = Problem::new(StatusCode::BAD_REQUEST, "invalid_query", message);
        return Err(problem.at("after"));
    };
    let id = percent_encoding::percent_decode_str(id).decode_utf8_lossy();
    Ok(Some(id.into_owned()))
}

/// Rows of the first keys, for those who follow events: looked at once an interval at most, and for a fiftieth of the time,
/// however many follow.
pub(crate) async fn watched(admin: &Admin) -> Arc<BTreeMap<String, Value>> {
    let mut seen = admin.quotas.0.lock().await;
    if let Some(seen) = &*seen
        && seen.at.elapsed() < (seen.took * REST).max(EVENT_INTERVAL / 2)
    {
        return Arc::clone(&seen.rows);
    }
    let begun = Instant::now();
    let mut rows = BTreeMap::new();
    for key in admin.identity.keys().list().iter().take(MAX_LISTED_QUOTAS) {
        rows.insert(key.id.clone(), row(admin, key).await);
    }
    let rows = Arc::new(rows);
    *seen = Some(Seen {
        rows: Arc::clone(&rows),
        at: Instant::now(),
        took: begun.elapsed(),
    });
    rows
}

/// Limits of a key; null with the reason where they are not told.
async fn row(admin: &Admin, key: &IssuedKey) -> Value {
    let row = |quotas: Option<Vec<Value>>, reason: Option<String>| json!({"object": "key_quotas", "id": key.id, "quotas": quotas, "reason": reason});
    let now = unix_ms();
    let state = key.state(i64::try_from(now / 1_000).unwrap_or(i64::MAX));
    if state != "active" {
        let reason =
            format!("the key is {state}: its requests are refused before any limit is looked at");
        return row(None, Some(reason));
    }
    let caller = QuotaCaller {
        id: key.id.clone(),
        kind: "key",
        tenant: key.tenant.clone(),
        terms: json!(key.terms).to_string(),
    };
    let told = admin.live.quotas(&caller).await;
    let (mut quotas, mut reasons) = (None, Vec::new());
    for policy in told {
        match policy.told {
            Ok(used) => {
                let rows = used.iter().map(|used| quota(&policy.policy, used, now));
                quotas.get_or_insert_with(Vec::new).extend(rows);
            }
            Err(reason) => reasons.push(format!("policy `{}`: {reason}", policy.policy)),
        }
    }
    if quotas.is_none() && reasons.is_empty() {
        reasons.push("no policy concerns this key".to_owned());
    }
    row(quotas, (!reasons.is_empty()).then(|| reasons.join("; ")))
}

fn quota(policy: &str, told: &QuotaUse, now_ms: u64) -> Value {
    let QuotaUse { quota, level } = told;
    let full = level.full_in_ms.filter(|wait| *wait > 0);
    // Without an end that is known, the period says nothing either.
    let period_ms = level.full_in_ms.map(|_| quota.rate.period_ms);
    json!({
        "policy": policy,
        "name": quota.name,
        "unit": quota.unit.as_str(),
        "shared_by": quota.shared_by,
        "limit": quota.rate.capacity,
        "used": level.used,
        "remaining": level.remaining,
        "period_ms": period_ms,
        "resets_at": full.map(|wait| now_ms.saturating_add(wait).div_ceil(1_000)),
    })
}

fn unix_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(elapsed.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_key_or_nothing() {
        assert_eq!(after("").expect("no query"), None);
        let read = |query: &str| after(query).expect("a query");
        assert_eq!(read("after=alice").as_deref(), Some("alice"));
        assert_eq!(read("after=a%2Eb").as_deref(), Some("a.b"));
        for wrong in ["before=a", "after=a&limit=1", "limit=1"] {
            assert_eq!(after(wrong).expect_err(wrong).code, "invalid_query");
        }
    }
}
