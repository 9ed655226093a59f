//! A caller's token: header, zero byte, claims, zero byte, signature, encoded here; or, without zero bytes, the whole
//! credential. And before all that, up to a zero byte, the set of keys of its issuer.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crate::files;
use mortise_identity::{Algorithm, CallerDirectory, IdentityConfig, IssuerConfig, KeyPlace, KeyTimes};
use mortise_store::{SqliteStore, Store, StoreConfig};
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime"));
static STORE: LazyLock<Arc<dyn Store>> = LazyLock::new(|| {
    let config = StoreConfig {
        path: None,
        max_bytes: 1 << 26,
        owner_max_bytes: 1 << 26,
        owner_max_records: 1 << 16,
        sync_answers: false,
    };
    Arc::new(SqliteStore::open(&config).expect("a store"))
});

fn credential(parts: &[&[u8]]) -> Option<String> {
    match parts {
        [whole] => String::from_utf8(whole.to_vec()).ok(),
        parts => {
            let encoded = parts.iter().map(|part| URL_SAFE_NO_PAD.encode(part));
            Some(encoded.collect::<Vec<_>>().join("."))
        }
    }
}

/// Run on one input.
pub fn run(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let keys = parts.next().unwrap_or_default();
    let rest: Vec<&[u8]> = parts.collect();
    let Some(credential) = credential(&rest) else {
        return;
    };
    let folder = files::with(&[("keys.json", keys)]);
    let issuer = IssuerConfig {
        issuer: "a".to_owned(),
        audiences: vec!["b".to_owned()],
        algorithms: vec![Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA],
        keys: KeyPlace::File(folder.join("keys.json")),
        times: KeyTimes {
            refresh: Duration::from_secs(60),
            max_age: Duration::from_secs(60),
        },
        clock_skew: 0,
        required: vec![],
        subject_claim: "sub".to_owned(),
        tenant_claim: None,
        scope_claim: "scope".to_owned(),
        grants: vec![],
    };
    let config = IdentityConfig {
        issuers: vec![issuer],
        ..IdentityConfig::default()
    };
    RUNTIME.block_on(async {
        let identity = CallerDirectory::open(Arc::clone(&STORE), config).await.expect("callers");
        let headers = [("authorization".to_owned(), format!("Bearer {credential}"))];
        let recognised = identity.recognise(&headers).await;
        // Nobody has the private half of a key in here.
        let caller = recognised.ok().flatten().is_some_and(|found| !found["caller"].is_null());
        assert!(!caller, "nobody is recognised");
    });
}
