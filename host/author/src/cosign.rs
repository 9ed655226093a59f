//! Signatures that cosign makes and checks, by a key and without a log of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mortise_registry::{
    ArtifactStore, CosignSignature, Digest, Reference, cosign_payload, cosign_signatures,
    push_cosign_signature,
};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};

use crate::sign::MAX_KEY_BYTES;

/// Beginning of a public key of P-256 in DER: the algorithm and the curve. A point of 65 bytes follows.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Bytes of a point that is not compressed.
const POINT_BYTES: usize = 65;

/// Private key that signs what is pushed.
pub(crate) struct ArtifactKey(EcdsaKeyPair);

impl ArtifactKey {
    /// The key of a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let der = pem(path, "PRIVATE KEY")?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &SystemRandom::new());
        let shown = path.display();
        let wrong = |error| anyhow::anyhow!("`{shown}` is no key of P-256: {error}");
        key.map(Self).map_err(wrong)
    }

    /// Sign a manifest that was pushed, and push the signature.
    pub(crate) fn push(
        &self,
        store: &mut impl ArtifactStore,
        reference: &Reference,
        manifest: &Digest,
    ) -> anyhow::Result<()> {
        let payload = cosign_payload(reference, manifest);
        let signature = self.0.sign(&SystemRandom::new(), &payload);
        let signature = signature.map_err(|_| anyhow::anyhow!("the key does not sign"))?;
        let signed = CosignSignature {
            payload,
            signature: signature.as_ref().to_vec(),
        };
        push_cosign_signature(store, reference, manifest, &signed)?;
        Ok(())
    }
}

/// Check that one of the keys signed a manifest; without keys nothing is asked for.
pub(crate) fn check(
    store: &mut impl ArtifactStore,
    reference: &Reference,
    manifest: &Digest,
    keys: &[PathBuf],
) -> anyhow::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let points: Vec<Vec<u8>> = keys
        .iter()
        .map(|key| public_key(key))
        .collect::<Result<_, _>>()?;
    let signatures = cosign_signatures(store, reference, manifest)?;
    ensure!(
        !signatures.is_empty(),
        "it is not signed by cosign, and --cosign-key wants that"
    );
    let good = |signed: &CosignSignature| {
        signed.is_of(manifest)
            && points.iter().any(|point| {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point);
                key.verify(&signed.payload, &signed.signature).is_ok()
            })
    };
    ensure!(
        signatures.iter().any(good),
        "none of its signatures by cosign is by a key of --cosign-key and over {manifest}"
    );
    Ok(())
}

fn public_key(path: &Path) -> anyhow::Result<Vec<u8>> {
    let der = pem(path, "PUBLIC KEY")?;
    match der.strip_prefix(&P256) {
        Some(point) if point.len() == POINT_BYTES => Ok(point.to_vec()),
        _ => bail!("`{}` is no public key of P-256", path.display()),
    }
}

/// The content of a PEM file.
fn pem(path: &Path, label: &str) -> anyhow::Result<Vec<u8>> {
    let shown = path.display();
    let length = fs::metadata(path)
        .with_context(|| format!("cannot read `{shown}`"))?
        .len();
    ensure!(
        length <= MAX_KEY_BYTES,
        "`{shown}` has {length} bytes, which no key has"
    );
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
    ensure!(
        !text.contains("ENCRYPTED"),
        "`{shown}` is encrypted, and passwords are not asked for; cosign signs with such keys by itself"
    );
    let body = text
        .split_once(&format!("-----BEGIN {label}-----"))
        .and_then(|(_, rest)| rest.split_once(&format!("-----END {label}-----")));
    let Some((body, _)) = body else {
        bail!(
            "`{shown}` has no {label} in PEM; `openssl genpkey -algorithm EC -pkeyopt \
             ec_paramgen_curve:P-256 -out key.pem` makes a private one, and `openssl pkey -pubout` its public one"
        );
    };
    let body: String = body.split_whitespace().collect();
    BASE64_STANDARD
        .decode(body)
        .with_context(|| format!("`{shown}` is no PEM"))
}
