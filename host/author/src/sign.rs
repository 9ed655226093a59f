//! `mortise plugin sign`: the ed25519 signature of a file, which servers check.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::registry_args::PluginSignArgs;

/// Longest key file that is read.
pub(crate) const MAX_KEY_BYTES: u64 = 16 << 10;

/// Sign a file. Says where the signature is, and the public key.
pub(crate) fn sign(args: &PluginSignArgs) -> anyhow::Result<Value> {
    let wasm =
        fs::read(&args.file).with_context(|| format!("cannot read `{}`", args.file.display()))?;
    let key = key_of(&args.key)?;
    let beside = signature_of(&args.file);
    fs::write(&beside, key.sign(&wasm).as_ref())
        .with_context(|| format!("cannot write `{}`", beside.display()))?;
    Ok(json!({
        "file": args.file,
        "signature": beside,
        "public_key": hex(key.public_key().as_ref()),
    }))
}

/// The file that holds the signature of a plugin.
pub(crate) fn signature_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".sig");
    PathBuf::from(name)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key_of(path: &Path) -> anyhow::Result<Ed25519KeyPair> {
    let shown = path.display();
    let length = fs::metadata(path)
        .with_context(|| format!("cannot read `{shown}`"))?
        .len();
    if length > MAX_KEY_BYTES {
        bail!("`{shown}` has {length} bytes, which no key has");
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
    let body = text
        .split_once("-----BEGIN PRIVATE KEY-----")
        .and_then(|(_, rest)| rest.split_once("-----END PRIVATE KEY-----"));
    let Some((body, _)) = body else {
        bail!(
            "`{shown}` is no private key in PEM without a password; make one by \
             `openssl genpkey -algorithm ed25519 -out key.pem`"
        );
    };
    let body: String = body.split_whitespace().collect();
    let der = BASE64_STANDARD
        .decode(body)
        .with_context(|| format!("`{shown}` is no PEM"))?;
    // What openssl writes has no public key to be checked against the private one.
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der)
        .map_err(|error| anyhow::anyhow!("`{shown}` is no ed25519 key: {error}"))
}
